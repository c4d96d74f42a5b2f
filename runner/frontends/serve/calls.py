"""The calls of the clients of one session: their order, their questions, their progress and their limits.

INVARIANT: every call becomes a ModelCall and passes `judge_call` and `execute_call`, as in a run of a model. Calls that
only read run at the same time; all others run one after another. No call waits for another while its question is open.
"""

import asyncio
import contextlib
import itertools
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import replace

from policy.model.verdict import Ask, Problem
from runner.approval.approver import Approver
from runner.engine.authorize import EarlyAnswer
from runner.engine.budget import BudgetExceeded, BudgetMeter, Limit
from runner.engine.execute import execute_call
from runner.engine.judge import CallRequester, announce, evaluate_call, judge_call
from runner.engine.run_context import RunContext
from runner.engine.tool_calls import CallResult, Judgement, ModelCall, refused
from runner.events import CommandOutput, Event
from runner.loop import BREAKS
from runner.messages import TextBlock, ToolCall, ToolResult
from runner.stderr import print_problem, unexpected
from runner.text.sanitize import one_line, visible
from tools import TOOLS
from tools.registry import ToolRegistry
from tools.tool import find

MOST_CALLS = 32  # calls of all clients that run or wait at the same time
_LONGEST_CLIENT = 120  # characters of the name of a client
_REPORTS = 0.1  # seconds between two reports about one call
_REPORTED_LINES = 50  # lines of one report; of more lines, the last ones are reported
_LONGEST_LINE = 500  # characters of one line of a report

SendReport = Callable[[int, str], Awaitable[None]]  # takes the number of lines so far, and the new lines as text


def client_name(name: str, version: str) -> str:
    """Return the name of a client for the record and for questions. Both texts are untrusted."""
    return one_line(f"{name} {version}".strip(), _LONGEST_CLIENT) or "a client without a name"


class ProgressReports:
    """The reports about one running call: new lines of its output, at most ten reports in a second.

    `send` is the function of the client that waits now, or None. A client that does not read delays its own reports
    only; lines that are too many are left out.
    """

    def __init__(self) -> None:
        self.send: SendReport | None = None
        self._lines: deque[str] = deque(maxlen=_REPORTED_LINES)
        self._begun = ""
        self._count = 0
        self._news = asyncio.Event()

    def output(self, text: str) -> None:
        """Add output of the command. A line counts as soon as it is complete."""
        *whole, rest = (self._begun + text).split("\n")
        self._begun = rest[-_LONGEST_LINE:]
        for line in whole:
            self.line(line)

    def line(self, text: str) -> None:
        """Add one line."""
        self._count += 1
        self._lines.append(visible(text[:_LONGEST_LINE], lines=False))
        self._news.set()

    async def run(self) -> None:
        """Send reports until the task is cancelled."""
        while True:
            await self._news.wait()
            self._news.clear()
            text = "\n".join(self._lines)
            self._lines.clear()
            if self.send is not None and text:
                with contextlib.suppress(Exception):  # the client is gone; its call learns that by itself
                    await self.send(self._count, text)
            await asyncio.sleep(_REPORTS)


class ServedCalls:
    """The calls of one session."""

    def __init__(self, ctx: RunContext) -> None:
        self.ctx = replace(ctx, tools=ToolRegistry(TOOLS, ctx.tools.selection))
        self.spent = BudgetMeter(ctx.live.limits, unattended=ctx.unattended)
        self.denied = 0
        self.limit: Limit | None = None
        self._exhausted = ""  # the reason why no further call runs
        self._numbers = itertools.count(1)
        self._reading = asyncio.Semaphore(ctx.live.limits.parallel)
        self._writing = asyncio.Lock()
        self._running = 0
        self._reports: dict[str, ProgressReports] = {}

    def heard(self, event: Event) -> None:
        """Give an event of the session to the call that it belongs to."""
        if isinstance(event, CommandOutput) and (reports := self._reports.get(event.call)) is not None:
            reports.output(event.text)

    def of(self, client: str) -> RunContext:
        """Return the context in which calls of `client` are judged."""
        return replace(self.ctx, client=client)

    async def call(
        self, name: str, arguments: dict[str, object], client: str, approver: Approver, reports: ProgressReports
    ) -> ToolResult:
        """Judge and execute one call, and return its result. Errors become results.

        A cancellation ends the running command, and is raised after the command has ended.
        """
        key = f"m{next(self._numbers)}"
        call = ModelCall(key, ToolCall(key, name, arguments))
        ctx = replace(self.ctx, client=client, approver=approver)
        if self._running >= MOST_CALLS:
            why = f"{self._running} calls run or wait, the most at the same time"
            return self._refused(
                call, Problem("this call was not executed", why, "repeat it when others are done"), ctx
            )
        self._running += 1
        self._reports[key] = reports
        sending = asyncio.create_task(reports.run())
        try:
            return (await self._perform(call, ctx)).result
        except BREAKS as error:
            print_problem(error.problem)
            return refused(call, error.problem, ctx, "")
        except Exception as error:  # SEAM of the server: an unexpected exception ends the call, not the session
            print_problem(problem := unexpected(error))
            return refused(call, problem, ctx, "")
        finally:
            self._running -= 1
            del self._reports[key]
            sending.cancel()

    async def _perform(self, call: ModelCall, ctx: RunContext) -> CallResult:
        if self._exhausted:
            fix = "tell the user; a new `agent mcp serve` begins with new limits"
            return _announced(call, Problem("this session does nothing more", self._exhausted, fix), ctx)
        found = find(ctx.tools, call.name)
        if isinstance(found, Problem):  # a tool that only a model of this program has is not offered here
            return _announced(call, found, ctx)
        if ctx.hooks is not None:
            return await self._hooked(call, ctx)
        evaluated = evaluate_call(call, ctx)
        early = None
        if isinstance(evaluated, Judgement) and isinstance(evaluated.evaluation.verdict, Ask):
            early = await _asked(evaluated, ctx)
        if isinstance(evaluated, Judgement) and evaluated.only_reads:
            async with self._reading:
                judged = judge_call(call, ctx)
                if isinstance(judged, CallResult) or (isinstance(judged, Judgement) and judged.only_reads):
                    return self._counted(judged if isinstance(judged, CallResult) else await _execute(judged, ctx))
            # the state changed while the call waited: it is judged as any other call
        async with self._writing:
            judged = judge_call(call, ctx, early)
            if isinstance(judged, CallResult):
                return judged
            assert isinstance(judged, Judgement)  # the tool that ends plan mode is not found above
            return self._counted(await _execute(judged, ctx))

    async def _hooked(self, call: ModelCall, ctx: RunContext) -> CallResult:
        """Judge and execute one call with the answers of hooks, one call after another."""
        from runner.engine.hooked_calls import after_call, judge_hooked  # few sessions have hooks

        async with self._writing:
            try:
                judged = await judge_hooked(call, ctx)
                if not isinstance(judged, Judgement):  # the tool that ends plan mode is not found above
                    assert isinstance(judged, CallResult)
                    return judged
                return self._counted(await after_call(judged, await _execute(judged, ctx), ctx))
            except BudgetExceeded as end:  # a hook ends the session
                self._exhausted, self.limit = end.reason, end.limit
                fix = "tell the user; a new `agent mcp serve` begins anew"
                return _announced(call, Problem("this session does nothing more", end.reason, fix), ctx)

    def _counted(self, report: CallResult) -> CallResult:
        """Count the output and the denial of a call. At a limit, this call still has its result, and no later one."""
        try:
            self.spent.printed(report.output)
            if report.denied is None:
                self.spent.allowed()
            else:
                self.denied += 1
                self.spent.denied()
        except BudgetExceeded as end:
            self._exhausted, self.limit = end.reason, end.limit
        return report

    def _refused(self, call: ModelCall, problem: Problem, ctx: RunContext) -> ToolResult:
        """Refuse a call without a record: a client could otherwise fill the record in no time."""
        return refused(call, problem, ctx, "")


def _announced(call: ModelCall, problem: Problem, ctx: RunContext) -> CallResult:
    """Record a call that becomes no action, and return its result."""
    report = announce(call, problem, ctx)
    assert isinstance(report, CallResult)  # `announce` returns it for a Problem
    return report


async def _asked(judgement: Judgement, ctx: RunContext) -> EarlyAnswer:
    """Put the question about a call before the call is due, so that no other call waits for the answer."""
    verdict, lookup = judgement.evaluation.verdict, judgement.evaluation.recalled
    assert isinstance(verdict, Ask)
    requester = CallRequester(ctx, judgement.planned.call)
    question = requester.question(lookup.context, verdict, "")
    answer, seconds = await requester.ask(question)
    return EarlyAnswer(question, answer, seconds)


async def _execute(judgement: Judgement, ctx: RunContext) -> CallResult:
    report = await execute_call(judgement, ctx, lambda stopped: None)
    return _with_news(report, ctx)


def _with_news(report: CallResult, ctx: RunContext) -> CallResult:
    """Return `report` with a note about background processes that have ended."""
    if not ctx.processes.all:
        return report
    from runner.engine.process_notes import end_note  # few sessions have processes that stay

    note = ctx.redactor.text(end_note(ctx.processes, ctx.agent))
    if not note:
        return report
    return replace(report, result=replace(report.result, content=(*report.result.content, TextBlock(f"\n{note}"))))
