"""Tests of rule files as tables: the fast reader agrees with TOML and reads only the requested table."""

import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policy.rules import rule_file
from policy.rules.rule_file import Chunk, chunks
from policy.rules.rulebook import RuleBook
from tests.support.places import ROOT

FILES = {path.name: path.read_text("utf-8") for path in sorted((ROOT / "policy" / "commands").glob("*.toml"))}
CHUNKS = [chunk for name, text in FILES.items() for chunk in chunks(text, name)]


def by_toml(text: str) -> dict[str, object] | None:
    """The one table of a text as the standard library reads it; None when it is not TOML."""
    try:
        whole = tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return None
    (table,) = whole.values()
    return table if isinstance(table, dict) else None


@pytest.mark.parametrize("name", FILES)
def test_every_shipped_table_is_what_toml_says(name: str) -> None:
    tables = [chunk for chunk in CHUNKS if chunk.file == name]
    lines = FILES[name].split("\n")
    assert [chunk.line for chunk in tables if chunk.table() != by_toml(chunk.text)] == []
    assert [chunk.line for chunk in tables if lines[chunk.line - 1] != chunk.text.split("\n")[0]] == []
    assert tables


def test_hardly_a_shipped_table_needs_the_toml_parser() -> None:
    """It takes 20 times as long, when a user waits for a decision."""
    slow = [f"{chunk.file}:{chunk.line}" for chunk in CHUNKS if rule_file._simple(chunk.text) is None]
    assert len(slow) <= len(CHUNKS) // 50, slow


SIMPLE = (
    ('[a]\nb = "c"\n', {"b": "c"}),
    ('["a b"] # c\n\n# d\nb="c"# e\n', {"b": "c"}),
    ('[a]\nb = ""\nc = true\nd = false', {"b": "", "c": True, "d": False}),
    ('[a]\nb = """\n-a\n-c"""\n', {"b": "-a\n-c"}),
    ('[a]\nb = "x # y"\n', {"b": "x # y"}),
    ("[a]", {}),
)


@pytest.mark.parametrize(("text", "table"), SIMPLE)
def test_simple_tables(text: str, table: dict[str, object]) -> None:
    assert rule_file._simple(text) == table == by_toml(text)


NOT_SIMPLE = (
    ('[a]\nb = "c\\n"\n', "an escape"),
    ("[a]\nb = 'c'\n", "another kind of quotes"),
    ('[a]\nb = ["c"]\n', "a list"),
    ("[a]\nb = 1\n", "a number"),
    ('[a]\nb.c = "d"\n', "a dotted key"),
    ('[a.b]\nc = "d"\n', "a table in a table"),
    ('[a]\nb = "c"\nb = "d"\n', "a key twice, which is an error"),
    ('[a]\nb = "c" d = "e"\n', "two on a line, likewise"),
    ('[a]\nb = """c""""\n', "a quote before the end"),
    ('[[a]]\nb = "c"\n', "a table of a list"),
    ("[a]\nb = \n", "no value"),
    ('[a]\nb = "c', "no end"),
    ('[a]\nb = "\x01"\n', "a control character"),
    ('[a]\rb = "c"\n', "an end of line that TOML does not know"),
)


@pytest.mark.parametrize(("text", "why"), NOT_SIMPLE, ids=[row[1] for row in NOT_SIMPLE])
def test_what_is_not_simple_is_left_to_the_toml_parser(text: str, why: str) -> None:
    assert rule_file._simple(text) is None, why


_LINES = st.one_of(
    st.sampled_from(
        ['a = "b"', "c = true", "d=false", "# e", "", " ", '\te = ""', 'f = """', '"""', "g = 'h'", "a = 1"]
    ),
    st.text("ab =\"'#\\[]\t\n\r\x00true", max_size=12),
)


@given(st.lists(_LINES, max_size=6))
def test_the_short_way_never_says_anything_but_toml(lines: list[str]) -> None:
    text = "[x]\n" + "\n".join(lines)
    found = rule_file._simple(text)
    if found is not None:
        assert found == by_toml(text)


def test_only_what_is_asked_for_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """A count of the work: the tables read for a program with 100 subcommands, and for one of these."""
    read: list[tuple[str, ...]] = []
    original = Chunk.table

    def counted(chunk: Chunk) -> dict[str, object]:
        read.append(chunk.words)
        return original(chunk)

    monkeypatch.setattr(Chunk, "table", counted)
    book = RuleBook(FILES)
    assert read == []
    git = book.find("git")
    assert git is not None
    assert len(git.subs) > 50
    assert set(read) == {("sets",), ("git",)}
    assert git.subs["log"] is git.subs["log"]
    assert set(read) == {("sets",), ("git",), ("git", "log")}
    assert len(read) == 3
