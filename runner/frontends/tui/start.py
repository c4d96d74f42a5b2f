"""Plain `agent` at a terminal: keys are taken from the first moment, and the session opens behind them."""

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
    from runner.agent.run_options import RunArgs
    from runner.agent.startup import SessionStart


def start_terminal(args: "Callable[[], RunArgs]", early: str = "") -> int:
    """Run the conversation until the user leaves, and return the exit code.

    The options are read after the first keys. `early` is the text that was typed before.
    """
    return asyncio.run(_talk(args, early))


async def _talk(args: "Callable[[], RunArgs]", early: str) -> int:
    environ = os.environ
    spell_out()
    output = canvas(environ)
    errors: list[BaseException] = []
    controller = TerminalController(environ, lambda error: _fail(errors, app, error))
    history = Remembered()
    ground = TerminalProbe(environ, lambda: _coloured(app, ground, controller))
    input = Intake(sys.stdin, ground.heard)
    input.ahead(early)
    loop = asyncio.get_running_loop()

    def listed() -> None:
        loop.call_soon_threadsafe(app.propose)

    files = FileProposals(listed)
    app = controller.app = App(
        controller, history, output, input, environ, (controller.proposals, files), first=ground.question
    )
    bind_keys(app)
    kept: list[str] = []
    session = asyncio.ensure_future(_session(args, controller, app, files, history, kept, ground))
    session.add_done_callback(lambda task: _over(task, app, errors))
    code: int = Exit.DONE
    with _ends(app):
        try:
            code = await app.run()
        except EOFError:  # the terminal is gone, and nobody reads what we would say
            code = 128 + signal.SIGHUP
        finally:
            session.cancel()
            await asyncio.wait((session,))
            if output.gone is None:
                ground.settle(input)
    if app.screen is not None:
        output.write_raw(app.screen.done())
        output.flush()
    if errors:
        raise errors[0]
    if kept and output.gone is None:
        say(f"to go on: agent --resume {kept[0][:8]}")
    return code


async def _session(
    given: "Callable[[], RunArgs]",
    controller: TerminalController,
    app: App,
    files: FileProposals,
    history: Remembered,
    kept: list[str],
    ground: TerminalProbe,
) -> None:
    """Open the session and keep it open until the task is cancelled. `kept` gets the name for resuming it."""
    await asyncio.to_thread(_load)
    from policy.model.secret_paths import Secrets
    from runner.agent.agent import Agent
    from runner.agent.startup import prepare_start
    from runner.frontends.slash.registry import known
    from runner.frontends.tui.question import Panels, asker
    from runner.frontends.tui.screen import Screen
    from runner.frontends.tui.theme import theme_for
    from runner.secrets.redactor import Redactor
    from runner.state.paths import state_dir

    output = app.application.output
    theme = theme_for(os.environ, light=ground.light)
    app.screen = Screen(lambda: output.get_size().columns, theme, encoding=output.encoding())
    ask = partial(asker, app, asyncio.get_running_loop())
    args = await asyncio.to_thread(given)
    if args.selection.resume == "":
        picked = await _picked(args, app)
        if picked is None:
            app.leave(Exit.DONE)
            return
        args = picked
    begun = await asyncio.to_thread(_unless_left, lambda: prepare_start(args, unattended=False, asker=ask))
    if begun is None:
        app.leave(Exit.INTERRUPTED)
        return
    history.keep(state_dir(os.environ) / "history", Redactor(live=True, shapes=True).text)
    app.editor.recall()
    agent = Agent(approver=Panels(app), emit=app.emit, start=lambda: begun)
    async with agent:
        ctx = agent.conversation.ctx
        facts = ctx.look()
        files.root, files.secret = ctx.cwd, Secrets(ctx.profile, facts.home, facts.private).holds
        found = await asyncio.to_thread(known, os.environ, ctx.context)
        controller.commands = found.commands
        for notice in found.notices:
            ctx.emit(Notice(notice))
        controller.join(agent, begun.settings)
        app.bell.how = str(begun.settings.value("notify"))
        _coloured(app, ground, controller)
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            await controller.part()
            history.shorten()
            if (name := agent.conversation.ctx.journal.kept) is not None:
                kept.append(name)


async def _picked(args: "RunArgs", app: App) -> "RunArgs | None":
    """Return the session that the user picks for `--resume` without a name; None if the user leaves the list."""
    from runner.frontends.slash.command import Row
    from runner.gate.gate import folder
    from runner.problems import usage
    from runner.sessions.selection import SessionSelection
    from runner.sessions.store import SessionStore
    from runner.sessions.summary import row, summarize_sessions
    from runner.state.paths import home, state_dir
    from runner.state.workspace import workspace_of

    workspace = workspace_of(str(folder(args.cwd)), os.path.realpath(home(os.environ)))
    store = SessionStore.of(state_dir(os.environ), workspace)
    found = await asyncio.to_thread(lambda: list(summarize_sessions(store)))
    if not found:
        raise usage("there is nothing to resume", "no session of this workspace is kept", "leave --resume out")
    picked = await app.pick("resume which session?", [Row(each.id, row(each, width=90)) for each in found])
    return replace(args, selection=SessionSelection(resume=picked)) if picked is not None else None


def _coloured(app: App, ground: TerminalProbe, controller: TerminalController) -> None:
    """Use the colours that the setting or the terminal determined, from the next drawing on."""
    from runner.frontends.tui.theme import theme_for

    app.painter.wraps = app.painter.wraps and not ground.cuts
    if app.screen is not None:
        wanted = controller.settings.value("theme") if controller.open else "auto"
        app.screen.theme = theme_for(os.environ, wanted, light=ground.light)


def _unless_left(start: "Callable[[], SessionStart]") -> "SessionStart | None":
    """Run without an interrupt in the thread, which would break the event loop."""
    try:
        return start()
    except KeyboardInterrupt:
        return None


def _load() -> None:
    """Load the modules of a session, in a thread, while keys are accepted."""
    import tools  # noqa: F401  # loaded is what it shall be

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


def _fail(errors: list[BaseException], app: App, error: BaseException) -> None:
    if not isinstance(error, asyncio.CancelledError):
        errors.append(error)
        app.leave(Exit.FAILED)


def _over(task: "asyncio.Task[None]", app: App, errors: list[BaseException]) -> None:
    if task.cancelled():  # the person stopped a question of the beginning
        app.leave(Exit.INTERRUPTED)
    else:
        if (error := task.exception()) is not None:
            errors.append(error)
        app.leave(Exit.FAILED)
