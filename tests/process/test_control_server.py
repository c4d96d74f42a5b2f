"""Tests of the control socket of a session, of forwards, and of `agent processes` and `agent ports`, with processes that
need no sandbox. `tests/terminal/test_tui_processes.py` has the whole with the real one.
"""

import asyncio
import contextlib
import json
import os
import re
import socket
import stat
import subprocess
import sys
import threading
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest

from policy.model.action import RunScript
from policy.model.verdict import _MINT, Limits, Permit, Rights, Terms
from runner.agent.conversation import background_command
from runner.audit.chain import Record
from runner.audit.log import AuditLog
from runner.audit.records import SessionInfo
from runner.cli.json_output import OUTPUTS
from runner.engine.control_server import ControlRefused, ControlServer, ask_session, sessions_with_processes
from runner.engine.port_forwards import ForwardRefused, PortForwards
from runner.engine.processes import SessionProcesses
from runner.events import Event, Notice
from runner.secrets.redactor import Redactor
from runner.state.output_store import OutputStore
from sandbox.backend import Connection, Enforcement, Level, Listener, Outcome, TerminalSize, Violation
from tests.support import forked_agent
from tests.support.waiting import until_async

# The clients work in the folder of the socket, whose whole path may be too long for an address.
CLIENT = """import json, socket, sys
client = socket.socket(socket.AF_UNIX)
client.connect(sys.argv[1])
client.sendall(b'{"op":"processes"}\\n')
print(client.makefile().readline())
"""
T = TypeVar("T")
HOSTILE = b"ready \x1b[2J\xe2\x80\xae\n"


class EchoProcess:
    """A process that answers each connection to its port 3000 with what it reads, in capitals."""

    violations: tuple[Violation, ...] = ()
    connections: tuple[Connection, ...] = ()

    def __init__(self, permit: Permit) -> None:
        self.permit, self.enforcement = permit, Enforcement(Level.FULL, "fake", ())
        self.outcome: Outcome | None = None
        self._over = asyncio.Event()
        self._server = socket.create_server(("127.0.0.1", 0))
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):  # closed at the end
            while True:
                client, _ = self._server.accept()
                with client:
                    data = b"".join(iter(lambda: client.recv(4096), b""))  # noqa: B023  # used in the same turn
                    client.sendall(data.upper())

    async def write(self, data: bytes) -> None:
        raise BrokenPipeError

    def close_input(self) -> None:
        return None

    def resize(self, size: TerminalSize) -> None:
        return None

    async def signal(self, number: int) -> None:
        return None

    async def wait(self) -> Outcome:
        await self._over.wait()
        assert self.outcome is not None
        return self.outcome

    async def end(self, why: str = "cancelled") -> Outcome:
        self._server.close()
        self.outcome = Outcome(137, seconds=1.0, ended_by=why)
        self._over.set()
        return self.outcome

    def ports(self) -> tuple[int, ...]:
        return (3000,)

    async def connect(self, port: int) -> socket.socket:
        assert port == 3000
        return socket.create_connection(self._server.getsockname())


class EchoSandbox:
    """Starts EchoProcesses, which first print something hostile."""

    async def start(self, permit: Permit, *, listen: Listener, terminal: TerminalSize | None = None) -> EchoProcess:
        listen(1, HOSTILE)
        return EchoProcess(permit)


class ControlledSession:
    """A session with two processes, p1 and p2, and a control socket, in the loop of a thread of its own."""

    def __init__(self, base: Path) -> None:
        self.state, self.events = base / "state", list[Event]()
        self.state.mkdir(mode=0o700)
        self.environ = {
            "HOME": str(base),
            "PATH": os.environ["PATH"],
            "LANG": "C.UTF-8",
            "RINGFENCE_STATE_DIR": str(self.state),
        }
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, daemon=True).start()
        self.call(self._open(base))

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    async def _open(self, base: Path) -> None:
        self.audit = AuditLog.open(base / "audit.db")
        self.name = self.audit.session(SessionInfo("default", "/w", False, None))
        sandbox, outputs, emit = EchoSandbox(), OutputStore(base / "kept"), self.events.append
        self.processes = SessionProcesses(sandbox, self.audit, Redactor(), outputs, emit)  # type: ignore[arg-type]  # a fake
        self.forwards = PortForwards(self.processes, self.audit, self.name, emit)
        self.control = ControlServer(self.state, self.name, self.processes, self.forwards)
        terms = Terms(Rights.WORKSPACE_WRITE, "/w", "/home", (), (), (), limits=Limits())
        for command in ("npm run dev", "sleep 99"):
            permit = Permit(RunScript(command, "/w"), terms, _MINT)
            await self.processes.start(permit, command, 1)
        self.control.open()

    async def _close(self) -> None:
        await self.control.close()
        await self.forwards.close()
        await self.processes.close()
        self.audit.close()

    def close(self) -> None:
        self.call(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)

    def agent(self, *words: str) -> tuple[int, str, str]:
        done = forked_agent.run(
            [forked_agent.AGENT, *words], env=self.environ, cwd="/", capture_output=True, text=True, stdin=-3
        )
        return done.returncode, done.stdout, done.stderr

    def forwarded(self) -> list[tuple[Record, Record | None]]:
        """The records of forwards, each with its end."""

        async def read() -> list[tuple[Record, Record | None]]:
            return [(each, self.audit.outcome_of(each.id)) for each in self.audit.rows(kind="forwarded")]

        return self.call(read())


@pytest.fixture
def session(tmp_path: Path) -> Iterator[ControlledSession]:
    made = ControlledSession(tmp_path)
    yield made
    made.close()


def asked(port: int, data: bytes) -> bytes:
    with socket.create_connection(("127.0.0.1", port)) as client:
        client.sendall(data)
        client.shutdown(socket.SHUT_WR)
        return b"".join(iter(lambda: client.recv(4096), b""))


@pytest.mark.threat("T158")
def test_another_terminal_lists_reads_and_stops(session: ControlledSession) -> None:
    code, out, _ = session.agent("processes", "--json")
    rows = [json.loads(line) for line in out.splitlines()]
    assert (code, [row["id"] for row in rows]) == (0, ["p1", "p2"])
    (told,) = [each for each in OUTPUTS if each.command == "processes list"]
    assert [set(row) for row in rows] == [{each.name for each in told.fields}] * 2
    assert rows[0]["command"] == "npm run dev"
    assert rows[0]["ports"] == [3000]
    code, out, _ = session.agent("processes", "output", "p1")
    assert (code, out) == (0, "ready ␛[2J<U+202E>\n"), "no byte of a process acts on the terminal"
    assert session.agent("processes", "output", "p9")[0] == 1
    code, out, _ = session.agent("processes", "stop", "p1")
    assert code == 0
    assert out.startswith("p1   ended (cancelled)")
    assert [each.id for each in session.processes.alive] == ["p2"]
    assert session.agent("processes", "stop", "all")[0] == 0
    assert not session.processes.alive


@pytest.mark.threat("T157")
def test_a_forward_is_recorded_and_ends_with_its_process(session: ControlledSession) -> None:
    code, out, errors = session.agent("ports", "forward", "3000", "0")
    assert (code, errors) == (0, "")
    found = re.fullmatch(r"http://127\.0\.0\.1:(\d+) leads to port 3000 of p1\n", out)
    assert found is not None, out
    port = int(found[1])
    assert asked(port, b"hello") == b"HELLO"
    ((record, end),) = session.forwarded()
    assert record.body["answer"] == {
        "question": "forward the port?",
        "yes": True,
        "by": "agent ports",
        "feedback": None,
    }
    assert end is None, "it is still open"
    rows = [json.loads(line) for line in session.agent("ports", "--json")[1].splitlines()]
    (told,) = [each for each in OUTPUTS if each.command == "ports list"]
    assert [set(row) for row in rows] == [{each.name for each in told.fields}]
    assert rows[0]["processes"] == ["p1", "p2"]
    assert rows[0]["forwarded"] == [port]
    session.call(session.processes.end("p1"))
    session.call(until_async(lambda: not session.forwards.all))
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port))
    ((_, end),) = session.forwarded()
    assert end is not None
    assert end.body["status"] == 0
    assert Notice(f"127.0.0.1:{port}, forwarded to port 3000 of p1, is closed") in session.events


@pytest.mark.threat("T157")
def test_a_forward_ends_when_it_is_closed(session: ControlledSession) -> None:
    port = session.call(session.forwards.open(3000, 0, "terminal")).host_port
    with socket.create_connection(("127.0.0.1", port)) as client:
        client.sendall(b"held open")
        assert session.agent("ports", "close", str(port))[0] == 0
        with contextlib.suppress(ConnectionResetError):
            assert client.recv(1) == b""
    assert session.agent("ports", "close", str(port))[0] == 1


@pytest.mark.threat("T157")
def test_a_forward_that_cannot_be_is_refused(session: ControlledSession) -> None:
    with pytest.raises(ForwardRefused, match="no process of the session listens on port 4000"):
        session.call(session.forwards.open(4000, 0, "terminal"))
    assert not session.forwarded(), "nothing was decided"
    with socket.create_server(("127.0.0.1", 0)) as taken:
        with pytest.raises(ForwardRefused, match="was not opened"):
            session.call(session.forwards.open(3000, taken.getsockname()[1], "terminal"))
        ((_, end),) = session.forwarded()
        assert end is not None
        assert end.body["status"] == 1
    assert not session.forwards.all
    assert session.agent("ports", "forward", "70000")[0] == 2


@pytest.mark.threat("T157")
def test_a_forward_listens_on_one_loopback_address_only(session: ControlledSession) -> None:
    port = session.call(session.forwards.open(3000, 0, "terminal")).host_port
    lines = [
        line.split() for name in ("tcp", "tcp6") for line in Path(f"/proc/net/{name}").read_text().splitlines()[1:]
    ]
    listening = [line[1] for line in lines if line[3] == "0A" and line[1].endswith(f":{port:04X}")]
    assert listening == [f"0100007F:{port:04X}"]


@pytest.mark.threat("T156")
def test_the_socket_is_private_to_the_user_outside_of_sandboxes(session: ControlledSession) -> None:
    path = session.state / "control" / f"{session.name}.sock"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    unshare = ("unshare", "--mount") if os.geteuid() == 0 else ("unshare", "--user", "--map-root-user", "--mount")
    for wrap, reached in (((), True), (unshare, False)):
        command = [*wrap, sys.executable, "-I", "-c", CLIENT, path.name]
        done = subprocess.run(command, cwd=path.parent, capture_output=True, text=True, timeout=60, check=True)
        assert ("npm run dev" in done.stdout) is reached
        assert ("the session refused the connection" in done.stdout) is not reached


@pytest.mark.threat("T156")
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_another_user_is_refused_even_if_the_modes_let_them(session: ControlledSession) -> None:
    path = session.state / "control" / f"{session.name}.sock"
    path.chmod(0o666)
    folder = os.open(path.parent, os.O_PATH)  # instead of opening every folder above it
    command = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "/usr/bin/python3", "-I", "-c", CLIENT]
    path.parent.chmod(0o755)
    try:
        done = subprocess.run(
            [*command, f"/proc/self/fd/{folder}/{path.name}"],
            pass_fds=[folder], capture_output=True, text=True, timeout=60, check=True, cwd="/",
        )  # fmt: skip
    finally:
        os.close(folder)
    assert "npm run dev" not in done.stdout
    assert "the session refused the connection" in done.stdout


# what a client sends, why it is refused
MALFORMED = [
    (b"\n", "an empty line"),
    (b"[" * 3000 + b"\n", "nested deeply"),
    (b'{"op":"run"}\n', "an unknown operation"),
    (b'{"op":"output","process":"p9"}\n', "no such process"),
    (b'{"op":"forward","port":"3000","host_port":true}\n', "ports that are no numbers"),
    (b"x" * 5000, "longer than any request"),
]


@pytest.mark.parametrize(("data", "why"), MALFORMED, ids=[row[1] for row in MALFORMED])
def test_a_request_that_is_not_valid_is_refused(session: ControlledSession, data: bytes, why: str) -> None:
    folder = os.open(session.state / "control", os.O_PATH)
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(f"/proc/self/fd/{folder}/{session.name}.sock")
        os.close(folder)
        client.sendall(data)
        assert "problem" in json.loads(client.makefile().readline())
    assert len(session.processes.alive) == 2


def test_a_session_that_was_killed_is_not_listed(tmp_path: Path) -> None:
    folder = tmp_path / "control"
    folder.mkdir()
    opened = os.open(folder, os.O_PATH)
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(f"/proc/self/fd/{opened}/0123456789abcdef.sock")
        os.close(opened)
    assert sessions_with_processes(tmp_path) == []
    assert list(folder.iterdir()) == []
    with pytest.raises(ControlRefused, match="it has ended"):
        ask_session(tmp_path, "0123456789abcdef", {"op": "processes"})


# what the user types behind `!`, the command that stays, or None
TYPED = [
    ("npm run dev &", "npm run dev", "a server"),
    ("a & b &  ", "a & b", "only the last one"),
    ("make", None, "no ampersand"),
    ("a &&", None, "an unfinished list"),
    ("a 2>&", None, "an unfinished redirection"),
    ("echo \\&", None, "an escaped one"),
    ("&", None, "nothing in front of it"),
]


@pytest.mark.parametrize(("typed", "stays", "why"), TYPED, ids=[row[2] for row in TYPED])
def test_a_typed_command_stays_if_it_ends_with_an_ampersand(typed: str, stays: str | None, why: str) -> None:
    assert background_command(typed) == stays
