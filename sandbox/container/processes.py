"""All processes of one container, seen and ended from outside: nothing in there is trusted to count or end them.

Source: cgroups(7), `memory.events` and `memory.oom_control` of the kernel's cgroup documentation.
"""

import asyncio
import contextlib
import os
import re
import signal

ROUNDS = 40
PAUSE = 0.002  # seconds between two rounds


class Processes:
    """The control group of a container whose first process is `pid`. `seen`: whether we share the daemon's view.

    A daemon in a virtual machine or in another PID namespace has process numbers that mean nothing here.
    """

    def __init__(self, container: str, pid: int) -> None:
        self._container = container
        self._folder, self._memory = _folders(container, pid) if pid > 0 else ("", "")
        self._refused = 0
        self._kept: frozenset[int] = frozenset(self._all())
        self.kills = self.memory_kills()

    @property
    def seen(self) -> bool:
        return bool(self._kept)

    @property
    def alive(self) -> bool:
        """Whether the processes that keep the container are there."""
        return self._kept <= set(self._all())

    def left(self) -> list[int]:
        """What runs beside the processes that keep the container."""
        return [pid for pid in self._all() if pid not in self._kept]

    async def clear(self) -> bool:
        """Kill all that commands started. True when certainly nothing of it is left."""
        for _ in range(ROUNDS):
            if not self.strike():
                return True
            await asyncio.sleep(PAUSE)
        return not self.left()

    def strike(self) -> bool:
        """One round of killing; whether there was anybody."""
        found = self.left()
        for pid in found:
            with contextlib.suppress(OSError):  # it ended meanwhile, or is not ours to kill: the caller looks again
                handle = os.pidfd_open(pid)
                try:
                    # SAFETY: the number may be another process's by now; the handle is what was in the container.
                    if self._container in _read(f"/proc/{pid}/cgroup"):
                        signal.pidfd_send_signal(handle, signal.SIGKILL)
                finally:
                    os.close(handle)
        return bool(found)

    def memory_kills(self) -> int:
        """How many processes the kernel has ended for want of memory."""
        for name in ("memory.events", "memory.oom_control"):
            if found := re.search(r"^oom_kill (\d+)$", _read(os.path.join(self._memory, name)), re.MULTILINE):
                return int(found[1])
        return 0

    def refused(self) -> int:
        """How many processes the kernel did not start since this was last asked: their limit was reached."""
        found = re.search(r"^max (\d+)$", _read(os.path.join(self._folder, "pids.events")), re.MULTILINE)
        before, self._refused = self._refused, int(found[1]) if found else 0
        return self._refused - before

    def _all(self) -> list[int]:
        return [int(pid) for pid in _read(os.path.join(self._folder, "cgroup.procs")).split()] if self._folder else []


def _folders(container: str, pid: int) -> tuple[str, str]:
    """Where the control groups of a process lie: that which lists processes, and that which counts memory."""
    found: dict[str, str] = {}
    for line in _read(f"/proc/{pid}/cgroup").splitlines():
        _, names, path = line.split(":", 2)
        if container not in path:
            continue
        for name in names.split(","):
            found[name] = path
    roots = {
        "pids": "/sys/fs/cgroup/pids",
        "memory": "/sys/fs/cgroup/memory",
        "": "/sys/fs/cgroup",
    }
    there = {name: roots[name] + path for name, path in found.items() if name in roots}
    there = {name: path for name, path in there.items() if os.path.isdir(path)}
    both = there.get("", "")
    return there.get("pids", both), there.get("memory", both)


def _read(path: str) -> str:
    try:
        with open(path, encoding="ascii", errors="replace") as file:
            return file.read()
    except OSError:
        return ""
