"""The terminal application of a conversation: live rows, queued texts, the input or a question, and the status line.

Finished rows are in the terminal's own scrollback; there is no alternate screen and no mouse. One thread, that of the
event loop, draws and takes keys.
"""

import asyncio
import binascii
import contextlib
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from prompt_toolkit.application import Application, run_in_terminal
from prompt_toolkit.input import Input

from policy.model.profile import MAIN
from runner.events import Changed, Event, RunEnded
from runner.frontends.slash.command import Row
from runner.frontends.tui.bell import Bell
from runner.frontends.tui.editor import Draft, Editor
from runner.frontends.tui.external_editor import OwnEditor
from runner.frontends.tui.history import Remembered
from runner.frontends.tui.keyboard import keyboard
from runner.frontends.tui.menu import Menu, ProposalSource
from runner.frontends.tui.panel import Done, Edit, Panel, PanelStep
from runner.frontends.tui.picker import Picker
from runner.frontends.tui.renderer import Canvas, Frame, Painter
from runner.frontends.tui.rows import Fragments, clip_rows, encode_rows, fit, measure
from runner.frontends.tui.status import Progress, StatusLine, Wait
from runner.frontends.tui.theme import Shades
from runner.text.sanitize import one_line

if TYPE_CHECKING:
    from runner.frontends.tui.screen import Screen  # slow to import, and not needed to accept keys

T = TypeVar("T")

FRAME = 1 / 30  # seconds between two drawings that no key caused
_BEAT = 0.12  # seconds between two frames of the spinner
_SPINNER = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
_SMALL = 10  # rows of a terminal that is too low for an empty row
_ROWS_BELOW = 6  # rows that a panel leaves free for the live rows and the status line


class Host(Protocol):
    """The host of the conversation. The event loop calls every method, and each of them returns soon."""

    @property
    def busy(self) -> bool: ...

    @property
    def waiting(self) -> Sequence[str]: ...

    def submit(self, text: str, *, later: bool = False) -> None:
        """Send a complete input; with `later`, after the turn in progress."""
        ...

    def interrupt(self) -> bool:
        """Stop the current work. Return True if there was work that was not being stopped already."""
        ...

    def take_back(self) -> Sequence[str]: ...

    def cycle_mode(self) -> None: ...


class App:
    """The terminal application. `run` draws until `leave`; the other methods may be called before and during `run`.

    `first` is the query that is sent to the terminal at the start.
    """

    def __init__(
        self,
        host: Host,
        history: Remembered,
        output: Canvas,
        input: Input,
        environ: Mapping[str, str],
        sources: Sequence[ProposalSource] = (),
        *,
        first: str = "",
    ) -> None:
        self.screen: Screen | None = None  # set before the first event
        self.host = host
        self.status = StatusLine()
        self._wait = Wait()
        self._progress = Progress()
        self.editor = Editor(history, lambda: self.menu.leave(self.editor.buffer.document.text_before_cursor))
        self.own_editor = OwnEditor(environ, self._write_code)
        self.menu = Menu(sources)
        self.panel: Panel[Any] | None = None
        self.bell = Bell(self._write_code)
        self.quitting = False  # the next Ctrl+C leaves
        self.stopping = False  # the last key was Ctrl+C, and it stopped a turn
        self._cycling = False
        self._cycled: Changed | None = None  # the sum of the mode switches since another event was shown
        self._label = ""  # shown above the input while the user changes a text for a panel
        self._draft: Draft | None = None
        self._questions: deque[tuple[Panel[Any], asyncio.Future[Any]]] = deque()
        self._due: asyncio.TimerHandle | None = None
        self._beating: asyncio.TimerHandle | None = None
        self._beat = 0
        self._up = ""  # finished rows for the scrollback, written with the next drawing
        self.frame = Frame(
            self.editor.buffer, lambda: self.panel is not None and not self._label, lambda: self._size()[1]
        )
        self._output = output
        self._unicode = output.encoding().lower().startswith("utf")
        self._keyboard = keyboard(environ)
        self._first = first
        self.application: Application[int] = Application(
            self.frame.layout,
            input=input,
            output=output,
            style_transformation=Shades(lambda: self.screen.theme if self.screen is not None else None),
            erase_when_done=True,
            terminal_size_polling_interval=None,
            include_default_pygments_style=False,
            before_render=lambda _: self._compose(),
        )
        self.application.ttimeoutlen = (
            0.05  # seconds after an escape character; the rest of a key's sequence arrives with it
        )
        self.application.timeoutlen = 0.3
        self.application.key_processor.before_key_press += lambda _: self.bell.typed()
        self.painter = Painter(self.application.renderer.style, output, self._take_finished_rows, environ)
        self.application.renderer = self.painter

    # public methods

    async def run(self) -> int:
        """Draw and take keys until `leave`, and return the exit code. Raise EOFError if the terminal is gone."""
        self._output.write_raw(self._keyboard.on + self._first)
        try:
            # prompt_toolkit's own handler would show an error and wait for Enter; here an error ends the program.
            return await self.application.run_async(set_exception_handler=False)
        finally:
            for timer in (self._due, self._beating):
                if timer is not None:
                    timer.cancel()
            while self._questions:
                self._questions.popleft()[1].cancel()
            self._output.write_raw(self._take_finished_rows() + self._done() + self._keyboard.off)
            self._output.flush()

    def leave(self, code: int = 0) -> None:
        if self.own_editor.open:  # the application cannot end while the editor has the terminal
            self.own_editor.end()
        if self.application.is_running and not self.application.is_done:
            self.application.exit(result=code)

    def emit(self, event: Event) -> None:
        """Show `event` with the next frame."""
        self.status.take(event)
        if event.agent == MAIN:
            self._wait.take(event, time.monotonic())
            self._progress.take(event, time.monotonic())
        self.soon()
        if self._cycling and isinstance(event, Changed):
            self._cycled = replace(event, was=self._cycled.was if self._cycled is not None else event.was)
        elif self.screen is not None:
            if self._cycled is not None and self._cycled.was != self._cycled.now:
                self.screen.take(self._cycled)
            self._cycled = None
            self.screen.take(event)
        if isinstance(event, RunEnded) and event.agent == MAIN and not self.host.waiting:
            self.bell.over()

    def cycle_mode(self) -> None:
        """Switch to the next mode. The status line shows each mode; the scrollback shows only the result of several
        switches.
        """
        self._cycling = True
        try:
            self.host.cycle_mode()
        finally:
            self._cycling = False

    async def ask(self, panel: Panel[T]) -> T:
        """Show the panel instead of the input, after earlier panels, and return its value.

        The panel is closed if the call is cancelled. Raise CancelledError if Ctrl+C closed the panel without a value,
        or if the application ended.
        """
        answer: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._questions.append((panel, answer))
        self.soon()
        try:
            return await answer
        finally:
            self._questions = deque(each for each in self._questions if each[1] is not answer)
            if self.panel is panel:
                self._close_panel()

    async def pick(self, title: str, rows: Sequence[Row], *, query: str = "") -> str | None:
        """Return the value of the row that the user picked; None if the user picked nothing."""
        return await self.ask(Picker(title, rows, query=query))

    def copy(self, text: str) -> None:
        """Ask the terminal to put `text` into the clipboard (OSC 52). The terminal may not support or permit that."""
        self._write_code(f"\x1b]52;c;{binascii.b2a_base64(text.encode('utf-8', 'replace'), newline=False).decode()}\a")

    @property
    def columns(self) -> int:
        """Return the width of a finished row."""
        return measure(self._output.get_size().columns)

    def help(self) -> bool:
        """Show the help if the input is empty. Return True if it was."""
        if self._label or not self.editor.empty:
            return False
        self.host.submit("/help")
        return True

    def tell(self, text: str) -> None:
        """Show `text` in the status line until the next key."""
        self.status.notice = text
        self.soon()

    def soon(self) -> None:
        """Draw within a frame's time."""
        if self._due is None and self.application.loop is not None:
            self._due = self.application.loop.call_later(FRAME, self._frame)

    # keys

    def press(self, key: str) -> None:
        """Send a key to the panel."""
        panel = self.panel
        if panel is None:
            return
        # A user presses one key at a time. Keys that arrive together were pasted.
        alone = not panel.alone or not self.application.key_processor.input_queue
        step = panel.key(key if alone or key == "c-c" else "<paste>")
        if key == "c-c" and not isinstance(step, Done | Edit) and not self.host.interrupt():
            for asked, answer in self._questions:
                if asked is panel:
                    answer.cancel()
            self._close_panel()
        else:
            self._apply_step(panel, step)

    def show_thinking(self, shown: bool | None = None) -> None:
        """Show the model's reasoning in full from now on, or only the row that it is writing; None changes it."""
        if self.screen is not None:
            self.screen.thinking = not self.screen.thinking if shown is None else shown
            self.tell(f"the reasoning of the model is {'shown' if self.screen.thinking else 'not shown'} from now on")

    def submit(self, *, later: bool = False) -> None:
        """Send the complete input."""
        if self._label:
            self._return(self.editor.text)
        elif not self.editor.text.strip():
            return
        else:
            self.host.submit(self.editor.taken(), later=later)

    def give_up(self) -> bool:
        """Cancel the change of a text for a panel. Return True if there was one."""
        if not self._label:
            return False
        self._return(None)
        return True

    def edit(self, text: str) -> None:
        """Put a text into the input for the user to change and send."""
        self.editor.put(text)
        self.soon()

    def lend_keyboard(self, *, lent: bool) -> None:
        """Reset the terminal's keyboard settings for another program, or set them again afterwards."""
        self._write_code(self._keyboard.off if lent else self._keyboard.on)

    async def write_elsewhere(self) -> None:
        """Let the user write the input in an editor of their own."""
        self.editor.put(self.editor.text)  # with pasted texts in full
        self.lend_keyboard(lent=True)
        self.own_editor.open = True
        try:
            text = await run_in_terminal(lambda: self.own_editor.write(self.editor.text), in_executor=True)
        finally:
            self.own_editor.open = False
            self.lend_keyboard(lent=False)
        if text is not None:
            self.editor.put(text)

    def propose(self) -> None:
        """Update the proposals after typing."""
        if not self._label:
            self.menu.follow(self.editor.buffer.document.text_before_cursor)
            self.soon()

    # drawing

    def _write_code(self, code: str) -> None:
        self._output.write_raw(code)
        self._output.flush()

    def note_stopped(self) -> None:
        """Note that the work that a key stopped has ended. Queued texts may be in the input again: then one more key
        does not leave.
        """
        if self.stopping and not self.host.busy:
            self.stopping, self.quitting = False, self.editor.empty
            self.status.notice = "stopped; press Ctrl+C again to leave" if self.quitting else ""

    def _frame(self) -> None:
        self._due = None
        self.note_stopped()
        self.application.invalidate()
        if self._output.gone is not None and self.application.is_running and not self.application.is_done:
            self.application.exit(exception=EOFError())
        if self.host.busy and self._beating is None and self.application.loop is not None:
            self._beating = self.application.loop.call_later(_BEAT, self._tick)

    def _tick(self) -> None:
        self._beating = None
        self._beat += 1
        self._frame()

    def _compose(self) -> None:
        """Compute the rows before each drawing. From then on, keys go to an open question instead of the input."""
        if self.panel is None and not self._label and self._questions:
            self.panel = self._questions[0][0]
            if not isinstance(self.panel, Picker):  # the user opened a Picker with a key
                self.bell.asked()
            self.menu.close("")
            self.application.layout.focus(self.frame.question)
        self._up += self._done()
        if not self.host.busy:
            self._progress.stop()
        width, rows = self._size()
        asked = self.panel.lines(width, max(rows - _ROWS_BELOW, 1)) if self.panel is not None else []
        below = [*self.menu.lines(width, rows // 3), self.status.line(width, asked=self.panel is not None)]
        self.frame.above, self.frame.asked, self.frame.below = map(self._spelled, (self._top(), asked, below))

    def _spelled(self, rows: list[Fragments]) -> list[Fragments]:
        if self._unicode:
            return rows
        return clip_rows(encode_rows(rows, self._output.encoding()), self._size()[0])

    def _done(self) -> str:
        return self.screen.done() if self.screen is not None else ""

    def _take_finished_rows(self) -> str:
        up, self._up = self._up, ""
        return up

    def _apply_step(self, panel: Panel[Any], step: PanelStep[Any]) -> None:
        match step:
            case Done(value):
                for asked, answer in self._questions:
                    if asked is panel and not answer.done():
                        answer.set_result(value)
                self._close_panel()
            case Edit(text, label):
                self._draft, self._label = self.editor.lend(text), label or "change it"
                self.application.layout.focus(self.frame.input)
        self.application.invalidate()

    def _return(self, text: str | None) -> None:
        """Pass the changed text to the panel that asked for it; None if the user cancelled."""
        panel, draft = self.panel, self._draft
        self._label, self._draft = "", None
        if draft is not None:
            self.editor.restore(draft)
        if panel is not None:
            self.application.layout.focus(self.frame.question)
            self._apply_step(panel, panel.edited(text))

    def _close_panel(self) -> None:
        if self._label and self._draft is not None:
            self.editor.restore(self._draft)
        self._label, self._draft, self.panel = "", None, None
        self.bell.answered()
        self._questions = deque(each for each in self._questions if not each[1].done())
        with contextlib.suppress(ValueError):  # while the application ends, nothing can be focused
            self.application.layout.focus(self.frame.input)
        self.soon()

    def _size(self) -> tuple[int, int]:
        size = self._output.get_size()
        return max(size.columns - 1, 1), size.rows  # not the last column: a narrower window would wrap the row

    def _top(self) -> list[Fragments]:
        width, rows = self._size()
        room = 3 if self.panel is not None else rows // 3
        live = self.screen.live(width, rows) if self.screen is not None else []
        drawn = [fit(row, width) for row in live][-room:] if room else []
        waiting = self.host.waiting
        drawn += [fit([("dim", f"  waits: {one_line(text, 300)}")], width) for text in waiting[:3]]
        if len(waiting) > 3:
            drawn.append([("dim", f"  and {len(waiting) - 3} more")])
        if self.host.busy and self.panel is None:
            mark = _SPINNER[self._beat % len(_SPINNER)] if self._unicode else "*"
            hint = "Esc withdraws waiting texts" if waiting else "Esc stops"
            doing = self._wait.words(time.monotonic()) or self._progress.words(time.monotonic())
            drawn.append(fit([("ansicyan", f"{mark} "), ("dim", f"{doing}; {hint}")], width))
        if self._label:
            drawn.append(fit([("bold", one_line(self._label, 300)), ("dim", "  Enter: done, Escape: cancel")], width))
        return drawn if live or rows <= _SMALL else [[], *drawn]  # live rows begin with an empty row
