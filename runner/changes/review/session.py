"""Review of a run's changes before they apply: the run works in a copy of the workspace, and its result is a patch."""

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from policy.model.frozen import dataclass
from policy.model.verdict import Problem
from runner.changes.file_state import SECRET
from runner.changes.review.patch import Patch, listed, patch_of
from runner.changes.review.tree_diff import never
from runner.changes.review.workspace_copy import Copy, CopyError, copied, place
from runner.changes.undo.scope import SnapshotScope, choice_of, inventory_of, scope_of, secret_of
from runner.config import Settings
from runner.config.path_mapping import map_settings
from runner.facts.gather import gather
from runner.state.paths import cache_dir, state_dir
from runner.state.workspace import workspace_of
from sandbox.workspace.inventory import Changes, Finding

_LONGEST = 1 << 20  # bytes of an ignore list that are read


@dataclass(frozen=True, slots=True)
class Review:
    """A copy of a workspace to work in.

    Attributes:
        cwd: The working folder, at the same place in the copy.
        original: The workspace, which is not changed.
        copy: The copy.
        settings: The settings of the original, converted for the copy.
        notes: The differences between the copy and the original, in words for the user.
    """

    cwd: Path
    original: str
    copy: Copy
    settings: Settings
    notes: tuple[str, ...]
    _secret: Callable[[str], bool]
    _excludes: tuple[bytes, ...]
    _scope: SnapshotScope

    @property
    def workspace(self) -> str:
        """Return the path of the copy."""
        return self.copy.path

    @property
    def model_note(self) -> str:
        """Return the note about the copy for the model."""
        return (
            f"The workspace {self.workspace} is a copy of {self.original}, made for this run. You cannot access the "
            "original; the user reviews your changes in the copy as a patch. Use relative paths. If you get a path "
            f"below {self.original}, use the same path below {self.workspace}. Secret files are not in the copy."
        )

    def mapped(self, settings: Settings) -> Settings:
        """Return `settings`, which are about the original, for the copy."""
        return map_settings(settings, self.original, self.copy.path, self._scope.facts.home)

    def patch(self, *, ignored: bool = False, over: Callable[[], bool] = never) -> Patch:
        """Return the changes so far as a patch, with `ignored` also those of files that Git ignores.

        The patch names every file that was not compared before `over()` became true. Raise OSError if either folder no
        longer exists.
        """
        scope = self._scope

        def judge(changes: Changes) -> Mapping[str, Finding]:
            return inventory_of(scope, scope.terms(()), scope.workspace).findings(changes)

        excludes = self._excludes
        return patch_of(self.copy, self._secret, with_ignored=ignored, excludes=excludes, judge=judge, over=over)


@contextlib.contextmanager
def reviewed(
    cwd: Path,
    environ: Mapping[str, str],
    settings: Settings,
    *,
    where: str | None = None,
) -> Iterator[Review]:
    """Yield a copy of the workspace around the real path `cwd`, made in the folder `where`. The copy is removed at the
    end.

    Raise CopyError before anything runs, or PlaceError. Secrets are not copied. A command in the copy cannot access the
    original, in any mode. A rule of the user that names a path in the original applies to the same path in the copy.
    Answers remembered for the original do not apply, because they are about paths there.
    """
    facts = gather(str(cwd), environ, settings.profile)
    scope = scope_of(facts, settings.profile, choice_of(settings), cache_dir(environ), state_dir(environ))
    secret = secret_of(scope)
    copy = copied(facts.workspace, where, secret)
    try:
        top = workspace_of(copy.path, facts.home)
        if top != copy.path:
            why = f"`{top}` is a Git repository around it, which would be taken for the workspace"
            fix = "set TMPDIR to a folder elsewhere"
            raise CopyError(Problem(f"no copy can be made in `{where or place()}`", why, fix))
        inner = Path(copy.path) / os.path.relpath(cwd, facts.workspace)
        yield Review(
            Path(os.path.realpath(inner)),
            facts.workspace,
            copy,
            map_settings(settings, facts.workspace, copy.path, facts.home),
            tuple(_notes(copy)),
            secret,
            _excludes(facts.home, environ),
            scope,
        )
    finally:
        copy.remove()


def _excludes(home: str, environ: Mapping[str, str]) -> tuple[bytes, ...]:
    """Return the user's global ignore list (gitignore(5)) from its usual location."""
    base = environ.get("XDG_CONFIG_HOME") or f"{home}/.config"
    try:
        with open(f"{base}/git/ignore", "rb") as file:
            return (file.read(_LONGEST),)
    except OSError:
        return ()


def _notes(copy: Copy) -> Iterator[str]:
    groups = (
        ("not in the copy, because they are secrets", [path for path, why in copy.left_out if why == SECRET]),
        ("not in the copy", [f"{path} ({why})" for path, why in copy.left_out if why != SECRET]),
        ("changed during the copy", copy.torn),
    )
    yield from (f"{words}: {listed(paths)}" for words, paths in groups if paths)
    if os.path.isfile(f"{copy.path}/.git"):
        yield "Git does not work in the copy: the repository of a linked worktree or a submodule is outside of it"
