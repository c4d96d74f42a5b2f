"""The command `[[ .. ]]`: tests of files and texts. Operators that evaluate a text (`-v`, `-R`, `-o`, numbers that
are not certain) are refused.
"""

import re

from policy.bash.ast import NUMERIC, Arithmetic, Condition, Expansion, Parameter, Substitution, TestOperator, Text, Word
from policy.bash.words import Position, Words
from policy.model.abstract_word import SourceSpan

_UNARY = frozenset(f"-{letter}" for letter in "bcdefghknprstuwxzGLNOS")
_BINARY = re.compile(r"(==|=~|=|!=|<|>|-(?:eq|ne|lt|le|gt|ge|nt|ot|ef))(?=[ \t])")
_TOKEN = re.compile(r"[^ \t\n]*")
_FLAG = re.compile(r"-[A-Za-z]")
_DIGITS = re.compile(r"[0-9]{1,3}")
# A regular expression without expansions; `(` and `|` in it need no quotes.
_REGEX = re.compile(r"(?:[A-Za-z0-9_./:,=@%+^*?\[\]{}()|!-]|\\[][.*+?(){}|^$/-]|\$(?=[ \t)|]))+(?=[ \t])")
_UNESCAPED = re.compile(r"\\.|([()])")


def parse_conditions(words: Words) -> tuple[Condition | TestOperator, ...]:
    """Return the tests between `[[` (already read) and `]]` (stepped over)."""
    pieces: list[Condition | TestOperator] = []
    depth, expecting = 0, True
    while True:
        words.blanks()
        words.count_words()
        char = words.char()
        text = _token(words)
        if expecting and (text == "!" or char == "("):
            words.pos += 1
            depth += char == "("
            pieces.append("(" if char == "(" else "!")
        elif expecting:
            pieces.append(_condition(words, text))
            expecting = False
        elif char == ")" and depth:
            words.pos += 1
            depth -= 1
            pieces.append(")")
        elif words.ahead("&&") or words.ahead("||"):
            pieces.append("&&" if char == "&" else "||")
            words.pos += 2
            words.linebreak()
            expecting = True
        elif words.ahead("]]") and not depth:
            words.pos += 2
            if words.char() not in ("", " ", "\t", "\n", ";", "|", "&", ")"):
                raise words.refusal("text right after `]]`")
            return tuple(pieces)
        else:
            raise words.refusal("a condition in `[[ .. ]]` that is not plain")


def _condition(words: Words, text: str) -> Condition:
    start = words.pos
    if _FLAG.fullmatch(text):
        if text not in _UNARY:
            raise words.refusal(f"`{text}` in `[[ .. ]]`", start, start + 2)
        words.pos += 2
        words.blanks()
        operand = _operand(words)
        if text == "-t" and not _DIGITS.fullmatch(operand.literal or ""):
            raise words.refusal("`-t` with anything but a number", start, words.pos)
        return Condition(text, (operand,), SourceSpan(start, words.pos))
    left = _operand(words)
    last = words.pos
    words.blanks()
    found = _BINARY.match(words.text, words.pos, words.end)
    if not found:
        return Condition("", (left,), SourceSpan(start, last))
    words.pos = found.end()
    words.blanks()
    right = (_regex(words) if found[1] == "=~" and _token(words) != "]]" else None) or _operand(words)
    for operand in (left, right) if found[1] in NUMERIC else ():
        # bash evaluates both sides as arithmetic. The interpreter checks the values of expansions.
        checked_later = len(operand.parts) == 1 and isinstance(operand.parts[0], (Substitution, Expansion))
        if not evaluated_name(operand) and not is_number(operand) and not checked_later:
            reason = "a comparison of numbers with anything but numbers"
            raise words.refusal(reason, operand.span.start, operand.span.end)
    return Condition(found[1], (left, right), SourceSpan(start, words.pos))


def _token(words: Words) -> str:
    """Return the text up to the next blank or newline."""
    token = _TOKEN.match(words.text, words.pos, words.end)
    return token[0] if token else ""


def _operand(words: Words) -> Word:
    if _token(words) in ("]]", "!", "==", "=~", "=", "!=") or words.char() in ("(", "<", ">", ""):
        raise words.refusal("a condition in `[[ .. ]]` that is not plain")
    word = words.word(Position.TEST)
    if words.char() not in (" ", "\t", ")"):
        raise words.refusal("a word in `[[ .. ]]` that is not followed by a blank")
    return word


def _regex(words: Words) -> Word | None:
    found = _REGEX.match(words.text, words.pos, words.end)
    if not found or not _balanced(found[0]):
        return None
    return words.literal_word(found, quoted=True)


def _balanced(regex: str) -> bool:
    depth = 0
    for found in _UNESCAPED.finditer(regex):
        depth += {"(": 1, ")": -1}.get(found[1] or "", 0)
        if depth < 0:
            return False
    return depth == 0


_NUMBER = re.compile(r"0|-?[1-9][0-9]{0,17}")
_NAME_OR_POSITION = re.compile(r"[A-Za-z_][A-Za-z0-9_]*|[1-9]")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_COUNTS = frozenset("#?$")


def is_number(word: Word) -> bool:
    """Return True if the word is certainly a whole number."""
    literal = word.literal
    if literal is not None:
        return _NUMBER.fullmatch(literal) is not None
    part = word.parts[0]
    number = isinstance(part, Parameter) and (part.length or part.name in _COUNTS)
    return len(word.parts) == 1 and (number or isinstance(part, Arithmetic))


def evaluated_name(word: Word) -> str | None:
    """Return the name in `word` (`x` or `$x`) whose value bash evaluates in a comparison of numbers, or None."""
    if len(word.parts) != 1:
        return None
    (part,) = word.parts
    if isinstance(part, Text):
        return part.text if _VARIABLE.fullmatch(part.text) else None
    plain = isinstance(part, Parameter) and not part.length and not part.subscript
    return part.name if isinstance(part, Parameter) and plain and _NAME_OR_POSITION.fullmatch(part.name) else None
