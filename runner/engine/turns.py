"""The turns of one run: an answer of the model, its calls, their results, and the next answer."""

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

from policy.model.action import SpawnAgent
from policy.model.profile import MAIN
from policy.model.verdict import Problem
from runner.engine.budget import BudgetExceeded, BudgetMeter
from runner.engine.completion import Completion
from runner.engine.execute import StopListener, execute_call
from runner.engine.judge import CallRequester, announce, ask_ahead, evaluate_action, evaluate_call, judge_call
from runner.engine.plan_mode import Proposal, proposal
from runner.engine.run_context import RunContext
from runner.engine.tool_calls import CallResult, Judgement, ModelCall, Planned, headed, plan
from runner.events import Denied, Notice, Steered
from runner.messages import (
    AssistantMessage,
    Message,
    ProviderError,
    Reply,
    Stop,
    StopNotice,
    TextBlock,
    ToolCall,
    ToolResult,
    UserMessage,
    answers,
)
from runner.problems import Exit

if TYPE_CHECKING:
    from runner.engine.output_schema import OutputSchema

_MOST_KEPT = 1_000  # calls of one reply that stay in the conversation, each with its result


class TurnLoop:
    """The turns of one run over a conversation in which every call has a result, even if an exception ends the run.

    Calls that only read are started in order while the model still writes, up to the first call that may do more.

    Attributes:
        answer: The text of the last message of the model, not masked. Empty after a message with calls. With an output
            schema: the value of a valid answer as JSON, masked.
        output: The value of an answer that is valid against the output schema, else None.
        valid: True if there is such an answer.
    """

    def __init__(self, ctx: RunContext, messages: list[Message]) -> None:
        self.messages = messages
        self._ctx = ctx
        self.spent = BudgetMeter(
            ctx.live.limits, unattended=ctx.unattended, agent=ctx.agent, parent=ctx.parent, above=ctx.above
        )
        ctx.live.spent = self.spent
        self.denied: list[Denied] = []
        self.answer = ""
        self._completion = Completion(messages, ctx, self.spent)
        self._slots = asyncio.Semaphore(ctx.live.limits.parallel)
        self.output: object = None
        self.valid = False
        self._repairs = 0  # times that the model was told the faults of its answer
        self._retries = 0  # times that hooks of Stop let the run go on
        if ctx.hooks is not None:
            ctx.hooks.use_budget(ctx.agent, self.spent)
        self._reset_turn()

    def _reset_turn(self) -> None:
        """Reset the state of a turn."""
        self._begun: dict[int, ToolCall] = {}  # calls started before the reply was complete, by place
        self._seen = 0  # complete calls of the reply
        self._ordered = False  # a call that may do more than read was received: later calls wait for it
        self._reading: list[asyncio.Task[None]] = []
        self._results: dict[int, ToolResult] = {}
        self._written = False  # the message of the calls is in the journal
        self._failed = False  # an error or a limit ended the run
        self._count = 0  # calls of the reply, before those beyond _MOST_KEPT were removed

    async def through(self, until: float | None = None) -> str:
        """Run turns until the model is done, and return the reason for the end.

        `until` is the end of the run on the clock of the event loop, or None. Raise BudgetExceeded if a limit is
        reached, the last answer was cut off, or the model declined to answer. Raise ProviderError if it fails.
        """
        completion = self._completion
        completion.until = until
        while True:
            self._reset_turn()
            try:
                reply = await completion.next(self._begin)
                self._require_same_calls(reply)
            except BaseException as end:
                await self._stop_reading()
                stopped = isinstance(end, asyncio.CancelledError)
                why = "stopped by the user" if stopped else "the answer was interrupted here"
                self._append_incomplete(*completion.unfinished, why)
                raise
            if not reply.message.calls:
                self.answer = "".join(each.text for each in reply.message.content if isinstance(each, TextBlock))
                if reply.message.content:
                    self.messages.append(self._ctx.redactor.mask(reply.message))
                    self._ctx.journal.message(reply.message)
                self.spent.check()
                if reply.stop is Stop.LENGTH:
                    reason = "the model's answer was cut off at its largest number of tokens"
                    raise BudgetExceeded(reason, self.spent.cut_off())
                if reply.stop is Stop.REFUSAL:
                    raise BudgetExceeded("the model declined to answer", exit=Exit.FAILED)
                if self._ctx.hooks is not None and await self._goes_on(reply):
                    continue
                if self._ctx.output is None or self._fits(self._ctx.output):
                    return "done"
                continue
            await self._turn(self._limited(reply.message))
            if self._ctx.hooks is not None:
                await self._sampled(reply)
            for text in self._ctx.steering.injected():  # sent by the user in the meantime
                message = UserMessage((TextBlock(text),))
                self._ctx.skills.hear(text, self._ctx.context)
                if self._ctx.flow is not None and self._ctx.agent == MAIN:
                    self._ctx.flow.hear(text)
                self.messages.append(message)
                self._ctx.journal.message(message)
                self._ctx.emit(Steered(text))

    async def _goes_on(self, reply: Reply) -> bool:
        """Return True if a hook lets the run go on after its last answer, with the text of the hook as a message."""
        from runner.engine.hooked_calls import ask_to_stop  # few sessions have hooks

        await self._sampled(reply)
        text = await ask_to_stop(self.answer, self._retries, self._ctx)
        if not text:
            return False
        self._retries += 1
        self.say(text)
        return True

    def _fits(self, schema: "OutputSchema") -> bool:
        """Return True if the answer is valid against `schema`; else tell the model its faults.

        Raise BudgetExceeded after the last try.
        """
        from runner.engine.output_schema import MOST_REPAIRS, repair_text

        checked = schema.answer(self._ctx.redactor.text(self.answer))
        if not checked.faults:
            self.answer, self.output, self.valid = checked.line, checked.value, True
            return True
        left = MOST_REPAIRS - self._repairs
        if left <= 0:
            faults = "; ".join(checked.faults)
            raise BudgetExceeded(f"the answer is not valid against the output schema: {faults}", exit=Exit.FAILED)
        self._repairs += 1
        self._ctx.emit(Notice(f"the answer is not valid against the output schema: {checked.faults[0]}"))
        self.say(repair_text(checked.faults, left))
        return False

    async def _sampled(self, reply: Reply) -> None:
        """Run the hooks of an answer of the model, and append the texts that they add to the conversation."""
        from runner.engine.hooked_calls import tell_sampling  # few sessions have hooks

        answer = "".join(each.text for each in reply.message.content if isinstance(each, TextBlock))
        if text := await tell_sampling(answer, len(reply.message.calls), self._ctx):
            self.say(text)

    def say(self, text: str) -> None:
        """Append a message of the program to the conversation."""
        message = UserMessage((TextBlock(text),))
        self.messages.append(message)
        self._ctx.journal.message(message)

    def _limited(self, message: AssistantMessage) -> AssistantMessage:
        """Return the message with at most _MOST_KEPT calls, since every later request repeats all of them.

        THREAT T121: a model, or a server in its name, can put tens of thousands of calls into one reply.
        """
        self._count = len(message.calls)
        if self._count <= _MOST_KEPT:
            return message
        done = self._ctx.live.limits.calls
        text = f"the reply has {self._count:,} calls: {done} are executed, the others are refused or dropped"
        self._ctx.emit(Notice(text))
        places = iter(range(_MOST_KEPT))
        blocks = (each for each in message.content if not isinstance(each, ToolCall) or next(places, None) is not None)
        return AssistantMessage(tuple(blocks))

    def over(self) -> None:
        """End the run: the next run begins with the model that the user chose, not with the fallback model."""
        self._completion.over()

    def _begin(self, call: ToolCall) -> None:
        """Start a complete call of an incomplete reply if it and all calls before it only read."""
        place, self._seen = self._seen, self._seen + 1
        if self._ordered or place >= self._ctx.live.limits.calls:
            return
        if self._ctx.tries.list is not None:  # the call may need a decision about what waits
            self._ordered = True
            return
        if self._ctx.hooks is not None and self._ctx.hooks.wants("PreToolUse"):  # they are asked first, in order
            self._ordered = True
            return
        self._completion.notice_model_change()
        keyed = ModelCall(self._key(place), call)
        evaluated = evaluate_call(keyed, self._ctx)
        if isinstance(evaluated, Judgement) and evaluated.only_reads:
            self._begun[place] = call
            self._ctx.journal.awaiting()
            announce(keyed, evaluated, self._ctx)
            self._read(place, evaluated)
        else:  # the call is evaluated again at its turn, in the state of that moment
            self._ordered = True

    def _require_same_calls(self, reply: Reply) -> None:
        """Raise ProviderError if the reply has other calls than those that were started."""
        calls = reply.message.calls
        for place, call in self._begun.items():
            if place >= len(calls) or calls[place] != call:
                why = "a call that was complete differs at the end of the answer"
                fix = "check that the base URL is that of the provider"
                raise ProviderError(Problem(f"`{self._ctx.live.provider.name}` contradicts its own answer", why, fix))

    async def _turn(self, message: AssistantMessage) -> None:
        calls = message.calls
        # The model may know the key, which its server receives. A masked message carries the key to no other server.
        self.messages.append(self._ctx.redactor.mask(message))
        try:
            self._write(message)
            self.spent.check()
            await self._answer_all(calls)
        finally:
            await self._stop_reading()
            self._close(calls)

    def _append_incomplete(self, text: str, calls: tuple[ToolCall, ...], why: str) -> None:
        """Append the received part of an incomplete answer to the conversation, with the results of its calls."""
        calls = calls[:_MOST_KEPT]
        self.answer = "" if calls else text
        blocks = (TextBlock(f"{text}\n[{why}]"),) if text.strip() else ()
        if blocks or calls:
            message = AssistantMessage((*blocks, *calls))
            self.messages.append(self._ctx.redactor.mask(message))
            try:
                self._write(message)
            finally:
                self._close(calls)

    def _write(self, message: AssistantMessage) -> None:
        """Write the message to the journal, followed by the results that are complete already."""
        self._ctx.journal.message(message)
        self._written = True
        for place, result in sorted(self._results.items()):
            self._ctx.journal.result(place, result)

    def _close(self, calls: tuple[ToolCall, ...]) -> None:
        """Give every call a result, in the conversation and in the journal."""
        if not calls:
            return
        answered = answers(calls, self._results, StopNotice.NOT_RUN.value)
        self.messages.append(answered)
        for place, result in enumerate(answered.results):
            if place not in self._results:
                self._ctx.journal.result(place, result)

    async def _answer_all(self, calls: tuple[ToolCall, ...]) -> None:
        """Evaluate and run the calls in order. Calls that only read run at the same time, all others alone.

        Raise BudgetExceeded if the output or the denials reach a limit.
        """
        keyed = [
            (place, ModelCall(self._key(place), call)) for place, call in enumerate(calls) if place not in self._begun
        ]
        most = self._ctx.live.limits.calls
        hooks = self._ctx.hooks
        guarded = hooks is not None and (hooks.wants("PreToolUse") or hooks.wants("PermissionRequest"))
        if keyed:
            await self._settle_before(keyed[0][1])
        # A hook may change a call, or answer in place of the user, so no question is put before it is asked.
        early = {} if guarded else await ask_ahead([call for place, call in keyed if place < most], self._ctx)
        for place, call in keyed:
            if place >= most:
                await self._refuse(place, call)
                continue
            self._completion.notice_model_change()
            await self._settle_before(call)
            if guarded:
                from runner.engine.hooked_calls import judge_hooked  # few sessions have hooks

                if call.of.name != SpawnAgent.tool:  # agents work side by side
                    await asyncio.gather(*self._reading)  # a hook sees the state after the calls before
                judged = await judge_hooked(call, self._ctx)
                judged = await self._settle_hooked(judged)
            else:
                judged = judge_call(call, self._ctx, early.get(call.key))
            # A call with an early answer may have become another command.
            if isinstance(judged, Judgement) and judged.only_reads and judged.early is None:
                self._read(place, judged)
                continue
            if isinstance(judged, Judgement) and isinstance(judged.planned.action, SpawnAgent):
                self._spawn(place, judged)
                continue
            await asyncio.gather(*self._reading)
            if isinstance(judged, CallResult):  # the call did not become an action, so it was not denied either
                self._keep(place, judged.result)
                await asyncio.sleep(0)  # lets the time limit or the user end the run between two such calls
                continue
            report = await self._execute(judged, place)
            try:
                await self._settle_at_once()
            finally:
                self._keep(place, report.result)
            self.spent.printed(report.output)
            if report.denied is None:
                self.spent.allowed()
            else:
                self._refused(report.denied)
        await asyncio.gather(*self._reading)

    def _refused(self, denied: Denied) -> None:
        self.denied.append(denied)
        self.spent.denied()

    async def _settle_before(self, call: ModelCall) -> None:
        """Let the user decide about the changes that wait, if the call needs the workspace as it is."""
        if self._ctx.tries.list is None or proposal(call, self._ctx) is not None:
            return
        planned = plan(call, self._ctx)
        if isinstance(planned, Planned):
            from runner.engine.settle import must_settle  # only for rules that try

            verdict = evaluate_action(planned.action, self._ctx).verdict
            await self._settle(await must_settle(planned.action, verdict, self._ctx))

    async def _settle_hooked(self, judged: Judgement | Proposal | CallResult) -> Judgement | Proposal | CallResult:
        """Do the same for a call that hooks changed, and return its judgement as of now."""
        if self._ctx.tries.list is None or not isinstance(judged, Judgement):
            return judged
        from runner.engine.settle import must_settle  # only for rules that try

        if not (why := await must_settle(judged.planned.action, judged.evaluation.verdict, self._ctx)):
            return judged
        await self._settle(why)
        requester = CallRequester(self._ctx, judged.planned.call, hooked=judged.hooked)
        return replace(judged, evaluation=requester.evaluate(judged.planned.action))

    async def _settle_at_once(self) -> None:
        """Let the user decide at once where other agents may use the workspace at the same time."""
        ctx = self._ctx
        if ctx.tries.list is not None and (ctx.agent != MAIN or (ctx.agents is not None and ctx.agents.working)):
            await self._settle("other agents use the workspace at the same time")

    async def _settle(self, why: str) -> None:
        """Let the user decide about the changes that wait because of `why`, unless it is empty."""
        if not why:
            return
        from runner.engine.settle import settle  # only for rules that try

        if (denied := await settle(self._ctx, why)) is not None:
            self._refused(denied)

    async def _execute(self, judged: Judgement | Proposal, place: int) -> CallResult:
        """Execute a call, and ask the hooks about its result."""
        report = await execute_call(judged, self._ctx, self._stopped(place))
        if self._ctx.hooks is None or not isinstance(judged, Judgement):
            return report
        from runner.engine.hooked_calls import after_call  # few sessions have hooks

        try:
            return await after_call(judged, report, self._ctx)
        except BaseException:
            self._keep(place, report.result)  # the action ran, so that its result stays in the conversation
            raise

    async def _refuse(self, place: int, call: ModelCall) -> None:
        """Refuse a call beyond the largest number of calls of a reply. It is recorded, and not evaluated."""
        most = self._ctx.live.limits.calls
        problem = Problem(
            "this call was not executed",
            f"the reply has {self._count:,} calls, and at most {most} of one reply are executed",
            "read the results that you have, then repeat the calls that are still needed, a few at a time",
        )
        report = announce(call, problem, self._ctx)
        assert isinstance(report, CallResult)  # `announce` returns it for a Problem
        self._keep(place, report.result)
        await asyncio.sleep(0)  # lets the time limit or the user end the run between two refusals

    def _key(self, place: int) -> str:
        """Return the key of the call at `place` of the current answer."""
        key = f"{self.spent.turns}.{place + 1}"
        return key if self._ctx.agent == MAIN else f"{self._ctx.agent}:{key}"

    def _read(self, place: int, judged: Judgement) -> None:
        """Run a call that only reads at the same time as others."""
        self.spent.allowed()

        async def beside() -> None:
            async with self._slots:
                report = await self._execute(judged, place)
                self._keep(place, report.result)
                self.spent.printed(report.output)

        self._reading.append(asyncio.create_task(beside()))

    def _spawn(self, place: int, judged: Judgement) -> None:
        """Start a sub-agent, which works at the same time as others. Its denial counts like any other."""

        async def beside() -> None:
            report = await self._execute(judged, place)
            self._keep(place, report.result)
            if report.denied is None:
                self.spent.allowed()
            else:
                self.denied.append(report.denied)
                self.spent.denied()

        self._reading.append(asyncio.create_task(beside()))

    def _stopped(self, place: int) -> StopListener:
        """Return the function that keeps the result of a command that was cancelled, with the reason for the model."""

        def keep(report: CallResult) -> None:
            late = self._completion.until is not None and asyncio.get_running_loop().time() >= self._completion.until
            notice = StopNotice.TIME if late else StopNotice.USER
            notice = StopNotice.FAILED if self._failed else notice
            self._keep(place, headed(report, notice.value, self._ctx).result)

        return keep

    async def _stop_reading(self) -> None:
        current = asyncio.current_task()
        self._failed = current is not None and not current.cancelling()  # nobody stopped the run
        for task in self._reading:
            if not task.cancelling():  # once: a second cancel would cut short the killing of its child
                task.cancel()
        await asyncio.gather(*self._reading, return_exceptions=True)

    def _keep(self, place: int, result: ToolResult) -> None:
        """Keep a result, and write it to the journal at once so that a crash does not lose it."""
        if self._ctx.processes.commands:
            from runner.engine.process_notes import end_note  # few sessions have processes that stay

            if note := self._ctx.redactor.text(end_note(self._ctx.processes, self._ctx.agent)):
                result = replace(result, content=(*result.content, TextBlock(f"\n{note}")))
        if self._ctx.agents is not None and (note := self._ctx.redactor.text(self._ctx.agents.note(self._ctx.agent))):
            result = replace(result, content=(*result.content, TextBlock(f"\n{note}")))
        if news := self._ctx.redactor.text(self._ctx.tries.news()):
            result = replace(result, content=(*result.content, TextBlock(news)))
        self._results[place] = result
        if self._written:
            self._ctx.journal.result(place, result)
