"""Tests of the exchange that the rows of a table share: each row has its own answer, and one that breaks it is named."""

import threading
from collections.abc import Iterator

import pytest

from tests.support.sandbox_bench import USERS, Bench, make
from tests.support.waiting import until


@pytest.fixture
def own() -> Iterator[Bench]:
    """A bench of this test alone, whose driver may end."""
    yield from make(USERS[0])


def test_each_script_has_its_own_answer_and_one_that_breaks_the_exchange_is_named(own: Bench) -> None:
    begun, driver = own.workspace / "begun", own.process

    def kill() -> None:
        until(begun.exists, of=driver, what="the start of the second script")
        driver.kill()

    killing = threading.Thread(target=kill)
    killing.start()
    answers = own.run_many(["echo one; exit 3", "touch begun; exec sleep 9999", "echo three", "echo four >&2"])
    killing.join()
    assert answers[1] == {"broken": True}
    assert [(each["status"], each["out"], each["err"]) for each in answers if "broken" not in each] == [
        (3, "one\n", ""),
        (0, "three\n", ""),
        (0, "", "four\n"),
    ]
    assert own.run("echo on")["out"] == "on\n"
