"""The live part of `agent attach`: events as they come, an input line, and the answers to questions."""

import asyncio
import contextlib
import os
import signal
import termios
import threading

from policy.model.deadline import deadline
from runner.frontends.hosted.cards import QuestionDialogue
from runner.frontends.hosted.connection import HostedConnection, event_of
from runner.frontends.hosted.line import InputLine
from runner.frontends.hosted.view import SessionView
from runner.frontends.slash.command import SHELL, is_command
from runner.problems import Exit
from runner.text.json_line import json_line

_PIECE = 1 << 18  # bytes
_GOODBYE = deadline(2.0)  # seconds for an orderly end after a signal


class LiveTerminal:
    """One client at a terminal, after the conversation so far was drawn on `view`."""

    def __init__(self, connection: HostedConnection, view: SessionView) -> None:
        self._connection = connection
        self._view = view
        self._changed = asyncio.Event()
        self._modes = termios.tcgetattr(0) if os.isatty(0) else None  # before the input line changes them
        view.changed = self._changed.set

    def serve(self) -> int:
        """Serve the terminal until the user detaches or the session ends, and return the exit code."""
        return asyncio.run(self.run())

    async def run(self) -> int:
        """Serve the terminal until the user detaches or the session ends, and return the exit code."""
        self._connection.socket.setblocking(False)
        loop = asyncio.get_running_loop()
        task = asyncio.current_task()
        for number in (signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, self._end, task)
        line = InputLine(self._changed)
        dialogue = QuestionDialogue(self._view, self)
        receiving = asyncio.ensure_future(self._receive())
        try:
            with line.beside_output():
                left = await self._converse(line, dialogue)
        except asyncio.CancelledError:  # a signal: the terminal is gone, or this client is to end
            return Exit.INTERRUPTED
        finally:
            receiving.cancel()
            (failed,) = await asyncio.gather(receiving, return_exceptions=True)
            self._connection.close()
        if isinstance(failed, Exception):
            raise failed
        if left:
            print(f"detached; the session goes on: agent attach {self._view.id[:8]}")
            return Exit.DONE
        print(f"{self._view.over or 'the session has gone'}; to continue: agent attach {self._view.id[:8]}")
        return Exit.DONE if self._view.over else Exit.FAILED

    def _end(self, task: "asyncio.Task[int] | None") -> None:
        """End this client after a signal: in order, and at the latest after `_GOODBYE` seconds.

        The input line is a library of its own, which may wait for its terminal when it is cancelled.
        """

        def now() -> None:
            if self._modes is not None:
                with contextlib.suppress(termios.error):  # the terminal is gone
                    termios.tcsetattr(0, termios.TCSANOW, self._modes)
            os._exit(Exit.INTERRUPTED)

        last = threading.Timer(_GOODBYE, now)
        last.daemon = True
        last.start()
        if task is not None:
            task.cancel()

    async def _receive(self) -> None:
        loop, connection = asyncio.get_running_loop(), self._connection
        try:
            while line := connection.next_line():
                self._view.take(event_of(line))
            while data := await loop.sock_recv(connection.socket, _PIECE):
                connection.feed(data)
                while line := connection.next_line():
                    self._view.take(event_of(line))
        except OSError:
            pass  # the session is gone, which `_over` and the end of `run` say
        finally:
            self._view.over = self._view.over or "the connection to the session is lost"
            self._changed.set()

    async def send(self, **line: object) -> None:
        """Send one line. A lost connection is reported by `_receive`."""
        data = json_line(line).encode("ascii") + b"\n"
        try:
            await asyncio.get_running_loop().sock_sendall(self._connection.socket, data)
        except OSError:
            self._view.over = self._view.over or "the connection to the session is lost"
            self._changed.set()

    async def _converse(self, line: "InputLine", dialogue: "QuestionDialogue") -> bool:
        """Read lines and answers. Return True if the user detaches, False if the session is gone."""
        while not self._view.over:
            self._changed.clear()
            try:
                if self._view.questions:
                    await dialogue.ask(next(iter(self._view.questions)), line)
                    continue
                text = await line.read("> ", until=lambda: bool(self._view.questions or self._view.over))
            except EOFError:
                return True
            except KeyboardInterrupt:
                await self.interrupt()
                continue
            if text is not None and text.strip() and not await self._said(text.strip()):
                return True
        return False

    async def interrupt(self) -> None:
        """Stop the turn."""
        if self._view.working:
            await self.send(type="interrupt")
        else:
            self._view.note("no turn is in progress; Ctrl-D detaches")

    async def _said(self, text: str) -> bool:
        """Handle a typed line. Return False if it detaches."""
        pasted = "\n" in text  # THREAT T112: lines that came at once are a prompt, never a command
        if text == "/detach":
            return False
        if is_command(text) and not pasted:
            await self.send(type="command", text=text)
        elif text == "!":
            self._view.note(SHELL)
        elif text.startswith("!") and not pasted:
            await self.send(type="shell", command=text[1:].strip())
        else:
            self._view.sent.append(text)
            await self.send(type="prompt", text=text)
        return True

    # ---- what the dialogue of questions uses

    async def answer(self, id: str, answer: str, **fields: object) -> bool:
        """Send the answer to a question, and return True when it is closed, False if the answer is not valid."""
        self._view.waiting, self._view.fault = id, None
        await self.send(type="answer", id=id, answer=answer, **fields)
        try:
            while id in self._view.questions and self._view.fault is None and not self._view.over:
                self._changed.clear()
                await self._changed.wait()
            return self._view.fault is None or id not in self._view.questions
        finally:
            self._view.waiting = ""

    def is_open(self, id: str) -> bool:
        """Return True while the question `id` can be answered."""
        return id in self._view.questions and not self._view.over
