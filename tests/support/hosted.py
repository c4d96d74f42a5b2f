"""Hosted sessions of a user of their own, and clients that speak their protocol."""

import json
import os
import shlex
import signal
import socket
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from runner.resident import CONTROL
from runner.state.socket_path import short_path
from tests.support.cli_harness import AGENT, CliHarness
from tests.support.marked_processes import processes as processes  # for tests of hosted sessions
from tests.support.waiting import until


class HostedClient:
    """A client of one session."""

    def __init__(self, path: Path, who: str = "tester", scope: str = "prompt", **fields: object) -> None:
        self.events: list[dict[str, Any]] = []
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        with short_path(path) as short:
            self.socket.connect(short)
        self._file = self.socket.makefile("rb")
        if scope:
            self.say("attach", who=who, scope=scope, **fields)

    def say(self, type: str, **fields: object) -> None:
        self.send(json.dumps({"type": type, **fields}).encode() + b"\n")

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def until(self, type: str, count: int = 1) -> dict[str, Any]:
        """Return the `count`th event of that type."""
        while len(found := [event for event in self.events if event["type"] == type]) < count:
            self._receive(type)
        return found[count - 1]

    def answered(self) -> None:
        """Wait for the answer to the request to attach: `attached`, or `error` if the session refused it."""
        self._receive("attached")

    def read_to(self, type: str, seen: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
        """Return the next event of that type. `seen` is called with each event before it, and with the event itself."""
        while True:
            event = self._receive(type)
            seen(event)
            if event["type"] == type:
                return event

    def _receive(self, wanted: str) -> dict[str, Any]:
        """Return the next event. An assertion fails if the session closes the connection instead."""
        line = self._file.readline()
        assert line.endswith(b"\n"), f"closed before `{wanted}`: {[event['type'] for event in self.events]}, {line!r}"
        self.events.append(json.loads(line))
        return self.events[-1]

    def rest(self) -> list[dict[str, Any]]:
        """Return the events until the session closes the connection."""
        found = [json.loads(line) for line in self._file]
        self.events += found
        return found

    def close(self) -> None:
        self._file.close()
        self.socket.close()


class HostedHarness:
    """A user who starts hosted sessions with scripted models.

    Attributes:
        hosts: the processes of the sessions, in the order of their starts.
    """

    def __init__(self, base: Path) -> None:
        self.cli = CliHarness(base)
        for folder in ("home", "work"):
            (base / folder).mkdir()
        (self.cli.work / ".git").mkdir()
        self.folder = base / "state" / "resident" / "sessions"
        self._clients: list[HostedClient] = []
        self.hosts: list[subprocess.Popen[bytes]] = []
        self._scripts = 0

    def model(self, *turns: dict[str, object]) -> str:
        """Return the name of a model that plays these turns."""
        self._scripts += 1
        path = self.cli.base / f"model{self._scripts}.json"
        path.write_text(json.dumps({"turn": list(turns)}))
        return f"scripted:{path}"

    def start(self, *words: str, prompt: str = "begin") -> str:
        """Start the process of a session, send it a prompt, and return its ID."""
        host = subprocess.Popen(
            [AGENT, "serve", "session", *words],
            cwd=self.cli.work,
            env=self.cli.environ,
            stdin=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        self.hosts.append(host)
        id = until(lambda: self._listening(host.pid), of=host, what=lambda: f"the start: {host.communicate()}")
        client = HostedClient(self.folder / id, "starter", replay=0)
        client.say("prompt", text=prompt)
        client.until("prompted")
        client.say("detach")
        client.rest()
        client.close()
        return id

    def client(self, id: str, who: str = "tester", scope: str = "prompt", **fields: object) -> HostedClient:
        """Return a client that is attached or refused, and so misses no later event; without `scope`, only connected."""
        made = HostedClient(self.folder / id, who, scope, **fields)
        self._clients.append(made)
        if scope:
            made.answered()
        return made

    def rows(self) -> list[dict[str, Any]]:
        """Return what `agent ps --json` prints."""
        done = self.cli.agent("ps", "--json")
        assert done.returncode == 0, done.stderr
        return [json.loads(line) for line in done.stdout.splitlines()]

    def wait(self, state: str, id: str) -> dict[str, Any]:
        """Return the description of a session when it is in a state."""
        return until(lambda: self._described(id, state), of=self.pid(id), what=f"the state `{state}`")

    def _described(self, id: str, state: str) -> dict[str, Any] | None:
        client = HostedClient(self.folder / id, "watcher", "view", replay=0)
        found = client.until("attached")
        client.close()
        return found if found["state"] == state else None

    def pid(self, id: str) -> int:
        return int(json.loads((self.folder / f"{id}.json").read_text())["pid"])

    def _listening(self, pid: int) -> str:
        """Return the ID of the session of the process `pid` when it has a socket, else an empty text.

        The description exists before the socket gets its name. That of another session may be removed meanwhile.
        """
        for path in self.folder.glob("*.json"):
            with suppress(FileNotFoundError):
                if self.pid(path.stem) == pid and (self.folder / path.stem).exists():
                    return path.stem
        return ""

    def end(self) -> None:
        """End the sessions that are left."""
        for client in self._clients:
            client.close()
        if (self.folder.parent / CONTROL).exists():
            self.cli.agent("serve", "--stop")
        for path in self.folder.glob("*.json") if self.folder.is_dir() else ():
            with suppress(ProcessLookupError, ValueError, FileNotFoundError):
                os.kill(self.pid(path.stem), signal.SIGKILL)
        for host in self.hosts:
            host.kill()
            host.communicate()


@contextmanager
def hosted_harness(base: Path) -> Iterator[HostedHarness]:
    made = HostedHarness(base)
    try:
        yield made
    finally:
        made.end()


def runs(script: str) -> dict[str, object]:
    """Return the turn of a model that runs a script."""
    return {"calls": [{"name": "bash", "arguments": {"command": script}}]}


def says(text: str) -> dict[str, object]:
    """Return the turn of a model that answers."""
    return {"text": text}


def gone(what: "Any") -> None:
    """Wait until the function `what` returns nothing."""
    until(lambda: not what())


def quoted(*words: object) -> str:
    return shlex.join(map(str, words))
