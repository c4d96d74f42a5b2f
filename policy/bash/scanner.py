"""The scanner: the position in the text, and steps over blanks, comments, newlines, nesting and here-documents."""

import re

from policy.model.abstract_word import SourceSpan
from policy.model.frozen import dataclass

DEEPEST = 8  # compound commands and substitutions together
MOST_WORDS = 10_000  # words, commands and lines; bashlex needs about 25 us for each, so this bounds a decision
COST_OF_NESTING = 4  # words that one level of nesting counts as

# The escapes of `$'..'` that mean one thing everywhere; those that depend on the locale or on the version of bash are
# refused.
# fmt: off
_SINGLE = {
    "a": "\a", "b": "\b", "e": "\x1b", "E": "\x1b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v",
    "\\": "\\", "'": "'", '"': '"', "?": "?",
}
# fmt: on

_ESCAPE = re.compile(
    r"\\(?:(?P<single>[abeEfnrtv\\'\"?])|(?P<octal>[0-7]{1,3})|c(?P<control>[A-Za-z])"
    r"|x(?P<hex>[0-9A-Fa-f]{1,2})|u(?P<short>[0-9A-Fa-f]{1,4})|U(?P<long>[0-9A-Fa-f]{1,8})"
    r"|(?P<kept>[ !#$%&()*+,./:;<=>@\[\]^_`{|}~-]))"
)
_ONLY_NUL = re.compile(r"\$'\\(?:0{1,3}|x0{1,2})'")
_OPERATOR_SIGNS = frozenset("|&;(<>")
_BLANK_STARTS = " \t\\#"  # first characters of the text that `blanks` steps over


class RefusalError(Exception):
    """The exception that ends parsing at once. Only the public functions of `parser.py` catch it."""

    def __init__(self, reason: str, span: SourceSpan) -> None:
        super().__init__(reason)
        self.reason = reason
        self.span = span


@dataclass(frozen=True, slots=True)
class ReadBodies:
    """Here-document bodies that were already read: after the newline at `line_end`, the text continues at `resume`."""

    line_end: int
    resume: int
    level: int


class Cursor:
    """A position in `text[:end]`.

    INVARIANT: every newline that separates commands is consumed by `newline`, so a here-document body is never read as
    commands, and text before it is never read as the body: any other step over `line_end` is refused.
    """

    def __init__(self, text: str) -> None:
        self.text, self.pos, self.end = text, 0, len(text)
        self.depth = 0
        self.level = 0  # number of substitutions around the cursor
        self.open_assignments = 0  # number of `${x:=..}` outside of `:`
        self.backquoted = False  # inside backquotes, where bash removes backslashes before it reads the commands
        self.in_array = False  # inside `name=(..)`
        self.unescaped = 0  # number of these backslashes that were removed
        self.case_depth = 0  # number of `case` commands around the cursor
        self.count = 0
        self.read_bodies: ReadBodies | None = None

    def refusal(self, reason: str, start: int | None = None, end: int | None = None) -> RefusalError:
        """Return the exception to raise. `reason` is text for the user, about `start:end` (by default one character at
        the cursor).
        """
        first = min(self.pos if start is None else start, len(self.text))
        last = min(first + 1 if end is None else end, len(self.text))
        return RefusalError(reason, SourceSpan(first, max(first, last)))

    def char(self) -> str:
        """Return the next character, or an empty string at the end."""
        return self.text[self.pos] if self.pos < self.end else ""

    def ahead(self, text: str) -> bool:
        return self.text.startswith(text, self.pos, self.end)

    def step_over(self, found: re.Match[str]) -> SourceSpan:
        """Step over a match at the cursor, and return its range."""
        self.pos = found.end()
        return SourceSpan(*found.span())

    def blanks(self) -> None:
        """Step over blanks, line continuations that follow a blank, and a comment. Only at the start of a token."""
        text, end = self.text, self.end
        if self.pos < end and text[self.pos] not in _BLANK_STARTS:
            return
        while True:
            while self.pos < end and text[self.pos] in " \t":
                self.pos += 1
            if not text.startswith("\\\n", self.pos, end):
                break
            # Right after an operator or a word bash joins the next line to it (`|\` + newline + `|` is `||`).
            if self.pos and text[self.pos - 1] not in " \t\n" and not self._ends_before_continuation():
                raise self.refusal("a line continuation inside a word or an operator", self.pos, self.pos + 2)
            self.pos += 2
            self.unescaped += 1
        if text.startswith("#", self.pos, end):
            newline = text.find("\n", self.pos, self.end)
            self.pos = newline if newline >= 0 else self.end

    def after_continuations(self) -> str:
        """Return the character after the line continuations at the cursor, or an empty string at the end."""
        at = self.pos
        while self.text.startswith("\\\n", at, self.end):
            at += 2
        return self.text[at : min(at + 1, self.end)]

    def _ends_before_continuation(self) -> bool:
        """Return True if the token before the line continuations at the cursor is not joined with the next line."""
        following = self.after_continuations()
        if following in (" ", "\t"):
            return True
        word = following.isascii() and (following.isalnum() or following in ("_", ".", "/", '"', "'", "$"))
        return bool(following) and word and self.text[self.pos - 1] in _OPERATOR_SIGNS

    def newline(self) -> None:
        """Step over one newline that ends a line of commands, and over the here-documents that follow it."""
        read_bodies = self.read_bodies
        self.count_words()
        if read_bodies is None:
            self.pos += 1
        elif read_bodies.line_end == self.pos and read_bodies.level == self.level:
            self.pos = read_bodies.resume
            self.read_bodies = None
        else:
            raise self.refusal("a line that starts a here-document is continued inside a word")

    def linebreak(self) -> bool:
        """Step over blanks, comments and newlines. Return True if there was a newline."""
        seen = False
        while True:
            self.blanks()
            if self.char() != "\n":
                return seen
            self.newline()
            seen = True

    def enter(self, start: int) -> None:
        """Enter a compound command or a substitution."""
        self.depth += 1
        self.count_words(COST_OF_NESTING)
        if self.depth > DEEPEST:
            raise self.refusal(f"nested more than {DEEPEST} deep", start)

    def leave(self) -> None:
        self.depth -= 1

    def count_words(self, weight: int = 1) -> None:
        self.count += weight
        if self.count > MOST_WORDS:
            raise self.refusal(f"more than {MOST_WORDS} words, commands and lines")


def ansi_c_quoted(reader: Cursor) -> str:
    """Step over the `$'..'` at the cursor, and return its text. Raises RefusalError if the text is not certain."""
    text, start = reader.text, reader.pos
    if found := _ONLY_NUL.match(text, start, reader.end):
        reader.pos = found.end()
        return ""  # NUL ends the text
    reader.pos += 2
    pieces: list[str] = []
    while (char := reader.char()) != "'":
        at = reader.pos
        if not char:
            raise reader.refusal("a single quote that is never closed", start)
        if char != "\\":
            pieces.append(char)
            reader.pos += 1
            continue
        found = _ESCAPE.match(text, at, reader.end)
        decoded = _decoded(found) if found else None
        if found is None or decoded is None or text.startswith("{", found.end(), reader.end):
            raise reader.refusal("an escape in `$'..'` that is not the same everywhere", at, at + 2)
        pieces.append(decoded)
        reader.pos = found.end()
    reader.pos += 1
    return "".join(pieces)


def _decoded(found: re.Match[str]) -> str | None:
    """Return the character that an escape represents, or None if that depends on the locale or the version of bash."""
    kind, digits = found.lastgroup, found[found.lastgroup or 0]
    if kind == "single":
        return _SINGLE[digits]
    if kind == "kept":
        return f"\\{digits}"
    code = ord(digits.upper()) & 0x1F if kind == "control" else int(digits, 8 if kind == "octal" else 16)
    # NUL ends the word, bash marks words with 1 and 127 internally, and beyond ASCII the locale determines the
    # character.
    return chr(code) if 1 < code < 127 else None
