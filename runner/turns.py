"""The turns of one run: reply, calls, results, again; with the counts that bound them."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from policy.record import dataclass
from policy.verdict import Problem
from runner.calls import Call, Judgement
from runner.events import Denied, Notice, Steered
from runner.messages import (
    AssistantMessage,
    Message,
    ProviderError,
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
from runner.replies import Replies
from runner.reports import Report
from runner.spending import Ended, Spending
from runner.world import World

if TYPE_CHECKING:
    from runner.asking import Early

_MOST_KEPT = 1_000  # calls of one reply that stay in the talk, each with its result
_STOPPED = TextBlock("not run: the turn was stopped before this call was done")


@dataclass(frozen=True, slots=True)
class Arrow:
    """What happens to one call, in steps, so that the last may run beside a neighbour's: `weigh` says what the gate
    says of it and tells nobody, `told` tells it; `judge` is both; `settle` does it. `ahead` puts the questions of a
    whole turn as one list first, and answers what was said to each, by the key of its call."""

    weigh: Callable[[Call, World], Judgement | Problem]
    told: Callable[[Call, Judgement | Problem, World], Judgement | Report]
    judge: Callable[[Call, World], Judgement | Proposal | Report]
    ahead: "Callable[[Sequence[Call], World], Awaitable[Mapping[str, Early]]]"
    settle: Callable[[Judgement | Proposal, World], Awaitable[Report]]


class Turns:
    """One run over `messages`, which stay whole whatever ends it: every call has its result.

    Calls that only read are begun while the model still writes, in its order, up to the first that may do more.
    """

    def __init__(self, world: World, messages: list[Message], arrow: Arrow) -> None:
        self.messages = messages
        self._world = world
        self._arrow = arrow
        self.spent = Spending(world.bounds, unattended=world.unattended)
        self.denied: list[Denied] = []
        self._replies = Replies(messages, world, self.spent)
        self._slots = asyncio.Semaphore(world.bounds.parallel)
        self._fresh()

    def _fresh(self) -> None:
        """A turn begins."""
        self._begun: dict[int, ToolCall] = {}  # calls that were begun before the reply was whole, by their place
        self._seen = 0  # calls of the reply that are whole
        self._ordered = False  # one that may do more than read has come: what follows it waits for it
        self._reading: list[asyncio.Task[None]] = []
        self._results: dict[int, ToolResult] = {}
        self._written = False  # the message that the calls stand in is written down
        self._count = 0  # calls of the reply, before those beyond _MOST_KEPT were taken out

    async def through(self, until: float | None = None) -> str:
        """Turn after turn; answers why it is over. `until`: when it will be, on the event loop's clock."""
        replies = self._replies
        replies.until = until
        while True:
            self._fresh()
            try:
                reply = await replies.next(self._renewed, self._begin)
                self._agreed(reply)
            except BaseException as end:
                await self._stop_reading()
                stopped = isinstance(end, asyncio.CancelledError)
                self._broken_off(*replies.unfinished, "stopped by the user" if stopped else "the answer broke off here")
                raise
            if not reply.message.calls:
                if reply.message.content:
                    self.messages.append(self._world.redactor.mask(reply.message))
                    self._world.journal.message(reply.message)
                self.spent.check()
                return _why_over(reply, self.spent)
            await self._turn(self._kept(reply.message))
            self._steered()

    def _kept(self, message: AssistantMessage) -> AssistantMessage:
        """The message with no more than _MOST_KEPT calls: all of them would be said again in each later request.

        THREAT T121: a model, or a server in its name, can put tens of thousands of calls into one reply.
        """
        self._count = len(message.calls)
        if self._count <= _MOST_KEPT:
            return message
        done = self._world.bounds.calls
        text = f"the reply has {self._count:,} calls: {done} are done, the others are refused or left out"
        self._world.emit(Notice(text))
        left = iter(range(_MOST_KEPT))
        kept = (each for each in message.content if not isinstance(each, ToolCall) or next(left, None) is not None)
        return AssistantMessage(tuple(kept))

    def over(self) -> None:
        """The run is over, however."""
        self._replies.fallback.over(self._world, self.messages)

    def _renewed(self) -> World:
        """The world with what was changed meanwhile."""
        before, self._world = self._world, self._world.steering.renewed(self._world)
        if (before.provider, before.model) != (self._world.provider, self._world.model):
            without_thoughts(self.messages)
            self.spent.priced(self._world.bounds.price)
            self._world.gauge.another()
        return self._world

    def _steered(self) -> None:
        """Put what was said meanwhile behind the results of the batch."""
        for text in self._world.steering.injected():
            said = UserMessage((TextBlock(text),))
            self.messages.append(said)
            self._world.journal.message(said)
            self._world.emit(Steered(text))

    def _begin(self, call: ToolCall) -> None:
        """A call is whole while the reply is not: begin it if it only reads, and so did all before it."""
        place, self._seen = self._seen, self._seen + 1
        if self._ordered or place >= self._world.bounds.calls:
            return
        self._renewed()
        keyed = Call(self._key(place), call)
        weighed = self._arrow.weigh(keyed, self._world)
        if isinstance(weighed, Judgement) and weighed.only_reads:
            self._begun[place] = call
            self._world.journal.awaiting()
            self._arrow.told(keyed, weighed, self._world)
            self._read(place, weighed)
        else:  # it is weighed again at its turn, as things are then
            self._ordered = True

    def _agreed(self, reply: Reply) -> None:
        """Raises ProviderError when the reply has other calls than were begun."""
        calls = reply.message.calls
        for place, call in self._begun.items():
            if place >= len(calls) or calls[place] != call:
                why = "a call that was whole is another at the end of it"
                fix = "check which server answers under that provider's name"
                raise ProviderError(Problem(f"`{self._world.provider.name}` contradicts its own answer", why, fix))

    async def _turn(self, message: AssistantMessage) -> None:
        calls = message.calls
        # A model can know the key: its server is sent it. It is not said back, and goes to no other server later.
        self.messages.append(self._world.redactor.mask(message))
        try:
            self._write(message)
            self.spent.check()
            await self._answer_all(calls)
        finally:
            await self._stop_reading()
            self._close(calls)

    def _broken_off(self, text: str, calls: tuple[ToolCall, ...], why: str) -> None:
        """What there is of an answer that never became whole joins the talk, with the results that there are."""
        calls = calls[:_MOST_KEPT]
        blocks = (TextBlock(f"{text}\n[{why}]"),) if text.strip() else ()
        if blocks or calls:
            message = AssistantMessage((*blocks, *calls))
            self.messages.append(self._world.redactor.mask(message))
            try:
                self._write(message)
            finally:
                self._close(calls)

    def _write(self, message: AssistantMessage) -> None:
        """Write the message down, and behind it the results that were there before."""
        self._world.journal.message(message)
        self._written = True
        for place, result in sorted(self._results.items()):
            self._world.journal.result(place, result)

    def _close(self, calls: tuple[ToolCall, ...]) -> None:
        """Every call has a result from here on, in the talk and in the file."""
        if not calls:
            return
        found = tuple(
            self._results.get(place) or ToolResult(call.id, (_STOPPED,), is_error=True)
            for place, call in enumerate(calls)
        )
        self.messages.append(ToolMessage(found))
        for place, result in enumerate(found):
            if place not in self._results:
                self._world.journal.result(place, result)

    async def _answer_all(self, calls: tuple[ToolCall, ...]) -> None:
        """Judge and run in source order; what only reads runs beside its neighbours, everything else alone."""
        keyed = [(place, Call(self._key(place), call)) for place, call in enumerate(calls) if place not in self._begun]
        most = self._world.bounds.calls
        early = await self._arrow.ahead([call for place, call in keyed if place < most], self._renewed())
        for place, call in keyed:
            if place >= most:
                await self._refuse(place, call)
                continue
            judged = self._arrow.judge(call, self._renewed())
            if isinstance(judged, Judgement) and call.key in early:
                judged = replace(judged, early=early[call.key])
            # What somebody answered may be another command by now.
            if isinstance(judged, Judgement) and judged.only_reads and judged.early is None:
                self._read(place, judged)
                continue
            await asyncio.gather(*self._reading)
            if isinstance(judged, Report):  # no action came of it, so it was not refused either
                self._keep(place, judged.result)
                continue
            report = await self._arrow.settle(judged, self._world)
            self._keep(place, report.result)
            self._bound(report)
        await asyncio.gather(*self._reading)

    async def _refuse(self, place: int, call: Call) -> None:
        """Refuse a call beyond the bound on the calls of a reply: it is recorded and answered, and not looked at."""
        most = self._world.bounds.calls
        problem = Problem(
            "this call was not done",
            f"the reply has {self._count:,} calls, and {most} of one reply are done",
            "look at the results that there are, then make the calls that are still needed, a few at a time",
        )
        report = self._arrow.told(call, problem, self._renewed())
        assert isinstance(report, Report)  # of a Problem
        self._keep(place, report.result)
        await asyncio.sleep(0)  # the time of the run, and who ends it, count between these

    def _key(self, place: int) -> str:
        return f"{self.spent.turns}.{place + 1}"

    def _read(self, place: int, judged: Judgement) -> None:
        """Run what only reads beside its neighbours."""
        self.spent.allowed()
        world = self._world

        async def beside() -> None:
            async with self._slots:
                report = await self._arrow.settle(judged, world)
                self._keep(place, report.result)
                self.spent.printed(report.output)

        self._reading.append(asyncio.create_task(beside()))

    async def _stop_reading(self) -> None:
        for task in self._reading:
            if not task.cancelling():  # once: a second cancel would cut short the killing of its child
                task.cancel()
        await asyncio.gather(*self._reading, return_exceptions=True)

    def _keep(self, place: int, result: ToolResult) -> None:
        """Each result is written down as it comes: a crash loses none that was there."""
        self._results[place] = result
        if self._written:
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
