"""Entries of other users and groups in a workspace. The user namespace of an ordinary user has only one user and one
group, so the kernel can copy no other owner to the upper folder of an overlay (EOVERFLOW).
"""

import contextlib
import hashlib
import os
from collections import deque
from pathlib import Path

from sandbox.backend import Outcome, Violation
from sandbox.workspace.folder_cache import read_sealed, write_sealed

FIRST_LOOK = 20_000  # entries that are examined before the first view of a workspace
_WHOLE = 1_000_000  # entries that are examined after a command failed
_MESSAGES = (b"value too large for defined data type", b"eoverflow", b"errno 75]")  # of C, Node.js and Python
_TAIL = 64 << 10  # bytes at the end of each stream that are examined


def known_foreign(workspace: str, cache: Path | None) -> str:
    """Return the workspace, an entry at its top, or one found before, if it belongs to another user or group; empty if
    there is none, and for root. Raise OSError if the workspace cannot be read.
    """
    if os.geteuid() == 0:
        return ""
    top = os.stat(workspace)
    if _is_foreign(top):
        return workspace
    with os.scandir(workspace) as entries:
        for entry in entries:
            if _is_foreign(entry.stat(follow_symlinks=False)):
                return entry.path
    if cache is None or (body := read_sealed(place := _place(workspace, cache))) is None:
        return ""
    path = os.fsdecode(body)
    with contextlib.suppress(OSError):
        if _is_foreign(os.lstat(path)):
            return path
    with contextlib.suppress(OSError):
        place.unlink()
    return ""


def find_foreign(workspace: str, cache: Path | None, most: int = _WHOLE) -> str:
    """Return an entry of another user or group among the first `most` entries of the workspace, upper folders first,
    and keep its path for `known_foreign`; empty if there is none, and for root.
    """
    folders, count = deque([workspace] if os.geteuid() else []), 0
    while folders and count < most:
        with contextlib.suppress(OSError), os.scandir(folders.popleft()) as entries:  # closed to this user, or gone
            for entry in entries:
                count += 1
                if _is_foreign(entry.stat(follow_symlinks=False)):
                    if cache is not None:
                        with contextlib.suppress(OSError):  # the next process searches again
                            write_sealed(_place(workspace, cache), os.fsencode(entry.path))
                    return entry.path
                if entry.is_dir(follow_symlinks=False):
                    folders.append(entry.path)
    return ""


def foreign_report(outcome: Outcome, workspace: str, cache: Path | None) -> tuple[Violation, ...]:
    """Return the report if a command on a view printed that it could not change an entry of another owner."""
    said = b"\n".join((outcome.stdout[-_TAIL:], outcome.stderr[-_TAIL:])).lower()
    if not any(each in said for each in _MESSAGES) or not (path := find_foreign(workspace, cache)):
        return ()
    what = f"`{path}` belongs to another user or group, and a command on a view of the workspace cannot change it"
    fix = "run the command again: commands here run on the workspace itself from now on"
    return (Violation(what, path, fix, True),)


def _is_foreign(status: os.stat_result) -> bool:
    return status.st_uid != os.geteuid() or status.st_gid != os.getegid()


def _place(workspace: str, cache: Path) -> Path:
    """Return the path of the file in the cache folder that has the path of an entry of another owner."""
    return cache / f"foreign-{hashlib.sha256(os.fsencode(workspace)).hexdigest()[:32]}"
