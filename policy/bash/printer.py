"""The printer of trees: one indented line for each command, redirection and substitution. The text is safe to print
anywhere.
"""

import re
from collections.abc import Iterator
from typing import assert_never

from policy.bash.ast import (
    Arithmetic,
    ArrayAssignment,
    Assignment,
    Case,
    Change,
    Command,
    Compute,
    Condition,
    Count,
    Expansion,
    Expression,
    For,
    Function,
    Glob,
    Group,
    If,
    Joint,
    Loop,
    Name,
    Node,
    Number,
    Operation,
    Output,
    Parameter,
    Part,
    Pipeline,
    Redirect,
    RedirectOp,
    Script,
    Subshell,
    Substitution,
    Test,
    Text,
    Tilde,
    While,
    Word,
    outputs,
)

_INDENT = "  "
_BARE = re.compile(r"[A-Za-z0-9_./:,=@%+^{}\[\]!#*?~-]+")
_LIVE = re.compile(r"[\[\]{}*?~#!^]")
_OPENING = {"command": "$(", "process-in": "<(", "process-out": ">("}


def show(tree: Script) -> str:
    """Return the tree as text, one line for each node, without a final newline; control characters are escaped."""
    return "\n".join(_script(tree, ""))


def _script(script: Script, indent: str) -> Iterator[str]:
    if not script.items:
        yield f"{indent}nothing"
    joint = ""
    for item in script.items:
        lines = _node(item.node, indent)
        first = next(lines)
        yield f"{indent}{joint}{first[len(indent) :]}{' &' if item.then == '&' else ''}"
        yield from lines
        joint = f"{item.then} " if item.then in ("&&", "||") else ""


def _node(node: Node, indent: str) -> Iterator[str]:
    deeper = indent + _INDENT
    match node:
        case Command():
            yield f"{indent}command {' '.join((*map(_assignment, node.assignments), *map(_word, node.words)))}".rstrip()
            for item in node.assignments:
                for word in item.items if isinstance(item, ArrayAssignment) else (item.value,):
                    yield from _inside(word, deeper)
            for word in node.words:
                yield from _inside(word, deeper)
        case Function():
            yield f"{indent}function {node.name}"
            yield from _node(node.body, deeper)
            return
        case Pipeline():
            yield f"{indent}{_pipeline(node)}"
            for command in node.commands:
                yield from _node(command, deeper)
            return
        case Group() | Subshell():
            yield f"{indent}{'group' if isinstance(node, Group) else 'subshell'}"
            yield from _script(node.body, deeper)
        case For():
            words = None if node.words is None else " ".join(("", *map(_word, node.words)))
            yield f"{indent}for {node.name}{' in' + words if words is not None else ''}"
            for word in node.words or ():
                yield from _inside(word, deeper)
            yield f"{indent}do"
            yield from _script(node.body, deeper)
        case Case():
            yield f"{indent}case {_word(node.word)}"
            yield from _inside(node.word, deeper)
            for branch in node.branches:
                yield f"{indent}when {' or '.join(map(_word, branch.patterns))}"
                for word in branch.patterns:
                    yield from _inside(word, deeper)
                yield from _script(branch.body, deeper)
        case Loop():
            heads = [("" if each is None else _expression(each)) for each in (node.first, node.condition, node.step)]
            yield f"{indent}for (({'; '.join(heads)}))"
            for each in (node.first, node.condition, node.step):
                for output in () if each is None else outputs(each):
                    yield from _substitution(output, deeper)
            yield f"{indent}do"
            yield from _script(node.body, deeper)
        case Test():
            yield f"{indent}test {' '.join(map(_condition, node.pieces))}"
            for piece in node.pieces:
                for word in piece.words if isinstance(piece, Condition) else ():
                    yield from _inside(word, deeper)
        case Compute():
            yield f"{indent}compute {_expression(node.expression)}"
            for output in outputs(node.expression):
                yield from _substitution(output, deeper)
        case While():
            yield f"{indent}{'until' if node.until else 'while'}"
            yield from _script(node.condition, deeper)
            yield f"{indent}do"
            yield from _script(node.body, deeper)
        case If():
            for number, (condition, body) in enumerate(node.branches):
                yield f"{indent}{'elif' if number else 'if'}"
                yield from _script(condition, deeper)
                yield f"{indent}then"
                yield from _script(body, deeper)
            if node.otherwise is not None:
                yield f"{indent}else"
                yield from _script(node.otherwise, deeper)
        case never:
            assert_never(never)
    for redirect in node.redirects:
        yield from _redirect(redirect, deeper)


def _pipeline(node: Pipeline) -> str:
    said = (("time", node.timed), ("not", node.negated), ("pipeline", len(node.commands) > 1))
    return " ".join(word for word, holds in said if holds)


def _assignment(item: Assignment | ArrayAssignment) -> str:
    value = f"({' '.join(map(_word, item.items))})" if isinstance(item, ArrayAssignment) else _word(item.value)
    return f"{item.name}{'+' if item.append else ''}={value}"


def _redirect(redirect: Redirect, indent: str) -> Iterator[str]:
    fd = "" if redirect.fd is None else str(redirect.fd)
    if redirect.op is RedirectOp.HERE_DOC:
        text = redirect.target.literal
        lines = 0 if text is None else text.count("\n")
        said = "text that depends on the moment" if text is None else f"{lines} line{'' if lines == 1 else 's'}"
        yield f"{indent}{fd}<< {said}"
    else:
        glue = "" if redirect.op in (RedirectOp.DUP_IN, RedirectOp.DUP_OUT) else " "
        yield f"{indent}{fd}{redirect.op}{glue}{_word(redirect.target)}"
    yield from _inside(redirect.target, indent + _INDENT)


def _inside(word: Word, indent: str) -> Iterator[str]:
    for part in word.parts:
        if isinstance(part, Substitution):
            yield from _substitution(part, indent)
        elif isinstance(part, Arithmetic):
            for output in outputs(part.expression):
                yield from _substitution(output, indent)
        elif isinstance(part, Expansion):
            for inner in part.words:
                yield from _inside(inner, indent)


def _substitution(part: Substitution, indent: str) -> Iterator[str]:
    yield f"{indent}inside {_OPENING[part.kind]}..)"
    yield from _script(part.body, indent + _INDENT)


def _word(word: Word) -> str:
    return "".join(map(_part, word.parts))


def _part(part: Part) -> str:
    match part:
        case Text():
            return _text(part)
        case Parameter():
            spelled = f"${{{'#' if part.length else ''}{part.name}{_subscript(part.subscript)}}}"
            return f'"{spelled}"' if part.quoted else spelled
        case Expansion():
            inner = ("/" if part.operator[0] == "/" else ":").join(map(_word, part.words))
            spelled = f"${{{part.name}{_subscript(part.subscript)}{part.operator}{inner}}}"
            return f'"{spelled}"' if part.quoted else spelled
        case Arithmetic():
            spelled = f"$(({_expression(part.expression)}))"
            return f'"{spelled}"' if part.quoted else spelled
        case Substitution():
            spelled = f"{_OPENING[part.kind]}..)"
            return f'"{spelled}"' if part.quoted else spelled
        case Glob():
            return part.text
        case Tilde():
            return f"~{part.user}"
        case never:
            assert_never(never)


def _condition(piece: Condition | Joint) -> str:
    if not isinstance(piece, Condition):
        return piece
    words = [_word(word) for word in piece.words]
    if not piece.operator:
        return words[0]
    return f"{piece.operator} {words[0]}" if len(words) == 1 else f"{words[0]} {piece.operator} {words[1]}"


def _expression(expression: Expression) -> str:
    match expression:
        case Number():
            return str(expression.value)
        case Count():
            return expression.spelled
        case Name():
            return expression.name
        case Output():
            return "$(..)"
        case Change():
            right = "" if expression.operand is None else f" {_expression(expression.operand)}"
            return f"{expression.name}{' ' if right else ''}{expression.operator}{right}"
        case Operation():
            operands = [
                f"({_expression(each)})" if isinstance(each, (Operation, Change)) else _expression(each)
                for each in expression.operands
            ]
            match expression.operator, operands:
                case operator, [one]:
                    return operator + one
                case "?:", [condition, yes, no]:
                    return f"{condition} ? {yes} : {no}"
                case ",", _:
                    return ", ".join(operands)
                case operator, _:
                    return f" {operator} ".join(operands)
        case never:
            assert_never(never)


def _subscript(subscript: str) -> str:
    return f"[{subscript}]" if subscript else ""


def _text(part: Text) -> str:
    text = part.text
    if _BARE.fullmatch(text) and not (part.quoted and _LIVE.search(text)):
        return text
    if text.isprintable():
        return "'" + text.replace("'", "'\\''") + "'" if text or part.quoted else ""
    return "$'" + "".join(map(_escaped, text)) + "'"


def _escaped(character: str) -> str:
    if character in "\\'":
        return "\\" + character
    if character.isprintable():
        return character
    return {"\n": "\\n", "\t": "\\t"}.get(character, f"\\x{ord(character):02x}")
