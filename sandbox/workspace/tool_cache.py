"""The sandbox's own tool caches, one folder for each workspace. The user's caches are never used.

`BASE/workspaces/KEY/` holds the file `path` (the name of the workspace; invisible to commands) and the folder `kept/`,
which commands with `workspace-write` rights see as `HOME/.cache`. THREAT T62: the files that a command left in `kept/`
are used only by commands in the sandbox of the same workspace.
"""

import contextlib
import os
import stat
from collections.abc import Iterator

from policy.model.digest import sha256_hex
from policy.model.frozen import dataclass
from sandbox.backend import SandboxUnavailable
from sandbox.inside import safe_rmtree

_ALL, _OWNER, _KEPT = "workspaces", "path", "kept"
_LONGEST = 4096  # bytes of a path
SWEEPING = "cache sweep"  # the name of the thread that removes the caches of workspaces that are gone


@dataclass(frozen=True, slots=True)
class WorkspaceCache:
    """The cache of one workspace. `size`: bytes on the disk; `gone`: the workspace does not exist any more."""

    workspace: str
    folder: str
    size: int
    gone: bool


def place(base: str, workspace: str) -> str:
    """Return the folder of the caches of `workspace`, existing or not. `base` is this program's cache folder, a real
    path.
    """
    key = sha256_hex(workspace.encode("utf-8", "surrogatepass"))[:32]
    return f"{base}/{_ALL}/{key}/{_KEPT}"


def ready(kept: str, workspace: str) -> None:
    """Make the folder `kept` if it is missing; in that case also remove the caches of missing workspaces.

    Raises SandboxUnavailable if `kept` cannot be made, or is no folder of the user."""
    try:
        state = os.lstat(kept)
    except FileNotFoundError:
        state = _make(kept, workspace)
    except OSError as error:
        raise _unusable(kept, error) from None
    if not stat.S_ISDIR(state.st_mode) or state.st_uid != os.geteuid():
        raise _unusable(kept, FileExistsError(17, "it is not a folder that you own"))


def everything(base: str) -> tuple[WorkspaceCache, ...]:
    """Return the caches of all workspaces, sorted by workspace."""
    caches = [
        WorkspaceCache(workspace, f"{folder}/{_KEPT}", _size(f"{folder}/{_KEPT}"), not os.path.lexists(workspace))
        for workspace, folder in _owned(base)
    ]
    return tuple(sorted(caches, key=lambda each: each.workspace))


def clear(kept: str) -> None:
    """Empty one cache. A command that runs meanwhile finds it empty, as after a fresh clone."""
    safe_rmtree.empty(kept)


def sweep(base: str) -> None:
    """Remove the caches whose workspace is gone."""
    for workspace, folder in _owned(base):
        if not os.path.lexists(workspace):
            safe_rmtree.remove(f"{folder}/{_KEPT}")  # removed first: after an interruption the owner file still exists
            safe_rmtree.remove(folder)


def _make(kept: str, workspace: str) -> os.stat_result:
    folder = os.path.dirname(kept)
    try:
        os.makedirs(folder, mode=0o700, exist_ok=True)
        with open(f"{folder}/{_OWNER}", "wb") as file:
            file.write(os.fsencode(workspace))
        with contextlib.suppress(FileExistsError):  # another session was quicker
            os.mkdir(kept, 0o700)
        status = os.lstat(kept)
    except OSError as error:
        raise _unusable(kept, error) from None
    import threading  # only for a new workspace

    # Nothing waits for the sweep: a cache may be large. When the program ends first, the next sweep removes the rest.
    base = os.path.dirname(os.path.dirname(folder))
    threading.Thread(target=sweep, args=(base,), name=SWEEPING, daemon=True).start()
    return status


def _unusable(kept: str, error: OSError) -> SandboxUnavailable:
    why = (error.strerror or "it cannot be reached").lower()
    fix = "check that folder, or set RINGFENCE_CACHE_DIR to another one; nothing was run"
    return SandboxUnavailable.of(f"the sandbox's own cache `{kept}` cannot be used", why, fix)


def _owned(base: str) -> Iterator[tuple[str, str]]:
    """Yield each workspace that has a folder of caches, with that folder. Incomplete folders are skipped."""
    with contextlib.suppress(OSError):  # no cache exists yet
        for folder in sorted(f"{base}/{_ALL}/{key}" for key in os.listdir(f"{base}/{_ALL}")):
            with contextlib.suppress(OSError), open(f"{folder}/{_OWNER}", "rb") as file:
                if workspace := os.fsdecode(file.read(_LONGEST)):
                    yield workspace, folder


def _size(folder: str) -> int:
    """Return the bytes on the disk; links are not followed."""
    total, pending = 0, [folder]
    while pending:
        try:
            with os.scandir(pending.pop()) as entries:
                for entry in entries:
                    with contextlib.suppress(OSError):
                        total += entry.stat(follow_symlinks=False).st_blocks * 512
                        if entry.is_dir(follow_symlinks=False):
                            pending.append(entry.path)
        except OSError:
            continue  # removed meanwhile, or unreadable
    return total
