"""An agent for a program: a conversation that is opened, asked, turned to another session, and closed.

    async with Agent(cwd="project", approver=decide) as agent:
        async for event in agent.prompt("why does the build fail?"):
            ...

The terminal, JSON mode and tests are programs of this kind. docs/embedding.md describes it, with every event.
"""

import asyncio
import contextlib
import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self, cast

from policy.record import dataclass
from policy.tier import Mode
from runner.budget_flags import BudgetFlags
from runner.model_run import RunArgs, begun, chosen_model, opener, prepared
from runner.open_models import OpenModels
from runner.problems import usage
from runner.sessions.flags import GoOn
from runner.talk import Talk

if TYPE_CHECKING:
    from runner.approval import Approver
    from runner.callback import Decide
    from runner.config import Settings
    from runner.events import Emit, Event
    from runner.loop import Ending
    from runner.providers import Opened
    from runner.session import SessionOptions
    from runner.sessions.begin import Beginning
    from runner.trust.question import Asker


@dataclass(frozen=True, slots=True)
class Start:
    """What the sessions of one agent are opened with: `options` of the first, `model` and how another is opened."""

    options: "SessionOptions"
    settings: "Settings"
    environ: Mapping[str, str]
    model: "Opened"
    opener: "Callable[[str], Opened] | None" = None


def starting(
    args: RunArgs,
    *,
    unattended: bool,
    asks: bool = True,
    asker: "Asker | None" = None,
    model: "Opened | None" = None,
) -> Start:
    """All that can be known before anything is opened; reads the disk, so an event loop may want a thread for it.

    `asks`: a question about trust may be put on this terminal, or by `asker`. Raises Stopped, ConfigError, SetupError,
    SecretError, SessionError, StateError, PlaceError; KeyboardInterrupt when the person leaves.
    """
    options, settings = prepared(args, unattended, asks=asks, asker=asker)
    model = model or chosen_model(args, settings, options.cwd)
    options = begun(args, options, settings, model)
    return Start(options, settings, os.environ, model, opener(args, settings, options.cwd, model))


class Agent:
    """One conversation after another in one folder. Everything belongs to one event loop.

    Nothing is read or opened before it is asked for. Leaving `async with`, `close`, or the end of the event loop ends
    every child and seals the record.
    """

    def __init__(
        self,
        cwd: str | Path | None = None,
        *,
        model: "str | Opened | None" = None,
        mode: Mode | None = None,
        approver: "Approver | Decide | None" = None,
        emit: "Emit | None" = None,
        go_on: GoOn | None = None,
        limits: tuple[str, ...] = (),
        budget: BudgetFlags | None = None,
        config: str | None = None,
        trust_config: str | None = None,
        start: Callable[[], Start] | None = None,
    ) -> None:
        """`approver` answers questions: a function of one `Question` that answers True, or an `Answer`; or an Approver.
        Without one nobody is there, and every question is a denial.

        `model` is `provider:model`, or a provider of the program's own. `emit` is called with every event of every
        session, also of those that nobody iterates over. `go_on`: an earlier session (`GoOn(resume=ID)`), or none kept
        (`GoOn(unkept=True)`). What the repository brings counts where it was trusted before, or has the hash
        `trust_config`; nobody is asked about it. `start`, in place of all but `approver` and `emit`: how it begins.
        """
        self._approver = _approver(approver)
        self._told = emit
        named = model if isinstance(model, str) else None
        args = RunArgs(
            mode=mode,
            model=named,
            cwd=str(cwd) if cwd is not None else None,
            limits=limits,
            config=config,
            go_on=go_on or GoOn(),
            trust_config=trust_config,
            budget=budget or BudgetFlags(),
        )
        given = None if isinstance(model, str) else model
        self._starting = start or (lambda: starting(args, unattended=approver is None, asks=False, model=given))
        self._start: Start | None = None
        self._models: OpenModels | None = None
        self._open = contextlib.AsyncExitStack()
        self._talk: Talk | None = None
        self._door = asyncio.Lock()  # held while a session is opened, left or closed: what is asked meanwhile waits
        self._events: asyncio.Queue[Event | None] | None = None  # of whoever iterates
        self._work: asyncio.Task[Ending] | None = None

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(
        self, type: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    @property
    def talk(self) -> Talk:
        """The conversation that is open. It is another one after `resume`, `clear` and `fork`."""
        if self._talk is None:
            raise usage("no session is open", "the agent was not opened, or is closed", "`await agent.open()` first")
        return self._talk

    @property
    def settings(self) -> "Settings":
        """What the configuration comes to."""
        return self._started.settings

    @property
    def environ(self) -> Mapping[str, str]:
        """The variables that it was started with."""
        return self._started.environ

    @property
    def busy(self) -> bool:
        """Whether a run is on its way."""
        return self._talk is not None and self._talk.busy

    async def open(self) -> Talk:
        """Open the session if none is open. Raises what `starting` and `open_session` raise; then nothing is open."""
        async with self._door:
            if self._talk is None:
                if self._start is None:
                    self._start = self._starting()
                start = self._start
                self._models = self._models or OpenModels(start.model, start.opener, start.settings)
                await self._enter(start.options, start.settings, start.model)
            return self.talk

    def prompt(self, text: str) -> "Answering":
        """Work on `text`, and on what is queued meanwhile: every event, in order, to the last `run_ended`.

        Leaving the iteration stops the run and whatever it started. Raises what `open` raises, and what the approver
        raises: then nothing more was run.
        """
        return Answering(self, text)

    async def run(self, text: str) -> "Ending":
        """As `prompt`, for whoever listens by `emit`; answers how the last run ended."""
        return await (await self.open()).prompt(text)

    def steer(self, text: str) -> None:
        """Say something to the model inside its turn, after the current batch of calls."""
        self.talk.steer(text)

    def follow_up(self, text: str) -> None:
        """Say something when the turn is over."""
        self.talk.follow_up(text)

    def interrupt(self) -> bool:
        """Stop the run and whatever it started; whether there was one."""
        return self._talk is not None and self._talk.interrupt()

    async def resume(self, id: str) -> Talk:
        """Go on with that session of this workspace, by its name or the beginning of it. What cannot be opened leaves
        the present one as it is. Raises SessionError, Stopped while a run is on its way, and as `open` does."""
        kept = self.talk.world.journal.kept
        if kept is not None and len(id) >= 4 and kept.startswith(id):
            raise usage(f"the session {id} is the one that is open", "this conversation is it", "just go on")
        return await self.switch(GoOn(resume=id))

    async def clear(self) -> Talk:
        """Begin a new session. Raises as `resume` does."""
        return await self.switch(GoOn(unkept=self._started.options.beginning is None))

    async def fork(self, id: str | None = None) -> Talk:
        """Go on from here, or from where the session `id` is, in a new one. Raises as `resume` does."""
        name = id or self.talk.world.journal.kept
        if name is None:
            raise usage("there is nothing to fork", "nothing was kept of this session", "say something first")
        return await self.switch(GoOn(fork=name))

    async def close(self) -> None:
        """Stop what runs, close the session and the models. The agent can be opened again, in a new session."""
        if self._work is not None:
            _stop(self._work)
            await asyncio.wait({self._work})
        async with self._door:
            talk, self._talk = self._talk, None
            try:
                if talk is not None:
                    await talk.stopped()
            finally:
                stack, self._open = self._open, contextlib.AsyncExitStack()
                models, self._models = self._models, None
                self._start = None
                try:
                    await stack.aclose()
                finally:
                    if models is not None:
                        await models.close()

    @property
    def _started(self) -> Start:
        if self._start is None:
            raise usage("no session is open", "the agent was not opened, or is closed", "`await agent.open()` first")
        return self._start

    async def begun(self, text: str, events: "asyncio.Queue[Event | None]") -> "asyncio.Task[Ending]":
        """Start to work on `text`; `events` gets what happens, and None at the end. For `Answering`."""
        await self._idle()
        work = self._work = asyncio.ensure_future(self.run(text))
        self._events = events
        work.add_done_callback(self._over)
        return work

    def _over(self, _: "asyncio.Task[Ending]") -> None:
        events, self._events, self._work = self._events, None, None
        if events is not None:
            events.put_nowait(None)

    async def _idle(self) -> None:
        """Raises a usage error while a run is on its way, and waits for one that was stopped."""
        if self._work is not None and self._work.cancelling():
            await asyncio.wait({self._work})
        if self.busy or self._work is not None:
            raise usage("a run is on its way", "one agent works on one thing at a time", "wait for it, or interrupt it")

    async def switch(self, where: GoOn) -> Talk:
        """Leave this session, which is kept, and go on in another. Raises as `resume` does."""
        from runner.sessions.choice import beginning

        async with self._door:
            await self._idle()
            start, world = self._started, self.talk.world
            assert self._models is not None
            model = f"{world.provider.name}:{world.model}"
            into = beginning(where, start.options.cwd, start.environ, model, unattended=world.unattended)
            self.talk.take_back()
            options = replace(start.options, mode=world.mode, bounds=world.bounds, beginning=into)
            await self._enter(options, replace(start.settings, notices=()), self._models.get(model))
            return self.talk

    async def _enter(self, options: "SessionOptions", settings: "Settings", model: "Opened") -> None:
        """Open a session, and only then close the one before."""
        from runner.approval import Unattended
        from runner.session import open_session
        from runner.sessions.recall import recall

        approver = self._approver or Unattended(self._emit)
        assert self._start is not None
        stack = contextlib.AsyncExitStack()
        try:
            world = await stack.enter_async_context(
                open_session(
                    options,
                    settings,
                    self._start.environ,
                    model=model,
                    approver=approver,
                    emit=self._emit,
                    models=self._models,
                )
            )
        except BaseException:
            await stack.aclose()
            _let_go(options.beginning)
            raise
        if self._talk is not None:
            await self._talk.stopped()  # whoever had hold of it may have begun something meanwhile
            world = replace(world, mode=self._talk.world.mode, thinking=self._talk.world.thinking)
        before, self._open = self._open, stack
        try:
            await before.aclose()
        finally:
            world.emit(world.opening())
            self._talk = Talk(world, recall(options.beginning, world))

    def _emit(self, event: "Event") -> None:
        if self._events is not None:
            self._events.put_nowait(event)
        if self._told is not None:
            self._told(event)


class Answering:
    """The events of one prompt, once through. Nothing is done before the first is asked for."""

    def __init__(self, agent: Agent, text: str) -> None:
        self._agent = agent
        self._text = text
        self._events: asyncio.Queue[Event | None] = asyncio.Queue()
        self._work: asyncio.Task[Ending] | None = None

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> "Event":
        if self._work is None:
            self._work = await self._agent.begun(self._text, self._events)
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
        """Stop the run, if it is not over; returns when nothing of it is left."""
        if self._work is not None:
            _stop(self._work)
            await asyncio.wait({self._work})

    def __del__(self) -> None:  # `break` leaves an iteration without a word; a generator would learn of it too late
        if self._work is not None:
            _stop(self._work)


def _stop(work: "asyncio.Task[Ending]") -> None:
    if not work.done() and not work.cancelling():  # once: a second cancel would cut short the killing of its child
        work.cancel()


def _approver(given: "Approver | Decide | None") -> "Approver | None":
    from runner.callback import Callback

    if given is None or hasattr(given, "ask"):
        return cast("Approver | None", given)
    return Callback(given)


def _let_go(beginning: "Beginning | None") -> None:
    if beginning is not None:
        beginning.close()
