"""A conversation: the one thing of a session that changes. Terminal, JSON and programs talk through it."""

import asyncio
from dataclasses import replace

from policy.record import dataclass
from policy.tier import Mode
from runner.events import Changed, Queued, Unqueued
from runner.loop import Ending, run
from runner.messages import Message, Thinking, Usage
from runner.problems import Exit
from runner.world import World


@dataclass(frozen=True, slots=True)
class Mark:
    """The moment before a prompt: what /rewind goes back to. `step` is the last one that /undo knew then."""

    text: str
    length: int
    leaf: str | None
    step: int


class Talk:
    """One conversation over a World that is replaced as settings change.

    Every method belongs to the event loop's thread. `prompt` must not be called while `busy`.
    """

    def __init__(self, world: World, history: list[Message]) -> None:
        self.world = world
        self.history = history
        self.marks: list[Mark] = []
        self.usage = Usage()  # of all runs of this talk, as the provider counts it
        self.cost: float | None = None
        self.turns = 0
        self._running: asyncio.Task[Ending] | None = None

    @property
    def busy(self) -> bool:
        """Whether a run is on its way."""
        return self._running is not None

    async def prompt(self, text: str) -> Ending:
        """Work on `text`, then on what was queued meanwhile; the Ending of the last run."""
        while True:
            ending = await self._run(text)
            if ending.exit is Exit.INTERRUPTED or (more := self.world.steering.next()) is None:
                return ending
            text = more

    async def _run(self, text: str) -> Ending:
        undo = self.world.undo
        news = undo.news() if undo is not None else ""
        latest = undo.latest() if undo is not None else 0
        self.marks.append(Mark(text, len(self.history), self.world.journal.leaf, latest))
        self._running = asyncio.ensure_future(run(f"{news}{text}", self.world, self.history))
        try:
            ending = await self._running
            self._spent(ending)
            return ending
        finally:
            self._running = None
            self.world.steering.settled()

    def _spent(self, ending: Ending) -> None:
        names = ("input", "output", "cache_read", "cache_write")
        self.usage = Usage(*(getattr(self.usage, name) + getattr(ending.usage, name) for name in names))
        if ending.cost is not None:
            self.cost = (self.cost or 0.0) + ending.cost
        self.turns += ending.turns

    def rewind(self, mark: Mark) -> None:
        """Go on from before that prompt, as if it had not been said; the session file keeps what was."""
        del self.history[mark.length :]
        del self.marks[self.marks.index(mark) :]
        self.world.journal.back_to(mark.leaf)

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

    def follow_up(self, text: str) -> None:
        """Say something when the turn is over."""
        text = self.world.redactor.text(text)
        self.world.steering.follow_up(text)
        self.world.emit(Queued(text, "follow_up"))

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

    def set_thinking(self, thinking: Thinking) -> None:
        """From the next request on."""
        was, self.world = self.world.thinking, replace(self.world, thinking=thinking)
        if was is not thinking:
            self.world.steering.change({"thinking": thinking})
            self.world.emit(Changed("thinking", was.value, thinking.value))
