"""Tests of the errors of a keyring's back end: which call is repeated, and which message the user sees."""

import pytest
from keyring.errors import InitError, KeyringLocked
from secretstorage.exceptions import PromptDismissedException, SecretServiceNotAvailableException

from runner.secrets import keyring_store
from runner.secrets.keyring_store import _repeated, _trouble


def caused(error: Exception, cause: Exception) -> Exception:
    error.__cause__ = cause
    return error


ABSENT = SecretServiceNotAvailableException("quotes a key")
# errors of the first calls, number of calls, why
# fmt: off
ERRORS = [
    ([],                                                        1, "no error"),
    ([ABSENT],                                                  2, "a connection that is refused once"),
    ([caused(InitError("x"), ABSENT)],                          2, "the same, as an error of the keyring library"),
    ([ABSENT, ABSENT],                                          3, "a connection that is refused twice"),
    ([ABSENT, ABSENT, ABSENT],                                  3, "a service that is gone"),
    ([KeyringLocked("x")],                                      1, "a locked keyring"),
    ([caused(InitError("x"), PromptDismissedException("x"))],   1, "a question that the user has dismissed is not asked again"),
]
# fmt: on


@pytest.mark.parametrize(("errors", "calls", "why"), ERRORS, ids=[row[2] for row in ERRORS])
def test_a_call_is_repeated_if_the_service_does_not_answer(
    errors: list[Exception], calls: int, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keyring_store, "_PAUSES", (0, 0))
    made: list[str] = []

    def call(word: str) -> str:
        made.append(word)
        if len(made) <= len(errors):
            raise errors[len(made) - 1]
        return "value"

    if len(errors) < calls:
        assert _repeated(call, "word") == "value"
    else:
        with pytest.raises(type(errors[-1])):
            _repeated(call, "word")
    assert made == ["word"] * calls


def test_the_message_names_the_error_and_quotes_nothing() -> None:
    assert _trouble(ABSENT).why == "it could not be opened (SecretServiceNotAvailableException)"
    assert _trouble(caused(InitError("quotes a key"), ABSENT)).why == _trouble(ABSENT).why
