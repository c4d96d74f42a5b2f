"""The process of a hosted session: `agent serve session`, started by `start.py` or by the resident process.

The session is that of JSON mode. It has no terminal, and clients come and go. Work goes on while nobody is attached,
and a question stays open until a client answers it or the work is stopped; in an unattended session every question is
refused. A session without clients, work and background processes ends after a time (`hosted.idle`).
"""

import asyncio
import contextlib
import json
import os
import signal
import threading
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from policy.model.deadline import deadline
from policy.model.verdict import Problem
from runner.agent.agent import Agent
from runner.agent.startup import RunArgs, prepare_start
from runner.approval.approver import Edited, Kept, Leave, No, Stay, Try, Yes
from runner.events import Event
from runner.frontends.hosted.address import HostedSession, folder_lock, sessions_folder
from runner.frontends.hosted.clients import Client, ClientHub
from runner.frontends.hosted.replay import CondensedEvents
from runner.frontends.hosted.start import report_start
from runner.frontends.jsonl.approver import Questions
from runner.frontends.jsonl.driver import JsonMode
from runner.frontends.signals import end_by_signals
from runner.mcp.elicitation import ElicitedAnswer
from runner.problems import Exit, known_problem
from runner.state.socket_path import short_path
from runner.text.json_line import json_line, utc_now
from runner.text.sanitize import one_line

IDLE = 1800.0  # seconds without clients and work after which a session ends
_LOOK = 5.0  # seconds between two looks at the socket and at the clock
_SOON = 0.1  # seconds until a change is in the description
_WORKING = 0.5  # seconds between two looks whether the work goes on
_LAST = deadline(5.0)  # seconds for an orderly end after the resident process is gone
_TITLE = 80  # characters


class HostedQuestions(Questions):
    """The Approver of a hosted session. Every answer carries the client that gave it.

    THREAT T279: the first valid answer to a question counts. A later one, one to a question that is closed, and one
    that the question does not offer change nothing: its client gets an error, and the question stays as it was.
    """

    name = "client"

    def __init__(self, host: "SessionHost") -> None:
        super().__init__(host.emit_question)
        self._host = host

    def signed(self, answer: object) -> object:
        client = self._host.hub.current
        if client is None:
            return answer
        if isinstance(answer, tuple):  # to the questions of the model
            return tuple(replace(each, client=client.answering) for each in answer)
        signed = (Yes, No, Try, Kept, Leave, Stay, ElicitedAnswer)
        return replace(answer, client=client.answering) if isinstance(answer, signed) else answer

    def closed(self, id: str, *, answered: bool = False, answer: object = None) -> None:
        self._host.question_closed(id, answered=answered, answer=answer)


class SessionHost:
    """One hosted session with its clients."""

    def __init__(self, args: RunArgs) -> None:
        self.replay = CondensedEvents()
        self.hub = ClientHub(self.described, self._open_events, self.replay, self._changed_soon)
        self.questions = HostedQuestions(self)
        self.agent = Agent(
            start=lambda: prepare_start(args, unattended=args.unattended, asks=False, notes=True),
            approver=None if args.unattended else self.questions,
            emit=self.emit,
        )
        self._unattended = args.unattended
        self._open: dict[str, dict[str, object]] = {}  # events of the open questions by their names
        self._title = self._folder = self._workspace = ""
        self._began = self._active = time.time()
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._published: PublishedSession | None = None
        self._soon: asyncio.TimerHandle | None = None
        self._mode: JsonMode | None = None

    # ---- events

    def emit(self, event: Event) -> None:
        """Send an event of the session to all clients."""
        if threading.get_ident() != self._thread:
            self._loop.call_soon_threadsafe(self.emit, event)
            return
        self._active = time.time()
        whole = {"type": event.type, "time": utc_now(), **event.as_json()}
        match event.type:
            case "prompted" if not self._title:
                self._title = one_line(str(whole["typed"] or whole["text"]), _TITLE)
            case "session_started":
                self._title, self._folder, self._workspace = "", str(whole["cwd"]), str(whole["workspace"])
            case "session_resumed":
                self._title = one_line(str(whole["first"]), _TITLE)
            case "question_asked" | "pick_wanted" | "input_wanted":
                if whole["id"] and not self._unattended:
                    self._open[str(whole["id"])] = whole
        self.replay.add(whole)
        self.hub.tell(whole)
        if event.type not in ("text", "thinking", "output"):
            self._changed_soon()

    def emit_question(self, event: Event) -> None:
        """Emit the event of a list or form, which passes the redaction of the session."""
        self.agent.conversation.ctx.emit(event)

    def question_closed(self, id: str, *, answered: bool, answer: object) -> None:
        """Tell all clients that a question is closed, and who answered it."""
        if self._open.pop(id, None) is None:
            return
        client = self.hub.current if answered else None
        said = {Yes: "yes", No: "no", Edited: "edit", Try: "try", Kept: "keep", Leave: "yes", Stay: "no"}.get(
            type(answer), ""
        )
        by = client.who if client is not None else ""
        self.hub.tell({"type": "question_closed", "id": id, "answer": said, "by": by})
        self._changed_soon()

    def _open_events(self) -> list[Mapping[str, object]]:
        return list(self._open.values())

    # ---- description

    @property
    def id(self) -> str:
        """Return the name of the open session."""
        ctx = self.agent.conversation.ctx
        return ctx.journal.kept or ctx.session

    @property
    def working(self) -> bool:
        """Return True while anything uses the conversation, or a process of the session runs."""
        return (
            self.agent.busy
            or bool(self._open)
            or (self._mode is not None and self._mode.working)
            or bool(self.agent.conversation.ctx.processes.alive)
        )

    def described(self) -> dict[str, object]:
        """Return the description of the session."""
        return self._description().as_json()

    def _description(self) -> HostedSession:
        ctx = self.agent.conversation.ctx
        state = "question" if self._open else "working" if self.working else "idle"
        return HostedSession(
            id=self.id,
            pid=os.getpid(),
            folder=self._folder,
            workspace=self._workspace,
            title=self._title,
            mode=ctx.live.mode.value,
            model=ctx.live.named,
            state=state,
            started=round(self._began, 3),
            active=round(self._active, 3),
            clients=tuple(each.who for each in self.hub.clients),
            questions=tuple(self._open),
            unattended=self._unattended,
        )

    def _changed_soon(self) -> None:
        if self._soon is None:
            self._soon = self._loop.call_later(_SOON, self._write)

    def _write(self) -> None:
        self._soon = None
        if self._published is not None:
            described = self._description()
            with contextlib.suppress(OSError):  # a full disk: the description is older than the session
                self._published.describe(described)
            if described.state == "working":  # no event tells when the work has ended completely
                self._loop.call_later(_WORKING, self._changed_soon)

    # ---- life

    async def run(self, folder: Path, token: str) -> Exit:
        """Serve the session until a client, a signal or the time ends it, and return the exit code."""
        published = PublishedSession(folder)
        server = None
        try:
            async with self.agent:
                self._mode = JsonMode(self.agent, self.questions, self.hub.report)
                published.publish(self._description())
                self._published = published
                server = await self._loop.create_unix_server(lambda: Client(self.hub), sock=published.listener)
                report_start(folder, token, {"id": self.id})
                watch = asyncio.ensure_future(self._watch())
                try:
                    return await self._mode.serve(self.hub)
                finally:
                    watch.cancel()
                    self.hub.closed = True
                    self._published = None
        finally:  # the session file is free now, so that a client can resume the session
            if server is not None:
                server.close()
            published.remove()
            await self.hub.close("the session has ended")

    async def _watch(self) -> None:
        """End the session after its idle time."""
        idle = self.agent.settings.value("hosted", "idle")
        most = float(idle) if isinstance(idle, int | float) else IDLE
        since = time.monotonic()
        while True:
            await asyncio.sleep(_LOOK)
            if self.hub.clients or self.working:
                since = time.monotonic()
            elif most and time.monotonic() - since >= most:
                self.hub.finish()
                return


class PublishedSession:
    """The socket and the description of a session in the folder of the sessions.

    Attributes:
        listener: The socket, which listens.
    """

    def __init__(self, folder: Path) -> None:
        import socket

        self._folder = folder
        self._id = ""
        self._inode = 0
        self._written: HostedSession | None = None
        self.listener: socket.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)

    def publish(self, described: HostedSession) -> None:
        """Listen under the name of the session. Raise OSError.

        SAFETY: the socket gets its name by rename(2) after listen(2), so that a socket under its name always accepts.
        The description comes after the socket, so that who reads a description can attach.
        """
        temporary = self._folder / f".{described.id}-{os.getpid()}"
        with contextlib.suppress(FileNotFoundError):
            temporary.unlink()
        with short_path(temporary) as path:
            self.listener.bind(path)
        temporary.chmod(0o600)
        self.listener.listen(16)
        self.listener.setblocking(False)
        self._inode = temporary.lstat().st_ino
        with folder_lock(self._folder):
            draft = self._draft(described)
            temporary.rename(self._folder / described.id)
            self._id = described.id
            self._put(draft, described)

    def describe(self, described: HostedSession) -> None:
        """Write the description, if it changed. Rename the socket if the session changed. Raise OSError."""
        if described.id != self._id:
            with folder_lock(self._folder):
                draft = self._draft(described)
                os.rename(self._folder / self._id, self._folder / described.id)
                before, self._id = self._id, described.id
                self._put(draft, described)
                with contextlib.suppress(FileNotFoundError):
                    (self._folder / f"{before}.json").unlink()
        elif self._written is None or replace(self._written, active=described.active) != described:
            self._put(self._draft(described), described)

    def _draft(self, described: HostedSession) -> Path:
        new = self._folder / f".{described.id}.json-{os.getpid()}"
        handle = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        with open(handle, "w", encoding="ascii") as file:
            file.write(json_line(described.as_json()))
        return new

    def _put(self, draft: Path, described: HostedSession) -> None:
        draft.rename(self._folder / f"{described.id}.json")
        self._written = described

    def remove(self) -> None:
        """Remove the socket and the description, if they are still those of this process."""
        self.listener.close()
        if not self._id:
            return
        with contextlib.suppress(OSError), folder_lock(self._folder):
            path = self._folder / self._id
            if path.lstat().st_ino == self._inode:
                path.unlink()
                (self._folder / f"{self._id}.json").unlink(missing_ok=True)


def serve_session(args: RunArgs, lifeline: int | None, token: str) -> int:
    """Host a session until it ends, and return the exit code.

    `lifeline` is the read end of a pipe whose other end the resident process has, or None. `token` names the file that
    tells the program that started this one of the success or the Problem.
    """
    folder = sessions_folder(os.environ)
    if lifeline is not None:
        _hold_on(lifeline)

    async def work() -> int:
        end_by_signals()
        try:
            return await SessionHost(args).run(folder, token)
        except asyncio.CancelledError:  # by a signal
            return Exit.INTERRUPTED

    try:
        return asyncio.run(work())
    except Exception as error:  # SEAM of the process: the program that started it reads the reason
        found = known_problem(error)
        if found is None:
            raise
        report_start(folder, token, {"problem": json.loads(json_line(vars_of(found[0]))), "exit": int(found[1])})
        return found[1]


def vars_of(problem: Problem) -> dict[str, str]:
    """Return a Problem as a JSON-able object."""
    return {"what": problem.what, "why": problem.why, "fix": problem.fix}


def _hold_on(lifeline: int) -> None:
    """End this process when the other end of the pipe is closed.

    THREAT T281: the resident process was killed, and the user takes its sessions for ended. The session is ended like
    by SIGTERM, which kills its commands first; if that takes too long, by SIGKILL, which the helpers of the sandbox do
    not survive.
    """
    os.set_inheritable(lifeline, False)

    def wait() -> None:
        with contextlib.suppress(OSError):
            while os.read(lifeline, 1):
                pass
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(_LAST)
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=wait, name="lifeline", daemon=True).start()
