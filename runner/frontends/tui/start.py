"""The start of plain `agent` at a terminal: keys are accepted at once, while the session is being opened."""

import asyncio
import contextlib
import gc
import os
import signal
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from runner.events import Notice
from runner.frontends.terminal.input import Intake
from runner.frontends.terminal.probe import TerminalProbe, spell_out
from runner.frontends.tui.app import App
from runner.frontends.tui.controller import TerminalController
from runner.frontends.tui.files import FileProposals
from runner.frontends.tui.history import Remembered
from runner.frontends.tui.keys import bind_keys, suspend
from runner.frontends.tui.renderer import canvas
from runner.problems import Exit, ending_signals
from runner.stderr import say

if TYPE_CHECKING:
    from runner.agent.startup import RunArgs, SessionStart


def start_terminal(args: "Callable[[], RunArgs]", early: str = "", prompt: str | None = None) -> int:
    """Run the conversation until the user leaves, and return the exit code. Raise CommandChosen if the user chooses a
    command in place of a session.

    `args` parses the options, and is called once keys are accepted. `early` is the text that was typed before. `prompt`
    is sent first.
    """

    async def run() -> int:
        return await _Terminal(args, early, prompt).run()

    return asyncio.run(run())


class _Terminal:
    """The conversation at one terminal: its input and output, the App that draws, and the session behind it."""

    def __init__(self, args: "Callable[[], RunArgs]", early: str, prompt: str | None) -> None:
        spell_out()
        self._args = args
        self._errors: list[BaseException] = []
        self._resumable: str | None = None  # the name of the session, once it has a file
        self._output = canvas(os.environ)
        self._controller = TerminalController(self._fail)
        self._history = Remembered()
        self._probe = TerminalProbe(os.environ, self._colour)
        self._input = Intake(sys.stdin, self._probe.heard)
        loop = asyncio.get_running_loop()
        self._files = FileProposals(lambda: loop.call_soon_threadsafe(self._app.propose))
        self._app = self._controller.app = App(
            self._controller, self._history, self._output, self._input, os.environ,
            (self._controller.proposals, self._files), first=self._probe.question,
        )  # fmt: skip
        bind_keys(self._app)
        if prompt is not None:
            self._controller.submit(prompt)
        self._input.ahead(early)

    async def run(self) -> int:
        """Draw and take keys until the user leaves, and return the exit code."""
        session = asyncio.ensure_future(self._session())
        session.add_done_callback(self._over)
        code: int = Exit.DONE
        with _ends(self._app):
            try:
                code = await self._app.run()
            except EOFError:  # the terminal is gone, and no message can be shown
                code = 128 + signal.SIGHUP
            finally:
                session.cancel()
                await asyncio.wait((session,))
                if self._output.gone is None:
                    self._probe.settle(self._input)
        if self._app.screen is not None:
            self._output.write_raw(self._app.screen.done())
            self._output.flush()
        if self._errors:
            raise self._errors[0]
        if self._resumable is not None and self._output.gone is None:
            say(f"to continue: agent --resume {self._resumable[:8]}")
        return code

    async def _session(self) -> None:
        """Open the session and keep it open until the task is cancelled."""
        await asyncio.to_thread(_load)
        from policy.model.secret_paths import Secrets
        from runner.agent.agent import Agent
        from runner.agent.startup import prepare_start
        from runner.frontends.slash.registry import known
        from runner.frontends.tui.question import Panels, asker, choose_model_row
        from runner.frontends.tui.screen import Screen
        from runner.frontends.tui.theme import theme_for
        from runner.secrets.redactor import Redactor
        from runner.state.paths import state_dir

        app, output = self._app, self._output
        theme = theme_for(os.environ, light=self._probe.light)
        app.screen = Screen(lambda: output.get_size().columns, theme, encoding=output.encoding())
        ask = partial(asker, app, asyncio.get_running_loop())
        args: RunArgs | None = await asyncio.to_thread(self._args)
        if args is not None and args.selection.resume == "":
            args = await self._picked(args)
        if args is None:
            app.leave(Exit.DONE)
            return
        choose = partial(choose_model_row, app, asyncio.get_running_loop())
        prepare = partial(prepare_start, args, unattended=False, asker=ask, choose=choose, notes=True)
        start = await asyncio.to_thread(_unless_left, prepare)
        if start is None:
            app.leave(Exit.INTERRUPTED)
            return
        self._history.keep(state_dir(os.environ) / "history", Redactor(live=True, shapes=True).text)
        app.editor.recall()
        async with Agent(approver=Panels(app), emit=app.emit, start=lambda: start) as agent:
            ctx = agent.conversation.ctx
            facts = ctx.look()
            self._files.root, self._files.secret = ctx.cwd, Secrets(ctx.profile, facts.home, facts.private).holds
            commands = await asyncio.to_thread(known, os.environ, ctx.context)
            self._controller.commands = commands.commands
            for notice in commands.notices:
                ctx.emit(Notice(notice))
            for url in args.urls:
                await agent.conversation.attach(url)
            self._controller.join(agent)
            app.bell.how = str(start.settings.value("notify"))
            app.screen.thinking = app.screen.thinking or start.settings.value("show_thinking") is True
            self._colour()
            try:
                await asyncio.get_running_loop().create_future()
            finally:
                await self._controller.part()
                self._history.shorten()
                self._resumable = agent.conversation.ctx.journal.kept

    async def _picked(self, args: "RunArgs") -> "RunArgs | None":
        """Return `args` with the session that the user picks for `--resume` without a name; None if none is picked."""
        from runner.frontends.slash.command import Row
        from runner.gate.gate import folder
        from runner.sessions.open import no_session_to_resume
        from runner.sessions.selection import SessionSelection
        from runner.sessions.store import SessionStore
        from runner.sessions.summary import labels, summarize_sessions
        from runner.state.paths import state_dir
        from runner.state.workspace import workspace_at

        store = SessionStore.of(state_dir(os.environ), workspace_at(str(folder(args.cwd)), os.environ))
        sessions = await asyncio.to_thread(lambda: list(summarize_sessions(store)))
        if not sessions:
            raise no_session_to_resume()
        picked = await self._app.pick("resume which session?", [Row(each.id, *labels(each)) for each in sessions])
        return replace(args, selection=SessionSelection(resume=picked)) if picked is not None else None

    def _colour(self) -> None:
        """Apply the theme and the facts about the terminal that are known now, from the next drawing on."""
        from runner.frontends.tui.theme import theme_for

        painter, screen = self._app.painter, self._app.screen
        painter.wraps = painter.wraps and not self._probe.cuts
        if screen is not None:
            wanted = self._controller.settings.value("theme") if self._controller.open else "auto"
            screen.theme = theme_for(os.environ, wanted, light=self._probe.light)

    def _fail(self, error: BaseException) -> None:
        if not isinstance(error, asyncio.CancelledError):
            self._errors.append(error)
            self._app.leave(Exit.FAILED)

    def _over(self, session: "asyncio.Task[None]") -> None:
        if session.cancelled():  # the user stopped a question before the session was open
            self._app.leave(Exit.INTERRUPTED)
        elif (error := session.exception()) is not None:
            self._fail(error)
        else:
            self._app.leave(Exit.FAILED)


def _unless_left(start: "Callable[[], SessionStart]") -> "SessionStart | None":
    """Return the result of `start`, or None after KeyboardInterrupt, which must not reach the event loop."""
    try:
        return start()
    except KeyboardInterrupt:
        return None


def _load() -> None:
    """Load the modules of a session, in a thread, while keys are accepted."""
    import tools  # noqa: F401  # imported for its side effect of loading

    gc.freeze()
    gc.enable()


@contextlib.contextmanager
def _ends(app: App) -> Iterator[None]:
    """Handle a hangup and the signals that end the program as if the user had left, so that no child process remains.

    SIGTSTP of another program suspends this one as Ctrl+Z does: with the terminal as it was before.
    """
    loop = asyncio.get_running_loop()
    numbers = ending_signals()
    before = {number: signal.getsignal(number) for number in (*numbers, signal.SIGTSTP)}
    for number in numbers:
        loop.add_signal_handler(number, app.leave, 128 + number)
    loop.add_signal_handler(signal.SIGTSTP, suspend, app)
    try:
        yield
    finally:
        for number, handler in before.items():
            loop.remove_signal_handler(number)
            signal.signal(number, handler)
