"""Tests of `Secret`: one method gives the value."""

import copy
import dataclasses
import inspect
import json
import logging
import pickle
import pprint
import traceback
from collections.abc import Callable

import pytest
import rich.pretty

from runner.secrets.secret import Secret

CANARY = "sk-canary-7f3e9d21c4b8"


@dataclasses.dataclass(frozen=True, slots=True)
class Holder:
    secret: Secret


def _logged(secret: Secret) -> str:
    record = logging.LogRecord("x", logging.INFO, "x", 1, "%s %r", (secret, secret), None)
    return logging.Formatter().format(record)


def _traced(secret: Secret) -> str:
    try:
        raise ValueError(secret)
    except ValueError as error:
        return "".join(traceback.TracebackException.from_exception(error, capture_locals=True).format())


# fmt: off
WINDOWS: list[tuple[str, Callable[[Secret], object]]] = [
    ("repr",           repr),
    ("str",            str),
    ("format",         lambda s: f"{s} {s!r} {s!s} {s:>40} {s!a}"),
    ("percent",        lambda s: "%s %r" % (s, s)),  # noqa: UP031  # the old way is one more way
    ("in a list",      lambda s: repr([s, {"k": s}])),
    ("in a dataclass", lambda s: repr(Holder(s))),
    ("asdict",         lambda s: repr(dataclasses.asdict(Holder(s)))),
    ("json default",   lambda s: json.dumps({"k": s}, default=str)),
    ("pprint",         pprint.pformat),
    ("rich",           rich.pretty.pretty_repr),
    ("log record",     _logged),
    ("traceback",      _traced),
    ("members",        lambda s: repr(inspect.getmembers(s))),
    ("dir",            lambda s: repr([getattr(s, name, None) for name in dir(s)])),
    ("copy",           lambda s: repr([copy.copy(s), copy.deepcopy(s)])),
]
# fmt: on


@pytest.mark.threat("T20")
@pytest.mark.parametrize(("way", "look"), WINDOWS, ids=[way for way, _ in WINDOWS])
def test_no_window_shows_the_value(way: str, look: Callable[[Secret], object]) -> None:
    assert CANARY not in str(look(Secret(CANARY)))


@pytest.mark.threat("T20")
@pytest.mark.parametrize(
    ("way", "attempt"),
    [
        *[(f"pickle {level}", lambda s, level=level: pickle.dumps(s, level)) for level in range(6)],
        ("json", lambda s: json.dumps(s)),
        ("hash", hash),
        ("set", lambda s: setattr(s, "_door", None)),
        ("new attribute", lambda s: setattr(s, "note", None)),
        ("vars", vars),
        ("iterate", list),
    ],
)
def test_what_a_secret_refuses(way: str, attempt: Callable[[Secret], object]) -> None:
    with pytest.raises((TypeError, AttributeError)) as caught:
        attempt(Secret(CANARY))
    assert CANARY not in repr(caught.value)


def test_reveal_is_the_door() -> None:
    assert Secret(CANARY).reveal() == CANARY
    assert copy.deepcopy(Secret(CANARY)).reveal() == CANARY


def test_equality_is_by_value() -> None:
    assert Secret("a") == Secret("a")
    assert Secret("a") != Secret("b")
    assert Secret("a") != "a"
    assert Secret("ü\ud800") == Secret("ü\ud800")


def test_an_empty_secret_is_a_mistake() -> None:
    with pytest.raises(ValueError, match="not empty"):
        Secret("")
