"""The control socket of a session: another terminal of the same user lists, reads and stops its processes, forwards
their ports, and answers the questions that wait for `agent approve`.

One connection carries one request and one answer, each a JSON object on one line.

THREAT T156: an answer contains the output of processes, and a request can open a port or approve an action. The socket
is therefore in the state folder, which no sandbox can see; the folder has mode 0700 and the socket 0600; and the kernel
must name a process of this user at the other end, in the mount namespace of this program, which no confined process
shares.
"""

import asyncio
import contextlib
import errno
import json
import os
import socket
import struct
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from policy.model.deadline import deadline
from policy.model.verdict import Problem, ProblemError
from runner.engine.process_view import output_lines, port_rows, process_rows
from runner.state.socket_path import short_path
from runner.text.json_line import json_line

if TYPE_CHECKING:
    from runner.approval.open_questions import OpenQuestions
    from runner.engine.port_forwards import PortForwards
    from runner.engine.processes import SessionProcess, SessionProcesses

FOLDER = "control"  # below the state folder
_SUFFIX = ".sock"
_LONGEST_REQUEST = 4096  # bytes
_LONGEST_ANSWER = 8 << 20  # bytes
_PATIENCE = deadline(10.0)  # seconds until a client has sent its request, and until a session has answered
_MOST_LINES = 10_000
_FOREIGN = "the other end is not a program of this user outside of a sandbox"


class ControlRefused(ProblemError):
    """The error for a request that a session did not fulfil."""

    exit_code = 1


class ControlServer:
    """The control socket of one session. `open` is called with its first process, so that most sessions have none.

    `questions` are the questions that another terminal may answer, or None if the session has no such questions.
    """

    def __init__(
        self,
        state: Path,
        session: str,
        processes: "SessionProcesses",
        forwards: "PortForwards",
        questions: "OpenQuestions | None" = None,
    ) -> None:
        self._folder, self._session = state / FOLDER, session
        self._processes, self._forwards = processes, forwards
        self._questions = questions
        self._path = self._folder / f"{session}{_SUFFIX}"
        self._socket: socket.socket | None = None
        self._accepting: asyncio.Task[None] | None = None
        self._serving: set[asyncio.Task[None]] = set()
        self._answers: dict[str, Callable[[Mapping[str, object]], Awaitable[dict[str, object]]]] = {
            "processes": self._list,
            "output": self._output,
            "stop": self._stop,
            "ports": self._ports,
            "forward": self._forward,
            "close": self._close_forward,
            "questions": self._list_questions,
            "question": self._show_question,
            "answer": self._answer_question,
        }

    def open(self) -> None:
        """Listen, unless this server does so already. Raise OSError."""
        if self._socket is not None:
            return
        if not hasattr(socket, "SO_PEERCRED"):
            raise OSError(errno.ENOTSUP, "this system does not tell who is at the other end of a socket")
        self._folder.mkdir(mode=0o700, exist_ok=True)
        self._folder.chmod(0o700)
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        try:
            with contextlib.suppress(FileNotFoundError):
                self._path.unlink()
            with short_path(self._path) as path:
                listener.bind(path)
            self._path.chmod(0o600)
            listener.listen(8)  # SAFETY: listen(2) comes last, because before it nobody can connect
            listener.setblocking(False)
        except BaseException:
            listener.close()
            raise
        self._socket = listener
        self._accepting = asyncio.create_task(self._accept(listener))

    async def finish(self) -> None:
        """Answer the requests that have arrived, then close. A client that sends nothing delays it by seconds."""
        if self._serving:
            await asyncio.wait(self._serving, timeout=2 * _PATIENCE)
        await self.close()

    async def close(self) -> None:
        """Stop listening and remove the socket."""
        tasks = {*self._serving, *((self._accepting,) if self._accepting is not None else ())}
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        if self._socket is not None:
            self._socket.close()
            self._socket = None
            with contextlib.suppress(FileNotFoundError):
                self._path.unlink()

    async def _accept(self, listener: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            client, _ = await loop.sock_accept(listener)
            task = asyncio.create_task(self._serve(client))
            self._serving.add(task)
            task.add_done_callback(self._serving.discard)

    async def _serve(self, client: socket.socket) -> None:
        client.setblocking(False)
        loop = asyncio.get_running_loop()
        with client, contextlib.suppress(OSError, TimeoutError):
            allowed = _ours(client)
            async with asyncio.timeout(_PATIENCE):
                request = b""
                while not request.endswith(b"\n") and len(request) <= _LONGEST_REQUEST:
                    piece = await loop.sock_recv(client, _LONGEST_REQUEST)
                    if not piece:
                        return
                    request += piece
            answer = await self._answer(request) if allowed else {"problem": _problem_json(_not_ours())}
            async with asyncio.timeout(_PATIENCE):
                await loop.sock_sendall(client, _line(answer))

    async def _answer(self, request: bytes) -> dict[str, object]:
        try:
            asked = json.loads(request) if len(request) <= _LONGEST_REQUEST else None
        except (ValueError, RecursionError):
            asked = None
        answer = self._answers.get(str(asked.get("op"))) if isinstance(asked, dict) else None
        if answer is None or not isinstance(asked, dict):
            return {"problem": _problem_json(Problem("the request is not valid", "it is unknown", "update both ends"))}
        try:
            return await answer(asked)
        except ProblemError as error:
            return {"problem": _problem_json(error.problem)}

    async def _list(self, asked: Mapping[str, object]) -> dict[str, object]:
        return {"processes": [row.as_json() for row in process_rows(self._processes.all)]}

    async def _output(self, asked: Mapping[str, object]) -> dict[str, object]:
        most = asked.get("lines")
        lines = min(most, _MOST_LINES) if isinstance(most, int) and most > 0 else _MOST_LINES
        return {"lines": output_lines(self._process(asked), lines)}

    async def _stop(self, asked: Mapping[str, object]) -> dict[str, object]:
        found = self._processes.alive if asked.get("process") is None else (self._process(asked),)
        for each in found:
            await self._processes.end(each.id)
        return {"processes": [row.as_json() for row in process_rows(found)]}

    async def _ports(self, asked: Mapping[str, object]) -> dict[str, object]:
        return {"ports": [row.as_json() for row in port_rows(self._processes.alive, self._forwards.all)]}

    async def _forward(self, asked: Mapping[str, object]) -> dict[str, object]:
        port, host_port = asked.get("port"), asked.get("host_port")
        if not (is_port(port) and is_host_port(host_port)):
            raise ControlRefused(Problem("the port was not forwarded", *_NO_PORT))
        assert isinstance(port, int)
        assert isinstance(host_port, int)
        forward = await self._forwards.open(port, host_port, "agent ports")
        return {"process": forward.process, "port": forward.port, "host_port": forward.host_port}

    async def _close_forward(self, asked: Mapping[str, object]) -> dict[str, object]:
        host_port = asked.get("host_port")
        if not isinstance(host_port, int) or not await self._forwards.end(host_port):
            why = f"no port {host_port} of this machine is forwarded by this session"
            raise ControlRefused(Problem("no forward was closed", why, "see `agent ports`"))
        return {"host_port": host_port}

    async def _list_questions(self, asked: Mapping[str, object]) -> dict[str, object]:
        return {"questions": self._questions.rows() if self._questions is not None else []}

    async def _show_question(self, asked: Mapping[str, object]) -> dict[str, object]:
        width = asked.get("width")
        width = min(max(width, 20), 500) if isinstance(width, int) else 80
        return self._waiting().shown(str(asked.get("id")), width)

    async def _answer_question(self, asked: Mapping[str, object]) -> dict[str, object]:
        return self._waiting().answer(str(asked.get("id")), asked.get("answer"))

    def _waiting(self) -> "OpenQuestions":
        if self._questions is None:
            raise ControlRefused(Problem("there is no such question", "this session asks elsewhere", "list them"))
        return self._questions

    def _process(self, asked: Mapping[str, object]) -> "SessionProcess":
        id = str(asked.get("process"))
        found = self._processes.get(id)
        if found is None:
            raise ControlRefused(Problem(f"there is no process `{id[:40]}`", "the session has none", "list them"))
        return found


_NO_PORT = ("a port is a number from 1 to 65,535", "write for example `agent ports forward 3000 8080`")


def is_port(value: object) -> bool:
    """Return True for the number of a TCP port."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 < value < 65_536


def is_host_port(value: object) -> bool:
    """Return True for the number of a port of this machine to open: of a TCP port, or 0 for a free one."""
    return is_port(value) or (value == 0 and type(value) is int)


def sessions_with_processes(state: Path) -> list[str]:
    """Return the names of the sessions with a control socket, in order. Sockets of dead sessions are removed."""
    found = []
    for path in sorted((state / FOLDER).glob(f"*{_SUFFIX}")) if (state / FOLDER).is_dir() else ():
        with (
            socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC) as probe,
            short_path(path) as short,
        ):
            try:
                probe.connect(short)
            except (ConnectionRefusedError, FileNotFoundError):
                with contextlib.suppress(FileNotFoundError):
                    path.unlink()
            else:
                found.append(path.name.removesuffix(_SUFFIX))
    return found


def ask_session(state: Path, session: str, request: Mapping[str, object]) -> dict[str, object]:
    """Send a request to a session and return its answer. Raise ControlRefused."""
    path = state / FOLDER / f"{session}{_SUFFIX}"
    what, fix = f"the session {session[:8]} did not answer", "see `agent processes`"
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC) as client:
        client.settimeout(_PATIENCE)
        try:
            with short_path(path) as short:
                client.connect(short)
            client.sendall(_line(request))
            data = b""
            while not data.endswith(b"\n") and len(data) <= _LONGEST_ANSWER:
                piece = client.recv(1 << 16)
                if not piece:
                    break
                data += piece
            answer = json.loads(data)
        except TimeoutError:
            raise ControlRefused(Problem(what, "it is busy", "try again")) from None
        except (OSError, ValueError):
            raise ControlRefused(Problem(what, "it has ended", fix)) from None
    if not isinstance(answer, dict):
        raise ControlRefused(Problem(what, "its answer is not valid", "update both ends"))
    if isinstance(problem := answer.get("problem"), dict):
        raise ControlRefused(Problem(*(str(problem.get(name)) for name in ("what", "why", "fix"))))
    return answer


def _ours(client: socket.socket) -> bool:
    """Return True if the other end is a process of this user in the mount namespace of this program."""
    pid, uid, _ = struct.unpack("3i", client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    if uid != os.geteuid() or pid <= 0:
        return False
    try:
        return os.stat(f"/proc/{pid}/ns/mnt").st_ino == os.stat("/proc/self/ns/mnt").st_ino
    except OSError:  # the process has ended, or its namespaces may not be read
        return False


def _not_ours() -> Problem:
    return Problem("the session refused the connection", _FOREIGN, "use a terminal of the user who runs the session")


def _problem_json(problem: Problem) -> dict[str, str]:
    return {"what": problem.what, "why": problem.why, "fix": problem.fix}


def _line(value: object) -> bytes:
    return json_line(value).encode("ascii") + b"\n"
