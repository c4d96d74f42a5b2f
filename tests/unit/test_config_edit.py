"""Tests of changing one key of any settings file: that key changes, the rest and every comment stay, or nothing is
done.
"""

import copy
import tomllib
from typing import Any

import pytest
import tomlkit
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from policy.toml.schema import value_of
from runner.config.edit import migrate_text, with_value, without_key, without_table
from runner.config.migrations import VERSION, renew
from runner.config.read_layer import read_all
from runner.config.schema import KEYS
from runner.config.settings import ConfigError
from runner.config.toml_value import value_toml
from tests.support.config_strategies import documents, good
from tests.support.law import examples

LAW = examples(100, suppress_health_check=[HealthCheck.too_slow])
PLAIN = [key for key in KEYS if "*" not in key.path]


@st.composite
def texts(draw: st.DrawFn) -> str:
    """A file with comments and blank lines between its own, tables on one line or with dots, and either line ends."""
    document = draw(documents())
    inline = draw(st.booleans())
    lines: list[str] = []
    if inline and all(not isinstance(below, list) for below in document.values()):
        for key, below in document.items():
            item = tomlkit.inline_table() if isinstance(below, dict) else None
            if item is not None:
                item.update(below)
            lines.append(f"{key} = {(item if item is not None else tomlkit.item(below)).as_string()}")
    else:
        lines = tomlkit.dumps(document).split("\n")
    found: list[str] = []
    for number, line in enumerate(lines):
        if draw(st.integers(0, 3)) == 0:
            found.append(draw(st.sampled_from([f"# {number}", "", "# mode = 1", "#[limits]", "  # é"])))
        found.append(line)
    text = "\n".join(found)
    try:
        tomllib.loads(text)
    except ValueError:  # a comment fell into a text of several lines
        text = tomlkit.dumps(document)
    return text.replace("\n", "\r\n") if draw(st.booleans()) and "\r" not in text else text


def comments(text: str) -> list[str]:
    return sorted(line.strip() for line in text.split("\n") if line.strip().startswith("#"))


@LAW
@given(texts(), st.data())
def test_setting_changes_that_key_alone(text: str, data: st.DataObject) -> None:
    key = data.draw(st.sampled_from(PLAIN))
    value = value_of(data.draw(good(key)), key.shape)
    assert value is not None
    wanted = copy.deepcopy(tomllib.loads(text))
    at: Any = wanted
    for word in key.path[:-1]:
        at = at.setdefault(word, {})
    at[key.path[-1]] = tomllib.loads(f"x = {value_toml(value, key.shape)}")["x"]
    try:
        new = with_value(text, key.path, value_toml(value, key.shape))
    except ConfigError as error:
        if "change it with an editor" in error.problem.fix:
            return
        raise
    assert tomllib.loads(new) == wanted
    assert comments(new) == comments(text)
    try:
        gone = without_key(new, key.path)
    except ConfigError as error:
        if "change it with an editor" in error.problem.fix:
            return
        raise
    assert gone is not None
    assert comments(gone) == comments(text)


@LAW
@given(texts())
def test_migrating_keeps_what_it_says(text: str) -> None:
    wanted = tomllib.loads(text)
    renew(wanted)
    new = migrate_text(text)
    assert tomllib.loads(new) == {"version": VERSION, **wanted}
    assert comments(new) == comments(text)
    assert migrate_text(new) == new
    assert (read_all(new, "x", most=1)[1] == []) == (read_all(text, "x", most=1)[1] == [])


@LAW
@given(st.sampled_from(KEYS).flatmap(lambda key: good(key).map(lambda raw: (key, raw))))
def test_what_is_written_is_read_again(pair: tuple[Any, Any]) -> None:
    key, raw = pair
    value = value_of(raw, key.shape)
    assert value is not None
    assert value_of(tomllib.loads(f"x = {value_toml(value, key.shape)}")["x"], key.shape) == value


# fmt: off
TABLES = [
    # file, table, the file without it (None: no such table), why
    ('[mcp.a]\nx = 1\n',                                        'mcp.a', '',                              "the only one"),
    ('a = 1\n\n[mcp.a]\nx = 1\n[mcp.a.b]\ny = 1\n[c]\nz = 1\n', 'mcp.a', 'a = 1\n\n[c]\nz = 1\n',         "with a table below it"),
    ('[mcp.a]\nx = 1\n\n# of b\n[mcp.b]\nx = 1\n',              'mcp.a', '# of b\n[mcp.b]\nx = 1\n',      "the next comment stays"),
    ('[mcp.a]\nx = 1\n[mcp.ab]\nx = 1\n',                       'mcp.a', '[mcp.ab]\nx = 1\n',             "a longer name"),
    ('x = """\n[mcp.a]\n"""\n[mcp.a]\nx = 1\n',                 'mcp.a', 'x = """\n[mcp.a]\n"""\n',       "a header in a text"),
    ('[mcp.b]\nx = 1\n',                                        'mcp.a', None,                            "no such table"),
]
# fmt: on


@pytest.mark.parametrize(("text", "path", "left", "why"), TABLES, ids=[row[3] for row in TABLES])
def test_a_table_is_removed_as_a_whole(text: str, path: str, left: str | None, why: str) -> None:
    assert without_table(text, tuple(path.split("."))) == left


def test_a_table_in_one_line_is_not_removed() -> None:
    with pytest.raises(ConfigError):
        without_table("mcp.a = { x = 1 }\n", ("mcp", "a"))
