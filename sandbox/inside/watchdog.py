"""Resources that a command and all its descendants use together, counted by the helper. Standard library only.

A control group counts exactly and costs nothing. The limits without a control group (`Plan.pids`, `memory`, `cpu` other
than 0) are checked a few times a second. Disk space is always checked here, because no control group limits it: the
more often the less of its limit is left, and a last time after the command has ended.
"""

import os
import resource
import signal
import stat
import time
from collections.abc import Callable

from sandbox.inside.disk_space import SELDOM, Space
from sandbox.inside.plan import Plan

WALL = 0x40000000  # __WALL, wait(2): children of every kind
PAGE = os.sysconf("SC_PAGE_SIZE")
_TICKS = os.sysconf("SC_CLK_TCK")
SignalAll = Callable[[signal.Signals], None]


class Watchdog:
    """The limits of one command: `begin` at its start, `excess` every `pause` seconds, `last` and `end` afterwards."""

    def __init__(self, plan: Plan) -> None:
        self.pids, self.memory, self.cpu = plan.pids, plan.memory, plan.cpu
        self.space = Space(plan.writable, plan.disk)
        self.private = plan.private
        self.sees = plan.tier != "T3"  # T3 withholds /proc, as `T3_LACKS` states
        self.end()

    @property
    def begun(self) -> bool:
        return self._clock > 0

    def begin(self) -> None:
        self._clock = time.monotonic()
        self._next = self._clock + SELDOM
        self.space.begin()
        self._reaped, self._dirtied = _children(), resource.getrusage(resource.RUSAGE_CHILDREN).ru_oublock
        self._seen: dict[tuple[str, bytes], float] = {}
        self._shared = _shmem() if self.memory else 0

    def end(self) -> None:
        """Forget the command."""
        self._clock = self._next = self._reaped = 0.0
        self.space.forget()
        self._seen = {}
        self._shared = self._dirtied = 0

    def pause(self) -> float:
        """Return the seconds until `excess` must be called again."""
        return self.space.pause

    def excess(self, halt: SignalAll) -> str | None:
        """Return the name of the limit that the whole tree has passed, or None.

        `halt` sends a signal to all processes of the command, which are stopped while its files are counted.
        """
        now = time.monotonic()
        if now >= self._next:
            self._next = now + SELDOM
            if passed := self._tree():
                return passed
        space = self.space
        space.look()
        if space.suspect and not space.over_hard_limit:
            halt(signal.SIGSTOP)
            if self._written() > space.limit:
                return "disk"
            space.look()
            space.clear()
            halt(signal.SIGCONT)
        return "disk" if space.over_hard_limit else None

    def last(self) -> str | None:
        """Return `disk` if a command whose processes have all ended wrote more than its limit, else None.

        Some file systems account for space only when it is written back (btrfs, ZFS, network file systems), so the
        bytes written by its processes are checked too (getrusage(2), ru_oublock: blocks of 512 bytes).
        """
        space = self.space
        if not space.watched:
            return None
        space.look()
        dirtied = (resource.getrusage(resource.RUSAGE_CHILDREN).ru_oublock - self._dirtied) * 512
        suspect = space.suspect or dirtied > space.cleared
        return "disk" if space.over_hard_limit or (suspect and self._written() > space.limit) else None

    def _written(self) -> int:
        processes = [name for name in os.listdir("/proc") if name.isdigit()] if self.sees else []
        return self.space.written() + _held_open(processes, memory=False)

    # ---- processes, memory, processor time

    def _tree(self) -> str | None:
        # True once all processors together could have used up the processor time.
        hot = self.cpu and (time.monotonic() - self._clock) * (os.cpu_count() or 1) >= self.cpu
        if not self.sees or not (self.pids or self.memory or hot):
            return None
        processes = [name for name in os.listdir("/proc") if name.isdigit() and name != "1"]
        if self.pids and sum(int(count) for process in processes for count in status(process)[17:18]) > self.pids:
            return "pids"
        if self.memory and self._too_large(processes):
            return "memory"
        return "cpu" if hot and self._too_long(processes) else None

    def _too_large(self, processes: list[str]) -> bool:
        # Resident sizes count shared pages once per process. If the sum is too large, the exact shares are read.
        sizes = (_read(f"/proc/{process}/statm").split()[1:2] for process in processes)
        resident = sum(int(pages) * PAGE for size in sizes for pages in size)
        unmapped = 0
        if _shmem() - self._shared > self.memory // 2:
            # Resident sizes contain neither unmapped files in memory nor System V shared memory of this namespace
            # (proc(5), /proc/sysvipc).
            segments = [line.split() for line in _read("/proc/sysvipc/shm").splitlines()[1:]]
            unmapped = sum(int(fields[14]) for fields in segments if len(fields) > 14)
            unmapped += sum(map(_used, self.private)) + _held_open(processes, memory=True)
        if resident + unmapped <= self.memory:
            return False
        # The proportional set size (proc_pid_smaps(5)).
        shares = (_number(f"/proc/{process}/smaps_rollup", b"Pss:") << 10 for process in processes)
        return sum(shares) + unmapped > self.memory

    def _too_long(self, processes: list[str]) -> bool:
        """Return True if the tree has used more processor time than `cpu`, children of ended processes included."""
        live = 0.0
        for name in processes:
            fields = status(name)
            if len(fields) < 20:
                continue
            user, system, waited, of_waited = (int(field) / _TICKS for field in fields[11:15])
            live += user + system + waited + of_waited
            self._seen[name, fields[19]] = user + system
        return max(live + _children() - self._reaped, sum(self._seen.values())) >= self.cpu


def send_signal(pid: int, number: signal.Signals) -> None:
    try:
        os.kill(pid, number)
    except (ProcessLookupError, PermissionError):
        return  # nobody left


def _held_open(processes: list[str], *, memory: bool) -> int:
    """Return the bytes of files without a name that a process still holds open, on a disk or in memory."""
    total, seen = 0, set()
    for name in processes:
        try:
            handles = os.listdir(f"/proc/{name}/fd")
        except OSError:
            continue  # the process ended meanwhile, or is not readable
        for handle in handles:
            try:
                status = os.stat(f"/proc/{name}/fd/{handle}")
                if status.st_nlink or not stat.S_ISREG(status.st_mode) or (status.st_dev, status.st_ino) in seen:
                    continue
                seen.add((status.st_dev, status.st_ino))
                in_memory = os.readlink(f"/proc/{name}/fd/{handle}").startswith("/memfd:")
            except OSError:
                continue
            total += status.st_blocks * 512 if in_memory is memory else 0
    return total


def _used(path: str) -> int:
    try:
        status = os.statvfs(path)
    except OSError:
        return 0
    return (status.f_blocks - status.f_bfree) * status.f_frsize


def _children() -> float:
    """Return the processor time in seconds of all reaped children and their reaped children (getrusage(2))."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def _shmem() -> int:
    """Return the bytes of files in memory on the whole machine (proc_meminfo(5))."""
    return _number("/proc/meminfo", b"Shmem:") << 10


def status(process: str) -> list[bytes]:
    """Return the fields of proc_pid_stat(5) after the name, which may contain spaces and brackets."""
    return _read(f"/proc/{process}/stat").rpartition(b")")[2].split()


def _number(path: str, name: bytes) -> int:
    return next((int(line.split()[1]) for line in _read(path).splitlines() if line.startswith(name)), 0)


def _read(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return b""  # a process that ended meanwhile
