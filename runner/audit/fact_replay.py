"""Recorded facts as a replacement for the machine. They answer the recorded requests, and requests whose answers follow
from those with certainty, and report every other request as missing.
"""

from collections.abc import Callable, Mapping
from dataclasses import fields
from datetime import date
from typing import TypeVar

from policy.model.assessment import Scope
from policy.model.facts import SERVICE_CLIENTS, Facts, Kind, PathFact, Remotes, ShellText

_Value = TypeVar("_Value")
_KINDS = {kind.value: kind for kind in Kind}
_SCOPES = {scope.value: scope for scope in Scope}


class Recorded:
    """Facts of one recorded decision, from its three recorded parts. Raises ValueError for invalid parts.

    `today` is the day of the decision. `now` describes a path on today's disk, for paths that were not recorded; None
    to report them as missing.

    Attributes:
        missing: the requests that the record cannot answer, in words; if there are any, the new verdict is not valid
        looked: the paths that `now` was called for
    """

    def __init__(
        self,
        machine: Mapping[str, object],
        top: Mapping[str, object],
        asked: Mapping[str, object],
        today: date | None,
        now: Callable[[str], PathFact] | None = None,
    ) -> None:
        self.missing: list[str] = []
        self.looked: list[str] = []
        self._now = now
        self._places = {path: _fact(path, found) for path, found in _table(asked, "look").items()}
        self._answers = {name: _table(asked, name) for name in ("which", "names", "remotes", "registries")}
        # Records of earlier versions have no `tracked`; the others are recorded only if they were asked for.
        optional = ("tracked", "logins", "keeps_folder", "shell_text")
        self._answers |= {name: _table(asked, name) for name in optional if name in asked}
        self.facts = Facts(
            workspace=_field(machine, "workspace", str),
            home=_field(machine, "home", str),
            path=_texts(machine.get("path")),
            system=_texts(machine.get("system")),
            private=_texts(machine.get("private")),
            repository=_texts(machine.get("repository", [])),
            beyond=_field(machine, "beyond", str),
            cache=_field(machine, "cache", str),
            today=today,
            look=self._look,
            which=lambda name: self._answer("which", name, f"where the program `{name}` is", _program),
            names=lambda folder: self._answer("names", folder, f"what is in `{folder}`", _texts),
            remotes=lambda folder: self._answer("remotes", folder, f"the remotes of `{folder}`", _remotes) or Remotes(),
            tracked=lambda source: self._answer(
                "tracked", str(source), f"which secret files the {source} of the repository contains", _texts
            ),
            login=lambda path: self._answer("logins", path, f"whether `{path}` contains a login", _unchanged) is True,
            keeps_folder=lambda path: (
                self._answer("keeps_folder", path, f"whether `{path}` changes the folder", _unchanged) is True
            ),
            shell_text=self._shell_text,
            registries=self._registries,
        )
        real = [fact.real for fact in self._places.values() if fact.kind in (Kind.FILE, Kind.FOLDER)]
        self._top(top)
        self._folders = {above for path in (*real, f"{self.facts.workspace}/.") for above in _above(path)}

    def _top(self, top: Mapping[str, object]) -> None:
        """Read the recorded entries of the workspace folder. A recorded request for an entry takes precedence."""
        own = self.facts.workspace.rstrip("/")
        self._whole = top.get("whole") is True
        for kind in _KINDS.values():
            for name in _texts(top.get(kind.value, [])):
                self._places.setdefault(f"{own}/{name}", PathFact(f"{own}/{name}", kind))
        for name, found in _table(top, "links").items():
            self._places.setdefault(f"{own}/{name}", _fact(f"{own}/{name}", found))

    def _look(self, path: str) -> PathFact:
        fact = self._places.get(path) or self._inferred(path)
        if fact is None:
            if self._now is not None:
                self.looked.append(path)
                fact = self._now(path)
            else:
                self.missing.append(f"what `{path}` is")
                fact = PathFact(path, Kind.OTHER)
            self._places[path] = fact
        return fact

    def _inferred(self, path: str) -> PathFact | None:
        """Return the fact about a path that follows from the recorded facts, or None: each parent of a real path is a
        real folder, and a file has nothing below it.
        """
        if path in self._folders:
            return PathFact(path, Kind.FOLDER)
        if {"", ".", ".."} & set(path.split("/")[1:]):
            return None
        own = self.facts.workspace.rstrip("/")
        if self._whole and path.startswith(f"{own}/"):
            name = path[len(own) + 1 :].partition("/")[0]
            if f"{own}/{name}" not in self._places:
                return PathFact(path, Kind.MISSING)  # the complete list of entries does not have that name
        for above in _above(path):
            fact, rest = self._places.get(above), path[len(above) :]
            if fact is not None and fact.kind in (Kind.FILE, Kind.MISSING):
                return PathFact(fact.real + rest, Kind.MISSING)
            if fact is not None and fact.kind is Kind.FOLDER and fact.real not in (above, "/"):
                return self._places.get(fact.real + rest) or self._inferred(fact.real + rest)
        return None

    def _registries(self, program: str, folder: str) -> tuple[tuple[str, Scope], ...]:
        if program.partition(" ")[0] in SERVICE_CLIENTS and f"{program}\0{folder}" not in self._answers["registries"]:
            return ()  # records of earlier versions, which did not read the settings of these programs
        what = f"the registries of `{program}` in `{folder}`"
        return self._answer("registries", f"{program}\0{folder}", what, _registries) or ()

    def _shell_text(self, path: str) -> ShellText | None:
        """Return the text of the file as it is now if it has the recorded SHA-256. Records contain no text."""
        recorded = self._answer("shell_text", path, f"the text of `{path}`", _program)
        if recorded is None:
            return None
        from runner.facts.sourced_file import shell_text  # few records need a file

        found = shell_text(path)
        if found is None or found.sha256 != recorded:
            self.missing.append(f"the text of `{path}`, which is not the file that was judged")
            return None
        return found

    def _answer(self, table: str, name: str, what: str, read: Callable[[object], _Value]) -> _Value | None:
        """Return the recorded answer, or None if it is missing or invalid; then `what` or the error is in `missing`."""
        answers = self._answers.get(table, {})
        if name not in answers:
            self.missing.append(what)
        answer = answers.get(name)
        try:
            return read(answer) if answer is not None else None
        except ValueError as error:
            self.missing.append(str(error))
            return None


def _unchanged(value: object) -> object:
    return value


def _program(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _above(path: str) -> list[str]:
    """Return every parent folder of `path`, the nearest first."""
    parts = path.split("/")
    return ["/".join(parts[:count]) or "/" for count in range(len(parts) - 1, 0, -1)]


def _fact(path: str, value: object) -> PathFact:
    kind, real = value if isinstance(value, list) and len(value) == 2 else (value, path)
    if not isinstance(real, str) or not isinstance(kind, str) or kind not in _KINDS:
        raise ValueError(f"`{path}` has an invalid description")
    return PathFact(real, _KINDS[kind])


def _remotes(found: object) -> Remotes:
    if not isinstance(found, dict) or set(found) != {each.name for each in fields(Remotes)}:
        raise ValueError("the recorded remotes are invalid")
    shapes = {each.name: type(getattr(Remotes(), each.name)) for each in fields(Remotes)}
    if any(type(value) is not {tuple: list}.get(shapes[name], shapes[name]) for name, value in found.items()):
        raise ValueError("the recorded remotes are invalid")
    values = {name: _frozen(value) for name, value in found.items()}
    return Remotes(**values)  # type: ignore[arg-type]  # its fields were checked above


def _registries(value: object) -> tuple[tuple[str, Scope], ...]:
    pairs = [each for each in value if isinstance(each, list) and len(each) == 2] if isinstance(value, list) else []
    if not isinstance(value, list) or len(pairs) != len(value) or not all(str(scope) in _SCOPES for _, scope in pairs):
        raise ValueError("the recorded registries are invalid")
    return tuple((str(host), _SCOPES[scope]) for host, scope in pairs)


def _frozen(value: object) -> object:
    """Return `value` with lists replaced by tuples at any depth."""
    if isinstance(value, list):
        return tuple(map(_frozen, value))
    return {name: _frozen(each) for name, each in value.items()} if isinstance(value, dict) else value


def _field(part: Mapping[str, object], name: str, shape: type[_Value]) -> _Value:
    value = part.get(name)
    if not isinstance(value, shape):
        raise ValueError(f"there is no `{name}` in the recorded facts")
    return value


def _table(part: Mapping[str, object], name: str) -> dict[str, object]:
    return _field(part, name, dict)


def _texts(value: object) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise ValueError("a list is missing")
    return tuple(map(str, value))
