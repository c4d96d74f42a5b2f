"""The printer of trees: one indented line for each command, redirection and substitution. The text is safe to print
anywhere.
"""

import re
from collections.abc import Iterable, Iterator
from typing import assert_never

from policy.bash import ast
from policy.bash.ast import Script, Word, find_outputs

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


def _node(node: ast.Node, indent: str) -> Iterator[str]:
    deeper = indent + _INDENT
    match node:
        case ast.Command():
            yield f"{indent}command {' '.join((*map(_assignment, node.assignments), *map(_word, node.words)))}".rstrip()
            for item in node.assignments:
                yield from _inside(item.items if isinstance(item, ast.ArrayAssignment) else (item.value,), deeper)
            yield from _inside(node.words, deeper)
        case ast.Function():
            yield f"{indent}function {node.name}"
            yield from _node(node.body, deeper)
            return
        case ast.Pipeline():
            marks = (("time", node.timed), ("not", node.negated), ("pipeline", len(node.commands) > 1))
            yield f"{indent}{' '.join(word for word, holds in marks if holds)}"
            for command in node.commands:
                yield from _node(command, deeper)
            return
        case ast.Group() | ast.Subshell():
            yield f"{indent}{'group' if isinstance(node, ast.Group) else 'subshell'}"
            yield from _script(node.body, deeper)
        case ast.For():
            words = None if node.words is None else " ".join(("", *map(_word, node.words)))
            yield f"{indent}for {node.name}{' in' + words if words is not None else ''}"
            yield from _inside(node.words or (), deeper)
        case ast.Case():
            yield f"{indent}case {_word(node.word)}"
            yield from _inside((node.word,), deeper)
            for branch in node.branches:
                yield f"{indent}when {' or '.join(map(_word, branch.patterns))}"
                yield from _inside(branch.patterns, deeper)
                yield from _script(branch.body, deeper)
        case ast.Loop():
            heads = (node.first, node.condition, node.step)
            yield f"{indent}for (({'; '.join('' if each is None else _expression(each) for each in heads)}))"
            for each in heads:
                yield from () if each is None else _outputs(each, deeper)
        case ast.Test():
            yield f"{indent}test {' '.join(map(_condition, node.pieces))}"
            for piece in node.pieces:
                yield from _inside(piece.words, deeper) if isinstance(piece, ast.Condition) else ()
        case ast.Compute():
            yield f"{indent}compute {_expression(node.expression)}"
            yield from _outputs(node.expression, deeper)
        case ast.While():
            yield f"{indent}{'until' if node.until else 'while'}"
            yield from _script(node.condition, deeper)
        case ast.If():
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
    if isinstance(node, (ast.For, ast.Loop, ast.While)):
        yield f"{indent}do"
        yield from _script(node.body, deeper)
    for redirect in node.redirects:
        yield from _redirect(redirect, deeper)


def _assignment(item: ast.Assignment | ast.ArrayAssignment) -> str:
    if isinstance(item, ast.ArrayAssignment) and item.index is not None:
        return f"{item.name}[{_index(item.index)}]{'+' if item.append else ''}={_word(item.items[0])}"
    if isinstance(item, ast.ArrayAssignment):
        places = item.places or (None,) * len(item.items)
        texts = (
            _word(word) if place is None else f"[{_index(place)}]={_word(word)}"
            for word, place in zip(item.items, places, strict=True)
        )
        value = f"({' '.join(texts)})"
    else:
        value = _word(item.value)
    return f"{item.name}{'+' if item.append else ''}={value}"


def _redirect(redirect: ast.Redirect, indent: str) -> Iterator[str]:
    fd = "" if redirect.fd is None else str(redirect.fd)
    if redirect.variable:
        fd = f"{{{redirect.variable}}}"
    if redirect.op is ast.RedirectOp.HERE_DOC:
        text = redirect.target.literal
        lines = 0 if text is None else text.count("\n")
        body = "text that depends on the moment" if text is None else f"{lines} line{'' if lines == 1 else 's'}"
        yield f"{indent}{fd}<< {body}"
    else:
        glue = "" if redirect.op in (ast.RedirectOp.DUP_IN, ast.RedirectOp.DUP_OUT) else " "
        yield f"{indent}{fd}{redirect.op}{glue}{_word(redirect.target)}"
    yield from _inside((redirect.target,), indent + _INDENT)


def _inside(words: Iterable[Word], indent: str) -> Iterator[str]:
    for part in (part for word in words for part in word.parts):
        if isinstance(part, ast.Substitution):
            yield from _substitution(part, indent)
        elif isinstance(part, ast.Arithmetic):
            yield from _outputs(part.expression, indent)
        elif isinstance(part, ast.Expansion):
            yield from _inside(part.words, indent)


def _outputs(expression: ast.Expression, indent: str) -> Iterator[str]:
    for part in find_outputs(expression):
        yield from _substitution(part, indent)


def _substitution(part: ast.Substitution, indent: str) -> Iterator[str]:
    yield f"{indent}inside {_OPENING[part.kind]}..)"
    yield from _script(part.body, indent + _INDENT)


def _word(word: Word) -> str:
    return "".join(map(_part, word.parts))


def _part(part: ast.Part) -> str:
    match part:
        case ast.Text():
            return _text(part)
        case ast.Parameter():
            spelled = f"${{{'#' if part.length else ''}{part.name}{_subscript(part.subscript)}}}"
        case ast.Expansion():
            place = f"[{_index(part.index)}]" if part.index is not None else _subscript(part.subscript)
            inner = ("/" if part.operator[0] == "/" else ":").join(map(_word, part.words))
            spelled = f"${{{part.name}{place}{part.operator}{inner}}}"
            if part.operator == "[":
                spelled = f"${{{part.name}{place}}}"
            elif part.operator == "!":
                spelled = f"${{!{part.name}{place}}}"
        case ast.Arithmetic():
            spelled = f"$(({_expression(part.expression)}))"
        case ast.Substitution():
            spelled = f"{_OPENING[part.kind]}..)"
        case ast.Glob():
            return part.text
        case ast.Tilde():
            return f"~{part.user}"
        case never:
            assert_never(never)
    return f'"{spelled}"' if part.quoted else spelled


def _condition(piece: ast.Condition | ast.TestOperator) -> str:
    if not isinstance(piece, ast.Condition):
        return piece
    words = [_word(word) for word in piece.words]
    if not piece.operator:
        return words[0]
    return f"{piece.operator} {words[0]}" if len(words) == 1 else f"{words[0]} {piece.operator} {words[1]}"


def _expression(expression: ast.Expression) -> str:
    match expression:
        case ast.Number():
            return str(expression.value)
        case ast.Count():
            return expression.spelled
        case ast.Name():
            return expression.name
        case ast.Output():
            return "$(..)"
        case ast.ArithmeticAssignment():
            right = "" if expression.operand is None else f" {_expression(expression.operand)}"
            return f"{expression.name}{' ' if right else ''}{expression.operator}{right}"
        case ast.Operation():
            operands = []
            for each in expression.operands:
                inner = isinstance(each, (ast.Operation, ast.ArithmeticAssignment))
                operands.append(f"({_expression(each)})" if inner else _expression(each))
            if len(operands) == 1:
                return expression.operator + operands[0]
            if expression.operator == "?:":
                return "{} ? {} : {}".format(*operands)
            return (", " if expression.operator == "," else f" {expression.operator} ").join(operands)
        case never:
            assert_never(never)


def _index(index: ast.Subscript) -> str:
    if index.key is not None:
        return _word(index.key)
    return "" if index.number is None else _expression(index.number)


def _subscript(subscript: str) -> str:
    return f"[{subscript}]" if subscript else ""


def _text(part: ast.Text) -> str:
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
