"""Recorder of the facts that the gate requested while it judged one action, so that the action can be judged again
elsewhere.

The facts have three parts, since most actions share the first two: `machine` (workspace, system folders, folders of
ringfence), `top` (the entries of the workspace folder, which rules of another policy may name) and `asked` (paths,
programs, folders, remotes, registries). No part contains values of variables: no decision depends on a value, and
a value may be a token that a user passes through.
"""

import json
import os
from collections.abc import Callable, Mapping
from itertools import islice
from typing import Any, TypeVar

from policy.model.digest import sha256_hex
from policy.model.facts import Facts, Kind, PathFact, Remotes, ShellText
from policy.model.frozen import fields, replace
from policy.model.glob import late
from policy.model.profile import Profile

MOST = 48 << 10  # characters of the part `asked` of one action
ENTRIES = 1000  # entries of the workspace folder; if it has more, none is recorded
_PASSWORD = late(r"(://[^/@:]*:)[^/@]*(?=@)")
_Value = TypeVar("_Value")


class FactRecorder:
    """Recorder between the gate and the machine. Its `facts` pass requests on to the `facts` argument, and record the
    answers."""

    def __init__(self, facts: Facts, profile: Profile) -> None:
        self._answers: dict[str, dict[str, Any]] = {name: {} for name in _ENCODERS}
        self._profile = profile
        self._parts: tuple[dict[str, object], ...] = ()
        recording: dict[str, Any] = {
            name: _recording(getattr(facts, name), answers) for name, answers in self._answers.items()
        }
        self.facts = replace(facts, **recording)

    def parts(self) -> tuple[dict[str, object], ...]:
        """Return the three parts; later calls return the same parts. Facts beyond MOST characters are left out and
        counted in the field `cut`."""
        self._parts = self._parts or self._encoded()
        return self._parts

    def _encoded(self) -> tuple[dict[str, object], ...]:
        facts = self.facts
        machine: dict[str, object] = {
            "about": "machine",
            **{name: getattr(facts, name) for name in ("workspace", "home", "beyond", "cache")},
            **{name: list(getattr(facts, name)) for name in ("path", "system", "private")},
            "lists": lists_digest(self._profile),
        }
        if facts.repository:  # records of ordinary workspaces stay as they were
            machine["repository"] = list(facts.repository)
        asked: dict[str, object] = {"about": "asked"}
        remaining, cut = MOST, 0
        for name, answers in self._answers.items():
            encoded: dict[str, object] = {}
            for words, answer in answers.items():
                value = _ENCODERS[name](words, answer)
                remaining -= len(words) + 8 + (len(json.dumps(value)) if value is not None else 0)
                # An omitted fact makes a replay of the action impossible; it never changes the replayed verdict.
                if remaining < 0:
                    cut += 1
                else:
                    encoded[words] = value
            if answers or name not in (
                "login",
                "keeps_folder",
                "shell_text",
            ):  # records of earlier versions have no such fields
                asked["logins" if name == "login" else name] = encoded
        return machine, workspace_entries(facts), {**asked, "cut": cut}


def workspace_entries(facts: Facts) -> dict[str, object]:
    """Return the names in the workspace folder by kind, and links with their targets. The field `whole` is True if no
    name is missing.
    """
    kinds: dict[str, list[str]] = {kind.value: [] for kind in (Kind.FILE, Kind.FOLDER, Kind.OTHER)}
    links: dict[str, object] = {}
    try:
        with os.scandir(facts.workspace) as found:
            entries = sorted(islice(found, ENTRIES + 1), key=lambda entry: entry.name)
            for entry in entries[: ENTRIES if len(entries) <= ENTRIES else 0]:
                if entry.is_symlink():
                    path = f"{facts.workspace}/{entry.name}"
                    links[entry.name] = _place(path, facts.look(path))
                else:
                    file, folder = entry.is_file(follow_symlinks=False), entry.is_dir(follow_symlinks=False)
                    kinds[(Kind.FILE if file else Kind.FOLDER if folder else Kind.OTHER).value].append(entry.name)
    except OSError:
        return {"about": "top", "whole": False, "links": {}}
    return {"about": "top", "whole": len(entries) <= ENTRIES, **kinds, "links": links}


def lists_digest(profile: Profile) -> str:
    """Return a digest of the lists that determine the system folders of `machine`: other lists yield other folders."""
    text = json.dumps([profile.system, profile.etc])
    return sha256_hex(text.encode("utf-8", "surrogatepass"))[:16]


def _recording(ask: Callable[..., _Value], answers: dict[str, _Value]) -> Callable[..., _Value]:
    """Return a function that calls `ask` and stores each answer in `answers`, under the arguments of the request."""

    def recording(*words: object) -> _Value:
        answer = answers["\0".join(map(str, words))] = ask(*words)
        return answer

    return recording


def _place(path: str, fact: PathFact) -> object:
    """Return the kind of a path, with its real path if that differs."""
    return fact.kind.value if fact.real == path else [fact.kind.value, fact.real]


def _unchanged(_: str, value: object) -> object:
    return value


def _hash(_: str, found: ShellText | None) -> object:
    """Return the SHA-256 of the text, which itself may contain secrets."""
    return found.sha256 if found is not None else None


def _remotes(_: str, remotes: Remotes) -> object:
    """Return every field of the remotes; addresses without a password."""
    return {each.name: _without_passwords(getattr(remotes, each.name)) for each in fields(remotes)}


def _without_passwords(value: object) -> object:
    if isinstance(value, str):
        return _PASSWORD.sub(r"\1x", value)
    if isinstance(value, Mapping):
        return {name: _without_passwords(each) for name, each in value.items()}
    return [_without_passwords(each) for each in value] if isinstance(value, tuple) else value


# Functions of the facts, in the order in which their answers are recorded, with the encoders of the answers.
_ENCODERS: dict[str, Callable[[str, Any], object]] = {
    "look": _place,
    "which": _unchanged,
    "names": _unchanged,
    "remotes": _remotes,
    "tracked": _unchanged,
    "login": _unchanged,
    "keeps_folder": _unchanged,
    "shell_text": _hash,
    "registries": _unchanged,
}
