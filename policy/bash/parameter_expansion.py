"""Parameter expansion `${name OPERATOR word}`: the forms whose content is certain. The rules inside double quotes
differ from those outside.

An assignment (`:=`) is only accepted in the words of `:`, which the parser of commands checks. Forms with repeated
expansion (`@`) are refused. bash evaluates offsets, lengths and subscripts: they may be plain arithmetic, and the
interpreter checks that the names in it hold numbers. `${!x}` is read where `x` is a plain name; its value may not be.
"""

import re

from policy.bash.ast import ASSIGNS, Arithmetic, Expansion, Glob, Part, Subscript, Text, Tilde, Word
from policy.bash.objections import objection_to_variable
from policy.bash.words import BRACKET, STARS, Words
from policy.model.abstract_word import SourceSpan

_NUMBER = r"(?:0|[1-9][0-9]{0,8})"
_NAME = re.compile(
    r"\$\{(?:([A-Za-z_][A-Za-z0-9_]*)\[([@*]|0|-?[1-9][0-9]{0,4})\]|([A-Za-z_][A-Za-z0-9_]*|0|[1-9][0-9]{0,2})(?=[^A-Za-z0-9_\[]))"
)
_OPERATOR = re.compile(r":=|=|:-|-|:\+|\+|:\?|\?|##|#|%%|%|//|/#|/%|/|\^\^|\^|,,|,")
_SLICE = re.compile(
    rf"\$\{{(?P<name>[A-Za-z_][A-Za-z0-9_]*|0|[1-9][0-9]{{0,2}}|[@*])"
    rf":(?P<offset>{_NUMBER}| -{_NUMBER})(?::(?P<length>{_NUMBER}))?\}}"
)
_COMPUTED_SLICE = re.compile(
    r"\$\{(?:(?P<array>[A-Za-z_][A-Za-z0-9_]*)\[(?P<subscript>[@*])\]"
    r"|(?P<name>[A-Za-z_][A-Za-z0-9_]*|[1-9][0-9]{0,2}|[@*])):(?![-=+?])"
)
_COMPUTED_ELEMENT = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\[(?![@*])")
_LISTED = re.compile(r"\$\{!([A-Za-z_][A-Za-z0-9_]*)\[([@*])\]\}")
_INDIRECT = re.compile(r"\$\{!([A-Za-z_][A-Za-z0-9_]*|[1-9])\}")
# Text without a quote, a bracket, a `?` or a colon, so that every version of bash finds the end at the same place.
_COMPUTED = re.compile(
    r"(?:[A-Za-z0-9_ +*%/-]++|\$(?:[A-Za-z_]|[1-9#]|\{(?:#?[A-Za-z_][A-Za-z0-9_]*|[1-9#])\}))+(?=[]:}])"
)
_ONLY_NUMBER = re.compile(_NUMBER)
_CASES = frozenset(("^", "^^", ",", ",,"))
_REMOVALS = frozenset(("#", "##", "%", "%%"))

# Characters that begin no quote and no expansion, and do not end the form. Blanks are part of the word, because the
# brace is still open.
_OUTSIDE = re.compile(r"[A-Za-z0-9_.:,=@%+^\]!# -]+")
_INSIDE = re.compile(r"""(?:[^"'\\$`{}\n~<>*?\[/]|[<>](?!\())+""")
_ESCAPED = re.compile(r"\\([/.*?+^()|\[\] -])")
_ESCAPED_SIGN = re.compile(r"\\([\"#$:~,=@%\\])")  # outside of a here-document
_PLAIN_DOUBLE = re.compile(r'"([A-Za-z0-9_./:,@%+=-]*)"')  # the same text for every reading of the quotes
_LINE = re.compile(r"\$'\\[ntr]'")  # has one meaning for every reading of the quotes
_TILDE_BEFORE = re.compile(r"[A-Za-z0-9/._-]")


def parse_expansion(words: Words, start: int, *, quoted: bool, body: bool) -> Part:
    """Parse the `${..}` at the cursor into a part that begins at `start`.

    `quoted`: inside double quotes or, with `body`, inside a here-document. Raises RefusalError for other forms.
    """
    text, at = words.text, words.pos
    if found := _SLICE.match(text, at, words.end):
        words.pos = found.end()
        places = [name for name in ("offset", "length") if found[name] is not None]
        spans = {name: SourceSpan(*found.span(name)) for name in places}
        bounds = tuple(Word((Text(found[name], span, False),), span) for name, span in spans.items())
        return Expansion(found["name"], ":", bounds, SourceSpan(start, words.pos), quoted)
    if found := _INDIRECT.match(text, at, words.end):
        words.pos = found.end()
        return Expansion(found[1], "!", (), SourceSpan(start, words.pos), quoted)
    if found := _LISTED.match(text, at, words.end):
        words.pos = found.end()
        return Expansion(found[1], "!", (), SourceSpan(start, words.pos), quoted, found[2])
    if found := _COMPUTED_SLICE.match(text, at, words.end):
        words.pos = found.end()
        limits = [_computed(words, at)]
        if words.char() == ":":
            words.pos += 1
            if words.text[words.pos : words.end].lstrip(" ").startswith("-"):
                raise _refusal(words, at)  # at a length below zero that leaves nothing, bash ends the line
            limits.append(_computed(words, at))
        _close(words, at, "}")
        name = found["array"] or found["name"]
        return Expansion(name, ":", tuple(limits), SourceSpan(start, words.pos), quoted, found["subscript"] or "")
    if (found := _COMPUTED_ELEMENT.match(text, at, words.end)) and not _NAME.match(text, at, words.end):
        words.pos = found.end()
        from policy.bash.subscript import parse_subscript  # only where there is a subscript

        index = parse_subscript(words, body=body) or _computed_subscript(words, at)
        _close(words, at, "]")
        if words.char() == "}":
            words.pos += 1
            return Expansion(found[1], "[", (), SourceSpan(start, words.pos), quoted, "", index)
        operator = _OPERATOR.match(text, words.pos, words.end)
        if not operator or operator[0] in ASSIGNS:
            raise _refusal(words, at)
        inside = _words_inside(words, at, operator, quoted, body)
        return Expansion(found[1], operator[0], inside, SourceSpan(start, words.pos), quoted, "", index)
    found = _NAME.match(text, at, words.end)
    operator = _OPERATOR.match(text, found.end(), words.end) if found else None
    if not found or not operator:
        raise _refusal(words, at)
    parts = _words_inside(words, at, operator, quoted, body)
    if operator[0] in ASSIGNS:
        if found[2] or not found[3] or found[3][0].isdigit() or objection_to_variable(found[3], None):
            raise _refusal(words, at)
        words.open_assignments += 1
    return Expansion(found[1] or found[3], operator[0], parts, SourceSpan(start, words.pos), quoted, found[2] or "")


def _words_inside(words: Words, at: int, operator: re.Match[str], quoted: bool, body: bool) -> tuple[Word, ...]:
    """Return the words after the operator of the form that begins at `at`, and step over its `}`."""
    words.enter(at)
    words.pos = operator.end()
    parts = _Inside(words, at, operator[0], quoted, body).words()
    words.leave()
    words.pos += 1
    return parts


def _computed_subscript(words: Words, at: int) -> Subscript:
    """Return the subscript at the cursor, which may contain blanks between the parts of arithmetic."""
    start = words.pos
    if not _COMPUTED.match(words.text, start, words.end):
        raise _refusal(words, at)
    expression = words.arithmetic(changes=False)
    while words.char() == " ":
        words.pos += 1
    return Subscript(None, expression, SourceSpan(start, words.pos))


def _computed(words: Words, at: int) -> Word:
    """Return the offset, length or subscript at the cursor, which bash evaluates as arithmetic."""
    start = words.pos
    if words.ahead("$(("):
        part = words.dollar(start, False)
    else:
        found = _COMPUTED.match(words.text, start, words.end)
        if not found:
            raise _refusal(words, at)
        if _ONLY_NUMBER.fullmatch(found[0]):
            return words.literal_word(found, quoted=False)
        expression = words.arithmetic(changes=False)
        while words.char() == " ":
            words.pos += 1
        if words.pos != found.end():
            raise _refusal(words, at)
        part = Arithmetic(expression, SourceSpan(start, words.pos), False)
    return Word((part,), SourceSpan(start, words.pos))


def _close(words: Words, at: int, end: str) -> None:
    """Step over the end of the form that begins at `at`."""
    if not words.ahead(end):
        raise _refusal(words, at)
    words.pos += len(end)


def _refusal(words: Words, at: int) -> Exception:
    close = words.text.find("}", at, words.end)
    return words.refusal("a `${..}` form that is not understood", at, close + 1 if close > 0 else at + 2)


class _Inside:
    """The parser of the words of one form, up to its `}`."""

    def __init__(self, reader: Words, at: int, operator: str, quoted: bool, body: bool) -> None:
        self.reader, self.at, self.operator, self.quoted, self.body = reader, at, operator, quoted, body

    def words(self) -> tuple[Word, ...]:
        operator = self.operator
        if operator in _CASES:
            if self.reader.char() != "}":
                raise _refusal(self.reader, self.at)
            return ()
        if operator[0] != "/":
            return (self._word("}", pattern=operator in _REMOVALS),)
        if self.reader.char() in ("/", "}"):
            raise _refusal(self.reader, self.at)  # an empty pattern
        pattern = self._word("/}", pattern=True)
        if self.reader.char() == "}":
            return (pattern,)
        self.reader.pos += 1
        return (pattern, self._word("}", pattern=False))

    def _word(self, stops: str, *, pattern: bool) -> Word:
        reader = self.reader
        start = reader.pos
        parts: list[Part] = []
        while (char := reader.char()) not in stops or not char:
            if not char:
                raise _refusal(reader, self.at)
            self._part(parts, char, start, pattern)
        if not parts:
            parts.append(Text("", SourceSpan(start, start), self.quoted))
        return Word(tuple(parts), SourceSpan(start, reader.pos))

    def _part(self, parts: list[Part], char: str, start: int, pattern: bool) -> None:
        reader, at, quoted = self.reader, self.reader.pos, self.quoted
        text, end = reader.text, reader.end
        run = (_INSIDE if quoted else _OUTSIDE).match(text, at, end)
        if run:
            reader.put(parts, run[0], at, run.end(), quoted=quoted)
        elif char == "/":
            reader.put(parts, "/", at, at + 1, quoted=quoted)
        elif char == "`":
            parts.append(reader.backquotes(at, quoted))
        elif char == "$":
            self._dollar(parts, pattern)
        elif char in "*?[":
            self._glob(parts, pattern)
        elif found := self._escaped(char, pattern):
            reader.put(parts, found[1], at, found.end(), quoted=True)
        elif char == "~" and not quoted:
            self._tilde(parts, start)
        # Inside double quotes, the operator and the version of bash determine whether a quotation mark quotes.
        elif char in "'\"" and (not quoted or (char == '"' and self.operator in _REMOVALS and not self.body)):
            close = text.find(char, at + 1, end)
            if char == "'":
                if close < 0:
                    raise _refusal(reader, self.at)
                reader.put(parts, text[at + 1 : close], at, close + 1, quoted=True)
            else:
                reader.pos += 1
                reader.double(parts, at)
            self._refuse_ambiguous_quotes(at)
        else:
            raise reader.refusal("a character inside `${..}` that bash may read in more than one way", at)

    def _escaped(self, char: str, pattern: bool) -> re.Match[str] | None:
        """Return an escaped character of a pattern, or plain text in double quotes inside double quotes."""
        reader, at, end = self.reader, self.reader.pos, self.reader.end
        if char == "\\" and pattern:
            found = _ESCAPED.match(reader.text, at, end)
            return found if found or self.body else _ESCAPED_SIGN.match(reader.text, at, end)
        inside = char == '"' and self.quoted and not pattern and not self.body
        return _PLAIN_DOUBLE.match(reader.text, at, end) if inside else None

    def _refuse_ambiguous_quotes(self, start: int) -> None:
        """Refuse quoted text in which the end of the form depends on how bash reads the quotes."""
        reader = self.reader
        inside = reader.text[start + 1 : reader.pos - 1]
        quotes_in_backquotes = "`" in inside and '"' in inside
        if re.search(r"[\\\n]|(?<!\$)\{|\$'", inside) or inside.count("}") != inside.count("{") or quotes_in_backquotes:
            raise reader.refusal("quotes inside `${..}` that bash may read in more than one way", start, reader.pos)

    def _dollar(self, parts: list[Part], pattern: bool) -> None:
        reader, at = self.reader, self.reader.pos
        if _LINE.match(reader.text, at, reader.end):
            if self.body or (self.quoted and not pattern):
                raise _refusal(reader, self.at)
            reader.ansi(parts)
        elif reader.text[at + 1 : at + 2] in ("'", '"', "}", "/", " ") or at + 1 >= reader.end:
            raise reader.refusal("a `$` inside `${..}` that is not followed by a plain name", at, at + 2)
        else:
            parts.append(reader.dollar(at, self.quoted, body=self.body))

    def _glob(self, parts: list[Part], pattern: bool) -> None:
        reader, at = self.reader, self.reader.pos
        found = STARS.match(reader.text, at, reader.end) or BRACKET.match(reader.text, at, reader.end)
        if self.quoted and not pattern:
            reader.put(parts, reader.text[at], at, at + 1, quoted=True)
        elif found:
            parts.append(Glob(found[0], reader.step_over(found)))
        else:
            raise reader.refusal("a `[..]` that is not plain", at)

    def _tilde(self, parts: list[Part], start: int) -> None:
        reader, at = self.reader, self.reader.pos
        if at == start and reader.text[at + 1 : at + 2] in ("/", "}"):
            reader.pos += 1
            parts.append(Tilde("", SourceSpan(at, reader.pos)))
        elif at > start and _TILDE_BEFORE.match(reader.text[at - 1]):
            reader.put(parts, "~", at, at + 1)
        else:
            raise reader.refusal("`~` inside `${..}`, where bash may expand it", at)
