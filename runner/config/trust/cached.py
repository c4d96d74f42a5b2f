"""Remembered trust, for commands that never ask. The answers are read only if a repository has a configuration."""

import os
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import TYPE_CHECKING

from runner.state.paths import home, state_dir
from runner.state.workspace import workspace_at

if TYPE_CHECKING:
    from runner.config.inventory import Inventory


class RememberedTrust(Mapping[str, str]):
    """The SHA-256 of each configuration file of `workspace`, by path, if the user trusts all of them; otherwise empty.

    All files must be unchanged since the answer: a removed file could have tightened another. Nothing is read before
    the first lookup. `notices` are about the file of answers. A lookup raises StateError or PlaceError.
    """

    def __init__(self, workspace: str, environ: Mapping[str, str]) -> None:
        self._workspace = workspace
        self._environ = environ
        self.notices: tuple[str, ...] = ()

    def __getitem__(self, path: str) -> str:
        return self._hashes[path]

    def __iter__(self) -> Iterator[str]:
        return iter(self._hashes)

    def __len__(self) -> int:
        return len(self._hashes)

    def __bool__(self) -> bool:
        return True  # `trusted or {}` must not read the answers

    @cached_property
    def _hashes(self) -> Mapping[str, str]:
        from runner.config.trust.store import TrustStore, has_answers

        state = state_dir(self._environ)
        if not has_answers(state):
            return {}
        from runner.config.inventory import EntryKind
        from runner.config.trust.discover import look

        answers, self.notices = TrustStore(state).of(self._workspace)
        if not answers:
            return {}
        inventory = look(self._workspace)
        now = [each for each in inventory.entries if each.kind is EntryKind.CONFIGURATION]
        for answer in answers:  # the latest answer about these files is valid
            if [each for each in answer.entries if each.kind is EntryKind.CONFIGURATION] == now:
                return inventory.hashes(EntryKind.CONFIGURATION) if answer.yes else {}
        return {}


def remembered(cwd: str, environ: Mapping[str, str]) -> RememberedTrust:
    """Return the remembered answers for a session in `cwd`, a real path."""
    return RememberedTrust(workspace_at(cwd, environ), environ)


def trusted_inventory(cwd: str, environ: Mapping[str, str]) -> "Inventory | None":
    """Return the inventory of the repository of `cwd`, a real path, if the user has trusted exactly its content; None
    otherwise. No question is asked. Raises StateError or PlaceError.
    """
    from runner.config.trust.store import TrustStore, has_answers

    state = state_dir(environ)
    if not has_answers(state):
        return None
    from runner.config.trust.discover import look

    workspace = workspace_at(cwd, environ)
    answers, _ = TrustStore(state).of(workspace)
    if not answers:
        return None
    inventory = look(workspace, cwd=cwd, home=os.path.realpath(home(environ)))
    answer = next((each for each in answers if each.sha256 == inventory.sha256), None)
    return inventory if answer is not None and answer.yes else None
