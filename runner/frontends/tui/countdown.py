"""How long it still is until a model that failed is asked again."""

import math

from runner.events import Changed, Event, ModelText, ModelThinking, Retrying, RunEnded
from runner.frontends.wording import seconds


class Wait:
    """Counts down from the last failure. `now` is a clock in seconds."""

    def __init__(self) -> None:
        self._until = -math.inf

    def take(self, event: Event, now: float) -> None:
        match event:
            case Retrying():
                self._until = now + event.wait
            case ModelText() | ModelThinking() | Changed() | RunEnded():
                self._until = -math.inf
            case _:
                pass

    def words(self, now: float) -> str:
        """What is waited for; empty when nothing is."""
        left = self._until - now
        return f"asks again in {seconds(math.ceil(left))}" if left > 0 else ""
