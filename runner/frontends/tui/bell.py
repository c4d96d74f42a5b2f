"""The bell that notifies an absent user because a question waits or the turn is over.

The output contains no untrusted text. A user who pressed a key in the last seconds is not notified.
"""

import asyncio
import time
from collections.abc import Callable

AWAY = 20.0  # seconds without a key after which a user is absent
_HOW = {
    "bell": "\a",
    "osc9": "\x1b]9;ringfence: {}\a",  # a notification of iTerm2 and other terminals
    "none": "",
}


class Bell:
    """The bell of one terminal, used in the thread of the event loop.

    `how` is the setting `notify`: bell, osc9 or none. `write` writes to the terminal.
    """

    def __init__(self, write: Callable[[str], None], clock: Callable[[], float] = time.monotonic) -> None:
        self.how = "none"
        self._write = write
        self._clock = clock
        self._typed = clock()
        self._waits: asyncio.TimerHandle | None = None

    def typed(self) -> None:
        """Note that a key was pressed, and put a planned notification off."""
        self._typed = self._clock()
        if self._waits is not None:  # the question is still open
            self.answered()
            self.asked()

    def asked(self) -> None:
        """Notify the user of a question: now if the user is absent, else in `AWAY` seconds.

        A key press in this time starts this time again. An answer cancels the notification.
        """
        if self._away:
            self._ring("a question waits")
        elif self._waits is None:
            self._waits = asyncio.get_running_loop().call_later(AWAY, self._ring, "a question waits")

    def answered(self) -> None:
        """Cancel a planned notification, because the question was answered."""
        if self._waits is not None:
            self._waits.cancel()
            self._waits = None

    def over(self) -> None:
        """Notify an absent user that the turn is over."""
        if self._away:
            self._ring("the turn is over")

    @property
    def _away(self) -> bool:
        return self._clock() - self._typed >= AWAY

    def _ring(self, words: str) -> None:
        self._waits = None
        self._write(_HOW[self.how].format(words))
