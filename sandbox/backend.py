"""The interface of a sandbox backend (probe, run, start, close), the requests that it starts, and their results."""

import errno
import os
from collections.abc import Callable
from enum import StrEnum
from typing import TYPE_CHECKING, ClassVar, Protocol, Self

from policy.model.action import Action, ConvertDocument, RunArgv, RunScript
from policy.model.frozen import dataclass, field, replace
from policy.model.verdict import Limits, Permit, Problem, ProblemError, Terms

if TYPE_CHECKING:
    import socket


class Level(StrEnum):
    """The degree to which a backend enforces the boundary."""

    FULL = "FULL"
    PARTIAL = "PARTIAL"
    NONE = "NONE"


@dataclass(frozen=True, slots=True)
class Enforcement:
    """The result of a canary: which parts of the boundary were found to hold, not which were requested.

    `checks` maps each check to True (the boundary held) or False.
    """

    level: Level
    backend: str  # "T1", "T3", ...
    checks: tuple[tuple[str, bool], ...] = ()
    missing: tuple[str, ...] = ()  # in words: the restrictions that this backend does not enforce on this machine
    limits: str = ""  # the mechanism that limits resources: `cgroup v2 (memory, pids, cpu)`, `watchdog`


@dataclass(frozen=True, slots=True)
class Violation:
    """An attempt that the boundary stopped.

    Attributes:
        inferred: True if the attempt was concluded from the program's own message, not reported by the kernel.
        layer: The layer that stopped the attempt: `landlock` (by the kernel's record of it), `proxy`, `limit`, `watch`
            (moved aside afterwards), `transaction` (not applied), `signing` (a signature was refused), or `guess` if
            `inferred`.
        right: The flag that would have allowed the attempt: `--read PATH`, `--write PATH` or `--host HOST`; empty if no
            flag would.
    """

    what: str
    path: str
    fix: str
    inferred: bool
    layer: str = "guess"
    right: str = ""

    @property
    def unnamed_path(self) -> str:
        """Return the path for a report to add after `what`; empty if there is none, or `what` contains it already."""
        return "" if self.path in self.what else self.path


@dataclass(frozen=True, slots=True)
class Connection:
    """One attempt of a command to reach a host through the egress proxy, allowed or refused.

    Attributes:
        host: The host as the command named it, in canonical form; empty if the name could not be read.
        port: The port that the command named.
        asked: `tunnel`, or method and path of a plain request.
        address: The address that the proxy connected to; empty if there was no connection.
        why: The reason of a refusal. An allowed attempt with a reason was allowed and failed.
        sent: Bytes that the command sent.
        received: Bytes that the command received.
        credential: Name of the credential that was added to the request; empty for none.
    """

    host: str
    port: int
    asked: str
    address: str
    allowed: bool
    why: str
    sent: int
    received: int
    seconds: float
    credential: str = ""


@dataclass(frozen=True, slots=True)
class Used:
    """The resources that an action and all processes it waited for used.

    The kernel counts a process from before it became the command, so the numbers are never less than those of the
    helper.

    Attributes:
        cpu: Processor time in seconds.
        memory: The largest resident size of any one process, in bytes.
    """

    cpu: float
    memory: int


_SHELL = ("/bin/bash", "--norc", "--noprofile", "-c", "--")
_FILE_BYTES = 64 << 20  # the largest answer of a file operation
_FILE_SECONDS = 60.0
MOST_TOLD = 200  # connections of one command that an event names; the record counts all of them


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of one action.

    Attributes:
        status: Exit status from 0 to 255; 128 + N after signal N.
        stdout: Standard output in bytes, cut at the output limit.
        stderr: Standard error in bytes, cut at the output limit.
        ended_by: The limit that ended the action (`wall`, `output`, `cancelled`, ...), or None.
        data: The JSON-like answer of a file action; `problem` is set if the action failed.
        given: Bytes of standard input that were copied from a descriptor.
    """

    status: int
    stdout: bytes = b""
    stderr: bytes = b""
    seconds: float = 0.0
    ended_by: str | None = None
    truncated: bool = False
    violations: tuple[Violation, ...] = ()
    connections: tuple[Connection, ...] = ()
    problem: Problem | None = None
    data: dict[str, object] = field(default_factory=dict)
    enforcement: Enforcement | None = None
    used: Used | None = None
    given: int = 0


class InterruptedCommand(Exception):  # only the cause of other exceptions, never raised itself
    """The network connections of a command without an outcome: the cause (`__cause__`) of the exception that ended it.

    The class does not extend `CancelledError`, because `asyncio.timeout` of Python 3.11 handles no subclass of it.
    """

    def __init__(self, connections: tuple[Connection, ...], cause: BaseException | None) -> None:
        super().__init__("a command ended without an outcome")
        self.connections = connections
        self.__cause__ = cause


def interrupted_connections(end: BaseException) -> tuple[Connection, ...]:
    """Return the connections of the command that the exception `end` ended; empty if the command made none."""
    cause = end.__cause__
    return cause.connections if isinstance(cause, InterruptedCommand) else ()


# Called with (stream, chunk): stream is 1 (stdout) or 2 (stderr).
Listener = Callable[[int, bytes], None]


class OutputBuffer:
    """The output of one command so far, up to `most` bytes of both streams together.

    Attributes:
        streams: Standard output and standard error.
        over: True once the command wrote more than `most` bytes.
    """

    def __init__(self, most: int, listen: Listener | None) -> None:
        self.streams = (bytearray(), bytearray())
        self.over = False
        self._most, self._listen = most, listen

    def take(self, stream: int, chunk: bytes) -> bool:
        """Add a chunk of stream 1 or 2, and return False once the limit was passed. Raises errors of the listener."""
        room = self._most - len(self.streams[0]) - len(self.streams[1])
        if len(chunk) > room:
            chunk, self.over = chunk[:room], True
        self.streams[stream - 1].extend(chunk)
        if self._listen is not None and chunk:
            self._listen(stream, chunk)
        return not self.over


class SandboxUnavailable(ProblemError):
    """The error for a boundary that cannot be built, so that nothing may run. The program then exits with status 4.

    Attributes:
        check: The name of the check of `agent doctor` that has the remedy; empty if the problem itself has it.
    """

    exit_code: ClassVar[int] = 4  # `Exit.SANDBOX`

    def __init__(self, problem: Problem, check: str = "") -> None:
        super().__init__(problem)
        self.check = check

    @classmethod
    def of(cls, what: str, why: str, fix: str, *, check: str = "") -> Self:
        """Return the error with the Problem of these texts."""
        return cls(Problem(what, why, fix), check)


class FilesChanged(SandboxUnavailable):
    """The error for a boundary that could not be built because a file was moved or replaced meanwhile."""


# Errors of a mount whose file was moved or replaced; bubblewrap writes the text of the first two.
_CHANGED = tuple(map(str, (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EBUSY)))
_CHANGED_WORDS = ("No such file or directory", "Not a directory")


def helper_failed(tier: str, answer: str, message: str = "") -> SandboxUnavailable:
    """Return the error for the line `failed ERRNO STEP` of a helper that could not confine itself.

    `message` is the error text of the program that should have started the helper.
    """
    number, _, step = answer.partition(" ")[2].partition(" ")
    why = os.strerror(int(number)) if number.isdigit() and number != "0" else "the helper ended without a reason"
    refused = f"the kernel refused to {step or 'start the helper'} ({why.lower()})"
    what = f"the {tier} sandbox cannot be built here"
    if number == str(errno.EAGAIN) and not message:  # of fork(2)
        why = f"{refused}: a limit on processes is reached, `--limit pids` or `ulimit -u`"
        fix = "raise it (in T3 it counts all processes of the user), or close other programs; nothing was run"
        return SandboxUnavailable.of(what, why, fix)
    fix = "run `agent doctor` for what this machine lacks and the command that adds it; nothing was run"
    changed = number in _CHANGED or any(words in message for words in _CHANGED_WORDS)
    return (FilesChanged if changed else SandboxUnavailable).of(what, message or refused, fix, check="namespaces")


def leaks(tier: str, broken: tuple[str, ...]) -> SandboxUnavailable:
    """Return the error for a canary that escaped; `broken` are the failed checks, in words."""
    what, why = f"the {tier} sandbox does not confine commands here", f"its canary escaped: {', '.join(broken)}"
    fix = "run `agent doctor` for what the machine lacks; nothing was run"
    return SandboxUnavailable.of(what, why, fix, check="namespaces")


@dataclass(frozen=True, slots=True)
class ContainerOptions:
    """The table `[sandbox.container]`: the pinned image, the daemon's runtime and its socket. Empty means not set."""

    image: str = ""
    runtime: str = ""
    socket: str = ""


@dataclass(frozen=True, slots=True)
class NetworkOptions:
    """The table `[sandbox.network]`, which only the user's own configuration sets.

    Attributes:
        proxy: address of the HTTP proxy through which hosts are reached, as `http://host:port`; empty for none.
        translated: address ranges of a translator (NAT64) or an intercepting proxy, in which names may lie.
    """

    proxy: str = ""
    translated: tuple[str, ...] = ()


DIRECT = NetworkOptions()


@dataclass(frozen=True, slots=True)
class TerminalSize:
    """The size of a pseudo-terminal in characters, each from 1 to 1,000."""

    rows: int = 24
    columns: int = 80


class Process(Protocol):
    """One confined process tree that stays while later commands run. `Backend.start` starts it.

    It has no limit of wall time and of output; all other limits hold for the whole tree. It ends with its backend.

    Attributes:
        permit: The permit that it executes.
        enforcement: What its sandbox enforces.
    """

    permit: Permit
    enforcement: Enforcement

    @property
    def outcome(self) -> Outcome | None:
        """Return None while the process runs, then its outcome. The output is not in it: the listener got all of it."""
        ...

    @property
    def violations(self) -> tuple[Violation, ...]:
        """Return what the boundary stopped so far, refused hosts included."""
        ...

    @property
    def connections(self) -> tuple[Connection, ...]:
        """Return the attempts to reach a host so far."""
        ...

    async def write(self, data: bytes) -> None:
        """Write to standard input, or to the terminal. Wait while the process reads nothing.

        Raises BrokenPipeError if nothing can read the data any more.
        """
        ...

    def close_input(self) -> None:
        """End standard input. A terminal gets its end-of-file character (termios(3), VEOF)."""
        ...

    def resize(self, size: TerminalSize) -> None:
        """Change the size of the terminal. Without a terminal this has no effect."""
        ...

    async def signal(self, number: int) -> None:
        """Send a signal to all processes of the tree. After its end this has no effect."""
        ...

    async def wait(self) -> Outcome:
        """Return the outcome when the process has ended. Cancelling this call does not end the process."""
        ...

    async def end(self, why: str = "cancelled") -> Outcome:
        """Kill all processes of the tree within 200 ms, and return the outcome, whose `ended_by` is `why`."""
        ...

    def ports(self) -> tuple[int, ...]:
        """Return the TCP ports on which something in the network of the process listens, in order."""
        ...

    async def connect(self, port: int) -> "socket.socket":
        """Return a connection to the TCP port `port` on the loopback of the process's network. The caller closes it.

        Raises OSError if nothing accepts it.
        """
        ...


@dataclass(frozen=True, slots=True)
class ChangeLayer:
    """The folders of one overlay, which receive the changes of the workspace by one command, or by several in turn.

    Attributes:
        workspace: The lower folder, as a real path.
        upper: A folder of the private state, on the file system of the workspace where that is possible. It is empty
            before the first command.
        work: An empty folder beside `upper`, which the kernel needs.
        shared: True if several commands have the layer in turn. Each sees the changes of those before it, on an overlay
            and in a helper of its own, and all its processes have ended when `Backend.run` returns.
    """

    workspace: str
    upper: str
    work: str
    shared: bool = False


class Backend(Protocol):
    name: str

    async def probe(self, terms: Terms | None = None) -> Enforcement:
        """Run the canary in a real sandbox of this kind (made for `terms`), and return the checks that held.

        Raises SandboxUnavailable.
        """
        ...

    async def run(
        self,
        permit: Permit,
        *,
        stdin: "bytes | int | None" = None,
        listen: Listener | None = None,
        layer: ChangeLayer | None = None,
    ) -> Outcome:
        """Execute the permit. Cancelling the task kills all processes of the command within 200 ms.

        With `layer` the command changes its upper folder instead of the workspace. Pass one only if `layered` returned
        an empty text. When this call ends, also by an exception, no process uses the layer any more; if that is
        uncertain, the upper folder has been renamed, so that `read_layer` fails.

        `stdin` is the whole standard input, or a descriptor whose data is passed on as it arrives and which the caller
        closes. `listen` is called with the output as it arrives. Raises SandboxUnavailable; in that case nothing ran.
        """
        ...

    def prepare(self, terms: Terms, folder: str) -> None:
        """Start in the background what a later `run` with a layer made in `folder` needs, so that it starts sooner.

        Without this call, or if the preparation fails, that `run` does everything itself.
        """
        ...

    async def layered(self, terms: Terms, folder: str) -> str:
        """Return why a command under `terms` cannot run on a layer made in `folder`, in words; empty if it can."""
        ...

    async def start(self, permit: Permit, *, listen: Listener, terminal: TerminalSize | None = None) -> Process:
        """Start the permit's command, and return while it runs.

        With `terminal` the command gets a pseudo-terminal of the sandbox, whose output is stream 1. `listen` is called
        with the output until the process has ended. Raises SandboxUnavailable; in that case nothing ran.
        """
        ...

    async def close(self) -> None:
        """End every helper and remove its temporary files."""
        ...


def refuse_layer(layer: ChangeLayer | None, why: str) -> None:
    """Raise SandboxUnavailable with the reason `why` if there is a layer, and `why` says that it cannot be used."""
    if layer is not None and why:
        raise SandboxUnavailable.of("the command cannot run on a copy-on-write view", why, "run it without a layer")


def argv_of(action: RunScript | RunArgv | ConvertDocument) -> tuple[str, ...]:
    return (*_SHELL, action.script) if isinstance(action, RunScript) else action.argv


def file_request(action: Action) -> dict[str, object]:
    """Return the request that `sandbox/inside/files/operations.py` performs."""
    from dataclasses import asdict  # commands are no file actions

    return {"op": action.kind, **asdict(action)}


def file_limits(limits: Limits) -> Limits:
    return replace(limits, wall=min(limits.wall, _FILE_SECONDS), output=_FILE_BYTES)


def file_outcome(status: int, data: bytes, seconds: float, ended: str | None) -> Outcome:
    """Return the outcome of a file action whose helper wrote `data`, or the problem if `data` is no valid answer.

    `ended` is the limit that ended the action, or None.
    """
    import json

    failed = Problem("the file action failed", f"its process ended with status {status}", "try again, or request less")
    if ended is not None:
        failed = Problem("the file action was ended", f"it passed the {ended} limit", "request less")
        return Outcome(status or 1, seconds=seconds, ended_by=ended, problem=failed)
    try:
        answer = json.loads(data)
    except ValueError:
        answer = None
    if not isinstance(answer, dict):
        return Outcome(status or 1, seconds=seconds, problem=failed)
    refusal = answer.get("problem")
    if isinstance(refusal, dict):
        problem = Problem(*(str(refusal.get(key, "")) for key in ("what", "why", "fix")))
        return Outcome(1, seconds=seconds, problem=problem, data=answer)
    return Outcome(status, seconds=seconds, data=answer)
