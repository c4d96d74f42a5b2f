"""Events of JSON mode as values again, so that a client renders them with the transcript of the plain terminal.

`runner/event_values.json_value` made the JSON form; `value_of` reverses it by the types of the fields.
"""

import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum, IntEnum
from functools import cache
from typing import Any

from policy.grants.grant import GrantScope
from policy.model import action as actions
from policy.model.action import Action
from policy.model.assessment import RuleRef
from policy.model.tier import Tier
from runner import event_values, events, messages
from runner.event_values import Card, Pick
from runner.events import Event

_EVENTS: dict[str, type] = {each.type: each for each in typing.get_args(Event)}


class Undecodable(ValueError):
    """The error for an object that is no event of this version."""


def event_of_json(found: Mapping[str, object]) -> Event:
    """Return the event that `found` is the JSON form of. Raise Undecodable."""
    cls = _EVENTS.get(str(found.get("type")))
    if cls is None:
        raise Undecodable(f"there is no event `{str(found.get('type'))[:40]}`")
    try:
        values = {name: make(found[name]) for name, make in _makers(cls) if name in found}
        event: Event = cls(**values)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise Undecodable(f"the event `{found.get('type')}` is not of this version") from error
    return event


@cache
def _makers(cls: type) -> tuple[tuple[str, Callable[[Any], object]], ...]:
    """Return a function for each field of a class, which makes its value from the JSON form."""
    places: dict[str, Any] = {}
    for module in (events, event_values, messages, actions):
        places |= vars(module)
    hints = typing.get_type_hints(cls, places)
    return tuple((each.name, _maker(hints[each.name])) for each in fields(cls) if each.init)


@cache
def _maker(kind: Any) -> Callable[[Any], object]:
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        some = [each for each in inner if each is not type(None)]
        make = _maker(some[0]) if len(some) == 1 else _action if set(some) <= _ACTIONS else _same
        return lambda value: None if value is None else make(value)
    if origin is tuple:
        if len(inner) == 2 and inner[1] is Ellipsis:
            each = _maker(inner[0])
            return lambda value: tuple(map(each, value))
        makers = tuple(map(_maker, inner))
        return lambda value: tuple(make(part) for make, part in zip(makers, value, strict=True))
    if origin is not None or not isinstance(kind, type):
        return _same
    if kind is Tier:
        return lambda value: _TIERS[value]
    if issubclass(kind, IntEnum):
        return lambda value: kind[value.upper()]
    if issubclass(kind, Enum):
        return kind
    if kind is RuleRef:
        return RuleRef.parse
    if kind is Card:
        return _card
    if is_dataclass(kind):
        return lambda value: kind(**{name: make(value[name]) for name, make in _makers(kind) if name in value})
    if kind in (str, int, float, bool):
        return lambda value: _checked(value, kind)
    return _same


_ACTIONS: set[type] = set(actions.ACTIONS.values())
_TIERS = {tier.label: tier for tier in Tier}


def _same(value: object) -> object:
    return value


def _checked(value: object, kind: type) -> object:
    if not isinstance(value, (int, float) if kind is float else kind):
        raise TypeError(f"{value!r} is no {kind.__name__}")
    return value


def _action(value: Mapping[str, object]) -> Action:
    cls: Any = actions.ACTIONS[str(value["type"])]
    made: Action = cls(**{name: make(value[name]) for name, make in _makers(cls) if name in value})
    return made


def _card(value: Mapping[str, Any]) -> Card:
    """Return the card of a question. Its `question` is a field of the event."""
    picks = tuple(
        Pick(tuple(each["keys"]), str(each["grant"]), str(each.get("label", each["grant"])), GrantScope.SESSION,
             str(each["where"]), tuple(each["not_covered"]), each["answer"] == "yes")
        for each in value["choices"] if each["keys"] != ["a"]
    )  # fmt: skip
    own = {"question", "rights", "terms", "choices"}
    values: dict[str, Any] = {
        name: make(value[name]) for name, make in _makers(Card) if name not in own and name in value
    }
    for name in ("rights", "terms"):
        values[name] = tuple((str(label), str(words)) for label, words in value[name].items())
    return Card(question="", choices=picks, **values)
