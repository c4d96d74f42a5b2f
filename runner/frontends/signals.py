"""The signals that end a program: the current task is cancelled, so that it kills its child and closes the record."""

import asyncio
import contextlib
import signal
from collections.abc import Callable, Iterator

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


@contextlib.contextmanager
def interrupted_by_signals() -> Iterator[None]:
    """Raise KeyboardInterrupt for SIGTERM, with which a job is cancelled, and other signals that end a program."""

    def stop(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    before = {number: signal.getsignal(number) for number in (signal.SIGINT, *ending_signals())}
    for number in ending_signals():
        signal.signal(number, stop)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
