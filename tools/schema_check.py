"""A check of the arguments of a call against the JSON Schema of a tool server, for short faults before the call.

Only plain keywords at the upper levels are checked (`type`, `required`, `properties`, `enum`, `const`,
`additionalProperties`, `items`): the server checks the rest itself. An unknown keyword never refuses a call.
"""

import difflib
from collections.abc import Mapping, Sequence

from tools.text import short

_DEEPEST = 4  # levels of a value that are checked
_MOST = 4  # faults that are listed
_ITEMS = 20  # items of a list that are checked
_SHOWN = 8  # choices that a fault lists

_KINDS = {
    "string": "text",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "array": "a list",
    "object": "an object",
    "null": "null",
}


def faults(schema: Mapping[str, object], arguments: Mapping[str, object]) -> list[str]:
    """Return why the arguments do not fit the schema, as at most a few short texts; empty if no fault is found."""
    found: list[str] = []
    _object(schema, arguments, "", found, 0)
    return found[:_MOST]


def without_needless_null(schema: Mapping[str, object], arguments: Mapping[str, object]) -> dict[str, object]:
    """Return the arguments without each `null` of an optional argument whose type is not `null`: for such an argument,
    models write it in place of leaving the argument out.
    """
    properties, required = _table(schema.get("properties")), _names(schema.get("required"))
    return {
        name: value
        for name, value in arguments.items()
        if value is not None or name in required or name not in properties or _may_be_null(properties[name])
    }


def _object(schema: Mapping[str, object], value: Mapping[str, object], path: str, found: list[str], depth: int) -> None:
    properties = _table(schema.get("properties"))
    for name in sorted(_names(schema.get("required")) - set(value)):
        found.append(f"`{path}{short(name, 40)}` is missing")
    for name, item in value.items():
        if len(found) >= _MOST:
            return
        if name in properties:
            _value(properties[name], item, f"{path}{short(name, 40)}", found, depth + 1)
        elif schema.get("additionalProperties") is False and not schema.get("patternProperties"):
            known = list(properties)
            near = difflib.get_close_matches(name[:40], known[:1000], n=1, cutoff=0.6)
            listed = ", ".join(f"`{short(each, 40)}`" for each in known[:_SHOWN])
            hint = f"; did you mean `{near[0]}`?" if near else f" (it has {listed or 'none'})"
            found.append(f"`{path}{short(name, 40)}` is not an argument of this tool{hint}")


def _value(schema: object, value: object, path: str, found: list[str], depth: int) -> None:
    if not isinstance(schema, Mapping) or depth > _DEEPEST:
        return
    types = _types(schema)
    if types and not any(_has_type(value, each) for each in types):
        wanted = " or ".join(_KINDS[each] for each in types)
        found.append(f"`{path}` must be {wanted}, not {_kind(value)}")
        return
    choices = schema.get("enum")
    if isinstance(choices, list) and not any(_equal(value, each) for each in choices):
        listed = ", ".join(f"`{short(str(each), 40)}`" for each in choices[:_SHOWN])
        more = f" and {len(choices) - _SHOWN:,} more" if len(choices) > _SHOWN else ""
        found.append(f"`{path}` must be one of {listed}{more}")
    elif "const" in schema and not _equal(value, schema["const"]):
        found.append(f"`{path}` must be `{short(str(schema['const']), 40)}`")
    elif isinstance(value, Mapping):
        _object(schema, value, f"{path}.", found, depth)
    elif isinstance(value, list):
        for number, item in enumerate(value[:_ITEMS]):
            if len(found) < _MOST:
                _value(schema.get("items"), item, f"{path}[{number}]", found, depth + 1)


def _types(schema: Mapping[str, object]) -> Sequence[str]:
    """Return the types that the schema names, or an empty list if it names none or an unknown one."""
    given = schema.get("type")
    types = [given] if isinstance(given, str) else given if isinstance(given, list) else []
    return types if all(isinstance(each, str) and each in _KINDS for each in types) else []


def _has_type(value: object, name: str) -> bool:
    match name:
        case "string":
            return isinstance(value, str)
        case "integer":
            whole = isinstance(value, float) and value.is_integer()
            return (isinstance(value, int) and not isinstance(value, bool)) or whole
        case "number":
            return isinstance(value, int | float) and not isinstance(value, bool)
        case "boolean":
            return isinstance(value, bool)
        case "array":
            return isinstance(value, list)
        case "object":
            return isinstance(value, Mapping)
        case _:
            return value is None


def _kind(value: object) -> str:
    return next((words for name, words in _KINDS.items() if _has_type(value, name)), "another value")


def _equal(one: object, other: object) -> bool:
    """Return True if two JSON values are equal. `1` and `true` are different."""
    return one == other and isinstance(one, bool) is isinstance(other, bool)


def _may_be_null(schema: object) -> bool:
    """Return False if the schema certainly refuses `null`."""
    if not isinstance(schema, Mapping):
        return True
    types = _types(schema)
    return "null" in types if types else True


def _table(value: object) -> Mapping[str, object]:
    return value if isinstance(value, Mapping) else {}


def _names(value: object) -> frozenset[str]:
    return frozenset(each for each in value if isinstance(each, str)) if isinstance(value, list) else frozenset()
