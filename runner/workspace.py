"""Which folder a session works in, and the repository that a linked worktree belongs to."""

import os

from policy.secrecy import Secrets, inside

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
    """The Git folder that a linked worktree shares with its main one; empty for every other kind of workspace.

    `.git` came with the workspace, so it is believed only when the repository it names points back at this very file.
    """
    pointer = f"{workspace}/.git"
    named = _pointer(pointer, "gitdir:", workspace)
    if not named or _pointer(f"{named}/gitdir", "", named) != pointer:
        return ()
    shared = _pointer(f"{named}/commondir", "", named)
    good = shared and inside(named, shared) and not secrets.exposed_by(shared) and not secrets.holds_folder(shared)
    return (shared,) if shared and good and os.path.basename(shared) == ".git" else ()


def _pointer(path: str, prefix: str, base: str) -> str | None:
    """The real path that a one-line file names, relative to `base`."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            line = os.fsdecode(os.read(handle, _LONGEST))
        finally:
            os.close(handle)
        if not line.startswith(prefix):
            return None
        target = line[len(prefix) :].strip()
        return os.path.realpath(os.path.join(base, target)) if target else None
    except (OSError, ValueError):
        return None


def _there(path: str) -> bool:
    try:
        return os.path.lexists(path)
    except ValueError:
        return False
