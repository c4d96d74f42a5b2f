"""What one command in a container uses up, with all that it started, counted from outside."""

import asyncio
import os
import time

from policy.verdict import Limits
from sandbox.container.processes import Processes
from sandbox.watchdog import written

_CLOCK = 2.0  # seconds by which a file system's clock may be behind ours


class Usage:
    """Made when a command starts; `excess` now and then while it runs, and once when it is over."""

    def __init__(self, limits: Limits, processes: Processes, folders: tuple[str, ...]) -> None:
        """`folders`: those on a disk that it may write to, as the host names them."""
        self._limits = limits
        self._processes = processes
        self._folders = folders
        self._started = time.time()
        self._cpu, self._kills = processes.cpu(), processes.memory_kills()
        self._free = {folder: _free(folder) for folder in folders}
        self._cleared = float(limits.disk)  # a loss of space up to here is not the command's, or is within its limit

    def excess(self) -> str | None:
        """The limit that the whole tree has passed, by its name, as far as that costs nothing to know."""
        if self._processes.memory_kills() > self._kills:
            return "memory"
        if self._limits.cpu and self._processes.cpu() - self._cpu >= self._limits.cpu:
            return "cpu"
        return None

    async def filled(self) -> bool:
        """Whether it wrote more than it may. Free space is cheap to ask for, but others use it too: what is lost is
        looked for before it counts."""
        lost = max((free - _free(folder) for folder, free in self._free.items()), default=0)
        if not self._limits.disk or lost <= self._cleared:
            return False
        if lost > 2 * self._limits.disk:
            return True  # whoever it is: the machine comes first
        if await asyncio.to_thread(written, self._folders, self._started - _CLOCK) > self._limits.disk:
            return True
        self._cleared = lost + self._limits.disk / 8
        return False


def _free(folder: str) -> int:
    """Bytes; 0 where nobody tells, now and later."""
    try:
        found = os.statvfs(folder)
    except OSError:
        return 0
    return found.f_bavail * found.f_frsize
