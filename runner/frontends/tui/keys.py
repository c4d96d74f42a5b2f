"""The key bindings of the input. The editing keys are those of a shell's line (Emacs'), from prompt_toolkit."""

import os
import signal

from prompt_toolkit.application import run_in_terminal
from prompt_toolkit.application.current import set_app
from prompt_toolkit.filters import Condition, Filter
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.keys import Keys

from runner.frontends.slash.command import Row
from runner.frontends.tui.app import App

# fmt: off
HELP = (
    ("Enter",                "send; while the model works, the text reaches it after the current step (queue.enter)"),
    ("Alt+Enter, Shift+Enter", "a new line (Shift only if the terminal reports it)"),
    ("Alt+Q",                "while the model works: send after the turn (queue.enter exchanges this with Enter)"),
    ("Esc",                  "withdraw waiting texts, or stop the turn"),
    ("Ctrl+C",               "stop the turn, or empty the input; twice: leave"),
    ("Ctrl+D",               "leave, when the input is empty"),
    ("Shift+Tab",            "the next mode"),
    ("?",                    "this help, when the input is empty"),
    ("Tab",                  "accept the proposal for a /command or @FILE"),
    ("Ctrl+R",               "search earlier input"),
    ("Ctrl+G",               "edit the input in your editor"),
    ("Ctrl+O",               "show the last folded output completely"),
    ("Alt+T",                "show the reasoning of the model in full, or stop showing it"),
    ("Ctrl+L",               "continue at the top of the screen"),
    ("Ctrl+Z",               "suspend"),
)
# fmt: on
_NAMES = {"c-m": "enter", "c-j": "enter", "c-i": "tab", "c-h": "backspace", "<sigint>": "c-c"}


def bind_keys(app: App) -> None:
    """Bind the keys that act on `app`."""
    keys = KeyBindings()
    asking = Condition(lambda: app.application.layout.has_focus(app.frame.question))
    _bind_panel(keys, app, asking)
    _bind_text(keys, app, ~asking)
    _bind_menu(keys, app, ~asking)
    _bind_stop(keys, app, ~asking)
    _bind_commands(keys, app, ~asking)
    app.application.key_bindings = keys


def _bind_panel(keys: KeyBindings, app: App, asking: Filter) -> None:
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


def _bind_text(keys: KeyBindings, app: App, typing: Filter) -> None:
    """Bind the keys that write, send and delete text."""

    @keys.add("<any>", filter=typing)
    def character(event: KeyPressEvent) -> None:
        _quiet(app)
        if event.data == "?" and app.help():
            return
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

    keys.add("escape", "q", filter=typing)(lambda event: app.submit(later=True))

    @keys.add("c-h", filter=typing)
    def rub_out(event: KeyPressEvent) -> None:
        _quiet(app)
        app.editor.rub_out()
        app.propose()

    @keys.add(Keys.BracketedPaste, filter=typing)
    def paste(event: KeyPressEvent) -> None:
        _quiet(app)
        app.editor.paste(event.data)


def _bind_menu(keys: KeyBindings, app: App, typing: Filter) -> None:
    """Bind the keys of the completion menu."""
    menu = typing & Condition(lambda: app.menu.open)

    keys.add("c-i", filter=menu)(lambda event: _complete(app))
    for key in ("up", "c-p"):
        keys.add(key, filter=menu)(lambda event: app.menu.move(-1))
    for key in ("down", "c-n"):
        keys.add(key, filter=menu)(lambda event: app.menu.move(1))

    @keys.add("c-i", filter=typing & ~menu)
    def reopen(event: KeyPressEvent) -> None:
        app.menu.reopen()
        app.propose()


def _bind_stop(keys: KeyBindings, app: App, typing: Filter) -> None:
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
        app.note_stopped()  # the work may have ended after the last frame
        quitting = app.quitting
        _quiet(app)
        if app.give_up():
            return
        if quitting:
            app.leave(130)
        elif app.host.busy:
            app.host.interrupt()
            app.quitting = app.stopping = True
            app.tell("stopping; press Ctrl+C again to leave")
        elif not app.editor.empty:
            app.editor.clear()
        else:
            app.quitting = True
            app.tell("press Ctrl+C again, or Ctrl+D, to leave")

    @keys.add("c-d", filter=typing)
    def end(event: KeyPressEvent) -> None:
        if app.editor.empty and not app.give_up():
            app.leave(0)
        elif not app.editor.empty:
            event.current_buffer.delete()


def _bind_commands(keys: KeyBindings, app: App, typing: Filter) -> None:
    """Bind the keys that change the mode or the screen, or that start another program."""

    @keys.add("s-tab", filter=typing)
    def mode(event: KeyPressEvent) -> None:
        _quiet(app)
        app.cycle_mode()

    @keys.add("c-l")
    def top(event: KeyPressEvent) -> None:
        output = app.application.output
        app.painter.erase()
        output.write_raw("\n" * output.get_size().rows)  # moves the rows of the screen into the scrollback
        output.cursor_goto(0, 0)

    @keys.add("c-o")
    def expand(event: KeyPressEvent) -> None:
        if app.screen is None or not app.screen.expand():
            app.tell("there is no folded output")

    @keys.add("escape", "t", filter=typing)
    def thinking(event: KeyPressEvent) -> None:
        app.show_thinking()

    @keys.add("c-r", filter=typing)
    def search(event: KeyPressEvent) -> None:
        event.app.create_background_task(_search(app))

    @keys.add("c-g", filter=typing)
    def editor(event: KeyPressEvent) -> None:
        if not app.own_editor.open:
            event.app.create_background_task(app.write_elsewhere())

    keys.add("c-z")(lambda event: suspend(app))


def suspend(app: App) -> None:
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


def _quiet(app: App) -> None:
    """Remove the momentary message, because a key was pressed."""
    app.status.notice, app.quitting, app.stopping = "", False, False


def _complete(app: App, *, whole: bool = False) -> None:
    """Insert the selected proposal; with `whole`, without a blank behind it."""
    if app.menu.chosen is not None:
        start, entry = app.menu.chosen
        buffer = app.editor.buffer
        buffer.delete_before_cursor(buffer.cursor_position - start)
        alone = whole or (entry.ready and not entry.more) or entry.text.endswith("=")  # no blank before a value
        buffer.insert_text(entry.text if alone else f"{entry.text.rstrip()} ")
        app.propose()


async def _search(app: App) -> None:
    seen = dict.fromkeys(reversed(app.editor.buffer.history.get_strings()))
    rows = [Row(text, text) for text in seen]
    text = await app.pick("earlier input", rows, query=app.editor.buffer.text if len(app.editor.text) < 40 else "")
    if text is not None:
        app.edit(text)
