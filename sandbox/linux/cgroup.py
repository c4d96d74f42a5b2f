"""The control group around a helper and all processes that it starts.

The kernel enforces the limits of memory and processes; the runner compares the counted processor time. The watchdog of
the helper counts everything that is not in `held`.
"""

import contextlib
import os
import signal
import threading
import time
from itertools import count

from policy.model.deadline import deadline
from policy.model.frozen import dataclass
from sandbox.linux.cgroup_places import (
    CPU,
    MEMORY,
    PIDS,
    CgroupPlace,
    field,
    mark,
    move_back,
    read,
    read_words,
    removed,
    usable,
    write,
)

ALL = (MEMORY, PIDS, CPU)
_HELPER = 16 << 20  # bytes of the helper itself, in addition to the memory of its commands
_PROCESSES = 3  # processes of the helper: its two halves, and a launcher (bubblewrap)
_STUBBORN = 1000  # refused forks after which a command counts as a fork bomb
_PATIENCE = deadline(0.5)  # seconds until a group must be empty after everything in it was killed
_numbers = count()
_looking = threading.Lock()  # groups are made by several threads, but the runner's own group is prepared once
_living: set[str] = set()  # names of the groups of this process


@dataclass(frozen=True, slots=True)
class GroupCounters:
    """The counters of a group since its creation: processor time in seconds, out-of-memory kills, and refused forks."""

    cpu: float = 0.0
    kills: int = 0
    refused: int = 0


class ControlGroup:
    """The groups (one per place) around one process and all processes that it will start. A thread makes the groups;
    the caller waits for it only in `limit` and `remove`."""

    def __init__(self, pid: int, places: tuple[CgroupPlace, ...] | None = None) -> None:
        self.places = places
        self.held: frozenset[str] = frozenset()
        self._name = f"{mark(os.getpid())}{next(_numbers)}"
        self._made: list[tuple[CgroupPlace, str]] = []
        self._files: dict[str, int] = {}
        self._before: dict[str, bytes] = {}  # the counters as they were when the command started
        self._cpu = 0
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
                write(path, "cgroup.procs", str(pid))
            except OSError:
                continue  # not added to `held`, so the watchdog counts
            self.held |= place.keeps

    def wait(self) -> None:
        """Wait until the process is in the groups: only then the processes that it starts are as well."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def limit(self, memory: int, pids: int, cpu: int) -> frozenset[str]:
        """Set the limits in bytes, processes and CPU seconds. Return the limits that the group enforces from now on."""
        self.wait()
        self._cpu = cpu
        for place, path in self._made:
            for what in place.keeps & self.held:
                try:
                    self._set(place, path, what, memory, pids)
                except OSError:
                    self.held -= {what}
        return self.held

    def _set(self, place: CgroupPlace, path: str, what: str, memory: int, pids: int) -> None:
        most = dict(place.most)
        if what == MEMORY:
            amount = str(min(memory + _HELPER, most.get(MEMORY, memory + _HELPER)))
            if place.version == 1:
                write(path, "memory.limit_in_bytes", amount)
                # Memory and swap together; a kernel that does not account for swap lacks the file.
                write(path, "memory.memsw.limit_in_bytes", amount, optional=True)
                self._open(path, "memory.oom_control")
            else:
                write(path, "memory.max", amount)
                write(path, "memory.swap.max", "0", optional=True)
                # One kill ends the whole command and its helper, so that no part of a command continues.
                write(path, "memory.oom.group", "1", optional=True)
                self._open(path, "memory.events")
        elif what == PIDS:
            write(path, "pids.max", str(min(pids + _PROCESSES, most.get(PIDS, pids + _PROCESSES))))
            self._open(path, "pids.events")
        else:
            self._open(path, "cpuacct.usage" if place.version == 1 else "cpu.stat")

    @property
    def version(self) -> int:
        return max((place.version for place, _ in self._made), default=0)

    def begin(self) -> None:
        """Start counting for a new command. Raises OSError as `used` does."""
        self._before = self._read()  # parsed only when needed

    def excess(self) -> str | None:
        """Return the limit that the command has passed, or None. `group` means that the counters cannot be read, so the
        command must end.
        """
        try:
            used = self.used()
        except OSError:
            return "group"
        before = _used(self._before)
        if used.kills > before.kills:
            return MEMORY
        if used.refused - before.refused > _STUBBORN:
            return PIDS
        return CPU if CPU in self.held and used.cpu - before.cpu >= self._cpu else None

    def refused(self) -> int:
        """Return the number of processes and threads of the command that the kernel refused to start since `begin`."""
        try:
            return max(self.used().refused - _used(self._before).refused, 0)
        except OSError:
            return 0

    def used(self) -> GroupCounters:
        """Return the counters. Raises OSError if the group was removed, so that no limit is enforced any more."""
        return _used(self._read())

    def _read(self) -> dict[str, bytes]:
        return {name: read(handle) for name, handle in self._files.items()}

    def remove(self) -> None:
        """Kill all processes inside and remove the groups. Calling this again has no effect."""
        self.wait()
        for handle in self._files.values():
            os.close(handle)
        self._files.clear()
        made, self._made = self._made, []
        until = time.monotonic() + _PATIENCE
        for place, path in made:
            while not removed(path) and time.monotonic() <= until:
                _empty(place, path)
                time.sleep(0.001)
        _living.discard(self._name)
        if not _living:
            move_back()

    def _open(self, path: str, name: str) -> None:
        if name not in self._files:
            self._files[name] = os.open(f"{path}/{name}", os.O_RDONLY | os.O_CLOEXEC)
            read(self._files[name])


def _used(counters: dict[str, bytes]) -> GroupCounters:
    """Return the counters from the content of the kernel's files by name."""
    cpu = field(counters.get("cpu.stat", b""), b"usage_usec") / 1e6
    if exact := counters.get("cpuacct.usage"):
        cpu = int(exact) / 1e9
    kills = counters.get("memory.oom_control") or counters.get("memory.events", b"")
    return GroupCounters(cpu, field(kills, b"oom_kill"), field(counters.get("pids.events", b""), b"max"))


def words(group: ControlGroup) -> str:
    """Return the name of the mechanism that enforces limits: `cgroup v1 (memory, pids, cpu)` or `watchdog`."""
    if not group.held:
        return "watchdog"
    others = [name for name in ALL if name not in group.held]
    text = f"cgroup v{group.version} ({', '.join(name for name in ALL if name in group.held)})"
    return f"{text}, watchdog ({', '.join(others)})" if others else text


def _new(path: str) -> None:
    os.mkdir(path, 0o755)  # the kernel adds the files


def _empty(place: CgroupPlace, path: str) -> None:
    """Kill all processes inside. No new process can start meanwhile if the group limits processes."""
    if place.version == 2:
        with contextlib.suppress(OSError):
            write(path, "cgroup.kill", "1")
            return
    if PIDS in place.keeps:
        with contextlib.suppress(OSError):
            write(path, "pids.max", "0")
    for word in read_words(path, "cgroup.procs"):
        with contextlib.suppress(OSError, ValueError):
            os.kill(int(word), signal.SIGKILL)
