"""Requests to the resident process itself: one line of JSON each way. Slow to import in comparison with `client.py`."""

import contextlib
import fcntl
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Mapping

from policy.model.verdict import Problem
from runner import resident
from runner.problems import Exit, Stopped
from runner.resident import CONTROL, LOCK, peer_of, resident_folder

_PATIENCE = 30.0  # seconds for an answer, and for the end of the process
_START = 60.0  # seconds until a new process listens; it loads the whole program first
_LOOK = 0.02  # seconds between two tries


def ask(environ: Mapping[str, str], request: Mapping[str, object]) -> dict[str, object] | None:
    """Send one request and return the answer; None if there is no resident process of this user.

    Raise Stopped if the process does not answer, or refuses the request.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        client.settimeout(_PATIENCE)
        try:
            client.connect(f"{resident_folder(environ)}/{CONTROL}")
        except OSError:
            return None
        if peer_of(client)[1] != os.geteuid():
            why, fix = "the socket belongs to another user", "check who owns the state folder: `agent doctor`"
            raise Stopped(Problem("the resident process was not asked", why, fix), Exit.DENIED)
        parts = []
        try:
            client.sendall(json.dumps(request).encode() + b"\n")
            while chunk := client.recv(1 << 16):
                parts.append(chunk)
        except OSError as error:
            raise _silent(str(error)) from None
    if not parts:
        raise _silent("it closed the connection: this process has other rights or namespaces")
    answer = json.loads(b"".join(parts))
    if isinstance(answer, dict) and isinstance(answer.get("error"), str):
        fix = "see `agent serve --status`"
        raise Stopped(Problem("the resident process refused the request", answer["error"], fix), Exit.FAILED)
    return dict(answer)


def start_detached(environ: Mapping[str, str], options: tuple[str, ...] = (), *, waits: bool = True) -> None:
    """Start the resident process apart from this process, which it outlives. Raise Stopped if it does not answer.

    Only variables without secrets are passed on: each command sends its own.
    """
    words = [sys.executable, "-I", os.path.abspath(sys.argv[0]), "serve", *options]
    kept = {name: value for name, value in environ.items() if name in _VARIABLES}
    process = subprocess.Popen(
        words,
        env=kept,
        cwd="/",
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    if not waits:
        process.returncode = 0  # nobody reaps it: it lives longer than this process
        return
    until = time.monotonic() + _START
    while time.monotonic() < until:
        with contextlib.suppress(Stopped):
            if ask(environ, {"op": "status"}) is not None:
                process.returncode = 0
                return
        if process.poll() is not None:
            break
        time.sleep(_LOOK)
    why = f"it ended with {process.returncode}" if process.returncode is not None else "it does not answer"
    raise Stopped(Problem("the resident process did not start", why, "run `agent serve` to see why"), Exit.FAILED)


def end_resident(environ: Mapping[str, str]) -> bool:
    """End the resident process and wait until it is gone. Return False if there is none. Raise Stopped."""
    if ask(environ, {"op": "stop"}) is None:
        return False
    until = time.monotonic() + _PATIENCE
    with open(f"{resident_folder(environ)}/{LOCK}", "rb") as lock:
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
                return True
            except BlockingIOError:
                if time.monotonic() > until:
                    raise _silent("it does not end") from None
                time.sleep(_LOOK)


def start_if_wanted(environ: Mapping[str, str]) -> None:
    """Start the resident process apart from this process, unless one listens. It is used by the next command.

    A worker, or a rehearsal of the resident process in an empty state folder, starts none.
    """
    if resident.inside:
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        try:
            client.connect(f"{resident_folder(environ)}/{CONTROL}")
            return
        except OSError:
            start_detached(environ, waits=False)


_VARIABLES = ("HOME", "PATH", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "USER", "LOGNAME", "XDG_RUNTIME_DIR",
              "XDG_STATE_HOME",
              "XDG_CONFIG_HOME", "XDG_CACHE_HOME", "XDG_DATA_HOME", "RINGFENCE_STATE_DIR", "RINGFENCE_CONFIG_DIR",
              "RINGFENCE_CACHE_DIR", "RINGFENCE_DATA_DIR", "DBUS_SESSION_BUS_ADDRESS")  # fmt: skip


def _silent(why: str) -> Stopped:
    return Stopped(Problem("the resident process did not answer", why, "run `agent serve --restart`"), Exit.FAILED)
