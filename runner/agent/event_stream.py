"""The events of one prompt, as a program iterates over them."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from runner.events import Event
    from runner.loop import Ending

# Starts the run; the queue gets what happens in it, and None at the end.
Begin = Callable[["asyncio.Queue[Event | None]"], Awaitable["asyncio.Task[Ending]"]]


class Answering:
    """The events of one prompt, once through. Nothing is done before the first is asked for."""

    def __init__(self, begin: "Begin") -> None:
        self._work: asyncio.Task[Ending] | None = None
        self._begin = begin
        self._events: asyncio.Queue[Event | None] = asyncio.Queue()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> "Event":
        if self._work is None:
            self._work = await self._begin(self._events)
        try:
            event = None if self._work.done() and self._events.empty() else await self._events.get()
        except asyncio.CancelledError:
            await self.aclose()
            raise
        if event is None:
            self._work.result()
            raise StopAsyncIteration
        return event

    async def aclose(self) -> None:
        """Stop the run, if it is not over; returns when nothing of it is left."""
        if self._work is not None:
            stop(self._work)
            await asyncio.wait({self._work})

    def __del__(self) -> None:  # `break` leaves an iteration without a word; a generator would learn of it too late
        if self._work is not None:
            stop(self._work)


def stop(work: "asyncio.Task[Ending]") -> None:
    """Cancel a run that is on its way."""
    if not work.done() and not work.cancelling():  # once: a second cancel would cut short the killing of its child
        work.cancel()
