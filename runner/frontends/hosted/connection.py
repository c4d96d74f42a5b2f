"""The connection of a command to a hosted session."""

import json
import os
import socket
from collections import deque
from collections.abc import Iterator, Mapping

from policy.model.verdict import Problem
from runner.frontends.hosted.address import HostedError, opened, remove_dead, sessions_folder
from runner.problems import Exit, Stopped
from runner.resident import peer_of
from runner.text.json_line import json_line

_PATIENCE = 20.0  # seconds until a session has answered
_PIECE = 1 << 18  # bytes


class HostedConnection:
    """An open connection to a hosted session.

    Attributes:
        head: The line `attached`.
        process: The process of the session, as the kernel reports it.
        socket: The connection.
    """

    def __init__(self, id: str, environ: Mapping[str, str], *, who: str, scope: str, replay: int | str) -> None:
        """Attach to the session `id`. Raise HostedError, or Stopped with the Problem of the session."""
        folder = sessions_folder(environ)
        try:
            found = opened(folder / id)
        except OSError:
            raise HostedError(Problem(f"the session {id[:8]} did not answer", "it is busy", "try again")) from None
        if found is None:
            remove_dead(folder, id)
            fix = f"continue it: `agent attach {id[:8]}`"
            raise HostedError(Problem(f"the session {id[:8]} does not run", "its process has ended", fix))
        self.socket: socket.socket = found
        self._held = b""
        self._lines: deque[bytes] = deque()
        # THREAT T277: only a process of this user may show cards and get answers.
        self.process, uid = peer_of(found)
        if uid != os.geteuid():
            found.close()
            why = f"it belongs to another user (uid {uid})"
            raise HostedError(Problem(f"the socket of {id[:8]} is not used", why, "see `agent ps`"))
        try:
            found.settimeout(_PATIENCE)
            self.send({"type": "attach", "who": who, "scope": scope, "replay": replay})
            self.head = event_of(self.line())
            found.settimeout(None)
        except (OSError, ValueError):
            found.close()
            why = "it has ended, or it is busy"
            raise HostedError(Problem(f"the session {id[:8]} did not answer", why, "see `agent ps`")) from None
        if self.head.get("type") != "attached":
            found.close()
            raise Stopped(problem_of(self.head), Exit.FAILED)

    def send(self, line: Mapping[str, object]) -> None:
        """Send one line. Raise OSError."""
        self.socket.sendall(json_line(line).encode("ascii") + b"\n")

    def next_line(self) -> bytes:
        """Return the next line that has arrived, or an empty one."""
        return self._lines.popleft() if self._lines else b""

    def feed(self, data: bytes) -> None:
        """Note bytes that have arrived."""
        *whole, rest = (self._held + data).split(b"\n")
        self._lines.extend(whole)
        self._held = rest

    def line(self) -> bytes:
        """Return the next line, or an empty one if the session has closed the connection. Raise OSError."""
        while not self._lines:
            piece = self.socket.recv(_PIECE)
            if not piece:
                return b""
            self.feed(piece)
        return self.next_line()

    def lines(self) -> Iterator[bytes]:
        """Yield the lines of the session, until it closes the connection. Raise OSError."""
        while line := self.line():
            yield line

    def close(self) -> None:
        self.socket.close()


def event_of(line: bytes) -> dict[str, object]:
    """Return the object of a line. Raise ValueError."""
    found = json.loads(line)
    if not isinstance(found, dict):
        raise ValueError("a line is not an object")
    return found


def problem_of(event: Mapping[str, object]) -> Problem:
    """Return the Problem of an event `error`."""
    found = event.get("problem")
    said = found if isinstance(found, dict) else {}
    return Problem(*(str(said.get(name) or "") for name in ("what", "why", "fix")))


def own_name() -> str:
    """Return the kind and place of this client: `terminal /dev/pts/3`, or `program` without a terminal."""
    for number in (0, 1, 2):
        try:
            return f"terminal {os.ttyname(number)}"
        except OSError:
            continue
    return f"program {os.getpid()}"
