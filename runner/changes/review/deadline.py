"""The end of the time for comparing a workspace: a point in time, or a request by a signal."""

import time

LEAST = 5.0  # seconds for a look when the time of the run is over already


class Deadline:
    """A moment that ends a computation. `at` is on the clock of `time.monotonic`, or None for no time limit."""

    __slots__ = ("_at", "asked")

    def __init__(self, at: float | None = None) -> None:
        self._at = at
        self.asked = False

    @classmethod
    def of_run(cls, began: float, seconds: float | None) -> "Deadline":
        """Return the deadline of a look behind a run that began at `began` and may take `seconds`: what is left of its
        time, and at least LEAST seconds from now."""
        return cls(None if seconds is None else max(began + seconds, time.monotonic() + LEAST))

    def ask(self) -> None:
        """Let the computation end now. It is safe to call this from a signal handler."""
        self.asked = True

    def over(self) -> bool:
        return self.asked or (self._at is not None and time.monotonic() >= self._at)


def never() -> bool:
    """Return False. Used as the deadline of a computation that has none."""
    return False
