"""The resident process itself: it keeps workers, starts processes that last, and answers requests about both.

It has no event loop and reads no input of a command, so nothing that a command does can stop it. It ends after half an
hour in which it had nothing to do.

THREAT T276: a process that is started once must not keep what a user has changed since. Workers take nothing from this
process but the program and the forecast of a helper (T312), and run nothing if its files have changed; this process
then ends as soon as nothing depends on it.
"""

import contextlib
import fcntl
import gc
import json
import math
import os
import select
import signal
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from policy.model.deadline import deadline
from policy.model.verdict import Problem
from runner import resident
from runner.frontends.resident import forecast
from runner.frontends.resident.forecast import ReceivedForecast
from runner.frontends.resident.loading import (
    Main,
    Stamps,
    folders_of,
    load_program,
    loaded_files,
    stamps,
    written_pages,
)
from runner.frontends.resident.memory import Pages
from runner.frontends.resident.spawned import Spawner
from runner.frontends.resident.worker import DONE, STARTED, become_worker, serve_one
from runner.problems import Exit, Stopped
from runner.resident import CONTROL, LOCK, WARM
from runner.resident.peer import Standing, examined, standing
from runner.text.json_line import utc_time

SPARE = 2  # workers that wait; each has a helper of about 10 MB
MOST = 64  # workers at the same time; further clients wait, and run cold after two seconds
BACKLOG = 512  # clients that may wait
_ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_LOOK = 10.0  # seconds between two looks at the clock, the files and the jobs
_LATER = 0.1  # seconds for a command to end before a new worker starts, which would slow it down, if another one waits
_END = deadline(8.0)  # seconds for waiting workers to end; killed ones would leave the folders of their helpers
_REQUEST = 1 << 20  # bytes of a request
_PATIENCE = deadline(1.0)  # seconds for a client to send its request

DueJobs = Callable[[float], list[list[str]]]


@dataclass(slots=True)
class ResidentOptions:
    """The settings of the resident process.

    Attributes:
        idle: Seconds without work after which the process ends; 0 for never.
        sessions: The most sessions that it keeps at the same time.
        due: Returns the command lines of the jobs that are due at a time; None if there are no jobs.
        keeps: Returns True if jobs wait for a later time, so that the process must not end.
        companions: Command lines of processes that run as long as this one, by kind, for example the web server.
        changed: The exit code if the process ends because the files of the program have changed. A failure lets systemd
            start it again.
    """

    idle: float = 1800.0
    sessions: int = 8
    due: DueJobs | None = None
    keeps: Callable[[], bool] = lambda: False
    companions: tuple[tuple[str, tuple[str, ...]], ...] = ()
    changed: int = Exit.DONE


@dataclass(slots=True)
class _Process:
    folder: str
    options: ResidentOptions
    main: Main
    began: float = field(default_factory=time.time)
    idle: set[int] = field(default_factory=set)  # workers that wait
    working: set[int] = field(default_factory=set)  # workers that run a command
    fills: float = 0.0  # the time from which missing workers are started (time.monotonic)
    served: int = 0
    last: float = field(default_factory=time.monotonic)
    stale: bool = False
    over: bool = False
    code: int = Exit.DONE


def run_resident(folder: str, options: ResidentOptions, main: Main, ready: Callable[[], None] = lambda: None) -> int:
    """Serve until there is nothing to do, or until SIGTERM or a request to stop. Return the exit code.

    Args:
        folder: The folder of the sockets, which is private to the user.
        options: The settings.
        main: The entry point of the command line, for warm commands.
        ready: Called once, when clients can connect.

    Raises Stopped if the user has a resident process already, or if the sockets cannot be made.
    """
    lock = _locked(folder)
    resident.inside = True
    state = _Process(folder, options, main)
    os.chdir("/")
    spawner = Spawner(f"{folder}/log")
    try:
        if code := load_program(main):
            spawner.log(f"the rehearsal of commands failed ({code}): see `agent doctor`")
        return _Resident(state, spawner).serve(ready)
    finally:
        spawner.end_all()
        for name in (WARM, CONTROL):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(f"{folder}/{name}")
        os.close(lock)


def _locked(folder: str) -> int:
    """Return the descriptor of the lock, which only one process holds. Raise Stopped if another one has it."""
    handle = os.open(f"{folder}/{LOCK}", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        fix = "see `agent serve --status`; `agent serve --stop` ends it"
        raise Stopped(Problem("there is a resident process already", "a user has one", fix), Exit.USAGE) from None
    os.truncate(handle, 0)
    os.write(handle, f"{os.getpid()}\n".encode())
    return handle


def _listening(path: str) -> socket.socket:
    """Return a listening socket that only this user can connect to."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)  # of a process that was killed: the lock is free
    server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    before = os.umask(0o177)
    try:
        server.bind(path)
    finally:
        os.umask(before)
    server.listen(BACKLOG)
    return server


class _Resident:
    """The loop of the process."""

    def __init__(self, state: _Process, spawner: Spawner) -> None:
        self._state = state
        self._spawner = spawner
        self._own: Standing = standing()
        self._files: Stamps = loaded_files()
        self._folders: Stamps = folders_of(self._files)
        self._parent = os.getpid()
        self._pages: Pages = written_pages(state.main)
        self._warm = _listening(f"{state.folder}/{WARM}")
        self._warm.setblocking(False)  # several workers may see the same client
        self._control = _listening(f"{state.folder}/{CONTROL}")
        self._places = {name: os.stat(f"{state.folder}/{name}").st_ino for name in (WARM, CONTROL)}
        self._said, self._saying = os.pipe()  # workers report here that a client has come
        self._foreseen, self._foreseeing = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._foreseen.setblocking(False)
        self._foreseeing.setblocking(False)
        self._forecast: ReceivedForecast | None = None
        self._woken, self._waking = os.pipe()
        for handle in (self._said, self._woken, self._waking):
            os.set_blocking(handle, False)

    def serve(self, ready: Callable[[], None]) -> int:
        signal.set_wakeup_fd(self._waking, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        for number in _ENDING:
            signal.signal(number, self._stop)
        poll = select.poll()
        for each in (self._control.fileno(), self._said, self._woken):
            poll.register(each, select.POLLIN)
        for kind, words in self._state.options.companions:
            self._spawner.start(kind, list(words), dict(os.environ), "/")
        self._fill()
        ready()
        looked = time.monotonic()
        self._look()
        while not self._state.over:
            due = min(looked + _LOOK, self._state.fills or math.inf)
            events = {number for number, _ in poll.poll(max(due - time.monotonic(), 0.0) * 1000)}
            _emptied(self._woken)
            self._note_busy()
            self._collect()
            if self._control.fileno() in events:
                self._answer()
            if time.monotonic() - looked >= _LOOK:
                looked = time.monotonic()
                self._look()
            self._fill()
        self._end_idle()
        until = time.monotonic() + _END
        while self._state.idle and time.monotonic() < until:  # else the kernel ends them with this process
            poll.poll(100)
            _emptied(self._woken)
            self._collect()
        return self._state.code

    def _stop(self, number: int, frame: object) -> None:
        self._state.over = True

    # ---- workers

    def _fill(self) -> None:
        """Start workers until enough wait. A new worker does not return, but ends."""
        state = self._state
        if state.idle and time.monotonic() < state.fills:
            return
        state.fills = 0.0
        while not state.over and not state.stale and len(state.idle) < SPARE:
            if len(state.idle) + len(state.working) >= MOST:
                break
            # A signal that arrives before the worker has its own handlers would call that of this process, and be lost.
            mask = signal.pthread_sigmask(signal.SIG_BLOCK, _ENDING)
            pid = os.fork()
            if pid == 0:
                os._exit(self._work(mask))
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
            state.idle.add(pid)

    def _work(self, mask: set[int | signal.Signals]) -> int:
        """Be a worker with this signal mask, and return its exit code."""
        code = 1
        try:
            become_worker(self._parent, mask)
            gc.disable()
            self._control.close()
            self._foreseen.close()
            for handle in (self._said, self._woken, self._waking):
                os.close(handle)
            self._spawner.forget()
            code = serve_one(
                self._warm,
                self._own,
                self._folders,
                self._pages,
                self._report,
                self._spawner.log,
                self._state.main,
                self._forecast,
                self._foresee,
            )
        except SystemExit:
            code = 0
        except BaseException as error:  # Seam of a worker: its client sees that the connection ends
            self._spawner.log(f"a worker failed: {type(error).__name__}: {error}")
        return code & 0xFF

    def _report(self, event: bytes) -> None:
        os.write(self._saying, b"%d:%s\n" % (os.getpid(), event))

    def _foresee(self, data: bytes) -> None:
        with contextlib.suppress(OSError):  # forecasts are not necessary
            self._foreseeing.send(data)

    def _note_busy(self) -> None:
        state = self._state
        for line in _emptied(self._said).split():
            pid, _, event = line.partition(b":")
            state.last = time.monotonic()
            if event == STARTED:
                state.served += 1
            elif event == DONE:
                state.fills = 0.0
                self._take_forecast()
            elif int(pid) in state.idle:
                state.idle.discard(int(pid))
                state.working.add(int(pid))
                state.fills = state.last + _LATER

    def _take_forecast(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while True:
                data = self._foreseen.recv(forecast.MOST)
                self._forecast = ReceivedForecast(data, time.monotonic() + forecast.KEPT)

    def _collect(self) -> None:
        """Reap the children that have ended."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            self._state.last = time.monotonic()
            self._state.idle.discard(pid)
            self._state.working.discard(pid)
            self._spawner.ended(pid, status)

    # ---- the clock

    def _look(self) -> None:
        state, options = self._state, self._state.options
        changed = stamps(self._files) != self._files or stamps(self._folders) != self._folders
        if changed and not state.stale:
            state.stale = True
            self._spawner.log("the files of this program have changed, so commands run cold")
            self._end_idle()
        if self._forecast is not None and self._forecast.over:
            self._forecast = None
        if any(_inode(f"{state.folder}/{name}") != inode for name, inode in self._places.items()):
            self._spawner.log("the sockets were removed")
            state.over = True
            return
        if options.due is not None and not state.stale:
            for words in options.due(time.time()):
                self._spawner.start("job", words, dict(os.environ), "/")
        if state.working or self._spawner.living() or (options.keeps() and not state.stale):
            state.last = time.monotonic()
        elif state.stale or (options.idle and time.monotonic() - state.last > options.idle):
            state.over = True
            state.code = options.changed if state.stale else Exit.DONE

    def _end_idle(self) -> None:
        """Begin to end the workers that wait. They remove the folders of their helpers."""
        for pid in self._state.idle:
            os.kill(pid, signal.SIGTERM)

    # ---- requests

    def _answer(self) -> None:
        connection, _ = self._control.accept()
        with connection:
            connection.settimeout(_PATIENCE)
            try:
                if examined(connection, self._own) is None:
                    return
                line = _line(connection)
                connection.sendall(json.dumps(self._reply(line)).encode() + b"\n")
            except (OSError, ValueError) as error:
                self._spawner.log(f"a request failed: {error}")

    def _reply(self, line: bytes) -> dict[str, object]:
        asked = json.loads(line)
        match asked:
            case {"op": "status"}:
                return self._status()
            case {"op": "stop"}:
                self._state.over = True
                return {"ok": True}
            case {"op": "spawn", "kind": str(kind), "words": list(words), "environ": dict(environ), "cwd": str(cwd)}:
                return self._spawn(kind, words, environ, cwd)
            case _:
                return {"error": "the request is not known to this version of the resident process"}

    def _spawn(self, kind: str, words: list[object], environ: Mapping[object, object], cwd: str) -> dict[str, object]:
        if self._state.stale:
            return {"error": "the files of the program have changed; run `agent serve --restart`"}
        if kind not in ("session", "web", "job"):
            return {"error": f"there is no kind `{kind}`"}
        if kind == "session" and len(self._spawner.living(kind)) >= self._state.options.sessions:
            most = self._state.options.sessions
            return {"error": f"{most} sessions run already; end one with `agent stop`, or raise `serve.sessions`"}
        texts = {str(name): str(value) for name, value in environ.items()}
        try:
            found = self._spawner.start(kind, [str(word) for word in words], texts, cwd)
        except OSError as error:
            return {"error": f"the process cannot be started: {error.strerror or error}"}
        self._state.last = time.monotonic()
        return {"pid": found.pid}

    def _status(self) -> dict[str, object]:
        state = self._state
        return {
            "pid": os.getpid(),
            "since": str(utc_time(state.began)),
            "served": state.served,
            "working": len(state.working),
            "waiting": len(state.idle),
            "stale": state.stale,
            "sessions": state.options.sessions,
            "idle": state.options.idle,
            "processes": [each.as_json() for each in self._spawner.living()],
        }


def _line(connection: socket.socket) -> bytes:
    """Return the line of a client. Raise ValueError if it is too long or incomplete."""
    found = b""
    while not found.endswith(b"\n"):
        more = connection.recv(1 << 16)
        found += more
        if not more or len(found) > _REQUEST:
            raise ValueError("the line of a client is incomplete or too long")
    return found


def _emptied(handle: int) -> bytes:
    """Return what is in a pipe."""
    found = b""
    with contextlib.suppress(BlockingIOError):
        while more := os.read(handle, 1 << 16):
            found += more
    return found


def _inode(path: str) -> int:
    try:
        return os.lstat(path).st_ino
    except OSError:
        return 0
