"""The processes that the resident process starts and that last: sessions, jobs and the web server.

Each gets the read end of a pipe (`--lifeline FD`), which ends when the resident process is gone, however it ended.
"""

import contextlib
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass

from policy.model.deadline import deadline
from runner.text.json_line import utc_now, utc_time

_GRACE = deadline(3.0)  # seconds for a process to end by itself after SIGTERM
_MOST = 1 << 20  # bytes of the log, after which it begins anew


@dataclass(slots=True)
class Spawned:
    """One process: its kind (session, job or web), its command line and the time of its start, in seconds."""

    kind: str
    words: tuple[str, ...]
    process: "subprocess.Popen[bytes]"
    began: float

    @property
    def pid(self) -> int:
        return self.process.pid

    def as_json(self) -> dict[str, object]:
        """Return the values that `agent serve --status --json` prints."""
        return {"kind": self.kind, "pid": self.pid, "words": list(self.words), "since": str(utc_time(self.began))}


class Spawner:
    """The processes that live, and the log of this process, which is the standard error of all of them."""

    def __init__(self, log: str) -> None:
        self._path = log
        self._found: dict[int, Spawned] = {}
        self._reading, self._writing = os.pipe()  # nothing is ever written: its end is the message

    def start(self, kind: str, words: list[str], environ: dict[str, str], cwd: str) -> Spawned:
        """Start `agent WORDS` in the folder `cwd` with only the variables `environ`. Raise OSError."""
        program = os.path.abspath(sys.argv[0])
        line = [sys.executable, "-I", program, *words, "--lifeline", str(self._reading)]
        with open(self._opened(), "ab", closefd=True) as log:
            process = subprocess.Popen(
                line,
                env=environ,
                cwd=cwd,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=(self._reading,),
                start_new_session=True,
            )
        found = Spawned(kind, tuple(words), process, time.time())
        self._found[process.pid] = found
        self.log(f"started {kind} {process.pid}: agent {' '.join(words[:6])}")
        return found

    def living(self, kind: str = "") -> list[Spawned]:
        """Return the processes that live, all or those of one kind."""
        return [each for each in self._found.values() if kind in ("", each.kind)]

    def ended(self, pid: int, status: int) -> None:
        """Note that a child has ended and was reaped with this status."""
        found = self._found.pop(pid, None)
        if found is not None:
            found.process.returncode = os.waitstatus_to_exitcode(status)
            self.log(f"ended {found.kind} {pid}: {found.process.returncode}")

    def end_all(self) -> None:
        """End all processes: first by SIGTERM, after some seconds by SIGKILL."""
        for each in self._found.values():
            with contextlib.suppress(ProcessLookupError):
                os.kill(each.pid, signal.SIGTERM)
        until = time.monotonic() + _GRACE
        for each in list(self._found.values()):
            with contextlib.suppress(subprocess.TimeoutExpired):
                each.process.wait(max(until - time.monotonic(), 0.0))
                continue
            each.process.kill()
            each.process.wait()
        self._found.clear()

    def forget(self) -> None:
        """Drop everything in a forked child, to which the processes do not belong."""
        self._found.clear()
        os.close(self._reading)
        os.close(self._writing)

    def log(self, text: str) -> None:
        """Write one line into the log."""
        handle = self._opened()
        try:
            os.write(handle, f"{utc_now()} {text}\n".encode("utf-8", "backslashreplace"))
        finally:
            os.close(handle)

    def _opened(self) -> int:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
        handle = os.open(self._path, flags, 0o600)
        if os.fstat(handle).st_size > _MOST:
            os.ftruncate(handle, 0)
        return handle
