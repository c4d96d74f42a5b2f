"""The crosscheck of the parser with bashlex: a script with parts that bashlex finds and the tree lacks becomes Opaque.

bashlex does not find everything, but it shares no code with the parser. A script that bashlex refuses is accepted. For
plain scripts `plain_scan.py` returns what bashlex would report; other scripts are passed to bashlex itself, which is
slow. This is the only module that imports bashlex, and only when a script needs it.
"""

import importlib
import importlib.machinery
import importlib.util
import re
import sys
import threading
from functools import cache
from types import SimpleNamespace
from typing import Any, Final

from policy.bash import ast, bashlex_tables
from policy.bash.ast import Opaque, Script, nodes
from policy.bash.plain_scan import Found, scan_plain
from policy.model.abstract_word import SourceSpan
from policy.model.digest import sha256_hex

_KIND_NAMES: Final = {
    "command": "a command", "word": "a word", "assignment": "an assignment", "redirect": "a redirection",
    "commandsubstitution": "a command substitution", "processsubstitution": "a process substitution",
    "compound": "a compound command", "function": "a function",
}  # fmt: skip

# Line continuations times literal texts of a script that is compared again without its continuations (about 0.2 s).
_MOST_COMPARED: Final = 5_000_000

_KINDS: Final = {
    **dict.fromkeys((ast.Word, ast.Assignment, ast.ArrayAssignment), "word"),
    **dict.fromkeys((ast.Group, ast.Subshell, ast.For, ast.Loop, ast.Case, ast.While, ast.If), "compound"),
    **dict.fromkeys((ast.Test, ast.Compute), "compound"),
    **{ast.Command: "command", ast.Function: "function", ast.Redirect: "redirect"},
    **{ast.Substitution: "substitution", ast.Text: "text"},
}


def find_disagreement(text: str, tree: Script) -> Opaque | None:
    """Return Opaque if bashlex reports a command, word, substitution or redirection of `text` that `tree` lacks, else
    None.
    """
    index = _TreeIndex(tree)
    if index.variables:  # bashlex takes the `{name}` of `{name}>` for a word
        pieces = list(text)
        for span in index.variables:
            pieces[span.start : span.end] = " " * (span.end - span.start)
        text = "".join(pieces)
    found = scan_plain(text)
    if found is not None:
        return _first_missing(found, text, index)
    try:
        with _loading:
            package = _bashlex()
    except Exception as error:  # SEAM: for any cause, a missing second parser must not look like one without findings
        return Opaque(f"the second parser (bashlex) does not start: {error}", SourceSpan(0, len(text)))
    missing = _missing_for_bashlex(package, text, text, index)
    continued = text.count("\\\n") if missing is not None else 0
    if continued and continued * len(index.texts) <= _MOST_COMPARED:
        # bashlex reports wrong positions after a line continuation inside a substitution: try again without them.
        joined = _without_continuations(text, index.texts)
        missing = _missing_for_bashlex(package, joined, text, index) if joined != text else missing
    return missing


def _missing_for_bashlex(package: Any, asked: str, text: str, index: "_TreeIndex") -> Opaque | None:
    found: list[Found] = []
    try:
        for part in package.parse(asked):
            _report(part, found)
    except Exception:
        # SEAM: bashlex raises exceptions of every kind (RecursionError, too) for text that it cannot read.
        return None
    return _first_missing(found, text, index)


def _first_missing(found: list[Found], text: str, index: "_TreeIndex") -> Opaque | None:
    """Return Opaque for the first finding that the tree lacks, or None."""
    bodies = [(start, text.find("\n", end) % (len(text) + 1)) for start, end in index.bodies]
    known = index.words
    for kind, start, end in found:
        if kind == "word" and (start, end) in known:  # nearly every finding
            continue
        if index.has(kind, start, end) or any(first <= start <= last for first, last in bodies):
            continue
        if any(place.start <= start and end <= place.end for place in index.arithmetic):
            continue
        first, last = min(start, len(text)), min(max(start, end), len(text))
        words = " ".join(text[first:last].split())[:60]
        kind_name = _KIND_NAMES[kind]
        return Opaque(
            f"the second parser finds {kind_name} that the first does not: `{words}`", SourceSpan(first, last)
        )
    return None


def _report(node: Any, found: list[Found]) -> None:  # bashlex has no types
    """Append everything that, according to bashlex, would be run, read or written to `found`, as kind and range."""
    kind = node.kind
    if kind in _KIND_NAMES:
        found.append((kind, *node.pos))
    if kind == "redirect":
        # The delimiter of a here-document is no word of the tree. A descriptor (`2>&1`) is a number, not a node.
        if hasattr(node.output, "kind") and node.type not in ("<<", "<<-"):
            _report(node.output, found)
        return
    parts = list(getattr(node, "parts", ()))
    if kind == "for":
        del parts[1]  # the name of the variable
    elif kind == "function":
        parts = [part for part in parts if part.kind != "word"]  # its name
    for below in (*parts, *getattr(node, "list", ()), *getattr(node, "redirects", ())):
        _report(below, found)
    if hasattr(node, "command"):
        _report(node.command, found)


class _TreeIndex:
    """The nodes of the tree, by their positions."""

    def __init__(self, tree: Script) -> None:
        self.starts: set[tuple[str, int]] = set()
        self.words: set[tuple[int, int]] = set()
        self.arithmetic: list[SourceSpan] = []
        self.bodies: list[tuple[int, int]] = []
        self.texts: list[SourceSpan] = []
        self.variables: list[SourceSpan] = []
        node: Any
        for node in nodes(tree):
            kind = _KINDS.get(type(node))
            if kind == "word":
                self.words.add((node.span.start, node.span.end))
            elif kind == "text":
                self.texts.append(node.span)
            elif kind is not None:
                self._note(kind, node)

    def _note(self, kind: str, node: Any) -> None:
        self.starts.add((kind, node.span.start))
        if kind == "redirect" and node.variable:
            start, end = node.span.start, node.span.start + len(node.variable) + 2
            self.variables.append(SourceSpan(start, end))
            self.starts.add((kind, end))
        if kind == "command" and node.redirects and node.redirects[0].variable:
            self.starts.add((kind, node.redirects[0].span.start + len(node.redirects[0].variable) + 2))
        if kind == "redirect" and node.op is ast.RedirectOp.HERE_DOC:
            self.bodies.append((node.target.span.start, node.target.span.end))
        elif isinstance(node, ast.Compute):
            self.arithmetic.append(node.place)  # bashlex takes it for two subshells

    def has(self, kind: str, start: int, end: int) -> bool:
        if kind in ("word", "assignment"):
            return (start, end) in self.words
        if kind in ("commandsubstitution", "processsubstitution"):
            # Its start in the tree may be the double quote before it. Its end is not compared: bashlex stops at a
            # newline.
            return ("substitution", start) in self.starts or ("substitution", start - 1) in self.starts
        return (kind, start) in self.starts


def _without_continuations(text: str, texts: list[SourceSpan]) -> str:
    """Return `text` with two blanks for each line continuation between words, and two letters for one in literal text;
    all other characters keep their position.
    """
    pieces = list(text)
    for found in re.finditer(r"\\\n", text):
        at = found.start()
        line = text[text.rfind("\n", 0, at) + 1 : at]
        if around := next((span for span in texts if span.start <= at < span.end), None):
            if at + 2 <= around.end:  # else it is an escaped backslash before the end of a line
                pieces[at : at + 2] = "__"
        elif "#" not in line:
            pieces[at : at + 2] = "  "
    return "".join(pieces)


# -- importing bashlex ---------------------------------------------------------------------------------------------

_loading: Final = threading.Lock()


@cache
def _bashlex() -> Any:
    """Import bashlex and patch version 0.18, which loops for ever on a word like `x='${'` and uses ever more memory.

    The caller holds the lock.
    """
    package = _import_bashlex()
    expander: Any = importlib.import_module("bashlex.subst")
    expand = expander._paramexpand

    def expand_forward(parser: Any, text: str, start: int) -> tuple[Any, int]:
        node, after = expand(parser, text, start)
        if after <= start:
            raise ValueError("no way forward")
        return node, after

    expander._paramexpand = expand_forward
    return package


def _import_bashlex() -> Any:
    """Import bashlex with the stored tables, which it would otherwise build at every import (100 ms).

    The tables are used only if the installed sources are exactly those from which the tables were made; otherwise
    bashlex builds its own, which is correct but slower.
    """
    spec = importlib.util.find_spec("bashlex")
    if "bashlex" in sys.modules or spec is None or spec.loader is None or sources_digest() != bashlex_tables.SOURCES:
        return importlib.import_module("bashlex")
    package = importlib.util.module_from_spec(spec)
    sys.modules["bashlex"] = package  # its submodules can now be imported before its own code runs
    try:
        generator: Any = importlib.import_module("bashlex.yacc")
        slow = generator.yacc
        generator.yacc = _parser_from_tables
        try:
            spec.loader.exec_module(package)
        finally:
            generator.yacc = slow
    except Exception:
        # SEAM: for any cause, bashlex can still be imported without the stored tables.
        for name in [name for name in sys.modules if name == "bashlex" or name.startswith("bashlex.")]:
            del sys.modules[name]
        return importlib.import_module("bashlex")
    return package


def sources_digest() -> str:
    """Return the SHA-256 of the sources of the installed bashlex that determine its tables; empty if they cannot be
    read.
    """
    spec = importlib.util.find_spec("bashlex")
    if spec is None or not spec.submodule_search_locations:
        return ""
    if not isinstance(spec.loader, importlib.machinery.SourceFileLoader):
        return ""
    files = [f"{spec.submodule_search_locations[0]}/{name}.py" for name in ("parser", "tokenizer", "yacc")]
    try:
        return sha256_hex(b"".join(map(spec.loader.get_data, files)))
    except OSError:
        return ""


def _parser_from_tables(**_options: object) -> Any:
    """Return a parser from the stored tables. Replaces `bashlex.yacc.yacc` while `bashlex.parser` is imported."""
    generator: Any = sys.modules["bashlex.yacc"]
    grammar = vars(sys.modules["bashlex.parser"])
    productions = []
    for number, line in enumerate(bashlex_tables.PRODUCTIONS.splitlines()):
        function, name, *symbols = line.split(" ")
        production = generator.Production(number, name, symbols, func=None if function == "-" else function)
        production.bind(grammar)
        productions.append(production)
    actions = _rows(bashlex_tables.ACTIONS, bashlex_tables.TERMINALS)
    gotos: dict[int, dict[str, int]] = {state: {} for state in actions}
    gotos |= _rows(bashlex_tables.GOTOS, bashlex_tables.NONTERMINALS)
    tables = SimpleNamespace(lr_productions=productions, lr_action=actions, lr_goto=gotos)
    return generator.LRParser(tables, grammar["p_error"])


def _rows(packed: str, symbols: str) -> dict[int, dict[str, int]]:
    """Return tables by state. A line of `packed` is a state, and each `number:` with the letters of the symbols that
    lead to that number.
    """
    names = dict(zip(bashlex_tables.LETTERS, symbols.split(), strict=False))
    rows: dict[int, dict[str, int]] = {}
    for line in packed.splitlines():
        state, *entries = line.split()
        row = rows[int(state)] = {}
        for entry in entries:
            number, letters = entry.split(":")
            row.update(dict.fromkeys((names[letter] for letter in letters), int(number)))
    return rows
