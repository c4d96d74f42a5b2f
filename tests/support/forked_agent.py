"""The command `agent` in processes that are forked from one that has imported the product already.

Such a process has its own pid, descriptors, environment, working folder and exit status, like one that was started by
execve(2); only the 0.3 s of processor time for the imports are saved. With `terminal` it leads a session with a
controlling terminal. Each command has tests that start it by execve(2) as well, and everything that a signal, the state
of the terminal itself, job control or the start-up is part of is tested in that way only.

/proc/PID/environ and cmdline of such a process are those of the process that it was forked from. Tests that look there,
and tests of attacks, which may look there, start `agent` by execve(2).

All workers of one run of pytest share one such process, the server, for all users: its imports take two seconds of
processor time. The worker that needs the server first starts it. The others find its socket in the folder for temporary
files, under the id that pytest-xdist gives to the run. The server ends when the last worker has closed its connection,
or has been killed.
"""

import contextlib
import functools
import inspect
import json
import os
import select
import socket
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from tests.support.agent_program import AGENT, INSTALLED

# The file `cgroup.procs` of the group that forked processes join, so that their processor seconds are those of this worker.
COUNTED: str | None = None

SERVER = r"""
import atexit, ctypes, fcntl, functools, gc, importlib, io, json, os, pkgutil, select, socket, sys, termios, threading

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

def change_user(user, group, groups):
    # In the order of `subprocess`. Then `prctl(PR_SET_DUMPABLE, 1)`, as execve(2) does it: otherwise /proc/self is root's.
    if groups is not None:
        os.setgroups(groups)
    if group is not None:
        os.setregid(group, group)
    if user is not None:
        os.setreuid(user, user)
    if ctypes.CDLL(None).prctl(4, 1, 0, 0, 0):
        raise OSError("prctl failed")

def become(asked, files):
    # The same state that the interpreter makes at its start.
    if asked["counted"]:
        with open(asked["counted"], "w") as group:
            group.write(str(os.getpid()))
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    os.chdir(asked["cwd"])
    if asked["session"] or asked["terminal"]:
        os.setsid()
    if asked["terminal"]:
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    whose = (asked["user"], asked["group"], asked["groups"])
    if whose != (None, None, None):
        change_user(*whose)
    os.environ.clear()
    os.environ.update(asked["env"])
    if not {"LC_ALL", "LC_CTYPE", "LANG"} & asked["env"].keys():
        os.environ["LC_CTYPE"] = "C.UTF-8"  # PEP 538: what the interpreter sets in the C locale
    sys.argv[:] = asked["argv"]
    sys.path[:] = found  # without what an import may have added
    sys.path[0] = os.path.dirname(sys.argv[0])
    kinds = ((0, "stdin", "surrogateescape"), (1, "stdout", "surrogateescape"), (2, "stderr", "backslashreplace"))
    for number, name, errors in kinds:
        raw = io.FileIO(number, "wb" if number else "rb", closefd=False)
        raw.name = f"<{name}>"
        buffered = io.BufferedWriter(raw) if number else io.BufferedReader(raw)
        text = io.TextIOWrapper(buffered, "utf-8", errors, "\n", line_buffering=number == 2 or os.isatty(number))
        text.mode = "w" if number else "r"
        setattr(sys, name, text)
        setattr(sys, f"__{name}__", text)

def execute(program):
    exec(compile(program, "<string>", "exec"), {"__name__": "__main__"})

def serve(listener, path):
    clients, running = [], {}  # running: descriptor of a process -> its id, and where its status goes
    while True:
        try:
            ready = select.select([listener, *clients, *running], [], [])[0]
        except KeyboardInterrupt:
            continue  # Ctrl-C is for pytest, which still ends its tests with the help of this process
        for each in ready:
            if each in running:
                report(each, *running.pop(each))
                continue
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
            elif (command := start(sent, [listener, *clients], running)) is not None:
                return command
        if not clients:
            try:
                os.unlink(path)  # from now on nobody can connect, but another worker may have done so already
            except FileNotFoundError:
                pass
            if not select.select([listener], [], [], 0)[0]:
                return None

def start(sent, sockets, running):
    with os.fdopen(sent[0]) as file:
        asked = json.load(file)
    child = os.fork()  # once only: a fork of this large process takes 7 ms
    if child == 0:
        for each in sockets:
            each.close()
        for process, (_, out) in running.items():
            os.close(process)
            os.close(out)
        os.close(sent[4])
        become(asked, sent[1:4])
        return main if asked["program"] is None else functools.partial(execute, asked["program"])
    running[os.pidfd_open(child)] = (child, sent[4])
    tell(sent[4], child)
    for each in sent[1:4]:
        os.close(each)
    return None

def report(process, child, out):
    tell(out, os.waitpid(child, 0)[1])
    os.close(process)
    os.close(out)

def tell(out, number):
    try:
        os.write(out, b"%d\n" % number)
    except BrokenPipeError:
        pass  # the worker is gone

listener, path = socket.socket(fileno=int(sys.argv[1])), sys.argv[2]
if os.fork():
    os._exit(0)  # the server is no child of the worker that starts it, which may end first
imported()
from runner.cli.main import main
gc.collect()
gc.freeze()  # a collection of all that was imported would take 0.2 s in each command
command = serve(listener, path)
if command is not None:
    try:
        code = command()
    except SystemExit as error:
        code = error.code
        if isinstance(code, str):
            print(code, file=sys.stderr)
            code = 1
    except Exception:  # the end of the interpreter would take seconds, because of the many objects
        sys.excepthook(*sys.exc_info())
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
    stdin: int | IO[Any] | None = None,
    input: str | bytes | None = None,
    capture_output: bool = False,
    timeout: float | None = None,
    check: bool = False,
    **more: Any,
) -> "subprocess.CompletedProcess[Any]":
    """Do what `subprocess.run` does, with a `Process`."""
    if input is not None:
        stdin = subprocess.PIPE
    if capture_output:
        more |= {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with Process(argv, env=env, stdin=stdin, **more) as process:
        try:
            output, errors = process.communicate(input, timeout)
        except BaseException:  # the time limit of this call or of pytest, or Ctrl-C
            process.kill()
            raise
        done = subprocess.CompletedProcess(process.args, process.returncode, output, errors)
    if check:
        done.check_returncode()
    return done


class Process(subprocess.Popen[Any]):
    """A `subprocess.Popen` that forks, for argv that begins with `AGENT`, or with this interpreter and `-c`.

    The process is started by execve(2) after all if it inherits descriptors, or if there are variables that the
    interpreter itself looks at when it starts.
    """

    def __init__(
        self,
        argv: Sequence[str | Path],
        *,
        env: Mapping[str, str] | None = None,
        terminal: bool = False,
        execve: bool = False,
        **more: Any,
    ) -> None:
        """Start the process.

        Args:
            terminal: whether it leads a session whose controlling terminal is its standard input.
            execve: whether it is started by execve(2) in any case.
        """
        self._status: IO[bytes] | None = None  # of a forked process: its pid and, at its end, its status, one line each
        self._terminal, self._execve = terminal, execve
        super().__init__([str(word) for word in argv], env={**(os.environ if env is None else env)}, **more)

    def end(self) -> int:
        """Return a new descriptor that can be read from the end of the process on."""
        if self._status is None:
            return os.pidfd_open(self.pid)
        return os.dup(self._status.fileno())  # the process that forked it has waited for it, so its pid may be gone

    def _execute_child(self, args: list[str], *details: Any) -> None:
        given = dict(zip(inspect.signature(super()._execute_child).parameters, (args, *details), strict=True))  # type: ignore[misc]  # private
        program = args[2] if args[:2] == [sys.executable, "-c"] else None
        known = args[0] in (AGENT, INSTALLED) or program is not None
        if self._execve or not known or given["pass_fds"] or not _alike(given["env"]):
            # setsid(1) takes the terminal for the new session and becomes the command. A function that Python calls
            # between fork and exec could hang, because threads of this process may hold locks.
            before = ["setsid", "--ctty", "--"] * self._terminal
            super()._execute_child([*before, *args], *details)  # type: ignore[misc]  # private
            return
        asked = {
            "counted": COUNTED,
            "argv": args if program is None else ["-c", *args[3:]],
            "program": program,
            "env": given["env"],
            "cwd": os.path.abspath(given["cwd"] or "."),
            "session": given["start_new_session"],
            "terminal": self._terminal,
            "user": given["uid"],
            "group": given["gid"],
            "groups": None if given["gids"] is None else list(given["gids"]),
        }
        ends = [given[name] for name in ("p2cread", "c2pwrite", "errwrite")]
        files = [number if end == -1 else end for number, end in enumerate(ends)]
        request = os.memfd_create("request")
        reader, writer = os.pipe()
        self._status = os.fdopen(reader, "rb", buffering=0)
        try:
            os.write(request, json.dumps(asked).encode())
            os.lseek(request, 0, os.SEEK_SET)
            socket.send_fds(_server(), [b"x"], [request, *files, writer])
        finally:
            os.close(request)
            os.close(writer)
        self.pid = int(self._status.readline())
        self._child_created = True
        pipes = ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite")
        self._close_pipe_fds(*(given[name] for name in pipes))  # type: ignore[attr-defined]  # private

    def _try_wait(self, flags: int) -> tuple[int, int]:
        if self._status is None:
            return super()._try_wait(flags)  # type: ignore[misc,no-any-return]  # private
        if flags & os.WNOHANG and not select.select([self._status], [], [], 0)[0]:
            return 0, 0
        with self._status as status:
            return self.pid, int(status.readline())

    def _internal_poll(self, *details: Any, **more: Any) -> int | None:
        if self._status is None:
            return super()._internal_poll(*details, **more)  # type: ignore[misc,no-any-return]  # private
        with self._waitpid_lock:  # type: ignore[attr-defined]  # private
            if self.returncode is None:
                pid, status = self._try_wait(os.WNOHANG)
                if pid == self.pid:
                    self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode


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
                    stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, check=True,
                )  # fmt: skip
        finally:
            own.unlink()


def _alike(environ: Mapping[str, str]) -> bool:
    """Return True if the interpreter starts in the same way with these variables as without any."""
    looked_at = [name for name in environ if name.startswith(("PYTHON", "TYPER_", "_TYPER_", "LD_"))]
    if looked_at and (looked_at != ["PYTHONUTF8"] or environ["PYTHONUTF8"] != "1"):
        return False
    return all(environ.get(name) in (None, "C.UTF-8") for name in ("LC_ALL", "LC_CTYPE", "LANG"))
