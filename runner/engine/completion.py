"""One complete answer of the model, with retries.

A busy provider is asked again later. An answer that broke off is continued from the point where it stopped, so that no
text is shown twice. An answer that was cut at its largest number of tokens is continued with a higher number. The
fallback model replaces a model that stays busy. Each of these happens a few times (`RetryPolicy`), then the run ends.
"""

import asyncio
import random
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Sequence

from policy.model.verdict import Problem
from runner.engine.budget import MOST_ANSWERED, BudgetMeter
from runner.engine.model_access import ModelAccess
from runner.engine.partial_reply import BROKEN, CUT, OverlapFilter, PartialReply
from runner.engine.run_context import RunContext
from runner.engine.tool_calls import bounded
from runner.events import CallBegun, Changed, ModelText, ModelThinking, Notice, Retrying
from runner.messages import (
    AssistantMessage,
    CallOpened,
    CallReady,
    Failure,
    Message,
    Provider,
    ProviderError,
    Reply,
    Request,
    Stop,
    TextDelta,
    ThinkingDelta,
    ToolCall,
    Usage,
    has_thoughts,
    without_thoughts,
)
from runner.problems import Stopped
from runner.providers.catalog import facts_of
from runner.secrets.secret import SecretError


class Completion:
    """The answers of the model in one run.

    Attributes:
        until: The end of the run on the clock of the event loop, or None if its time is not limited.
    """

    def __init__(self, messages: list[Message], ctx: RunContext, spent: BudgetMeter) -> None:
        """`messages` is the conversation, and `spent` counts what the answers use."""
        self.until: float | None = None
        self._fallback_tried = False
        self._replaced: tuple[ModelAccess, str] | None = None  # the chosen model, and the name of the fallback model
        self._ctx = ctx
        self._messages = messages
        self._spent = spent
        self._access = ctx.model_access()  # the model of the request that is being answered
        self._noticed = _identity(self._access)
        ctx.view.raise_windows()
        self._open = PartialReply()
        self._raised: int | None = None  # the largest number of tokens of an answer, after one was cut
        self._thoughtless = False  # the thoughts of the model were removed because its server refused them

    async def next(self, ready: Callable[[ToolCall], None]) -> Reply:
        """Return the next answer and count it. Call `ready` for each call as soon as all calls up to it are complete.

        Raise ProviderError or BudgetExceeded. After an exception `unfinished` holds the received part of the answer.
        """
        self._open = PartialReply()
        self._renew()
        answered = False
        try:
            reply = await self._next(ready)
            answered = True
            return reply
        finally:
            opened = self._open
            self._ctx.view.asked(answered=answered or opened.begun or bool(opened.text or opened.calls))

    def notice_model_change(self) -> None:
        """Adapt the conversation, the budget and the context meter if the next request goes to another model."""
        access = self._ctx.model_access()
        if _identity(access) == self._noticed:
            return
        self._noticed = _identity(access)
        without_thoughts(self._messages)
        self._spent.priced(access.limits)
        access.gauge.model_changed()

    def _renew(self) -> None:
        """Use the currently chosen model for the next request."""
        self.notice_model_change()
        self._access = self._ctx.model_access()

    async def _next(self, ready: Callable[[ToolCall], None]) -> Reply:
        failed: Counter[Failure] = Counter()
        cuts = requests = 0
        self._spent.turn()
        await self._ctx.view.fit(self._messages, self._access, self._spent)
        while True:
            before = self._access
            self._renew()
            if _identity(before) != _identity(self._access):
                failed.clear()
            resumed = self._open.resumed(self._ctx.redactor)
            sent = (*self._ctx.view.sent(self._messages, self._access.named), *resumed)
            cap = self._most(self._raised)
            most = self._spent.max_answer_tokens(sent, cap)
            self._spent.turns += requests == 0  # one answer counts once, even if it takes several requests
            requests += 1
            try:
                reply = await self._stream(self._request(sent, most), ready)
            except ProviderError as error:
                opened = self._open
                if opened.begun:
                    self._spent.broken(sent, "".join(opened.said))
                    error.images = False  # the server accepted the images, because it began to answer
                opened.ended(BROKEN)
                if opened.calls and error.retryable:
                    return self._complete_calls(error)
                failed[error.failure] += 1
                await self._recover(error, failed, cap)
                continue
            self._answered(reply, sent)
            if reply.stop is Stop.LENGTH and most == cap and cuts < self._access.limits.patience.resumes:
                cuts += 1
                whole = self._reply_after_cut(reply, cap)
                if whole is None:
                    continue
                reply = whole
            return self._open.joined(reply)

    @property
    def unfinished(self) -> tuple[str, tuple[ToolCall, ...]]:
        """Return the text that was shown of an incomplete answer, and its complete calls."""
        return self._open.text, tuple(self._open.calls)

    # ---- requests

    def _most(self, raised: int | None) -> int:
        """Return the largest number of tokens of an answer, before the budget limits that number further.

        Some servers refuse a request that could fill more than the context window.
        """
        wanted = raised or min(MOST_ANSWERED, facts_of(self._access.named).output or MOST_ANSWERED)
        available = self._ctx.view.left(self._messages, self._access)
        return wanted if available is None else min(wanted, available)

    def _request(self, sent: Sequence[Message], most: int) -> Request:
        """Return a request with `sent` for an answer of at most `most` tokens, and tell the gauge its other parts."""
        ctx = self._ctx
        request = Request(
            model=self._access.model,
            system=ctx.system_prompt(),
            messages=ctx.context.with_preamble(sent),
            tools=ctx.tool_specs(),
            max_tokens=most,
            thinking=ctx.live.thinking,
        )
        ctx.gauge.fixed(request.system + ctx.context.before, request.tools)
        return request

    async def _stream(self, request: Request, ready: Callable[[ToolCall], None]) -> Reply:
        ctx, access, opened = self._ctx, self._access, self._open
        seam = OverlapFilter(opened.kept)
        reply: Reply | None = None
        opened.calling = False
        begun = 0

        def say(text: str) -> None:
            if text:
                opened.said.append(text)
                ctx.emit(ModelText(text))

        events = access.provider.stream(request)
        try:
            async for event in events:
                opened.begun = True
                match event:
                    case TextDelta(text):
                        say(seam.feed(text))
                    case ThinkingDelta(text):
                        ctx.emit(ModelThinking(text))
                    case CallOpened(tool):
                        say(seam.end())
                        opened.calling = True
                        begun += 1
                        if begun <= access.limits.calls:
                            ctx.emit(CallBegun(bounded(tool)))
                    case CallReady(call):
                        say(seam.end())
                        opened.calling = False
                        opened.calls.append(call)
                        if begun <= len(opened.calls):  # else an earlier call is incomplete, and may stay so
                            ready(call)
                    case Reply():
                        reply = event
        finally:
            if isinstance(events, AsyncGenerator):  # closes the connection, also after an exception in this loop
                await events.aclose()
        say(seam.end())
        if reply is None:
            why = "the connection ended before the answer was complete"
            problem = Problem(f"`{access.provider.name}` sent an incomplete answer", why, "try again")
            raise ProviderError(problem, failure=Failure.RETRYABLE)
        return reply

    # ---- complete answers

    def _answered(self, reply: Reply, sent: Sequence[Message]) -> None:
        ctx = self._ctx
        ctx.journal.usage(reply.usage)
        self._spent.answered(reply.usage, sent, reply.message)
        ctx.gauge.answered(reply.usage, sent, reply.message)
        window = ctx.view.window(self._access.named)
        ctx.emit(ctx.gauge.used((*sent, reply.message), window, self._spent.money))

    def _complete_calls(self, error: ProviderError) -> Reply:
        """Return the complete calls of an answer that broke off after them. The model continues from their results."""
        opened = self._open
        count = len(opened.calls)
        which = "the complete call is" if count == 1 else f"the {count} complete calls are"
        self._ctx.emit(Notice(f"{error.problem.what}: {which} executed, and the model continues from the results"))
        return Reply(opened.message, Stop.TOOLS, Usage())

    def _reply_after_cut(self, reply: Reply, cap: int) -> Reply | None:
        """Return the reply to use for an answer that was cut, or None if the model has to be asked to continue it."""
        opened, calls = self._open, reply.message.calls
        twice = min((self._raised or MOST_ANSWERED) * 2, facts_of(self._access.named).output or 0) or None
        higher = self._most(twice)
        can_grow, cut = higher > cap, bool(calls) and calls[-1].arguments is None
        if cut and not can_grow:
            return reply  # the result of the call says that it was cut, so the model can make a shorter call
        if not cut and (calls or not (opened.text.strip() or can_grow)):
            return reply
        if can_grow:
            self._raised = twice
            self._ctx.emit(Notice(f"the answer was cut at {cap} tokens; answers may now have {higher} tokens"))
        if len(calls) > 1:
            rest = tuple(block for block in reply.message.content if block is not calls[-1])
            return Reply(AssistantMessage(rest), Stop.TOOLS, reply.usage)
        opened.ended(CUT)
        opened.calling = cut
        return None

    # ---- failures

    async def _recover(self, error: ProviderError, failed: Counter[Failure], cap: int) -> None:
        """Wait, or change the request, so that another request may succeed. Raise `error` if none can.

        `failed` counts the failures of this answer by their kind; `cap` is the largest number of tokens of the answer.
        """
        ctx, access, attempt = self._ctx, self._access, failed[error.failure]
        patience = access.limits.patience
        if error.thoughts and not self._thoughtless and any(map(has_thoughts, self._messages)):
            self._thoughtless = True
            without_thoughts(self._messages)
            ctx.emit(Notice(f"{error.problem.why}: the request was repeated without the model's earlier thinking"))
            return
        if error.images and (images := ctx.view.refuse(self._messages, access.named)):
            which = "an image" if images == 1 else f"{images} images"
            ctx.emit(Notice(f"{error.problem.why}: the request was repeated without {which} of the conversation"))
            return
        if error.failure is Failure.CONTEXT:
            await self._shorten(error, attempt, cap)
            return
        if not error.retryable:
            raise error
        few = self._open.kept or self._may_fall_back()
        tries = patience.resumes if few else patience.tries
        tries = tries if error.repeats is None else min(tries, error.repeats)
        luck = random.random()  # noqa: S311  # spreads waits, is no secret
        left = None  # most seconds to wait: up to the end of the run, and fewer if a user is waiting
        if self.until is not None:
            left = max(self.until - asyncio.get_running_loop().time(), 0.0)
            left = left if ctx.unattended else min(left, patience.longest)
        seconds = patience.wait(error.failure, attempt, error.retry_after, luck, left=left)
        if seconds is None and error.retry_after is not None and error.retry_after > 0:
            name = access.provider.name
            delay = f"`{name}` asks for a retry after {error.retry_after:.0f} s"
            ctx.emit(Notice(f"{delay}, which is longer than this run waits"))
        if seconds is None or attempt > tries:
            if not self._fall_back(error.problem.what):
                raise error
            return
        ctx.emit(Retrying(error.failure, error.problem, round(seconds, 1), attempt, tries))
        await ctx.live.wait(seconds)

    def _may_fall_back(self) -> bool:
        """Return True if a fallback model is set that was not tried yet and is not the model in use."""
        ctx = self._ctx
        return not self._fallback_tried and ctx.fallback not in ("", ctx.live.named) and ctx.models is not None

    def _fall_back(self, why: str) -> bool:
        """Use the fallback model from the next request on, and say so. A run falls back once: it ends if the second
        model is busy, too.

        Return False if there is no fallback model, if the model cannot be opened, or if the user set a budget of money
        and the price of the model is unknown.
        """
        ctx = self._ctx
        if not self._may_fall_back() or ctx.models is None:
            return False
        self._fallback_tried = True
        try:
            opened = ctx.models.get(ctx.fallback)
            limits = ctx.models.limits(ctx.live.limits, opened)
        except (ProviderError, SecretError, Stopped) as error:
            problem = error.problem
            ctx.emit(Notice(f"the fallback model `{ctx.fallback}` cannot be used: {problem.what}: {problem.why}"))
            return False
        was, now = ctx.live.named, opened.named
        if now == was:
            return False
        self._replaced = ctx.model_access(), now
        ctx.live.use_model(opened.provider, opened.model, limits)
        ctx.journal.model(now, limits.price)
        ctx.emit(Changed("model", was, now, why))
        return True

    def over(self) -> None:
        """Return to the chosen model at the end of the run, unless the user chose another one in the meantime."""
        ctx = self._ctx
        chosen, by = self._replaced or (None, "")
        if chosen is None or ctx.live.named != by:
            return
        ctx.live.use_model(chosen.provider, chosen.model, chosen.limits)
        without_thoughts(self._messages)
        ctx.gauge.model_changed()
        ctx.journal.model(chosen.named, chosen.limits.price)
        ctx.emit(Changed("model", by, chosen.named, "the next prompt uses this model again"))

    async def _shorten(self, error: ProviderError, attempt: int, cap: int) -> None:
        """Ask for a shorter answer if that makes the request fit into the context window, else send less.

        Raise `error` if there is nothing left to shorten.
        """
        view, access, window = self._ctx.view, self._access, error.window
        before = view.visible(self._messages)
        if attempt > access.limits.patience.resumes:
            raise error
        if await view.shrink(self._messages, access, self._spent, attempt, window) != before:
            return
        if window is None or view.window(access.named) != window or self._most(self._raised) >= cap:
            raise error


def _identity(access: ModelAccess) -> tuple[Provider, str]:
    """Return the provider and the model name, by which models are compared."""
    return access.provider, access.model
