"""The parser of words at every position: decodes every quoting of bash, and finds every command inside a word."""

import re
from abc import ABC, abstractmethod
from enum import Enum, auto

from policy.bash.ast import Arithmetic, Expression, Glob, Parameter, Part, Script, Substitution, Text, Tilde, Word
from policy.bash.braces import BRACED, LIKE_ASSIGNMENT, LITERAL_BRACES, expand, spread
from policy.bash.objections import splits_somewhere
from policy.bash.scanner import Cursor, ansi_c_quoted
from policy.model.abstract_word import SourceSpan
from policy.model.frozen import replace


class Position(Enum):
    """The position of a word, which determines the expansions that bash performs on it."""

    ARGUMENT = auto()  # also `for` lists and redirection targets: globs are expanded
    ASSIGNED = auto()  # after `name=`: no globs, no splitting
    STRING = auto()  # after `<<<`: no globs, no splitting
    TEST = auto()  # in `[[ ]]`, and the word and the patterns of `case`: no globs, no splitting


_END = r"(?=[ \t\n;|&)]|\Z)"
_PLAIN = re.compile(rf"[A-Za-z0-9_./:,=@%+-]+{_END}")
_RUN = re.compile(r"[A-Za-z0-9_./:,=@%+^\]}!#-]+")
_BEYOND_ASCII = re.compile(r"[^\x00-\x7f]+")
_DOUBLE_RUN = re.compile(r'[^"\\$`]+')
_BODY_RUN = re.compile(r"[^\\$`]+")
_NAMED = re.compile(r"\$([A-Za-z_][A-Za-z0-9_]*|[0-9@*#?$!-])")
_BRACED = re.compile(r"\$\{(#?)([A-Za-z_][A-Za-z0-9_]*|0|[1-9][0-9]{0,2}|[@*#?$!-])\}")
_ELEMENT = re.compile(r"\$\{(#?)([A-Za-z_][A-Za-z0-9_]*)\[([@*]|0|-?[1-9][0-9]{0,4})\]\}")
STARS = re.compile(r"[*?]+")
_AROUND_STARS = re.compile(r"([*?]+)")
BRACKET = re.compile(r"\[[!^]?(?:[A-Za-z0-9_.,@%+-]|\[:[a-z]+:\])+\]")
_OPEN_BRACKET = re.compile(rf"\[[A-Za-z0-9_./:,=@%+}}#-]*{_END}")
_TILDE = {
    at: re.compile(rf"~((?:[A-Za-z_][A-Za-z0-9_.-]*)?)(?=[/ \t\n;|&)<>{':' if at is Position.ASSIGNED else ''}]|\Z)")
    for at in Position
}
_PLAIN_BEFORE_TILDE = re.compile(r"[A-Za-z0-9_./:,=@%+-]+")
_BEFORE_PLAIN_TILDE = re.compile(r"[A-Za-z0-9/._^@+-]")

# A `$` before one of these, or before the closing double quote, is only a dollar sign.
_AFTER_PLAIN_DOLLAR = frozenset(" \t\n/.,:;%^+=]}|&)<>\\")
_AFTER_QUOTED_DOLLAR = _AFTER_PLAIN_DOLLAR | {"'", "~"}
# Around a line continuation that joins two lines to one word, so that neither side changes the meaning of the other.
_BEFORE_CONTINUED = frozenset("_./:,@%+=\"'-")
_AFTER_CONTINUED = _BEFORE_CONTINUED - {"="}
_ENDS_WORD = frozenset(" \t\n;|&)")

# The alternatives begin with different characters and the sets are possessive, so that the time is linear.
_BACKQUOTED = re.compile(r"`((?:[^`\\]++|\\.)*)`", re.DOTALL)
_ESCAPED = re.compile(r"\\.", re.DOTALL)
_DECODED_ESCAPES = frozenset(("\\$", "\\\\", "\\`"))
_REMOVED_ESCAPES = _DECODED_ESCAPES | {"\\\n"}


class Words(Cursor, ABC):
    """The parser of words. A subclass parses the commands inside substitutions."""

    @abstractmethod
    def commands(self, close: str) -> Script:
        """Return the list of commands up to `close`, or to the end if `close` is empty."""

    @abstractmethod
    def arithmetic(self, *, changes: bool) -> Expression:
        """Return the arithmetic expression at the cursor. `changes`: the expression may assign to variables."""

    @abstractmethod
    def expansion(self, start: int, *, quoted: bool, body: bool) -> Part:
        """Return the `${name OPERATOR word}` at the cursor, as a part that begins at `start`. `body`: in a
        here-document.
        """

    def arguments(self, *, name: bool = False) -> tuple[Word, ...]:
        """Return the one or several words that brace expansion makes of the word at the cursor.

        `name`: the word is the first of a command.
        """
        if found := _PLAIN.match(self.text, self.pos, self.end):
            self.count_words()
            return (self.literal_word(found, quoted=False),)
        found = BRACED.match(self.text, self.pos, self.end)
        if found and (expanded := expand(found[0])):
            self.count_words(len(expanded))
            span = self.step_over(found)
            return tuple(Word(_globbed(text, span), span) for text in expanded)
        if name:
            return (self.word(Position.ARGUMENT, name=True),)
        self.count_words()
        start = self.pos
        word, brace = self._read(Position.ARGUMENT, continues=True)
        if brace is None:
            return (word,)
        words = spread(word, self.text) if self.char() not in ("<", ">") and self._expands(brace) else None
        if words is None:
            self._no_brace_expansion(start, brace)
            return (word,)
        self.count_words(len(words))
        return words

    def word(self, position: Position, *, name: bool = False) -> Word:
        """Return the word at the cursor. Raises RefusalError if there is none, except after `name=`.

        `name`: the word is the first of a command.
        """
        self.count_words()
        if found := _PLAIN.match(self.text, self.pos, self.end):
            return self.literal_word(found, quoted=False)
        start = self.pos
        word, brace = self._read(position, continues=not name and position is not Position.TEST)
        if brace is not None:
            self._no_brace_expansion(start, brace)
        return word

    def literal_word(self, found: re.Match[str], *, quoted: bool) -> Word:
        """Step over a match at the cursor, and return the word that is exactly its text."""
        span = self.step_over(found)
        return Word((Text(found[0], span, quoted),), span)

    # -- unquoted ------------------------------------------------------------------------------------------------

    def _read(self, position: Position, *, continues: bool) -> tuple[Word, int | None]:
        """Return the word as if braces had no meaning, and the position of the first brace.

        `continues`: a line continuation may end the word, or join it with the next line.
        """
        text, start = self.text, self.pos
        parts: list[Part] = []
        brace: int | None = None
        joined = False
        while self.pos < self.end:
            at, char = self.pos, text[self.pos]
            if char in _ENDS_WORD:
                break
            if found := _RUN.match(text, at, self.end):
                self.put(parts, found[0], at, found.end())
            elif char == "'":
                close = text.find("'", at + 1, self.end)
                if close < 0:
                    raise self.refusal("a single quote that is never closed")
                literal = self._unescape(text[at + 1 : close]) if self.backquoted else text[at + 1 : close]
                self.put(parts, literal, at, close + 1, quoted=True)
            elif char == '"':
                self.pos += 1
                self.double(parts, at)
            elif char == "\\" and continues and text.startswith("\n", at + 1, self.end):
                if self.after_continuations() in (" ", "\t"):
                    break
                self._join(parts, start)
                joined = True
            elif char == "\\":
                self._escape(parts)
            elif char == "$":
                self._unquoted_dollar(parts)
            elif char == "`":
                parts.append(self.backquotes(at, False, escapes=True))
            elif char in "<>":
                if not text.startswith("(", at + 1, self.end):
                    break
                return self._process_substitution(at, bool(parts)), None
            elif char == "(":
                raise self.refusal("`(` right after a word (function, array, or extended glob)", start, at + 1)
            elif char in "*?[":
                self._glob(parts, position)
            elif char == "~":
                self._tilde(parts, position, start)
            elif char == "{":
                brace = at if brace is None else brace
                self.put(parts, "{", at, at + 1)
            else:
                self._beyond_ascii(parts)
        if self.char() in ("<", ">") and (joined or text[start : self.pos].isdigit()):
            raise self.refusal("a number before a redirection, where a word is expected", start, self.pos)
        if joined and brace is not None:
            raise self.refusal("a line continuation inside a word with braces", start, self.pos)
        if not parts:
            if position is not Position.ASSIGNED:
                raise self.refusal("a word is missing")
            parts.append(Text("", SourceSpan(start, start), False))
        return Word(tuple(parts), SourceSpan(start, self.pos)), brace

    def put(self, parts: list[Part], decoded: str, start: int, end: int, *, quoted: bool = False) -> None:
        """Append the text `decoded` of the range `start:end` to `parts`, and step to `end`."""
        self.pos = end
        last = parts[-1] if parts else None
        if isinstance(last, Text) and last.quoted is quoted:
            parts[-1] = Text(last.text + decoded, SourceSpan(last.span.start, end), quoted)
        else:
            parts.append(Text(decoded, SourceSpan(start, end), quoted))

    def double(self, parts: list[Part], start: int) -> None:
        """Append the content of the double quotes that began at `start`, with the cursor after the opening quote."""
        first, *rest = self._quoted(start, '"')
        last = parts[-1] if parts else None
        if isinstance(first, Text) and isinstance(last, Text) and last.quoted:
            parts[-1] = Text(last.text + first.text, SourceSpan(last.span.start, first.span.end), True)
        else:
            parts.append(first)
        parts += rest

    def _escape(self, parts: list[Part]) -> None:
        at = self.pos
        if at + 1 >= self.end:
            raise self.refusal("a backslash at the end of the text")
        if self.text[at + 1] == "\n":
            raise self.refusal("a line continuation inside a word", at, at + 2)
        self.put(parts, self.text[at + 1], at, at + 2, quoted=True)

    def _join(self, parts: list[Part], start: int) -> None:
        """Step over the line continuations at the cursor, which join plain text of the word with plain text."""
        at, after = self.pos, self.after_continuations()
        before = self.text[at - 1] if at > start else ""
        named = bool(parts) and isinstance(parts[-1], Parameter) and before not in ("}", '"')
        plain = (before.isalnum() or before in _BEFORE_CONTINUED) and (after.isalnum() or after in _AFTER_CONTINUED)
        if named or not before or not after or not plain or not (before + after).isascii():
            raise self.refusal("a line continuation inside a word", at, at + 2)
        self._step_over_continuations(parts[-1])

    def _step_over_continuations(self, last: Part | None) -> None:
        """Step over the line continuations at the cursor. `last`: the part before them."""
        start, text, at = self.pos, self.text, self.pos
        while text.startswith("\\\n", at, self.end):
            at += 2
        following = text[at : min(at + 1, self.end)]
        joins = following.isalnum() or following in ("_", "[", "(", "{") or not following.isascii()
        if isinstance(last, Parameter) and text[start - 1] not in ("}", '"') and joins:
            raise self.refusal("a line continuation after a variable name", start, at + 1)
        self.unescaped += (at - start) // 2
        self.pos = at

    def _glob(self, parts: list[Part], position: Position) -> None:
        at = self.pos
        if position is not Position.ARGUMENT:
            self.put(parts, self.text[at], at, at + 1, quoted=True)  # so that it has no glob meaning
        elif found := STARS.match(self.text, at, self.end) or BRACKET.match(self.text, at, self.end):
            parts.append(Glob(found[0], self.step_over(found)))
        elif _OPEN_BRACKET.match(self.text, at, self.end):
            self.put(parts, "[", at, at + 1)  # no `]` closes it, and no expansion could add one
        else:
            raise self.refusal("a `[..]` that is not plain", at)

    def _tilde(self, parts: list[Part], position: Position, start: int) -> None:
        at = self.pos
        if at == start:
            found = _TILDE[position].match(self.text, at, self.end)
            if not found:
                raise self.refusal("`~` that is not a home folder by itself or before `/`")
            parts.append(Tilde(found[1], self.step_over(found)))
            return
        # bash expands `~` after `=` and `:` in words that look like assignments; a `~` that may be expanded is refused.
        before, spelled = self.text[at - 1], self.text[start:at]
        if position is Position.ARGUMENT and "=" in spelled and _PLAIN_BEFORE_TILDE.fullmatch(spelled):
            if not LIKE_ASSIGNMENT.match(spelled):
                self.put(parts, "~", at, at + 1)  # `--prefix=~/x`: no name before the `=`
                return
            found = _TILDE[Position.ASSIGNED].match(self.text, at, self.end)
            if LIKE_ASSIGNMENT.fullmatch(spelled) and found and not self.in_array:  # bash does not expand it there
                parts.append(Tilde(found[1], self.step_over(found)))
                return
        if not _BEFORE_PLAIN_TILDE.match(before) and not (before == ":" and "=" not in self.text[start:at]):
            raise self.refusal("`~` inside a word, where bash may expand it")
        if before == ":" and position is not Position.ARGUMENT:
            raise self.refusal("`~` after `:` in an assignment")
        self.put(parts, "~", at, at + 1)

    def _expands(self, brace: int) -> bool:
        spelled = self.text[brace : self.pos]
        return ("," in spelled or ".." in spelled) and not LITERAL_BRACES.match(spelled)

    def _no_brace_expansion(self, start: int, brace: int) -> None:
        if self._expands(brace):
            raise self.refusal("brace expansion", start, self.pos)
        if self.char() in ("<", ">") and brace == start:
            raise self.refusal("a file descriptor put into a variable (`{name}>`)", start, self.pos + 1)

    def _beyond_ascii(self, parts: list[Part]) -> None:
        at = self.pos
        found = _BEYOND_ASCII.match(self.text, at, self.end)
        if not found:
            raise self.refusal(f"unexpected `{self.text[at]}`")
        if splits_somewhere(found[0]):
            raise self.refusal("an unquoted character that may end the word on another system", at, found.end())
        self.put(parts, found[0], at, found.end())

    # -- quoted --------------------------------------------------------------------------------------------------

    def _quoted(self, start: int, close: str) -> list[Part]:
        """Return the content of double quotes, or of a here-document if `close` is empty; the parts
        cover `start:pos` without gaps.
        """
        text = self.text
        runs, escapable = (_DOUBLE_RUN, '$`"\\') if close else (_BODY_RUN, "$`\\")
        parts: list[Part] = []
        pieces: list[str] = []
        mark = start
        while True:
            at, char = self.pos, self.char()
            if char == close:
                break
            if not char:
                raise self.refusal("a double quote that is never closed", start)
            if found := runs.match(text, at, self.end):
                self.pos = found.end()
                pieces.append(found[0])
            elif char == "\\":
                following = text[at + 1 : min(at + 2, self.end)]
                if not following:
                    raise self.refusal("a backslash at the end of the text", at)
                if following == "\n":
                    self._step_over_continuations(parts[-1] if parts and not pieces else None)
                    pieces.append("")
                else:
                    self.pos += 2
                    pieces.append(following if following in escapable else "\\" + following)
            elif char == "$" and self._is_plain_dollar(quoted=True, close=close):
                self.pos += 1
                pieces.append("$")
            else:
                if pieces:
                    parts.append(Text("".join(pieces), SourceSpan(mark, at), True))
                    pieces, mark = [], at
                in_body = not close
                if char == "`":
                    parts.append(self.backquotes(mark, True, escapes=not in_body, quotes=True))
                else:
                    parts.append(self.dollar(mark, True, body=in_body))
                mark = self.pos
        self.pos += len(close)
        if pieces or not parts:
            parts.append(Text("".join(pieces), SourceSpan(mark, self.pos), True))
        elif close:
            last = parts[-1]
            parts[-1] = replace(last, span=SourceSpan(last.span.start, self.pos))
        return parts

    def ansi(self, parts: list[Part]) -> None:
        start = self.pos
        text = ansi_c_quoted(self)
        self.put(parts, text, start, self.pos, quoted=True)

    # -- expansions ----------------------------------------------------------------------------------------------

    def _unquoted_dollar(self, parts: list[Part]) -> None:
        at = self.pos
        if self.ahead("$'"):
            self.ansi(parts)
        elif self.ahead('$"'):
            self.pos += 2
            self.double(parts, at)
        elif self._is_plain_dollar(quoted=False):
            self.put(parts, "$", at, at + 1)
        else:
            parts.append(self.dollar(at, False))

    def _is_plain_dollar(self, *, quoted: bool, close: str = "") -> bool:
        following = self.text[self.pos + 1 : min(self.pos + 2, self.end)]
        if following == "\\":  # a line continuation would join the `$` with the next line
            after = self.text[self.pos + 2 : min(self.pos + 3, self.end)]
            return after not in ("", "\n")
        plain = _AFTER_QUOTED_DOLLAR if quoted else _AFTER_PLAIN_DOLLAR
        return not following or following in plain or following == close

    def dollar(self, start: int, quoted: bool, *, body: bool = False) -> Part:
        """Return the part that the `$` at the cursor begins. `start` is the beginning of the part: the `$`, or a
        quote before it.
        """
        text, at = self.text, self.pos
        if found := _NAMED.match(text, at, self.end):
            self.pos = found.end()
            if found[1] == "$" and self.char() in (("{", "(", "[") if quoted else ("{", "(", "[", "'", '"')):
                # Looking for the end of the quotes, bash takes the second `$` for the start of another expansion.
                raise self.refusal("`$$` before what could be an expansion", at, self.pos + 1)
            if not self.char().isascii():
                raise self.refusal("a letter beyond ASCII right after a variable name", at, self.pos + 1)
            return Parameter(found[1], SourceSpan(start, self.pos), quoted)
        if found := _BRACED.match(text, at, self.end) or _ELEMENT.match(text, at, self.end):
            length, name, *subscript = found.groups()
            if length and name in "#?$!-":
                raise self.refusal("a `${#..}` form that versions of bash read differently", at, found.end())
            self.pos = found.end()
            return Parameter(name, SourceSpan(start, self.pos), quoted, bool(length), *subscript)
        if self.ahead("$(("):
            self.pos += 3
            expression = self.arithmetic(changes=False)
            if not self.ahead("))"):
                raise self.refusal("arithmetic `$((..))` that is not plain", at, self.pos + 1)
            self.pos += 2
            return Arithmetic(expression, SourceSpan(start, self.pos), quoted)
        if self.ahead("$("):
            self.pos += 2
            return Substitution(self._substituted(at, ")"), "command", SourceSpan(start, self.pos), quoted)
        if self.ahead("${"):
            return self.expansion(start, quoted=quoted, body=body)
        if self.ahead("$["):
            raise self.refusal("arithmetic `$[..]`", at, at + 2)
        raise self.refusal("a `$` that is not followed by a plain name", at, at + 2)

    def _substituted(self, start: int, close: str) -> Script:
        """Return the commands of a substitution, up to `close`, and step over it."""
        self.enter(start)
        self.level += 1
        body = self.commands(close)
        if self.read_bodies is not None and self.read_bodies.level == self.level:
            raise self.refusal("a here-document whose body starts outside its substitution", start)
        self.level -= 1
        self.leave()
        self.pos += len(close)
        return body

    def _process_substitution(self, at: int, glued: bool) -> Word:
        if glued:
            raise self.refusal("a process substitution glued to other text", at, at + 2)
        self.pos += 2
        if self.char() == "(":
            raise self.refusal("a parenthesis right after `<(` or `>(`, which bash may take for arithmetic", at, at + 3)
        body = self._substituted(at, ")")
        if not body.items:
            raise self.refusal("an empty process substitution, which bash leaves out", at, self.pos)
        if self.char() and self.char() not in _ENDS_WORD:
            raise self.refusal("a process substitution glued to other text", at, self.pos + 1)
        span = SourceSpan(at, self.pos)
        kind = self.text[at]
        return Word((Substitution(body, "process-in" if kind == "<" else "process-out", span, False),), span)

    def backquotes(self, start: int, quoted: bool, *, escapes: bool = False, quotes: bool = False) -> Substitution:
        """Return the substitution in backquotes at the cursor, as a part that begins at `start`.

        bash removes the backslash before `$`, `\\`, a backquote and a newline, and then reads the commands. The reader
        decodes these escapes in single quotes and between words, and refuses them elsewhere. `escapes`: the content
        may contain backslashes. `quotes`: double quotes around the backquotes do not exclude those in the content.
        """
        at = self.pos
        found = _BACKQUOTED.match(self.text, at, self.end)
        if not found:
            raise self.refusal("a backquote that is never closed")
        inside, close = found[1], found.end() - 1
        removed = [escape for escape in _ESCAPED.findall(inside) if escape in _REMOVED_ESCAPES]
        if ("\\" in inside and not escapes) or (quoted and ('\\"' in inside or ('"' in inside and not quotes))):
            raise self.refusal("quotes or a backslash inside backquotes", at, close + 1)
        self.pos = at + 1
        end, self.end = self.end, close
        backquoted, self.backquoted, unescaped = self.backquoted, True, self.unescaped
        body = self._substituted(at, "")
        self.end, self.pos, self.backquoted = end, close + 1, backquoted
        if self.unescaped - unescaped != len(removed):
            raise self.refusal("quotes or a backslash inside backquotes", at, close + 1)
        return Substitution(body, "command", SourceSpan(start, self.pos), quoted)

    def _unescape(self, text: str) -> str:
        """Return the content of single quotes inside backquotes without the backslashes that bash removes first."""
        escapes = [escape for escape in _ESCAPED.findall(text) if escape in _DECODED_ESCAPES]
        self.unescaped += len(escapes)
        return _ESCAPED.sub(lambda found: found[0][1:] if found[0] in _DECODED_ESCAPES else found[0], text)

    # -- here-documents ------------------------------------------------------------------------------------------

    def here_body(self, start: int, end: int) -> tuple[Part, ...]:
        """Return the parts of an unquoted here-document body at `start:end`. The cursor does not move."""
        place, bound, read_bodies = self.pos, self.end, self.read_bodies
        self.pos, self.end, self.read_bodies = start, end, None
        parts = tuple(self._quoted(start, ""))
        self.pos, self.end, self.read_bodies = place, bound, read_bodies
        for part in parts:
            # bash joins the lines of a body before it reads anything in it, even inside single quotes of a command.
            if not isinstance(part, Text) and "\\\n" in self.text[part.span.start : part.span.end]:
                span = part.span
                raise self.refusal("a line continuation inside a here-document's expansion", span.start, span.end)
        return parts


def _globbed(text: str, span: SourceSpan) -> tuple[Part, ...]:
    """Return the parts of a word that a brace expansion made, with active globs. All parts have the position `span`."""
    pieces = _AROUND_STARS.split(text)
    return tuple(
        Glob(piece, span) if index % 2 else Text(piece, span, False) for index, piece in enumerate(pieces) if piece
    )
