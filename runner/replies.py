"""One whole answer of the model, however often it must be asked for.

A provider that is busy is asked again, later; an answer that broke off is gone on with from where it stopped, so that
nothing is shown twice; one that was cut at the most tokens it may have is gone on with under a higher bound; a model
that stays busy is stood in for by the fallback model. Each of these a few times (`runner/retry.py`), then the run ends.
"""

import asyncio
import random
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import field, replace

from policy.record import dataclass
from policy.verdict import Problem
from runner.context.used import after
from runner.events import CallBegun, Notice, Retrying, Said, Thought
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
    TextBlock,
    TextDelta,
    ThinkingBlock,
    ThinkingDelta,
    ToolCall,
    Usage,
    UserMessage,
)
from runner.model_facts import facts_of
from runner.providers.modeltext import whole_text
from runner.request import request_of
from runner.seam import Seam, last_words
from runner.spending import MOST_ANSWERED, Spending
from runner.world import World

_GO_ON = """\
[{why}. Nobody wrote this: it is a note of the program. All that you wrote above has reached its reader; go on from \
there, without a word about it. Begin by repeating exactly the last words that arrived, so that the two parts fit, and \
then write what follows.{lost} The last words were:]
{words}"""
_LOST = " A tool call that was not complete is lost: make it again after the text."
_BROKEN, _CUT = "Your answer broke off here", "Your answer was cut here, at the most tokens that one may have"


@dataclass(slots=True)
class _Open:
    """An answer that is not whole yet. `kept` came with earlier requests and `said` comes with this one: shown, both.
    `calls` are those that are whole."""

    kept: str = ""
    said: list[str] = field(default_factory=list)
    calls: list[ToolCall] = field(default_factory=list)
    begun: bool = False  # something came with this request
    calling: bool = False  # a call was being written when it ended
    why: str = _BROKEN

    @property
    def text(self) -> str:
        """All of its text that was shown."""
        return whole_text((self.kept, *self.said))

    def ended(self, why: str) -> None:
        """The request is over, and its answer is not."""
        self.kept, self.why, self.begun = self.text, why, False
        self.said.clear()


class Replies:
    """The answers of one run over `messages`. `world` is the one that was asked with last."""

    def __init__(self, messages: list[Message], world: World, spent: Spending, until: float | None = None) -> None:
        """`until`: when the run is over, on the event loop's clock."""
        self.world = world
        self.until = until
        self._messages = messages
        self._spent = spent
        self._open = _Open()
        self._raised: int | None = None  # the most tokens of an answer, after one was cut

    async def next(self, renewed: Callable[[], World], ready: Callable[[ToolCall], None]) -> Reply:
        """The next answer, counted and paid for. `renewed` answers the world as it is now, `ready` is told each call as
        soon as it is whole.

        Raises ProviderError, Ended; then, and when cancelled, `unfinished` is what there is of it.
        """
        self.world, self._open = renewed(), _Open()
        failed: Counter[Failure] = Counter()
        cuts = requests = 0
        self._spent.turn()
        await self.world.view.fit(self._messages, self.world, self._spent)
        while True:
            self.world = renewed()
            cap, sent = self._cap, self._sent()
            most = self._spent.room(sent, cap)
            self._spent.turns += requests == 0  # however many requests it takes
            requests += 1
            try:
                reply = await self._stream(request_of(sent, self.world, most), ready)
            except ProviderError as error:
                opened = self._open
                if opened.begun:
                    self._spent.broken(sent, "".join(opened.said))
                opened.ended(_BROKEN)
                if opened.calls and error.retryable:
                    return self._what_is_whole(error)
                failed[error.failure] += 1
                await self._recover(error, failed[error.failure])
                continue
            self._answered(reply, sent)
            if reply.stop is Stop.LENGTH and most == cap and cuts < self.world.bounds.patience.resumes:
                cuts += 1
                whole = self._longer(reply, cap)
                if whole is None:
                    continue
                reply = whole
            return self._joined(reply)

    @property
    def unfinished(self) -> tuple[str, tuple[ToolCall, ...]]:
        """The text that was shown of an answer that never became whole, and its calls that did."""
        return self._open.text, tuple(self._open.calls)

    # ---- asking

    @property
    def _cap(self) -> int:
        """The most tokens that an answer may have, as long as the budget has them."""
        return self._raised or min(MOST_ANSWERED, self._facts_output or MOST_ANSWERED)

    @property
    def _facts_output(self) -> int | None:
        return facts_of(f"{self.world.provider.name}:{self.world.model}").output

    def _sent(self) -> tuple[Message, ...]:
        opened, shown = self._open, self.world.view.shown(self._messages)
        if not opened.kept.strip():
            return shown
        kept = self.world.redactor.mask(AssistantMessage((TextBlock(opened.kept),)))
        lost = _LOST if opened.calling else ""
        words = last_words(self.world.redactor.text(opened.kept))
        note = _GO_ON.format(why=opened.why, lost=lost, words=words)
        return (*shown, kept, UserMessage((TextBlock(note),)))

    async def _stream(self, request: Request, ready: Callable[[ToolCall], None]) -> Reply:
        world, opened = self.world, self._open
        seam = Seam(opened.kept)
        reply: Reply | None = None
        opened.calling = False

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
                        world.emit(CallBegun(tool))
                    case CallReady(call):
                        say(seam.end())
                        opened.calling = False
                        opened.calls.append(call)
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

    def _joined(self, reply: Reply) -> Reply:
        """The reply with what was shown of it before."""
        opened = self._open
        if not opened.kept:
            return reply
        thoughts = tuple(block for block in reply.message.content if isinstance(block, ThinkingBlock))
        text = (TextBlock(opened.text),) if opened.text else ()
        return replace(reply, message=AssistantMessage((*thoughts, *text, *reply.message.calls)))

    def _what_is_whole(self, error: ProviderError) -> Reply:
        """The answer broke off behind calls that are whole: they are done, and the model goes on from their results."""
        opened = self._open
        count = len(opened.calls)
        which = "the call that was whole is" if count == 1 else f"the {count} calls that were whole are"
        self.world.emit(Notice(f"{error.problem.what}: {which} done, and it is asked to go on from there"))
        text = (TextBlock(opened.text),) if opened.text.strip() else ()
        return Reply(AssistantMessage((*text, *opened.calls)), Stop.TOOLS, Usage())

    def _longer(self, reply: Reply, cap: int) -> Reply | None:
        """What there is to do with an answer that was cut; None: ask on."""
        opened, calls = self._open, reply.message.calls
        most = self._facts_output
        higher = min(cap * 2, most) if most is not None else cap
        grown = higher > cap
        cut = bool(calls) and calls[-1].arguments is None
        if cut and not grown:
            return reply  # the model is told that its call was cut, and can make it shorter
        if not cut and (calls or not (opened.text.strip() or grown)):
            return reply
        if grown:
            self._raised = higher
            self.world.emit(Notice(f"the answer was cut at {cap} tokens; from here on it may have {higher}"))
        if len(calls) > 1:
            rest = tuple(block for block in reply.message.content if block is not calls[-1])
            return Reply(AssistantMessage(rest), Stop.TOOLS, reply.usage)
        opened.ended(_CUT)
        opened.calling = cut
        return None

    # ---- what failed

    async def _recover(self, error: ProviderError, attempt: int) -> None:
        """Wait, or change something, so that asking again may help. Raises `error` when it does not."""
        world = self.world
        patience = world.bounds.patience
        if error.failure is Failure.CONTEXT:
            await self._shorten(error, attempt)
            return
        if not error.retryable:
            raise error
        tries = patience.resumes if self._open.kept else patience.tries
        luck = random.random()  # noqa: S311  # spreads waits, guards nothing
        seconds = patience.wait(error.failure, attempt, error.retry_after, luck, left=self._left)
        if seconds is None or attempt > tries:
            raise error
        world.emit(Retrying(error.failure, error.problem, seconds, attempt, tries))
        await asyncio.sleep(seconds)

    async def _shorten(self, error: ProviderError, attempt: int) -> None:
        """The conversation is longer than the model's window: show less of it. Raises `error` when there is no less."""
        before = self.world.view.shown(self._messages)
        if attempt > self.world.bounds.patience.resumes:
            raise error
        if await self.world.view.shrink(self._messages, self.world, self._spent, attempt) == before:
            raise error

    @property
    def _left(self) -> float | None:
        """How long an answer may be waited for: to the end of the run; where somebody sits there, not for ever."""
        if self.until is None:
            return None
        left = max(self.until - asyncio.get_running_loop().time(), 0.0)
        return left if self.world.unattended else min(left, self.world.bounds.patience.longest)
