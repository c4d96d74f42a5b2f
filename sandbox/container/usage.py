"""Resources that one command in a container uses with all its descendants, counted from outside."""

import asyncio
import signal

from policy.model.verdict import Limits
from sandbox.container.processes import Processes
from sandbox.inside.disk_space import Space


class Usage:
    """The counter of one command: created at its start, checked every `pause` seconds, and once after its end."""

    def __init__(self, limits: Limits, processes: Processes, folders: tuple[str, ...]) -> None:
        """Start counting. `folders` are those on a disk to which the command may write, as the host names them."""
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
        """Return the name of the limit that the whole tree has passed, from the counters that are cheap to read."""
        if self._processes.memory_kills() > self._kills:
            return "memory"
        if self._limits.cpu and self._processes.cpu() - self._cpu >= self._limits.cpu:
            return "cpu"
        return None

    async def filled(self) -> bool:
        """Return True when the command wrote more than it may. It is stopped while its files are counted."""
        space = self._space
        space.look()
        if not space.suspect or space.far:
            return space.far
        self._processes.send_all(signal.SIGSTOP)
        if await asyncio.to_thread(space.written) > space.limit:
            return True
        space.look()
        space.clear()
        self._processes.send_all(signal.SIGCONT)
        return space.far
