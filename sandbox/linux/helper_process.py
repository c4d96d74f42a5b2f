"""The process of a helper, from its start without a plan to its end, and the sending of requests to it.

This module uses no event loop, and nothing of `policy` before the helper was started: a command that will need a helper
starts it first, so that the helper's interpreter starts while the program still reads its configuration.
"""

import contextlib
import errno
import marshal
import os
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from types import TracebackType

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Self

    from sandbox.linux.cgroup import ControlGroup
    from sandbox.linux.prepared_root import PreparedRoot

WAKE = struct.pack("Q", 0)  # sent instead of a request

# The process, our end of its socket, and the control group around it.
HelperParts = tuple[subprocess.Popen[bytes], socket.socket, "ControlGroup"]


class ProcessLimitReached(BlockingIOError):
    """The error for a process that was not started because of a limit on processes (EAGAIN of fork(2))."""


@contextlib.contextmanager
def starting_process() -> Iterator[None]:
    """Raise `ProcessLimitReached` for an EAGAIN of the statement inside, which starts a process."""
    try:
        yield
    except OSError as error:
        if error.errno != errno.EAGAIN:
            raise
        raise ProcessLimitReached(error.errno, error.strerror) from error


class SpareHelper:
    """A helper that was started early and has no plan yet. Leaving the context ends the helper unless it was taken.

    If this process is killed, the helper reads the end of its socket and ends itself.

    Attributes:
        root: The part of the private root that the helper builds while it waits; None if it builds nothing.
        later: Collects the steps after a command that its caller need not wait for: the end of a helper whose command
            has ended with all its processes, and the removal of its folders. None: they are done at once.
    """

    def __init__(self, later: contextlib.ExitStack | None = None, ignored: Sequence[int] = ()) -> None:
        """Make a helper that is started at the beginning of the context. `ignored` is as in `spawn`."""
        self.root: PreparedRoot | None = None
        self.later = later
        self._ignored = ignored
        self._helper: HelperParts | None = None

    def processes(self) -> tuple[list[int], bool]:
        """Return the numbers of the processes of the helper, and True if these are all: False if it may be starting one
        at this moment. Raise ProcessLookupError if the helper was taken, or has ended.
        """
        if self._helper is None or self._helper[0].poll() is not None:
            raise ProcessLookupError
        pid = self._helper[0].pid
        if self.root is None:
            return [pid], True
        try:
            with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as file:
                children = [int(word) for word in file.read().split()]
        except FileNotFoundError:  # a kernel without this file
            children = []
        return [pid, *children], bool(children)

    def renew(self) -> None:
        """End the helper and start another one, which inherits the present state of this process and builds nothing
        before the plan.
        """
        self.__exit__(None, None, None)
        self._helper = spawn()

    def prepare(self, root: "PreparedRoot") -> None:
        """Let the helper build `root` while it waits. It then serves T1 only. Call this once, before `take`."""
        if self._helper is None:
            raise ProcessLookupError
        _, control, group = self._helper
        self.root = root
        group.wait()  # the helper starts a process now, which has to be in the groups
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # it ended: its user is told
            send(control, {"prepare": root.steps}, [])

    def prepared(self, request: "Any") -> "Any":
        """Return the launch and the scratch folder that were prepared for a `LaunchRequest`; None if there are none, as
        here.
        """
        return None

    def take(self) -> HelperParts | None:
        """Return the helper, which the caller then ends; None if it was taken already."""
        helper, self._helper = self._helper, None
        return helper

    def __enter__(self) -> "Self":
        self._helper = spawn(ignored=self._ignored)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if (helper := self.take()) is not None:
            end(*helper)
        if self.root is not None:
            self.root.close()
            self.root = None


def spawn(
    command: Callable[[int], Sequence[str]] | None = None, handed: Sequence[int] = (), ignored: Sequence[int] = ()
) -> HelperParts:
    """Start a helper, which waits for its plan. The caller ends the helper. Raises OSError and ProcessLimitReached.

    `command` returns the words of a program that starts the helper, from the number of the helper's descriptor. That
    program gets the descriptors `handed` as well, and its error text is on the `stderr` of the process. `ignored` are
    signals that the helper ignores, beside those that this process ignores.
    """
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    script = os.path.join(os.path.dirname(os.path.dirname(__file__)), "inside", "helper.py")
    start = (*interpreter(), script, import_folder())
    try:
        with theirs, starting_process():
            number = theirs.fileno()
            process = subprocess.Popen(
                list(command(number) if command else (*start, str(number))),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE if command else subprocess.DEVNULL,
                env={},  # THREAT T08: the environment of a launcher is readable in its /proc entry
                cwd="/",
                pass_fds=(number, *handed),
                start_new_session=True,  # so that only the runner gets a Ctrl-C from the terminal
                preexec_fn=(lambda: _ignore(ignored)) if ignored else None,
            )
    except BaseException:
        ours.close()
        raise
    from sandbox.linux.cgroup import ControlGroup  # while the interpreter on that side starts

    return process, ours, ControlGroup(process.pid)


def _ignore(signals: Sequence[int]) -> None:
    from sandbox.inside import syscalls  # loaded already where a signal is ignored

    for number in signals:
        syscalls.ignore_signal(number)


def end(process: subprocess.Popen[bytes], control: socket.socket, group: "ControlGroup", grace: float = 0.0) -> None:
    """End a helper and all processes in its namespaces and its control group. Calling this again has no effect.

    `grace`: seconds for the helper to end its command itself, for tiers without a PID namespace.
    """
    control.close()
    if grace:
        try:
            process.wait(grace)
        except subprocess.TimeoutExpired:
            from sandbox.inside.descendants import kill_descendants  # needed by T3 only, and seldom

            # SAFETY: after the end of the helper, nothing finds the processes that left the session of their command. A
            # busy machine can make the helper slow.
            kill_descendants(process.pid)
    with contextlib.suppress(ProcessLookupError):
        process.send_signal(signal.SIGKILL)
    process.wait()
    if process.stderr is not None:
        process.stderr.close()
    group.remove()


def send(control: socket.socket, request: dict[str, object], handles: list[int]) -> None:
    """Send one whole request with its descriptors. Raises OSError if the helper is gone."""
    body = marshal.dumps(request)
    head = struct.pack("Q", len(body))
    # One call for both: two would wake the helper twice. SAFETY: the descriptors travel with the first bytes.
    sent = socket.send_fds(control, [head, body], handles)
    rest = (head + body)[sent:]
    if rest:  # the request is larger than the socket's buffer (a file to write); the helper reads it at once
        control.setblocking(True)
        try:
            control.sendall(rest)
        finally:
            control.setblocking(False)


def interpreter() -> tuple[str, ...]:
    """Return the command that starts a helper: isolated, without site-packages, and independent of the environment."""
    return (sys.executable, "-I", "-S", "-B", "-X", "utf8")


def import_folder(file: str | None = None) -> str:
    """Return the folder from which this program is imported: of `sandbox` in a checkout, of `ringfence` in a wheel.

    `file` is the path of this module, by default its real path: an installer may have made links to its cache.
    """
    folder = file or os.path.realpath(__file__)
    for _ in __name__.split("."):
        folder = os.path.dirname(folder)
    return folder


def code() -> tuple[str, ...]:
    """Return the paths from which this program runs, outside of every sandbox. A process that can write there is not
    confined.
    """
    return _code(tuple(sys.path))


@lru_cache(maxsize=1)  # called for every command
def _code(imports: tuple[str, ...]) -> tuple[str, ...]:
    package = __name__.partition(".")[0]
    parts = ("policy", "profiles", "ringfence.py", "runner", "sandbox", "tools")  # of a checkout
    tops = {
        import_folder(),
        import_folder(os.path.abspath(__file__)),
    }  # the files, and the links to them if they differ
    places = {os.path.join(top, name) for top in tops for name in (parts if package in parts else (package,))}
    places |= {os.path.dirname(sys.executable), os.path.join(sys.prefix, "pyvenv.cfg"), sys.executable}
    return tuple(sorted({os.path.realpath(path) for path in (*places, *filter(None, imports))}))
