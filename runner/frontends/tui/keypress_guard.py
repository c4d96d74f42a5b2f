"""The guard between the appearance of a question and its answer: keys that were typed for something else are
ignored.
"""

import time
from collections.abc import Callable

GUARD, CAREFUL = 0.5, 1.0  # seconds without a key before one answers; where a yes cannot be taken back


class Guard:
    """The time that a question has been on the screen without a key press. `clock` returns monotonic seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._quiet: float | None = None  # None: not on the screen yet

    def drawn(self) -> None:
        """Note that the question is on the screen now."""
        if self._quiet is None:
            self._quiet = self._clock()

    def hidden(self) -> None:
        """Note that the question, or another one in its place, must be drawn before it can be answered."""
        self._quiet = None

    def pressed(self) -> None:
        """Note a key that answers nothing: it may be a part of a text that is being typed."""
        if self._quiet is not None:
            self._quiet = self._clock()

    def early(self, seconds: float = GUARD) -> bool:
        """Return True if a key that is pressed now is ignored. Each ignored key restarts the wait of `seconds`."""
        early = self._quiet is None or self._clock() - self._quiet < seconds
        self.pressed()
        return early
