"""What is said while the model works: queues, their order, and settings that hold from the next call on."""

import pytest

from runner.steering import Delivery, Steering

# (delivery, steered, later, what goes between two batches, what is sent after the turn)
QUEUES = [
    (Delivery.ONE, ["a", "b"], ["c"], ("a",), ["b", "c"]),
    (Delivery.ALL, ["a", "b"], ["c"], ("a", "b"), ["c"]),
    (Delivery.ALL, [], ["c", "d"], (), ["c\n\nd"]),
    (Delivery.ONE, [], ["c", "d"], (), ["c", "d"]),
]


@pytest.mark.parametrize(("delivery", "steered", "later", "between", "after"), QUEUES)
def test_words_wait_for_their_moment(
    delivery: Delivery, steered: list[str], later: list[str], between: tuple[str, ...], after: list[str]
) -> None:
    queues = Steering(delivery)
    for text in steered:
        queues.steer(text)
    for text in later:
        queues.follow_up(text)
    assert queues.waiting == (*steered, *later)
    assert queues.injected() == between
    assert [queues.next() for _ in after] == after
    assert queues.next() is None


def test_what_is_taken_back_is_not_sent() -> None:
    queues = Steering()
    queues.steer("a")
    queues.follow_up("b")
    assert queues.take_back() == ("a", "b")
    assert queues.injected() == ()
    assert queues.next() is None
