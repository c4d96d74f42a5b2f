"""The printer of trees: one indented line for each command, redirection and substitution. The text is safe to print
anywhere.
"""

import re
from collections.abc import Iterable
from typing import assert_never

from policy.bash import ast
from policy.bash.ast import Script, Word, find_outputs

_INDENT = "  "
_BARE = re.compile(r"[A-Za-z0-9_./:,=@%+^{}\[\]!#*?~-]+")
_LIVE = re.compile(r"[\[\]{}*?~#!^]")
_OPENING = {"command": "$(", "process-in": "<(", "process-out": ">("}


def show(tree: Script) -> str:
    """Return the tree as text, one line for each node, without a final newline; control characters are escaped."""
    lines: list[str] = []
    _script(tree, "", lines)
    return "\n".join(lines)


def _script(script: Script, indent: str, lines: list[str]) -> None:
    if not script.items:
        lines.append(f"{indent}nothing")
    joint = ""
    for item in script.items:
        first = len(lines)
        _node(item.node, indent, lines)
        lines[first] = f"{indent}{joint}{lines[first][len(indent) :]}{' &' if item.then == '&' else ''}"
        joint = f"{item.then} " if item.then in ("&&", "||") else ""


def _node(node: ast.Node, indent: str, lines: list[str]) -> None:
    deeper = indent + _INDENT
    match node:
        case ast.Command():
            lines.append(
                f"{indent}command {' '.join((*map(_assignment, node.assignments), *map(_word, node.words)))}".rstrip()
            )
            for item in node.assignments:
                _inside(item.items if isinstance(item, ast.ArrayAssignment) else (item.value,), deeper, lines)
            _inside(node.words, deeper, lines)
        case ast.Function():
            lines.append(f"{indent}function {node.name}")
            _node(node.body, deeper, lines)
            return
        case ast.Pipeline():
            marks = (("time", node.timed), ("not", node.negated), ("pipeline", len(node.commands) > 1))
            lines.append(f"{indent}{' '.join(word for word, holds in marks if holds)}")
            for command in node.commands:
                _node(command, deeper, lines)
            return
        case ast.Group() | ast.Subshell():
            lines.append(f"{indent}{'group' if isinstance(node, ast.Group) else 'subshell'}")
            _script(node.body, deeper, lines)
        case ast.For():
            words = None if node.words is None else " ".join(("", *map(_word, node.words)))
            lines.append(f"{indent}for {node.name}{' in' + words if words is not None else ''}")
            _inside(node.words or (), deeper, lines)
        case ast.Case():
            lines.append(f"{indent}case {_word(node.word)}")
            _inside((node.word,), deeper, lines)
            for branch in node.branches:
                lines.append(f"{indent}when {' or '.join(map(_word, branch.patterns))}")
                _inside(branch.patterns, deeper, lines)
                _script(branch.body, deeper, lines)
        case ast.Loop():
            heads = (node.first, node.condition, node.step)
            lines.append(f"{indent}for (({'; '.join('' if each is None else _expression(each) for each in heads)}))")
            for each in heads:
                if each is not None:
                    _outputs(each, deeper, lines)
        case ast.Test():
            lines.append(f"{indent}test {' '.join(map(_condition, node.pieces))}")
            for piece in node.pieces:
                if isinstance(piece, ast.Condition):
                    _inside(piece.words, deeper, lines)
        case ast.Compute():
            lines.append(f"{indent}compute {_expression(node.expression)}")
            _outputs(node.expression, deeper, lines)
        case ast.While():
            lines.append(f"{indent}{'until' if node.until else 'while'}")
            _script(node.condition, deeper, lines)
        case ast.If():
            for number, (condition, body) in enumerate(node.branches):
                lines.append(f"{indent}{'elif' if number else 'if'}")
                _script(condition, deeper, lines)
                lines.append(f"{indent}then")
                _script(body, deeper, lines)
            if node.otherwise is not None:
                lines.append(f"{indent}else")
                _script(node.otherwise, deeper, lines)
        case never:
            assert_never(never)
    if isinstance(node, (ast.For, ast.Loop, ast.While)):
        lines.append(f"{indent}do")
        _script(node.body, deeper, lines)
    for redirect in node.redirects:
        _redirect(redirect, deeper, lines)


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


def _redirect(redirect: ast.Redirect, indent: str, lines: list[str]) -> None:
    fd = "" if redirect.fd is None else str(redirect.fd)
    if redirect.variable:
        fd = f"{{{redirect.variable}}}"
    if redirect.op is ast.RedirectOp.HERE_DOC:
        text = redirect.target.literal
        count = 0 if text is None else text.count("\n")
        body = "text that depends on the moment" if text is None else f"{count} line{'' if count == 1 else 's'}"
        lines.append(f"{indent}{fd}<< {body}")
    else:
        glue = "" if redirect.op in (ast.RedirectOp.DUP_IN, ast.RedirectOp.DUP_OUT) else " "
        lines.append(f"{indent}{fd}{redirect.op}{glue}{_word(redirect.target)}")
    _inside((redirect.target,), indent + _INDENT, lines)


def _inside(words: Iterable[Word], indent: str, lines: list[str]) -> None:
    for word in words:
        for part in word.parts:
            if isinstance(part, ast.Substitution):
                _substitution(part, indent, lines)
            elif isinstance(part, ast.Arithmetic):
                _outputs(part.expression, indent, lines)
            elif isinstance(part, ast.Expansion):
                _inside(part.words, indent, lines)


def _outputs(expression: ast.Expression, indent: str, lines: list[str]) -> None:
    for part in find_outputs(expression):
        _substitution(part, indent, lines)


def _substitution(part: ast.Substitution, indent: str, lines: list[str]) -> None:
    lines.append(f"{indent}inside {_OPENING[part.kind]}..)")
    _script(part.body, indent + _INDENT, lines)


def _word(word: Word) -> str:
    parts = word.parts
    if len(parts) == 1 and isinstance(parts[0], ast.Text):
        return _text(parts[0])  # nearly every word
    return "".join(map(_part, parts))


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
