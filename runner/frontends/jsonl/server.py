"""JSON mode as a program: lines on standard input, events on standard output, signals, the exit code."""

import asyncio
import contextlib
import os
import threading
from typing import TYPE_CHECKING

from runner.agent.agent import Agent
from runner.agent.startup import prepare_start
from runner.frontends.jsonl.approver import Questions
from runner.frontends.jsonl.driver import JsonMode
from runner.frontends.jsonl.protocol import LONGEST
from runner.frontends.jsonl.writer import JsonLines
from runner.frontends.signals import end_by_signals
from runner.problems import Exit

if TYPE_CHECKING:
    from runner.agent.startup import RunArgs


def serve(args: "RunArgs", prompt: str | None) -> int:
    """Run JSON mode on standard input and output, and return the exit code. `prompt` counts as the first line."""
    with JsonLines() as emit:
        # There is no user at a terminal: the program answers, and a question that it does not answer is refused.
        questions = Questions(lambda event: agent.conversation.ctx.emit(event))
        agent = Agent(
            start=lambda: prepare_start(args, unattended=args.unattended, asks=False, notes=True),
            approver=None if args.unattended else questions,
            emit=emit,
        )

        async def work() -> int:
            emit.when_lost(end_by_signals())
            try:
                async with agent:
                    return await JsonMode(agent, questions, emit).serve(StdinLines(longest=LONGEST), prompt)
            except asyncio.CancelledError:
                emit.hurry()
                return Exit.INTERRUPTED

        return asyncio.run(work())


_PIECE = 1 << 16  # bytes of one read
_WAITING = 64  # lines that are read ahead


class StdinLines:
    """An iterator over the lines of descriptor `number`, without their newlines.

    A line longer than `longest` bytes is cut after `longest` + 1 bytes. Text after the last newline is a line, too.
    """

    def __init__(self, number: int = 0, longest: int = 1 << 20) -> None:
        self._number = number
        self._longest = longest
        self._loop = asyncio.get_running_loop()
        self._queue: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._room = threading.Semaphore(_WAITING)
        # A thread, since an event loop cannot wait for a file. A daemon, since its read cannot be interrupted.
        threading.Thread(target=self._read, name="standard input", daemon=True).start()

    def __aiter__(self) -> "StdinLines":
        return self

    async def __anext__(self) -> bytes:
        line = await self._queue.get()
        self._room.release()
        if line is None:
            raise StopAsyncIteration
        return line

    def _read(self) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed, so the lines are no longer needed
            held = bytearray()
            while piece := self._piece():
                *whole, rest = piece.split(b"\n")
                for line in whole:
                    self._put(bytes(self._more(held, line)))
                    held.clear()
                self._more(held, rest)
            if held:
                self._put(bytes(held))
            self._put(None)

    def _more(self, held: bytearray, piece: bytes) -> bytearray:
        held += piece[: self._longest + 1 - len(held)]
        return held

    def _piece(self) -> bytes:
        try:
            return os.read(self._number, _PIECE)
        except OSError:  # the terminal is gone: the end of input
            return b""

    def _put(self, line: bytes | None) -> None:
        self._room.acquire()
        self._loop.call_soon_threadsafe(self._queue.put_nowait, line)
