"""Tests of the language of the source code: docstrings, words, descriptions of packages, names of classes."""

import ast
import re
import tomllib
from pathlib import Path

import pytest

from tests.support.import_graph import imports
from tests.support.language_findings import (
    FRAGMENT,
    PRODUCT,
    REJECTED_WORD,
    findings,
    fragments,
    rejected_words,
)
from tests.support.places import ROOT

PACKAGES = sorted(path for folder in (*PRODUCT, "profiles") for path in (ROOT / folder).rglob("__init__.py"))
START = re.compile(r"\bStart\s+reading\s+at\s+(`[^.]*(?:\.py\b[^.]*)+)")


def test_there_is_no_finding() -> None:
    """`language_findings` gives the reasons, docs/glossary.md the words to use."""
    assert [str(each) for each in findings()] == []


FOUND = [
    ('"""What it does."""', ["docstring"], "a module"),
    ('class A:\n    """As the other."""', ["docstring"], "a class"),
    ('def f():\n    """Whether it is open."""', ["docstring"], "a function"),
    ('async def f():\n    """The same, later."""', ["docstring"], "an asynchronous function"),
    ('def f():\n    """Return True if the log is open."""', [], "an imperative"),
    ('"""Whole logs."""', [], "a longer word"),
    ('"""A talk begins."""', ["word"], "a rejected word in a docstring"),
    ("x = 1  # a\n# a long\n# talk: a\n# talk", ["word"], "in a comment, over the end of a line"),
    ('raise E(f"{x} goes on with {y}")', ["word"], "in a message"),
    ('x = {"lent": 1}', [], "a key is no text"),
    ('"""Read `a talk`."""', [], "code"),
]


@pytest.mark.parametrize(("source", "kinds", "why"), FOUND, ids=[why for *_, why in FOUND])
def test_a_finding_is_found(source: str, kinds: list[str], why: str) -> None:
    tree = ast.parse(source)
    found = [*fragments("a.py", tree), *rejected_words("a.py", source, tree)]
    assert [each.kind for each in found] == kinds, why


def test_the_words_are_read_from_the_glossary() -> None:
    assert FRAGMENT.match("Those that")
    assert REJECTED_WORD.search("Whoever starts a\ntalk")


@pytest.mark.parametrize("path", PACKAGES, ids=lambda path: path.parent.relative_to(ROOT).as_posix())
def test_a_package_says_what_it_imports_and_where_to_start(path: Path) -> None:
    """The docstring has three to six lines, names the packages that it may import, and an existing file to read first."""
    text = ast.get_docstring(ast.parse(path.read_text("utf-8")))
    assert text is not None
    assert 3 <= len(text.split("\n")) <= 6
    assert re.search(r"\b([Mm]ay import|Imports)\b", text), "the packages that may be imported"
    start = START.search(text)
    assert start is not None, "the file to read first"
    names = re.findall(r"`([^`]+\.py)`", start[1])
    assert names
    assert [name for name in names if not (path.parent / name).is_file() and not (ROOT / name).is_file()] == []


def _ranks() -> dict[str, int]:
    """Return the rank of every layer of the contracts in pyproject.toml by its full name; a larger rank is lower."""
    table = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"]
    return {
        f"{container}.{name.strip()}": number
        for contract in table["contracts"]
        for container in contract.get("containers", ())
        for number, layer in enumerate(contract["layers"])
        for name in layer.split("|")
    }


RANKS = _ranks()
MAY_IMPORT = re.compile(r"\b(?:[Mm]ay import|Imports)\b(.*?)\.(?=\s|$)", re.DOTALL)


def _layers(module: str) -> list[str]:
    parts = module.split(".")
    return [name for count in range(2, len(parts) + 1) if (name := ".".join(parts[:count])) in RANKS]


def _is_below(module: str, named: str) -> bool:
    """Return True if `module` is in a layer below that of `named`, in the first container that separates the two."""
    for mine, other in zip(_layers(module), _layers(named), strict=False):
        if mine != other:
            return RANKS[mine] > RANKS[other] and mine.rpartition(".")[0] == other.rpartition(".")[0]
    return False


def undeclared(package: str, text: str, imported: set[str]) -> list[str]:
    """Return those of the `imported` modules of the same program part that the docstring `text` does not permit."""
    said = " ".join(" ".join(MAY_IMPORT.findall(text)).split())
    quoted = [] if said.startswith("nothing") else re.findall(r"`([^`]+)`", said)
    words = [word.rstrip("/").removesuffix(".py").replace("/", ".") for word in quoted]
    parents = [".".join(package.split(".")[:count]) for count in range(package.count(".") + 1, 0, -1)]
    graph = imports()
    modules = graph.keys() | {name.rpartition(".")[0] for name in graph}
    named = [full for word in words for full in (*(f"{each}.{word}" for each in parents), word) if full in modules]
    lower = [*named, package] if "below" in said else []
    return sorted(
        module
        for module in imported
        if module.startswith(f"{package.split('.')[0]}.")
        and not (f"{module}.").startswith(f"{package}.")
        and not any((f"{module}.").startswith(f"{name}.") for name in named)
        and not any(_is_below(module, name) for name in lower)
    )


@pytest.mark.parametrize("path", PACKAGES, ids=lambda path: path.parent.relative_to(ROOT).as_posix())
def test_a_package_imports_only_what_it_says(path: Path) -> None:
    package = ".".join(path.parent.relative_to(ROOT).parts)
    text = ast.get_docstring(ast.parse(path.read_text("utf-8"))) or ""
    graph = imports()
    own = [name for name in graph if f"{name}.".startswith(f"{package}.")]
    inner = {".".join(each.parent.relative_to(ROOT).parts) for each in PACKAGES if each.parent != path.parent}
    inner = {name for name in inner if name.startswith(f"{package}.")}
    mine = [name for name in own if not any(f"{name}.".startswith(f"{each}.") for each in inner)]
    assert undeclared(package, text, {module for name in mine for module in graph[name]}) == []


def test_an_import_that_is_not_named_is_found() -> None:
    assert undeclared("runner.text", "Imports nothing else from `runner`.", {"runner.messages"}) == ["runner.messages"]
    assert undeclared("runner.text", "May import `messages` only.", {"runner.messages", "policy.model.tier"}) == []
    given = {"runner.agent.agent", "runner.frontends.ci.run", "runner.frontends.plain.repl"}
    said = "May import `launch` and everything below it."
    assert undeclared("runner.frontends.batch", said, given) == ["runner.frontends.ci.run"]


@pytest.mark.parametrize(
    ("path", "module"),
    [("frontends/batch/attempt.py", "runner.cli.batch_child"), ("frontends/batch/remote_worker.py", "runner.cli.main")],
)
def test_a_module_that_is_started_by_name_exists(path: str, module: str) -> None:
    inside = f"from {{runner.__name__}}.{module.removeprefix('runner.')} import main;"
    assert inside in (ROOT / "runner" / path).read_text("utf-8")
    tree = ast.parse((ROOT / f"{module.replace('.', '/')}.py").read_text("utf-8"))
    assert "main" in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


RULES = [*sorted((ROOT / "policy" / "commands").glob("*.toml")), *sorted((ROOT / "profiles").rglob("*.toml"))]


@pytest.mark.parametrize("path", RULES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_no_rule_file_uses_a_rejected_word(path: Path) -> None:
    text = path.read_text("utf-8")
    hits = [(text[: hit.start()].count("\n") + 1, hit[0]) for hit in REJECTED_WORD.finditer(text)]
    assert hits == []
