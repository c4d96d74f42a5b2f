"""What one command in a container uses up, with all that it started, counted from outside."""

import asyncio
import signal

from policy.model.verdict import Limits
from sandbox.container.processes import Processes
from sandbox.inside.disk_space import Space


class Usage:
    """Made when a command starts; asked every `pause` seconds while it runs, and once when it is over."""

    def __init__(self, limits: Limits, processes: Processes, folders: tuple[str, ...]) -> None:
        """`folders`: those on a disk that it may write to, as the host names them."""
        self._limits = limits
        self._processes = processes
        self._cpu, self._kills = processes.cpu(), processes.memory_kills()
        self._space = Space(folders, limits.disk)
        self._space.begin()

    @property
    def pause(self) -> float:
        """Seconds until the next look."""
        return self._space.pause

    def excess(self) -> str | None:
        """The limit that the whole tree has passed, by its name, as far as that costs nothing to know."""
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
