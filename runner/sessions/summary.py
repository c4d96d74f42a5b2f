"""Summary of a session for a list, without parsing the whole file: the first lines, and counts over the rest."""

import time
from itertools import islice
from typing import BinaryIO

from policy.model.frozen import dataclass
from runner.messages import UserMessage
from runner.sessions.entries import LONGEST, VERSION, Unsound, message_of, parse
from runner.sessions.history import cut
from runner.sessions.rewind import said_of
from runner.sessions.store import SessionError, SessionStore, StoredSession
from runner.text.json_line import json_line
from runner.text.phrases import many
from runner.text.sanitize import one_line

_HEAD = 200  # lines at most before the first prompt
_BLOCK = 1 << 20  # bytes that are read at once
_PROMPTS = b'"type":"message","role":"user"'
_TURNS = b'"type":"message","role":"assistant"'


@dataclass(frozen=True, slots=True)
class SessionSummary:
    """A row of the list of sessions. `written` is in seconds since 1970. `prompts` and `turns` count all branches.
    `broken` is the reason why the session cannot be read, or None.
    """

    id: str
    key: str
    workspace: str
    began: str
    written: float
    size: int
    forked_from: str | None
    first: str
    prompts: int
    turns: int
    broken: str | None = None

    @property
    def answered(self) -> bool:
        """Return True if the session has an answer, or cannot be read, so that the user should see it."""
        return self.turns > 0 or self.broken is not None

    def as_json(self) -> str:
        fields = {name: getattr(self, name) for name in SessionSummary.__slots__}
        when = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(self.written))
        return json_line({**fields, "written": when})


def summarize_session(store: SessionStore, id: str, stored: StoredSession | None = None) -> SessionSummary:
    """Return the summary of one session. Raise SessionError if its file cannot be opened."""
    if stored is None:
        stored = next((each for each in store.list() if each.id == id), StoredSession(id, store.key, 0.0, 0))
    with store.reading(id) as file:
        try:
            head = parse(file.readline(LONGEST))
            if head.type != "session":
                raise Unsound("its first line does not begin a session")
            if (version := head.body["version"]) != VERSION:
                raise Unsound(f"its format is {version}, and this version reads {VERSION}")
        except Unsound as error:
            return _unreadable(stored, str(error))
        first = _first(file)
        prompts, turns = _counted(file)
    origin = head.body["forked_from"]
    return SessionSummary(
        id=id,
        key=store.key,
        workspace=str(head.body["workspace"]),
        began=head.time,
        written=stored.written,
        size=stored.size,
        forked_from=str(origin["session"]) if isinstance(origin, dict) else None,
        first=first,
        prompts=prompts,
        turns=turns,
    )


def summarize_sessions(store: SessionStore, *, unanswered: bool = False) -> list[SessionSummary]:
    """Return the summaries of a workspace's sessions, the last one used first. A file that cannot be opened gets a row
    that says so. Sessions without an answer are left out unless `unanswered` is True.
    """
    seen: list[SessionSummary] = []
    for stored in sorted(store.list(), key=lambda each: (each.written, each.id), reverse=True):
        try:
            seen.append(summarize_session(store, stored.id, stored))
        except SessionError as error:
            seen.append(_unreadable(stored, error.problem.why))
    return [each for each in seen if unanswered or each.answered]


def latest_answered(store: SessionStore) -> str | None:
    """Return the id of the session that was continued last and has an answer, else of the one continued last, or None
    if there is no session.
    """
    sessions = store.list()
    for stored in sessions:
        try:
            if summarize_session(store, stored.id, stored).answered:
                return stored.id
        except SessionError:
            return stored.id  # opening the session reports the reason
    return sessions[0].id if sessions else None


def _unreadable(stored: StoredSession, why: str) -> SessionSummary:
    return SessionSummary(stored.id, stored.key, "", "", stored.written, stored.size, None, "", 0, 0, why)


def row(seen: SessionSummary, *, width: int = 100) -> str:
    """Return a line of text for a summary. Untrusted text in it is safe to print."""
    return one_line("  ".join(labels(seen)), width)


def labels(seen: SessionSummary) -> tuple[str, str]:
    """Return the id, the time and the number of turns of a session in columns, and its first prompt. The prompt is
    untrusted text.
    """
    when = time.strftime("%Y-%m-%d %H:%M", time.gmtime(seen.written))
    start = f"{seen.id[:8]}  {when} UTC"
    if seen.broken is not None:
        return start, f"cannot be read: {seen.broken}"
    fork = f"  (from {seen.forked_from[:8]})" if seen.forked_from else ""
    return f"{start}  {many(seen.turns, 'request'):<11}", f"{seen.first}{fork}"


def _first(file: BinaryIO) -> str:
    for raw in islice(iter(lambda: file.readline(LONGEST), b""), _HEAD):
        if _PROMPTS not in raw[:200]:
            continue
        try:
            entry = parse(raw)
            message = message_of(entry.body)
        except Unsound:
            continue
        if isinstance(message, UserMessage):
            return cut(_typed(file.readline(LONGEST), entry.id) or said_of(message))
    return ""


def _typed(raw: bytes, prompt: str) -> str:
    """Return the text as the user typed it if the line `raw` belongs to `prompt`, else an empty string."""
    try:
        entry = parse(raw)
    except Unsound:
        return ""
    return str(entry.body["text"]) if entry.type == "typed" and entry.parent == prompt else ""


def _counted(file: BinaryIO) -> tuple[int, int]:
    """Return the numbers of prompts and turns, counted by the beginnings of lines. Quotes in texts are escaped, so no
    text looks like such a beginning.
    """
    file.seek(0)
    prompts = turns = 0
    rest = b""
    keep = max(len(_PROMPTS), len(_TURNS)) - 1
    while block := file.read(_BLOCK):
        data = rest + block
        prompts, turns = prompts + data.count(_PROMPTS), turns + data.count(_TURNS)
        rest = data[-keep:]
        prompts, turns = prompts - rest.count(_PROMPTS), turns - rest.count(_TURNS)
    return prompts + rest.count(_PROMPTS), turns + rest.count(_TURNS)
