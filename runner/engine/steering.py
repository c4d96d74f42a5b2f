"""Messages of a user to the model, and the queues for messages that the user sends while the model works."""

from collections import deque
from collections.abc import Sequence
from enum import StrEnum

from policy.model.frozen import dataclass
from runner.messages import ImageBlock

# The words between the prompt and the standard input that is appended to it.
STANDARD_INPUT = "\n\nStandard input:\n\n"


@dataclass(frozen=True, slots=True)
class UserInput:
    """One message of a user.

    Attributes:
        text: The text for the model.
        typed: The text that is shown to users, such as a /command whose text is long. Empty if it equals `text`.
        images: The images that a program attached.
    """

    text: str
    typed: str = ""
    images: tuple[ImageBlock, ...] = ()

    @property
    def shown(self) -> str:
        """Return the text as the user typed it."""
        return self.typed or self.text


def joined(several: Sequence[UserInput]) -> UserInput:
    """Return several messages as one prompt."""
    text = "\n\n".join(each.text for each in several)
    typed = "\n\n".join(each.shown for each in several) if any(each.typed for each in several) else ""
    return UserInput(text, typed, tuple(image for each in several for image in each.images))


class Delivery(StrEnum):
    """The number of queued messages that are delivered together."""

    ONE = "one-at-a-time"
    ALL = "all"


class Steering:
    """The two queues of one conversation. Only the thread of the event loop uses them.

    Steering messages are delivered between two batches of calls, follow-up messages at the end of a turn.
    """

    def __init__(self, delivery: Delivery = Delivery.ONE) -> None:
        self.delivery = delivery
        self._steer: deque[UserInput] = deque()
        self._later: deque[UserInput] = deque()

    @property
    def waiting(self) -> tuple[str, ...]:
        """Return every queued message as the user typed it, in the order of delivery."""
        return tuple(each.shown for each in (*self._steer, *self._later))

    def steer(self, text: str) -> None:
        """Queue `text` for delivery after the current batch of calls, or after the turn if no batch follows."""
        self._steer.append(UserInput(text))

    def follow_up(self, text: str, typed: str = "", images: tuple[ImageBlock, ...] = ()) -> None:
        """Queue `text` for delivery at the end of the turn; `typed` is shown in its place if it is not empty."""
        self._later.append(UserInput(text, typed, images))

    def take_back(self) -> tuple[str, ...]:
        """Empty both queues and return the removed messages as the user typed them."""
        texts = self.waiting
        self._steer.clear()
        self._later.clear()
        return texts

    def injected(self) -> tuple[str, ...]:
        """Remove and return the steering messages that the model is sent between two batches."""
        return tuple(each.text for each in self._take(self._steer))

    def next(self) -> UserInput | None:
        """Remove and return the message that begins the next turn, or None. Undelivered steering comes first."""
        queue = self._steer or self._later
        return joined(self._take(queue)) if queue else None

    def _take(self, queue: deque[UserInput]) -> tuple[UserInput, ...]:
        count = min(len(queue), 1) if self.delivery is Delivery.ONE else len(queue)
        return tuple(queue.popleft() for _ in range(count))
