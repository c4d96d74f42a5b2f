"""Tests of the language of pages and help texts: no word that docs/glossary.md rejects, and lines of at most 120
columns.
"""

import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from runner.cli.app import whole_command
from runner.frontends.slash.registry import COMMANDS
from tests.support.language_findings import REJECTED, REJECTED_WORD
from tests.support.places import ROOT

PAGES = [
    *(ROOT / name for name in ("README.md", "SECURITY.md", "CONTRIBUTING.md", "CHANGELOG.md", "tests/README.md")),
    *(
        page
        for page in sorted(ROOT.glob("docs/**/*.md"))
        if page.name not in ("glossary.md", "commands.md", "threat-tests.md")
    ),
]


def prose(text: str) -> str:
    """Return Markdown without code, generated tables and quoted output of the program."""
    text = re.sub(r"```.*?```|<!-- (\w+): .*?<!-- end of the \1 -->", "", text, flags=re.DOTALL)
    return re.sub(r"^    .*$|``.+?``|`[^`]*`", "", text, flags=re.MULTILINE)


def test_the_glossary_lists_the_words() -> None:
    assert len(REJECTED) >= 12
    assert REJECTED_WORD.search("Whoever starts a\ntalk") is not None


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_no_page_uses_a_rejected_word(page: Path) -> None:
    text = prose(page.read_text("utf-8"))
    found = [(text.count("\n", 0, hit.start()) + 1, hit[0]) for hit in REJECTED_WORD.finditer(text)]
    assert found == [], "docs/glossary.md names the word to use"


def helps(command: click.Command, name: str) -> Iterator[tuple[str, str]]:
    yield name, command.help or ""
    for parameter in command.params:
        yield f"{name} {parameter.opts[0]}", getattr(parameter, "help", None) or ""
    for word, below in getattr(command, "commands", {}).items():
        yield from helps(below, f"{name} {word}")


def test_no_help_text_uses_a_rejected_word() -> None:
    texts = [*helps(whole_command(), "agent"), *((one.name, one.summary) for one in COMMANDS)]
    assert len(texts) > 200
    assert [(name, hit[0]) for name, text in texts for hit in [REJECTED_WORD.search(text)] if hit] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_prose_is_wrapped_at_120_columns(page: Path) -> None:
    """A row of a table, a heading and a line of code stay on their line."""
    text = re.sub(r"```.*?```", lambda block: "\n" * block[0].count("\n"), page.read_text("utf-8"), flags=re.DOTALL)
    long = [number for number, line in enumerate(text.split("\n"), 1) if len(line) > 120 and line[:1] not in "|#![<"]
    assert long == []
