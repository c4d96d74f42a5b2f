"""Signals that ask a program to go: it stops the child and closes the record first."""

import asyncio
from collections.abc import Callable

from runner.problems import ending_signals


def end_by_signals() -> Callable[[], None]:
    """Let every signal that ends a program end the current task as Ctrl-C does, and only once: a second cancel would
    cut short the killing of its child. Answers what does it."""
    loop, task = asyncio.get_running_loop(), asyncio.current_task()

    def end() -> None:
        if task is not None and not task.cancelling():
            task.cancel()

    for number in ending_signals():
        loop.add_signal_handler(number, end)
    return end
