"""A Secret has one door; a key is found where it should be, and never where it should not."""

import copy
import dataclasses
import inspect
import json
import logging
import pickle
import pprint
import threading
import time
import traceback
from collections.abc import Callable, Iterator

import keyring
import keyring.backend
import keyring.errors
import pytest
import rich.pretty
from hypothesis import given
from hypothesis import strategies as st

from runner.secrets import Secret, SecretError, find_secret, from_environment, redact

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


@pytest.mark.threat("T20")
@given(st.lists(st.text(min_size=1), min_size=1, max_size=4), st.text(), st.text())
def test_redacted_text_holds_no_secret(values: list[str], before: str, after: str) -> None:
    secrets = [Secret(value) for value in values]
    shown = redact(before + "".join(values) + after, secrets)
    left = shown.replace("[secret]", "\0")  # the mask's own letters do not count
    assert all(value not in left for value in values if "\0" not in value)


def test_redaction_masks_the_longer_value_whole() -> None:
    assert redact("key abc-123 and abc", [Secret("abc"), Secret("abc-123")]) == "key [secret] and [secret]"


class Shelf(keyring.backend.KeyringBackend):
    """A keyring that answers as it is told."""

    priority = 0.1  # type: ignore[assignment]  # never chosen by itself

    def __init__(self, answer: Callable[[str, str], str | None]) -> None:
        super().__init__()
        self.answer = answer
        self.asked: list[tuple[str, str]] = []

    def get_password(self, service: str, username: str) -> str | None:
        self.asked.append((service, username))
        return self.answer(service, username)

    def set_password(self, service: str, username: str, password: str) -> None:
        raise AssertionError("nothing of ours writes to a keyring")


@pytest.fixture
def use_keyring() -> Iterator[Callable[[Callable[[str, str], str | None]], Shelf]]:
    before = keyring.get_keyring()

    def use(answer: Callable[[str, str], str | None]) -> Shelf:
        shelf = Shelf(answer)
        keyring.set_keyring(shelf)
        return shelf

    yield use
    keyring.set_keyring(before)


def test_the_environment_comes_first_and_the_keyring_is_not_woken(use_keyring) -> None:
    shelf = use_keyring(lambda *_: "other")
    assert find_secret("anthropic", {"ANTHROPIC_API_KEY": CANARY}).reveal() == CANARY
    assert find_secret("openai", {"OPENAI_API_KEY": f" {CANARY}\n"}).reveal() == CANARY
    assert shelf.asked == []


@pytest.mark.parametrize(
    "environ", [{}, {"ANTHROPIC_API_KEY": ""}, {"ANTHROPIC_API_KEY": "  "}, {"OPENAI_API_KEY": "x"}]
)
def test_then_the_keyring(environ: dict[str, str], use_keyring) -> None:
    shelf = use_keyring(lambda *_: CANARY)
    assert find_secret("anthropic", environ).reveal() == CANARY
    assert shelf.asked == [("ringfence", "anthropic")]


def _raise(error: Exception) -> Callable[[str, str], str | None]:
    def answer(service: str, username: str) -> str | None:
        raise error

    return answer


# fmt: off
TROUBLE = [
    (lambda *_: None,                                       "has no such item",        "an empty keyring"),
    (lambda *_: "",                                         "has no such item",        "an empty item"),
    (_raise(keyring.errors.NoKeyringError(CANARY)),         "offers no keyring",       "a server"),
    (_raise(keyring.errors.KeyringLocked(CANARY)),          "is locked",               "a locked one"),
    (_raise(keyring.errors.InitError(CANARY)),              "could not be opened",     "one that does not start"),
    (_raise(OSError(CANARY)),                               "failed (OSError)",        "a plug-in that breaks"),
    (_raise(RuntimeError(CANARY)),                          "failed (RuntimeError)",   "one that breaks otherwise"),
]
# fmt: on


@pytest.mark.parametrize(("answer", "said", "why"), TROUBLE, ids=[why for _, _, why in TROUBLE])
def test_a_keyring_without_an_answer_is_a_problem(answer, said: str, why: str, use_keyring) -> None:
    use_keyring(answer)
    with pytest.raises(SecretError) as caught:
        find_secret("anthropic", {})
    problem = caught.value.problem
    assert said in problem.why
    assert "`ANTHROPIC_API_KEY` is not set" in problem.why
    assert "keyring set ringfence anthropic" in problem.fix
    assert CANARY not in repr(caught.value) + str(problem)
    assert caught.value.__context__ is None, "the plug-in's exception must not hang on ours"


def test_a_hanging_keyring_is_a_problem_too(use_keyring) -> None:
    release = threading.Event()
    use_keyring(lambda *_: str(release.wait(30)))
    started = time.monotonic()
    try:
        with pytest.raises(SecretError, match=r"did not answer within 0\.1 seconds"):
            find_secret("anthropic", {}, patience=0.1)
    finally:
        release.set()
    assert time.monotonic() - started < 20, "it did not wait for the keyring"


@pytest.mark.threat("T20")
@pytest.mark.parametrize(
    ("value", "why"),
    [
        (f"{CANARY}\r\nx-evil: 1", "a line end would start another header"),
        (f"{CANARY}é", "not ASCII"),
        (f"{CANARY} {CANARY}", "a blank"),
        (f"{CANARY}\0", "a NUL"),
        (f"{CANARY}\ud800", "a lone surrogate"),
    ],
)
def test_a_key_that_no_header_may_carry_is_refused(value: str, why: str, use_keyring) -> None:
    use_keyring(lambda *_: value)
    with pytest.raises(SecretError, match="cannot be used") as by_variable:
        find_secret("anthropic", {"ANTHROPIC_API_KEY": value})
    with pytest.raises(SecretError, match="cannot be used") as by_keyring:
        find_secret("anthropic", {})
    assert "`ANTHROPIC_API_KEY`" in by_variable.value.problem.why
    assert "`ringfence` / `anthropic`" in by_keyring.value.problem.why
    assert CANARY not in repr(by_variable.value) + repr(by_keyring.value)


def test_a_provider_without_a_variable_is_looked_up_in_the_keyring(use_keyring) -> None:
    use_keyring(lambda service, name: CANARY if name == "other" else None)
    assert find_secret("other", {}).reveal() == CANARY
    with pytest.raises(SecretError, match="no API key for `unheard`"):
        find_secret("unheard", {})


def test_local_servers_may_go_without(use_keyring) -> None:
    shelf = use_keyring(lambda *_: CANARY)
    assert from_environment("openai", {}) is None
    assert from_environment("openai", {"OPENAI_API_KEY": ""}) is None
    assert from_environment("openai", {"OPENAI_API_KEY": "local"}) == Secret("local")
    assert shelf.asked == []
