"""The answers of the user about repositories. An answer is valid for one exact content, and is stored by workspace,
outside of the workspace.
"""

import os
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

from policy.model.frozen import dataclass
from runner.config.inventory import EntryKind, Inventory, InventoryEntry, hash_of
from runner.state.json_file import StateFile

NAME = "trust.json"
_KEPT = 12  # answers of one workspace, so that a return to an earlier branch asks no question again

_ROWS = 20_000  # entries of all answers together: about 5 MB

TrustAnswers = Mapping[str, tuple["TrustAnswer", ...]]  # by the real path of the workspace; the latest answer first


@dataclass(frozen=True, slots=True)
class TrustAnswer:
    """An answer of the user about one content.

    Attributes:
        yes: True for an approval.
        time: time in UTC, for display only.
        entries: the content.
    """

    yes: bool
    time: str
    entries: tuple[InventoryEntry, ...]

    @property
    def sha256(self) -> str:
        return hash_of(self.entries)


class TrustStore:
    """The answers of this user. They are stored in a folder that `paths.state_dir` has checked. Methods raise
    StateError.
    """

    def __init__(self, folder: str | Path) -> None:
        path, purpose = Path(folder) / NAME, "the list of trusted contents"
        self._file: StateFile[TrustAnswers] = StateFile(path, purpose, 1, dict, _parsed, _dump)

    def all(self) -> tuple[TrustAnswers, tuple[str, ...]]:
        """Return every answer, and notices about the file."""
        held = self._file.read()
        return held.value, held.notices

    def of(self, workspace: str) -> tuple[tuple[TrustAnswer, ...], tuple[str, ...]]:
        """Return the answers for one workspace, the latest first, and notices about the file."""
        answers, notices = self.all()
        return answers.get(workspace, ()), notices

    def remember(self, inventory: Inventory, *, yes: bool, time: str) -> tuple[str, ...]:
        """Store an answer about exactly this content, in place of an earlier one. Return notices about the file."""
        answer = TrustAnswer(yes, time, inventory.entries)
        pinned = answer.sha256

        def add(before: TrustAnswers) -> tuple[TrustAnswers, None]:
            others = [each for each in before.get(inventory.workspace, ()) if each.sha256 != pinned]
            rest = {key: value for key, value in before.items() if key != inventory.workspace}
            return _bounded({**rest, inventory.workspace: (answer, *others[: _KEPT - 1])}), None

        return self._file.change(add)[1]

    def forget(self, workspace: str | None) -> tuple[int, tuple[str, ...]]:
        """Remove the answers for `workspace`, or all answers for None. Return their number, and notices about the
        file.
        """

        def drop(before: TrustAnswers) -> tuple[TrustAnswers, int]:
            others = {key: value for key, value in before.items() if workspace is not None and key != workspace}
            count = sum(map(len, before.values())) - sum(map(len, others.values()))
            return (others if count else before), count

        return self._file.change(drop)


def has_answers(folder: str | Path) -> bool:
    """Return True if there is a file of answers."""
    return os.path.lexists(Path(folder) / NAME)


def _bounded(answers: TrustAnswers) -> TrustAnswers:
    """Return the answers without those for the oldest workspaces, if there are too many. The user will be asked about
    these workspaces again.
    """
    rows = {key: sum(len(each.entries) for each in listed) for key, listed in answers.items()}
    remaining, total = dict(answers), sum(rows.values())
    for oldest in list(answers)[:-1]:
        if total <= _ROWS:
            break
        total -= rows[oldest]
        del remaining[oldest]
    return remaining


def _dump(answers: TrustAnswers) -> dict[str, object]:
    return {"workspaces": {workspace: list(map(_row, given)) for workspace, given in answers.items()}}


def _row(answer: TrustAnswer) -> dict[str, object]:
    entries = [{**asdict(each), "kind": each.kind.value} for each in answer.entries]
    return {"answer": "yes" if answer.yes else "no", "time": answer.time, "entries": entries}


def _parsed(content: dict[str, object], version: int) -> TrustAnswers:
    """Parse the content of the file. Raises ValueError for anything that this module does not write."""
    workspaces = content.pop("workspaces", None)
    if content or not isinstance(workspaces, dict):
        raise ValueError("it is not a list of workspaces")
    if not all(path.startswith("/") and "\0" not in path for path in workspaces):
        raise ValueError("a workspace in it is not an absolute path")
    return {path: tuple(map(_answer, filter(_holds, _list(answers)))) for path, answers in workspaces.items()}


def _holds(raw: object) -> bool:
    """Return False for an answer of an earlier version about tool servers.

    THREAT T180: that version started no servers, and said so when it asked.
    """
    entries = raw.get("entries") if isinstance(raw, dict) else None
    rows = entries if isinstance(entries, list) else []
    return not any(isinstance(each, dict) and each.get("kind") == "servers" for each in rows)


def _answer(raw: object) -> TrustAnswer:
    if not isinstance(raw, dict) or raw.keys() != {"answer", "time", "entries"}:
        raise ValueError("it contains an invalid answer")
    answer, time = raw["answer"], raw["time"]
    if answer not in ("yes", "no") or not isinstance(time, str):
        raise ValueError("it contains an answer that is neither yes nor no")
    return TrustAnswer(answer == "yes", time, tuple(map(_entry, _list(raw["entries"]))))


_SHAPE = {"path": str, "kind": str, "executable": bool, "size": int, "sha256": str, "refused": str}


def _entry(raw: object) -> InventoryEntry:
    if (
        not isinstance(raw, dict)
        or raw.keys() != _SHAPE.keys()
        or any(type(raw[key]) is not shape for key, shape in _SHAPE.items())
    ):
        raise ValueError("it contains an invalid entry")
    return InventoryEntry(**{**raw, "kind": EntryKind(raw["kind"])})  # EntryKind raises ValueError itself


def _list(raw: object) -> list[object]:
    if not isinstance(raw, list):
        raise ValueError("it does not contain a list where a list is required")
    return raw
