"""The start of a hosted session from a command, and the way in which it reports its success.

The resident process starts it, and is started for it. The process of the session has neither a terminal nor a pipe to
the command, so that it outlives both. It writes the name of the session, or the Problem that prevented its start, to a
file that the command named.
"""

import contextlib
import json
import os
import secrets
import select
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from policy.model.verdict import Problem
from runner.frontends.hosted.address import HostedError, sessions_folder
from runner.problems import Exit, Stopped
from runner.resident import resident_folder
from runner.resident.control import ask, start_detached
from runner.text.json_line import json_line

_PATIENCE = 120.0  # seconds until a session has started
_STEP = 10  # milliseconds between two looks
_LONGEST = 64 << 10  # bytes
_OLD = 3600.0  # seconds after which a report that nobody read is removed


def report_start(folder: Path, token: str, said: Mapping[str, object]) -> None:
    """Write the report of a start, if the program that started the session waits for one."""
    if not token:
        return
    new = folder / f".start-{token}.new"
    handle = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with open(handle, "w", encoding="ascii") as file:
        file.write(json_line(said))
    new.rename(folder / f".start-{token}")


def start_session(words: Sequence[str], environ: Mapping[str, str], cwd: str) -> str:
    """Start the hosted session `agent serve session WORDS`, and return its ID. Raise Stopped or HostedError."""
    folder = sessions_folder(environ)
    _remove_old(folder)
    token = secrets.token_hex(16)
    report, log = folder / f".start-{token}", folder / f".start-{token}.log"
    line = ["serve", "session", *words, f"--report={token}"]
    try:
        pid = _spawned(line, environ, cwd)
        process = os.pidfd_open(pid) if pid is not None else _started(line, environ, cwd, log)
        try:
            return _reported(process, report, log)
        finally:
            os.close(process)
    except ProcessLookupError:  # it ended before it could be watched
        return _reported(None, report, log)
    finally:
        for path in (report, log):
            with contextlib.suppress(FileNotFoundError):
                path.unlink()


def _spawned(line: Sequence[str], environ: Mapping[str, str], cwd: str) -> int | None:
    """Let the resident process start the session, and return the process of the session.

    The resident process is started if there is none. Return None if there can be none, because the path of the state
    folder is too long for its socket. Raise Stopped if it refuses.
    """
    try:
        resident_folder(environ)
    except OSError:
        return None
    request = {"op": "spawn", "kind": "session", "words": list(line), "environ": dict(environ), "cwd": cwd}
    answer = ask(environ, request)
    if answer is None:
        start_detached(environ)
        answer = ask(environ, request)
    pid = answer.get("pid") if answer is not None else None
    if not isinstance(pid, int):
        why = "the resident process has ended"
        raise HostedError(Problem("the session did not start", why, "try again, or see `agent serve --status`"))
    return pid


def _started(line: Sequence[str], environ: Mapping[str, str], cwd: str, log: Path) -> int:
    """Start the session as a process of its own, and return a descriptor of the process."""
    handle = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        process = subprocess.Popen(
            [sys.executable, "-I", os.path.abspath(sys.argv[0]), *line],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=handle,
            env=dict(environ),
            cwd=cwd,
            start_new_session=True,
        )
    finally:
        os.close(handle)
    process.returncode = 0  # nobody reaps it: it lives longer than this process
    return os.pidfd_open(process.pid)


def _reported(process: int | None, report: Path, log: Path) -> str:
    """Return the ID that the session reports. `process` is a descriptor of its process, or None if it has ended."""
    end = time.monotonic() + _PATIENCE
    watch = select.poll()
    if process is not None:
        watch.register(process, select.POLLIN)
    while time.monotonic() < end:
        ended = process is None or bool(watch.poll(_STEP))  # before the look at the report, which is written earlier
        with contextlib.suppress(FileNotFoundError):
            return _id_of(report.read_bytes()[:_LONGEST])
        if ended:
            said = ""
            with contextlib.suppress(FileNotFoundError):
                said = log.read_text("utf-8", "replace").strip().split("\n")[0][:500]
            why = f"its process has ended{f': {said}' if said else ''}"
            raise HostedError(Problem("the session did not start", why, "see why: `agent --json < /dev/null`"))
    if process is not None:
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(process, signal.SIGTERM)
    why = f"it was not ready after {_PATIENCE:g} s"
    raise HostedError(Problem("the session did not start", why, "try again when the machine is less busy"))


def _id_of(data: bytes) -> str:
    """Return the ID in a report. Raise Stopped for the Problem in it."""
    found = json.loads(data)
    problem = found.get("problem")
    if isinstance(problem, dict):
        said = Problem(*(str(problem.get(name, "")) for name in ("what", "why", "fix")))
        raise Stopped(said, Exit(found.get("exit", Exit.FAILED)))
    return str(found["id"])


def _remove_old(folder: Path) -> None:
    """Remove reports that nobody read, because the command was killed."""
    for path in folder.glob(".start-*"):
        with contextlib.suppress(OSError):
            if time.time() - path.lstat().st_mtime > _OLD:
                path.unlink()
