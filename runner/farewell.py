"""Signals that ask a program to go: it stops the child and closes the record first."""

import asyncio
import signal
from collections.abc import Callable


def end_by_signals() -> Callable[[], None]:
    """SIGTERM, and SIGHUP unless it is ignored (nohup(1)), end the current task as Ctrl-C does, and only once: a
    second cancel would cut short the killing of its child. Answers what does it."""
    loop, task = asyncio.get_running_loop(), asyncio.current_task()

    def end() -> None:
        if task is not None and not task.cancelling():
            task.cancel()

    loop.add_signal_handler(signal.SIGTERM, end)
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        loop.add_signal_handler(signal.SIGHUP, end)
    return end
