"""A conversation: the one thing of a session that changes. Terminal, JSON and programs talk through it."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace

from policy.tier import Mode
from policy.verdict import Problem
from runner.calls import Call
from runner.context.marked import marked
from runner.events import Changed, Failed, Notice, Prompted, Queued, RunEnded, Unqueued
from runner.loop import BREAKS, Ending, answer, run
from runner.messages import Message, TextBlock, Thinking, ToolCall, Usage, UserMessage, without_thoughts
from runner.problems import Exit, Stopped
from runner.sessions.mark import OWN, Mark
from runner.spending import Spending
from runner.words import Words
from runner.world import World

_ONE_MODEL = Problem(
    "the model cannot be changed here", "this program gave the session one model", "start a session with another"
)


_STOPS = (Exit.INTERRUPTED, Exit.FAILED, Exit.SANDBOX)  # the next prompt would only fail as well


BUSY = Problem("something is on its way already", "one thing at a time", "wait for it, or interrupt it")
_HALTED = "it was stopped"


class Talk:
    """One conversation over a World that is replaced as settings change.

    Every method belongs to the event loop's thread.
    """

    def __init__(self, world: World, history: list[Message], marks: Sequence[Mark] = ()) -> None:
        """`history` is what was said in earlier runs of the session, `marks` its prompts."""
        self.world = world
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
            if ending.exit in _STOPS or (more := self.world.steering.next()) is None:
                return ending
            words = more

    async def _run(self, words: Words) -> Ending:
        undo = self.world.undo
        news = undo.news() if undo is not None else ""
        latest = undo.latest() if undo is not None else 0
        self.marks.append(Mark(words.shown, len(self.history), self.world.journal.leaf, latest))
        said = Words(f"{news}{words.text}", words.shown) if news else words
        self._running = running = asyncio.create_task(run(said.text, self.world, self.history, said.typed))
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
            self.world = self.world.steering.renewed(self.world)  # also what the run itself changed: plan mode's end
            self.world.steering.settled()

    def unbegun(self, text: str, typed: str = "") -> Ending:
        """Tell of a prompt that was interrupted before its first step."""
        mask = self.world.redactor.text
        self.world.emit(Prompted(mask(text), mask(typed)))
        ending = Ending(Exit.INTERRUPTED, "stopped by the user", 0, Usage(), ())
        self.world.emit(RunEnded(int(ending.exit), ending.reason, 0, ending.usage, ()))
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
        self.world.journal.back_to(mark.leaf)
        self.world.view.rewound(self.history, self.world)

    async def compact(self, focus: str = "") -> bool:
        """Show the model notes instead of what is old; `focus` is what matters. Whether anything became shorter.
        Raises ProviderError; CancelledError when it was interrupted; Stopped while `busy`."""
        self._free()
        world, spent = self.world, Spending(self.world.bounds, unattended=self.world.unattended)
        self._running = running = asyncio.create_task(world.view.compact(self.history, world, focus, spent))
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
        script, told = self.world.redactor.text(script), self.world.redactor.text(told)
        # THREAT: what it printed is in a message of the person, and has no more authority than any other output.
        said = f"{OWN}\n$ {script}\n{marked('command-output', told)}"
        message = UserMessage((TextBlock(said),))
        self.history.append(message)
        try:
            self.world.journal.message(message)
        except BREAKS as error:
            self.world.emit(Failed(error.problem))

    async def _shell(self, key: str, script: str) -> str:
        """What the model is told of it."""
        try:
            report = await answer(Call(key, ToolCall(key, "bash", {"command": script})), self.world)
        except BREAKS as error:
            self.world.emit(Failed(error.problem))
            return f"not done: {error.problem}"
        except asyncio.CancelledError:  # the person, who goes on talking
            self.world.emit(Notice("the command was stopped"))
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
        text = self.world.redactor.text(text)
        self.world.steering.steer(text)
        self.world.emit(Queued(text, "steer"))

    def follow_up(self, text: str, typed: str = "") -> None:
        """Say something when the turn is over; `typed` as of `prompt`."""
        words = self.world.redactor.mask(Words(text, typed))
        self.world.steering.follow_up(words.text, words.typed)
        self.world.emit(Queued(words.shown, "follow_up"))

    def take_back(self) -> tuple[str, ...]:
        """Everything that waited, which now does not."""
        texts = self.world.steering.take_back()
        if texts:
            self.world.emit(Unqueued(texts))
        return texts

    def set_mode(self, mode: Mode, why: str = "") -> None:
        """From the next call on."""
        was, self.world = self.world.mode, replace(self.world, mode=mode)
        if was is not mode:
            self.world.steering.change({"mode": mode})
            self.world.journal.mode(mode)
            self.world.emit(Changed("mode", was.value, mode.value, why))

    def set_model(self, spec: str) -> None:
        """From the next request on. Raises Stopped, SetupError or SecretError: then nothing has changed."""
        world = self.world
        if world.models is None:
            raise Stopped(_ONE_MODEL, Exit.USAGE)
        opened = world.models.get(spec)
        was, now = world.named, opened.named
        if now == was:
            return
        bounds = world.models.bounds(world.bounds, opened)
        fields = {"provider": opened.provider, "model": opened.model, "bounds": bounds}
        self.world = replace(world, provider=opened.provider, model=opened.model, bounds=bounds)
        world.steering.change(fields)
        without_thoughts(self.history)
        world.journal.model(now, bounds.price)
        world.emit(Changed("model", was, now))

    def set_thinking(self, thinking: Thinking) -> None:
        """From the next request on."""
        was, self.world = self.world.thinking, replace(self.world, thinking=thinking)
        if was is not thinking:
            self.world.steering.change({"thinking": thinking})
            self.world.emit(Changed("thinking", was.value, thinking.value))


def _cancelled() -> bool:
    """Whether it is we that are to stop, and not only what we wait for."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
