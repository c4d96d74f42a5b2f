"""The JSON Schema of a configuration file, for editors (Taplo, Even Better TOML) and other programs.

The schema is written from the table of keys (`runner/config/schema.py`).
"""

import json
from collections.abc import Mapping
from importlib import resources
from typing import Any

from policy.toml.schema import KeyPath, ValueType
from runner.config.schema import KEYS, LISTS, SECTIONS, Key, TableList, Widens

FILE = "config.schema.json"

_REPOSITORY = {
    Widens.YOURS: "Only for your own file; ignored in a repository, even if you trust it.",
    Widens.NEVER: "Ignored in a repository until you trust it.",
    Widens.TIGHTEN: "A repository can only tighten it until you trust the repository.",
    Widens.ANYTHING: "",
}
_TIME = r"^\s*[0-9]{1,9}(\.[0-9]{1,9})?\s*([mM]?[sS]|[mM]|[mM][iI][nN]|[hH])?\s*$"
_SIZE = r"^\s*[0-9]{1,15}\s*([KMGTkmgt]([iI]?[bB])?|[bB])?\s*$"

_Schema = dict[str, Any]  # a JSON object

# fmt: off
_TEXT:  _Schema = {"minLength": 1, "type": "string"}
_WORDS: _Schema = {"items": _TEXT, "minItems": 1, "type": "array"}
_WHOLE: _Schema = {"exclusiveMaximum": 1 << 62, "exclusiveMinimum": 0, "type": "integer"}
_SPAN:  _Schema = {"exclusiveMinimum": 0, "maximum": 7 * 86_400, "type": "number"}
_TIMED: _Schema = {"pattern": _TIME, "type": "string"}
_SIZED: _Schema = {"pattern": _SIZE, "type": "string"}
_VALUE: _Schema = {"type": ["string", "number", "boolean", "array"]}
_SHAPES: Mapping[ValueType, _Schema] = {
    ValueType.TEXT:          _TEXT,
    ValueType.TEXTS:         {"items": _TEXT, "type": "array"},
    ValueType.PATTERNS:      {"items": _WORDS, "type": "array"},
    ValueType.WHOLE:         _WHOLE,
    ValueType.COUNT:         {"exclusiveMaximum": 1 << 62, "minimum": 0, "type": "integer"},
    ValueType.SECONDS:       {"anyOf": [_SPAN, _TIMED]},
    ValueType.WHOLE_SECONDS: {"anyOf": [_WHOLE, _TIMED]},
    ValueType.NUMBER:        {"maximum": 1e15, "minimum": 0, "type": "number"},
    ValueType.SIZE:          {"anyOf": [_WHOLE, _SIZED]},
    ValueType.WORDS:         {"items": {"anyOf": [_TEXT, _WORDS]}, "minItems": 1, "type": "array"},
    ValueType.TABLE:         {"additionalProperties": _TEXT, "minProperties": 1, "type": "object"},
    ValueType.VALUES:        {"additionalProperties": _VALUE, "minProperties": 1, "type": "object"},
    ValueType.SWITCH:        {"type": "boolean"},
    ValueType.DATE:          {"format": "date", "type": "string"},
}
# fmt: on


def make_schema() -> dict[str, Any]:
    """Return the schema, made from the table of keys. It contains no references, which some editors do not follow."""
    tree: dict[str, Any] = {}
    for key in KEYS:
        at = tree
        for word in key.path[:-1]:
            at = at.setdefault(word, {})
        at[key.path[-1]] = key
    table = _table(tree, ())
    table["properties"] |= {each.name: _list(each) for each in LISTS}
    head = {
        "$schema": "http://json-schema.org/draft-07/schema#",  # the newest version that Taplo and Even Better TOML know
        "title": "The configuration of ringfence",
    }
    return head | table


def schema_text() -> str:
    """Return the schema as the text of the shipped file."""
    return json.dumps(make_schema(), indent=1, ensure_ascii=False) + "\n"


def shipped_schema() -> str:
    """Return the text of the shipped file beside this module; a test compares it with `schema_text()`."""
    return (resources.files(__package__) / FILE).read_text("utf-8")


def _table(tree: Mapping[str, Any], at: KeyPath) -> _Schema:
    properties = {word: _entry(below, (*at, word)) for word, below in tree.items()}
    return {"additionalProperties": False, "properties": properties, "type": "object"}


def _entry(below: Any, at: KeyPath) -> _Schema:
    """Return the schema of `below`, a key or a table at the path `at`."""
    if isinstance(below, Key):
        return _key(below)
    about = SECTIONS.get(".".join(at), "")
    if "*" in below:
        assert len(below) == 1, f"`{'.'.join(at)}` has names of its own beside any"
        entry: _Schema = {"additionalProperties": _entry(below["*"], (*at, "NAME")), "type": "object"}
    else:
        entry = _table(below, at)
    return entry | ({"description": about} if about else {})


def _key(key: Key) -> _Schema:
    found = dict(_SHAPES[key.shape])
    if key.default is not None:
        found["default"] = key.default
    found["description"] = f"{key.help[:1].upper()}{key.help[1:]}. {_REPOSITORY[key.widens]}".rstrip()
    if key.choices:
        found["enum"] = list(key.choices)
    return found


def _list(table: TableList) -> _Schema:
    properties = {name: _named(table, name, shape) for name, shape in table.keys.items()}
    entry = {"additionalProperties": False, "properties": properties, "type": "object"}
    return {"description": table.help, "items": entry, "maxItems": table.most, "type": "array"}


def _named(table: TableList, name: str, shape: ValueType) -> _Schema:
    found, known = dict(_SHAPES[shape]), list(table.choices.get(name, ()))
    if known and shape is ValueType.TEXTS:
        found["items"] = {"enum": known, "type": "string"}
    elif known:
        found["enum"] = known
    if table.helps.get(name):
        found["description"] = table.helps[name]
    return found
