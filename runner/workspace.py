"""Which folder a session works in, and the repository that a linked worktree belongs to."""

import os

from policy.secrecy import Secrets, inside

_LONGEST_SETTINGS = 1 << 16
_LONGEST = 4096  # bytes of a pointer file; real ones hold one path


def workspace_of(cwd: str, home: str) -> str:
    """The top of the Git repository around `cwd`, else `cwd`. Both arguments are real paths.

    Never `/`, and never the home or a folder above it, unless `cwd` itself is: then that is the answer either way.
    """
    at = cwd
    while at not in ("/", "") and not inside(home, at):
        if _there(f"{at}/.git"):
            return at
        at = os.path.dirname(at)
    return cwd


def linked_repository(workspace: str, secrets: Secrets) -> tuple[str, ...]:
    """The Git folder elsewhere that a linked worktree shares with its main one, or that a submodule has in the project
    around it; empty for every other kind of workspace.

    `.git` came with the workspace, so it is believed only when the repository it names points back at this very file,
    or names this very folder as its own.
    """
    pointer = f"{workspace}/.git"
    named = _pointer(pointer, "gitdir:", workspace)
    if not named or inside(named, workspace):
        return ()
    if _pointer(f"{named}/gitdir", "", named) == pointer:
        shared = _pointer(f"{named}/commondir", "", named)
        good = shared and inside(named, shared)
    else:
        shared = named
        good = "/.git/modules/" in named and _worktree(named) == workspace
    if not shared or not good or secrets.exposed_by(shared) or secrets.holds_folder(shared):
        return ()
    return (shared,) if os.path.basename(shared) == ".git" or "/.git/modules/" in shared else ()


def git_folder(workspace: str) -> str | None:
    """The Git folder of `workspace`: its own, or the one of a linked worktree or submodule, which must name this very
    workspace. What is in it came with the repository."""
    pointer = f"{workspace}/.git"
    if os.path.isdir(pointer) and not os.path.islink(pointer):
        return pointer
    named = _pointer(pointer, "gitdir:", workspace)
    if named and (_pointer(f"{named}/gitdir", "", named) == pointer or _worktree(named) == workspace):
        return named
    return None


def _worktree(folder: str) -> str | None:
    """The real path of `core.worktree`, which Git writes into the settings of a submodule; None when there is none."""
    section = ""
    for raw in _text(f"{folder}/config", _LONGEST_SETTINGS).splitlines():
        line = raw.strip()
        if line.startswith("["):
            section = line.strip("[] ").lower()
        key, equals, value = line.partition("=")
        if section == "core" and equals and key.strip().lower() == "worktree" and "\0" not in value:
            return os.path.realpath(os.path.join(folder, value.strip()))
    return None


def _pointer(path: str, prefix: str, base: str) -> str | None:
    """The real path that a one-line file names, relative to `base`."""
    line = _text(path, _LONGEST)
    target = line[len(prefix) :].strip() if line.startswith(prefix) else ""
    try:
        return os.path.realpath(os.path.join(base, target)) if target else None
    except (OSError, ValueError):
        return None


def _text(path: str, most: int) -> str:
    """The beginning of a file that is no link; empty when there is none."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            return os.fsdecode(os.read(handle, most))
        finally:
            os.close(handle)
    except (OSError, ValueError):
        return ""


def _there(path: str) -> bool:
    try:
        return os.path.lexists(path)
    except ValueError:
        return False
