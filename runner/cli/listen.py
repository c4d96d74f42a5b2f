"""`agent serve --listen`: remote access as a part of the resident process, in this terminal or apart from it."""

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from policy.model.verdict import Problem
from runner.frontends.remote.argv import OPTIONS, WebArgs, web_words
from runner.frontends.remote.status import RemoteStatus, remote_folder
from runner.problems import Exit, Stopped, usage

if TYPE_CHECKING:
    from runner.frontends.resident.loading import Main

_PATIENCE = 60.0  # seconds for the server to listen: it is a new process, and the machine may be busy
_LOOK = 0.05  # seconds between two looks
# Variables of the server: places, and the database of the record. It needs no key of a model.
_PASSED = frozenset((
    "HOME", "PATH", "LANG", "TZ", "RINGFENCE_STATE_DIR", "RINGFENCE_CONFIG_DIR", "RINGFENCE_CACHE_DIR",
    "RINGFENCE_DATA_DIR", "PGPASSFILE", "PGSERVICEFILE",
))  # fmt: skip
_PASSED_BEGIN = ("LC_", "XDG_")


def is_foreground(words: Sequence[str]) -> bool:
    """Return True if the words after `agent serve` are only options of remote access."""
    names = [word.partition("=")[0] for word in words if word.startswith("-")]
    return bool(names) and set(names) <= set(OPTIONS)


def run_listening(args: WebArgs, main: "Main", *, stay: bool = False) -> int:
    """Run the resident process with remote access in this process, and return the exit code. `main` and `stay` are
    as in `run` of `resident/start.py`. Raise Stopped.
    """
    from runner.frontends.resident.start import run

    if (code := check_listening(args)) != Exit.DONE:
        return code
    return run(main, (("web", ("serve", "web", *web_words(args))),), stay=stay)


def check_listening(args: WebArgs) -> int:
    """Check the options in a process of their own, which reports a mistake at this terminal and prints the address and
    the fingerprint. Return its exit code. Raise a usage error if remote access runs already.
    """
    if (running := RemoteStatus.of(remote_folder(os.environ))) is not None:
        why, fix = f"its page is {running.url}", "run `agent serve --restart` with other options of `--listen`"
        raise usage("remote access runs already", why, fix)
    return subprocess.run([*_program(), "serve", "web", *web_words(args), "--check"], check=False).returncode


def start_listening(args: WebArgs) -> None:
    """Let the resident process, which runs, start remote access, and wait until it listens. Raise Stopped."""
    from runner.resident.control import ask

    words = ["serve", "web", *web_words(args)]
    environ = {name: value for name, value in os.environ.items() if name in _PASSED or name.startswith(_PASSED_BEGIN)}
    request = {"op": "spawn", "kind": "web", "words": words, "environ": environ, "cwd": "/"}
    answer = ask(os.environ, request) or {}
    pid = answer.get("pid")
    until = time.monotonic() + _PATIENCE
    while isinstance(pid, int) and time.monotonic() < until:
        status = RemoteStatus.of(remote_folder(os.environ))
        if status is not None and status.pid == pid:
            return
        if not os.path.exists(f"/proc/{pid}"):  # it has ended
            break
        time.sleep(_LOOK)
    log = remote_folder(os.environ) / "log"
    raise Stopped(Problem("remote access did not start", "it does not listen", f"see `{log}`"), Exit.FAILED)


def _program() -> list[str]:
    return [sys.executable, "-I", os.path.abspath(sys.argv[0])]
