"""An agent for a program: a conversation that is opened, receives prompts, can switch to another session, and is
closed.

    async with Agent(cwd="project", approver=decide) as agent:
        async for event in agent.prompt("why does the build fail?"):
            ...

The terminal, JSON mode and tests are programs of this kind. docs/guide/embedding.md describes it, with every event.
"""

from __future__ import annotations  # `help(Agent)` shows the names of the types, not their modules

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self, cast

from policy.model.tier import Mode
from policy.model.verdict import Ask
from runner.agent.active_session import ActiveSession
from runner.agent.conversation import Conversation
from runner.agent.startup import RunArgs, SessionStart, prepare_start
from runner.approval.approver import Answer, Approver, Edited, Halt, No, PlanAnswer, Question, Stay, Unattended, Yes
from runner.approval.card import card
from runner.approval.remembered import NOTHING, Offer
from runner.engine.run_limits import RunBudget
from runner.problems import naming_arguments, option, usage
from runner.sessions.selection import SessionSelection

if TYPE_CHECKING:
    from runner.config import Settings
    from runner.events import Emit, Event
    from runner.loop import Ending
    from runner.providers import OpenModel


class Agent:
    """An agent in one folder: one conversation after another, all in one event loop.

        async with ringfence.Agent("project", model="anthropic:claude-sonnet-5-5", approver=decide) as agent:
            ending = await agent.run("why does the build fail?")
            print(ending.text)

    Nothing is read or opened before the first prompt or `open`. Leaving `async with`, `close`, and the end of the event
    loop end every child process and seal the audit log. Every error that the agent raises on purpose is a
    `ringfence.Error`.
    """

    def __init__(
        self,
        cwd: str | Path | None = None,
        *,
        model: str | OpenModel | None = None,
        mode: Mode | str | None = None,
        approver: Approver | Decide | None = None,
        emit: Emit | None = None,
        selection: SessionSelection | None = None,
        limits: Sequence[str] = (),
        budget: RunBudget | None = None,
        config: str | Path | None = None,
        trust_config: str | None = None,
        start: Callable[[], SessionStart] | None = None,
    ) -> None:
        """Prepare an agent; nothing is opened yet. The configuration replaces arguments that are None or empty.

        cwd: The working folder, by default the current one. The workspace is the repository around it.
        model: `provider:model`, or an `OpenModel` with a provider of the program.
        mode: The permission mode, or its name.
        approver: Answers questions: a function of one `Question`, which returns True or an `Answer` and may be async,
            or an `Approver`. Without one, every question is a denial.
        emit: A function that is called with every event of every session.
        selection: The session to continue, such as `SessionSelection(resume=ID)`, or `SessionSelection(unkept=True)`
            to store none. By default a new session begins.
        limits: The limits of each command, such as `["wall=60s", "memory=2G"]`.
        budget: The limits of each run.
        config: An additional configuration file. It may allow more.
        trust_config: The hash of the files of the repository that may be used (`agent trust show`). Without it, only
            files that the user trusted before are used; no question is asked about them.
        start: Returns the start of a session, and replaces all arguments except `approver` and `emit`: for the front
            ends of ringfence.

        Raise `Stopped` for an argument that cannot be used.
        """
        self._emit_to_program = emit
        self._in_program = start is None
        with naming_arguments(self._in_program):
            args = RunArgs(
                mode=None if mode is None else _mode(mode),
                model=model if isinstance(model, str) else None,
                cwd=str(cwd) if cwd is not None else None,
                limits=_limits(limits),
                config=str(config) if config is not None else None,
                selection=_selection(selection),
                trust_config=trust_config,
                budget=(budget or RunBudget()).checked(),
            )
            answers = approver_of(approver) or Unattended(self._emit)
        opened = None if isinstance(model, str) else model
        begin = start or (lambda: prepare_start(args, unattended=approver is None, asks=False, model=opened))
        self._session = ActiveSession(begin, answers, self._emit)
        self._events: asyncio.Queue[Event | None] | None = None  # for the iteration over `prompt`
        self._work: asyncio.Task[Ending] | None = None

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(
        self, type: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    @property
    def conversation(self) -> Conversation:
        """Return the open conversation; `resume`, `clear` and `fork` replace it. Raise a usage error if none is
        open.
        """
        return self._session.conversation

    @property
    def settings(self) -> Settings:
        """Return the settings of the configuration. Raise a usage error if no session is open."""
        return self._session.start.settings

    @property
    def environ(self) -> Mapping[str, str]:
        """Return the environment variables of the agent. Raise a usage error if no session is open."""
        return self._session.start.environ

    @property
    def busy(self) -> bool:
        """Return True while a run is in progress."""
        return self._session.opened is not None and self._session.opened.busy

    async def open(self) -> Conversation:
        """Open a session if none is open, and return its conversation.

        Raise an Error if the model, the configuration, the folder or the sandbox cannot be used; then no session is
        open.
        """
        with naming_arguments(self._in_program):
            return await self._session.open()

    def prompt(self, text: str) -> Answering:
        """Work on `text` and on texts queued meanwhile, and yield every event in order up to the last `run_ended`.

        Leaving the iteration stops the run and all its child processes. Raise what `open` and the approver raise; no
        further action runs after such an exception.
        """
        return Answering(lambda events: self._start_run(text, events))

    async def run(self, text: str) -> Ending:
        """Work on `text` as `prompt` does, without an iteration, and return the end of the last run.

        A timeout of the caller (`asyncio.timeout`) stops the run and is raised as usual.
        """
        task = asyncio.current_task()
        before = task.cancelling() if task is not None else 0
        ending = await self._run_prompt(text)
        # A cancelled run returns normally, but a cancelled caller must raise CancelledError.
        if task is not None and task.cancelling() > before:
            raise asyncio.CancelledError
        return ending

    def steer(self, text: str) -> None:
        """Send `text` to the model within its turn, after the current batch of calls."""
        self.conversation.steer(text)

    def follow_up(self, text: str) -> None:
        """Send `text` to the model at the end of the turn."""
        self.conversation.follow_up(text)

    def interrupt(self, *, leaving: bool = False) -> bool:
        """Stop the run and all its child processes. Return True if a run was in progress.

        With `leaving` no question follows about changes that wait for the end of the turn: they are discarded.
        """
        return self._session.opened is not None and self._session.opened.interrupt(leaving=leaving)

    async def resume(self, id: str) -> Conversation:
        """Continue another session of this workspace. `id` is its id or the first characters of its id.

        If that session cannot be opened, the current session stays open. Raise SessionError, Stopped if a run is in
        progress or if `id` is the current session, and what `open` raises.
        """
        kept = self.conversation.ctx.journal.kept
        if kept is not None and len(id) >= 4 and kept.startswith(id):
            raise usage(f"the session {id} is already open", "it is the current session", "continue in it")
        return await self.switch(SessionSelection(resume=id))

    async def clear(self) -> Conversation:
        """Begin a new session and return its conversation. Raise what `resume` raises."""
        return await self.switch(SessionSelection(unkept=self._session.start.options.beginning is None))

    async def fork(self, id: str | None = None) -> Conversation:
        """Continue a copy of the session `id`, by default the current one, as a new session. Raise what `resume`
        raises.
        """
        name = id or self.conversation.ctx.journal.kept
        if name is None:
            raise usage("there is nothing to fork", "this session is not stored", "send a prompt first")
        return await self.switch(SessionSelection(fork=name))

    async def close(self) -> None:
        """Stop the run, close the session and the models. The agent can be opened again, with a new session."""
        if self._work is not None:
            stop(self._work)
            await asyncio.wait({self._work})
        await self._session.close()

    async def _run_prompt(self, text: str) -> Ending:
        if not text.strip():
            raise usage("the prompt is empty", "there is no task", "write what to do")
        with naming_arguments(self._in_program):
            return await (await self.open()).prompt(text)

    async def _start_run(self, text: str, events: asyncio.Queue[Event | None]) -> asyncio.Task[Ending]:
        await self._require_idle()
        work = self._work = asyncio.ensure_future(self._run_prompt(text))
        self._events = events
        work.add_done_callback(self._finish)
        return work

    def _finish(self, _: asyncio.Task[Ending]) -> None:
        events, self._events, self._work = self._events, None, None
        if events is not None:
            events.put_nowait(None)

    async def _require_idle(self) -> None:
        """Wait for a run that was stopped. Raise a usage error if a run is in progress."""
        if self._work is not None and self._work.cancelling():
            await asyncio.wait({self._work})
        if self.busy or self._work is not None:
            raise usage("a run is in progress", "an agent has one run at a time", "wait for its end, or interrupt it")

    async def switch(self, where: SessionSelection) -> Conversation:
        """Switch to the session `where`; the current session stays stored. Raise what `resume` raises."""
        with naming_arguments(self._in_program):
            async with self._session.door:
                await self._require_idle()
                return await self._session.move(where)

    def _emit(self, event: Event) -> None:
        if self._events is not None:
            self._events.put_nowait(event)
        if self._emit_to_program is not None:
            self._emit_to_program(event)


def _limits(given: Sequence[str]) -> tuple[str, ...]:
    if isinstance(given, str):
        raise usage(f"`limits={given!r}` is one text", "limits are a list", f"write `{option('--limit', given)}`")
    return tuple(given)


def _selection(given: SessionSelection | None) -> SessionSelection:
    if given is None:
        return SessionSelection()
    if given.resume == "":  # on a command line, a list to choose from
        fix = f"write `{option('--resume', 'ID')}`, or `{option('--continue')}` for the latest one"
        raise usage("no session is named", f"`{option('--resume')}` has no id", fix)
    return given.checked()


def _mode(said: Mode | str) -> Mode:
    try:
        return Mode(said)
    except ValueError:
        known = ", ".join(Mode)
        raise usage(f"there is no mode `{said}`", f"the modes are {known}", "use one of these modes") from None


# Starts the run. The queue receives the events of the run, and None at the end.
Begin = Callable[["asyncio.Queue[Event | None]"], Awaitable["asyncio.Task[Ending]"]]


class Answering:
    """An iterator over the events of one prompt, for one pass. The run starts with the request for the first event."""

    def __init__(self, begin: Begin) -> None:
        self._work: asyncio.Task[Ending] | None = None
        self._begin = begin
        self._events: asyncio.Queue[Event | None] = asyncio.Queue()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event:
        if self._work is None:
            self._work = await self._begin(self._events)
        try:
            event = None if self._work.done() and self._events.empty() else await self._events.get()
        except asyncio.CancelledError:
            await self.aclose()
            raise
        if event is None:
            self._work.result()
            raise StopAsyncIteration
        return event

    async def aclose(self) -> None:
        """Stop the run if it is in progress, and return when it has ended."""
        if self._work is not None:
            stop(self._work)
            await asyncio.wait({self._work})

    def __del__(self) -> None:  # `break` ends an iteration without a call of `aclose`
        if self._work is not None:
            stop(self._work)


def stop(work: asyncio.Task[Ending]) -> None:
    """Cancel a run that is in progress."""
    if not work.done() and not work.cancelling():  # a second cancel would interrupt the killing of child processes
        work.cancel()


# `True` approves the action once. An Answer is used as it is. Every other value is a refusal.
ProgramAnswer = Answer | bool | None
Decide = Callable[[Question], Awaitable[ProgramAnswer] | ProgramAnswer]


class Callback:
    """An Approver that calls the function `decide`.

    An exception of `decide` ends the run, and no further action runs: a program that fails has approved nothing.
    """

    name = "program"

    def __init__(self, decide: Decide) -> None:
        self._decide = decide

    async def ask(self, ask: Ask, offer: Offer = NOTHING) -> Answer:
        return (await self.ask_all((Question("", ask, offer, card(ask, offer)),)))[0]

    async def ask_all(self, questions: Sequence[Question]) -> tuple[Answer, ...]:
        """Return the answer to each question, in order. After a Halt, ask no more; the remaining answers are Halts."""
        answers: list[Answer] = []
        for each in questions:
            if answers and isinstance(answers[-1], Halt):
                answers.append(Halt())
                continue
            said = self._decide(each)
            if inspect.isawaitable(said):
                said = await said
            answers.append(said if isinstance(said, Yes | No | Halt | Edited) else Yes() if said is True else No())
        return tuple(answers)

    async def leave_plan(self, plan: str) -> PlanAnswer:
        return Stay("this program reads the plan from the result and changes the mode itself")


def approver_of(given: Approver | Decide | None) -> Approver | None:
    """Return `given`, or an Approver that calls the function `given`; None for None. Raise a usage error for a value
    that cannot answer a question.
    """
    if given is None:
        return None
    if hasattr(given, "ask"):
        missing = [name for name in ("name", "ask", "leave_plan") if not hasattr(given, name)]
        if missing:
            why = f"the object has `ask`, but no {' and no '.join(f'`{name}`' for name in missing)}"
            raise usage("this approver cannot answer", why, "add these, or pass a function of a Question")
        return cast("Approver", given)
    if not callable(given):
        raise usage("this approver cannot answer", "it is not a function", "pass a function of a Question")
    return Callback(given)
