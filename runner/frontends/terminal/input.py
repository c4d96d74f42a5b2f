"""The input of a terminal, separated into keys, pastes, and the terminal's own replies.

THREAT T112: pasted text is never a key. A terminal marks both ends of a paste (bracketed paste, XTerm Control
Sequences). A terminal that lets an end mark inside the pasted text through (tmux does) makes the rest look typed, and a
terminal without marks makes all of it look typed. A user presses Enter alone, so input directly behind the end of a
paste belongs to the paste, and several lines that arrive at once are a paste.
"""

import re
import select
from collections.abc import Callable
from typing import TextIO

from prompt_toolkit.input.typeahead import store_typeahead
from prompt_toolkit.input.vt100 import Vt100Input
from prompt_toolkit.key_binding.key_processor import KeyPress
from prompt_toolkit.keys import Keys

_BEGIN, _END = "\x1b[200~", "\x1b[201~"
_PIECE = 1 << 16  # characters of one read
_SOON = 0.02  # seconds; a user does not press the next key within this time
_SETTLED = 0.25  # seconds to wait if a paste looks incomplete: its end mark is still to come
# The replies "operating system command" and "device attributes" (XTerm Control Sequences; DEC DA1, DA2).
# An incomplete reply ends at the next control character.
_ANSWER = re.compile(
    r"\x1b\]([0-9]{1,4};[^\x00-\x1f]{0,256})(?:\x07|\x1b\\|(?=[\x00-\x1a\x1c-\x1f]))|\x1b\[([?>][0-9;]{0,64}c)"
)
# A possible beginning of such a reply, or of the mark of a paste: the rest comes with the next piece.
_PART = re.compile(
    r"\x1b(?:\[(?:2(?:0(?:[01])?)?|[?>][0-9;]{0,64})?|\](?:[0-9]{1,4}(?:;[^\x00-\x1f]{0,256}\x1b?)?)?)?\Z"
)
_KEY = 8  # characters that one key sends, at most
_STOP = ("\x03", "\x1b[99;5u")  # Ctrl+C, also by kitty's protocol
_LINE = re.compile(r"[^\x00-\x1f\x7f][\r\n]")


class Intake(Vt100Input):
    """The input of a terminal as keys and pastes.

    `on_answer` gets the replies of the terminal (`11;rgb:...`, `?62c`). `ends` are the characters that end a line;
    several lines that arrive at once are a paste.
    """

    def __init__(self, stdin: TextIO, on_answer: Callable[[str], None] | None = None, *, ends: str = "\r") -> None:
        super().__init__(stdin)
        self._on_answer = on_answer
        self._heap = re.compile(rf"(?<!\x1b)[{ends}][\t\r\n]*[^\x00-\x1f\x7f]")  # the end of a line, then text
        self._held = ""  # the beginning of a possible reply or mark
        self._pasted: list[str] | None = None  # the pieces since the begin mark
        self._stop = ""  # Ctrl+C that was pressed after a paste

    def read_keys(self) -> list[KeyPress]:
        data = self.stdin_reader.read(_PIECE)
        if self._pasted is None and _LINE.search(data):
            data += self._rest(_SOON)
        return self._keys(data)

    def flush_keys(self) -> list[KeyPress]:
        # Keep the beginning of a reply: its rest will come, and a user does not type such a sequence.
        if not self._held.startswith(("\x1b]", "\x1b[?", "\x1b[>")) or len(self._held) < 3:
            held, self._held = self._held, ""
            self.vt100_parser.feed(held)
        return super().flush_keys()

    def ahead(self, typed: str) -> None:
        """Store `typed`, input that arrived before the program read it, as keys for the next prompt."""
        store_typeahead(self, self._keys(typed) + self.flush_keys())

    def _keys(self, data: str) -> list[KeyPress]:
        data, self._held = self._held + data, ""
        if self._pasted is None:
            typed, begun, data = data.partition(_BEGIN)
            self._typed(typed, whole=bool(begun))
            if not begun:
                return self._taken()
            self._pasted = []
        self._paste(data)
        return self._taken()

    def _taken(self) -> list[KeyPress]:
        stop, self._stop = self._stop, ""
        self.vt100_parser.feed(stop)
        keys, self._buffer = self._buffer, []
        return keys

    def _typed(self, text: str, *, whole: bool) -> None:
        """Handle keys and replies. `whole` is True if `text` is complete, because a paste follows."""
        text = _ANSWER.sub(self._answered, text)
        if not whole and (part := _PART.search(text)):
            text, self._held = text[: part.start()], part[0]
        if _END in text or self._heap.search(text):  # an end mark alone: this text is the rest of a paste
            self._buffer.append(KeyPress(Keys.BracketedPaste, _unmarked(text + self._rest(_SETTLED))))
        else:
            self.vt100_parser.feed(text)
        if whole:
            self.vt100_parser.flush()

    def _paste(self, data: str) -> None:
        """Add a piece of a paste."""
        assert self._pasted is not None  # there is a begin mark
        split = self._pasted[-1][-len(_END) + 1 :] if self._pasted else ""  # the mark may come in two pieces
        self._pasted.append(data)
        if _END not in split + data:
            return
        ended = (split + data).endswith(_END)
        self._pasted.append(self._rest(_SOON if ended else _SETTLED))
        text, self._pasted = "".join(self._pasted), None
        text = _ANSWER.sub(self._answered, text)
        self._buffer.append(KeyPress(Keys.BracketedPaste, _unmarked(text)))

    def _rest(self, seconds: float) -> str:
        """Read and return input until none arrives for `seconds`; the wait is adapted after each piece.

        The program does nothing else meanwhile. So the wait is short after single keys, and Ctrl+C ends it and stays a
        key.
        """
        pieces: list[str] = []
        while not self.closed and select.select([self.fileno()], [], [], seconds)[0]:
            piece = self.stdin_reader.read(_PIECE)
            if piece in _STOP:
                self._stop = piece
                break
            pieces.append(piece)
            seconds = _SOON if piece.endswith(_END) or len(piece) <= _KEY else _SETTLED
        return "".join(pieces)

    def _answered(self, match: "re.Match[str]") -> str:
        if self._on_answer is not None:
            self._on_answer(match[1] or match[2])
        return ""


def _unmarked(text: str) -> str:
    return text.replace(_BEGIN, "").replace(_END, "")
