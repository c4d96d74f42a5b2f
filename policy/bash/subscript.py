"""Subscripts of array elements: `x[i+1]=v`, `m=([key]=v)`, `${m["$key"]}`.

bash evaluates the subscript of an indexed array as arithmetic, and takes that of an associative array as text. The
reader does not know which of the two an array is, so a subscript has both readings, and the interpreter selects one.
Only subscripts without a command, a blank and a quote that could conceal the `]` are read.
"""

import re

from policy.bash.ast import Arithmetic, Subscript
from policy.bash.scanner import RefusalError
from policy.bash.words import Position, Words
from policy.model.abstract_word import SourceSpan

_VARIABLE = r"\$(?:[A-Za-z_]|[1-9])|\$\{(?:[A-Za-z_][A-Za-z0-9_]*|[1-9]|#[A-Za-z_][A-Za-z0-9_]*(?:\[[@*]\])?)\}"
_PLAIN = r"[A-Za-z0-9_./:,@%+*-]"
_TEXT = re.compile(
    rf"(?:{_PLAIN}|{_VARIABLE}|'[A-Za-z0-9_./:,@%+-]{{1,99}}'|\"(?:{_PLAIN}|{_VARIABLE}){{1,99}}\"){{1,99}}(?=\])"
)


def parse_subscript(words: Words, *, body: bool = False) -> Subscript | None:
    """Return the subscript at the cursor, up to the `]`; None if it is not certain. `body`: in a here-document."""
    start, end = words.pos, words.end
    if words.ahead("$(("):
        part = words.dollar(start, False)
        if not isinstance(part, Arithmetic):
            return None
        return Subscript(None, part.expression, SourceSpan(start, words.pos))
    found = _TEXT.match(words.text, start, end)
    if found is None or found[0].strip("\"'") in ("@", "*") or (body and not {"'", '"'}.isdisjoint(found[0])):
        return None
    span = SourceSpan(start, found.end())
    quotes = int(found[0][0] == '"' == found[0][-1] and found[0].count('"') == 2)
    depth, number, key = words.depth, None, None
    try:
        words.pos, words.end = span.start + quotes, span.end - quotes
        number = words.arithmetic(changes=False)
        if words.pos != words.end:
            number = None
    except RefusalError:
        words.depth = depth
    words.pos, words.end = span.start, span.end
    if "*" not in found[0]:
        key = words.word(Position.TEST)
    words.pos, words.end = span.end, end
    return Subscript(key, number, span) if key is not None or number is not None else None
