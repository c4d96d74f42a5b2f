"""Tests of the language of the source code: docstrings, words, descriptions of packages, names of classes."""

import ast
import re
from pathlib import Path

import pytest

from tests.support.language_findings import (
    FRAGMENT,
    PRODUCT,
    REJECTED_WORD,
    findings,
    fragments,
    rejected_words,
)
from tests.support.places import ROOT

PACKAGES = sorted(path for folder in PRODUCT for path in (ROOT / folder).rglob("__init__.py"))
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


RULES = [*sorted((ROOT / "policy" / "commands").glob("*.toml")), *sorted((ROOT / "profiles").rglob("*.toml"))]


@pytest.mark.parametrize("path", RULES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_no_rule_file_uses_a_rejected_word(path: Path) -> None:
    text = path.read_text("utf-8")
    hits = [(text[: hit.start()].count("\n") + 1, hit[0]) for hit in REJECTED_WORD.finditer(text)]
    assert hits == []
