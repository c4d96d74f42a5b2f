"""The processes of one container, counted and ended from outside, because no program inside is trusted.

Source: cgroups(7), `memory.events` and `memory.oom_control` of the kernel's cgroup documentation.
"""

import asyncio
import contextlib
import os
import re
import signal

from policy.model.verdict import Limits
from sandbox.inside.disk_space import Space
from sandbox.inside.safe_rmtree import closing

ROUNDS = 40  # attempts to kill or signal all processes
PAUSE = 0.002  # seconds between two rounds


class Processes:
    """The control group of a container whose first process is `pid`. `seen` is True if its processes are visible here.

    The process numbers of a daemon in a virtual machine or in another PID namespace are not valid here.
    """

    def __init__(self, container: str, pid: int) -> None:
        self._container = container
        folders = _folders(container, pid) if pid > 0 else {}
        self._folder, self._memory, self._cpu = (folders.get(name, "") for name in ("pids", "memory", "cpuacct"))
        self._refused = 0
        self._kept: frozenset[int] = frozenset(self._all())

    @property
    def seen(self) -> bool:
        return bool(self._kept)

    @property
    def alive(self) -> bool:
        """Return True if the processes that keep the container exist."""
        return self._kept <= set(self._all())

    def left(self) -> list[int]:
        """Return the processes other than those that keep the container."""
        return [pid for pid in self._all() if pid not in self._kept]

    async def clear(self) -> bool:
        """Kill all processes of commands. Return True if certainly none is left."""
        for _ in range(ROUNDS):
            if not self.strike():
                return True
            await asyncio.sleep(PAUSE)
        return not self.left()

    def strike(self, *, everything: bool = False) -> bool:
        """Kill all processes once, and return True if there were any.

        With `everything`, also kill those that keep the container, so that the daemon cannot start anything more in it.
        """
        pids = sorted(self._all()) if everything else self.left()
        for pid in pids:
            self._send(pid, signal.SIGKILL)
        return bool(pids)

    def send_all(self, number: int) -> None:
        """Send a signal to all processes of commands, until there are no new ones (at most `ROUNDS` times)."""
        signalled: set[int] = set()
        for _ in range(ROUNDS):
            new = set(self.left()) - signalled
            if not new:
                return
            for pid in new:
                self._send(pid, number)
            signalled |= new

    def _send(self, pid: int, number: int) -> None:
        # A process that ended meanwhile, or may not be signalled, is no error: the caller checks again.
        with contextlib.suppress(OSError), closing(os.pidfd_open(pid)) as handle:
            # SAFETY: the number may be reused, so the process of the descriptor must be in the container's group.
            if self._container in _read(f"/proc/{pid}/cgroup"):
                signal.pidfd_send_signal(handle, number)

    def memory_kills(self) -> int:
        """Return the number of processes that the kernel has ended for lack of memory."""
        return max(_number(self._memory, name, "oom_kill") for name in ("memory.events", "memory.oom_control"))

    def cpu(self) -> float:
        """Return the processor time of all processes of the container so far, in seconds; 0 if it is unknown."""
        if nanoseconds := _read(os.path.join(self._cpu, "cpuacct.usage")).strip():
            return int(nanoseconds) / 1e9
        return _number(self._cpu, "cpu.stat", "usage_usec") / 1e6

    def refused(self) -> int:
        """Return the number of processes that the kernel did not start since the last call, because of the limit."""
        before, self._refused = self._refused, _number(self._folder, "pids.events", "max")
        return self._refused - before

    def _all(self) -> list[int]:
        return [int(pid) for pid in _read(os.path.join(self._folder, "cgroup.procs")).split()] if self._folder else []


def _folders(container: str, pid: int) -> dict[str, str]:
    """Return the control groups of a process: those that list processes, count memory and count processor time."""
    by_controller: dict[str, str] = {}
    for line in _read(f"/proc/{pid}/cgroup").splitlines():
        _, names, path = line.split(":", 2)
        if container in path:
            by_controller |= dict.fromkeys(names.split(","), path)
    there: dict[str, str] = {}
    for name in ("pids", "memory", "cpuacct"):
        own = f"/sys/fs/cgroup/{name}{by_controller.get(name, '')}"
        shared = f"/sys/fs/cgroup{by_controller.get('', '')}"
        if name in by_controller and os.path.isdir(own):
            there[name] = own
        elif "" in by_controller and os.path.exists(f"{shared}/cgroup.procs"):  # version 2: one group for everything
            there[name] = shared
    return there


def _number(folder: str, name: str, field: str) -> int:
    """Return the number after `field` in a file of lines `FIELD NUMBER`; 0 if there is none."""
    match = re.search(rf"^{field} (\d+)$", _read(os.path.join(folder, name)), re.MULTILINE)
    return int(match[1]) if match else 0


def _read(path: str) -> str:
    with contextlib.suppress(OSError), open(path, encoding="ascii", errors="replace") as file:
        return file.read()
    return ""


class ContainerUsage:
    """The counter of one command: created at its start, checked every `pause` seconds, and once after its end."""

    def __init__(self, limits: Limits, processes: Processes, folders: tuple[str, ...]) -> None:
        """Start counting. `folders` are the folders on a disk that the command may write to, as paths of the host."""
        self._limits = limits
        self._processes = processes
        self._cpu, self._kills = processes.cpu(), processes.memory_kills()
        self._space = Space(folders, limits.disk)
        self._space.begin()

    @property
    def pause(self) -> float:
        """Return the seconds until the next check."""
        return self._space.pause

    def excess(self) -> str | None:
        """Return the name of the limit (memory or cpu) that the container has passed, or None."""
        if self._processes.memory_kills() > self._kills:
            return "memory"
        if self._limits.cpu and self._processes.cpu() - self._cpu >= self._limits.cpu:
            return "cpu"
        return None

    async def filled(self) -> bool:
        """Return True if the command wrote more than its limit. The command is stopped while its files are counted."""
        space = self._space
        space.look()
        if not space.suspect or space.over_hard_limit:
            return space.over_hard_limit
        self._processes.send_all(signal.SIGSTOP)
        if await asyncio.to_thread(space.written) > space.limit:
            return True
        space.look()
        space.clear()
        self._processes.send_all(signal.SIGCONT)
        return space.over_hard_limit
