"""The check whether the changes of a workspace can be kept in a layer: a trial mount for each workspace."""

import contextlib
import hashlib
import os
import subprocess
import tempfile
import threading
from pathlib import Path

from sandbox.inside import safe_rmtree
from sandbox.linux.foreign_owners import FIRST_LOOK, find_foreign, known_foreign
from sandbox.linux.helper_process import import_folder, interpreter
from sandbox.workspace.folder_cache import boot, is_local, read_sealed, write_sealed

_FOREIGN = "`{}` belongs to another user or group, and no overlay of an ordinary user can change it"
# THREAT T304: a change of the user is recognised by its time.
_REMOTE = "another machine or a program keeps its files, and their times are of another clock"
_SECONDS = 20.0  # the longest time of a trial
_known: dict[tuple[int, int, int, int], str] = {}  # (user, devices, inode of the workspace) -> the reason
_trials: dict[tuple[int, int, int, int], threading.Lock] = {}  # the same keys -> a lock, which a running trial holds
os.register_at_fork(after_in_child=_trials.clear)  # a lock that another thread held stays locked in a forked process


async def why_not(workspace: str, folder: str, cache: Path | None = None) -> str:
    """Return why an overlay in `folder` cannot cover `workspace`, in words; empty if it can.

    The folder must exist and belong to the private state. A result of the trial mount is kept until this process ends,
    and a success in the folder `cache` until the machine stops. Mounts below the workspace are looked up each time.
    """
    if inner := _mounted_below(workspace):
        return f"`{inner}` in the workspace is a mount of its own, which an overlay does not show"
    try:
        lower, upper, foreign = os.stat(workspace), os.stat(folder), known_foreign(workspace, cache)
    except OSError as error:
        return f"`{error.filename}` cannot be read ({(error.strerror or '').lower()})"
    if foreign:
        return _FOREIGN.format(foreign)
    key = _key(lower, upper)
    if key in _known:
        return _known[key]
    body = _body(key)
    note = _note(workspace, cache) if body else None
    if not is_local(workspace):
        _known[key] = _REMOTE
    elif note is not None and read_sealed(note) == body:
        _known[key] = ""
    else:
        from asyncio import to_thread  # `has_worked` is called before the event loop is loaded

        reason = await to_thread(_tried_once, key, workspace, folder, cache)
        if note is not None and not reason:
            with contextlib.suppress(OSError):  # the next process tries again
                write_sealed(note, body)
        return reason
    return _known[key]


def has_worked(workspace: str, folder: str, cache: Path) -> bool:
    """Return True if an overlay in `folder` covered `workspace` before, as the folder `cache` says. `why_not` has the
    present answer.
    """
    try:
        body = _body(_key(os.stat(workspace), os.stat(folder)))
    except OSError:
        return False
    note = _note(workspace, cache)
    return bool(body) and note is not None and read_sealed(note) == body


def _key(lower: os.stat_result, upper: os.stat_result) -> tuple[int, int, int, int]:
    return os.geteuid(), lower.st_dev, upper.st_dev, lower.st_ino


def _body(key: tuple[int, int, int, int]) -> bytes:
    """Return the content of the file about a workspace in the cache folder; empty if the machine has no boot number."""
    return f"{key} {machine}".encode() if (machine := boot()) else b""


def forget(workspace: str, cache: Path | None) -> None:
    """Forget the results for all workspaces in this process, and for `workspace` in the cache: a mount failed."""
    _known.clear()
    if (note := _note(workspace, cache)) is not None:
        with contextlib.suppress(OSError):
            note.unlink()


def _note(workspace: str, cache: Path | None) -> Path | None:
    """Return the path of the file about a workspace in the cache folder; None without a cache."""
    name = hashlib.sha256(os.fsencode(workspace)).hexdigest()[:32]
    return cache / f"view-{name}" if cache is not None else None


def _tried_once(key: tuple[int, int, int, int], workspace: str, folder: str, cache: Path | None) -> str:
    """Return the result of a trial mount, of another caller if that one tries at the same time."""
    with _trials.setdefault(key, threading.Lock()):
        if key in _known:
            return _known[key]
        reason = _tried(workspace, folder)
        if not reason and (foreign := find_foreign(workspace, cache, FIRST_LOOK)):
            return _FOREIGN.format(foreign)  # not kept, because the owner may change
        _known[key] = reason
        return reason


def _tried(workspace: str, folder: str) -> str:
    script = os.path.join(import_folder(), *__name__.split(".")[:-2], "inside", "try_overlay.py")
    try:
        place = tempfile.mkdtemp(prefix="trial-", dir=folder)
    except OSError as error:
        return f"nothing can be written to `{folder}` ({(error.strerror or '').lower()})"
    try:
        done = subprocess.run(
            [*interpreter(), script, import_folder(), workspace, os.path.realpath(place)],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            env={},
            cwd="/",
            timeout=_SECONDS,
            check=False,
        )
    except (OSError, subprocess.SubprocessError) as error:
        return f"the trial mount failed ({error})"
    finally:
        safe_rmtree.remove(place)
    said = done.stdout.decode("utf-8", "replace")
    return said or ("the trial mount ended without a result" if done.returncode else "")


def _mounted_below(workspace: str) -> str:
    """Return a mount point below `workspace`; empty if there is none (proc_pid_mountinfo(5))."""
    top = os.fsencode(workspace) + b"/"
    with open("/proc/self/mountinfo", "rb") as file:
        points = [line.split(b" ", 5)[4] for line in file]
    for point in points:
        # Only these four characters are escaped, in octal (fs/seq_file.c, mangle).
        for escaped, character in ((b"\\040", b" "), (b"\\011", b"\t"), (b"\\012", b"\n"), (b"\\134", b"\\")):
            point = point.replace(escaped, character)
        if point.startswith(top):
            return os.fsdecode(point)
    return ""
