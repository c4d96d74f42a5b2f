"""Recorder of the facts that the gate requested while it judged one action, so that the action can be judged again
elsewhere.

The facts have three parts, since most actions share the first two: `machine` (working folder, system folders, our own
folders), `top` (the entries of the workspace folder, since rules of another policy will name them) and `asked` (paths,
programs, folders, remotes, registries). Values of variables are in none of the parts: no decision depends on them, and
one may be a token that a user passes through.
"""

import hashlib
import json
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from itertools import islice
from typing import TypeVar

from policy.model.assessment import Scope
from policy.model.facts import Facts, Kind, PathFact, Remotes
from policy.model.profile import Profile

MOST = 48 << 10  # characters of what was asked about one action
ENTRIES = 1000  # of the workspace's own folder; with more, it is left out
_PASSWORD = re.compile(r"(://[^/@:]*:)[^/@]*(?=@)")
_Value = TypeVar("_Value")


class FactRecorder:
    """Recorder between the gate and the machine. Use `facts` in place of the facts that the recorder was created
    with."""

    def __init__(self, facts: Facts, profile: Profile) -> None:
        self._look: dict[str, PathFact] = {}
        self._which: dict[str, str | None] = {}
        self._names: dict[str, tuple[str, ...] | None] = {}
        self._remotes: dict[str, Remotes] = {}
        self._tracked: dict[str, tuple[str, ...] | None] = {}
        self._logins: dict[str, bool] = {}
        self._registries: dict[tuple[str, str], tuple[tuple[str, Scope], ...]] = {}
        self._profile = profile
        self._parts: tuple[dict[str, object], ...] = ()
        self.facts = replace(
            facts,
            look=_kept(facts.look, self._look),
            which=_kept(facts.which, self._which),
            names=_kept(facts.names, self._names),
            remotes=_kept(facts.remotes, self._remotes),
            tracked=_kept(facts.tracked, self._tracked),
            login=_kept(facts.login, self._logins),
            registries=self._asking(facts.registries),
        )

    def _asking(
        self, registries: Callable[[str, str], tuple[tuple[str, Scope], ...]]
    ) -> Callable[[str, str], tuple[tuple[str, Scope], ...]]:
        def found(program: str, folder: str) -> tuple[tuple[str, Scope], ...]:
            answer = self._registries[program, folder] = registries(program, folder)
            return answer

        return found

    def parts(self) -> tuple[dict[str, object], ...]:
        """Return the facts for the record, unchanged after the first call. Facts beyond MOST are left out and
        counted."""
        self._parts = self._parts or self._made()
        return self._parts

    def _made(self) -> tuple[dict[str, object], ...]:
        facts = self.facts
        machine: dict[str, object] = {
            "about": "machine",
            "workspace": facts.workspace,
            "home": facts.home,
            "path": list(facts.path),
            "system": list(facts.system),
            "private": list(facts.private),
            "beyond": facts.beyond,
            "cache": facts.cache,
            "lists": lists(self._profile),
        }
        room = _Room()
        asked: dict[str, object] = {
            "about": "asked",
            "look": room.of(self._look, _place),
            "which": room.of(self._which, _as_it_is),
            "names": room.of(self._names, _as_it_is),
            "remotes": room.of(self._remotes, _remotes),
            "tracked": room.of(self._tracked, _as_it_is),
            **({"logins": room.of(self._logins, _as_it_is)} if self._logins else {}),
            "registries": room.of(
                {f"{program}\0{folder}": found for (program, folder), found in self._registries.items()}, _as_it_is
            ),
        }
        return machine, top(facts), {**asked, "cut": room.cut}


def top(facts: Facts) -> dict[str, object]:
    """Return the names in the workspace folder by kind, links with their targets. `whole` is True if that is all of
    them.
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


def lists(profile: Profile) -> str:
    """Return the lists that determine the system folders of `machine`: other lists would yield other folders."""
    text = json.dumps([profile.system, profile.etc])
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


class _Room:
    """Budget of what may still be recorded. A fact that is left out makes a later judgement unknown, never a different
    one.
    """

    def __init__(self) -> None:
        self.left = MOST
        self.cut = 0

    def of(self, asked: dict[str, _Value], told: Callable[[str, _Value], object]) -> dict[str, object]:
        kept = {}
        for name, answer in asked.items():
            said = told(name, answer)
            self.left -= len(name) + 8 + (len(json.dumps(said)) if said is not None else 0)
            if self.left < 0:
                self.cut += 1
            else:
                kept[name] = said
        return kept


def _kept(ask: Callable[[str], _Value], into: dict[str, _Value]) -> Callable[[str], _Value]:
    def found(name: str) -> _Value:
        answer = into[name] = ask(name)
        return answer

    return found


def _place(path: str, found: PathFact) -> object:
    """Return the kind of a path, and its real path when that differs."""
    return found.kind.value if found.real == path else [found.kind.value, found.real]


def _as_it_is(_: str, found: object) -> object:
    return found


def _remotes(_: str, found: Remotes) -> object:
    """Return every field of the remotes; addresses without a password."""
    return {each.name: _without_passwords(getattr(found, each.name)) for each in fields(found)}


def _without_passwords(value: object) -> object:
    if isinstance(value, str):
        return _PASSWORD.sub(r"\1x", value)
    if isinstance(value, Mapping):
        return {name: _without_passwords(each) for name, each in value.items()}
    return [_without_passwords(each) for each in value] if isinstance(value, tuple) else value
