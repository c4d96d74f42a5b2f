"""Arithmetic on variables whose values are known."""

import operator
from collections.abc import Callable, Iterator
from itertools import product
from typing import assert_never

from policy.bash.ast import ArithmeticAssignment, Count, Expression, Name, Number, Operation, Output, walk
from policy.model.abstract_word import COUNT, LIMIT, NUMBER, AbstractWord, is_number

_BIGGEST = 1 << 62  # bash wraps at 64 bits; results near that bound count as unknown
_MOST_SHIFTED = 62

Values = tuple[int, ...] | None  # all possible values, or None for an unknown number


def evaluated_names(expression: Expression) -> Iterator[str]:
    """Yield the names whose values bash evaluates. A plain `=` reads no value."""
    for node in walk(expression):
        if isinstance(node, Name) or (isinstance(node, ArithmeticAssignment) and node.operator != "="):
            yield node.name


def inserted_names(expression: Expression) -> Iterator[str]:
    """Return the names whose values become part of the text before bash reads the expression."""
    return (node.name for node in walk(expression) if isinstance(node, Name) and node.dollar)


def ordered_changes(expression: Expression) -> Iterator[tuple[ArithmeticAssignment, bool]]:
    """Yield the assignments in order, each with True if it certainly happens before all later evaluation."""
    match expression:
        case ArithmeticAssignment(operand=operand):
            if operand is not None:
                yield from ((change, False) for change, _ in ordered_changes(operand))
            yield expression, operand is None or not any(ordered_changes(operand))
        case Operation(operator=operator, operands=operands):
            for operand in operands:
                yield from ((change, sure and operator == ",") for change, sure in ordered_changes(operand))


def evaluate(expression: Expression, value: Callable[[str], AbstractWord]) -> AbstractWord:
    """Return the text of `$((expression))`. `value` returns the value of a name."""
    if isinstance(expression, Count):
        return COUNT
    found = _values(expression, value)
    return NUMBER if found is None else AbstractWord(texts=tuple(str(number) for number in found))


def value_after(change: ArithmeticAssignment, value: Callable[[str], AbstractWord]) -> AbstractWord:
    """Return the value of the assigned name after `change`. `value` returns the value of a name before it."""
    if change.operator in ("++", "--"):
        one = Operation(change.operator[0], (Name(change.name, False), Number(1)))
        return evaluate(one, value)
    assert change.operand is not None
    if change.operator == "=":
        return evaluate(change.operand, value)
    return evaluate(Operation(change.operator[:-1], (Name(change.name, False), change.operand)), value)


def _values(expression: Expression, value: Callable[[str], AbstractWord]) -> Values:
    match expression:
        case Number(value=number):
            return (number,)
        case Count() | ArithmeticAssignment() | Output():
            return None
        case Name(name=name, dollar=dollar):
            sense = value(name)
            if sense.number or not is_number(sense):
                return None
            # bash inserts `$x` into `2-$x` as text, so a sign in the value may change the expression.
            return None if dollar and any(text[0] == "-" for text in sense.texts) else tuple(map(int, sense.texts))
        case Operation(operator=operator, operands=operands):
            known = [_values(operand, value) for operand in operands]
            certain = [values for values in known if values is not None]
            if len(certain) < len(known):
                return None
            results = {_applied(operator, choice) for choice in product(*certain)}
            numbers = tuple(sorted(number for number in results if number is not None))
            return numbers if len(numbers) == len(results) <= LIMIT else None
        case never:
            assert_never(never)


def _applied(operator: str, operands: tuple[int, ...]) -> int | None:
    result: int | None
    if len(operands) == 1:
        result = {"-": -operands[0], "+": operands[0], "!": int(not operands[0]), "~": ~operands[0]}[operator]
    elif operator == "?:":
        result = operands[1] if operands[0] else operands[2]
    elif operator == ",":
        result = operands[-1]
    else:
        result = _binary(operator, *operands)
    return result if result is not None and abs(result) < _BIGGEST else None


def _binary(sign: str, left: int, right: int) -> int | None:
    if sign in _CALCULATED:
        return int(_CALCULATED[sign](left, right))
    if sign in _BOUNDED:
        return _BOUNDED[sign](left, right) if 0 <= right <= _MOST_SHIFTED else None
    if sign not in ("/", "%") or right == 0:
        return None
    quotient = abs(left) // abs(right) * (1 if (left < 0) == (right < 0) else -1)
    return quotient if sign == "/" else left - quotient * right


_CALCULATED: dict[str, Callable[[int, int], int]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "&": operator.and_, "|": operator.or_, "^": operator.xor,
    "<": operator.lt, ">": operator.gt, "<=": operator.le, ">=": operator.ge, "==": operator.eq, "!=": operator.ne,
    "&&": lambda left, right: bool(left and right), "||": lambda left, right: bool(left or right),
}  # fmt: skip
_BOUNDED: dict[str, Callable[[int, int], int]] = {"**": operator.pow, "<<": operator.lshift, ">>": operator.rshift}
