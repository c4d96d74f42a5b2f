"""A pydantic model of a configuration file, made from the table of keys: an independent check of the loader."""

from collections.abc import Callable, Mapping
from datetime import date, datetime
from functools import cache
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StrictBool,
    StrictInt,
    StrictStr,
    ValidationError,
    create_model,
)

from policy.toml.schema import KeyPath, TomlEntry, Value, ValueType, value_of
from runner.config.schema import KEYS, LISTS, Key, TableList


def _day(raw: object) -> object:
    if isinstance(raw, date) and not isinstance(raw, datetime):
        return raw
    raise ValueError(f"it must be {ValueType.DATE.value}")


def _text_of(shape: ValueType) -> Any:
    """Return the type of a text that writes a number with its unit."""

    def check(raw: str) -> str:
        if value_of(raw, shape) is None:
            raise ValueError(f"it must be {shape.value}")
        return raw

    return Annotated[StrictStr, AfterValidator(check)]


def _sound_values(raw: dict[str, Any]) -> dict[str, Any]:
    """Return a table of values. Raise ValueError for one with another kind of value, such as a table or a date."""
    if value_of(raw, ValueType.VALUES) is None:
        raise ValueError(f"it must be {ValueType.VALUES.value}")
    return raw


# fmt: off
_Text  = Annotated[StrictStr, Field(min_length=1)]
_Whole = Annotated[StrictInt, Field(gt=0, lt=1 << 62)]
_Words = Annotated[list[_Text], Field(min_length=1)]
_TYPES: Mapping[ValueType, Any] = {
    ValueType.TEXT:     _Text,
    ValueType.TEXTS:    list[_Text],
    ValueType.PATTERNS: list[_Words],
    ValueType.WHOLE:    _Whole,
    ValueType.COUNT:    Annotated[StrictInt, Field(ge=0, lt=1 << 62)],
    ValueType.SECONDS:  Annotated[float, Field(strict=True, gt=0, le=7 * 86_400, allow_inf_nan=False)]
                    | _text_of(ValueType.SECONDS),
    ValueType.WHOLE_SECONDS: _Whole | _text_of(ValueType.WHOLE_SECONDS),
    ValueType.NUMBER:   Annotated[float, Field(strict=True, ge=0, le=1e15, allow_inf_nan=False)],
    ValueType.SIZE:     _Whole | _text_of(ValueType.SIZE),
    ValueType.WORDS:    Annotated[list[_Text | _Words], Field(min_length=1)],
    ValueType.TABLE:    Annotated[dict[_Text, _Text], Field(min_length=1)],
    ValueType.VALUES:   Annotated[dict[str, Any], AfterValidator(_sound_values)],
    ValueType.SWITCH:   StrictBool,
    ValueType.DATE:     Annotated[date, BeforeValidator(_day)],
}
# fmt: on


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


@cache
def model() -> type[BaseModel]:
    """Return the model of one file in the current format."""
    top: dict[str, Any] = {}
    for key in KEYS:
        at = top
        for word in key.path[:-1]:
            at = at.setdefault(word, {})
        at[key.path[-1]] = key
    lists = {each.name: (list[_entry(each)], Field(None, alias=each.name, max_length=each.most)) for each in LISTS}  # type: ignore[misc, valid-type]  # a type made here
    return _model(top, (), lists)


def complaints(document: Mapping[str, object]) -> list[tuple[KeyPath, str]]:
    """Return the path and the reason of every fault that the model finds in a document as TOML reads it."""
    try:
        model().model_validate(document)
    except ValidationError as error:
        return [(tuple(map(str, each["loc"])), each["msg"]) for each in error.errors(include_url=False)]
    return []


def _model(tree: Mapping[str, Any], at: KeyPath, lists: Mapping[str, Any]) -> type[BaseModel]:
    fields: dict[str, Any] = {
        word: (_type(below, (*at, word)), Field(None, alias=word)) for word, below in tree.items()
    }
    # By an alias: a key may be called like something that every model has.
    renamed = {f"f{number}": each for number, each in enumerate({**fields, **lists}.values())}
    made: type[BaseModel] = create_model("_".join(("Configuration", *at)), __base__=_Table, **renamed)
    return made


def _type(below: Any, at: KeyPath) -> Any:
    if isinstance(below, Key):
        return Annotated[_TYPES[below.shape], AfterValidator(_checked(below))]
    if "*" in below:
        assert len(below) == 1, f"`{'.'.join(at)}` has names of its own beside any"
        entries = dict[_name_type(below["*"]), _type(below["*"], (*at, "NAME"))]  # type: ignore[misc, valid-type]  # a type made here
        return Annotated[entries, AfterValidator(_few)] if at == ("mcp",) else entries
    return _model(below, at, {})


def _few(entries: Any) -> Any:
    if len(entries) > 64:
        raise ValueError("too many")
    return entries


def _name_type(below: Any) -> Any:
    """Return the type of a name of the user, which the first key below it checks."""
    key = below if isinstance(below, Key) else next(iter(below.values()))
    if not isinstance(key, Key) or key.named is None:
        return str

    def check(name: str, named: Callable[[str], object] = key.named) -> str:
        if named(name):
            raise ValueError(f"{name!r} cannot be the name of a server")
        return name

    return Annotated[str, AfterValidator(check)]


def _checked(key: Key) -> Callable[[Any], Any]:
    def check(raw: Any) -> Any:
        value = value_of(raw, key.shape)
        fault = key.fault(value) if value is not None else None
        if fault:
            raise ValueError(f"{fault[0]}. {fault[1]}")
        return raw

    return check


def _entry(table: TableList) -> Any:
    def kind(name: str, shape: ValueType) -> Any:
        known = table.choices.get(name)
        if not known or shape is not ValueType.TEXTS:
            return _TYPES[shape]
        return list[StrictStr]

    fields: dict[str, Any] = {
        f"f{number}": (kind(name, shape), Field(None, alias=name))
        for number, (name, shape) in enumerate(table.keys.items())
    }
    made = create_model(f"Configuration_{table.name}", __base__=_Table, **fields)

    def check(entry: Any) -> Any:
        values: dict[str, Value] = {}
        for field, about in made.model_fields.items():
            value = value_of(getattr(entry, field), table.keys[str(about.alias)])
            if field in entry.model_fields_set and value is not None:
                values[str(about.alias)] = value
        if fault := table.fault(TomlEntry("", table.name, 0, values, {})):
            raise ValueError(f"{fault.problem.why}. {fault.problem.fix}")
        return entry

    return Annotated[made, AfterValidator(check)]
