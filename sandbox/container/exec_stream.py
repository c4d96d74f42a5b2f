"""The streams of one running command, and when it is over."""

import asyncio
import contextlib
import os

from policy.model.frozen import dataclass
from sandbox.backend import Listener
from sandbox.container.attach_stream import Wire
from sandbox.linux.helper_request import Alarm


@dataclass(frozen=True, slots=True)
class Ended:
    """The end of one command.

    Attributes:
        why: Name of the limit that ended the command, or None.
        failed: The daemon's error text if it could not start the command.
        refused: Number of processes that the kernel did not start for the command.
    """

    status: int
    out: bytes
    err: bytes
    why: str | None
    failed: str = ""
    refused: int = 0


class Running:
    """The output so far of one running command. The caller closes it."""

    def __init__(self, most: int, listen: Listener | None) -> None:
        self.streams = (bytearray(), bytearray())
        self.over = False  # the output limit was passed
        self._most = most
        self._listen = listen
        self._wire: Wire | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._ended = asyncio.Event()
        self._handle = -1
        self._alarm: Alarm | None = None

    @property
    def done(self) -> bool:
        """Return True if the streams or the main process of the command have ended."""
        return self._ended.is_set()

    def follow(self, wire: Wire, stdin: bytes | None) -> None:
        self._wire = wire
        self._tasks = [asyncio.create_task(self._read(wire))]
        if stdin:
            self._tasks.append(asyncio.create_task(wire.feed(stdin)))

    async def wait(self, seconds: float) -> None:
        """Wait until the command is done, at most `seconds`. Raises the error of the listener."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._ended.wait()
        self._check()

    async def settle(self, seconds: float) -> None:
        """Give the streams a moment to end."""
        if self._tasks:
            await asyncio.wait(self._tasks[:1], timeout=seconds)
            self._check()

    def watch(self, pid: int) -> None:
        """Set `done` when process `pid` ends."""
        try:
            self._handle = os.pidfd_open(pid)
        except ProcessLookupError:
            self._ended.set()
        else:
            asyncio.get_running_loop().add_reader(self._handle, self._ended.set)

    def heed(self, alarm: Alarm) -> None:
        """Set `done` when the alarm is raised."""
        alarm.begin()
        if alarm.fileno() < 0:
            return
        self._alarm = alarm
        loop = asyncio.get_running_loop()

        def on_alarm() -> None:
            alarm.look()
            if alarm.raised:
                self._ended.set()

        def grow() -> None:
            more = not self.done and alarm.grow()
            if alarm.raised:
                self._ended.set()
            elif more:
                loop.call_soon(grow)

        loop.add_reader(alarm.fileno(), on_alarm)
        grow()

    def close(self) -> None:
        if self._alarm is not None:
            asyncio.get_running_loop().remove_reader(self._alarm.fileno())
        if self._handle != -1:
            asyncio.get_running_loop().remove_reader(self._handle)
            os.close(self._handle)
        for task in self._tasks:
            task.cancel()
        if self._wire is not None:
            self._wire.close()

    async def _read(self, wire: Wire) -> None:
        try:
            await wire.read(self._take)
        finally:
            self._ended.set()

    def _take(self, stream: int, piece: bytes) -> bool:
        room = self._most - len(self.streams[0]) - len(self.streams[1])
        if len(piece) > room:
            piece, self.over = piece[:room], True
        self.streams[stream - 1].extend(piece)
        if self._listen is not None and piece:
            self._listen(stream, piece)
        return not self.over

    def _check(self) -> None:
        reading = self._tasks[0]
        if reading.done() and not reading.cancelled() and (error := reading.exception()) is not None:
            raise error
