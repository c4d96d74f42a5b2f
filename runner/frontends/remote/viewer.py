"""One signed-in page: what it asks for, and what it gets.

Messages are JSON objects. The page sends `watch` (a session), `leave`, `line` (a line of JSON mode for the watched
session) and `record` (a query). It gets `hello`, `sessions`, `attached`, `events`, `ended`, `record`, `refused` and
`beat`.
"""

import asyncio
import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from policy.model.frozen import dataclass
from policy.model.verdict import Problem, ProblemError
from runner import VERSION
from runner.frontends.remote.access_log import AccessLog
from runner.frontends.remote.attached import AttachedSession, SessionGone
from runner.frontends.remote.scope import NotAllowed, permitted_line
from runner.frontends.remote.session_list import listed_session, listed_sessions
from runner.frontends.remote.shown import LEFT_OUT, shown_event
from runner.frontends.remote.tokens import Token
from runner.text.strict_json import parse_strictly

if TYPE_CHECKING:
    from pathlib import Path

    from runner.audit.log import Place

LONGEST_MESSAGE = 256 << 10  # bytes of one message of a page: a prompt with every character escaped
_LOOK = 1.0  # seconds between two looks at the list of sessions
_CHECK = 0.5  # seconds between two checks if the token is still valid
_BEAT = 15.0  # seconds between two signs of life, which a page needs because it sees no ping
_BATCH = 200  # events of one message
_WAITING = 400  # events that are read ahead of a slow page
_REMOVED = 4401  # the code with which a connection is closed when its token or its sign-in has ended


class PageSocket(Protocol):
    """The WebSocket of a page."""

    async def send(self, message: str) -> None: ...

    async def recv(self) -> str | bytes: ...

    async def close(self, code: int = ..., reason: str = ...) -> None: ...

    def abort(self) -> None: ...


@dataclass(frozen=True, slots=True)
class ViewerPlaces:
    """Folders, logs and limits that the viewers of one server share.

    Attributes:
        sessions: The folder with the sockets of the sessions.
        record: The location of the audit log.
        log: The log of remote access.
        patience: The seconds that a page may take to read one message.
    """

    sessions: "Path"
    record: "Place"
    log: AccessLog
    patience: float = 20.0


class SlowReader(Exception):
    """The signal that a page does not read what it is sent."""


class Removed(Exception):
    """The signal that the token or the sign-in of a page has ended."""


class Viewer:
    """A page that is signed in as `token`, from `address`. `valid` returns False when the token or sign-in ended."""

    def __init__(
        self, wire: PageSocket, token: Token, address: str, places: ViewerPlaces, valid: Callable[[], bool]
    ) -> None:
        self._wire, self._token, self._address, self._places, self._valid = wire, token, address, places, valid
        self._watched: tuple[str, AttachedSession] | None = None
        self._pump: asyncio.Task[None] | None = None
        self._failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()  # by an error of `_pump`

    async def serve(self) -> None:
        """Serve the page until it leaves, its token ends, or it does not read. Raise what the connection raises."""
        self._places.log.write("opened", address=self._address, token=self._token.name)
        tasks = [asyncio.ensure_future(each) for each in (self._hear(), self._list(), self._guard())]
        try:
            done, _ = await asyncio.wait([*tasks, self._failed], return_when=asyncio.FIRST_COMPLETED)
            for each in done:
                each.result()
        except SlowReader:
            self._places.log.refused("it does not read", address=self._address, token=self._token.name)
            self._wire.abort()
        except Removed:
            self._places.log.write("ended", address=self._address, token=self._token.name)
            await self._wire.close(_REMOVED, "the token was removed or has expired")
        finally:
            for each in tasks:
                each.cancel()
            await self._leave()
            self._failed.cancel()
            await asyncio.gather(*tasks, self._failed, return_exceptions=True)

    # ---- to the page

    async def _send(self, kind: str, **fields: object) -> None:
        text = json.dumps({"type": kind, **fields}, ensure_ascii=False, separators=(",", ":"))
        # A lone surrogate of a text cannot be sent as UTF-8.
        text = text.encode("utf-8", "backslashreplace").decode("utf-8")
        try:
            async with asyncio.timeout(self._places.patience):
                await self._wire.send(text)
        except TimeoutError:
            raise SlowReader from None

    async def _refuse(self, problem: Problem, about: str) -> None:
        words = {"what": problem.what, "why": problem.why, "fix": problem.fix}
        await self._send("refused", about=about, problem=shown_event(words))

    async def _list(self) -> None:
        """Send the list of sessions at first and after each change, and signs of life."""
        await self._send("hello", token=self._token.name, scope=self._token.scope.value, version=VERSION)
        before: object = None
        loop, beat = asyncio.get_running_loop(), 0.0
        while True:
            facts = [each.facts for each in listed_sessions(self._places.sessions, self._token)]
            if facts != before:
                await self._send("sessions", sessions=facts)
                before = facts
            elif loop.time() - beat > _BEAT:
                await self._send("beat")
            else:
                await asyncio.sleep(_LOOK)
                continue
            beat = loop.time()

    async def _guard(self) -> None:
        """Raise Removed as soon as the token is not valid any more."""
        while True:
            await asyncio.sleep(_CHECK)
            if not self._valid():
                raise Removed

    # ---- from the page

    async def _hear(self) -> None:
        while True:
            message = await self._wire.recv()
            if not self._valid():
                raise Removed  # THREAT T283: nothing that arrives after the removal has an effect
            about = "message"
            try:
                asked = _asked(message)
                about = str(asked["type"])
                await self._follow(asked)
            except ProblemError as error:
                await self._refuse(error.problem, about)

    async def _follow(self, asked: dict[str, object]) -> None:
        match asked:
            case {"type": "watch", "session": str(id)}:
                await self._watch(id)
            case {"type": "leave"}:
                await self._leave()
            case {"type": "line", "session": str(id), "line": line}:
                await self._line(id, line)
            case {"type": "record", **fields}:
                await self._record(fields)
            case _:
                raise _unknown()

    async def _watch(self, id: str) -> None:
        await self._leave()
        found = listed_session(self._places.sessions, id, self._token)
        if found is None:
            raise SessionGone("there is no such session now")
        who = f"web: token {self._token.name} from {self._address}"
        session = await AttachedSession.open(self._places.sessions / found.id, who, self._token.scope)
        self._watched = found.id, session
        await self._send("attached", session=found.id, facts=found.facts, answer=shown_event(session.attached))
        self._pump = asyncio.ensure_future(self._forward(found.id, session))
        self._pump.add_done_callback(self._pumped)

    async def _forward(self, id: str, session: AttachedSession) -> None:
        """Send the events of a session in batches until it ends."""
        waiting: asyncio.Queue[dict[str, object] | None] = asyncio.Queue(_WAITING)

        async def read() -> None:
            async for event in session.events():
                await waiting.put(event)
            await waiting.put(None)

        reading = asyncio.ensure_future(read())
        try:
            over = False
            while not over:
                batch = [await waiting.get()]
                while len(batch) < _BATCH and not waiting.empty():
                    batch.append(waiting.get_nowait())
                over = None in batch
                events = [shown_event(each) for each in batch if each is not None and each.get("type") not in LEFT_OUT]
                if events:
                    await self._send("events", session=id, events=events)
                await asyncio.sleep(0)
            await self._send("ended", session=id)
        finally:
            reading.cancel()
            session.close()

    def _pumped(self, task: "asyncio.Task[None]") -> None:
        """Pass an error of the events on to `serve`, which ends the connection."""
        if not task.cancelled() and (error := task.exception()) is not None and not self._failed.done():
            self._failed.set_exception(error)

    async def _leave(self) -> None:
        pump, self._pump, self._watched = self._pump, None, None
        if pump is not None:
            pump.cancel()
            await asyncio.gather(pump, return_exceptions=True)

    async def _line(self, id: str, line: object) -> None:
        allowed = permitted_line(self._token.scope, line)
        if self._watched is None or self._watched[0] != id:
            raise SessionGone("it is not watched")
        kind = str(allowed["type"])
        details = {name: str(allowed[name]) for name in ("id", "answer") if name in allowed}
        try:
            # INVARIANT: an answer or a prompt is in the log before it has an effect.
            self._places.log.write(
                f"sent {kind}", address=self._address, token=self._token.name, session=id, **details
            )  # fmt: skip
        except OSError:
            raise NotAllowed("the log of remote access cannot be written", "check the disk of the machine") from None
        await self._watched[1].send(allowed)

    async def _record(self, fields: dict[str, object]) -> None:
        from runner.audit.chain import AuditError
        from runner.audit.query import Query
        from runner.frontends.remote.recent_decisions import recent_decisions

        denied, session, limit = fields.get("denied", False), fields.get("session", ""), fields.get("limit", 50)
        if not isinstance(denied, bool) or not isinstance(session, str) or type(limit) is not int or limit < 1:
            raise _unknown()
        query = Query(
            verdicts=("deny",) if denied else (),
            sessions=(session,) if session else (),
            workspaces=(self._token.folder,) if self._token.folder is not None else (),
        )
        try:
            found = await asyncio.to_thread(recent_decisions, self._places.record, query, limit)
        except AuditError as error:
            await self._refuse(error.problem, "record")
            return
        await self._send("record", decisions=found, denied=denied, session=session, limit=limit)


def _asked(message: str | bytes) -> dict[str, object]:
    """Return the object in a message of a page. Raise NotAllowed."""
    try:
        found = parse_strictly(message) if isinstance(message, str) else None
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict) or not isinstance(found.get("type"), str):
        raise _unknown()
    return found


def _unknown() -> NotAllowed:
    return NotAllowed("the message is none that a page sends", "reload the page")
