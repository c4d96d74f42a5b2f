"""The command `agent` in processes that are forked from one that has imported the product already.

Such a process has its own pid, descriptors, environment, working folder and exit status, like one that was started by
execve(2); only the 0.3 s of processor time for the imports are saved. Each command has tests that start it by execve(2)
as well, and everything that a terminal, a signal or the start-up itself is part of is tested in that way only.

/proc/PID/environ and cmdline of such a process are those of the process that it was forked from. Tests that look there,
and tests of attacks, which may look there, start `agent` by execve(2).
"""

import atexit
import contextlib
import functools
import io
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

AGENT = str(Path(sys.executable).with_name("agent"))
SERVER = r"""
import atexit, functools, gc, importlib, io, json, os, pkgutil, socket, sys, threading

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

def become(asked, files):
    # The same state that the interpreter makes at its start.
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    os.chdir(asked["cwd"])
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

def serve(asks):
    while True:
        data, sent, _, _ = socket.recv_fds(asks, 1, 5)
        if not data:
            return None  # the tests are over
        with os.fdopen(sent[0]) as file:
            asked = json.load(file)
        if os.fork() == 0:  # this one waits, so that commands can run side by side
            child = os.fork()
            if child == 0:
                asks.close()
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
                    break
            except ChildProcessError:
                break

asks = socket.socket(fileno=int(sys.argv[1]))
imported()
from runner.cli.main import main
gc.collect()
gc.freeze()
command = serve(asks)
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
    timeout: float = 120,
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
        asked = {"argv": words, "program": program, "env": environ, "cwd": str(cwd or os.getcwd())}
        with _server(json.dumps(who)).started(asked, given) as status:
            open_files.close()
            code, output, errors = _talk(argv, status, ends, input, timeout)
    result: list[Any] = [output, errors]
    if text:
        result = [None if each is None else _text(each) for each in result]
    done = subprocess.CompletedProcess([str(word) for word in argv], code, *result)
    if check:
        done.check_returncode()
    return done


class Server:
    """One process with the imports behind it, running as one user."""

    def __init__(self, who: dict[str, Any]) -> None:
        self._ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-c", SERVER, str(theirs.fileno())],
                env={"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8"}, cwd="/", pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL, **who,
            )  # fmt: skip
        atexit.register(self._end)

    @contextlib.contextmanager
    def started(self, asked: dict[str, Any], files: Sequence[int]) -> Iterator[IO[bytes]]:
        """Start one command; the stream gives its pid and, at its end, its status, one line each."""
        request = os.memfd_create("request")
        reader, writer = os.pipe()
        try:
            os.write(request, json.dumps(asked).encode())
            os.lseek(request, 0, os.SEEK_SET)
            socket.send_fds(self._ours, [b"x"], [request, *files, writer])
        finally:
            os.close(request)
            os.close(writer)
        with os.fdopen(reader, "rb") as status:
            yield status

    def _end(self) -> None:
        self._ours.shutdown(socket.SHUT_RDWR)
        self._process.wait()
        self._ours.close()


@functools.cache
def _server(who: str) -> Server:
    return Server(json.loads(who))


def _alike(environ: Mapping[str, str]) -> bool:
    """Return True if the interpreter starts in the same way with these variables as without any."""
    looked_at = [name for name in environ if name.startswith(("PYTHON", "TYPER_", "_TYPER_", "LD_"))]
    if looked_at and (looked_at != ["PYTHONUTF8"] or environ["PYTHONUTF8"] != "1"):
        return False
    return all(environ.get(name) in (None, "C.UTF-8") for name in ("LC_ALL", "LC_CTYPE", "LANG"))


def _talk(
    argv: Sequence[str | Path], status: IO[bytes], ends: list[int | None], input: str | bytes | None, timeout: float
) -> tuple[int, bytes | None, bytes | None]:
    """Feed the input, read both outputs to their ends, and wait for the end of the process."""
    pid = int(status.readline())
    read: dict[int, bytes] = {}
    waiting = [threading.Thread(target=_drain, args=(ends[n], n, read), daemon=True) for n in (1, 2) if ends[n]]
    if ends[0] is not None:
        data = input.encode() if isinstance(input, str) else input or b""
        waiting.append(threading.Thread(target=_feed, args=(ends[0], data), daemon=True))
    ended = threading.Event()

    def kill() -> None:
        ended.set()
        os.kill(pid, signal.SIGKILL)

    late = threading.Timer(timeout, kill)
    late.daemon = True
    late.start()
    for each in waiting:
        each.start()
    line = status.readline()
    for each in waiting:
        each.join()
    late.cancel()
    if ended.is_set():
        raise subprocess.TimeoutExpired(list(map(str, argv)), timeout, read.get(1), read.get(2))
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
