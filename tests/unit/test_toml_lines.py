"""Tests of the lines of keys and tables of a TOML text."""

import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policy.toml.lines import array_entries, line_of, lines_of, statements

# fmt: off
TEXTS: list[tuple[str, str, dict[tuple[str, ...], int]]] = [
    ("keys",               "a = 1\nb = 2\n",                        {("a",): 1, ("b",): 2}),
    ("table",              "[t]\na = 1\n",                          {("t",): 1, ("t", "a"): 2}),
    ("dotted",             "a.b = 1\n[t.u]\nc . d = 1",             {("a", "b"): 1, ("t", "u"): 2, ("t", "u", "c", "d"): 3}),
    ("quoted",             "\"a.b\" = 1\n['t u']\n",                {("a.b",): 1, ("t u",): 2}),
    ("escaped",            "\"a\\u0062\\\"]\" = 1\n",               {('ab"]',): 1}),
    ("bracket in a name",  "[t.\"]\"]\na = 1",                      {("t", "]"): 1, ("t", "]", "a"): 2}),
    ("long string",        "a = '''\n[x]\nb = 1\n'''\nc = 1",       {("a",): 1, ("c",): 5}),
    ("quotes in a string", "a = '\"\"\"'\n[x]\nb = \"'''\"\nc = 1", {("a",): 1, ("x",): 2, ("x", "b"): 3, ("x", "c"): 4}),
    ("five quotes",        "a = \"\"\"x\"\"\"\"\"\nb = 1",          {("a",): 1, ("b",): 2}),
    ("list of lines",      "a = [\n  ['b'],\n  # ]\n]\nc = 1",      {("a",): 1, ("c",): 5}),
    ("inline table",       "a = {b = 1}\nc = 1",                    {("a",): 1, ("c",): 2}),
    ("comments",           "# [x]\n  [t] # y = 1\n# a = 1\na = 1",  {("t",): 2, ("t", "a"): 4}),
    ("Windows",            "[t]\r\na = 1\r\n",                      {("t",): 1, ("t", "a"): 2}),
    ("first of two",       "[[e]]\na = 1\n[[e]]\na = 1\nb = 1",     {("e",): 1, ("e", "a"): 2, ("e", "b"): 5}),
    ("nothing",            "",                                      {}),
]
LINES: list[tuple[str, tuple[str, ...], int, str]] = [
    ("\na = 1",                 ("a",),          2, "the key itself"),
    ("\na = {b = {c = 1}}",     ("a", "b", "c"), 2, "a key of an inline table"),
    ("\n[a.b]\nc = 1",          ("a",),          2, "a table without a header"),
    ("\n[a]\n[a.b.c]\nd = 1",   ("a", "b"),      3, "a table without a header, below one with a header"),
    ("\nx = 1",                 ("a",),          1, "no such key"),
]
ENTRIES: list[tuple[str, list[tuple[int, dict[str, int]]], str]] = [
    ("[[e]]\na = 1\n\n[[ \"e\" ]]\nb.c = 1\n", [(1, {"a": 2}), (4, {"b": 5})], "any spelling of the header"),
    ("[[e]]\n[e.t]\na = 1\n[[e]]\na = 1",      [(1, {}), (4, {"a": 5})],       "keys of a table inside are not of the entry"),
    ("a = '''\n[[e]]\n'''\n[[e]]\nb = 1",      [(4, {"b": 5})],                "a header inside a string is none"),
    ("[e]\na = 1",                             [],                             "a single table is no entry"),
    ("e = [{a = 1}]",                          [],                             "an inline list has no headers"),
]
# fmt: on


@pytest.mark.parametrize(("text", "lines"), [row[1:] for row in TEXTS], ids=[row[0] for row in TEXTS])
def test_each_key_and_header_has_its_line(text: str, lines: dict[tuple[str, ...], int]) -> None:
    tomllib.loads(text)
    assert lines_of(text) == lines


@pytest.mark.parametrize(("text", "path", "line"), [row[:3] for row in LINES], ids=[row[3] for row in LINES])
def test_any_path_has_the_nearest_line(text: str, path: tuple[str, ...], line: int) -> None:
    tomllib.loads(text)
    assert line_of(text, path) == line


@pytest.mark.parametrize(("text", "entries"), [row[:2] for row in ENTRIES], ids=[row[2] for row in ENTRIES])
def test_entries_have_their_lines(text: str, entries: list[tuple[int, dict[str, int]]]) -> None:
    tomllib.loads(text)
    assert array_entries(text, "e") == entries


_PIECES = ["[", "]", "[[", "]]", "a", "b", ".", " = ", "=", "1", '"', '"""', "'''", "'", "{", "}", ",", "\n", "\\", "#"]
_VALUES = ["1", '"x"', "'[x]'", "[1,\n2]", "['a = 1',\n[]]", '"""\n[x]\n"""', "'''\na = 1\n'''", "{y = 1}", '"# \\""']


@given(
    st.one_of(
        st.lists(st.sampled_from(_PIECES), max_size=14).map("".join),
        st.lists(
            st.tuples(st.sampled_from(["[t]\n", "[[e]]\n", "# '''\n", ""]), st.sampled_from(_VALUES)), max_size=8
        ).map(lambda rows: "".join(f"{head}k{at} = {value}\n" for at, (head, value) in enumerate(rows))),
    )
)
def test_the_names_are_those_that_the_parser_of_the_standard_library_reads(text: str) -> None:
    try:
        document = tomllib.loads(text)
    except ValueError:
        return
    assert {path[0] for path in lines_of(text)} == set(document)
    for statement in statements(text):
        assert 1 <= statement.line <= text.count("\n") + 1
