"""Importer for Codex: `.rules` files with calls of `prefix_rule` with literal arguments."""

import ast
import itertools
import re
import shlex

from policy.model.tier import Ruling
from runner.gate.policy_tools.importers.result import REST, WILD, Carried, Example, Import, Origin, WordChoice
from runner.gate.policy_tools.importers.wildcards import NotWords, literal
from runner.problems import usage

_DECISIONS = {"allow": Ruling.ALLOW, "prompt": Ruling.ASK, "forbidden": Ruling.DENY}
_LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+")
_KEYS = ("pattern", "decision", "justification", "match", "not_match")


_Prefix = tuple[tuple[WordChoice, ...], Ruling]  # the pattern of a rule and its verdict


def read_codex(text: str, source: str) -> Import:
    """Read the file without running any of it. Raises a usage error when it cannot be read as such a file."""
    found = Import(source)
    try:
        module = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        where = f"{source}:{error.lineno}" if isinstance(error, SyntaxError) and error.lineno else source
        fix = "correct the file, or give another --from"
        raise usage(f"{where} cannot be read", "it is not a list of calls", fix) from None
    prefixes: list[_Prefix] = []
    given: list[tuple[Origin, tuple[str, ...]]] = []
    lines = [line.encode() for line in _LINE.findall(text)]
    for statement in module.body:
        origin = Origin(statement.lineno, _segment(lines, statement))
        call = statement.value if isinstance(statement, ast.Expr) else None
        if isinstance(call, ast.Constant):
            continue  # a text as a statement is a comment
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name):
            found.leave(origin, "it is not a call with literal values")
        elif call.func.id == "prefix_rule":
            _prefix_rule(found, origin, call, prefixes, given)
        elif call.func.id == "host_executable":
            why = "programs are found in system folders only, and no rule can list their paths"
            found.leave(origin, why)
        elif call.func.id == "network_rule":
            found.leave(origin, "it allows or denies a host for a proxy; write a rule with `host` instead")
        else:
            found.leave(origin, f"`{call.func.id}` is not a known call")
    beginning: dict[tuple[str, ...], list[_Prefix]] = {}  # by the first two words, or the only one
    for prefix in prefixes:
        for words in itertools.product(*(dict.fromkeys(word) for word in prefix[0][:2])):
            beginning.setdefault(words, []).append(prefix)
    for origin, argv in given:
        near = (*beginning.get(argv[:1], ()), *beginning.get(argv[:2], ())) if argv[1:] else beginning.get(argv, ())
        verdicts = [verdict for pattern, verdict in near if _fits(argv, pattern)]
        if verdicts:  # an example without a rule has no verdict
            found.examples.append(Example(origin, argv, max(verdicts)))
    return found


def _fits(argv: tuple[str, ...], pattern: tuple[WordChoice, ...]) -> bool:
    return len(argv) >= len(pattern) and all(word in wanted for word, wanted in zip(argv, pattern, strict=False))


def _segment(lines: list[bytes], node: ast.stmt) -> str:
    """Return the text of a statement, like `ast.get_source_segment` but without splitting the whole text again."""
    first, last = node.lineno - 1, (node.end_lineno or node.lineno) - 1
    if first == last:
        return lines[first][node.col_offset : node.end_col_offset].decode()
    inner = [lines[first][node.col_offset :], *lines[first + 1 : last], lines[last][: node.end_col_offset]]
    return b"".join(inner).decode()


def _prefix_rule(
    found: Import, origin: Origin, call: ast.Call, prefixes: list[_Prefix], given: list[tuple[Origin, tuple[str, ...]]]
) -> None:
    try:
        if call.args or any(word.arg not in _KEYS for word in call.keywords):
            raise NotWords("it has arguments that are not known")
        values = {word.arg: ast.literal_eval(word.value) for word in call.keywords}
        pattern = _pattern(values.get("pattern"))
        verdict = _DECISIONS.get(values.get("decision", "allow"))
        if verdict is None:
            raise NotWords("its decision is not allow, prompt or forbidden")
        prefixes.append((pattern, verdict))
        for key in ("match", "not_match"):
            for example in values.get(key, ()):
                words = shlex.split(example) if isinstance(example, str) else list(example)
                if words and all(isinstance(word, str) and word.isprintable() for word in words):
                    given.append((Origin(origin.line, shlex.join(words)), tuple(words)))
        for word in pattern:
            literal(list(word), verdict)
        why = values.get("justification", "")
    except NotWords as error:
        found.leave(origin, str(error))
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
        found.leave(origin, "its values are not literals")
    else:
        short = Origin(origin.line, " ".join(origin.text.split()))
        wild = any(char in text for word in pattern for text in word for char in WILD)
        note = "its `*` and `?` match any text here, but were literal characters in the original" if wild else ""
        why = why if isinstance(why, str) else ""
        found.carry(Carried(short, verdict, run=(*pattern, REST), why=why, note=note))


def _pattern(value: object) -> tuple[WordChoice, ...]:
    if not isinstance(value, list) or not value:
        raise NotWords("it has no pattern")
    words: list[WordChoice] = []
    for entry in value:
        alternatives = (entry,) if isinstance(entry, str) else tuple(entry) if isinstance(entry, list) else ()
        if not alternatives or not all(isinstance(text, str) and text for text in alternatives):
            raise NotWords("its pattern is not a list of words")
        words.append(alternatives)
    return tuple(words)
