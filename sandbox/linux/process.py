"""A confined process tree of T1, T2 or T3 that stays while later commands run: one helper of its own."""

import asyncio
import contextlib
import errno
import fcntl
import os
import select
import socket
import struct
import termios
import time

from policy.model.action import RunArgv, RunScript
from policy.model.deadline import deadline
from policy.model.verdict import Permit
from sandbox.backend import Listener, Outcome, SandboxUnavailable, TerminalSize, argv_of
from sandbox.linux.command_watch import CommandWatch
from sandbox.linux.helper_handle import GRACE, PARTING, HelperHandle
from sandbox.linux.helper_process import send
from sandbox.linux.helper_request import ended_outcome, not_started
from sandbox.linux.process_watch import LateFiles
from sandbox.linux.supervised_process import END_OF_FILE, LOOK, TAIL, FinishOutcome, SupervisedProcess

READY = 30.0  # seconds until a helper that does not start its command counts as failed
_AT_ONCE = 0.002  # seconds of waiting for the start without the event loop
_CHUNK = 1 << 16  # bytes
_DRAIN = deadline(1.0)  # seconds that the streams may stay open after all processes that could hold them were killed


class LinuxProcess(SupervisedProcess):
    """One process tree and its helper. `begin` starts it, and a task supervises it until its end."""

    def __init__(
        self,
        permit: Permit,
        helper: HelperHandle,
        watch: CommandWatch,
        late: LateFiles | None,
        listen: Listener,
    ) -> None:
        """Prepare the process. `late` watches for files that its mounts do not cover; None without a private root."""
        super().__init__(permit, helper.enforcement, helper.egress, watch, late)
        self._helper, self._listen = helper, listen
        self._control: socket.socket = helper.control
        self._outputs: dict[int, int] = {}  # the descriptor that is read -> number of the stream
        self._input = -1  # the descriptor that is written; -1 after its end
        self._terminal = False
        self._tails = (bytearray(), bytearray())
        self._text = b""  # what the helper said after its last whole line
        self._answer: str | None = None  # the last line of the helper; empty if it is gone
        self._why: str | None = None  # the reason for which the process was asked to end
        self._said = asyncio.Event()  # set when there is an answer, or a reason to look
        self._answered = asyncio.Event()
        self._closed = asyncio.Event()  # set when no stream is open
        self._writing = asyncio.Lock()
        self._failure: Exception | None = None  # of the listener

    # ---- the start

    async def begin(self, terminal: TerminalSize | None, complete: FinishOutcome) -> None:
        """Start the command, and the task that supervises it. `complete` ends the helper and adds the violations.

        Raises SandboxUnavailable if the helper is gone; then nothing ran.
        """
        try:
            self._begin_watches()  # before the command can create a file
            await self._start(terminal)
        except BaseException:
            self._end_watches()
            self._close_streams()
            self._kill()  # first, so that the command cannot create files after the scan
            self._watch.settle()
            self._watch.close()
            raise
        self._task = asyncio.create_task(self._supervise(complete))
        if self._answered.is_set():  # the program was not started: the caller sees a process that has ended
            await asyncio.wait({self._task})

    async def _start(self, terminal: TerminalSize | None) -> None:
        action, helper = self.permit.action, self._helper
        assert isinstance(action, RunScript | RunArgv)
        request: dict[str, object] = {"op": "spawn", "argv": list(argv_of(action)), "cwd": action.cwd, "stays": True}
        handles: list[int] = []
        line, received = "", tuple[int, ...]()
        try:
            if terminal is not None:
                request["terminal"] = (terminal.rows, terminal.columns)
            else:
                source, self._input = os.pipe2(os.O_CLOEXEC)
                handles.append(source)
                for stream in (1, 2):
                    read, write = os.pipe2(os.O_CLOEXEC)
                    self._outputs[read] = stream
                    handles.append(write)
            helper.group.begin()
            if self._egress is not None:
                self._egress.begin()
            send(self._control, request, handles)
            line, received = await self._first_line()
        except OSError:  # the helper is gone, or this process has no descriptor left; a TimeoutError is an OSError
            line = ""
        finally:
            for handle in handles:
                os.close(handle)
        if line.startswith("failed "):
            self._answered_in(f"{line}\n".encode())
            self._close_streams()
            return
        if line != "started" or len(received) != (terminal is not None):
            for handle in received:
                os.close(handle)
            what, why = "the command could not be started", "the sandbox helper ended, or gave no answer"
            raise SandboxUnavailable.of(what, why, "try again; nothing was run")
        if terminal is not None:
            self._terminal = True
            self._input = received[0]
            self._outputs[received[0]] = 1
        loop = asyncio.get_running_loop()
        for handle in {self._input, *self._outputs}:
            os.set_blocking(handle, False)
        for handle in self._outputs:
            loop.add_reader(handle, self._take, handle)
        if not self._answered_in(self._text):
            loop.add_reader(self._control, self._hear)

    async def _first_line(self) -> tuple[str, tuple[int, ...]]:
        """Return the first answer of the helper, and the descriptors that came with it."""
        poll = select.poll()
        poll.register(self._control, select.POLLIN)
        if not poll.poll(_AT_ONCE * 1000):  # most programs have started by then, and the event loop takes longer
            loop = asyncio.get_running_loop()
            readable = asyncio.Event()
            loop.add_reader(self._control, readable.set)
            try:
                async with asyncio.timeout(READY):
                    await readable.wait()
            finally:
                loop.remove_reader(self._control)
        data, handles, _, _ = socket.recv_fds(self._control, 4096, 1, socket.MSG_CMSG_CLOEXEC)
        line, _, self._text = data.partition(b"\n")
        return line.decode("ascii", "replace"), tuple(handles)

    # ---- the Process protocol

    async def write(self, data: bytes) -> None:
        async with self._writing:
            view = memoryview(data)
            while view:
                if self._input < 0 or self._answer is not None:
                    raise BrokenPipeError("the process reads no more input")
                try:
                    view = view[os.write(self._input, view) :]
                except BlockingIOError:
                    await self._writable()
                except OSError as error:  # EIO of a terminal whose programs have ended
                    raise BrokenPipeError(error.errno, error.strerror) from None

    async def _writable(self) -> None:
        loop, handle = asyncio.get_running_loop(), self._input
        writable = asyncio.Event()
        loop.add_writer(handle, writable.set)
        waiting = [asyncio.create_task(event.wait()) for event in (writable, self._answered)]
        try:
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in waiting:
                each.cancel()
            if self._input == handle:  # else `close_input` has closed it
                loop.remove_writer(handle)

    def close_input(self) -> None:
        if self._input < 0:
            return
        if self._terminal:
            with contextlib.suppress(OSError):  # full, or its programs have ended
                os.write(self._input, END_OF_FILE)
            return
        handle, self._input = self._input, -1
        asyncio.get_running_loop().remove_writer(handle)
        os.close(handle)

    def resize(self, size: TerminalSize) -> None:
        if self._terminal and self._input >= 0:
            fcntl.ioctl(self._input, termios.TIOCSWINSZ, struct.pack("HHHH", size.rows, size.columns, 0, 0))

    async def signal(self, number: int) -> None:
        if self._answer is None and self._why is None:
            with contextlib.suppress(OSError):  # the helper has just ended
                send(self._control, {"op": "signal", "number": int(number)}, [])

    async def end(self, why: str = "cancelled") -> Outcome:
        if self._why is None:
            self._why = why
            self._said.set()
        return await self.wait()

    def ports(self) -> tuple[int, ...]:
        return self._helper.network.listening() if self._helper.network is not None else ()

    async def connect(self, port: int) -> socket.socket:
        if self._helper.network is None:
            raise OSError(errno.ENETDOWN, "the process has no network of its own")
        return await self._helper.network.connect(port)

    # ---- what the helper and the command send

    def _take(self, handle: int) -> None:
        try:
            chunk = os.read(handle, _CHUNK)
        except BlockingIOError:
            return
        except OSError:  # EIO: no program has the terminal open
            chunk = b""
        if not chunk:
            self._shut(handle)
            return
        tail = self._tails[self._outputs[handle] - 1]
        tail += chunk
        del tail[:-TAIL]
        try:
            self._listen(self._outputs[handle], chunk)
        except Exception as error:  # the seam of a callback: a listener that fails ends the process, not the loop
            self._failure = self._failure or error
            self._said.set()

    def _hear(self) -> None:
        try:
            chunk = self._control.recv(4096)  # SAFETY: recv(2) has no room for descriptors, so it drops them
        except BlockingIOError:
            return
        except OSError:
            chunk = b""
        self._text += chunk
        if self._answered_in(self._text) or not chunk:
            asyncio.get_running_loop().remove_reader(self._control)
            self._answer = self._answer or ""
            self._answered.set()
            self._said.set()

    def _kill(self) -> None:
        """Kill the helper and the process.

        The event loop must forget the socket before it is closed. Otherwise it would not watch the next descriptor of
        that number, and the start of the next helper would never be seen.
        """
        if self._control.fileno() >= 0:
            asyncio.get_running_loop().remove_reader(self._control)
        self._helper.kill()

    def _answered_in(self, text: bytes) -> bool:
        """Take the last answer of the helper from `text`, and return True if it is complete."""
        line, end, _ = text.partition(b"\n")
        if end:
            self._answer = line.decode("ascii", "replace")
            self._answered.set()
            self._said.set()
        return bool(end)

    def _shut(self, handle: int) -> None:
        if self._outputs.pop(handle, None) is None:
            return
        asyncio.get_running_loop().remove_reader(handle)
        if handle != self._input:
            os.close(handle)
        if not self._outputs:
            self._closed.set()

    def _close_streams(self) -> None:
        for handle in tuple(self._outputs):
            self._shut(handle)
        handle, self._input = self._input, -1
        if handle >= 0:
            asyncio.get_running_loop().remove_writer(handle)
            os.close(handle)

    # ---- the supervision

    async def _supervise(self, complete: FinishOutcome) -> Outcome:
        """Return the outcome, without output, when the process has ended by itself, by a limit, by a watch or by `end`.

        The helper has ended then, and all watches are closed.
        """
        try:
            return await self._completed(await self._until_answer(), complete)
        except BaseException:
            self._kill()
            self._watch.settle()
            raise
        finally:
            self._watch.close()
            self._close_streams()
            self._answered.set()  # for a writer that waits

    async def _until_answer(self) -> Outcome:
        ended = await self._until_end()
        if ended is not None:
            # The helper ends its command. If it does not answer in time, the helper itself is killed.
            with contextlib.suppress(OSError):
                send(self._control, {"op": "stop", "why": ended, "parting": PARTING}, [])
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(GRACE):
                    await self._answered.wait()
            if self._answer is None:
                self._kill()
        if self._outputs:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_DRAIN):
                    await self._closed.wait()
        if self._failure is not None:
            raise self._failure
        line, seconds = self._answer or "", time.monotonic() - self._began
        verb, _, rest = line.partition(" ")
        if verb == "failed":
            action = self.permit.action
            assert isinstance(action, RunScript | RunArgv)
            return not_started(rest, {"argv": list(argv_of(action))}, seconds)
        streams = (bytes(self._tails[0]), bytes(self._tails[1]))
        return ended_outcome(line, streams, seconds, ended, self._helper.group.excess, self._helper.enforcement)

    async def _until_end(self) -> str | None:
        """Wait until the helper has answered, and return None, or the reason for which the process must be ended."""
        live, late = self._watch.live, self._late
        try:
            while True:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(LOOK):
                        await self._said.wait()
                self._said.clear()  # what set it is looked at now
                if self._answer is not None:
                    return None
                if self._failure is not None:
                    return "failure"
                if self._why is not None:
                    return self._why
                if live is not None:
                    live.tick()
                    if live.raised:
                        return "watch"
                if late is not None:
                    late.tick()
                    if late.found is not None:
                        return "exposed"
                if (passed := self._helper.group.excess()) is not None:
                    return passed
        finally:
            self._end_watches()

    def _begin_watches(self) -> None:
        if self._watch.live is not None:
            self._watch.live.begin()
            self._watch.live.attach(self._answered.is_set, self._said.set)
        if self._late is not None:
            self._late.attach(self._said.set)

    def _end_watches(self) -> None:
        if self._late is not None:
            self._late.close()
        if self._watch.live is not None:
            self._watch.live.detach()
