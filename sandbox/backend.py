"""The interface of a sandbox backend (probe, run, close), and the values that report the result of a run."""

from collections.abc import Callable
from dataclasses import field
from enum import StrEnum
from typing import ClassVar, Protocol

from policy.model.frozen import dataclass
from policy.model.verdict import Permit, Problem, ProblemError, Terms


class Level(StrEnum):
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
    missing: tuple[str, ...] = ()  # in words: what this backend does not enforce here
    limits: str = ""  # who counts what a command uses up: `cgroup v2 (memory, pids, cpu)`, `watchdog`


@dataclass(frozen=True, slots=True)
class Violation:
    """An attempt that the boundary stopped.

    Attributes:
        inferred: True if the attempt was concluded from the program's own message, not reported by the kernel.
        layer: The layer that stopped the attempt: `landlock` (by the kernel's record of it), `proxy`, `limit`, `watch`
            (moved aside afterwards), or `guess` if `inferred`.
        right: The flag that would have allowed the attempt: `--read PATH`, `--write PATH` or `--host HOST`; empty if no
            flag would.
    """

    what: str
    path: str
    fix: str
    inferred: bool
    layer: str = "guess"
    right: str = ""


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


MOST_TOLD = 200  # connections of one command that an event names; the record counts them all


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of one action.

    Attributes:
        status: Exit status from 0 to 255; 128 + N after signal N.
        stdout: Standard output in bytes, cut at the output limit.
        stderr: Standard error in bytes, cut at the output limit.
        ended_by: The limit that ended the action (`wall`, `output`, `cancelled`, ...), or None.
        data: The JSON-like answer of a file action; `problem` is set if the action failed.
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


class InterruptedCommand(Exception):  # it is the cause of an error, and never raised by itself
    """The network connections of a command without an outcome: the cause (`__cause__`) of the exception that ended it.

    It is no subclass of `CancelledError`, because `asyncio.timeout` of Python 3.11 knows only that class itself.
    """

    def __init__(self, connections: tuple[Connection, ...], cause: BaseException | None) -> None:
        super().__init__("a command ended without an outcome")
        self.connections = connections
        self.__cause__ = cause


def interrupted_connections(end: BaseException) -> tuple[Connection, ...]:
    """Return the connections of the command whose run `end` ended; empty if it made none."""
    cause = end.__cause__
    return cause.connections if isinstance(cause, InterruptedCommand) else ()


# Called with (stream, chunk): stream is 1 (stdout) or 2 (stderr).
Listener = Callable[[int, bytes], None]


class SandboxUnavailable(ProblemError):
    """The error for a boundary that cannot be built, so that nothing may run. Carries the Problem; the program exits
    with 4.
    """

    exit_code: ClassVar[int] = 4  # `Exit.SANDBOX`


class Backend(Protocol):
    name: str

    async def probe(self, terms: Terms | None = None) -> Enforcement:
        """Run the canary in a real sandbox of this kind (made for `terms`) and report what held.

        Raises SandboxUnavailable.
        """
        ...

    async def run(self, permit: Permit, *, stdin: bytes | None = None, listen: Listener | None = None) -> Outcome:
        """Execute the permit. Cancelling the task kills everything the command started, within 200 ms."""
        ...

    async def close(self) -> None:
        """End every helper and remove what they left."""
        ...
