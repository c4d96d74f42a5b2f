"""The command `agent` in processes that are forked from one that has imported the product already.

Such a process has its own pid, descriptors, environment, working folder and exit status, like one that was started by
execve(2); only the 0.3 s of processor time for the imports are saved. Each command has tests that start it by execve(2)
as well, and everything that a terminal, a signal or the start-up itself is part of is tested in that way only.

/proc/PID/environ and cmdline of such a process are those of the process that it was forked from. Tests that look there,
and tests of attacks, which may look there, start `agent` by execve(2).

All workers of one run of pytest share one such process, the server, for all users: its imports take two seconds of
processor time. The worker that needs the server first starts it. The others find its socket in the folder for temporary
files, under the id that pytest-xdist gives to the run. The server ends when the last worker has closed its connection,
or has been killed.
"""

import contextlib
import functools
import io
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import uuid
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

AGENT = str(Path(sys.executable).with_name("agent"))
SERVER = r"""
import atexit, ctypes, functools, gc, importlib, io, json, os, pkgutil, select, socket, sys, threading

found = list(sys.path)

def imported():
    from policy.model.deadline import stretch
    stretch(10.0)  # before the modules with deadlines, as in the other processes of the tests (`long_deadlines`)
    for name in ("policy", "sandbox", "tools", "runner"):
        package = importlib.import_module(name)
        for each in pkgutil.walk_packages(package.__path__, f"{name}."):
            importlib.import_module(each.name)
    # What these commands import late: but not `typer.rich_utils`, which looks at the environment.
    for name in (
        "httpx", "keyring.backends.SecretService", "pydantic.type_adapter", "rich._emoji_codes", "rich.columns", "rich.console",
        "rich.markdown", "rich.panel", "rich.pretty", "rich.traceback", "secretstorage", "typer._adapters",
    ):
        importlib.import_module(name)
    from runner.resident import client
    client.PATIENCE *= 10.0

def change_user(user=None, group=None, extra_groups=None):
    # In the order of `subprocess`. Then `prctl(PR_SET_DUMPABLE, 1)`, as execve(2) does it: otherwise /proc/self is root's.
    if extra_groups is not None:
        os.setgroups(extra_groups)
    if group is not None:
        os.setregid(group, group)
    if user is not None:
        os.setreuid(user, user)
    if ctypes.CDLL(None).prctl(4, 1, 0, 0, 0):
        raise OSError("prctl failed")

def become(asked, files):
    # The same state that the interpreter makes at its start.
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    os.chdir(asked["cwd"])
    if asked["who"]:
        change_user(**asked["who"])
    os.environ.clear()
    os.environ.update(asked["env"])
    if not {"LC_ALL", "LC_CTYPE", "LANG"} & asked["env"].keys():
        os.environ["LC_CTYPE"] = "C.UTF-8"  # PEP 538: what the interpreter sets in the C locale
    sys.argv[:] = asked["argv"]
    sys.path[:] = found  # without what an import may have added
    sys.path[0] = os.path.dirname(sys.argv[0])
    sys.stdin = sys.__stdin__ = io.TextIOWrapper(io.BufferedReader(io.FileIO(0, closefd=False)), "utf-8", "surrogateescape", "\n")
    for number, name, errors in ((1, "stdout", "surrogateescape"), (2, "stderr", "backslashreplace")):
        raw = io.BufferedWriter(io.FileIO(number, "wb", closefd=False))
        text = io.TextIOWrapper(raw, "utf-8", errors, "\n", line_buffering=number == 2 or os.isatty(number))
        setattr(sys, name, text)
        setattr(sys, f"__{name}__", text)

def execute(program):
    exec(compile(program, "<string>", "exec"), {"__name__": "__main__"})

def serve(listener, path):
    clients = []
    while True:
        try:
            ready = select.select([listener, *clients], [], [])[0]
        except KeyboardInterrupt:
            continue  # Ctrl-C is for pytest, which still ends its tests with the help of this process
        for each in ready:
            if each is listener:
                clients.append(listener.accept()[0])
                continue
            try:
                data, sent, _, _ = socket.recv_fds(each, 1, 5)
            except ConnectionResetError:
                data = b""
            if not data:
                clients.remove(each)
                each.close()
            elif (command := start(sent, [listener, *clients])) is not None:
                return command
        if not clients:
            try:
                os.unlink(path)  # from now on nobody can connect, but somebody may have done so already
            except FileNotFoundError:
                pass
            if not select.select([listener], [], [], 0)[0]:
                return None

def start(sent, sockets):
    with os.fdopen(sent[0]) as file:
        asked = json.load(file)
    if os.fork() == 0:  # this one waits, so that commands can run side by side
        for each in sockets:
            each.close()
        child = os.fork()
        if child == 0:
            os.close(sent[4])
            become(asked, sent[1:4])
            return main if asked["program"] is None else functools.partial(execute, asked["program"])
        os.write(sent[4], b"%d\n" % child)
        for number in range(3):
            os.close(number)
        for each in sent[1:4]:
            os.close(each)
        status = os.waitpid(child, 0)[1]
        os.write(sent[4], b"%d\n" % status)
        os._exit(0)
    for each in sent[1:]:
        os.close(each)
    while True:
        try:
            if os.waitpid(-1, os.WNOHANG)[0] == 0:
                return None
        except ChildProcessError:
            return None

listener, path = socket.socket(fileno=int(sys.argv[1])), sys.argv[2]
if os.fork():
    os._exit(0)  # the server is no child of the worker that starts it, which may end first
imported()
from runner.cli.main import main
gc.collect()
gc.freeze()
command = serve(listener, path)
if command is not None:
    gc.unfreeze()
    try:
        code = command()
    except SystemExit as error:
        code = error.code
        if isinstance(code, str):
            print(code, file=sys.stderr)
            code = 1
    threading._shutdown()
    atexit._run_exitfuncs()
    try:
        sys.stdout.flush()
    except OSError:
        code = 120
    sys.stderr.flush()
    os._exit(code or 0)
"""


def run(
    argv: Sequence[str | Path],
    *,
    env: Mapping[str, str] | None = None,
    cwd: str | Path | None = None,
    stdin: int | IO[Any] | None = None,
    input: str | bytes | None = None,
    capture_output: bool = False,
    stdout: int | IO[Any] | None = None,
    stderr: int | IO[Any] | None = None,
    text: bool = False,
    timeout: float | None = None,
    check: bool = False,
    **who: Any,
) -> "subprocess.CompletedProcess[Any]":
    """Do what `subprocess.run` does, for argv that begins with `AGENT`, or with this interpreter and `-c`.

    Variables that the interpreter itself looks at when it starts have the process started by execve(2) after all.

    Args:
        who: `user`, `group` and `extra_groups`, as `subprocess.run` takes them.
    """
    environ = {**(os.environ if env is None else env)}
    program = str(argv[2]) if str(argv[0]) == sys.executable and argv[1] == "-c" else None
    if (str(argv[0]) != AGENT and program is None) or not _alike(environ):
        if input is not None:
            stdin = None
        return subprocess.run(
            argv, env=environ, cwd=cwd, stdin=stdin, input=input, capture_output=capture_output, stdout=stdout,
            stderr=stderr, text=text, timeout=timeout, check=check, **who,
        )  # fmt: skip
    if capture_output:
        stdout = stderr = subprocess.PIPE
    with contextlib.ExitStack() as open_files:
        ends: list[int | None] = [None, None, None]
        given: list[int] = []
        for number, wanted in enumerate((subprocess.PIPE if input is not None else stdin, stdout, stderr)):
            if wanted == subprocess.PIPE:
                reader, writer = os.pipe()
                theirs, ends[number] = (reader, writer) if number == 0 else (writer, reader)
            elif wanted == subprocess.DEVNULL:
                theirs = os.open(os.devnull, os.O_RDWR)
            elif wanted == subprocess.STDOUT:
                theirs = os.dup(given[1])
            elif wanted is None:
                theirs = os.dup(number)
            else:
                theirs = os.dup(wanted if isinstance(wanted, int) else wanted.fileno())
            given.append(theirs)
            open_files.callback(_close, theirs)
        words = [str(word) for word in argv] if program is None else ["-c", *map(str, argv[3:])]
        asked = {"argv": words, "program": program, "env": environ, "cwd": str(cwd or os.getcwd()), "who": who}
        with _started(asked, given) as status:
            open_files.close()
            code, output, errors = _talk(argv, status, ends, input, timeout)
    result: list[Any] = [output, errors]
    if text:
        result = [None if each is None else _text(each) for each in result]
    done = subprocess.CompletedProcess([str(word) for word in argv], code, *result)
    if check:
        done.check_returncode()
    return done


@contextlib.contextmanager
def _started(asked: dict[str, Any], files: Sequence[int]) -> Iterator[IO[bytes]]:
    """Start one command; the stream gives its pid and, at its end, its status, one line each."""
    request = os.memfd_create("request")
    reader, writer = os.pipe()
    try:
        os.write(request, json.dumps(asked).encode())
        os.lseek(request, 0, os.SEEK_SET)
        socket.send_fds(_server(), [b"x"], [request, *files, writer])
    finally:
        os.close(request)
        os.close(writer)
    with os.fdopen(reader, "rb", buffering=0) as status:
        yield status


@functools.cache
def _server() -> socket.socket:
    """Return the connection of this process to the server of this run, which is started if there is none."""
    run = os.environ.get("PYTEST_XDIST_TESTRUNUID") or uuid.uuid4().hex
    path = Path(tempfile.gettempdir(), f"ringfence-forks-{run}")
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    while True:
        try:
            connection.connect(str(path))
        except FileNotFoundError:
            _start_server(path)
        else:
            return connection


def _start_server(path: Path) -> None:
    """Start a server that listens at `path`, unless another worker does so at the same time."""
    own = path.with_name(f"{path.name}-{os.getpid()}")
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(str(own))
        try:
            own.chmod(0o600)  # only this user may have commands started
            listener.listen(socket.SOMAXCONN)
            with contextlib.suppress(FileExistsError):
                path.hardlink_to(own)  # at `path` there is never a socket that does not listen yet
                subprocess.run(
                    [sys.executable, "-c", SERVER, str(listener.fileno()), str(path)],
                    env={"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8"}, cwd="/", pass_fds=[listener.fileno()],
                    stdin=subprocess.DEVNULL, check=True,
                )  # fmt: skip
        finally:
            own.unlink()


def _alike(environ: Mapping[str, str]) -> bool:
    """Return True if the interpreter starts in the same way with these variables as without any."""
    looked_at = [name for name in environ if name.startswith(("PYTHON", "TYPER_", "_TYPER_", "LD_"))]
    if looked_at and (looked_at != ["PYTHONUTF8"] or environ["PYTHONUTF8"] != "1"):
        return False
    return all(environ.get(name) in (None, "C.UTF-8") for name in ("LC_ALL", "LC_CTYPE", "LANG"))


def _talk(
    argv: Sequence[str | Path], status: IO[bytes], ends: list[int | None], input: str | bytes | None, timeout: float | None
) -> tuple[int, bytes | None, bytes | None]:
    """Feed the input, read both outputs to their ends, and wait for the end of the process."""
    pid = int(status.readline())
    read: dict[int, bytes] = {}
    waiting = [threading.Thread(target=_drain, args=(ends[n], n, read), daemon=True) for n in (1, 2) if ends[n]]
    if ends[0] is not None:
        data = input.encode() if isinstance(input, str) else input or b""
        waiting.append(threading.Thread(target=_feed, args=(ends[0], data), daemon=True))
    for each in waiting:
        each.start()
    late = False
    try:
        if not select.select([status], [], [], timeout)[0]:
            late = True
            os.kill(pid, signal.SIGKILL)
        line = status.readline()
        for each in waiting:
            each.join()
    except BaseException:  # the time limit of pytest, or Ctrl-C
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        raise
    if late:
        raise subprocess.TimeoutExpired(list(map(str, argv)), timeout or 0, read.get(1), read.get(2))
    return os.waitstatus_to_exitcode(int(line)), read.get(1), read.get(2)


def _drain(end: int, number: int, read: dict[int, bytes]) -> None:
    with os.fdopen(end, "rb") as file:
        read[number] = file.read()


def _feed(end: int, data: bytes) -> None:
    with contextlib.suppress(BrokenPipeError), os.fdopen(end, "wb", buffering=0) as file:
        view = memoryview(data)
        while view:
            view = view[file.write(view) or 0 :]


def _text(data: bytes) -> str:
    return io.TextIOWrapper(io.BytesIO(data), "utf-8").read()  # with the line ends of all systems as one


def _close(number: int) -> None:
    with contextlib.suppress(OSError):
        os.close(number)
