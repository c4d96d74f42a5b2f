"""The verdict of the gate, and the permit, the only value that a sandbox accepts."""

import json
from enum import StrEnum
from typing import ClassVar

from policy.model.action import Action
from policy.model.assessment import Assessment, Reason
from policy.model.digest import sha256_hex
from policy.model.frozen import dataclass, field, fields
from policy.model.tier import Mode, Ruling, Tier


@dataclass(frozen=True, slots=True)
class Problem:
    """One problem as text for the user: what happened, why, and how to fix it."""

    what: str
    why: str
    fix: str

    def __str__(self) -> str:
        return "; ".join(filter(None, (f"{self.what}: {self.why}", self.fix)))


class ProblemError(Exception):
    """An error that the program raises on purpose. `problem` tells the user about it.

    Attributes:
        exit_code: The exit status of the program if the error ends it; a value of `Exit` in `runner/problems.py`, as a
            number, because lower packages do not import the runner. 2 means usage or configuration.
    """

    exit_code: ClassVar[int] = 2

    def __init__(self, problem: Problem) -> None:
        super().__init__(str(problem))
        self.problem = problem


@dataclass(frozen=True, slots=True)
class Limits:
    """The resources that one command and its child processes may use together.

    Attributes:
        wall: elapsed time in seconds.
        cpu: processor time in seconds.
        pids: count of processes and threads.
        memory: bytes.
        file: size of the largest single file, in bytes.
        open_files: count for each process.
        output: bytes.
        disk: bytes added to all disks.
    """

    wall: float = 120.0
    cpu: int = 7200
    pids: int = 1024
    memory: int = 8 << 30
    file: int = 10 << 30
    open_files: int = 4096
    output: int = 10 << 20
    disk: int = 20 << 30

    @property
    def largest(self) -> int:
        """Return the size in bytes that a single file may reach (RLIMIT_FSIZE, getrlimit(2)): one file may not use more
        than `disk`.
        """
        return min(self.file, self.disk) if self.disk else self.file


# Folder in which a command with read-only rights may write: empty at its start, removed at its end, private to it.
READ_ONLY_TMP = "/run/tmp"

# A placeholder in Terms for hosts that are unknown before a command runs. It allows no host: the proxy listens,
# forwards nothing, and reports the requested host. SOURCE: RFC 6761, section 6.4: `.invalid` names nothing.
UNNAMED = "unnamed.invalid"


class Rights(StrEnum):
    """The standard sets of rights, to which effects are rounded up."""

    READ_ONLY = "read-only"  # reads the workspace and the system; connects only to the hosts of the terms
    WORKSPACE_WRITE = "workspace-write"  # workspace writable; a private loopback interface
    ISOLATED = "isolated"  # reads the system roots and the named paths of the terms: no workspace, /tmp or network


@dataclass(frozen=True, slots=True)
class Terms:
    """The exact rights of one action. Paths are absolute and real; a path that is not named does not exist in the
    sandbox.

    Attributes:
        rights: The standard right set.
        workspace: The folder of the project. With `Rights.ISOLATED` it is not visible.
        home: The home folder of the user.
        system: Readable roots.
        read: Readable paths outside the workspace that were named.
        write: Writable paths outside the workspace that were named, and locked paths in it that are opened by name.
        hidden: Name patterns of secret files, which are masked in every folder.
        shown: Name patterns and paths that are exempt from `hidden`.
        locked: Workspace-relative patterns that stay read-only even with `Rights.WORKSPACE_WRITE`.
        hosts: Host rules that the proxy lets through.
        env: The whole environment of the command.
        cache: Folder on the host that is the sandbox's own cache for this workspace, or empty. It is visible inside as
            `HOME/.cache`, writable with `Rights.WORKSPACE_WRITE`.
        unix: True if sockets of the family AF_UNIX may be created with `Rights.WORKSPACE_WRITE`. They reach no program
            outside of the sandbox.
        limits: Resource limits.
        credentials: Names of the credentials that the proxy adds to requests, each followed by ` (reading)` if only
            requests that read get it. Their values are not part of the terms.
        repository: The Git folders outside the workspace that a linked worktree or a submodule uses, writable: the
            folder that all worktrees share, and the worktree's own folder in it. Settings, hooks and the folders of
            other worktrees stay read-only.
    """

    rights: Rights
    workspace: str
    home: str
    system: tuple[str, ...] = ()
    read: tuple[str, ...] = ()
    write: tuple[str, ...] = ()
    hidden: tuple[str, ...] = ()
    shown: tuple[str, ...] = ()
    locked: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    env: tuple[tuple[str, str], ...] = ()
    cache: str = ""
    unix: bool = False
    limits: Limits = field(default_factory=Limits)
    credentials: tuple[str, ...] = ()
    repository: tuple[str, ...] = ()

    @property
    def writable(self) -> tuple[str, ...]:
        """Return the writable paths besides the workspace: those that were named, and the folder of the repository."""
        return (*self.write, *self.repository[:1])

    @property
    def open_hosts(self) -> tuple[str, ...]:
        """Return the hosts that the proxy permits."""
        return tuple(host for host in self.hosts if host != UNNAMED)

    @property
    def digest(self) -> str:
        """Return the SHA-256 (hex) of the canonical JSON form: the key of a confined helper, and the name of the
        terms in the audit log.
        """
        values = {each.name: getattr(self, each.name) for each in fields(self)}  # `asdict` would copy every text
        values["limits"] = {each.name: getattr(self.limits, each.name) for each in fields(self.limits)}
        text = json.dumps(values, sort_keys=True, separators=(",", ":"))
        return sha256_hex(text.encode("utf-8", "surrogatepass"))


class Mint:
    """The right to make Permits. Only `policy.decide` and `policy.grants.resolve` may use the instance `_MINT`."""

    __slots__ = ()


_MINT = Mint()


@dataclass(frozen=True, slots=True)
class Permit:
    """An action and the exact rights it may use. Constructed by `decide` and `grants` alone.

    Attributes:
        sourced: the files on whose content the decision rests, as in `Assessment`. Each must be unchanged at the start.
    """

    action: Action
    terms: Terms
    mint: Mint = field(repr=False, compare=False)
    sourced: tuple[tuple[str, str], ...] = ()

    def __post_init__(self) -> None:
        if self.mint is not _MINT:
            raise TypeError("a Permit is minted by policy.decide or policy.grants.resolve, nowhere else")


@dataclass(frozen=True, slots=True)
class Cell:
    """The cell of the matrix that determined a verdict."""

    tier: Tier
    mode: Mode
    ruling: Ruling


@dataclass(frozen=True, slots=True)
class Allow:
    permit: Permit
    cell: Cell
    reason: Reason


@dataclass(frozen=True, slots=True)
class Ask:
    """The verdict that the user must decide. `terms` are the rights that an approval would grant.

    `tries` is True if a session may first run the action on a layer, as `policy.decide.preview_of` permits, and ask
    about its changes instead. Every other caller asks before anything runs.
    """

    assessment: Assessment
    terms: Terms
    cell: Cell
    reason: Reason
    question: str
    tries: bool = False


@dataclass(frozen=True, slots=True)
class Deny:
    """The refusal of an action.

    Attributes:
        allowed_in: The least permissive mode in which the action needs no approval, or None. `dangerously` is never
            named.
        asked_in: The least permissive mode in which a user is asked first, or None.
    """

    problem: Problem
    cell: Cell
    reason: Reason
    allowed_in: Mode | None = None
    asked_in: Mode | None = None


Verdict = Allow | Ask | Deny


def limit_names() -> tuple[str, ...]:
    """Return the names that `--limit NAME=VALUE` accepts, as a user types them."""
    return tuple(item.name.replace("_", "-") for item in fields(Limits))
