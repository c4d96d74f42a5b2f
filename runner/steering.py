"""What a person says while the model works: words that wait for their moment, and settings that hold from now on."""

import asyncio
from collections import deque
from collections.abc import Mapping
from dataclasses import replace
from enum import StrEnum
from typing import TYPE_CHECKING

from runner.words import Words, joined

if TYPE_CHECKING:
    from runner.world import World


class Delivery(StrEnum):
    """How much of a queue goes at its moment."""

    ONE = "one-at-a-time"
    ALL = "all"


class Steering:
    """The queues of one conversation. The loop asks it between batches; only the event loop's thread uses it."""

    def __init__(self, delivery: Delivery = Delivery.ONE) -> None:
        self.delivery = delivery
        self._steer: deque[Words] = deque()
        self._later: deque[Words] = deque()
        self._changes: dict[str, object] = {}
        self._waiting: asyncio.Future[None] | None = None
        self.refused: set[str] = set()  # further rights that the person said no to: nobody is asked for them twice

    @property
    def waiting(self) -> tuple[str, ...]:
        """Everything that waits, as it was typed, in the order it will be sent."""
        return tuple(each.shown for each in (*self._steer, *self._later))

    def steer(self, text: str) -> None:
        """Goes in after the current batch of calls, or after the turn when no batch comes."""
        self._steer.append(Words(text))

    def follow_up(self, text: str, typed: str = "") -> None:
        """Goes in when the turn is over."""
        self._later.append(Words(text, typed))

    def take_back(self) -> tuple[str, ...]:
        """Empty both queues; what was in them, as it was typed."""
        texts = self.waiting
        self._steer.clear()
        self._later.clear()
        return texts

    def injected(self) -> tuple[str, ...]:
        """What goes to the model between two batches, taken out of its queue."""
        return tuple(each.text for each in self._taken(self._steer))

    def next(self) -> Words | None:
        """What is sent when the turn is over, taken out: steering that found no batch comes first."""
        queue = self._steer or self._later
        return joined(self._taken(queue)) if queue else None

    def change(self, fields: Mapping[str, object]) -> None:
        """From the next call or request on these fields of World are others."""
        self._changes.update(fields)
        if "model" in fields and self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)

    async def wait(self, seconds: float) -> None:
        """Returns after `seconds`, or as soon as another model is to be asked: it need not be waited for."""
        self._waiting = asyncio.get_running_loop().create_future()
        try:
            async with asyncio.timeout(seconds):
                await self._waiting
        except TimeoutError:
            return  # nobody changed anything
        finally:
            self._waiting = None

    def renewed(self, world: "World") -> "World":
        """`world` with what was changed meanwhile. Changes stay until `settled`, so that each asker sees them."""
        return replace(world, **self._changes) if self._changes else world  # type: ignore[arg-type]  # names of fields

    def settled(self) -> None:
        """The run is over, and whoever holds the world has the changes already."""
        self._changes.clear()

    def _taken(self, queue: deque[Words]) -> tuple[Words, ...]:
        count = min(len(queue), 1) if self.delivery is Delivery.ONE else len(queue)
        return tuple(queue.popleft() for _ in range(count))
