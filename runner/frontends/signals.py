"""The signals that end a program: the current task is cancelled, so that it kills its child and closes the record."""

import asyncio
from collections.abc import Callable

from runner.problems import ending_signals


def end_by_signals() -> Callable[[], None]:
    """Register handlers that cancel the current task at each signal that ends a program, and return the cancelling
    function. That function cancels only once, because a second cancel would interrupt the killing of the child.
    """
    loop, task = asyncio.get_running_loop(), asyncio.current_task()

    def end() -> None:
        if task is not None and not task.cancelling():
            task.cancel()

    for number in ending_signals():
        loop.add_signal_handler(number, end)
    return end
