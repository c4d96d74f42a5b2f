"""The process of a client: its rights, which must equal those of the resident process, and its state.

THREAT T274: a process in a sandbox must not start commands outside of it. Its namespaces, its capabilities, its filters
of system calls or its `no_new_privs` differ from those of the resident process, whatever made the sandbox.
"""

import os
import select
from dataclasses import dataclass

from runner.resident import peer_of
from sandbox.inside import syscalls

TYPE_CHECKING = False  # the name that type checkers know, without the import of `typing`
if TYPE_CHECKING:
    import socket

_SPACES = ("cgroup", "ipc", "mnt", "net", "pid", "time", "user", "uts")
_EQUAL = ("Uid", "Gid", "Groups", "CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb", "NoNewPrivs", "Seccomp",
          "Seccomp_filters")  # fmt: skip
_TAKEN = ("Umask", "SigBlk", "SigIgn")
_PIDFD = 77  # SO_PEERPIDFD of Linux 6.5


@dataclass(frozen=True, slots=True)
class PeerState:
    """The state of the process of a client that a worker takes over.

    Attributes:
        umask: The mask of the modes of new files.
        blocked: The signals that are blocked, as bits (proc_pid_status(5)).
        ignored: The signals that are ignored, as bits.
        limits: The soft and hard limit of each resource, by number.
        nice: The nice value.
        processors: The processors on which the process may run.
        scores: The adjustment of the score of the out-of-memory killer.
    """

    umask: int
    blocked: int
    ignored: int
    limits: tuple[tuple[int, tuple[int, int]], ...]
    nice: int
    processors: frozenset[int]
    scores: int


@dataclass(frozen=True, slots=True)
class Standing:
    """The rights of a process: its user, capabilities, filters, namespaces and root folder."""

    status: tuple[str, ...]
    spaces: tuple[str, ...]
    root: tuple[int, int]
    label: str


def standing(process: str = "self") -> Standing:
    """Return the rights of a process. Raise OSError if it has ended, or may not be examined."""
    found = _status(process)
    root = os.stat(f"/proc/{process}/root/")
    return Standing(
        tuple(found.get(name, "") for name in _EQUAL),
        tuple(_link(f"/proc/{process}/ns/{kind}") for kind in _SPACES),
        (root.st_dev, root.st_ino),
        _label(process),
    )


def examined(connection: "socket.socket", own: Standing) -> PeerState | None:
    """Return the state of the client, or None if it is another user's process or has other rights than `own`."""
    pid, uid = peer_of(connection)
    if uid != os.geteuid() or pid <= 0:
        return None
    try:
        if standing(str(pid)) != own:
            return None
        state = _state(pid)
    except (OSError, ValueError):
        return None
    return state if _lives(connection) else None


def _lives(connection: "socket.socket") -> bool:
    """Return True if the process that connected still lives, so that what was read is about it and not about a later
    process with the same number. Older kernels cannot tell.
    """
    import socket

    try:
        descriptor = connection.getsockopt(socket.SOL_SOCKET, _PIDFD)
    except OSError:
        return True
    try:
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        return not poll.poll(0)
    finally:
        os.close(descriptor)


def _state(pid: int) -> PeerState:
    import resource

    found = _status(str(pid))
    numbers = sorted({getattr(resource, name) for name in dir(resource) if name.startswith("RLIMIT_")})
    with open(f"/proc/{pid}/oom_score_adj", encoding="ascii") as file:
        scores = int(file.read())
    return PeerState(
        int(found["Umask"], 8),
        int(found["SigBlk"], 16),
        int(found["SigIgn"], 16),
        tuple((number, resource.prlimit(pid, number)) for number in numbers),
        os.getpriority(os.PRIO_PROCESS, pid),
        frozenset(os.sched_getaffinity(pid)),
        scores,
    )


def take_over(state: PeerState, helper: list[int], *, settled: bool = True) -> bool:
    """Give this process, and those of its helper, the state of the client. Raise OSError or ValueError if that is not
    possible.

    Return False if the helper cannot be given the whole state, so that another one must be started. `settled`: False if
    the helper may be starting a process, which would have the state of before.
    """
    import signal

    os.umask(state.umask)
    give_state(os.getpid(), state)
    changed = [pid for pid in helper if give_state(pid, state)]
    known = signal.valid_signals()  # all but those of the C library itself
    ignored = [each for each in _bits(state.ignored) if each not in (signal.SIGPIPE, signal.SIGXFSZ)]  # as Python does
    for each in ignored:
        if each in known:
            signal.signal(each, signal.SIG_IGN)
        else:
            syscalls.ignore_signal(each)
    if state.blocked:
        syscalls.block_signals(state.blocked)
    return not ignored and not state.blocked and (settled or not changed)


def give_state(pid: int, state: PeerState) -> bool:
    """Give a process the limits, the nice value, the processors and the score of the client. Return False if it had
    them.
    """
    import resource

    changed = False
    for number, limits in state.limits:
        if resource.prlimit(pid, number) != limits:
            resource.prlimit(pid, number, limits)
            changed = True
    if os.getpriority(os.PRIO_PROCESS, pid) != state.nice:
        os.setpriority(os.PRIO_PROCESS, pid, state.nice)
        changed = True
    if os.sched_getaffinity(pid) != state.processors:
        os.sched_setaffinity(pid, state.processors)
        changed = True
    with open(f"/proc/{pid}/oom_score_adj", "r+", encoding="ascii") as file:
        if int(file.read()) != state.scores:
            file.seek(0)
            file.write(str(state.scores))
            changed = True
    return changed


def _bits(mask: int) -> list[int]:
    """Return the numbers of the signals in a mask of proc_pid_status(5)."""
    return [number for number in range(1, 65) if mask >> (number - 1) & 1]


def _status(process: str) -> dict[str, str]:
    with open(f"/proc/{process}/status", encoding="utf-8", errors="surrogateescape") as file:
        lines = (line.partition(":") for line in file)
        return {name: value.strip() for name, _, value in lines if name in _EQUAL or name in _TAKEN}


def _link(path: str) -> str:
    try:
        return os.readlink(path)
    except FileNotFoundError:  # a kernel without this kind of namespace
        return ""


def _label(process: str) -> str:
    """Return the label of the security module of the kernel; empty without one."""
    try:
        with open(f"/proc/{process}/attr/current", encoding="utf-8", errors="surrogateescape") as file:
            return file.read().strip("\0\n")
    except OSError as error:
        if error.errno in (2, 22):  # ENOENT, EINVAL: there is no such module
            return ""
        raise
