"""What every backend promises: probe, run, close. Outcome and Enforcement say what really happened."""

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
    """What a canary saw, not what was asked for. `checks` maps each check to True (held) or False."""

    level: Level
    backend: str  # "T1", "T3", ...
    checks: tuple[tuple[str, bool], ...] = ()
    missing: tuple[str, ...] = ()  # in words: what this backend does not enforce here
    limits: str = ""  # who counts what a command uses up: `cgroup v2 (memory, pids, cpu)`, `watchdog`


@dataclass(frozen=True, slots=True)
class Violation:
    """An attempt that the boundary stopped. `inferred`: concluded from the program's own message, not the kernel's.

    `layer`: who stopped it: `landlock` (by the kernel's record of it), `proxy`, `limit`, `watch` (moved aside
    afterwards), or `guess` for what is inferred. `right`: what would have let it through, as a person would add it:
    `--read PATH`, `--write PATH` or `--host HOST`; empty where no such thing would.
    """

    what: str
    path: str
    fix: str
    inferred: bool
    layer: str = "guess"
    right: str = ""


@dataclass(frozen=True, slots=True)
class Connection:
    """One attempt of a command to reach a host through the egress proxy, let through or not.

    `host`, `port`: as it was named, in one spelling; empty where that could not be read. `asked`: `tunnel`, or method
    and path of a plain request. `address`: what was connected to, empty when nothing was. `why`: what was wrong with
    it; an allowed one with a reason was allowed and failed. `sent`, `received`: bytes. `credential`: the name of
    the one that was added to it.
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
    """What an action and all that it waited for used: `cpu` in seconds, and `memory`, the bytes that the largest of its
    processes had in memory at once. The kernel counts a process from before it became the command, so it is never less
    than what the helper itself has."""

    cpu: float
    memory: int


MOST_TOLD = 200  # connections of one command that an event names; the record counts them all


@dataclass(frozen=True, slots=True)
class Outcome:
    """The end of one action.

    `status`: exit status 0..255, 128+N after signal N. `ended_by`: None, or the limit that ended it (`wall`,
    `output`, `cancelled`, ...). `stdout`, `stderr`: bytes, cut at the output limit. `data`: the answer of a file
    action (JSON-like), with `problem` set when it failed.
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
    """Nothing may run: the boundary cannot be built. Carries the Problem; the program exits with 4."""

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
