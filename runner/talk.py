"""A conversation: the one thing of a session that changes. Terminal, JSON and programs talk through it."""

import asyncio
from collections.abc import Sequence

from policy.tier import Mode
from policy.verdict import Problem
from runner.calls import Call
from runner.context.marked import marked
from runner.events import Changed, Failed, Notice, Prompted, Queued, RunEnded, Unqueued
from runner.loop import BREAKS, Ending, handle_call, run
from runner.messages import Message, TextBlock, Thinking, ToolCall, Usage, UserMessage, without_thoughts
from runner.problems import Exit, Stopped
from runner.run_context import RunContext
from runner.sessions.mark import OWN, Mark
from runner.spending import BudgetMeter
from runner.words import Words

_ONE_MODEL = Problem(
    "the model cannot be changed here", "this program gave the session one model", "start a session with another"
)


_STOPS = (Exit.INTERRUPTED, Exit.FAILED, Exit.SANDBOX)  # the next prompt would only fail as well


BUSY = Problem("something is on its way already", "one thing at a time", "wait for it, or interrupt it")
_HALTED = "it was stopped"


class Talk:
    """One conversation over a RunContext that is replaced as settings change.

    Every method belongs to the event loop's thread.
    """

    def __init__(self, ctx: RunContext, history: list[Message], marks: Sequence[Mark] = ()) -> None:
        """`history` is what was said in earlier runs of the session, `marks` its prompts."""
        self.ctx = ctx
        self.history = history
        self.marks = list(marks)
        self.usage = Usage()  # of all runs of this talk, as the provider counts it
        self.cost: float | None = None
        self.turns = 0
        self._running: asyncio.Task[object] | None = None
        self._typed = 0  # commands of the person's own

    @property
    def busy(self) -> bool:
        """Whether a run is on its way."""
        return self._running is not None

    async def prompt(self, text: str, typed: str = "") -> Ending:
        """Work on `text`, then on what was queued meanwhile; the Ending of the last run. `typed` stands for it where a
        person reads it. After one that was stopped, or that failed, what is queued stays so. Raises Stopped while
        `busy`."""
        self._free()
        words = Words(text, typed)
        while True:
            ending = await self._run(words)
            if ending.exit in _STOPS or (more := self.ctx.steering.next()) is None:
                return ending
            words = more

    async def _run(self, words: Words) -> Ending:
        undo = self.ctx.undo
        news = undo.news() if undo is not None else ""
        latest = undo.latest() if undo is not None else 0
        self.marks.append(Mark(words.shown, len(self.history), self.ctx.journal.leaf, latest))
        said = Words(f"{news}{words.text}", words.shown) if news else words
        self._running = running = asyncio.create_task(run(said.text, self.ctx, self.history, said.typed))
        try:
            ending = await running
            self._spent(ending.usage, ending.cost)
            self.turns += ending.turns
            return ending
        except asyncio.CancelledError:
            if _cancelled():
                raise
            self.marks.pop()
            return self.unbegun(words.text, words.typed)
        finally:
            self._running = None

    def unbegun(self, text: str, typed: str = "") -> Ending:
        """Tell of a prompt that was interrupted before its first step."""
        mask = self.ctx.redactor.text
        self.ctx.emit(Prompted(mask(text), mask(typed)))
        ending = Ending(Exit.INTERRUPTED, "stopped by the user", 0, Usage(), ())
        self.ctx.emit(RunEnded(int(ending.exit), ending.reason, 0, ending.usage, ()))
        return ending

    def _free(self) -> None:
        if self.busy:
            raise Stopped(BUSY, Exit.USAGE)

    def _spent(self, usage: Usage, cost: float | None) -> None:
        names = ("input", "output", "cache_read", "cache_write")
        self.usage = Usage(*(getattr(self.usage, name) + getattr(usage, name) for name in names))
        if cost is not None:
            self.cost = (self.cost or 0.0) + cost

    def rewind(self, mark: Mark) -> None:
        """Go on from before that prompt, as if it had not been said; the session file keeps what was. Raises Stopped
        while `busy`."""
        self._free()
        del self.history[mark.length :]
        del self.marks[self.marks.index(mark) :]
        self.ctx.journal.back_to(mark.leaf)
        self.ctx.view.rewound(self.history, self.ctx.model_access())

    async def compact(self, focus: str = "") -> bool:
        """Show the model notes instead of what is old; `focus` is what matters. Whether anything became shorter.
        Raises ProviderError; CancelledError when it was interrupted; Stopped while `busy`."""
        self._free()
        ctx, spent = self.ctx, BudgetMeter(self.ctx.live.limits, unattended=self.ctx.unattended)
        self._running = running = asyncio.create_task(ctx.view.compact(self.history, ctx.model_access(), focus, spent))
        try:
            return await running is not None
        finally:
            self._running = None
            self._spent(spent.usage, spent.money)

    async def shell(self, script: str) -> None:
        """Run a command that the person typed, through the gate and the sandbox as every other, and tell the model of
        it, who answers with the next prompt. Raises Stopped while `busy`."""
        self._free()
        self._typed += 1
        self._running = running = asyncio.create_task(self._shell(f"!{self._typed}", script))
        try:
            told = await running
        except asyncio.CancelledError:
            if _cancelled():
                raise
            told = _HALTED  # before its first step
        finally:
            self._running = None
        script, told = self.ctx.redactor.text(script), self.ctx.redactor.text(told)
        # THREAT: what it printed is in a message of the person, and has no more authority than any other output.
        said = f"{OWN}\n$ {script}\n{marked('command-output', told)}"
        message = UserMessage((TextBlock(said),))
        self.history.append(message)
        try:
            self.ctx.journal.message(message)
        except BREAKS as error:
            self.ctx.emit(Failed(error.problem))

    async def _shell(self, key: str, script: str) -> str:
        """What the model is told of it."""
        try:
            report = await handle_call(Call(key, ToolCall(key, "bash", {"command": script})), self.ctx)
        except BREAKS as error:
            self.ctx.emit(Failed(error.problem))
            return f"not done: {error.problem}"
        except asyncio.CancelledError:  # the person, who goes on talking
            self.ctx.emit(Notice("the command was stopped"))
            return _HALTED
        return "\n".join(block.text for block in report.result.content if isinstance(block, TextBlock))

    async def stopped(self) -> None:
        """Returns when nothing runs any more; what ran was stopped."""
        running = self._running
        if running is not None:
            self.interrupt()
            await asyncio.wait({running})

    def interrupt(self) -> bool:
        """Stop the run and whatever it started; whether there was one."""
        running = self._running
        if running is None or running.cancelling():  # once: a second cancel would cut short the killing of its child
            return False
        return running.cancel()

    def steer(self, text: str) -> None:
        """Say something to the model inside its turn, after the current batch of calls."""
        text = self.ctx.redactor.text(text)
        self.ctx.steering.steer(text)
        self.ctx.emit(Queued(text, "steer"))

    def follow_up(self, text: str, typed: str = "") -> None:
        """Say something when the turn is over; `typed` as of `prompt`."""
        words = self.ctx.redactor.mask(Words(text, typed))
        self.ctx.steering.follow_up(words.text, words.typed)
        self.ctx.emit(Queued(words.shown, "follow_up"))

    def take_back(self) -> tuple[str, ...]:
        """Everything that waited, which now does not."""
        texts = self.ctx.steering.take_back()
        if texts:
            self.ctx.emit(Unqueued(texts))
        return texts

    def set_mode(self, mode: Mode, why: str = "") -> None:
        """From the next call on."""
        was = self.ctx.live.mode
        if was is not mode:
            self.ctx.live.mode = mode
            self.ctx.journal.mode(mode)
            self.ctx.emit(Changed("mode", was.value, mode.value, why))

    def set_model(self, spec: str) -> None:
        """From the next request on. Raises Stopped, SetupError or SecretError: then nothing has changed."""
        ctx = self.ctx
        if ctx.models is None:
            raise Stopped(_ONE_MODEL, Exit.USAGE)
        opened = ctx.models.get(spec)
        was, now = ctx.live.named, opened.named
        if now == was:
            return
        limits = ctx.models.limits(ctx.live.limits, opened)
        ctx.live.use_model(opened.provider, opened.model, limits)
        without_thoughts(self.history)
        ctx.journal.model(now, limits.price)
        ctx.emit(Changed("model", was, now))

    def set_thinking(self, thinking: Thinking) -> None:
        """From the next request on."""
        was = self.ctx.live.thinking
        if was is not thinking:
            self.ctx.live.thinking = thinking
            self.ctx.emit(Changed("thinking", was.value, thinking.value))


def _cancelled() -> bool:
    """Whether it is we that are to stop, and not only what we wait for."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
