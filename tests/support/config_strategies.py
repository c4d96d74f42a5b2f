"""Random configuration files, made from the table of keys, so that new rows are tried as well."""

import tomllib
from datetime import date, datetime, time
from typing import Any

import tomlkit
from hypothesis import strategies as st

from policy.toml.schema import ValueType
from runner.config.schema import KEYS, LISTS, Key, TableList

_TEXT = st.text(st.characters(exclude_categories=("Cs",)), min_size=1, max_size=12)
_WORDS = st.lists(st.sampled_from(["git", "push", "npm", "*", "a b", "-f", "é"]) | _TEXT, min_size=1, max_size=3)
_GOOD: dict[ValueType, st.SearchStrategy[Any]] = {
    ValueType.TEXT: _TEXT,
    ValueType.TEXTS: st.lists(st.sampled_from(["*.vault", "id_*", "notes"]) | _TEXT, max_size=3),
    ValueType.PATTERNS: st.lists(_WORDS, max_size=3),
    ValueType.WHOLE: st.integers(1, 10_000),
    ValueType.COUNT: st.integers(0, 10_000),
    ValueType.SECONDS: st.floats(0.1, 7 * 86_400)
    | st.integers(1, 7 * 86_400)
    | st.sampled_from(["90s", "1.5 h", "20"]),
    ValueType.WHOLE_SECONDS: st.integers(1, 10_000) | st.sampled_from(["90s", "2 min", "20", "2000ms"]),
    ValueType.NUMBER: st.floats(0, 1000) | st.integers(0, 1000),
    ValueType.SIZE: st.integers(1, 1 << 40) | st.sampled_from(["1", "512 MiB", "2G", "9KB", "1 t"]),
    ValueType.WORDS: st.lists(_TEXT | _WORDS, min_size=1, max_size=3),
    ValueType.TABLE: st.dictionaries(_TEXT, _TEXT, min_size=1, max_size=2),
    ValueType.VALUES: st.dictionaries(_TEXT, _TEXT | st.booleans() | st.integers(0, 9) | st.just([1, "a"]), min_size=1),
    ValueType.SWITCH: st.booleans(),
    ValueType.DATE: st.dates(date(2000, 1, 1), date(2100, 1, 1)),
}
# fmt: off
_BAD = st.sampled_from([
    "", " ", "x", "dangerously", "0", "-1", "1e3", "9" * 20 + "T", "999999999999999T", "1 GB B", "2H", "5 weeks", "0s", "1.5s", "1ms", "9999999h", 0, -1, 1, 1 << 62, (1 << 62) - 1, True, False, 0.0, -0.5, 1.5, 1e16,
    float("nan"), float("inf"), [], [[]], [""], ["a"], [1], [["a", 1]], [["a"], "b"], [["*", "x"]], {}, {"a": 1},
    date(2020, 1, 1), datetime(2020, 1, 1, 1), time(1, 2),
])
# fmt: on


def good(key: Key) -> st.SearchStrategy[Any]:
    """A value that the row accepts."""
    from policy.toml.schema import value_of

    pool = st.sampled_from(key.choices) if key.choices else _GOOD[key.shape]
    if key.example:
        pool = st.just(tomllib.loads(f"x = {key.example}")["x"]) | pool

    def fits(raw: Any) -> bool:
        value = value_of(raw, key.shape)
        return value is not None and key.fault(value) is None

    if key.check:  # hardly anything made at random would pass
        pool = st.sampled_from([each for each in _tried(key) if fits(each)])
    return pool.filter(fits)


def _tried(key: Key) -> list[Any]:
    tries: list[Any] = [
        1,
        2,
        "a",
        "openai:x",
        "anthropic:y",
        "http://127.0.0.1/v1",
        "https://h",
        ["*.a"],
        ["b", "*.c"],
        [["a", "b"]],
        [["make"]],
    ]
    return [*tries, *([tomllib.loads(f"x = {key.example}")["x"]] if key.example else [])]


def _entry(table: TableList, wild: bool) -> st.SearchStrategy[dict[str, Any]]:
    example = tomllib.loads(table.example)
    fields: dict[str, st.SearchStrategy[Any]] = {}
    for name, shape in table.keys.items():
        known = table.choices.get(name)
        pool = _GOOD[shape]
        if known:
            pool = st.sampled_from(known) if shape is ValueType.TEXT else st.lists(st.sampled_from(known), max_size=2)
        fields[name] = pool | _BAD if wild else pool
    free = st.fixed_dictionaries({}, optional=fields)
    more = st.sampled_from(list(fields)).flatmap(lambda name: fields[name].map(lambda value: example | {name: value}))
    return st.just(example) | more | (free if wild else st.nothing())


@st.composite
def documents(draw: st.DrawFn, *, wild: bool = False, bound: bool = False) -> dict[str, Any]:
    """One file as a document. `wild`: also with values of the wrong kind and keys that there are not."""
    document: dict[str, Any] = {}
    for key in draw(st.lists(st.sampled_from(KEYS), max_size=6, unique_by=lambda key: key.name)):
        names = st.sampled_from(["git", "Docs-2"]) | (_TEXT if wild else st.nothing()) if key.named else _TEXT
        at, path = document, [draw(names) if word == "*" else word for word in key.path]
        if wild and draw(st.integers(0, 9)) == 0:
            path[-1] = draw(_TEXT)
        for word in path[:-1]:
            at = at.setdefault(word, {})
            if not isinstance(at, dict):
                break
        else:
            at[path[-1]] = draw(good(key) | _BAD) if wild else draw(good(key))
    for table in LISTS:
        if draw(st.booleans()):
            document[table.name] = draw(st.lists(_entry(table, wild), min_size=1, max_size=2))
    if wild and draw(st.integers(0, 9)) == 0:
        document[draw(st.sampled_from([key.path[0] for key in KEYS] + [each.name for each in LISTS]) | _TEXT)] = draw(
            _BAD
        )
    return document


def as_toml(document: dict[str, Any]) -> str:
    return tomlkit.dumps(document)
