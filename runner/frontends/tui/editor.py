"""The input: lines of text in which a placeholder represents a long paste until the text is sent."""

import re
from collections.abc import Callable, Mapping

from prompt_toolkit.buffer import Buffer
from prompt_toolkit.document import Document
from prompt_toolkit.history import History

from policy.model.frozen import dataclass
from runner.frontends.tui.history import LONGEST
from runner.text.phrases import many

_LINES, _CHARACTERS = 8, 2000  # a longer paste is represented by a placeholder
_PLACE = re.compile(r"\[pasted [^\]\n]{1,40} #([0-9]{1,6})\]")


@dataclass(frozen=True, slots=True)
class Draft:
    """An unfinished text, to be restored later. `pastes` are the pasted texts by the numbers of the placeholders."""

    text: str
    cursor: int
    pastes: Mapping[int, str]


class Editor:
    """The editor of the input: one buffer, and the pasted texts behind its placeholders."""

    def __init__(self, history: History, changed: Callable[[], None]) -> None:
        self._changed = changed
        self.buffer = Buffer(multiline=True, history=history, on_text_changed=lambda _: changed())
        self.buffer.on_cursor_position_changed += lambda _: changed()
        self._pastes: dict[int, str] = {}
        self._count = 0  # never reset: a number in a recalled text must not mean another paste

    @property
    def text(self) -> str:
        """Return the text that would be sent, with every pasted text in full."""
        return _PLACE.sub(lambda match: self._pastes.get(int(match[1]), match[0]), self.buffer.text)

    @property
    def empty(self) -> bool:
        return not self.buffer.text

    def paste(self, text: str) -> None:
        """Insert a pasted text. No part of it is a key."""
        text = text.replace("\r\n", "\n").replace("\r", "\n")
        lines = text.count("\n") + (not text.endswith("\n"))
        if lines <= _LINES and len(text) <= _CHARACTERS:
            self.buffer.insert_text(text)
            return
        self._count += 1
        self._pastes[self._count] = text
        size = many(lines, "line") if lines > 1 else many(len(text), "character")
        self.buffer.insert_text(f"[pasted {size} #{self._count}]")

    def rub_out(self) -> None:
        """Delete the character or the whole placeholder before the cursor."""
        before = self.buffer.document.text_before_cursor
        for placeholder in _PLACE.finditer(before):
            if placeholder.end() == len(before):
                self.buffer.delete_before_cursor(len(placeholder[0]))
                return
        self.buffer.delete_before_cursor()

    def put(self, text: str) -> None:
        """Replace the whole text, and set the cursor to its end."""
        self.buffer.set_document(Document(text, len(text)), bypass_readonly=True)

    def add(self, text: str) -> None:
        """Insert `text` before the current text, as separate lines."""
        self.put(f"{text}\n{self.buffer.text}" if self.buffer.text else text)

    def taken(self) -> str:
        """Return the whole input, add the input to the history, and clear the buffer.

        The history gets an input longer than LONGEST characters with its placeholders.
        """
        text = self.text
        if len(text) <= LONGEST:
            self.put(text)
        self.buffer.append_to_history()
        self.clear()
        return text

    def clear(self) -> None:
        self.buffer.reset()
        self._pastes.clear()
        self._changed()  # a reset buffer does not call it

    def recall(self) -> None:
        """Make the buffer use a history that was loaded after its creation."""
        draft = self.draft()
        self.buffer.reset()
        self.restore(draft)

    def draft(self) -> Draft:
        return Draft(self.buffer.text, self.buffer.cursor_position, dict(self._pastes))

    def lend(self, text: str) -> Draft:
        """Let the user change `text`, which may be untrusted. Return the draft, for `restore`.

        THREAT: a command that contains a placeholder would get the text of a paste that was meant for a prompt.
        """
        draft = self.draft()
        self._pastes.clear()
        self.put(text)
        return draft

    def restore(self, draft: Draft) -> None:
        self._pastes = dict(draft.pastes)
        self.buffer.set_document(Document(draft.text, draft.cursor), bypass_readonly=True)
