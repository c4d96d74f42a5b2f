"""One whole answer of the model, however often it must be asked for.

A provider that is busy is asked again, later; an answer that broke off is gone on with from where it stopped, so that
nothing is shown twice; one that was cut at the most tokens it may have is gone on with under a higher bound; a model
that stays busy is stood in for by the fallback model. Each of these a few times (`runner/retry.py`), then the run ends.
"""

import asyncio
import random
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Sequence

from policy.verdict import Problem
from runner.calls import bounded
from runner.context.used import after
from runner.events import CallBegun, Notice, Retrying, Said, Thought
from runner.fallback import Fallback
from runner.messages import (
    AssistantMessage,
    CallOpened,
    CallReady,
    Failure,
    Message,
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
from runner.model_facts import facts_of
from runner.request import request_of
from runner.seam import Seam
from runner.spending import MOST_ANSWERED, Spending
from runner.unfinished import BROKEN, CUT, Unfinished
from runner.world import World


class Replies:
    """The answers of one run over `messages`. `world` is the one that was asked with last."""

    def __init__(self, messages: list[Message], world: World, spent: Spending) -> None:
        self.world = world
        self.until: float | None = None  # when the run is over, on the event loop's clock
        self.fallback = Fallback()
        self._messages = messages
        self._spent = spent
        world.view.eased()
        self._open = Unfinished()
        self._raised: int | None = None  # the most tokens of an answer, after one was cut
        self._thoughtless = False  # what the model thought was taken out, since its server refused it

    async def next(self, renewed: Callable[[], World], ready: Callable[[ToolCall], None]) -> Reply:
        """The next answer, counted and paid for. `renewed` answers the world as it is now, `ready` is told each call as
        soon as it and all before it are whole.

        Raises ProviderError, Ended; then, and when cancelled, `unfinished` is what there is of it.
        """
        self.world, self._open = renewed(), Unfinished()
        answered = False
        try:
            reply = await self._next(renewed, ready)
            answered = True
            return reply
        finally:
            opened = self._open
            self.world.view.asked(answered=answered or opened.begun or bool(opened.text or opened.calls))

    async def _next(self, renewed: Callable[[], World], ready: Callable[[ToolCall], None]) -> Reply:
        failed: Counter[Failure] = Counter()
        cuts = requests = 0
        self._spent.turn()
        await self.world.view.fit(self._messages, self.world, self._spent)
        while True:
            before, self.world = self.world, renewed()
            if (before.provider, before.model) != (self.world.provider, self.world.model):
                failed.clear()
            cap, sent = self._most(self._raised), self._sent()
            most = self._spent.room(sent, cap)
            self._spent.turns += requests == 0  # however many requests it takes
            requests += 1
            try:
                reply = await self._stream(request_of(sent, self.world, most), ready)
            except ProviderError as error:
                opened = self._open
                if opened.begun:
                    self._spent.broken(sent, "".join(opened.said))
                    error.images = False  # it read them
                opened.ended(BROKEN)
                if opened.calls and error.retryable:
                    return self._what_is_whole(error)
                failed[error.failure] += 1
                await self._recover(error, failed, cap)
                continue
            self._answered(reply, sent)
            if reply.stop is Stop.LENGTH and most == cap and cuts < self.world.bounds.patience.resumes:
                cuts += 1
                whole = self._longer(reply, cap)
                if whole is None:
                    continue
                reply = whole
            return self._open.joined(reply)

    @property
    def unfinished(self) -> tuple[str, tuple[ToolCall, ...]]:
        """The text that was shown of an answer that never became whole, and its calls that did."""
        return self._open.text, tuple(self._open.calls)

    # ---- asking

    def _most(self, raised: int | None) -> int:
        """The most tokens that an answer may have, as long as the budget has them. Some servers refuse a request that
        could fill more than the window."""
        wanted = raised or min(MOST_ANSWERED, self._facts_output or MOST_ANSWERED)
        left = self.world.view.left(self._messages, self.world)
        return wanted if left is None else min(wanted, left)

    @property
    def _facts_output(self) -> int | None:
        return facts_of(self.world.named).output

    def _sent(self) -> tuple[Message, ...]:
        return (*self.world.view.sent(self._messages, self.world), *self._open.resumed(self.world.redactor))

    async def _stream(self, request: Request, ready: Callable[[ToolCall], None]) -> Reply:
        world, opened = self.world, self._open
        seam = Seam(opened.kept)
        reply: Reply | None = None
        opened.calling = False
        begun = 0

        def say(text: str) -> None:
            if text:
                opened.said.append(text)
                world.emit(Said(text))

        events = world.provider.stream(request)
        try:
            async for event in events:
                opened.begun = True
                match event:
                    case TextDelta(text):
                        say(seam.feed(text))
                    case ThinkingDelta(text):
                        world.emit(Thought(text))
                    case CallOpened(tool):
                        say(seam.end())
                        opened.calling = True
                        begun += 1
                        if begun <= world.bounds.calls:
                            world.emit(CallBegun(bounded(tool)))
                    case CallReady(call):
                        say(seam.end())
                        opened.calling = False
                        opened.calls.append(call)
                        if begun <= len(opened.calls):  # else one before it is not whole, and may never be
                            ready(call)
                    case Reply():
                        reply = event
        finally:
            if isinstance(events, AsyncGenerator):  # also when it was we who failed: the connection is closed
                await events.aclose()
        say(seam.end())
        if reply is None:
            why = "the stream ended before the answer did"
            problem = Problem(f"`{world.provider.name}` broke off its answer", why, "run it again")
            raise ProviderError(problem, failure=Failure.RETRYABLE)
        return reply

    # ---- what came

    def _answered(self, reply: Reply, sent: Sequence[Message]) -> None:
        world = self.world
        world.journal.usage(reply.usage)
        self._spent.answered(reply.usage, sent, reply.message)
        world.emit(after(reply, sent, world, self._spent.money))

    def _what_is_whole(self, error: ProviderError) -> Reply:
        """The answer broke off behind calls that are whole: they are done, and the model goes on from their results."""
        opened = self._open
        count = len(opened.calls)
        which = "the call that was whole is" if count == 1 else f"the {count} calls that were whole are"
        self.world.emit(Notice(f"{error.problem.what}: {which} done, and it is asked to go on from there"))
        return Reply(opened.message, Stop.TOOLS, Usage())

    def _longer(self, reply: Reply, cap: int) -> Reply | None:
        """What there is to do with an answer that was cut; None: ask on."""
        opened, calls = self._open, reply.message.calls
        twice = min((self._raised or MOST_ANSWERED) * 2, self._facts_output or 0) or None
        higher = self._most(twice)
        grown, cut = higher > cap, bool(calls) and calls[-1].arguments is None
        if cut and not grown:
            return reply  # the model is told that its call was cut, and can make it shorter
        if not cut and (calls or not (opened.text.strip() or grown)):
            return reply
        if grown:
            self._raised = twice
            self.world.emit(Notice(f"the answer was cut at {cap} tokens; from here on it may have {higher}"))
        if len(calls) > 1:
            rest = tuple(block for block in reply.message.content if block is not calls[-1])
            return Reply(AssistantMessage(rest), Stop.TOOLS, reply.usage)
        opened.ended(CUT)
        opened.calling = cut
        return None

    # ---- what failed

    async def _recover(self, error: ProviderError, failed: Counter[Failure], cap: int) -> None:
        """Wait, or change something, so that asking again may help. Raises `error` when it does not. `failed`: how and
        how often this answer failed; `cap`: the most tokens that it could have had."""
        world, attempt = self.world, failed[error.failure]
        patience = world.bounds.patience
        if error.thoughts and not self._thoughtless and any(map(has_thoughts, self._messages)):
            self._thoughtless = True
            without_thoughts(self._messages)
            world.emit(Notice(f"{error.problem.why}: asked again without what the model thought before"))
            return
        if error.images and (images := world.view.refuse(self._messages, world)):
            which = "an image" if images == 1 else f"{images} images"
            world.emit(Notice(f"{error.problem.why}: asked again without {which} of the conversation"))
            return
        if error.failure is Failure.CONTEXT:
            await self._shorten(error, attempt, cap)
            return
        if not error.retryable:
            raise error
        few = self._open.kept or self.fallback.ready(world)
        tries = patience.resumes if few else patience.tries
        luck = random.random()  # noqa: S311  # spreads waits, guards nothing
        seconds = patience.wait(error.failure, attempt, error.retry_after, luck, left=self._left)
        if seconds is None and error.retry_after is not None and error.retry_after > 0:
            name = world.provider.name
            world.emit(
                Notice(f"`{name}` wants to be asked again in {error.retry_after:.0f} s: longer than this run waits")
            )
        if seconds is None or attempt > tries:
            if not self.fallback.take(world, error.problem.what):
                raise error
            return
        world.emit(Retrying(error.failure, error.problem, round(seconds, 1), attempt, tries))
        await world.steering.wait(seconds)

    async def _shorten(self, error: ProviderError, attempt: int, cap: int) -> None:
        """The conversation and the room for an answer are more than the model's window: ask for a shorter answer where
        that is enough, else show less. Raises `error` when there is no less."""
        before = self.world.view.shown(self._messages)
        if attempt > self.world.bounds.patience.resumes:
            raise error
        view, said = self.world.view, error.window
        if await view.shrink(self._messages, self.world, self._spent, attempt, said) != before:
            return
        if said is None or view.window(self.world) != said or self._most(self._raised) >= cap:
            raise error

    @property
    def _left(self) -> float | None:
        """How long an answer may be waited for: to the end of the run; where somebody sits there, not for ever."""
        if self.until is None:
            return None
        left = max(self.until - asyncio.get_running_loop().time(), 0.0)
        return left if self.world.unattended else min(left, self.world.bounds.patience.longest)
