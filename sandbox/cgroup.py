"""Limits that the kernel keeps for a helper and all that it starts together: a control group of its own, where we may.

Version 1 has a tree of groups per controller, version 2 one tree for all (cgroups(7); the kernel's
`admin-guide/cgroup-v1/` and `admin-guide/cgroup-v2.rst`). Groups are made inside our own one, so that limits on us hold
for them too. Where none can be made the watchdog of the helper counts instead, and `held` says so.
"""

import contextlib
import os
import signal
import threading
import time
from collections.abc import Iterator
from functools import lru_cache
from itertools import count

from policy.record import dataclass

MEMORY, PIDS, CPU = "memory", "pids", "cpu"  # what a group can keep or count
ALL = (MEMORY, PIDS, CPU)
_PREFIX = "ringfence-"
_OF_V1 = {"memory": MEMORY, "pids": PIDS, "cpuacct": CPU}
_HELPER = 16 << 20  # bytes of the helper itself, beside what its commands may use
_PROCESSES = 3  # those of the helper: its two halves, and the launcher of a tier that has one
_STUBBORN = 1000  # refused forks after which a command is no program that gives up or waits, but a bomb
_PATIENCE = 0.5  # seconds until a group must be empty after everything in it was killed
_numbers = count()
_looking = threading.Lock()  # groups are made beside each other, and our own is moved once
_living: set[str] = set()  # names of the groups of this process
_moved: list[tuple[str, str, list[str]]] = []  # our own group, the leaf of it that we are in, the controllers


@dataclass(frozen=True, slots=True)
class Place:
    """A folder of the kernel's in which we may make groups. `most`: limits that groups made here would escape else."""

    version: int
    folder: str
    keeps: frozenset[str]
    most: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Used:
    """What a group counted since it was made: seconds of processor time, kills for want of memory, forks refused."""

    cpu: float = 0.0
    kills: int = 0
    refused: int = 0


class Group:
    """The groups (one per place) around one process and all that it will start. Made beside the caller: it waits for
    nothing until `limit` is called."""

    __slots__ = ("_before", "_cpu", "_files", "_made", "_name", "_thread", "held", "places")

    def __init__(self, pid: int, places: tuple[Place, ...] | None = None) -> None:
        self.places = places
        self.held: frozenset[str] = frozenset()
        self._name = f"{_mark(os.getpid())}{next(_numbers)}"
        self._made: list[tuple[Place, str]] = []
        self._files: dict[str, int] = {}
        self._before, self._cpu = Used(), 0
        _living.add(self._name)
        # Moving a process waits for every fork on the machine to be seen (a grace period of some milliseconds).
        self._thread: threading.Thread | None = threading.Thread(target=self._make, args=(pid,), daemon=True)
        self._thread.start()

    def _make(self, pid: int) -> None:
        with _looking:
            places = usable() if self.places is None else self.places
        for place in places:
            path = f"{place.folder}/{self._name}"
            try:
                _new(path)
                self._made.append((place, path))
                _write(path, "cgroup.procs", str(pid))
            except OSError:
                continue  # `held` will not have it, and the watchdog counts
            self.held |= place.keeps

    def limit(self, memory: int, pids: int, cpu: int) -> frozenset[str]:
        """Set the limits before anything runs inside; what is kept by the group from now on."""
        self._join()
        self._cpu = cpu
        for place, path in self._made:
            for what in place.keeps & self.held:
                try:
                    self._set(place, path, what, memory, pids)
                except OSError:
                    self.held -= {what}
        return self.held

    def _set(self, place: Place, path: str, what: str, memory: int, pids: int) -> None:
        most = dict(place.most)
        if what == MEMORY:
            amount = str(min(memory + _HELPER, most.get(MEMORY, memory + _HELPER)))
            if place.version == 1:
                _write(path, "memory.limit_in_bytes", amount)
                # Memory and swap together; a kernel that does not account for swap lacks the file.
                _write(path, "memory.memsw.limit_in_bytes", amount, optional=True)
                self._open(path, "memory.oom_control")
            else:
                _write(path, "memory.max", amount)
                _write(path, "memory.swap.max", "0", optional=True)
                # One kill ends the whole command, its helper too: half a command is of use to nobody.
                _write(path, "memory.oom.group", "1", optional=True)
                self._open(path, "memory.events")
        elif what == PIDS:
            _write(path, "pids.max", str(min(pids + _PROCESSES, most.get(PIDS, pids + _PROCESSES))))
            self._open(path, "pids.events")
        else:
            self._open(path, "cpuacct.usage" if place.version == 1 else "cpu.stat")

    @property
    def version(self) -> int:
        return max((place.version for place, _ in self._made), default=0)

    def begin(self) -> None:
        """A command starts: what is used up from now on is its own."""
        self._before = self.used()

    def excess(self) -> str | None:
        """The limit that the command has passed. `group`: it cannot be told any more, so nothing may go on."""
        try:
            used = self.used()
        except OSError:
            return "group"
        if used.kills > self._before.kills:
            return MEMORY
        if used.refused - self._before.refused > _STUBBORN:
            return PIDS
        return CPU if CPU in self.held and used.cpu - self._before.cpu >= self._cpu else None

    def refused(self) -> int:
        """How often a process or thread of the command could not be started since `begin`."""
        try:
            return max(self.used().refused - self._before.refused, 0)
        except OSError:
            return 0

    def used(self) -> Used:
        """Raises OSError when a file of the kernel's is gone: then nothing is kept any more."""
        cpu = 0.0
        if (handle := self._files.get("cpuacct.usage")) is not None:
            cpu = int(_read(handle)) / 1e9
        elif (handle := self._files.get("cpu.stat")) is not None:
            cpu = _field(handle, b"usage_usec") / 1e6
        kills = next((self._files[name] for name in ("memory.oom_control", "memory.events") if name in self._files), -1)
        forks = self._files.get("pids.events", -1)
        return Used(cpu, _field(kills, b"oom_kill") if kills >= 0 else 0, _field(forks, b"max") if forks >= 0 else 0)

    def remove(self) -> None:
        """Kill what is still inside and take the groups away. Again is harmless."""
        self._join()
        for handle in self._files.values():
            os.close(handle)
        self._files.clear()
        made, self._made = self._made, []
        until = time.monotonic() + _PATIENCE
        for place, path in made:
            while not _gone(path):
                if time.monotonic() > until:
                    break
                _empty(place, path)
                time.sleep(0.001)
        _living.discard(self._name)
        if not _living:
            move_back()

    def _join(self) -> None:
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def _open(self, path: str, name: str) -> None:
        if name not in self._files:
            self._files[name] = os.open(f"{path}/{name}", os.O_RDONLY | os.O_CLOEXEC)
            _read(self._files[name])


def words(group: Group) -> str:
    """Who keeps the limits of the whole tree, for reports: `cgroup v1 (memory, pids, cpu)`, `watchdog`."""
    if not group.held:
        return "watchdog"
    left = [name for name in ALL if name not in group.held]
    kept = f"cgroup v{group.version} ({', '.join(name for name in ALL if name in group.held)})"
    return f"{kept}, watchdog ({', '.join(left)})" if left else kept


@lru_cache(maxsize=1)
def usable() -> tuple[Place, ...]:
    """Where this process may make groups. Left-overs of killed sessions are taken away on the way."""
    try:
        with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
            mounts = file.read()
        with open("/proc/self/cgroup", encoding="utf-8", errors="surrogateescape") as file:
            own = file.read()
    except OSError:
        return ()
    found = tuple(places(mounts, own))
    for place in found:
        sweep(place.folder)
    return found


def places(mounts: str, own: str) -> Iterator[Place]:
    """From the texts of /proc/self/mountinfo and /proc/self/cgroup: each place in which a group may be made."""
    paths = {part[1]: part[2] for line in own.splitlines() if len(part := line.split(":", 2)) == 3}
    by_controller = {name: path for names, path in paths.items() for name in names.split(",") if name}
    left = {MEMORY, PIDS, CPU}
    second: tuple[str, str] | None = None
    for line in mounts.splitlines():
        before, _, after = line.partition(" - ")
        fields, kind = before.split(), after.split()
        if len(fields) < 5 or not kind or kind[0] not in ("cgroup", "cgroup2"):
            continue
        root, point = (field.replace("\\040", " ") for field in fields[3:5])
        if kind[0] == "cgroup2":
            second = (root, point)
            continue
        names = [name for name in kind[-1].split(",") if name in _OF_V1 and name in by_controller]
        keeps = frozenset(_OF_V1[name] for name in names) & left
        folder = _beneath(point, root, by_controller[names[0]]) if names else None
        if keeps and folder and os.access(folder, os.W_OK):
            left -= keeps
            yield Place(1, folder, keeps)
    if second and left & {MEMORY, PIDS} and (folder := _beneath(second[1], second[0], paths.get("", ""))):
        place = _of_v2(folder, second[1], frozenset(left))
        if place is not None:
            yield place


def _beneath(point: str, root: str, path: str) -> str | None:
    """Our group's folder under a mount of the subtree `root`; None where that mount does not show it."""
    inner = path if root == "/" else path.removeprefix(root) if (path + "/").startswith(root + "/") else None
    if inner is None or not path.startswith("/") or ".." in inner.split("/"):
        return None
    folder = (point + inner).rstrip("/")
    return folder if os.path.isdir(folder) else None


def _of_v2(folder: str, point: str, wanted: frozenset[str]) -> Place | None:
    """The nearest group, from ours up, whose children can be limited, and where we may make one and move a process to.

    A group with processes can have no limited children (cgroup-v2.rst, "No Internal Process Constraint"), and ours has
    us: unless we are alone in it, a group further up has to do, and the limits that this leaves behind are taken along.
    """
    most: dict[str, int] = {}
    current = folder
    while (current + "/").startswith(point.rstrip("/") + "/"):
        # Moving a process needs the right to write to the nearest group above both (same page, "Delegation").
        if os.access(current, os.W_OK) and os.access(f"{current}/cgroup.procs", os.W_OK):
            there = _words(current, "cgroup.subtree_control")
            if (
                current == folder
                and not {MEMORY, PIDS} & wanted <= there
                and make_room(current, frozenset({MEMORY, PIDS} & wanted))
            ):
                there = _words(current, "cgroup.subtree_control")
            if there & {MEMORY, PIDS} & wanted:
                return Place(2, current, frozenset(there & wanted | {CPU} & wanted), tuple(sorted(most.items())))
        if current == point or _words(current, "cpu.max") - {"max", "100000"}:
            return None  # a share of the processors cannot be taken along
        for what, names in ((MEMORY, ("memory.max", "memory.high")), (PIDS, ("pids.max",))):
            for name in names:
                for word in _words(current, name) - {"max"}:
                    most[what] = min(most.get(what, int(word)), int(word))
        current = os.path.dirname(current)
    return None


def make_room(folder: str, names: frozenset[str]) -> bool:
    """Let children of our own group be limited by these controllers. It has to be ours alone: we move into a leaf."""
    asked = sorted(names & _words(folder, "cgroup.controllers"))
    inside = {int(word) for word in _words(folder, "cgroup.procs")}
    leaf = f"{folder}/{_mark(os.getpid())}self"
    if not asked or any(pid != os.getpid() and _parent(pid) != os.getpid() for pid in inside):
        return False
    try:
        if inside:
            os.mkdir(leaf, 0o755)
            _moved.append((folder, leaf, asked))
            for pid in inside:
                _write(leaf, "cgroup.procs", str(pid))
        _write(folder, "cgroup.subtree_control", " ".join(f"+{name}" for name in asked))
    except OSError:
        move_back()
        return False
    return True


def move_back() -> None:
    """Leave our own group as it was before `make_room`: what starts next to us could not enter it else."""
    while _moved:
        folder, leaf, names = _moved.pop()
        with contextlib.suppress(OSError):
            _write(folder, "cgroup.subtree_control", " ".join(f"-{name}" for name in names))
        for word in _words(leaf, "cgroup.procs"):
            with contextlib.suppress(OSError):  # it ended meanwhile
                _write(folder, "cgroup.procs", word)
        _gone(leaf)
        usable.cache_clear()


def sweep(folder: str) -> None:
    """Take away groups whose makers are gone. One that still holds a process stays: rmdir(2) refuses."""
    with contextlib.suppress(OSError):
        for name in os.listdir(folder):
            parts = name.removeprefix(_PREFIX).split("-")
            if not name.startswith(_PREFIX) or len(parts) != 3 or not parts[0].isdigit():
                continue
            if _mark(int(parts[0])) != f"{_PREFIX}{parts[0]}-{parts[1]}-":
                with contextlib.suppress(OSError):
                    os.rmdir(f"{folder}/{name}")


def _mark(pid: int) -> str:
    """The beginning of the names of a process' groups: a number is used again, its moment of birth is not."""
    stat = _stat(pid)
    return f"{_PREFIX}{pid}-{stat[19] if stat else 'gone'}-"


def _parent(pid: int) -> int:
    stat = _stat(pid)
    return int(stat[1]) if stat else 0


def _stat(pid: int) -> list[str]:
    """proc_pid_stat(5) from the state on: names may hold spaces and brackets."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            return file.read().rpartition(")")[2].split()
    except OSError:
        return []


def _new(path: str) -> None:
    os.mkdir(path, 0o755)  # the kernel fills it with its files


def _gone(path: str) -> bool:
    try:
        os.rmdir(path)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True


def _empty(place: Place, path: str) -> None:
    """Kill everything inside; nothing new can start meanwhile."""
    if place.version == 2:
        with contextlib.suppress(OSError):
            _write(path, "cgroup.kill", "1")
            return
    if PIDS in place.keeps:
        with contextlib.suppress(OSError):
            _write(path, "pids.max", "0")
    for word in _words(path, "cgroup.procs"):
        with contextlib.suppress(OSError, ValueError):
            os.kill(int(word), signal.SIGKILL)


def _words(folder: str, name: str) -> set[str]:
    try:
        with open(f"{folder}/{name}", encoding="utf-8") as file:
            return set(file.read().split())
    except OSError:
        return set()


def _write(folder: str, name: str, text: str, *, optional: bool = False) -> None:
    """One write: the kernel takes each as a whole order."""
    try:
        handle = os.open(f"{folder}/{name}", os.O_WRONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        if optional:
            return
        raise
    try:
        os.write(handle, text.encode())
    except OSError:
        if not optional:
            raise
    finally:
        os.close(handle)


def _read(handle: int) -> bytes:
    return os.pread(handle, 4096, 0)


def _field(handle: int, name: bytes) -> int:
    """The number behind `name` in a file of `NAME NUMBER` lines."""
    for line in _read(handle).splitlines():
        if line.startswith(name + b" "):
            return int(line.split()[1])
    return 0
