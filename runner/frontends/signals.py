"""The signals that end a program: the current task is cancelled, so that it kills its child and closes the record."""

import asyncio
from collections.abc import Callable

from runner.problems import ending_signals


def end_by_signals() -> Callable[[], None]:
    """Cancel the current task at every signal that ends a program, as Ctrl-C does. Return the function that cancels.

    The function cancels only once, because a second cancel would interrupt the killing of the child.
    """
    loop, task = asyncio.get_running_loop(), asyncio.current_task()

    def end() -> None:
        if task is not None and not task.cancelling():
            task.cancel()

    for number in ending_signals():
        loop.add_signal_handler(number, end)
    return end
