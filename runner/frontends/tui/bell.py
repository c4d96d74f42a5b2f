"""The bell that calls a user who looks elsewhere, because a question waits or the turn is over.

No part of the output is untrusted text. A user who typed a moment ago is not called.
"""

import asyncio
import time
from collections.abc import Callable

AWAY = 20.0  # seconds without a key
_HOW = {
    "bell": "\a",
    "osc9": "\x1b]9;ringfence: {}\a",  # iTerm2's notification; others know it too
    "none": "",
}


class Bell:
    """The bell that calls the user back. It belongs to the event loop.

    `how` is the setting `notify`. `write` writes to the terminal.
    """

    def __init__(self, write: Callable[[str], None], clock: Callable[[], float] = time.monotonic) -> None:
        self.how = "none"
        self._write = write
        self._clock = clock
        self._typed = clock()
        self._waits: asyncio.TimerHandle | None = None

    def typed(self) -> None:
        """Note that a key was pressed."""
        self._typed = self._clock()
        self.answered()

    def asked(self) -> None:
        """Call the user for a question: now if the user is away, else after the same time without an answer."""
        if self._away:
            self._ring("a question waits")
        elif self._waits is None:
            self._waits = asyncio.get_running_loop().call_later(AWAY, self._ring, "a question waits")

    def answered(self) -> None:
        """Cancel the call: the question was answered."""
        if self._waits is not None:
            self._waits.cancel()
            self._waits = None

    def over(self) -> None:
        """Call the user because the turn is over, if the user is away."""
        if self._away:
            self._ring("the turn is over")

    @property
    def _away(self) -> bool:
        return self._clock() - self._typed >= AWAY

    def _ring(self, words: str) -> None:
        self._waits = None
        self._write(_HOW[self.how].format(words))
