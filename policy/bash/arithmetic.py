"""Arithmetic: `$((..))`, `((..))` and the head of `for ((..))`, over decimal numbers and plain names.

bash evaluates the value of a name again (`x='a[$(cmd)]'; $((x))` runs `cmd`). The interpreter, which knows the value at
that place, checks that it is a number.
"""

import re

from policy.bash.ast import ArithmeticAssignment, Count, Expression, Name, Number, Operation, Output, Substitution
from policy.bash.words import Words

_NUMBER = re.compile(r"(?:0|[1-9][0-9]{0,17})(?![A-Za-z0-9_#.@])")
_COUNT = re.compile(r"\$(?:[#?$]|\{#[A-Za-z_][A-Za-z0-9_]*(?:\[[@*]\])?\})(?![A-Za-z0-9_$\[({])")
_NAME = re.compile(
    r"(?:(?P<bare>[A-Za-z_][A-Za-z0-9_]*)|\$(?P<plain>[A-Za-z_][A-Za-z0-9_]*|[1-9])"
    r"|\$\{(?P<braced>[A-Za-z_][A-Za-z0-9_]*|[1-9])\})"
    r"(?![A-Za-z0-9_$\[({'\"`#\\])"
)
_GLUED = re.compile(r"[A-Za-z0-9_$\[({'\"`#\\@.]")
_CHANGE = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)[ \t]*((?:<<|>>|[-+*/%&^|])?=(?!=))")
_STEP = re.compile(r"\+\+|--")
_BINARY = re.compile(r"\*\*|<<(?![=(])|>>(?![=(])|<=|>=|==|!=|&&|\|\||[-+*/%&^|](?!=)|[<>](?!\()")
_UNARY = re.compile(r"!(?!=)|~|\+(?!\+)|-(?!-)")
# fmt: off
_BINDS = {
    "||": 1, "&&": 2, "|": 3, "^": 4, "&": 5, "==": 6, "!=": 6, "<": 7, ">": 7, "<=": 7, ">=": 7, "<<": 8, ">>": 8,
    "+": 9, "-": 9, "*": 10, "/": 10, "%": 10, "**": 11,
}
# fmt: on


class ArithmeticParser:
    """The parser of the expression at the cursor of `words`. `changes`: the expression may assign to variables."""

    def __init__(self, words: Words, changes: bool) -> None:
        self.words, self.changes = words, changes
        self.changed: set[str] = set()

    def parse_list(self) -> Expression:
        """Return the expression, up to the first text that cannot be part of it."""
        first = self._parse_assignment()
        parts = [first]
        while self._take(","):
            parts.append(self._parse_assignment())
        return first if len(parts) == 1 else Operation(",", tuple(parts))

    def _parse_assignment(self) -> Expression:
        words = self.words
        words.enter(words.pos)
        start = self._blanks()
        found = _CHANGE.match(words.text, start, words.end)
        if found:
            name, operator = found.groups()
            self._require_changes(start)
            words.pos = found.end()
            operand = self._parse_assignment()
            self._refuse_failure(operator.rstrip("="), operand, start)
            self.changed.add(name)
        result = ArithmeticAssignment(name, operator, operand) if found else self._parse_conditional()
        words.leave()
        return result

    def _parse_conditional(self) -> Expression:
        condition = self._parse_binary(1)
        if not self._take("?"):
            return condition
        yes = self._parse_assignment()
        if not self._take(":"):
            raise self._refusal()
        words = self.words
        words.enter(words.pos)
        no = self._parse_conditional()  # bash refuses `a ? b : c = d`, which would assign to the whole expression
        words.leave()
        return Operation("?:", (condition, yes, no))

    def _parse_binary(self, least: int) -> Expression:
        words = self.words
        left = self._parse_operand()
        while True:
            at = self._blanks()
            found = _BINARY.match(words.text, at, words.end)
            if not found or _BINDS[found[0]] < least:
                return left
            words.count_words()
            words.pos = found.end()
            binds = _BINDS[found[0]]
            right = self._parse_binary(binds if found[0] == "**" else binds + 1)
            self._refuse_failure(found[0], right, at)
            left = Operation(found[0], (left, right))

    def _parse_operand(self) -> Expression:
        """Return a number, a name, a group, or one of them after `-`, `+`, `!` or `~`."""
        words = self.words
        at = self._blanks()
        text, end = words.text, words.end
        words.count_words()
        if found := _NUMBER.match(text, at, end):
            words.pos = found.end()
            if _STEP.match(text, self._blanks(), end):
                raise self._refusal()
            return Number(int(found[0]))
        if found := _COUNT.match(text, at, end):
            words.pos = found.end()
            return Count(found[0])
        if found := _STEP.match(text, at, end):
            words.pos = found.end()
            name = _NAME.match(text, self._blanks(), end)
            if not name or not name["bare"]:
                raise self._refusal()
            return self._make_step(name["bare"], found[0], at, name.end())
        if found := _NAME.match(text, at, end):
            return self._parse_name(found)
        if words.ahead("$(") and not words.ahead("$(("):
            part = words.dollar(at, False)
            if not isinstance(part, Substitution) or (words.pos < end and _GLUED.match(text, words.pos, end)):
                raise self._refusal()
            return Output(part)
        if found := _UNARY.match(text, at, end):
            words.enter(at)
            words.pos = found.end()
            operand = self._parse_operand()
            words.leave()
            return Operation(found[0], (operand,))
        if self._take("("):
            inner = self.parse_list()
            if not self._take(")"):
                raise self._refusal()
            return inner
        raise self._refusal()

    def _refuse_failure(self, operator: str, right: Expression, start: int) -> None:
        """Refuse an operation that may fail: at a division by zero or a negative exponent bash skips the rest of the
        line, and it is not certain which part ran.
        """
        plain = isinstance(right, Number) and (right.value > 0 or operator == "**")
        if operator in ("/", "%", "**") and not plain:
            raise self.words.refusal("arithmetic that may fail: divide by a number only", start, self.words.pos)

    def _parse_name(self, found: re.Match[str]) -> Expression:
        words, start = self.words, found.start()
        if not found["bare"] and words.text[start - 1] == "-":
            raise self._refusal()  # a value with a sign would make `--`
        words.pos = found.end()
        name = found["bare"] or found["plain"] or found["braced"]
        step = _STEP.match(words.text, self._blanks(), words.end)
        if not step:
            if not found["bare"] and name in self.changed:
                raise self._refusal()  # `$x` is the value before the expression changes `x`
            return Name(name, not found["bare"])
        if not found["bare"]:
            raise self._refusal()
        return self._make_step(name, step[0], start, step.end())

    def _make_step(self, name: str, operator: str, start: int, end: int) -> ArithmeticAssignment:
        self._require_changes(start)
        self.changed.add(name)
        self.words.pos = end
        return ArithmeticAssignment(name, operator, None)

    def _require_changes(self, start: int) -> None:
        if not self.changes:
            raise self.words.refusal("arithmetic that assigns, inside a word", start, self.words.pos + 1)

    def _blanks(self) -> int:
        while self.words.char() in (" ", "\t"):
            self.words.pos += 1
        return self.words.pos

    def _take(self, sign: str) -> bool:
        if self.words.text.startswith(sign, self._blanks(), self.words.end):
            self.words.pos += len(sign)
            return True
        return False

    def _refusal(self) -> Exception:
        return self.words.refusal("arithmetic with anything but decimal numbers, plain names and plain operators")
