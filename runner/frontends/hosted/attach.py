"""`agent attach` at a terminal: the conversation of a hosted session, its questions, and an input line.

What has happened so far is drawn before the input line is loaded. Detaching leaves the session as it is.
"""

import asyncio
import signal
from collections.abc import Mapping
from typing import TYPE_CHECKING

from rich.console import Console

from runner.events import ErrorRaised, Event, Notice
from runner.frontends.hosted.connection import HostedConnection, event_of, own_name
from runner.frontends.hosted.decoded import Undecodable, event_of_json
from runner.frontends.hosted.protocol import USUAL_REPLAY
from runner.frontends.plain.transcript import Transcript
from runner.problems import Exit
from runner.text.json_line import json_line
from runner.text.sanitize import one_line

if TYPE_CHECKING:
    from runner.frontends.hosted.cards import QuestionDialogue
    from runner.frontends.hosted.line import InputLine

_PIECE = 1 << 18  # bytes
_NAME = 100  # characters of the name of another client
_QUESTIONS = ("question_asked", "pick_wanted", "input_wanted")

Object = Mapping[str, object]


def attach_at_terminal(id: str, environ: Mapping[str, str]) -> int:
    """Attach to the session `id` at this terminal until the user detaches or the session ends. Raise HostedError."""
    connection = HostedConnection(id, environ, who=own_name(), scope="prompt", replay=USUAL_REPLAY)
    client = AttachedTerminal(connection)
    client.draw_replay()
    return asyncio.run(client.run())


class AttachedTerminal:
    """One client at a terminal.

    Attributes:
        questions: The events of the open questions, in the order of their arrival.
        scripts: The names of the calls whose action is a script.
        plan: The last plan of the model.
    """

    def __init__(self, connection: HostedConnection) -> None:
        self.questions: dict[str, Object] = {}
        self.scripts: set[str] = set()
        self.plan = ""
        self.id = str(connection.head["id"])
        self._connection = connection
        self._me = str(connection.head["who"])
        self._console = Console()
        self._draw = Transcript(self._console, wrap=True, recalls=True, me=self._me)
        self._working = connection.head.get("state") == "working"
        self._sent: list[str] = []  # own prompts, which are on the screen already
        self._over = ""  # why the session dropped this client, or ended
        self._changed = asyncio.Event()
        self._fault: Event | None = None  # the error about the last line
        self._waiting = ""  # the question whose answer was sent

    # ---- events

    def draw_replay(self) -> None:
        """Draw what happened before. Raise OSError."""
        head = self._connection.head
        if isinstance(earlier := head.get("earlier"), int) and earlier:
            self._note(f"{earlier:,} earlier events: agent logs {self.id[:8]}")
        for line in self._connection.lines():
            event = event_of(line)
            if event["type"] == "replayed":
                break
            self._take(event)
        others = head.get("clients")
        names = ", ".join(one_line(str(each), _NAME) for each in others) if isinstance(others, list) else ""
        beside = f"; also attached: {names}" if names else ""
        self._note(
            f"attached to {self.id[:8]} in {one_line(str(head.get('folder')), 200)}, mode {head.get('mode')}{beside}"
        )
        self._note("Ctrl-D or /detach leaves it running, Ctrl-C stops the turn, /quit ends the session")

    def _take(self, event: Object) -> None:
        """Handle one event of the session."""
        kind = event["type"]
        match kind:
            case "client_attached" | "client_detached":
                verb = "attached" if kind == "client_attached" else "detached"
                why = f": {one_line(str(event['why']), 200)}" if event.get("why") else ""
                self._note(f"{one_line(str(event.get('who')), _NAME)} {verb}{why}")
            case "question_closed":
                self._closed(event)
            case "detached":
                self._over = one_line(str(event.get("why")), 200)
                self._changed.set()
            case _ if kind in _QUESTIONS:
                if event.get("id"):
                    self.questions[str(event["id"])] = event
                    self._changed.set()
            case _:
                self._draw_event(event)

    def _closed(self, event: Object) -> None:
        if self.questions.pop(str(event.get("id")), None) is None:
            return
        by, answer = str(event.get("by") or ""), str(event.get("answer") or "")
        if by and by != self._me:
            self._note(f"answered by {one_line(by, _NAME)}{f': {one_line(answer, 20)}' if answer else ''}")
        elif not by:
            self._note("the question was withdrawn")
        self._changed.set()

    def _draw_event(self, found: Object) -> None:
        try:
            event = event_of_json(found)
        except Undecodable as error:
            self._note(f"an event is not shown: {error}; update this program")
            return
        match event.type:
            case "prompted":
                self._working = True
                shown = str(found.get("typed") or found.get("text"))
                if shown in self._sent:
                    self._sent.remove(shown)
                    return
            case "run_ended":
                self._working = False
            case "plan_proposed":
                self.plan = str(found.get("plan"))
            case "tool_proposed":
                action = found.get("action")
                if isinstance(action, dict) and action.get("type") in ("RunScript", "StartProcess"):
                    self.scripts.add(str(found.get("call")))
            case _:
                pass
        if isinstance(event, ErrorRaised) and event.input_line is not None and self._waiting:
            self._fault = event
            self._changed.set()
        self._draw(event)

    def _note(self, text: str) -> None:
        self._draw(Notice(text))

    # ---- life

    async def run(self) -> int:
        """Serve the terminal until the user detaches or the session ends, and return the exit code."""
        from runner.frontends.hosted.cards import QuestionDialogue
        from runner.frontends.hosted.line import InputLine

        self._connection.socket.setblocking(False)
        loop = asyncio.get_running_loop()
        task = asyncio.current_task()
        for number in (signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, lambda: task.cancel() if task is not None else None)
        line = InputLine(self._changed)
        dialogue = QuestionDialogue(self._console, self)
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
            print(f"detached; the session goes on: agent attach {self.id[:8]}")
            return Exit.DONE
        print(f"{self._over or 'the session has gone'}; to continue: agent attach {self.id[:8]}")
        return Exit.DONE if self._over else Exit.FAILED

    async def _receive(self) -> None:
        loop, connection = asyncio.get_running_loop(), self._connection
        try:
            while line := connection.next_line():
                self._take(event_of(line))
            while data := await loop.sock_recv(connection.socket, _PIECE):
                connection.feed(data)
                while line := connection.next_line():
                    self._take(event_of(line))
        except OSError:
            pass  # the session is gone, which `_over` and the end of `run` say
        finally:
            self._over = self._over or "the connection to the session is lost"
            self._changed.set()

    async def send(self, **line: object) -> None:
        """Send one line. A lost connection is reported by `_receive`."""
        data = json_line(line).encode("ascii") + b"\n"
        try:
            await asyncio.get_running_loop().sock_sendall(self._connection.socket, data)
        except OSError:
            self._over = self._over or "the connection to the session is lost"
            self._changed.set()

    async def _converse(self, line: "InputLine", dialogue: "QuestionDialogue") -> bool:
        """Read lines and answers. Return True if the user detaches, False if the session is gone."""
        while not self._over:
            self._changed.clear()
            try:
                if self.questions:
                    await dialogue.ask(next(iter(self.questions)), line)
                    continue
                text = await line.read("> ", until=lambda: bool(self.questions or self._over))
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
        if self._working:
            await self.send(type="interrupt")
        else:
            self._note("no turn is in progress; Ctrl-D detaches")

    async def _said(self, text: str) -> bool:
        """Handle a typed line. Return False if it detaches."""
        from runner.frontends.slash.command import SHELL, is_command

        pasted = "\n" in text  # THREAT T112: lines that came at once are a prompt, never a command
        if text == "/detach":
            return False
        if is_command(text) and not pasted:
            await self.send(type="command", text=text)
        elif text == "!":
            self._note(SHELL)
        elif text.startswith("!") and not pasted:
            await self.send(type="shell", command=text[1:].strip())
        else:
            self._sent.append(text)
            await self.send(type="prompt", text=text)
        return True

    # ---- what the dialogue of questions uses

    async def answer(self, id: str, answer: str, **fields: object) -> bool:
        """Send the answer to a question, and return True when it is closed, False if the answer is not valid."""
        self._waiting, self._fault = id, None
        await self.send(type="answer", id=id, answer=answer, **fields)
        try:
            while id in self.questions and self._fault is None and not self._over:
                self._changed.clear()
                await self._changed.wait()
            return self._fault is None or id not in self.questions
        finally:
            self._waiting = ""

    def is_open(self, id: str) -> bool:
        """Return True while the question `id` can be answered."""
        return id in self.questions and not self._over
