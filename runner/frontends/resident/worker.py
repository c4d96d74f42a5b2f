"""One worker: a process with the program loaded and a spare helper, which waits for one command, runs it and ends.

THREAT T273: the command starts only after its client said so. THREAT T275: a command must not outlive its client or the
resident process. The kernel kills the worker when the connection to its client ends or its parent dies; its helper and
its command end with it, as they do with a cold command.
"""

import fcntl
import io
import os
import select
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack

from policy.model.deadline import deadline
from runner.audit.stores.sqlite import close_ahead
from runner.ending import finished
from runner.frontends.resident.forecast import Forecast, ReceivedForecast, encoded, forget, prepare
from runner.frontends.resident.loading import Main, Stamps, stamps, usual_root
from runner.frontends.resident.memory import Pages, take_copies
from runner.resident import client as protocol
from runner.resident import peer_of
from runner.resident.peer import PeerState, Standing, examined, take_over
from sandbox.inside import syscalls
from sandbox.linux.prepared_helper import WorkerSpare

BUSY, STARTED, DONE = b"busy", b"started", b"done"  # what a worker reports
_PATIENCE = deadline(5.0)  # seconds for a client to send the whole request, or to say `go`
_LONGEST = 16 << 20  # bytes of a request; the kernel limits arguments and environment together to 6 MiB, execve(2)
_SETSIG = 10  # F_SETSIG of Linux, fcntl(2)
_DEATH = 1  # PR_SET_PDEATHSIG, prctl(2)
_NAME = 15  # PR_SET_NAME, prctl(2)


class UnfitRequest(Exception):
    """The error for a request that this worker cannot run exactly as the client would. The client runs cold."""


def become_worker(parent: int, mask: set[int | signal.Signals]) -> None:
    """Make this forked process a worker, which is killed when `parent` dies.

    The signals that end it were blocked by `parent`. `mask` is what is blocked afterwards.
    """
    syscalls.prctl(_DEATH, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)  # it died before the call
    os.setsid()
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def serve_one(
    server: socket.socket,
    own: Standing,
    folders: Stamps,
    pages: Pages,
    report: Callable[[bytes], None],
    log: Callable[[str], None],
    main: Main,
    received: ReceivedForecast | None,
    foresee: Callable[[bytes], None],
) -> int:
    """Wait for a client, run its command, and return the exit code of this process.

    Args:
        server: The listening socket, which all workers share. It does not block.
        own: The rights of this process, which those of the client must equal.
        folders: The folders of this program as they were when it was loaded.
        pages: The pages of memory that a command is likely to write.
        report: Called with `BUSY` when a client has come, with `STARTED` when its command starts, and with `DONE` when
            the client has the exit code.
        log: Writes a line into the log: for each client that has to run cold, the reason.
        main: The entry point of the command line.
        received: The forecast of the command; None without one.
        foresee: Called with the forecast of the command after this one.
    """
    with ExitStack() as later, WorkerSpare(later) as spare, select.epoll() as waiting:
        later.callback(close_ahead)
        waiting.register(server, select.EPOLLIN | select.EPOLLEXCLUSIVE)  # a client wakes one worker
        if (root := usual_root()) is not None:
            spare.prepare(root)
        take_copies(pages)
        forecast = None
        if received is not None and not received.over and not waiting.poll(0):
            forecast = prepare(spare, received.data)
        while True:
            signal.signal(signal.SIGTERM, _end)
            if not waiting.poll(received.until - time.monotonic() if received is not None and spare.beside else None):
                forget(spare)
                continue
            try:
                connection, _ = server.accept()
            except BlockingIOError:  # another worker was faster
                continue
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            with connection:
                state = examined(connection, own)
                if state is None or stamps(folders) != folders:
                    why = "a program file has changed" if state else "its process has other rights"
                    log(f"a command runs cold: {why}")
                    _refuse(connection)
                    continue
                report(BUSY)
                try:
                    words = _prepare(connection, state, spare, forecast)
                except (OSError, ValueError, UnfitRequest) as error:
                    log(f"a command runs cold: {error}")
                    _refuse(connection)
                    return 1  # parts of the state of the client may be in force here
                if not _told_to_go(connection):
                    return 0
                _die_with(connection)
                report(STARTED)
                code = _run(words, spare, main)
                _let_go(connection)
                _leave_streams()
                connection.sendall(b"%s%d\n" % (protocol.CODE, code))
                if (data := encoded(spare, state)) is not None:
                    foresee(data)
                report(DONE)
                return code


def _end(number: int, frame: object) -> None:
    """End this process, which has no client, with its helpers and their folders."""
    raise SystemExit(0)


def _refuse(connection: socket.socket) -> None:
    connection.settimeout(_PATIENCE)
    try:
        connection.sendall(protocol.COLD)
    except OSError:
        return  # the client is gone


def _prepare(connection: socket.socket, state: PeerState, spare: WorkerSpare, forecast: Forecast | None) -> list[str]:
    """Read the request, take over the state of the client, and return its command line.

    Raise UnfitRequest for a request of another program or interpreter, and OSError or ValueError for a part that cannot
    be taken over.
    """
    connection.settimeout(_PATIENCE)
    data, streams, _, _ = socket.recv_fds(connection, 1 << 18, 3)
    try:
        if len(streams) != 3 or len(data) < 8:
            raise UnfitRequest("the request has no streams")
        length = int.from_bytes(data[:8], "little")
        if length > _LONGEST:
            raise UnfitRequest("the request is too long")
        parts = [data[8:]]
        missing = length - len(parts[0])
        while missing > 0:
            more = connection.recv(min(missing, 1 << 20))
            if not more:
                raise UnfitRequest("the request is incomplete")
            parts.append(more)
            missing -= len(more)
        fields = b"".join(parts).split(b"\0")
        ours = (
            protocol.MAGIC,
            os.fsencode(os.path.realpath(protocol.__file__)),
            os.fsencode(sys.executable),
            sys.version.encode(),
            sys.getfilesystemencoding().encode(),
        )
        theirs = (fields[0], os.fsencode(os.path.realpath(os.fsdecode(fields[1]))), *fields[2:5])
        if theirs != ours:
            raise UnfitRequest("another program or interpreter")
        forms, count = fields[5:8], int(fields[8])
        words = [os.fsdecode(word) for word in fields[9 : 9 + count]]
        if len(words) != count or not words:
            raise UnfitRequest("the request has no command")
        os.environ.clear()
        for entry in fields[9 + count :]:
            name, sign, value = entry.partition(b"=")
            if not sign:
                raise UnfitRequest("a variable has no value")
            os.environb[name] = value
        time.tzset()
        tempfile.tempdir = None  # chosen again from the variables of the client
        pid = peer_of(connection)[0]
        os.chdir(f"/proc/{pid}/cwd")
        if forecast is not None and forecast.state != state:
            spare.drop_prepared()  # its helper has another state
        helper, settled = spare.processes()
        if not take_over(state, helper, settled=settled):
            spare.renew()
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
    finally:
        for stream in streams:
            os.close(stream)
    _open_streams(forms)
    return words


def _open_streams(forms: list[bytes]) -> None:
    """Make the standard streams of Python as the interpreter of the client made them."""
    for number, (name, form) in enumerate(zip(("stdin", "stdout", "stderr"), forms, strict=True)):
        encoding, errors, buffered = form.decode().split(":")
        raw = io.FileIO(number, "rb" if number == 0 else "wb", closefd=False)
        buffer = io.BufferedReader(raw) if number == 0 else io.BufferedWriter(raw) if buffered else raw
        text = io.TextIOWrapper(
            buffer,  # without a buffer as well, as the interpreter does
            encoding,
            errors,
            "\n",
            line_buffering=number == 2 or (number == 1 and os.isatty(1)),
            write_through=number > 0 and not buffered,
        )
        setattr(sys, name, text)
        setattr(sys, f"__{name}__", text)


def _told_to_go(connection: socket.socket) -> bool:
    """Say that this worker is ready, and return True if the client lets it start."""
    connection.sendall(b"%s%d\n" % (protocol.READY, os.getpid()))
    said = b""
    while not said.endswith(b"\n") and (more := connection.recv(len(protocol.GO))):
        said += more
    return said == protocol.GO


def _die_with(connection: socket.socket) -> None:
    """Let the kernel kill this process when the client is gone. SOURCE: fcntl(2), F_SETSIG and O_ASYNC."""
    fcntl.fcntl(connection, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(connection, _SETSIG, signal.SIGKILL)
    fcntl.fcntl(connection, fcntl.F_SETFL, fcntl.fcntl(connection, fcntl.F_GETFL) | os.O_ASYNC)
    poll = select.poll()
    poll.register(connection, select.POLLIN)
    if poll.poll(0):  # it went before: the signal would never come
        os.kill(os.getpid(), signal.SIGKILL)


def _let_go(connection: socket.socket) -> None:
    fcntl.fcntl(connection, fcntl.F_SETFL, fcntl.fcntl(connection, fcntl.F_GETFL) & ~os.O_ASYNC)


def _leave_streams() -> None:
    """Close the streams of the client, so that their readers see the end as soon as the client ends."""
    null = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(null, number)
    os.close(null)


def _run(words: list[str], spare: WorkerSpare, main: Main) -> int:
    """Run the command line in this process, up to the point at which its interpreter would free its memory."""
    sys.argv[:] = words
    try:
        code = main(spare)
    except SystemExit as end:  # as the interpreter handles it
        code = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
        if code and not isinstance(end.code, int):
            print(end.code, file=sys.stderr)
    return finished(code)
