"""The parts of a shared Git folder that belong to other worktrees than the workspace, which only they may change.

Source: gitrepository-layout(5), `worktrees/<id>/gitdir`.
"""

import os

from policy.languages.git_config import LONGEST, GitConfigError, commondir_target
from policy.model.secret_paths import inside
from sandbox.inside.regular_file import read_start, real_path

_MAIN = ("HEAD", "index", "config.worktree")  # of the main worktree, directly in the shared folder


def other_worktrees(repository: tuple[str, ...], workspace: str) -> tuple[str, ...]:
    """Return the existing paths in a repository outside of `workspace` that must stay read-only there.

    These are the state of the main worktree, the folders of other worktrees, and the file that names the place of this
    worktree. The folder of a worktree inside the workspace is not among them.

    `repository` is the shared folder and this worktree's own folder, which are equal for a submodule.
    """
    shared, own = repository
    if shared == own:
        return ()
    paths = [f"{shared}/{name}" for name in _MAIN] + [f"{own}/gitdir"]
    try:
        names = sorted(os.listdir(f"{shared}/worktrees"))
    except OSError:
        names = []
    for name in names:
        folder = f"{shared}/worktrees/{name}"
        if folder != own and not _within(folder, workspace):
            paths.append(folder)
    return tuple(path for path in paths if os.path.lexists(path) and not os.path.islink(path))


def folders_above(repository: tuple[str, ...]) -> tuple[str, ...]:
    """Return the folders that must keep their names, because `other_worktrees` are in them.

    THREAT T138: a renamed folder takes the read-only paths in it along, and a new one in its place would be writable.
    """
    shared, own = repository
    return () if shared == own else (f"{shared}/worktrees", own)


def _within(folder: str, workspace: str) -> bool:
    """Return True if the worktree of the Git folder `folder` is inside the workspace."""
    try:
        place = commondir_target(read_start(f"{folder}/gitdir", LONGEST + 1, follow=False))
        real = real_path(os.path.join(folder, place))
    except (GitConfigError, OSError, ValueError):
        return False
    return inside(real, workspace) and real != f"{workspace}/.git"
