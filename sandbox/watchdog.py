"""What a command and all that it started use up together, counted from inside the helper. Standard library only.

A control group counts exactly and costs nothing; what is left to this one (`Plan.pids`, `memory`, `cpu` that are not 0)
is looked at a few times a second. The disk is always this one's: no control group limits it.
"""

import os
import resource
import stat
import time

from sandbox.wire import Plan

PAGE = os.sysconf("SC_PAGE_SIZE")
_TICKS = os.sysconf("SC_CLK_TCK")
_A_FILE = (
    16 << 10
)  # bytes of a disk for each file that it can hold: an empty one takes no space (mke2fs(8), inode_ratio)
_CLOCK = 2.0  # seconds by which a file system's clock may be behind ours


class Watchdog:
    """`begin` when a command starts, `excess` now and then while it runs, `end` after it."""

    def __init__(self, plan: Plan) -> None:
        self.pids, self.memory, self.cpu, self.disk = plan.pids, plan.memory, plan.cpu, plan.disk
        self.writable = plan.writable
        self.private = plan.private
        self.sees = plan.tier != "T3"  # /proc is withheld there; `missing` says so
        self.end()

    @property
    def begun(self) -> bool:
        return self._started > 0

    def begin(self) -> None:
        self._started, self._clock = time.time(), time.monotonic()
        self._free = {path: free for path in self.writable if (free := _free(path)) is not None}
        self._cleared = float(self.disk)  # a loss of space up to here is not the command's, or is within its limit
        self._reaped = _children() if self.cpu else 0.0
        self._seen: dict[tuple[str, bytes], float] = {}
        self._shared = _shmem() if self.memory else 0

    def end(self) -> None:
        """Forget the command; a search that still runs is ended by whoever ends what the command left."""
        self.search = 0  # the process that looks for the command's files; `_space` waits for it
        self._started = self._clock = self._cleared = self._reaped = 0.0
        self._free = {}
        self._seen = {}
        self._shared = 0

    def excess(self) -> str | None:
        """The limit that the whole tree has passed, by its name."""
        return self._tree() or self._space()

    # ---- processes, memory, processor time

    def _tree(self) -> str | None:
        # So many processors for so long: before that nobody can have used up the time.
        hot = self.cpu and (time.monotonic() - self._clock) * (os.cpu_count() or 1) >= self.cpu
        if not self.sees or not (self.pids or self.memory or hot):
            return None
        processes = [name for name in os.listdir("/proc") if name.isdigit() and name != "1"]
        if self.pids and sum(map(_threads, processes)) > self.pids:
            return "pids"
        if self.memory and self._too_large(processes):
            return "memory"
        return "cpu" if hot and self._too_long(processes) else None

    def _too_large(self, processes: list[str]) -> bool:
        # Resident sizes count shared pages once for everyone: when that is too much, ask for the exact shares.
        resident = sum(map(_resident, processes))
        unmapped = 0
        if _shmem() - self._shared > self.memory // 2:
            # Files in memory that nobody has mapped are in no resident size.
            unmapped = sum(map(_used, self.private)) + _held_open(processes, memory=True) + _segments()
        if resident + unmapped <= self.memory:
            return False
        return sum(map(_share, processes)) + unmapped > self.memory

    def _too_long(self, processes: list[str]) -> bool:
        """Live processes with the children they waited for, and those that came to us; or each that was ever seen."""
        live = 0.0
        for name in processes:
            fields = _stat(name)
            if len(fields) < 20:
                continue
            user, system, waited, of_waited = (int(field) / _TICKS for field in fields[11:15])
            live += user + system + waited + of_waited
            self._seen[name, fields[19]] = user + system
        return max(live + _children() - self._reaped, sum(self._seen.values())) >= self.cpu

    # ---- the disk

    def _space(self) -> str | None:
        """Free space is cheap to ask for, but others use it too: what is lost is looked for before it counts."""
        if not self.disk or not self._free:
            return None
        lost = files = 0
        for path, before in self._free.items():
            now = _free(path) or before
            lost, files = max(lost, before[0] - now[0]), max(files, before[1] - now[1])
        if lost > 2 * self.disk or files > 2 * self.disk // _A_FILE:
            return "disk"  # whoever it is: the machine comes first
        if self.search:
            pid, status = os.waitpid(self.search, os.WNOHANG)
            if pid:
                self.search = 0
                if os.waitstatus_to_exitcode(status) != 1:
                    return "disk"
                self._cleared = max(self._cleared, lost + self.disk / 8)
        elif lost > self._cleared:
            self.search = os.fork()
            if self.search == 0:
                self._look_for_it()
        return None

    def _look_for_it(self) -> None:
        """In a forked child, for it may take long: 1 when the command's own files are within the limit."""
        status = 0
        try:
            processes = [name for name in os.listdir("/proc") if name.isdigit()] if self.sees else []
            found = written(self.writable, self._started - _CLOCK) + _held_open(processes, memory=False)
            status = 0 if found > self.disk else 1
        finally:
            os._exit(status)


def written(folders: tuple[str, ...], since: float) -> int:
    """Bytes on the disk of the files below that were changed since then; each file once, whatever its names."""
    total, seen, left = 0, set(), list(folders)
    while left:
        try:
            entries = os.scandir(left.pop())
        except OSError:
            continue
        with entries:
            for entry in entries:
                try:
                    if entry.is_dir(follow_symlinks=False):
                        left.append(entry.path)
                        continue
                    found = entry.stat(follow_symlinks=False)
                except OSError:
                    continue  # it went meanwhile
                if stat.S_ISREG(found.st_mode) and found.st_ctime >= since and (found.st_dev, found.st_ino) not in seen:
                    seen.add((found.st_dev, found.st_ino))
                    total += found.st_blocks * 512
    return total


def _held_open(processes: list[str], *, memory: bool) -> int:
    """Bytes of files that have no name any more and that a process still holds open: on a disk, or in memory."""
    total, seen = 0, set()
    for name in processes:
        try:
            handles = os.listdir(f"/proc/{name}/fd")
        except OSError:
            continue  # it ended meanwhile, or hides itself
        for handle in handles:
            try:
                found = os.stat(f"/proc/{name}/fd/{handle}")
                if found.st_nlink or not stat.S_ISREG(found.st_mode) or (found.st_dev, found.st_ino) in seen:
                    continue
                seen.add((found.st_dev, found.st_ino))
                in_memory = os.readlink(f"/proc/{name}/fd/{handle}").startswith("/memfd:")
            except OSError:
                continue
            total += found.st_blocks * 512 if in_memory is memory else 0
    return total


def _free(path: str) -> tuple[int, int] | None:
    """Bytes and files for which there is room; no number of files where a file system does not bound them."""
    try:
        found = os.statvfs(path)
    except OSError:
        return None
    return found.f_bfree * found.f_frsize, found.f_ffree


def _used(path: str) -> int:
    try:
        found = os.statvfs(path)
    except OSError:
        return 0
    return (found.f_blocks - found.f_bfree) * found.f_frsize


def _children() -> float:
    """Seconds of processor time of all that we have waited for, and of all that they have (getrusage(2))."""
    found = resource.getrusage(resource.RUSAGE_CHILDREN)
    return found.ru_utime + found.ru_stime


def _shmem() -> int:
    """Bytes of files in memory on the whole machine (proc_meminfo(5))."""
    return _number("/proc/meminfo", b"Shmem:") << 10


def _segments() -> int:
    """Bytes of System V shared memory in our own namespace (proc(5), /proc/sysvipc)."""
    try:
        with open("/proc/sysvipc/shm", "rb") as file:
            return sum(int(line.split()[14]) for line in file.readlines()[1:])
    except (OSError, IndexError):
        return 0


def _threads(process: str) -> int:
    fields = _stat(process)
    return int(fields[17]) if len(fields) > 17 else 0


def _resident(process: str) -> int:
    try:
        with open(f"/proc/{process}/statm", "rb") as file:
            return int(file.read().split()[1]) * PAGE
    except OSError:
        return 0  # it ended meanwhile


def _share(process: str) -> int:
    """The proportional set size of one process, in bytes (proc_pid_smaps(5))."""
    return _number(f"/proc/{process}/smaps_rollup", b"Pss:") << 10


def _stat(process: str) -> list[bytes]:
    """proc_pid_stat(5) from the state on: names may hold spaces and brackets."""
    try:
        with open(f"/proc/{process}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()
    except OSError:
        return []


def _number(path: str, name: bytes) -> int:
    try:
        with open(path, "rb") as file:
            return next((int(line.split()[1]) for line in file if line.startswith(name)), 0)
    except OSError:
        return 0  # a process that ended meanwhile
