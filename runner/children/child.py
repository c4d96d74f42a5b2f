"""One sub-agent of a session: its state, and what is reported about it."""

import asyncio
import time
from enum import StrEnum
from typing import TYPE_CHECKING

from runner.children.sources import SourceLog
from runner.engine.run_context import RunContext
from runner.events import Event, ModelText, ToolProposed
from runner.gate.wording import action_words
from runner.problems import Exit
from runner.text.phrases import many
from runner.text.sanitize import marked, one_line

if TYPE_CHECKING:
    from runner.children.worktree import Worktree
    from runner.loop import Ending

_LINE = 120  # characters of the last line
_MOST_CHANGES = 50  # changed files that a report names
_LONGEST = 100_000  # characters of the text of a report


class AgentState(StrEnum):
    """The state of a sub-agent."""

    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    STOPPED = "stopped"


class Child:
    """A sub-agent.

    Attributes:
        name: its name, such as `explore-1`.
        kind: the name of its definition.
        parent: the agent that started it.
        depth: the number of agents above it.
        background: True if its parent does not wait for it.
        ctx: its context.
        worktree: its Git worktree, or None if it has none, or if that had no changes.
        patch: the file with the changes in its worktree, or empty.
        team: the team of its parent that it is a member of, or empty.
        ending: the end of its last run, or None while it runs.
        known: True if its parent was told of its end.
    """

    def __init__(self, name: str, kind: str, parent: str, depth: int, *, background: bool) -> None:
        self.name = name
        self.kind = kind
        self.parent = parent
        self.depth = depth
        self.background = background
        self.worktree: Worktree | None = None
        self.patch = ""
        self.team = ""
        self.sent = 0  # messages to members of its team
        self.ctx: RunContext | None = None
        self.task: asyncio.Task[Ending] | None = None
        self.ending: Ending | None = None
        self.known = False
        self.sources = SourceLog()
        self.began = time.monotonic()
        self._ended: float | None = None
        self._last = ""
        self._said = ""  # the end of the text since the last call

    def watch(self, event: Event) -> None:
        """Note what an event of this agent, or of one below it, says about its work."""
        self.sources.take(event)
        if event.agent != self.name:
            return
        match event:
            case ModelText(text):
                self._said = f"{self._said}{text}"[-8 * _LINE :]
                lines = [line for line in self._said.splitlines() if line.strip()]
                self._last = lines[-1] if lines else self._last
            case ToolProposed(_, tool, action):
                self._said = ""
                self._last = action_words(action, self.ctx.cwd if self.ctx else "") if action is not None else tool
            case _:
                pass

    def end(self, ending: "Ending") -> None:
        """Note the end of the agent."""
        self.ending, self._ended = ending, time.monotonic()

    @property
    def state(self) -> AgentState:
        """Return the state."""
        if self.ending is None:
            return AgentState.RUNNING
        if self.ending.exit in (Exit.DONE, Exit.DENIED):
            return AgentState.DONE
        return AgentState.STOPPED if self.ending.exit is Exit.INTERRUPTED else AgentState.FAILED

    @property
    def seconds(self) -> float:
        """Return how long it has worked, in seconds."""
        return (self._ended if self._ended is not None else time.monotonic()) - self.began

    @property
    def last(self) -> str:
        """Return the last line that it wrote, or the last action that it proposed, as one printable line."""
        return one_line(self._last, _LINE)

    @property
    def tokens(self) -> int:
        """Return the tokens that it used, with those of the agents below it."""
        spent = self.ctx.live.spent if self.ctx is not None else None
        return spent.tokens if spent is not None else 0

    @property
    def cost(self) -> float | None:
        """Return what it cost, with the agents below it; None if the price is unknown."""
        spent = self.ctx.live.spent if self.ctx is not None else None
        return spent.money if spent is not None else None

    @property
    def row(self) -> str:
        """Return the agent as one line."""
        cost = f", {self.cost:.4f}" if self.cost else ""
        where = f" on branch {self.worktree.branch}" if self.worktree is not None else ""
        head = f"{self.name} ({self.kind}, started by {self.parent}){where}: {self.state.value}"
        last = f": {self.last}" if self.last else ""
        return f"{head}, {self.seconds:.0f} s, {many(self.tokens, 'token')}{cost}{last}"

    @property
    def report(self) -> str:
        """Return the report for the parent: the end, the changes, the sources, and the last text in marks.

        THREAT T225: the text of a sub-agent may repeat what it read. It is material for its parent, never an
        instruction.
        """
        ending = self.ending
        assert ending is not None
        turns = many(ending.turns, "request")
        lines = [f"agent {self.name} ({self.kind}): {ending.reason}, {turns}, {many(self.tokens, 'token')}"]
        if ending.denied:
            shown = "; ".join(one_line(each.action, 200) for each in ending.denied[:5])
            lines.append(f"refused: {many(len(ending.denied), 'action')}: {shown}")
        changed = self.ctx.changed if self.ctx is not None else {}
        if changed:
            files = [f"{one_line(path, 200)} ({kind})" for path, kind in sorted(changed.items())[:_MOST_CHANGES]]
            more = [f"{len(changed) - _MOST_CHANGES} more"] if len(changed) > _MOST_CHANGES else []
            lines.append(f"changed: {', '.join([*files, *more])}")
        if self.worktree is not None and ending is not None:
            ways = f"`git merge {self.worktree.branch}` merges its commits"
            ways += f", and `agent apply {self.patch}` all of its changes" if self.patch else ""
            lines.append(f"its work is in its own worktree, {self.worktree.path}; the user decides: {ways}")
        if sources := self.sources.words:
            lines.append(f"it read text that others wrote: {sources}")
        text = ending.text[:_LONGEST].strip() or "(it wrote no last message)"
        return "\n".join([*lines, marked("agent-report", text, agent=self.name)])
