"""A terminal with a command in it, checked by the contents of the screen, as a person sees it.

The emulator is pyte, with what it lacks: rows that have left the screen, rows that the terminal has wrapped, the
alternate screen, the clipboard, and the replies of xterm to queries. Like xterm, it cuts rows that no longer fit the
window. `tests.support.tmux` has the same interface and wraps them again, like most terminals.
"""

import base64
import codecs
import contextlib
import copy
import os
import re
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pyte
from pyte.screens import Margins
from wcwidth import wcwidth

from runner.frontends.tui.panel import CAREFUL, GUARD
from tests.support.terminal import PseudoTerminal, Value

_LINES = 20_000  # rows that have left the screen and are kept, as many as a user would scroll
_AUTOWRAP, _CURSOR_KEYS, _PASTES, _FRAME = (mode << 5 for mode in (7, 1, 2004, 2026))  # as pyte counts private modes
_ALTERNATE = {47, 1047, 1049}
# Sequences that pyte shows as text or takes for others: strings (OSC, DCS and the like), CSI with a prefix or an
# intermediate character, and the beginning of one whose end has not arrived.
_SEQUENCE = re.compile(
    r"\x1b\](?P<osc>[^\x07\x1b]*)(?:\x07|\x1b\\)"
    r"|\x1b[PX^_k][^\x1b]*\x1b\\"
    r"|\x1b\[(?P<other>[<=>][0-9;]*[@-~]|\?[0-9;]*[a-gi-km-z@-Z]|[0-9;?]*[ -/]+[@-~])"
    r"|(?P<part>\x1b(?:[\]PX^_k](?:[^\x07\x1b]*\x1b?)|\[[0-?]*[ -/]*)?\Z)"
)
_REPLIES = {">c": "\x1b[>41;379;0c", ">0c": "\x1b[>41;379;0c"}  # DA2: xterm, whose way to resize this terminal has
_COLOURS = {"10": "ffff/ffff/ffff", "11": "0000/0000/0000"}
_IGNORED = "this key was ignored"
_LETTERS = {"Up": "A", "Down": "B", "Right": "C", "Left": "D", "Home": "H", "End": "F"}
_KEYS = {
    "Enter": "\r", "Escape": "\x1b", "Tab": "\t", "BTab": "\x1b[Z", "BSpace": "\x7f", "Space": " ", "DC": "\x1b[3~",
    "NPage": "\x1b[6~", "PPage": "\x1b[5~",
}  # fmt: skip


class Screen(ABC):
    """A terminal in which a person looks at the screen and presses keys; `LEFT N` comes when the command has ended."""

    # looks

    @abstractmethod
    def look(self, *, joined: bool = False, history: bool = True) -> str:
        """Return the text of the screen; with `history` also what has left it, and `joined` without breaks in rows that
        the terminal wrapped.
        """

    @abstractmethod
    def wait_for(self, condition: Callable[[], Value], what: str | Callable[[], object] = "the event") -> Value:
        """Wait until a condition about the screen holds, and return its first true value."""

    def until(self, text: str) -> str:
        """Return the screen with what has left it, once it shows `text`."""
        return self._once(self.look, lambda shown: text in shown, repr(text))

    def until_whole(self, holds: Callable[[str], bool]) -> str:
        """Return `whole`, once it is as wanted."""
        return self._once(self.whole, holds, "the wanted screen")

    def until_screen(self, holds: Callable[[str], bool]) -> str:
        """Return `screen`, once it is as wanted."""
        return self._once(self.screen, holds, "the wanted screen")

    def gone(self, text: str) -> str:
        """Return the screen with what has left it, once the screen does not show `text` any more."""
        self._once(self.screen, lambda shown: text not in shown, f"the end of {text!r}")
        return self.look()

    def screen(self) -> str:
        """Return the text on the screen."""
        return self.look(history=False)

    def whole(self) -> str:
        """Return the screen with what has left it, rows that were wrapped joined again."""
        return self.look(joined=True)

    def asked(self, number: int) -> tuple[str, str]:
        """Return the screen, and that with all that has left it, once the question after `number` answers waits."""

        def waits(whole: str) -> bool:
            return whole.rstrip().endswith("say what to do instead:") and whole.count("you declined") >= number

        whole = self.until_whole(waits)
        return self.look(joined=True, history=False), whole

    @abstractmethod
    def driven(self) -> list[str]:
        """Return the changes that the output made to the terminal itself: its title, its clipboard."""

    def _once(self, look: Callable[[], str], holds: Callable[[str], bool], what: str) -> str:
        shown = ""

        def looked() -> bool:
            nonlocal shown
            shown = look()
            return holds(shown)

        self.wait_for(looked, what)
        return shown

    # keys

    @abstractmethod
    def type(self, *keys: str) -> None:
        """Press keys by their names in tmux (`Enter`, `C-c`, `M-t`); any other word is typed letter by letter."""

    @abstractmethod
    def paste(self, text: str) -> None:
        """Paste text as a terminal does, bracketed if the program requested it."""

    def rest(self, seconds: float) -> None:
        """Press no key for a time that the program itself measures from what the screen shows now."""
        self.within(seconds, lambda: False)

    @abstractmethod
    def within(self, seconds: float, condition: Callable[[], bool]) -> bool:
        """Return True as soon as a condition about the screen holds, and False if it did not hold for some seconds."""

    def press(self, key: str, text: str) -> str:
        """Press a key at a card, and return the screen with what has left it, once it shows `text`.

        A card takes a key after a while without one. If a key came too early, a card says so, and the key is pressed
        again after the longer of both times.
        """
        self.await_card()
        if _IGNORED not in self.screen():
            self.rest(GUARD)
            self.type(key)
            whole = self.until_whole(lambda whole: text in whole or _IGNORED in whole)
            if text in whole:
                return self.look()
        self.rest(CAREFUL)
        self.type(key)
        self.until_whole(lambda whole: text in whole)
        return self.look()

    def offer(self, text: str) -> None:
        """Type a text at the question of an attached terminal until it stands there.

        The question takes keys after half a second without one, and shows nothing of those that came too early. Ctrl+U
        empties the line, so that typing again makes no other answer.
        """
        self.insist("C-u", text, holds=lambda screen: screen.rstrip().endswith(text))

    def insist(self, *keys: str, holds: Callable[[str], bool]) -> None:
        """Press keys again and again, with pauses in which a question begins to take them, until the screen is as wanted."""
        self.type(*keys)
        while not self.within(2 * GUARD, lambda: holds(self.screen())):
            self.type(*keys)

    def await_card(self) -> None:
        """Wait until a question has taken the place of the input line, so that keys go to the question."""
        self.until_screen(lambda screen: bool(screen.strip()) and not _has_input_line(screen))

    def leave(self) -> None:
        """End a conversation as a person does, at its prompt: while a turn runs, the key would be nobody's."""
        self.until_screen(lambda screen: screen.rstrip().rpartition("\n")[2] == ">")
        self.type("C-d")
        self.until("LEFT 0")

    @abstractmethod
    def resize(self, columns: int, rows: int) -> None:
        """Change the size of the window; the program can know it when this returns."""

    @abstractmethod
    def close(self) -> None:
        """Take the terminal away."""


class ScreenTerminal(PseudoTerminal, Screen):
    """A screen of pyte.

    Attributes:
        clipboard: the texts that the program has sent to the clipboard (OSC 52), the newest last.
    """

    def __init__(
        self,
        work: Path,
        environ: Mapping[str, str],
        *command: str,
        size: tuple[int, int] = (110, 50),
        execve: bool = False,
    ) -> None:
        self.clipboard: list[str] = []
        self._emulator = _Emulator(*size, reply=self._reply)
        self._stream = pyte.Stream(self._emulator)
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._rest = ""  # the beginning of a sequence
        super().__init__(command, work, {"TERM": "xterm-256color", **environ}, size=size, execve=execve)

    def look(self, *, joined: bool = False, history: bool = True) -> str:
        """Return the text of the screen, not in the middle of a frame (synchronized output)."""
        self._drain()
        while _FRAME in self._emulator.mode and self.code is None:
            self._receive(None)
        return self._emulator.text(joined=joined, history=history)

    def driven(self) -> list[str]:
        title = self._emulator.title
        changed = [f"the title is {title!r}"] * ("owned" in title)
        return changed + [f"the clipboard holds {self.clipboard!r}"] * bool(self.clipboard)

    def type(self, *keys: str) -> None:
        self.send("".join(self._code(key) for key in keys))

    def paste(self, text: str) -> None:
        self._drain()
        self.send(f"\x1b[200~{text}\x1b[201~" if _PASTES in self._emulator.mode else text)

    def within(self, seconds: float, condition: Callable[[], bool]) -> bool:
        end = time.monotonic() + seconds
        while not (holds := condition()) and (left := end - time.monotonic()) > 0 and self.code is None:
            self._receive(left)
        return holds

    def styles(self) -> set[tuple[object, ...]]:
        """Return the colours and styles of the characters on the screen."""
        self._drain()
        return {cell[1:] for row in self._emulator.buffer.values() for cell in row.values()}

    def clear(self) -> None:
        """Empty the screen and forget what has left it."""
        self._drain()
        self._emulator.forget()

    def resize(self, columns: int, rows: int) -> None:
        self._drain()
        self.set_size(columns, rows)
        self._emulator.resize(rows, columns)

    def shown(self) -> str:
        return self._emulator.text(joined=False, history=True)

    def _reply(self, text: str) -> None:
        with contextlib.suppress(OSError):  # the program may have ended
            os.write(self._master, text.encode())

    def _receive(self, seconds: float | None) -> None:
        running = self.code is None
        super()._receive(seconds)
        if running and self.code is not None:
            self._stream.feed(f"LEFT {self.code}\r\n")

    def _take(self, output: bytes) -> None:
        text, self._rest = self._rest + self._decoder.decode(output), ""
        at = 0
        for sequence in _SEQUENCE.finditer(text):
            self._stream.feed(text[at : sequence.start()])
            at = sequence.end()
            if sequence["part"]:
                self._rest = sequence["part"]
            elif sequence["osc"] is not None:
                self._control(sequence["osc"])
            elif sequence["other"] in _REPLIES:
                self._reply(_REPLIES[sequence["other"]])
        self._stream.feed(text[at:])

    def _control(self, osc: str) -> None:
        """Handle an operating system command: a title, a text for the clipboard, a query for a colour."""
        number, _, value = osc.partition(";")
        if number in ("0", "2"):
            self._emulator.set_title(value)
        elif number == "52":
            self.clipboard.append(base64.b64decode(value.partition(";")[2]).decode("utf-8", "replace"))
        elif number in _COLOURS and value == "?":
            self._reply(f"\x1b]{number};rgb:{_COLOURS[number]}\x1b\\")

    def _code(self, key: str) -> str:
        """Return what a keyboard sends for a key."""
        if key.startswith("M-") and len(key) > 2:
            return "\x1b" + self._code(key[2:])
        if key.startswith("C-") and len(key) == 3:
            return chr(ord(key[2]) & 0x1F)
        if key in _LETTERS:
            return ("\x1bO" if _CURSOR_KEYS in self._emulator.mode else "\x1b[") + _LETTERS[key]
        return _KEYS.get(key, key)


def _has_input_line(screen: str) -> bool:
    """Return True if the rows at the end are that of a prompt and the status line."""
    rows = screen.rstrip().split("\n")[-2:]
    return len(rows) == 2 and rows[0].startswith(">") and "sandbox" in rows[1]


class _Emulator(pyte.Screen):
    """The screen of pyte with rows that left it, wrapped rows, and an alternate screen."""

    _drawing = False  # whether a line feed comes from the terminal, at the end of a row

    def __init__(self, columns: int, lines: int, *, reply: Callable[[str], None]) -> None:
        self._gone: deque[tuple[str, bool]] = deque(maxlen=_LINES)  # text, and whether the next row continues it
        self._primary: tuple[Any, Any] | None = None  # the rows and the cursor, while the alternate screen is shown
        self._reply = reply
        super().__init__(columns, lines)

    def text(self, *, joined: bool, history: bool) -> str:
        """Return the rows as lines; `joined` without breaks in rows that were wrapped."""
        rows = [*(self._gone if history else ()), *map(self._row, range(self.lines))]
        if not joined:
            return "".join(f"{text.rstrip()}\n" for text, _ in rows)
        return "".join(text if wrapped else f"{text.rstrip()}\n" for text, wrapped in rows)

    def _row(self, at: int) -> tuple[str, bool]:
        row = self.buffer[at]
        wrapped = getattr(row, "wrapped", False)
        # The last column of a wrapped row is empty if a wide character did not fit into it.
        columns = self.columns - (wrapped and self.columns - 1 not in row)
        return "".join(row[column].data for column in range(columns)), wrapped

    def draw(self, data: str) -> None:
        for piece in re.findall(r"[\x20-\x7e]+|.", data, re.DOTALL):
            wide = len(piece) == 1 and wcwidth(piece) == 2
            if wide and self.cursor.x == self.columns - 1 and _AUTOWRAP in self.mode:
                self.cursor.x = self.columns  # a wide character does not fit into the last column
            self._drawing = True
            super().draw(piece)
            self._drawing = False

    def linefeed(self) -> None:
        if self._drawing:
            self.buffer[self.cursor.y].wrapped = True  # type: ignore[attr-defined]  # an attribute of ours
        super().linefeed()

    def index(self) -> None:
        margins = self.margins or Margins(0, self.lines - 1)
        if self.cursor.y == margins.bottom and margins.top == 0 and self._primary is None:
            self._gone.append(self._row(0))
        super().index()

    def erase_in_line(self, how: int = 0, private: bool = False) -> None:
        super().erase_in_line(how, private)
        if how != 1:
            self.buffer[self.cursor.y].wrapped = False  # type: ignore[attr-defined]

    def erase_in_display(self, how: int = 0, *args: Any, **more: Any) -> None:
        if how == 3:
            self._gone.clear()
            return
        super().erase_in_display(how, *args, **more)
        for at in range(self.cursor.y if how == 0 else 0, self.cursor.y if how == 1 else self.lines):
            self.buffer[at].wrapped = False  # type: ignore[attr-defined]

    def resize(self, lines: int | None = None, columns: int | None = None) -> None:
        rows, width = lines or self.lines, columns or self.columns
        for _ in range(max(self.cursor.y - rows + 1, 0)):  # the rows above the cursor leave at the top
            self._gone.append(self._row(0))
            for at in range(self.lines - 1):
                self.buffer[at] = self.buffer[at + 1]
            self.buffer.pop(self.lines - 1, None)
            self.cursor.y -= 1
        for at in list(self.buffer):
            if at >= rows:
                del self.buffer[at]
        for row in self.buffer.values():
            for column in [column for column in row if column >= width]:
                del row[column]
        self.lines, self.columns = rows, width
        self.cursor.x = min(self.cursor.x, width - 1)
        self.margins = None

    def set_mode(self, *modes: int, **kind: Any) -> None:
        super().set_mode(*modes, **kind)
        if kind.get("private") and _ALTERNATE & set(modes) and self._primary is None:
            self._primary = (dict(self.buffer), copy.copy(self.cursor))
            self.buffer.clear()

    def reset_mode(self, *modes: int, **kind: Any) -> None:
        super().reset_mode(*modes, **kind)
        if kind.get("private") and _ALTERNATE & set(modes) and self._primary is not None:
            rows, self.cursor = self._primary
            self.buffer.clear()
            self.buffer.update(rows)
            self._primary = None

    def reset(self) -> None:
        super().reset()
        self._primary = None

    def forget(self) -> None:
        self.reset()
        self._gone.clear()

    def write_process_input(self, data: str) -> None:
        self._reply(data)
