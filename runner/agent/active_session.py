"""The session of an agent that is open, and how another takes its place."""

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from runner.agent.conversation import Conversation
from runner.agent.startup import SessionStart
from runner.engine.model_pool import OpenModels
from runner.problems import usage
from runner.sessions.selection import SessionSelection

if TYPE_CHECKING:
    from runner.agent.open_session import SessionOptions
    from runner.approval.approver import Approver
    from runner.config import Settings
    from runner.events import Emit
    from runner.providers import Opened

T = TypeVar("T")


class ActiveSession:
    """`door` is held while a session is opened, left or closed: what is asked meanwhile waits."""

    def __init__(self, begin: Callable[[], SessionStart], approver: "Approver", emit: "Emit") -> None:
        self.door = asyncio.Lock()
        self.found: Conversation | None = None  # the talk of the session that is open
        self._begin = begin
        self._approver = approver
        self._emit = emit
        self._start: SessionStart | None = None
        self._models: OpenModels | None = None
        self._open = contextlib.AsyncExitStack()
        self._loop: asyncio.AbstractEventLoop | None = None  # that it was opened in

    @property
    def conversation(self) -> Conversation:
        """Raises a usage error when none is open."""
        return _there(self.found)

    @property
    def start(self) -> SessionStart:
        """Raises a usage error when none is open."""
        return _there(self._start)

    async def open(self) -> Conversation:
        """Open a session if none is open. Raises what `starting` and `open_session` raise; then none is open."""
        loop = asyncio.get_running_loop()
        if self.found is not None and self._loop is not loop:
            fix = "use one event loop (`asyncio.Runner`), or another agent that goes on with the session"
            raise usage("this agent belongs to another event loop", "it was opened there, and closed with it", fix)
        async with self.door:
            if self.found is None:
                self._loop = loop
                if self._start is None:
                    self._start = self._begin()
                start = self._start
                self._models = self._models or OpenModels(start.model, start.opener, start.settings)
                try:
                    await self._enter(start.options, start.settings, start.model)
                except BaseException:  # what it began with is used up
                    await self._leave()
                    raise
            return self.conversation

    async def close(self) -> None:
        """Stop what runs, close the session and the models."""
        async with self.door:
            await self._leave()

    async def _leave(self) -> None:
        conversation, self.found = self.found, None
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
        """Go on in another session; the door is held, and nothing is on its way."""
        from runner.sessions.choose import choose_target

        start, ctx = self.start, self.conversation.ctx
        model = ctx.live.named
        into = choose_target(where, start.options.cwd, start.environ, model, unattended=ctx.unattended)
        self.conversation.take_back()
        options = replace(start.options, mode=ctx.live.mode, bounds=ctx.live.limits, beginning=into)
        await self._enter(options, replace(start.settings, notices=()), _there(self._models).get(model))
        return self.conversation

    async def _enter(self, options: "SessionOptions", settings: "Settings", model: "Opened") -> None:
        """Open a session, and only then close the one before."""
        from runner.agent.open_session import open_session
        from runner.agent.resume import recall

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
        if self.found is not None:
            await self.found.stopped()  # whoever had hold of it may have begun something meanwhile
            ctx.live.mode, ctx.live.thinking = self.found.ctx.live.mode, self.found.ctx.live.thinking
        before, self._open = self._open, stack
        try:
            await before.aclose()
        finally:
            ctx.emit(ctx.opening())
            self.found = recall(options.beginning, ctx)


def _there(found: T | None) -> T:
    if found is None:
        raise usage("no session is open", "the agent was not opened, or is closed", "`await agent.open()` first")
    return found
