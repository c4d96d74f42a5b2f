"""The hosted sessions of a user: a socket `ID` and a description `ID.json` each, in `resident/sessions` of the state
folder.

A session that was killed leaves both behind. A command that finds that nothing listens at the socket removes them.
"""

import contextlib
import fcntl
import json
import os
import socket
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from policy.model.deadline import deadline
from policy.model.frozen import dataclass
from policy.model.verdict import Problem, ProblemError
from runner.problems import Exit, Stopped, usage
from runner.state.paths import state_dir
from runner.state.session_id import ID_RULE, is_session_id
from runner.state.socket_path import short_path

_LOCK = ".lock"
_LENGTH = 16  # characters of a whole ID
_LONGEST_DESCRIPTION = 1 << 20  # bytes
_PROBE = deadline(2.0)  # seconds until a session has accepted a connection


@dataclass(frozen=True, slots=True)
class HostedSession:
    """The description of one hosted session, as its process wrote it last.

    Attributes:
        id: The name of the session.
        pid: The process of the session.
        folder: The working folder.
        workspace: The workspace.
        title: The first prompt, shortened; empty before it.
        mode: The permission mode.
        model: The model as `provider:model`.
        state: `working`, `question` (a question waits for its answer) or `idle`.
        started: The time of the start, in seconds since 1970.
        active: The time of the last event, in seconds since 1970.
        clients: The names of the attached clients.
        questions: The names of the open questions.
        unattended: True if every question is refused.
    """

    id: str
    pid: int
    folder: str
    workspace: str
    title: str
    mode: str
    model: str
    state: str
    started: float
    active: float
    clients: tuple[str, ...] = ()
    questions: tuple[str, ...] = ()
    unattended: bool = False

    def as_json(self) -> dict[str, object]:
        """Return a JSON-able object."""
        return {name: list(value) if isinstance(value := getattr(self, name), tuple) else value for name in _FIELDS}

    @classmethod
    def of_json(cls, found: object) -> "HostedSession | None":
        """Return the description that `as_json` returned as JSON, or None if it is none."""
        if not isinstance(found, dict) or set(found) != set(_FIELDS):
            return None
        for name, kind in _FIELDS.items():
            value = found[name]
            if kind is tuple:
                if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
                    return None
            elif not isinstance(value, int if kind is float and not isinstance(value, float) else kind):
                return None
        values: dict[str, Any] = {
            name: tuple(found[name]) if kind is tuple else found[name] for name, kind in _FIELDS.items()
        }
        return cls(**values)


_FIELDS: dict[str, type] = {
    "id": str, "pid": int, "folder": str, "workspace": str, "title": str, "mode": str, "model": str, "state": str,
    "started": float, "active": float, "clients": tuple, "questions": tuple, "unattended": bool,
}  # fmt: skip


class HostedError(ProblemError):
    """The error for a hosted session that is not reachable."""

    exit_code = Exit.FAILED


def sessions_folder(environ: Mapping[str, str]) -> Path:
    """Return the folder of the sockets, created with mode 0700 and checked.

    THREAT T277: a link, a folder of another user, or one that others may write to is refused, so that no other process
    can put a socket into it. Raise PlaceError or HostedError.
    """
    path = state_dir(environ)
    for name in ("resident", "sessions"):
        path /= name
        with contextlib.suppress(FileExistsError):
            path.mkdir(mode=0o700)
        handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            found = os.fstat(handle)
            if found.st_uid != os.geteuid() or found.st_mode & 0o022:
                why = "it belongs to another user, or others may write to it"
                raise HostedError(Problem(f"`{path}` cannot be used for sessions", why, "inspect it, then remove it"))
            if found.st_mode & 0o055:
                os.fchmod(handle, 0o700)
        finally:
            os.close(handle)
    return path


@contextlib.contextmanager
def folder_lock(folder: Path) -> Iterator[None]:
    """Hold the lock under which sockets are put into the folder and removed from it.

    Without it, a process that removes the socket of a killed session could remove the new socket of the same session.
    """
    handle = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def opened(path: Path) -> socket.socket | None:
    """Return a connection to the session at `path`, or None if nothing listens there. Raise OSError if it is busy."""
    client = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    try:
        client.settimeout(_PROBE)
        with short_path(path) as short:
            client.connect(short)
    except (ConnectionRefusedError, FileNotFoundError, NotADirectoryError):
        client.close()
        return None
    except BaseException:
        client.close()
        raise
    client.settimeout(None)
    return client


def hosted_sessions(environ: Mapping[str, str]) -> list[HostedSession]:
    """Return the sessions that run, the last one that was active first. Remove what killed sessions left."""
    folder = sessions_folder(environ)
    found = []
    for name in os.listdir(folder):
        if len(name) != _LENGTH or not is_session_id(name):
            continue
        path = folder / name
        try:
            client = opened(path)
        except OSError:  # it is busy, so it lives
            pass
        else:
            if client is None:
                remove_dead(folder, name)
                continue
            client.close()
        if (described := description(folder, name)) is not None:
            found.append(described)
    return sorted(found, key=lambda each: (-each.active, each.id))


def description(folder: Path, id: str) -> HostedSession | None:
    """Return the description of a session, or None if it cannot be read."""
    try:
        handle = os.open(folder / f"{id}.json", os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(handle, "rb") as file:
            found = HostedSession.of_json(json.loads(file.read(_LONGEST_DESCRIPTION)))
    except (OSError, ValueError, RecursionError):
        return None
    return found if found is not None and found.id == id else None


def remove_dead(folder: Path, id: str) -> None:
    """Remove the socket and the description of a session if nothing listens at the socket.

    THREAT T281: the check is repeated under the lock, so that a session that was resumed meanwhile keeps its socket.
    """
    with folder_lock(folder):
        try:
            client = opened(folder / id)
        except OSError:
            return
        if client is not None:
            client.close()
            return
        for name in (id, f"{id}.json"):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(folder / name)


def find_hosted(environ: Mapping[str, str], words: str) -> HostedSession:
    """Return the only running session whose ID begins with `words`. Raise a usage error."""
    if not is_session_id(words):
        raise usage(f"`{words[:40]}` is not a session ID", ID_RULE, "see `agent ps`")
    found = hosted_sessions(environ)
    matching = [each for each in found if each.id.startswith(words)]
    if len(matching) == 1:
        return matching[0]
    if matching:
        why = f"among them {', '.join(each.id for each in matching[:5])}"
        raise usage(f"`{words}` matches {len(matching)} sessions", why, "write more of the ID")
    from runner.text.phrases import nearest

    near = nearest(words, [each.id[: max(len(words), 8)] for each in found])
    running = ", ".join(each.id[:8] for each in found[:5]) or "none"
    fix = f"did you mean `{near}`?" if near else "see `agent ps`, or `agent sessions list` for sessions that ended"
    raise NotHosted(Problem(f"no running session has the ID `{words}`", f"the running sessions are: {running}", fix))


class NotHosted(Stopped):
    """The error for an ID that no running session has."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem, Exit.USAGE)
