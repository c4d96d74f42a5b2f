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
_PIECE = 1 << 16
_SOON = 0.02  # seconds; a user does not press the next key within this time
_SETTLED = 0.25  # the same, where something is wrong already: an end mark is still to come
# An "operating system command" that comes back, and "device attributes" (XTerm Control Sequences; DEC DA1, DA2).
# One that was cut off ends at the next key that is no character.
_ANSWER = re.compile(
    r"\x1b\]([0-9]{1,4};[^\x00-\x1f]{0,256})(?:\x07|\x1b\\|(?=[\x00-\x1a\x1c-\x1f]))|\x1b\[([?>][0-9;]{0,64}c)"
)
# What may be the beginning of one of them, or of a paste: the rest comes with the next piece.
_PART = re.compile(
    r"\x1b(?:\[(?:2(?:0(?:[01])?)?|[?>][0-9;]{0,64})?|\](?:[0-9]{1,4}(?:;[^\x00-\x1f]{0,256}\x1b?)?)?)?\Z"
)
_KEY = 8  # characters that one key sends, at most
_STOP = ("\x03", "\x1b[99;5u")  # Ctrl+C, also by kitty's protocol
_LINE = re.compile(r"[^\x00-\x1f\x7f][\r\n]")


class Intake(Vt100Input):
    """The keys of a terminal.

    `on_answer` takes the replies of the terminal (`11;rgb:...`, `?62c`). `ends`: the keys that end a line, by which
    several lines at once are recognized.
    """

    def __init__(self, stdin: TextIO, on_answer: Callable[[str], None] | None = None, *, ends: str = "\r") -> None:
        super().__init__(stdin)
        self._on_answer = on_answer
        self._heap = re.compile(rf"(?<!\x1b)[{ends}][\t\r\n]*[^\x00-\x1f\x7f]")  # a line's end, and text behind it
        self._held = ""  # the beginning of something
        self._pasted: list[str] | None = None  # since the begin mark
        self._stop = ""  # Ctrl+C, pressed behind a paste

    def read_keys(self) -> list[KeyPress]:
        data = self.stdin_reader.read(_PIECE)
        if self._pasted is None and _LINE.search(data):
            data += self._rest(_SOON)
        return self._keys(data)

    def flush_keys(self) -> list[KeyPress]:
        # The rest of a reply that has begun will come; a user does not type its first two characters and a digit.
        if not self._held.startswith(("\x1b]", "\x1b[?", "\x1b[>")) or len(self._held) < 3:
            held, self._held = self._held, ""
            self.vt100_parser.feed(held)
        return super().flush_keys()

    def ahead(self, typed: str) -> None:
        """Return the input that arrived before the program read it."""
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
        """Handle keys and replies. `whole`: the input that follows belongs to neither."""
        text = _ANSWER.sub(self._answered, text)
        if not whole and (part := _PART.search(text)):
            text, self._held = text[: part.start()], part[0]
        if _END in text or self._heap.search(text):  # an end without a begin: the paste seemed over before it was
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
        """Read until no input arrives for a while; longer after input that does not end like a paste.

        Nothing else happens meanwhile, so the function does not wait for a user who types on or holds a key down, and a
        single Ctrl+C stays a key.
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
