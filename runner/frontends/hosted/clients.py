"""The clients of a hosted session: their lines become one stream, and every event goes to all of them.

THREAT T280: a client may read nothing, write without end, or write nonsense. The session waits for no client: what is
sent to a client is bounded, and a client that exceeds the bound is dropped. What a client sends is bounded as well:
nothing more is read from it until its earlier lines are handled.
"""

import asyncio
import time
from collections.abc import Callable, Mapping

from policy.model.deadline import deadline
from policy.model.verdict import Problem
from runner.audit.records import AnsweringClient
from runner.events import ErrorRaised, Event
from runner.frontends.hosted.protocol import VERSION, Attach, ClientScope, parse_attach, refusal
from runner.frontends.hosted.replay import CondensedEvents, line_of
from runner.frontends.jsonl.protocol import LONGEST, Misread
from runner.resident import peer_of
from runner.resident.peer import examined, standing
from runner.text.json_line import utc_now
from runner.text.strict_json import parse_strictly

MOST_CLIENTS = 16
MOST_UNREAD = 8 << 20  # bytes that may wait for one client, beside the replay
_PATIENCE = deadline(10.0)  # seconds until a client has sent its first line
_AHEAD = 1 << 20  # bytes of one client's lines that may wait
_LEAST = 1 << 16  # bytes that a line counts at least
_GOODBYE = deadline(2.0)  # seconds for the last lines
_NOT_READING = "it does not read what the session sends"


class Client(asyncio.Protocol):
    """One connection.

    Attributes:
        attached: The first line; None before it.
        number: The number of lines that the client has sent.
        since: The time of the connection, in seconds since 1970.
    """

    def __init__(self, hub: "ClientHub") -> None:
        self.attached: Attach | None = None
        self.number = 0
        self.since = time.time()
        self.process = 0
        self._waiting = 0  # bytes of its lines that are not handled yet
        self._hub = hub
        self._held = bytearray()
        self._replayed = 0  # bytes of the replay, until the client has read it
        self._late: asyncio.TimerHandle | None = None
        self.transport: asyncio.Transport | None = None
        self.gone = asyncio.Event()

    @property
    def who(self) -> str:
        return self.attached.who if self.attached is not None else "a client"

    @property
    def answering(self) -> AnsweringClient:
        """Return this client for the record."""
        return AnsweringClient(self.who, self.process)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        connection = transport.get_extra_info("socket")
        # THREAT T277: an answer approves an action, so no process in a sandbox and no other user may be here. The state
        # folder is in no sandbox; should one reach the socket all the same, its process has other rights.
        if examined(connection, self._hub.own) is None:
            problem = Problem(
                "the session refused the connection",
                "the other end is not a program of this user outside of a sandbox",
                "use a terminal of the user who runs the session",
            )
            self.refuse(problem)
            return
        self.process = peer_of(connection)[0]
        transport.set_write_buffer_limits(high=1 << 16, low=0)
        self._late = asyncio.get_running_loop().call_later(_PATIENCE, self.drop)

    def refuse(self, problem: Problem) -> None:
        """Send a Problem, and close the connection."""
        self.send(line_of(ErrorRaised(problem, self.number or None).as_json()))
        if self.transport is not None:
            self.transport.close()

    def data_received(self, data: bytes) -> None:
        if self.transport is None or self.transport.is_closing():
            return
        *lines, rest = data.split(b"\n")
        for line in lines:
            self._more(line)
            whole = bytes(self._held)
            self._held.clear()
            self._line(whole)
        self._more(rest)

    def _more(self, piece: bytes) -> None:
        self._held += piece[: LONGEST + 1 - len(self._held)]

    def _line(self, line: bytes) -> None:
        if self.transport is None or self.transport.is_closing():
            return
        self.number += 1
        if self.attached is None:
            if self._late is not None:
                self._late.cancel()
            try:
                self.attached = parse_attach(line)
            except Misread as error:
                self.refuse(error.problem)
                return
            self._hub.admit(self)
            return
        if not line.strip():
            return
        before, self._waiting = self._waiting, self._waiting + max(len(line), _LEAST)
        if before < _AHEAD <= self._waiting:
            self.transport.pause_reading()
        self._hub.take(self, self.number, line)

    def handled(self, line: bytes) -> None:
        """Note that one of its lines was handled."""
        before, self._waiting = self._waiting, self._waiting - max(len(line), _LEAST)
        if self._waiting < _AHEAD <= before and self.transport is not None and not self.transport.is_closing():
            self.transport.resume_reading()

    def send(self, data: bytes, *, replay: bool = False) -> None:
        """Send lines, or drop the client if too much waits for it."""
        if self.transport is None or self.transport.is_closing():
            return
        self.transport.write(data)
        self._replayed += len(data) if replay else 0
        if self.transport.get_write_buffer_size() > MOST_UNREAD + self._replayed:
            self._hub.left(self, _NOT_READING)
            self.transport.abort()

    def resume_writing(self) -> None:  # everything was sent
        self._replayed = 0

    def drop(self) -> None:
        """Close the connection after what was sent to it."""
        if self.transport is not None:
            self.transport.close()

    def connection_lost(self, error: Exception | None) -> None:
        if self._late is not None:
            self._late.cancel()
        self._hub.left(self, "")
        self.gone.set()


class ClientHub:
    """All clients of one session: an iterator over their lines, and an Emit for the events.

    Attributes:
        current: The client whose line is being handled, or None.
        line: The number of that line among those of its client.
        closed: True when no client is admitted any more.
    """

    def __init__(
        self,
        describe: Callable[[], Mapping[str, object]],
        open_questions: Callable[[], list[Mapping[str, object]]],
        replay: CondensedEvents,
        changed: Callable[[], None],
    ) -> None:
        """`describe` returns the session for `attached`, `open_questions` the events of the open questions, and
        `changed` is called when a client comes or goes.
        """
        self.own = standing()
        self.current: Client | None = None
        self.line = 0
        self.clients: list[Client] = []
        self._describe, self._open_questions, self._replay, self._changed = describe, open_questions, replay, changed
        self._lines: asyncio.Queue[tuple[Client | None, int, bytes]] = asyncio.Queue()
        self._handled = b""  # the line of `current`
        self.closed = False

    # ---- clients

    def admit(self, client: Client) -> None:
        """Send a new client what has happened so far, and from then on every event."""
        assert client.attached is not None
        if len(self.clients) >= MOST_CLIENTS or self.closed:
            why = f"it has {MOST_CLIENTS} clients" if not self.closed else "it is ending"
            client.refuse(
                Problem("the session accepts no further client", why, "detach another client: `agent detach`")
            )
            return
        self.tell({"type": "client_attached", "who": client.who, "scope": client.attached.scope.value})
        events, earlier = self._replay.last(client.attached.replay)
        head = {
            "type": "attached", "time": utc_now(), "version": VERSION, **self._describe(),
            "scope": client.attached.scope.value, "who": client.who, "earlier": earlier,
        }  # fmt: skip
        questions = [line_of(each) for each in self._open_questions()]
        replayed = line_of({"type": "replayed", "events": len(events), "questions": len(questions)})
        self.clients.append(client)
        client.send(b"".join((line_of(head), *events, replayed, *questions)), replay=True)
        self._changed()

    def left(self, client: Client, why: str) -> None:
        """Note that a client is gone. `why` is the reason if the session dropped it."""
        if client not in self.clients:
            return
        self.clients.remove(client)
        self.tell({"type": "client_detached", "who": client.who, "why": why})
        self._changed()

    def detach_all(self, but: Client | None, why: str) -> None:
        """Drop all clients except `but`."""
        for client in [each for each in self.clients if each is not but]:
            client.send(line_of({"type": "detached", "why": why}))
            self.left(client, why)
            client.drop()

    async def close(self, why: str) -> None:
        """Tell the clients that the session has ended, and close the connections."""
        self.closed = True
        clients = list(self.clients)
        self.clients.clear()
        for client in clients:
            client.send(line_of({"type": "detached", "why": why}))
            client.drop()
        if clients:
            await asyncio.wait([asyncio.ensure_future(each.gone.wait()) for each in clients], timeout=_GOODBYE)
        for client in clients:
            if client.transport is not None:
                client.transport.abort()

    # ---- events

    def tell(self, event: Mapping[str, object], only: Client | None = None) -> None:
        """Send an event that is about the session's clients, or one that only one client gets."""
        data = line_of({"type": event["type"], "time": utc_now(), **event})
        for client in [only] if only is not None else list(self.clients):
            client.send(data)

    def report(self, event: Event) -> None:
        """Send an error of JSON mode: to the client whose line is wrong, or to all if it is about no line."""
        if isinstance(event, ErrorRaised) and event.input_line is not None and self.current is not None:
            self.tell({**event.as_json(), "input_line": self.line}, self.current)
            return
        self.tell(event.as_json())

    # ---- lines

    def take(self, client: Client, number: int, line: bytes) -> None:
        """Handle a line of a client if its scope includes it.

        THREAT T278: a client with the scope `view` or `answer` can neither prompt the model, change a setting, run a
        command, stop the session nor drop other clients. What is not an answer in the strict form is not passed on.
        """
        assert client.attached is not None
        scope, kind = client.attached.scope, _kind_of(line)
        if kind == "detach":
            client.handled(line)
            client.drop()
        elif scope is not ClientScope.PROMPT and not (scope is ClientScope.ANSWER and kind == "answer"):
            client.handled(line)
            self.tell(ErrorRaised(refusal(scope), number).as_json(), client)
        elif kind == "detach_others":
            client.handled(line)
            self.detach_all(client, f"detached by {client.who}")
        else:
            self._lines.put_nowait((client, number, line))

    def finish(self) -> None:
        """End the iteration over lines."""
        self._lines.put_nowait((None, 0, b""))

    def __aiter__(self) -> "ClientHub":
        return self

    async def __anext__(self) -> bytes:
        if self.current is not None:
            self.current.handled(self._handled)
            self.current = None
        client, self.line, self._handled = await self._lines.get()
        if client is None:
            raise StopAsyncIteration
        self.current = client
        return self._handled


def _kind_of(line: bytes) -> str:
    """Return the type of a line, or an empty text if the line is not valid."""
    if len(line) > LONGEST:
        return ""
    try:
        found = parse_strictly(line.decode("utf-8"))
    except (ValueError, RecursionError):
        return ""
    kind = found.get("type") if isinstance(found, dict) else None
    return kind if isinstance(kind, str) else ""
