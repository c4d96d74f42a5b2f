"""One request to a helper and its answer: two output streams and one last line, collected under limits."""

import errno
import os
import select
import signal
import socket
import time
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Self

from policy.model.deadline import deadline
from policy.model.verdict import Problem
from sandbox.backend import Enforcement, Listener, Outcome, OutputBuffer, Used
from sandbox.linux import helper_process

if TYPE_CHECKING:
    import asyncio

    from sandbox.linux.input_stream import InputStream
    from sandbox.workspace.autorun_watch import Live

_CHUNK = 1 << 16  # bytes
# Seconds of waiting without the event loop: most small commands take less, and two turns of the loop take longer.
_AT_ONCE = 0.002
# The seconds of `_AT_ONCE` in which the runner polls instead of sleeping if a processor is idle, because to sleep and
# wake up takes a fifth of the time of a small command. Polling uses at most this processor time for one command.
_AWAKE = 0.0015
_TAKEN = 0.0001  # seconds: if sched_yield(2) takes longer, another process needs the processor
_LOOK = 0.2  # seconds between two checks of the limits
_DIGITS = 16  # digits of the largest number of milliseconds or KiB that is accepted from a helper
_DRAIN = deadline(1.0)  # seconds that streams may stay open after all processes that could hold them were killed


class Interrupted(BaseException):
    """The error of a wait that `PollWait.interrupt` ended, as CancelledError is that of a task."""


class PollWait:
    """The waits of the main thread without an event loop, for a program that runs one command and nothing beside it.
    Handlers of signals may interrupt them. It is used as a context.

    The import of `asyncio` takes longer than the start of a bare interpreter.

    SAFETY: Python calls a handler between two of its instructions. For a signal just before poll(2) it would call the
    handler only after the wait, so the signal itself makes a pipe readable that is polled as well (`set_wakeup_fd`).
    """

    def __init__(self) -> None:
        self._asked = False
        self._reading = self._writing = self._before = -1

    def __enter__(self) -> Self:
        self._reading, self._writing = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._before = signal.set_wakeup_fd(self._writing, warn_on_full_buffer=False)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        signal.set_wakeup_fd(self._before)
        os.close(self._reading)
        os.close(self._writing)

    def interrupt(self) -> None:
        """End the present wait, or else the next one, with `Interrupted`. Waits after that one are not affected."""
        self._asked = True

    def ready(self, poll: select.poll, seconds: float) -> list[tuple[int, int]]:
        """Return the events of `poll`; none if there were none in `seconds`, or if a signal came that interrupts
        nothing. Raises Interrupted.
        """
        poll.register(self._reading, select.POLLIN)
        try:
            found = poll.poll(max(seconds, 0.0) * 1000) if not self._asked else []
        finally:
            poll.unregister(self._reading)
        if any(handle == self._reading for handle, _ in found):
            os.read(self._reading, 4096)
            found = [each for each in found if each[0] != self._reading]
        if self._asked:
            self._asked = False
            raise Interrupted
        return found


class HelperRequest(OutputBuffer):
    """One request over the socket `control`, with the output and the last line of its answer. An object is used once.

    Attributes:
        line: The last line of the answer; None before it arrives, empty if the helper is gone.
        handed: Descriptors that came with the answer.
        given: Bytes of standard input that were copied from a descriptor.
    """

    def __init__(
        self,
        control: socket.socket,
        most: int,
        listen: Listener | None,
        *,
        handed: int = 0,
        eager: bool = False,
        alarm: "Live | None" = None,
        waits: PollWait | None = None,
    ) -> None:
        """Prepare the request.

        Args:
            most: Bytes of output.
            handed: Number of descriptors that may come with the answer; the caller closes them.
            eager: True if an idle processor is available for the runner.
            alarm: The watch over the command, which may end it.
            waits: The waits of a program without an event loop, which has no `alarm`; None in an event loop.
        """
        super().__init__(most, listen)
        self.control = control
        self.line: str | None = None
        self.handed: tuple[int, ...] = ()
        self.given = 0
        self._alarm, self._room, self._eager, self._waits = alarm, handed, eager, waits
        self._text = b""
        self._open: dict[int, int] = {}  # read end -> stream index

    @property
    def finished(self) -> bool:
        return self.line == "" or (self.line is not None and not self._open)

    def send(self, request: dict[str, object], handles: list[int]) -> None:
        helper_process.send(self.control, request, handles)

    async def run(
        self,
        request: dict[str, object],
        stdin: bytes | int | None,
        wall: float,
        excess: Callable[[], str | None],
    ) -> str | None:
        """Run the request, and return the limit that must end it, or None if the answer is complete.

        `stdin` is the whole standard input, or a descriptor whose data is copied as it arrives; without an event loop
        only a descriptor.
        The limit is `wall` (seconds), `output`, `watch` for the alarm, or the result of `excess`, which is called at
        intervals. If the helper is gone, `line` is empty. Raises CancelledError, and OSError from the listener.
        """
        given = stdin is not None and stdin != b""
        ends = [os.pipe2(os.O_CLOEXEC) for _ in range(3 if given else 2)]
        writes = [write for _, write in ends[-2:]]
        self._open = {read: index for index, (read, _) in enumerate(ends[-2:])}
        feeding: asyncio.Task[None] | None = None
        streaming: InputStream | None = None
        handles = ([ends[0][0]] if given else []) + writes
        try:
            try:
                self.send(request, handles)
            except BaseException as error:
                if given:
                    os.close(ends[0][1])
                if not isinstance(error, BrokenPipeError | ConnectionResetError):
                    raise
                self.line = ""  # the helper is gone
                return None
            finally:
                for handle in handles:
                    os.close(handle)
            if isinstance(stdin, int):
                from sandbox.linux import input_stream  # most commands get no input

                streaming = input_stream.InputStream(stdin, ends[0][1])  # closes the pipe at its end
            elif stdin:
                from asyncio import create_task

                feeding = create_task(_feed(ends[0][1], stdin))  # closes the pipe at its end
            started = time.monotonic()
            if feeding is None:  # else the command waits for input that only the event loop can send
                self._wait_here(started, min(_AT_ONCE, wall), self._eager)
            if self._alarm is not None and not self.finished:
                self._alarm.begin()
            while not self.finished and not self.over:
                left = wall - (time.monotonic() - started)
                await self._wait(min(left, _LOOK))
                if self.finished or self.over:
                    break
                if self._alarm is not None:
                    self._alarm.tick()
                    if self._alarm.raised:
                        return "watch"
                if left <= _LOOK:
                    return "wall"
                if (passed := excess()) is not None:
                    return passed
            return None if self.finished else "output"
        finally:
            if feeding is not None:
                feeding.cancel()
            if streaming is not None:
                streaming.close()
                self.given = streaming.copied

    async def settle(self, seconds: float) -> None:
        """Wait at most `seconds` for the last line, then for the streams to close."""
        await self._wait(seconds, stop_when_over=False)

    def close(self) -> None:
        for read in self._open:
            os.close(read)
        self._open.clear()

    def _wait_here(self, started: float, seconds: float, eager: bool = False, *, stop_when_over: bool = True) -> None:
        """Read without an event loop until the answer is complete, the output limit is passed, or `seconds` after
        `started`. With `eager` the first moment is spent without sleeping.
        """
        poll = select.poll()
        for handle in self._watched():
            poll.register(handle, select.POLLIN)
        awake = started + min(_AWAKE, seconds) if eager else 0.0
        while not self.finished and not (self.over and stop_when_over):
            ready = self._ready(poll, 0.0)
            now = time.monotonic()
            while not ready and now < awake:
                os.sched_yield()
                ready = self._ready(poll, 0.0)
                before, now = now, time.monotonic()
                if now - before > _TAKEN:
                    awake = 0.0  # another process wants this processor: the helper itself, for example
            left = started + seconds - now
            if left <= 0:
                return
            for handle, event in ready or self._ready(poll, left):
                # The end of a pipe that is empty comes without POLLIN (pipe(7), poll(2)).
                if (handle in self._open and not event & select.POLLIN) or not self._read(handle):
                    poll.unregister(handle)
                    self._shut(handle)

    async def _wait(self, seconds: float, *, stop_when_over: bool = True) -> None:
        """Read until the answer is complete, the output limit is passed, or `seconds` are over. If the last line has
        arrived by then, wait up to one more second for the streams."""
        if self.finished:
            return
        if self._waits is not None:
            self._wait_here(time.monotonic(), seconds, stop_when_over=stop_when_over)
            if self.line is not None and not self.finished and not (self.over and stop_when_over):
                self._wait_here(time.monotonic(), _DRAIN, stop_when_over=stop_when_over)
            return
        import asyncio

        loop = asyncio.get_running_loop()
        done: asyncio.Future[None] = loop.create_future()
        # INVARIANT: a number is removed here before its descriptor is closed, because another exchange may get it next.
        watched = set(self._watched())

        def finish() -> None:
            if not done.done():
                done.set_result(None)

        def on_readable(handle: int) -> None:
            try:
                more = self._read(handle)
            except Exception as error:  # the seam of a callback: a listener that fails ends the exchange, not the loop
                if not done.done():
                    done.set_exception(error)
                return
            if not more:
                watched.discard(handle)
                loop.remove_reader(handle)
                self._shut(handle)
            if self.finished or (self.over and stop_when_over):
                finish()

        for handle in watched:
            loop.add_reader(handle, on_readable, handle)
        alarm = self._alarm if stop_when_over else None
        if alarm is not None:
            alarm.attach(done.done, finish)
        try:
            await asyncio.wait({done}, timeout=max(seconds, 0))
            if self.line is not None and not done.done():
                await asyncio.wait({done}, timeout=_DRAIN)
            if done.done():
                done.result()
        finally:
            for handle in watched:
                loop.remove_reader(handle)
            if alarm is not None:
                alarm.detach()

    def _ready(self, poll: select.poll, seconds: float) -> list[tuple[int, int]]:
        return self._waits.ready(poll, seconds) if self._waits is not None else poll.poll(seconds * 1000)

    def _watched(self) -> list[int]:
        """Return the descriptors on which data may arrive: the socket until the last line, and the open streams."""
        return [*([self.control.fileno()] if self.line is None else []), *self._open]

    def _shut(self, handle: int) -> None:
        if self._open.pop(handle, None) is not None:
            os.close(handle)

    def _read(self, handle: int) -> bool:
        """Read the available data of `handle`. Return False at its end."""
        if handle == self.control.fileno():
            return self._read_line()
        chunk = os.read(handle, _CHUNK)  # does not block: the pipe is readable and has no other reader
        if not chunk:
            return False
        self.take(self._open[handle] + 1, chunk)
        return True

    def _read_line(self) -> bool:
        try:
            if self._room:
                chunk, handles, _, _ = socket.recv_fds(self.control, 4096, self._room, socket.MSG_CMSG_CLOEXEC)
                self.handed += tuple(handles)
            else:
                chunk = self.control.recv(4096)  # SAFETY: recv(2) has no room for descriptors, so it drops them
        except BlockingIOError:
            return True
        except ConnectionResetError:  # the helper ended before it had read the whole request
            chunk = b""
        self._text += chunk
        if not chunk:
            self.line = ""
        elif b"\n" in self._text:
            self.line = self._text.partition(b"\n")[0].decode("ascii", "replace")
        return bool(chunk) and self.line is None


async def _feed(handle: int, data: bytes) -> None:
    """Write `data` to a pipe without blocking the loop, and close it. A reader that has ended is no error."""
    import asyncio

    os.set_blocking(handle, False)
    view = memoryview(data)
    try:
        while view:
            try:
                view = view[os.write(handle, view) :]
            except BlockingIOError:
                await asyncio.sleep(0.005)
            except BrokenPipeError:
                return
    finally:
        os.close(handle)


def ended_outcome(
    line: str,
    streams: tuple[bytes, bytes],
    seconds: float,
    ended: str | None,
    excess: Callable[[], str | None],
    enforcement: Enforcement,
) -> Outcome:
    """Return the outcome of a program that was started, from the last line of its helper (empty if it is gone).

    The helper is not trusted: every value of the line is checked. `ended` is the limit that the runner saw passed, or
    None, and `excess` tells the limit of the control group that was passed.
    """
    out, err = streams
    verb, _, rest = line.partition(" ")
    # An out-of-memory kill may come between two checks, and may have ended the helper itself.
    passed = excess() if ended is None and not line.startswith("exit 0 - ") else None
    if verb != "exit":
        if ended or passed:
            return Outcome(137, out, err, seconds, ended or passed, ended == "output")
        return Outcome(125, out, err, seconds, "helper", problem=GONE)
    code, _, told_of = rest.partition(" ")
    why, *numbers = told_of.split(" ")
    if ended == "watch" and why == "-":
        ended = None  # the command ended by itself before the watch ended it
    ended = ended or passed or (None if why == "-" else why)
    used = None  # the helper is not trusted: values that are no numbers are ignored
    if len(numbers) == 2 and all(each.isdigit() and len(each) < _DIGITS for each in numbers):
        used = Used(int(numbers[0]) / 1000, int(numbers[1]) << 10)
    result = (out, err, seconds, ended, ended == "output")
    return Outcome(int(code), *result, enforcement=enforcement, used=used)


GONE = Problem("the sandbox helper ended while a command ran", "the command ended with the helper process", "try again")


def not_started(rest: str, request: dict[str, object], seconds: float) -> Outcome:
    """Return the outcome for a program that did not start, from the rest of the line `failed ERRNO NAME`.

    The status is that of a shell for such a program: 127 or 126.
    """
    number, _, name = rest.partition(" ")
    code = int(number) if number.isdigit() else 0
    argv = request.get("argv")
    program = str(argv[0]) if isinstance(argv, list) and argv else "the action"
    reason = os.strerror(code).lower() if code else "the sandbox refused"
    status = 127 if code == 2 else 126
    text = f"{name or program}: {reason}\n"
    fix = "check the name, and that the folder and the program are in the workspace or a system folder"
    if code == errno.EACCES:
        held = "in the sandbox they hold for root, too"
        fix = f"check the modes of the working folder and of the program: {held}"
    why = f"{reason} (inside the sandbox, where only granted paths exist)"
    problem = Problem(f"`{program}` could not be started", why, fix)
    return Outcome(status, b"", text.encode(), seconds, problem=problem)
