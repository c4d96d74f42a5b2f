"""The sub-agents of one session: their starts, their ends, and the messages to them."""

import asyncio
import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from policy.model.action import ManageAgent, SpawnAgent
from policy.model.profile import MAIN
from policy.model.verdict import Permit, Problem
from runner.children.child import AgentState, Child
from runner.children.child_context import ChildPlan, child_context, close_journal
from runner.config.agentfiles.definitions.definition import WORKTREE, AgentDefinition
from runner.engine.run_context import RunContext
from runner.events import Notice
from runner.loop import Ending, run
from runner.messages import Message
from runner.sessions.store import SessionStore
from runner.state.json_file import StateError
from runner.state.workspace import workspace_key
from runner.text.sanitize import marked
from sandbox.backend import Outcome
from tools.agent import AgentMessageTool, AgentOutputTool, AgentStopTool, AgentTool, OfferedAgent

if TYPE_CHECKING:
    from policy.model.facts import Facts
    from runner.children.worktree import Worktree
    from runner.engine.compaction.view import ConversationView
    from runner.hooks.session_hooks import SessionHooks
    from tools.registry import ToolRegistry

MOST_RUNNING = 10  # sub-agents of a session that run at the same time
MOST_DEPTH = 3  # levels of sub-agents
MOST_STARTED = 200  # sub-agents of one session
LONGEST_MESSAGE = 4_000  # characters of a message of one member of a team to another
MOST_SENT = 100  # messages of one agent to the members of its team
MOST_WAITING = 20  # messages that wait for an agent, when a member of its team sends one


class SessionAgents:
    """The sub-agents of one session. Only the thread of the event loop uses it."""

    def __init__(
        self,
        definitions: Sequence[AgentDefinition],
        registry: "ToolRegistry",
        view: "Callable[[], ConversationView]",
        state: Path | None,
        gather: "Callable[[str], Facts]",
        environ: Mapping[str, str],
    ) -> None:
        """`view` makes the view of one conversation. `state` is the folder of session files, or None for none. `gather`
        returns the state of the machine around a folder.
        """
        self._gather = gather
        self._environ = environ
        self.definitions = {each.name: each for each in definitions}
        self._registry = registry
        self._view = view
        self._state = state
        self._store: SessionStore | None = None
        self._children: dict[str, Child] = {}
        self._numbers: Counter[str] = Counter()
        self._main: RunContext | None = None
        registry.add(AgentTool([_offered(each) for each in definitions]))

    @property
    def all(self) -> tuple[Child, ...]:
        """Return the sub-agents in the order of their starts."""
        return tuple(self._children.values())

    @property
    def working(self) -> bool:
        """Return True while a sub-agent works."""
        return any(each.state is AgentState.RUNNING for each in self.all)

    def get(self, name: str) -> Child | None:
        """Return the sub-agent of that name, or None."""
        return self._children.get(name)

    def begin(self, ctx: RunContext) -> None:
        """Use the session of the agent `main`, whose context is `ctx`."""
        self._main = ctx
        if self._state is not None:
            self._store = SessionStore(self._state, workspace_key(ctx.grants.key.workspace), of_agents=True)

    def coordinate(self) -> None:
        """Offer the tools of a coordinator from the beginning on."""
        self._offer_controls()

    async def perform(self, permit: Permit, agent: str) -> Outcome:
        """Start a sub-agent of `agent`, or do with one what `permit` allows."""
        action = permit.action
        if isinstance(action, SpawnAgent):
            return await self._start(action, self._context(agent))
        assert isinstance(action, ManageAgent)
        child = self._children.get(action.agent)
        sender = self._children.get(agent)
        if action.operation == "message" and child is not None and sender is not None and _mates(child, sender):
            return self._message_of_mate(child, action.text, sender)
        if child is None or not self._below(child, agent):  # THREAT T226: an agent steers only agents below it
            mine = [each.name for each in self.all if self._below(each, agent)]
            if action.operation == "message" and sender is not None:
                mine += [each.name for each in self.all if _mates(each, sender)]
            why = f"your agents are {', '.join(mine)}" if mine else "you have started no agent"
            return _failed(f"there is no agent `{action.agent}` of yours", why, "use a name from its start")
        match action.operation:
            case "output":
                return await self._output(child, action.wait)
            case "message":
                return self._message(child, action.text, agent)
            case _:
                await self.stop(child.name)
                child.known = True
                return Outcome(0, f"{child.name} is stopped".encode())

    def note(self, agent: str) -> str:
        """Return the note for `agent` about its background agents that have ended since the last note."""
        ended = [
            each for each in self.all if each.parent == agent and each.background and each.ending and not each.known
        ]
        for each in ended:
            each.known = True
        rows = "\n".join(f"{each.row}; `agent_output` has its report" for each in ended)
        return f"[note of the program] agents that have ended:\n{rows} [end of the note]" if rows else ""

    async def stop(self, name: str) -> None:
        """Stop the sub-agent and all agents below it, and wait for their ends."""
        child = self._children[name]
        for each in self.all:
            if each.parent == name and each.state is AgentState.RUNNING:
                await self.stop(each.name)
        task = child.task
        if task is not None and not task.done():
            task.cancel()
            await asyncio.wait([task])

    async def stop_all(self) -> int:
        """Stop all sub-agents. Return the number of those that ran."""
        running = [each for each in self.all if each.state is AgentState.RUNNING]
        for each in running:
            await self.stop(each.name)
        return len(running)

    def send(self, name: str, text: str) -> bool:
        """Send a message of the user to a running sub-agent. Return False if it does not run."""
        child = self._children.get(name)
        if child is None or child.ctx is None or child.state is not AgentState.RUNNING:
            return False
        child.ctx.steering.steer(child.ctx.redactor.text(text))
        return True

    async def close(self) -> None:
        """Stop all sub-agents at the end of the session."""
        await self.stop_all()

    def _context(self, agent: str) -> RunContext:
        ctx = self._main if agent == MAIN else self._children[agent].ctx
        assert ctx is not None  # an agent that acts has begun
        return ctx

    def _below(self, child: Child, agent: str) -> bool:
        above: Child | None = child
        while above is not None:
            if above.parent == agent:
                return True
            above = self._children.get(above.parent)
        return False

    async def _start(self, action: SpawnAgent, ctx: RunContext) -> Outcome:
        definition = self.definitions.get(action.agent)
        if definition is None:
            return _failed(f"there is no kind of agent `{action.agent}`", "it was not offered", "use another kind")
        above = self._children.get(ctx.agent)
        depth = above.depth + 1 if above is not None else 1
        if depth > MOST_DEPTH:
            why = f"agents are started at most {MOST_DEPTH} levels deep"
            return _failed("the agent was not started", why, "do the work yourself")
        # THREAT T227: a model that starts agents without end fills neither the memory nor the machine.
        if sum(each.state is AgentState.RUNNING for each in self.all) >= MOST_RUNNING:
            why = f"{MOST_RUNNING} agents run, the most at the same time"
            return _failed("the agent was not started", why, "wait until one has ended, or do the work yourself")
        if len(self._children) >= MOST_STARTED:
            why = f"this session has started {MOST_STARTED} agents, the most"
            return _failed("the agent was not started", why, "do the work yourself")
        if not action.name:
            self._numbers[definition.name] += 1
        name = f"{definition.name}-{action.name or self._numbers[definition.name]}"
        if name in self._children:  # THREAT T232: no agent takes the name of another one
            return _failed("the agent was not started", f"there is already an agent `{name}`", "use another name")
        child = Child(name, definition.name, ctx.agent, depth, background=action.background)
        child.team = action.team
        if action.team:
            self._offer_controls()
        self._children[name] = child  # at once, so that agents that start meanwhile are counted
        problem = None
        try:
            problem = await self._prepare(child, definition, action, ctx)
        except BaseException:
            del self._children[name]
            raise
        if problem is not None:
            del self._children[name]
            return Outcome(1, problem=problem)
        made = self._context(name)
        if ctx.tasks is not None:
            ctx.tasks.offer()
        child.task = asyncio.create_task(self._work(child, made, action.prompt), name=name)
        if action.background:
            self._offer_controls()
            return Outcome(0, f"{name} works in the background; a note tells when it has ended".encode())
        try:
            await asyncio.shield(child.task)
        except asyncio.CancelledError:
            await self.stop(name)
            raise
        finally:
            child.known = True
        return Outcome(0, child.report.encode("utf-8", "replace"), seconds=child.seconds)

    async def _prepare(
        self, child: Child, definition: AgentDefinition, action: SpawnAgent, ctx: RunContext
    ) -> Problem | None:
        """Give `child` its folder and its context. Return the problem, or None."""
        cwd, workspace, look = ctx.cwd, ctx.grants.key.workspace, ctx.look
        worktree: Worktree | None = None
        if action.isolation == WORKTREE:
            from runner.children.worktree import make_worktree  # few agents have one

            created = make_worktree(workspace, child.name, ctx.session, self._environ)
            if isinstance(created, Problem):
                return created
            worktree = created
            cwd = os.path.normpath(os.path.join(worktree.path, os.path.relpath(cwd, workspace)))
            workspace, look = worktree.path, partial(self._gather, worktree.path)
        texts = self._context(MAIN).context
        plan = ChildPlan(
            child.name, definition, action, child.depth, cwd, workspace, look, texts, self._store, self._view(),
            child.watch,
        )  # fmt: skip
        made = child_context(plan, ctx, MOST_DEPTH)
        if isinstance(made, Problem):
            return made
        child.ctx = made
        if worktree is None:
            return None
        from runner.children.worktree import check_out

        child.worktree = worktree
        if made.hooks is not None:
            child.ctx = made = replace(made, hooks=_hooks_of(made).in_worktree(made))
        return await check_out(worktree, replace(made, cwd=worktree.path))

    async def _close_worktree(self, child: Child, ctx: RunContext) -> None:
        """Note the changes in the worktree of `child`. A worktree without changes is removed."""
        from runner.children.worktree import result_of

        assert child.worktree is not None
        result = await result_of(child.worktree, replace(ctx, cwd=child.worktree.path))
        ctx.changed.update(result.changed)
        child.patch = result.patch
        if not result.changed and not result.committed and not os.path.lexists(child.worktree.path):
            child.worktree = None

    async def _work(self, child: Child, ctx: RunContext, prompt: str) -> Ending:
        history: list[Message] = []
        ending = None
        try:
            ending = await run(prompt, ctx, history)
            while ending.exit.value == 0 and (more := ctx.steering.next()) is not None:  # it came with the last answer
                ending = await run(more.text, ctx, history, more.typed)
            return ending
        finally:
            for each in ctx.processes.alive:
                if each.agent == child.name:  # nobody could use them any more
                    await ctx.processes.end(each.id)
            if child.worktree is not None:
                await self._close_worktree(child, ctx)
                if ctx.hooks is not None:
                    await _hooks_of(ctx).settle()
            _release_tasks(ctx)
            child.end(ending or _broken())
            close_journal(ctx)
            if child.background:
                ctx.emit(Notice(f"the agent {child.row}"))

    async def _output(self, child: Child, wait: float) -> Outcome:
        if child.task is not None and not child.task.done() and wait > 0:
            await asyncio.wait([child.task], timeout=wait)
        if child.state is AgentState.RUNNING:
            return Outcome(0, child.row.encode("utf-8", "replace"))
        child.known = True
        return Outcome(0, child.report.encode("utf-8", "replace"))

    def _message(self, child: Child, text: str, sender: str) -> Outcome:
        # THREAT T226, T270: what one agent writes to another may repeat what it read.
        if child.ctx is not None and child.ctx.flow is not None and (flow := self._context(sender).flow) is not None:
            child.ctx.flow.take_over(flow)
        if not self.send(child.name, f"Message of another agent:\n{marked('message', text, sender=sender)}"):
            return _failed(f"`{child.name}` got no message", "it has ended", "start another agent")
        return Outcome(0, f"sent; {child.name} reads it after its current calls".encode())

    def _message_of_mate(self, child: Child, text: str, sender: Child) -> Outcome:
        """Send a message from one member of a team to another one.

        THREAT T231: one agent cannot fill the conversation of another one: messages are few and short.
        """
        what = f"`{child.name}` got no message"
        if len(text) > LONGEST_MESSAGE:
            return _failed(what, f"it has more than {LONGEST_MESSAGE} characters", "shorten it")
        if sender.sent >= MOST_SENT:
            return _failed(what, f"you have sent {MOST_SENT} messages, the most", "write the rest into your report")
        if child.ctx is not None and len(child.ctx.steering.waiting) >= MOST_WAITING:
            return _failed(what, f"{MOST_WAITING} messages wait for it, the most", "go on without an answer")
        outcome = self._message(child, text, sender.name)
        if outcome.problem is None:
            sender.sent += 1
            child.sources.add(f"messages of the agent {sender.name}")
        return outcome

    def _offer_controls(self) -> None:
        """Offer the tools for agents in the background from the first one on."""
        names = {tool.name for tool in self._registry.every}
        for tool in (AgentOutputTool(), AgentMessageTool(), AgentStopTool()):
            if tool.name not in names:
                self._registry.add(tool)


def _hooks_of(ctx: RunContext) -> "SessionHooks":
    from runner.hooks.session_hooks import SessionHooks  # few sessions have hooks

    assert isinstance(ctx.hooks, SessionHooks)
    return ctx.hooks


def _mates(one: Child, other: Child) -> bool:
    """Return True for two members of one team. THREAT T232: only their parent forms a team, when it starts them."""
    return one is not other and bool(one.team) and (one.team, one.parent) == (other.team, other.parent)


def _offered(of: AgentDefinition) -> OfferedAgent:
    mode = of.mode.value if of.mode is not None else ""
    return OfferedAgent(of.name, of.description, mode, of.tools, of.model, of.isolation, of.background, of.turns)


def _release_tasks(ctx: RunContext) -> None:
    """Make the tasks that an ended agent claimed pending again."""
    if ctx.tasks is None:
        return
    try:
        ctx.tasks.release(ctx.agent)
    except StateError as error:
        ctx.emit(Notice(f"{error.problem.what}: {error.problem.why}"))


def _failed(what: str, why: str, fix: str) -> Outcome:
    return Outcome(1, problem=Problem(what, why, fix))


def _broken() -> Ending:
    from runner.messages import Usage
    from runner.problems import Exit

    return Ending(Exit.FAILED, "the approver or a listener failed", 0, Usage(), ())
