"""The open session of an agent, and the change to another session."""

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from runner.agent.conversation import Conversation
from runner.agent.startup import SessionStart, check_server
from runner.engine.model_access import OpenModels
from runner.events import Emit, Notice, Resumed
from runner.problems import usage
from runner.providers.remotes import PROVIDERS
from runner.sessions.selection import SessionSelection

if TYPE_CHECKING:
    from runner.agent.open_session import SessionOptions
    from runner.approval.approver import Approver
    from runner.config import Settings
    from runner.engine.run_context import RunContext
    from runner.providers import OpenModel
    from runner.sessions.open import SessionTarget

T = TypeVar("T")


class ActiveSession:
    """The open session of an agent, or none.

    Attributes:
        door: A lock that is held while a session is opened, switched or closed. Other requests wait for the lock.
        opened: The conversation of the open session, or None.
    """

    def __init__(self, begin: Callable[[], SessionStart], approver: "Approver", emit: "Emit") -> None:
        self.door = asyncio.Lock()
        self.opened: Conversation | None = None
        self._begin = begin
        self._approver = approver
        self._emit = emit
        self._start: SessionStart | None = None
        self._models: OpenModels | None = None
        self._open = contextlib.AsyncExitStack()
        self._loop: asyncio.AbstractEventLoop | None = None  # the event loop that opened the session

    @property
    def conversation(self) -> Conversation:
        """Return the open conversation. Raise a usage error if no session is open."""
        return _present(self.opened)

    @property
    def start(self) -> SessionStart:
        """Return the values that the session was opened with. Raise a usage error if no session is open."""
        return _present(self._start)

    async def open(self) -> Conversation:
        """Open a session if none is open, and return its conversation.

        Raise what `prepare_start` and `open_session` raise; then no session is open. Raise a usage error if another
        event loop opened the session.
        """
        loop = asyncio.get_running_loop()
        if self.opened is not None and self._loop is not loop:
            fix = "use one event loop (`asyncio.Runner`), or another agent that continues the session"
            raise usage("this agent belongs to another event loop", "another event loop opened the agent", fix)
        async with self.door:
            if self.opened is None:
                self._loop = loop
                if self._start is None:
                    self._start = self._begin()
                start = self._start
                self._models = self._models or OpenModels(start.model, start.opener, start.settings)
                try:
                    await self._enter(start.options, start.settings, start.model)
                except BaseException:  # start values, such as a key from standard input, can be used only once
                    await self._leave()
                    raise
            return self.conversation

    async def close(self) -> None:
        """Stop the run in progress, and close the session and the models."""
        async with self.door:
            await self._leave()

    async def _leave(self) -> None:
        conversation, self.opened = self.opened, None
        try:
            if conversation is not None:
                await conversation.stopped()
        finally:
            stack, self._open = self._open, contextlib.AsyncExitStack()
            models, self._models = self._models, None
            self._start = None
            try:
                await stack.aclose()
            finally:
                if models is not None:
                    await models.close()

    async def move(self, where: SessionSelection) -> Conversation:
        """Switch to the session `where` and return its conversation. The caller holds `door`, and no run is in
        progress. An earlier session continues with its own model, unless the user named one at the start.

        If that session cannot be opened, the current session stays open.
        """
        from runner.sessions.open import choose_target

        start, ctx, models = self.start, self.conversation.ctx, _present(self._models)
        model = models.get(ctx.live.named)
        same = where.fork is not None and ctx.journal.kept is not None and ctx.journal.kept.startswith(where.fork)

        def name_of(own: str) -> str:
            nonlocal model
            if own.partition(":")[0] in PROVIDERS and not (start.named or same):
                model = models.get(own)
                if own != ctx.live.named:
                    check_server(model)
            return model.named

        into = choose_target(where, start.options.cwd, start.environ, name_of, unattended=ctx.unattended)
        try:
            bounds = models.limits(ctx.live.limits, model)
        except BaseException:
            if into is not None:
                into.close()
            raise
        self.conversation.take_back()
        options = replace(start.options, mode=ctx.live.mode, bounds=bounds, beginning=into)
        await self._enter(options, replace(start.settings, notices=()), model)
        return self.conversation

    async def _enter(self, options: "SessionOptions", settings: "Settings", model: "OpenModel") -> None:
        """Open a session, then close the previous session."""
        from runner.agent.open_session import open_session

        stack = contextlib.AsyncExitStack()
        try:
            ctx = await stack.enter_async_context(
                open_session(
                    options,
                    settings,
                    self.start.environ,
                    model=model,
                    approver=self._approver,
                    emit=self._emit,
                    models=self._models,
                )
            )
        except BaseException:
            await stack.aclose()
            if options.beginning is not None:
                options.beginning.close()
            raise
        if self.opened is not None:
            await self.opened.stopped()  # another task may have started a run meanwhile
            ctx.live.mode, ctx.live.thinking = self.opened.ctx.live.mode, self.opened.ctx.live.thinking
        before, self._open = self._open, stack
        try:
            await before.aclose()
        finally:
            ctx.emit(ctx.opening())
            self.opened = _continued(options.beginning, ctx)


def _present(value: T | None) -> T:
    if value is None:
        raise usage("no session is open", "the agent was not opened, or is closed", "`await agent.open()` first")
    return value


def _continued(beginning: "SessionTarget | None", ctx: "RunContext") -> Conversation:
    """Return a conversation that continues the earlier session, after an event about that session.

    Without an earlier session, return a new conversation.
    """
    before = beginning.past if beginning is not None else None
    if beginning is None or before is None:
        return Conversation(ctx, [])
    opening = ctx.opening()
    then_now = (
        ("workspace", before.workspace, opening.workspace),
        # Another workspace implies another folder.
        ("folder", before.cwd if before.workspace == opening.workspace else "", ctx.cwd),
        ("mode", before.mode, ctx.live.mode.value),
        ("model", before.model, opening.model),
    )
    changes = [f"{what} was {then}, is {now}" for what, then, now in then_now if then and then != now]
    if beginning.fork and before.grants:
        changes.append("approvals of the original session do not apply in the copy")
    ctx.emit(
        Resumed(
            session=before.session,
            forked=beginning.fork,
            began=before.began,
            until=before.until,
            prompts=before.prompts,
            turns=before.turns,
            first=before.first,
            last=before.last,
            said=before.said,
            changes=tuple(changes),
            recent=beginning.recent,
        )
    )
    for notice in before.notices:
        ctx.emit(Notice(notice))
    history = list(before.history)
    ctx.view.restore(before.folds, history)
    if (counted := before.counted) is not None and all(place <= counted.sent for place, _ in before.folds):
        ctx.gauge.answered(counted.usage, ctx.view.visible(history[: counted.sent]), counted.answer)
        if counted.model != opening.model:
            ctx.gauge.model_changed()
    return Conversation(ctx, history, before.marks)
