"""The folder that a session works in, its current Git commit, and the repository that a linked worktree belongs to.

Files of the repository are read without running a program that the workspace names.
"""

import os
import stat
from collections.abc import Mapping
from pathlib import Path

from policy.languages.git_config import LONGEST, GitConfigError, commondir_target, gitdir_target, read_settings
from policy.model.digest import sha256_hex
from policy.model.secret_paths import Secrets, inside
from runner.problems import Stopped, option, usage
from runner.state.paths import home
from sandbox.inside.regular_file import read_start, read_whole

_LARGEST_FILE = 4 << 20  # packed-refs of a big repository


def folder(text: str | None) -> Path:
    """Return the real path of the working folder: `text`, or the current folder."""
    try:
        path = Path(os.path.realpath(text if text is not None else os.getcwd(), strict=True))
    except OSError as error:
        from runner.text.phrases import os_reason

        fix = f"give an existing folder with {option('--cwd')}"
        raise refused_folder(text if text is not None else "the current folder", os_reason(error), fix) from None
    if not path.is_dir():
        raise refused_folder(text or path, "it is not a folder", f"give a folder with {option('--cwd')}")
    if not os.access(path, os.R_OK | os.X_OK):
        fix = f"ask its owner, or give another folder with {option('--cwd')}"
        raise refused_folder(text or path, "you have no permission to read it", fix)
    return path


def refused_folder(path: str | Path, why: str, fix: str) -> Stopped:
    """Return the usage error for a folder that cannot be the working folder."""
    return usage(f"`{path}` cannot be the working folder", why, fix)


def workspace_of(cwd: str, home: str) -> str:
    """Return the top of the Git repository around `cwd`, else `cwd`. Both arguments are real paths.

    The result is never `/`, the home or a folder above the home, unless `cwd` itself is one of them.
    """
    at = cwd
    while at not in ("/", "") and not inside(home, at):
        if os.path.lexists(f"{at}/.git"):
            return at
        at = os.path.dirname(at)
    return cwd


def workspace_at(cwd: str, environ: Mapping[str, str]) -> str:
    """Return the workspace of a session in `cwd`, a real path."""
    return workspace_of(cwd, os.path.realpath(home(environ)))


def linked_repository(workspace: str, secrets: Secrets) -> tuple[str, ...]:
    """Return the Git folder outside the workspace that a linked worktree or a submodule uses, or an empty tuple.

    `.git` came with the workspace, so it is trusted only if the repository it names refers back to this very file, or
    names this very folder as its own.
    """
    return _linked(workspace, secrets)[:1]


def writable_repository(workspace: str, secrets: Secrets) -> tuple[str, ...]:
    """Return the shared Git folder of a linked worktree or a submodule and the worktree's own folder in it, or an empty
    tuple if commands may not change them.

    THREAT T138: a `.git` file that came with the workspace must not open a folder of the host. Beyond the conditions of
    `linked_repository`, both folders have the form that Git gives them, belong to this user, contain no link in
    place of a part, and do not contain the workspace.
    """
    shared, *own = _linked(workspace, secrets) or ("",)
    if not shared or inside(workspace, shared):
        return ()
    if own != [shared] and os.path.dirname(own[0]) != f"{shared}/worktrees":
        return ()
    owned = (shared, *(f"{shared}/{name}" for name in ("objects", "refs")), os.path.dirname(own[0]), own[0])
    return (shared, own[0]) if all(map(_own_folder, owned)) else ()


def _own_folder(path: str) -> bool:
    try:
        status = os.lstat(path)
    except OSError:
        return False
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid()


def _linked(workspace: str, secrets: Secrets) -> tuple[str, ...]:
    """Return the shared Git folder of the repository that `workspace` belongs to and the worktree's own folder, both
    outside of the workspace; an empty tuple if the repository does not refer back to the workspace.
    """
    pointer = f"{workspace}/.git"
    named = _target(pointer, workspace)
    if not named or inside(named, workspace):
        return ()
    if _target(f"{named}/gitdir", named) == pointer:
        shared = _target(f"{named}/commondir", named)
        good = shared and inside(named, shared)
    else:
        shared = named
        good = "/.git/modules/" in named and _worktree(named) == workspace
    if not shared or not good or secrets.exposed_by(shared) or secrets.holds_folder(shared):
        return ()
    return (shared, named) if os.path.basename(shared) == ".git" or "/.git/modules/" in shared else ()


def git_folder(workspace: str) -> str | None:
    """Return the Git folder of `workspace`: its own, or that of a linked worktree or submodule, which must name this
    workspace.

    The content of the folder came with the repository.
    """
    pointer = f"{workspace}/.git"
    if os.path.isdir(pointer) and not os.path.islink(pointer):
        return pointer
    named = _target(pointer, workspace)
    if named and (_target(f"{named}/gitdir", named) == pointer or _worktree(named) == workspace):
        return named
    return None


def _worktree(folder: str) -> str | None:
    """Return the real path of `core.worktree`, which Git writes into the settings of a submodule, or None."""
    try:
        settings = read_settings(read_start(f"{folder}/config", LONGEST + 1, follow=False))
        values = [each.value for each in settings if each.name == "core.worktree"]
        return os.path.realpath(os.path.join(folder, values[-1])) if values and values[-1] else None
    except (GitConfigError, OSError, ValueError):
        return None


def _target(path: str, base: str) -> str | None:
    """Return the real path that a one-line file of Git names, relative to `base`, or None."""
    read = gitdir_target if os.path.basename(path) == ".git" else commondir_target
    try:
        return os.path.realpath(os.path.join(base, read(read_start(path, LONGEST + 1, follow=False))))
    except (GitConfigError, OSError, ValueError):
        return None


def head_commit(workspace: str) -> str | None:
    """Return the commit hash of HEAD; None when there is none, or it cannot be read cheaply and safely."""
    folder = git_folder(workspace) or f"{workspace}/.git"
    head = small_file(os.path.join(folder, "HEAD"))
    if head is None:
        return None
    if not head.startswith("ref: "):
        return _hash(head)
    name = head[5:].strip()
    if not name.startswith("refs/") or ".." in name:
        return None
    if os.path.lexists(f"{folder}/commondir"):  # branches are in the folder that all worktrees share
        shared = _target(f"{folder}/commondir", folder)
        if not shared or not inside(folder, shared):
            return None
        folder = shared
    loose = small_file(os.path.join(folder, name))
    if loose is not None:
        return _hash(loose)
    for line in (small_file(os.path.join(folder, "packed-refs")) or "").splitlines():
        if line.endswith(f" {name}"):
            return _hash(line.split(" ", 1)[0])
    return None


def _hash(text: str) -> str | None:
    text = text.strip()
    return text if len(text) in (40, 64) and not set(text) - set("0123456789abcdef") else None


def small_file(path: str) -> str | None:
    """Return the text of a file of a repository; None if it cannot be read.

    THREAT: the repository may be hostile. No symbolic link is followed, and no pipe, device or long file is read.
    """
    try:
        return read_whole(path, _LARGEST_FILE, follow=False).decode("utf-8", "replace")
    except (OSError, ValueError):
        return None


_LONGEST = 40  # characters of the readable part; the hash distinguishes workspaces
_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyz0123456789")


def workspace_key(workspace: str | Path) -> str:
    """Return the folder name of `workspace`: the last part of its real path in plain letters, `-`, and 16 hex digits of
    its hash.

    Two spellings of one folder have one key. It contains `a-z`, `0-9` and `-` only, does not start with `-`, and has at
    most 57 characters. Two workspaces with one key would need a collision of 64 bits of SHA-256.
    """
    real = os.path.realpath(workspace)
    digest = sha256_hex(os.fsencode(real))[:16]
    words = "".join(char if char in _PLAIN else " " for char in os.path.basename(real).lower()).split()
    return f"{'-'.join(words)[:_LONGEST].rstrip('-') or 'folder'}-{digest}"
