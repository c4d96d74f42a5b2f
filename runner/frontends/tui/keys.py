"""The key bindings of the input. The editing keys are those of a shell's line (Emacs'), from prompt_toolkit."""

import os
import signal
from collections.abc import Sequence
from typing import Protocol, TypeVar

from prompt_toolkit.application import Application, run_in_terminal
from prompt_toolkit.application.current import set_app
from prompt_toolkit.filters import Condition, Filter
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.keys import Keys

from runner.frontends.tui.editor import Editor
from runner.frontends.tui.external_editor import OwnEditor
from runner.frontends.tui.interfaces import Host, Screen
from runner.frontends.tui.layout import Frame
from runner.frontends.tui.menu import Menu
from runner.frontends.tui.picker import Row
from runner.frontends.tui.status import Status

T = TypeVar("T")

# fmt: off
HELP = (
    ("Enter",                "send; while the model works: after its next step"),
    ("Alt+Enter, Shift+Enter", "a new line (Shift where the terminal tells)"),
    ("Alt+Q",                "while the model works: send when its turn is over"),
    ("Esc",                  "take back what waits, or stop the turn"),
    ("Ctrl+C",               "stop the turn, or empty the input; twice: leave"),
    ("Ctrl+D",               "leave, when the input is empty"),
    ("Shift+Tab",            "the next mode"),
    ("Tab",                  "take what is proposed for /command or @FILE"),
    ("Ctrl+R",               "search what was typed before"),
    ("Ctrl+G",               "write in your editor"),
    ("Ctrl+O",               "show the last folded output whole"),
    ("Ctrl+L",               "begin at the top of the screen"),
    ("Ctrl+Z",               "suspend"),
)
# fmt: on
_NAMES = {"c-m": "enter", "c-j": "enter", "c-i": "tab", "c-h": "backspace", "<sigint>": "c-c"}


class KeyTarget(Protocol):
    """The part of the terminal application that key presses act on. `App` is the implementation.

    Attributes:
        quitting: True after Ctrl+C, which makes a second Ctrl+C leave the program.
        stopping: True if the last key was Ctrl+C and the turn is being stopped.
    """

    application: Application[int]
    editor: Editor
    frame: Frame
    host: Host
    menu: Menu
    own_editor: OwnEditor
    screen: Screen | None
    status: Status
    quitting: bool
    stopping: bool

    def press(self, key: str) -> None:
        """Send a key to the open panel."""

    def submit(self, *, later: bool = False) -> None:
        """Send the input; with `later`, behind the current turn."""

    def propose(self) -> None:
        """Update the completion menu after the input changed."""

    def give_up(self) -> bool:
        """Discard the edited text of a panel. Return False if there is none."""

    def leave(self, code: int = 0) -> None:
        """End the program with the exit code `code`."""

    def tell(self, text: str) -> None:
        """Show a message in the status line until the next key press."""

    def cycle_mode(self) -> None:
        """Switch to the next mode."""

    def edit(self, text: str) -> None:
        """Replace the input by `text`."""

    def lend_keyboard(self, *, lent: bool) -> None:
        """Give the terminal's keyboard settings to another program, or take them back."""

    async def write_elsewhere(self) -> None:
        """Edit the input in the user's own editor."""

    async def pick(self, title: str, rows: Sequence[Row[T | None]], *, query: str = "") -> T | None:
        """Let the user choose one row. Return None if the user cancels."""


def bindings(app: KeyTarget) -> KeyBindings:
    """Return the key bindings that act on `app`."""
    keys = KeyBindings()
    asking = Condition(lambda: app.application.layout.has_focus(app.frame.question))
    _bind_panel(keys, app, asking)
    _bind_text(keys, app, ~asking)
    _bind_menu(keys, app, ~asking)
    _bind_stop(keys, app, ~asking)
    _bind_commands(keys, app, ~asking)
    return keys


def _bind_panel(keys: KeyBindings, app: KeyTarget, asking: Filter) -> None:
    """Bind every key to the open panel while a question is asked."""

    @keys.add(Keys.Any, filter=asking, eager=True)
    @keys.add("escape", filter=asking, eager=True)
    @keys.add("c-c", filter=asking, eager=True)
    @keys.add("<sigint>", filter=asking, eager=True)
    def panel(event: KeyPressEvent) -> None:
        key = event.key_sequence[0].key
        name = key.value if isinstance(key, Keys) else key
        if not name.startswith("<") or name == "<sigint>":
            app.press(_NAMES.get(name, name))


def _bind_text(keys: KeyBindings, app: KeyTarget, typing: Filter) -> None:
    """Bind the keys that write, send and delete text."""

    @keys.add("<any>", filter=typing)
    def character(event: KeyPressEvent) -> None:
        _quiet(app)
        event.current_buffer.insert_text(event.data)
        app.propose()

    @keys.add("c-m", filter=typing)
    def enter(event: KeyPressEvent) -> None:
        _quiet(app)
        chosen = app.menu.meant
        if chosen is not None and chosen[1].ready:
            _complete(app, whole=True)
        elif chosen is not None and app.editor.buffer.document.text_before_cursor[chosen[0] :] != chosen[1].text:
            _complete(app)
            return
        app.submit()

    @keys.add("escape", "c-m", filter=typing)
    @keys.add("c-j", filter=typing)
    def newline(event: KeyPressEvent) -> None:
        _quiet(app)
        event.current_buffer.newline(copy_margin=False)

    @keys.add("escape", "q", filter=typing)
    def later(event: KeyPressEvent) -> None:
        app.submit(later=True)

    @keys.add("c-h", filter=typing)
    def rub_out(event: KeyPressEvent) -> None:
        _quiet(app)
        app.editor.rub_out()
        app.propose()

    @keys.add(Keys.BracketedPaste, filter=typing)
    def paste(event: KeyPressEvent) -> None:
        _quiet(app)
        app.editor.paste(event.data)


def _bind_menu(keys: KeyBindings, app: KeyTarget, typing: Filter) -> None:
    """Bind the keys of the completion menu."""
    menu = typing & Condition(lambda: app.menu.open)

    @keys.add("c-i", filter=menu)
    def complete(event: KeyPressEvent) -> None:
        _complete(app)

    @keys.add("c-i", filter=typing & ~menu)
    def nothing(event: KeyPressEvent) -> None:
        app.menu.reopen()
        app.propose()

    @keys.add("up", filter=menu)
    @keys.add("c-p", filter=menu)
    def up(event: KeyPressEvent) -> None:
        app.menu.move(-1)

    @keys.add("down", filter=menu)
    @keys.add("c-n", filter=menu)
    def down(event: KeyPressEvent) -> None:
        app.menu.move(1)


def _bind_stop(keys: KeyBindings, app: KeyTarget, typing: Filter) -> None:
    """Bind the keys that cancel, stop and leave."""

    @keys.add("escape", filter=typing)
    def escape(event: KeyPressEvent) -> None:
        _quiet(app)
        if app.menu.open:
            app.menu.close(app.editor.buffer.document.text_before_cursor)
        elif app.give_up():
            pass
        elif texts := app.host.take_back():
            app.editor.add("\n\n".join(texts))
        else:
            app.host.interrupt()

    @keys.add("c-c", filter=typing)
    @keys.add("<sigint>", filter=typing)
    def stop(event: KeyPressEvent) -> None:
        quitting = app.quitting
        _quiet(app)
        if app.give_up():
            return
        if quitting:
            app.leave(130)
        elif app.host.busy:
            app.host.interrupt()
            app.quitting = app.stopping = True
            app.tell("stopping; Ctrl+C again leaves")
        elif not app.editor.empty:
            app.editor.clear()
        else:
            app.quitting = True
            app.tell("Ctrl+C again leaves, and so does Ctrl+D")

    @keys.add("c-d", filter=typing)
    def end(event: KeyPressEvent) -> None:
        if app.editor.empty and not app.give_up():
            app.leave(0)
        elif not app.editor.empty:
            event.current_buffer.delete()


def _bind_commands(keys: KeyBindings, app: KeyTarget, typing: Filter) -> None:
    """Bind the keys that change the mode or the screen, or that start another program."""

    @keys.add("s-tab", filter=typing)
    def mode(event: KeyPressEvent) -> None:
        _quiet(app)
        app.cycle_mode()

    @keys.add("c-l")
    def top(event: KeyPressEvent) -> None:
        painter, output = app.application.renderer, app.application.output
        painter.erase()
        size = output.get_size()
        output.write_raw("\n" * size.rows)  # what is on the screen goes up into the scrollback, and stays
        output.cursor_goto(0, 0)

    @keys.add("c-o")
    def expand(event: KeyPressEvent) -> None:
        if app.screen is None or not app.screen.expand():
            app.tell("nothing is folded")

    @keys.add("c-r", filter=typing)
    def search(event: KeyPressEvent) -> None:
        event.app.create_background_task(_search(app))

    @keys.add("c-g", filter=typing)
    def editor(event: KeyPressEvent) -> None:
        if not app.own_editor.open:
            event.app.create_background_task(app.write_elsewhere())

    @keys.add("c-z")
    def pause(event: KeyPressEvent) -> None:
        suspend(app)


def suspend(app: KeyTarget) -> None:
    """Suspend the program until it is continued, with the terminal as it was before the program started."""

    def stop() -> None:
        before = signal.signal(signal.SIGTSTP, signal.SIG_DFL)
        os.kill(0, signal.SIGTSTP)  # the process group, as a terminal's own Ctrl+Z does
        signal.signal(signal.SIGTSTP, before)

    def stopped() -> None:
        app.lend_keyboard(lent=True)
        stop()
        app.lend_keyboard(lent=False)

    if app.own_editor.open:  # the editor has the terminal, and is suspended with this program
        stop()
        return
    with set_app(app.application):  # needed if a signal, and not a key, suspends the program
        run_in_terminal(stopped)


def _quiet(app: KeyTarget) -> None:
    """Remove the momentary message, because a key was pressed."""
    app.status.told, app.quitting, app.stopping = "", False, False


def _complete(app: KeyTarget, *, whole: bool = False) -> None:
    """Insert the selected proposal; with `whole`, without a blank behind it."""
    chosen = app.menu.chosen
    if chosen is not None:
        start, entry = chosen
        buffer = app.editor.buffer
        buffer.delete_before_cursor(buffer.cursor_position - start)
        buffer.insert_text(entry.text if whole or (entry.ready and not entry.more) else f"{entry.text.rstrip()} ")
        app.propose()


async def _search(app: KeyTarget) -> None:
    seen = dict.fromkeys(reversed(app.editor.buffer.history.get_strings()))
    rows = [Row[str | None](text, text) for text in seen]
    text = await app.pick("typed before", rows, query=app.editor.buffer.text if len(app.editor.text) < 40 else "")
    if text is not None:
        app.edit(text)
