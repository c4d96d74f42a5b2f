"""The view of a hosted session at a terminal: what has happened, and every further event."""

from collections.abc import Callable, Mapping

from rich.console import Console

from runner.events import ErrorRaised, Event, Notice
from runner.frontends.hosted.connection import HostedConnection, event_of
from runner.frontends.hosted.decoded import Undecodable, event_of_json
from runner.frontends.plain.transcript import Transcript
from runner.text.sanitize import one_line

_NAME = 100  # characters of the name of another client
_QUESTIONS = ("question_asked", "pick_wanted", "input_wanted")

Object = Mapping[str, object]


class SessionView:
    """The view of a session at one terminal.

    Attributes:
        questions: The events of the open questions, in the order of their arrival.
        scripts: The names of the calls whose action is a script.
        plan: The last plan of the model.
        working: True while a turn is in progress.
        sent: Own prompts, which are on the screen already.
        over: Why the session dropped this client, or ended; empty before.
        waiting: The question whose answer was sent, or empty.
        fault: The error about that answer, or None.
        changed: The function that is called when a question comes or goes, and at the end.
    """

    def __init__(self, connection: HostedConnection) -> None:
        self.questions: dict[str, Object] = {}
        self.scripts: set[str] = set()
        self.plan = ""
        self.id = str(connection.head["id"])
        self._connection = connection
        self._me = str(connection.head["who"])
        self.console = Console()
        self._draw = Transcript(self.console, wrap=True, recalls=True, me=self._me)
        self.working = connection.head.get("state") == "working"
        self.sent: list[str] = []  # own prompts, which are on the screen already
        self.over = ""  # why the session dropped this client, or ended
        self.changed: Callable[[], None] = lambda: None
        self.fault: Event | None = None  # the error about the last line
        self.waiting = ""  # the question whose answer was sent

    # ---- events

    def draw_replay(self) -> None:
        """Draw what happened before. Raise OSError."""
        head = self._connection.head
        if isinstance(earlier := head.get("earlier"), int) and earlier:
            self.note(f"{earlier:,} earlier events: agent logs {self.id[:8]}")
        for line in self._connection.lines():
            event = event_of(line)
            if event["type"] == "replayed":
                break
            self.take(event)
        others = head.get("clients")
        names = ", ".join(one_line(str(each), _NAME) for each in others) if isinstance(others, list) else ""
        beside = f"; also attached: {names}" if names else ""
        self.note(
            f"attached to {self.id[:8]} in {one_line(str(head.get('folder')), 200)}, mode {head.get('mode')}{beside}"
        )
        self.note("Ctrl-D or /detach leaves it running, Ctrl-C stops the turn, /quit ends the session")

    def take(self, event: Object) -> None:
        """Handle one event of the session."""
        kind = event["type"]
        match kind:
            case "client_attached" | "client_detached":
                verb = "attached" if kind == "client_attached" else "detached"
                why = f": {one_line(str(event['why']), 200)}" if event.get("why") else ""
                self.note(f"{one_line(str(event.get('who')), _NAME)} {verb}{why}")
            case "question_closed":
                self._closed(event)
            case "detached":
                self.over = one_line(str(event.get("why")), 200)
                self.changed()
            case _ if kind in _QUESTIONS:
                if event.get("id"):
                    self.questions[str(event["id"])] = event
                    self.changed()
            case _:
                self._draw_event(event)

    def _closed(self, event: Object) -> None:
        if self.questions.pop(str(event.get("id")), None) is None:
            return
        by, answer = str(event.get("by") or ""), str(event.get("answer") or "")
        if by and by != self._me:
            self.note(f"answered by {one_line(by, _NAME)}{f': {one_line(answer, 20)}' if answer else ''}")
        elif not by:
            self.note("the question was withdrawn")
        self.changed()

    def _draw_event(self, found: Object) -> None:
        try:
            event = event_of_json(found)
        except Undecodable as error:
            self.note(f"an event is not shown: {error}; update this program")
            return
        match event.type:
            case "prompted":
                self.working = True
                shown = str(found.get("typed") or found.get("text"))
                if shown in self.sent:
                    self.sent.remove(shown)
                    return
            case "run_ended":
                self.working = False
            case "plan_proposed":
                self.plan = str(found.get("plan"))
            case "tool_proposed":
                action = found.get("action")
                if isinstance(action, dict) and action.get("type") in ("RunScript", "StartProcess"):
                    self.scripts.add(str(found.get("call")))
            case _:
                pass
        if isinstance(event, ErrorRaised) and event.input_line is not None and self.waiting:
            self.fault = event
            self.changed()
        self._draw(event)

    def note(self, text: str) -> None:
        """Draw a note of this program."""
        self._draw(Notice(text))
