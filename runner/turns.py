"""The turns of one run: reply, calls, results, again; with the counts that bound them."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from policy.record import dataclass
from runner.calls import Call, Judgement
from runner.context.used import after
from runner.events import Denied, Steered
from runner.messages import (
    Message,
    Reply,
    Stop,
    TextBlock,
    ToolCall,
    ToolMessage,
    ToolResult,
    UserMessage,
    without_thoughts,
)
from runner.plan_mode import Proposal
from runner.problems import Exit
from runner.replies import reply_to
from runner.reports import Report
from runner.spending import Ended, Spending
from runner.world import World

if TYPE_CHECKING:
    from runner.asking import Early


@dataclass(frozen=True, slots=True)
class Arrow:
    """What happens to one call, in two steps, so that the second may run beside a neighbour's. `ahead` puts the
    questions of a whole turn as one list first, and answers what was said to each, by the key of its call."""

    judge: Callable[[Call, World], Judgement | Proposal | Report]
    settle: Callable[[Judgement | Proposal, World], Awaitable[Report]]
    ahead: "Callable[[Sequence[Call], World], Awaitable[Mapping[str, Early]]]"


class Turns:
    """One run over `messages`, which stay whole whatever ends it: every call has its result."""

    def __init__(self, world: World, messages: list[Message], arrow: Arrow) -> None:
        self.messages = messages
        self._world = world
        self._arrow = arrow
        self.spent = Spending(world.bounds, unattended=world.unattended)
        self.denied: list[Denied] = []
        self._left: set[int] = set()  # places of the turn's calls whose results are not written down

    async def through(self) -> str:
        """Turn after turn; answers why it is over."""
        while True:
            self._renew()
            sent = await self._world.view.fit(self.messages, self._world, self.spent)
            most = self.spent.ask(sent)
            reply = await reply_to(self.messages, self._world, most)
            sent = self._world.view.shown(self.messages)  # less, where the server found it too long
            self._world.journal.usage(reply.usage)
            self.spent.answered(reply.usage, sent, reply.message)
            self._world.emit(after(reply, sent, self._world, self.spent.money))
            if not reply.message.calls:
                if reply.message.content:
                    self.messages.append(self._world.redactor.mask(reply.message))
                    self._world.journal.message(reply.message)
                self.spent.check()
                return _why_over(reply, self.spent)
            await self._turn(reply)
            self._steered()

    def _renew(self) -> None:
        """Take over what was changed meanwhile."""
        before, self._world = self._world, self._world.steering.renewed(self._world)
        if (before.provider, before.model) != (self._world.provider, self._world.model):
            without_thoughts(self.messages)
            self.spent.priced(self._world.bounds.price)

    def _steered(self) -> None:
        """Put what was said meanwhile behind the results of the batch."""
        for text in self._world.steering.injected():
            said = UserMessage((TextBlock(text),))
            self.messages.append(said)
            self._world.journal.message(said)
            self._world.emit(Steered(text))

    async def _turn(self, reply: Reply) -> None:
        calls = reply.message.calls
        stopped = TextBlock("not run: the turn was stopped before this call was done")
        results = [ToolResult(call.id, (stopped,), is_error=True) for call in calls]
        # A model can know the key: its server is sent it. It is not said back, and goes to no other server later.
        self.messages.append(self._world.redactor.mask(reply.message))
        self._left = set(range(len(calls)))
        try:
            self._world.journal.message(reply.message)
            self.spent.check()
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
                report = await self._arrow.settle(judged, self._world)
                self._keep(results, place, report.result)
                self.spent.printed(report.output)

        keyed = [Call(f"{self.spent.turns}.{place + 1}", call) for place, call in enumerate(calls)]
        try:
            self._world = self._world.steering.renewed(self._world)
            early = await self._arrow.ahead(keyed, self._world)
            for place, call in enumerate(keyed):
                self._world = self._world.steering.renewed(self._world)
                judged = self._arrow.judge(call, self._world)
                if isinstance(judged, Judgement) and call.key in early:
                    judged = replace(judged, early=early[call.key])
                if isinstance(judged, Judgement) and judged.only_reads:
                    self.spent.allowed()
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
        """Count what came of one call. Raises Ended."""
        self.spent.printed(report.output)
        if report.denied is None:
            self.spent.allowed()
            return
        self.denied.append(report.denied)
        self.spent.denied()


def _why_over(reply: Reply, spent: Spending) -> str:
    """Why a reply without calls ends the run; raises when that is not a good end."""
    match reply.stop:
        case Stop.LENGTH:
            reason = "the model's answer was cut off at the most tokens it may have"
            raise Ended(Exit.LIMIT, reason, spent.cut_off())
        case Stop.REFUSAL:
            raise Ended(Exit.FAILED, "the model declined to answer")
        case _:
            return "done"
