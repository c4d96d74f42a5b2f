"""One tool server of another client's file, as keys of `[mcp.NAME]`."""

import re
from collections.abc import Mapping
from dataclasses import field

from policy.model.frozen import dataclass
from policy.toml.schema import Value
from runner.config.server_values import CHECKS, server_fault

_INSERTED = re.compile(r"\$\{([^}]*)\}")
_ENVIRONMENT = re.compile(r"env:([A-Za-z_][A-Za-z0-9_]*)", re.ASCII)
_QUESTION = re.compile(r"input:(.+)", re.DOTALL)
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(?::-.*)?", re.ASCII | re.DOTALL)
_NO_BRACE = re.compile(r"\$(?!\{)")
_NO_NAME = re.compile(r"\$(?![A-Za-z_{])", re.ASCII)


@dataclass(frozen=True, slots=True)
class ForeignServer:
    """One server of another client's file. All texts are untrusted.

    Attributes:
        name: The name in the file, which may be unfit for a server of ours.
        values: The keys of `[mcp.NAME]` with the same meaning; empty if the entry has a fault.
        left: Sentences about what is not taken over.
        fault: The reason why the entry cannot be used, or empty.
    """

    name: str
    values: Mapping[str, Value] = field(default_factory=dict)
    left: tuple[str, ...] = ()
    fault: str = ""


class NoServersError(ValueError):
    """The error for a file without a table of servers."""


class EntryFault(ValueError):
    """The error for an entry that cannot be used. Its text is the reason."""


def finished(name: str, values: Mapping[str, Value], left: list[str]) -> ForeignServer:
    """Return the server, or the fault that its values have for `[mcp.NAME]`."""
    for key, value in values.items():
        wrong = CHECKS[key](value) if key in CHECKS else None
        if wrong:
            return ForeignServer(name, fault=f"`{key}`: {wrong[0]}")
    if wrong_keys := server_fault(values):
        key, (why, _) = wrong_keys
        return ForeignServer(name, fault=f"`{key}`: {why}" if key else why)
    return ForeignServer(name, values, tuple(left))


def inserted(text: str, left: list[str]) -> str:
    """Return a text of another client's file with its variables in braces in our spelling. Sentences about them are
    added to `left`. Raise EntryFault for a form that has no counterpart.
    """

    def replaced(found: re.Match[str]) -> str:
        inner = found[1]
        if match := _ENVIRONMENT.fullmatch(inner):
            return f"${{{match[1]}}}"
        if match := _QUESTION.fullmatch(inner):
            name = re.sub(r"[^A-Za-z0-9]+", "_", match[1], flags=re.ASCII).strip("_").upper() or "INPUT"
            name = f"_{name}" if name[0].isdigit() else name
            left.append(f"the other client asks for `{match[1]}`: set the variable `{name}` before you start a session")
            return f"${{{name}}}"
        if inner == "userHome":
            return "${HOME}"
        if _PLAIN.fullmatch(inner):
            return found[0]
        raise EntryFault(f"`{found[0]}` has no counterpart")

    return _INSERTED.sub(replaced, text)


def doubled(text: str, *, bare: bool) -> str:
    """Return the value of a variable or header with each dollar sign doubled that inserts nothing at the other client.

    `bare` is True for a client that inserts `$NAME` without braces, too.
    """
    return (_NO_NAME if bare else _NO_BRACE).sub("$$", text)
