"""Strict parsing of tool arguments, from the JSON of a model to typed values."""

import difflib
import json
import math
from collections.abc import Mapping

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from policy.model.verdict import Problem
from tools.text import short
from tools.tool import Arguments, ModelTool

PATH_CAP = 4096  # characters
PATTERN_CAP = 10_000  # characters
SCRIPT_CAP = 2_000_000  # characters
CONTENT_CAP = 5_000_000  # characters

_FAULTS = 4  # the most that one Problem lists

# fmt: off
_FAULT_WORDS = {
    "missing":            "is missing",
    "string_type":        "must be text, not {given}",
    "int_type":           "must be a whole number, not {given}",
    "float_type":         "must be a number, not {given}",
    "finite_number":      "must be a finite number",
    "bool_type":          "must be true or false, not {given}",
    "greater_than":       "must be more than {gt:,g}",
    "greater_than_equal": "must be at least {ge:,g}",
    "less_than_equal":    "must be at most {le:,g}",
    "string_too_short":   "must not be empty",
    "string_too_long":    "is {length:,} characters long; at most {max_length:,} are allowed",
}
# fmt: on
_JSON_TYPES: dict[type, str] = {
    **{type(None): "null", bool: "true or false", str: "text", int: "a number", float: "a number"},
    **{list: "a list", dict: "an object"},
}


def parse(
    tool: ModelTool, arguments: dict[str, object] | None, raw: str = ""
) -> Arguments | Mapping[str, object] | Problem:
    """Return the arguments of one call, or a short Problem that tells the model exactly what to change.

    `arguments` is the JSON object, or None if the model's JSON did not parse; `raw` is then the model's text. Never
    raises; the Problem is short for inputs of any size.
    """
    if arguments is None:
        return _problem(tool, [_unparsed(raw)])
    kind = tool.Args
    if not isinstance(kind, type):
        found = kind.checked(arguments)
        return _problem(tool, found) if isinstance(found, list) else found
    fields = kind.model_fields
    faults: dict[str, str] = {}
    clean: dict[str, object] = {}
    for name, value in arguments.items():
        if name not in fields:
            faults[name] = f"`{short(name, 40)}` is not an argument of this tool{_meant(name, list(fields))}"
        elif isinstance(value, str) and (fault := _bad_text(value)):
            faults[name] = f"`{name}` {fault}"
        elif value is not None or fields[name].is_required():
            clean[name] = value
    try:
        parsed = kind.model_validate(clean)
    except ValidationError as error:
        for detail in error.errors(include_url=False, include_input=True):
            name = str(detail["loc"][0]) if detail["loc"] else ""
            faults.setdefault(name, f"`{short(name, 40)}` {_fault(detail)}")
    else:
        if not faults:
            return parsed
    return _problem(tool, list(faults.values()))


def _problem(tool: ModelTool, faults: list[str]) -> Problem:
    more = f"; and {len(faults) - _FAULTS} more" if len(faults) > _FAULTS else ""
    return Problem(
        f"the arguments of `{tool.name}` are not valid",
        "; ".join(faults[:_FAULTS]) + more,
        f"call `{tool.name}` again with arguments such as {tool.example}",
    )


def _unparsed(raw: str) -> str:
    """Return the reason why `raw` is not a JSON object."""
    if not raw.strip():
        return "the call has no arguments"
    odd: list[str] = []  # numbers of Python that JSON does not have
    try:
        value = json.loads(raw, parse_constant=odd.append, parse_float=lambda text: _number(text, odd))
    except json.JSONDecodeError as error:
        near = short(raw[max(error.pos - 20, 0) : error.pos + 20], 60)
        fault = error.msg.lower().removesuffix(" at")
        return f"they are not valid JSON: {fault} at character {error.pos + 1:,}, near `{near}`"
    except (ValueError, RecursionError):  # a number of thousands of digits, or thousands of brackets
        return "they are JSON with a number or a nesting that is too large to read"
    if odd:
        return f"`{short(odd[0], 20)}`, in the arguments, is not a JSON number"
    return f"they are {_kind(value)}, not an object" if not isinstance(value, dict) else "they are nested too deeply"


def _number(text: str, odd: list[str]) -> float:
    number = float(text)
    if not math.isfinite(number):
        odd.append(text)
    return number


def _bad_text(text: str) -> str | None:
    """Return the reason why a text is invalid in every field."""
    if (at := text.find("\0")) >= 0:
        return f"has a NUL character, at character {at + 1:,}: leave it out"
    try:
        text.encode()
    except UnicodeEncodeError as error:
        return f"has half of a surrogate pair, at character {error.start + 1:,}: write the whole character"
    return None


def _meant(name: str, known: list[str]) -> str:
    near = difflib.get_close_matches(name[:40].lower(), known, n=1, cutoff=0.6)
    return f"; did you mean `{near[0]}`?" if near else f" (it has {', '.join(f'`{item}`' for item in known)})"


def _fault(detail: ErrorDetails) -> str:
    """Return one error of pydantic in plain words."""
    limits = detail.get("ctx", {})
    given = detail["input"]
    sentence = _FAULT_WORDS.get(detail["type"], "is not valid: {message}")
    return sentence.format(
        given=_kind(given),
        length=len(given) if isinstance(given, str) else 0,
        message=short(detail["msg"].lower(), 100),
        **limits,
    )


def _kind(value: object) -> str:
    """Return the JSON type of a value, in JSON's words."""
    return _JSON_TYPES.get(type(value), "a value of another type")
