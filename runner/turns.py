"""The turns of one run: reply, calls, results, again; with the counts that bound them."""

import asyncio
from collections.abc import Awaitable, Callable

from policy.record import dataclass
from runner.calls import Call, Judgement
from runner.events import Denied
from runner.messages import Message, Reply, Stop, TextBlock, ToolCall, ToolMessage, ToolResult, Usage
from runner.problems import Exit
from runner.replies import reply_to
from runner.reports import Report
from runner.world import World


class Ended(Exception):
    """A bound was reached, or the model will not go on: leave the run at once, with this exit code and reason."""

    def __init__(self, exit: Exit, reason: str) -> None:
        super().__init__(reason)
        self.exit = exit
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Arrow:
    """What happens to one call, in two steps, so that the second may run beside a neighbour's."""

    judge: Callable[[Call, World], Judgement | Report]
    settle: Callable[[Judgement, World], Awaitable[Report]]


class Turns:
    """One run over `messages`, which stay whole whatever ends it: every call has its result."""

    def __init__(self, world: World, messages: list[Message], arrow: Arrow) -> None:
        self.messages = messages
        self._world = world
        self._arrow = arrow
        self.turns = 0
        self.usage = Usage()
        self.denied: list[Denied] = []
        self._row = 0
        self._left: set[int] = set()  # places of the turn's calls whose results are not written down

    async def through(self) -> str:
        """Turn after turn; answers why it is over."""
        while self.turns < self._world.bounds.turns:
            self.turns += 1
            reply = await reply_to(self.messages, self._world)
            self._count(reply.usage)
            if not reply.message.calls:
                if reply.message.content:
                    self.messages.append(self._world.redactor.mask(reply.message))
                    self._world.journal.message(reply.message)
                return _why_over(reply)
            await self._turn(reply)
        raise Ended(Exit.LIMIT, f"stopped after {self.turns} turns, the most this run may take")

    async def _turn(self, reply: Reply) -> None:
        calls = reply.message.calls
        stopped = TextBlock("not run: the turn was stopped before this call was done")
        results = [ToolResult(call.id, (stopped,), is_error=True) for call in calls]
        # A model can know the key: its server is sent it. It is not said back, and goes to no other server later.
        self.messages.append(self._world.redactor.mask(reply.message))
        self._left = set(range(len(calls)))
        try:
            self._world.journal.message(reply.message)
            await self._answer_all(calls, results)
        finally:
            self.messages.append(ToolMessage(tuple(results)))
            for place in sorted(self._left):
                self._world.journal.result(place, results[place])

    async def _answer_all(self, calls: tuple[ToolCall, ...], results: list[ToolResult]) -> None:
        """Judge and run in source order; what only reads runs beside its neighbours, everything else alone."""
        slots = asyncio.Semaphore(self._world.bounds.parallel)
        reading: list[asyncio.Task[None]] = []

        async def beside(place: int, judged: Judgement) -> None:
            async with slots:
                self._keep(results, place, (await self._arrow.settle(judged, self._world)).result)

        try:
            for place, call in enumerate(calls):
                judged = self._arrow.judge(Call(f"{self.turns}.{place + 1}", call), self._world)
                if isinstance(judged, Judgement) and judged.only_reads:
                    self._row = 0
                    reading.append(asyncio.create_task(beside(place, judged)))
                    continue
                await asyncio.gather(*reading)
                if isinstance(judged, Report):  # no action came of it, so it was not refused either
                    self._keep(results, place, judged.result)
                    continue
                report = await self._arrow.settle(judged, self._world)
                self._keep(results, place, report.result)
                self._bound(report)
            await asyncio.gather(*reading)
        finally:
            for task in reading:
                if not task.cancelling():  # once: a second cancel would cut short the killing of its child
                    task.cancel()
            await asyncio.gather(*reading, return_exceptions=True)

    def _keep(self, results: list[ToolResult], place: int, result: ToolResult) -> None:
        """Each result is written down as it comes: a crash loses none that was there."""
        results[place] = result
        self._left.discard(place)
        self._world.journal.result(place, result)

    def _bound(self, report: Report) -> None:
        """Count the denials; a model that nobody watches does not get to try for ever."""
        if report.denied is None:
            self._row = 0
            return
        self.denied.append(report.denied)
        self._row += 1
        bounds = self._world.bounds
        if self._world.unattended and (self._row >= bounds.row or len(self.denied) >= bounds.total):
            count = f"{self._row} denials in a row" if self._row >= bounds.row else f"{len(self.denied)} denials"
            raise Ended(Exit.DENIED, f"stopped after {count}: nobody is there to help")

    def _count(self, usage: Usage) -> None:
        self._world.journal.usage(usage)
        was = self.usage
        self.usage = Usage(
            was.input + usage.input,
            was.output + usage.output,
            was.cache_read + usage.cache_read,
            was.cache_write + usage.cache_write,
        )


def _why_over(reply: Reply) -> str:
    """Why a reply without calls ends the run; raises when that is not a good end."""
    match reply.stop:
        case Stop.LENGTH:
            raise Ended(Exit.LIMIT, "the model's answer was cut off at the most tokens one answer may have")
        case Stop.REFUSAL:
            raise Ended(Exit.FAILED, "the model declined to answer")
        case _:
            return "done"
