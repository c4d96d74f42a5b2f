"""The JSON Schema of an answer: how it is read, and the check of an answer against it.

THREAT T253: a schema may come from a file that others wrote. No reference leaves the schema, so that nothing is
fetched; patterns run in linear time (RE2); and the number of steps is bounded, so that references which double the work
at each level end in an error.
"""

import json
import os
import re
import stat
from collections.abc import Callable, Iterator, Mapping
from dataclasses import field
from itertools import islice
from pathlib import Path
from typing import Any

from policy.model.frozen import dataclass
from runner.problems import Stopped, usage
from runner.text.phrases import os_reason
from runner.text.sanitize import one_line
from runner.text.strict_json import DuplicateNameError, parse_strictly

MOST_REPAIRS = 3  # times that the model is told the faults of its answer
_LARGEST = 256 << 10  # bytes of a schema
_MOST_STEPS = 200_000  # applications of a keyword
_MOST_FAULTS = 8
_LONGEST = 300  # characters of a fault
_FENCED = re.compile(r"```(?:json)?[ \t]*\n(.*?)\n?[ \t]*```", re.DOTALL)
_DRAFT = "https://json-schema.org/draft/2020-12/schema"  # of a schema that names none
_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")
_DATA = ("const", "enum", "default", "examples")  # keywords whose values are no schemas
_SAMPLES: tuple[object, ...] = (None, True, 0, 0.5, "", "a", [], [[]], {}, {"a": {}})

_PROMPT = """\
The form of your answer
- Your last message, after all calls of tools, must be one JSON value and nothing else: no sentence before or after \
it. A program reads it.
- The value must be valid against this JSON Schema:
{schema}
"""


class _TooMuch(Exception):
    """The check needs too many steps."""


@dataclass(frozen=True, slots=True)
class StructuredAnswer:
    """The check of one answer.

    Attributes:
        value: the value of a valid answer.
        faults: why the answer is not valid; empty for a valid one.
    """

    value: object = None
    faults: tuple[str, ...] = ()

    @property
    def line(self) -> str:
        """Return the value as one line of JSON in ASCII."""
        return json.dumps(self.value, ensure_ascii=True, allow_nan=False)


@dataclass(frozen=True, slots=True)
class OutputSchema:
    """A sound JSON Schema for answers. `read_output_schema` makes one."""

    schema: object
    _check: Callable[[object], list[str]] = field(compare=False, repr=False)

    @property
    def prompt(self) -> str:
        """Return the text about the form of the answer for the model."""
        return _PROMPT.format(schema=json.dumps(self.schema, ensure_ascii=False))

    def answer(self, text: str) -> StructuredAnswer:
        """Return the value that `text` holds, alone or as its only fenced block, or the faults."""
        text = text.strip()
        fenced = _FENCED.findall(text) if text[:1] not in ("{", "[", '"') else []
        try:
            value = parse_strictly(fenced[0] if len(fenced) == 1 else text)
        except DuplicateNameError as error:
            return StructuredAnswer(faults=(f"it is not valid JSON: {one_line(str(error), _LONGEST)}",))
        except (ValueError, RecursionError) as error:
            found = "there is no text" if not text else one_line(str(error), _LONGEST)
            return StructuredAnswer(faults=(f"it is not one JSON value: {found}",))
        try:
            faults = self._check(value)
        except _TooMuch:
            faults = [f"its check needs more than {_MOST_STEPS:,} steps"]
        except (RecursionError, OverflowError):
            faults = ["its check is nested too deeply, or a number is too large"]
        return StructuredAnswer(value, tuple(faults))


def repair_text(faults: tuple[str, ...], left: int) -> str:
    """Return the message to the model about an answer that is not valid. `left` is the number of further tries."""
    listed = "\n".join(f"- {fault}" for fault in faults)
    tries = "this is the last try" if left == 1 else f"{left} tries are left"
    return (
        f"Your answer is not valid against the JSON Schema ({tries}):\n{listed}\n"
        "Answer again with the whole corrected JSON value and nothing else."
    )


def read_output_schema(given: str, cwd: Path) -> OutputSchema:
    """Return the schema that `given` is, as JSON text or as the name of a file. Raise a usage error."""
    text = given if given.lstrip()[:1] in ("{", "[") or given.strip() in ("true", "false") else _file(given, cwd)
    try:
        schema = parse_strictly(text)
    except RecursionError:
        raise _unusable("it is nested too deeply") from None
    except ValueError as error:
        raise _unusable(f"it is not valid JSON: {one_line(str(error), _LONGEST)}") from None
    if len(text) > _LARGEST:
        raise _unusable(f"it is larger than {_LARGEST >> 10} KiB")
    if not isinstance(schema, dict | bool):
        raise _unusable("a JSON Schema is an object, true or false")
    try:
        return OutputSchema(schema, _checker(schema))
    except _TooMuch:
        raise _unusable(f"its check needs more than {_MOST_STEPS:,} steps") from None
    except RecursionError:
        raise _unusable("it is nested too deeply, or refers to itself without end") from None


def _unusable(why: str) -> Stopped:
    return usage("the output schema cannot be used", why, "correct the JSON Schema of --output-schema")


def _file(name: str, cwd: Path) -> str:
    """Return the text of a plain file. A pipe could wait for ever, and a device has no end."""
    path = cwd / name
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(handle, "rb") as file:
            if not stat.S_ISREG(os.fstat(handle).st_mode):
                raise _unusable(f"`{one_line(name, _LONGEST)}` is no plain file")
            data = file.read(_LARGEST + 1)
    except OSError as error:
        raise _unusable(f"`{one_line(name, _LONGEST)}` cannot be read: {os_reason(error)}") from None
    except ValueError:  # a NUL byte
        raise _unusable("the name of the file contains a NUL byte") from None
    if len(data) > _LARGEST:
        raise _unusable(f"it is larger than {_LARGEST >> 10} KiB")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise _unusable("it is not UTF-8") from None


def _checker(schema: Any) -> Callable[[object], list[str]]:
    """Return the function that returns the faults of a value. Raise a usage error for a schema that is not sound."""
    from jsonschema import exceptions, validators  # 40 ms, and few runs have a schema
    from referencing import Registry
    from referencing.exceptions import Unresolvable

    stated = schema.get("$schema") if isinstance(schema, dict) else None
    names = {validator.META_SCHEMA["$schema"].rstrip("#"): validator for validator in _drafts()}
    of: Any = names.get(str(stated or _DRAFT).rstrip("#"))
    if of is None:
        raise _unusable(f"`$schema` names no known draft: {one_line(str(stated), _LONGEST)}")
    try:
        of.check_schema(schema)
    except exceptions.SchemaError as error:
        raise _unusable(f"at `{one_line(error.json_path, 100)}`: {one_line(error.message, _LONGEST)}") from None
    _patterns(schema)
    steps = [0]

    def counted(keyword: Callable[..., Any]) -> Callable[..., Iterator[Any]]:
        def run(validator: Any, value: Any, instance: Any, within: Any) -> Iterator[Any]:
            steps[0] += 1
            if steps[0] > _MOST_STEPS:
                raise _TooMuch
            yield from keyword(validator, value, instance, within) or ()

        return run

    keywords = {**of.VALIDATORS, **{name: each for name, each in _own_keywords().items() if name in of.VALIDATORS}}
    extend: Callable[..., Any] = validators.extend
    made = extend(of, {name: counted(each) for name, each in keywords.items()})
    validator = made(schema, registry=Registry())  # INVARIANT: a registry that retrieves nothing
    for reference in _references(schema):
        if not reference.startswith("#"):
            raise _unusable(f"the reference `{one_line(reference, 100)}` leaves it; use `$defs` and `#/$defs/NAME`")

    def faults(value: object) -> list[str]:
        steps[0] = 0
        found = []
        for error in islice(validator.iter_errors(value), _MOST_FAULTS):
            place = f"at `{one_line(error.json_path, 100)}`: " if error.json_path != "$" else ""
            found.append(f"{place}{one_line(error.message, _LONGEST)}")
        return found

    try:
        for sample in _SAMPLES:
            faults(sample)
        for reference in _references(schema):
            validator.evolve(schema={"$ref": reference}).is_valid(None)
    except Unresolvable as error:
        raise _unusable(f"a reference leads nowhere: {one_line(str(error), _LONGEST)}") from None

    def checked(value: object) -> list[str]:
        try:
            return faults(value)
        except Unresolvable as error:
            return [f"a reference of the schema leads nowhere: {one_line(str(error), _LONGEST)}"]

    return checked


def _drafts() -> tuple[Any, ...]:
    import jsonschema

    return (
        jsonschema.Draft202012Validator,
        jsonschema.Draft201909Validator,
        jsonschema.Draft7Validator,
        jsonschema.Draft6Validator,
        jsonschema.Draft4Validator,
    )


def _own_keywords() -> Mapping[str, Callable[..., Any]]:
    """Return the keywords that the library implements with patterns or comparisons that take too long."""
    from jsonschema import ValidationError

    def pattern(validator: Any, wanted: str, instance: Any, schema: Any) -> Iterator[Any]:
        if validator.is_type(instance, "string") and not _compiled(wanted).search(instance):
            yield ValidationError(f"{_shown(instance)} does not match {wanted!r}")

    def pattern_properties(validator: Any, wanted: Any, instance: Any, schema: Any) -> Iterator[Any]:
        if not validator.is_type(instance, "object"):
            return
        for each, below in wanted.items():
            matches = _compiled(each).search
            for name, value in instance.items():
                if matches(name):
                    yield from validator.descend(value, below, path=name, schema_path=each)

    def additional_properties(validator: Any, wanted: Any, instance: Any, schema: Any) -> Iterator[Any]:
        if not validator.is_type(instance, "object"):
            return
        known = schema.get("properties", {})
        matching = [_compiled(each).search for each in schema.get("patternProperties", {})]
        extra = [name for name in instance if name not in known and not any(each(name) for each in matching)]
        if validator.is_type(wanted, "object"):
            for name in extra:
                yield from validator.descend(instance[name], wanted, path=name)
        elif not wanted and extra:
            listed = ", ".join(_shown(name) for name in extra[:_MOST_FAULTS])
            yield ValidationError(f"it may not have {listed}")

    def unique_items(validator: Any, wanted: Any, instance: Any, schema: Any) -> Iterator[Any]:
        if wanted and validator.is_type(instance, "array") and len(set(map(_key, instance))) < len(instance):
            yield ValidationError("the list has equal items")

    return {
        "pattern": pattern,
        "patternProperties": pattern_properties,
        "additionalProperties": additional_properties,
        "uniqueItems": unique_items,
    }


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:80]}…"


def _key(value: object) -> str:
    """Return a text that is equal for equal JSON values: `1` and `1.0` are equal, `1` and `true` are not."""
    return json.dumps(_plain(value), sort_keys=True)


def _plain(value: object) -> object:
    match value:
        case float() if value.is_integer():
            return int(value)
        case list():
            return [_plain(each) for each in value]
        case dict():
            return {name: _plain(each) for name, each in value.items()}
        case _:
            return value


def _compiled(pattern: str) -> Any:
    import re2

    options = re2.Options()
    options.log_errors = False
    options.max_mem = 1 << 20
    return re2.compile(pattern, options)


def _patterns(schema: object) -> None:
    """Raise a usage error for a pattern that RE2 cannot run, or that the library would run itself."""
    import re2

    for each in _schemas(schema):
        found = each.get("patternProperties")
        named = list(found) if isinstance(found, dict) else []
        for pattern in [*named, *([each["pattern"]] if isinstance(each.get("pattern"), str) else [])]:
            try:
                _compiled(pattern)
            except (re2.error, UnicodeEncodeError) as error:
                why = one_line(str(error), 100)
                raise _unusable(f"the pattern `{one_line(pattern, 100)}` is not possible (RE2): {why}") from None
    if any("unevaluatedProperties" in each for each in _schemas(schema)) and any(
        "patternProperties" in each for each in _schemas(schema)
    ):
        raise _unusable("`patternProperties` together with `unevaluatedProperties`: use `additionalProperties`")


def _references(schema: object) -> list[str]:
    return [each[name] for each in _schemas(schema) for name in _REFERENCES if isinstance(each.get(name), str)]


def _schemas(value: object) -> Iterator[dict[str, Any]]:
    """Yield every object in a schema that may be a schema itself."""
    if isinstance(value, dict):
        yield value
        for name, below in value.items():
            if name not in _DATA:
                yield from _schemas(below)
    elif isinstance(value, list):
        for below in value:
            yield from _schemas(below)
