"""Between a question's appearing and its answer: keys that were meant for something else count for nothing."""

import time
from collections.abc import Callable

GUARD, CAREFUL = 0.5, 1.0  # seconds without a key before one answers; where a yes cannot be taken back


class Guard:
    """Knows how long a question stood on the screen with no key pressed. `clock` answers seconds that only grow."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._quiet: float | None = None  # None: not on the screen yet

    def drawn(self) -> None:
        """It is on the screen now."""
        if self._quiet is None:
            self._quiet = self._clock()

    def hidden(self) -> None:
        """It, or something else in its place, has to be drawn first."""
        self._quiet = None

    def pressed(self) -> None:
        """A key that answers nothing may be a part of something that is being typed."""
        if self._quiet is not None:
            self._quiet = self._clock()

    def early(self, seconds: float = GUARD) -> bool:
        """Whether a key that is pressed now counts for nothing; each of those makes the wait begin again."""
        early = self._quiet is None or self._clock() - self._quiet < seconds
        self.pressed()
        return early
