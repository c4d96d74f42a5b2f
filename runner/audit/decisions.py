"""Decisions with their sessions and outcomes, for all readers of the log."""

import re
from collections.abc import Iterator

from policy.model.frozen import dataclass
from policy.model.profile import MAIN
from runner.audit.chain import Record
from runner.audit.fields import Body, beginning, items, mapping, text
from runner.audit.log import AuditLog
from runner.audit.query import Query, was_question
from runner.audit.records import AnswerSource
from runner.state.session_id import is_session_id

DECISIONS = ("decided", "refused", "applied", "forwarded", "planned", "replied")  # kinds of records with a verdict
# The first one present describes the action.
_TELLING = (
    *("script", "argv", "forward", "text", "process", "pattern", "path", "root", "plan"),
    *("url", "uri", "query", "prompt", "arguments", "message"),
)
SESSIONS = 256  # session records in memory at a time: a log may have as many sessions as decisions
# The field `answer.by` of a remembered answer. Records of earlier versions have no field `answer.source`.
_REMEMBERED = re.compile(r"(?:(grant)|remembered no) g[0-9a-f]+(?:, g[0-9a-f]+)*")


@dataclass(frozen=True, slots=True)
class DecisionTrail:
    """A decision together with its session and its outcome.

    Attributes:
        record: the decision; its kind is one of DECISIONS
        session: the session's record; None if the log does not contain it
        finished: the outcome; None if nothing ran, if the action still runs, or if the program was killed
    """

    record: Record
    session: Record | None
    finished: Record | None

    @property
    def body(self) -> dict[str, object]:
        return self.record.body

    @property
    def outcome(self) -> dict[str, object]:
        """Return the body of the outcome; empty without an outcome."""
        return self.finished.body if self.finished else {}

    @property
    def start(self) -> dict[str, object]:
        """Return the body of the session's record; empty without a session."""
        return self.session.body if self.session else {}

    @property
    def malformed(self) -> bool:
        """Return True for a call that never became an action."""
        return self.record.kind == "refused"

    @property
    def denied(self) -> bool:
        return self.body.get("verdict") == "deny"

    @property
    def asked(self) -> bool:
        return was_question(self.body)

    @property
    def agent(self) -> str:
        """Return the name of the acting agent. Records of earlier versions have none: there was only `main`."""
        return beginning(self.body.get("agent")) or MAIN

    @property
    def parent(self) -> str:
        """Return the name of the agent that started the acting agent; empty for `main`."""
        return beginning(self.body.get("parent"))

    @property
    def tier(self) -> str:
        """Return the deciding tier; `malformed` for a call that never became an action."""
        return "malformed" if self.malformed else beginning(mapping(self.body.get("cell")).get("tier"))

    @property
    def rule(self) -> str:
        return beginning(mapping(self.body.get("because")).get("rule"))

    @property
    def why(self) -> str:
        field, name = ("problem", "what") if self.malformed else ("because", "text")
        return beginning(mapping(self.body.get(field)).get(name))

    @property
    def subject(self) -> object:
        """Return the field that describes the action: a script, the words of a command, a path, or the arguments of a
        malformed call.
        """
        if self.malformed:
            return self.body.get("arguments")
        action = mapping(self.body.get("action"))
        return next((action[name] for name in _TELLING if name in action), "")

    @property
    def action_value(self) -> object:
        """Return the requested action as recorded, with the words of a command joined."""
        value = self.subject
        if isinstance(value, list):
            return " ".join(beginning(word) for word in value)
        return {**value, "cut": beginning(value).replace("\0", " ")} if isinstance(value, dict) else value

    @property
    def action(self) -> str:
        return beginning(self.action_value)

    @property
    def hosts(self) -> list[str]:
        """Return the hosts that the action named or tried to reach, without ports and repetitions."""
        effects = map(mapping, items(self.body.get("effects")))
        named = [beginning(effect.get("target")) for effect in effects if effect.get("kind") == "connects"]
        tried = [beginning(mapping(made).get("host")) for made in items(self.outcome.get("connections"))]
        return list(dict.fromkeys(bare_host(host) for host in [*named, *tried] if host))


def bare_host(entry: str) -> str:
    """Return the host of an allowlist entry, without its methods, port, path and the word `private`. An IPv6 address
    has no brackets.

    The target of a connection can be a complete entry, as typed after `--host`.
    """
    host = entry.removesuffix(" private").rpartition(" ")[2].partition("/")[0]
    name, colon, port = host.rpartition(":")
    if colon and (port.isdigit() or port == "*") and (":" not in name or name.endswith("]")):
        host = name
    return host[1:-1] if host.startswith("[") and host.endswith("]") else host


def answer_source(body: Body) -> AnswerSource | None:
    """Return the origin of the answer to the question of a decision; None if there was no answer."""
    answer = mapping(body.get("answer"))
    if not answer:
        return None
    source = answer.get("source")
    if source in list(AnswerSource):
        return AnswerSource(str(source))
    remembered = _REMEMBERED.fullmatch(text(answer.get("by")))
    if remembered is None:
        return AnswerSource.USER
    return AnswerSource.GRANT if remembered[1] else AnswerSource.REFUSAL


def deeds(log: AuditLog, query: Query | None = None, *, limit: int | None = None) -> Iterator[DecisionTrail]:
    """Yield the decisions that match `query`, newest first, at most `limit`."""
    wanted = query or Query()
    sessions: dict[str, Record | None] = {}
    left = limit
    for record in log.rows(kind=DECISIONS, query=wanted):
        if left == 0:
            return
        name = str(record.body.get("session", ""))
        if name not in sessions:
            if len(sessions) >= SESSIONS:
                sessions.clear()
            sessions[name] = log.named("session", name)
        finished = log.outcome_of(record.id) if record.body.get("verdict") != "deny" else None  # nothing ran
        trail = DecisionTrail(record, sessions[name], finished)
        if wanted.matches(trail.body, trail.start, trail.outcome):
            left = None if left is None else left - 1
            yield trail


def trail_of(log: AuditLog, record: Record) -> DecisionTrail | None:
    """Return the decision of `record`, a decision or an outcome; None for any other kind of record."""
    decision = log.cause_of(record.id) if record.kind == "finished" else record
    if decision is None or decision.kind not in DECISIONS:
        return None
    session = log.named("session", str(decision.body.get("session")))
    return DecisionTrail(decision, session, log.outcome_of(decision.id))


def record_named(log: AuditLog, word: str) -> Record | None:
    """Return the record with this name, or None.

    `12` is the record with that number; `last` is the newest decision; 4 to 16 hexadecimal digits are the beginning of
    a session's id. Of several such sessions, the newest is returned.
    """
    if word == "last":
        return next(log.rows(kind=DECISIONS, limit=1), None)
    if word.isascii() and word.isdigit() and len(word) < 16 and (found := log.get(int(word))) is not None:
        return found
    if not is_session_id(word):
        return None
    return next((row for row in log.rows(kind="session") if str(row.body.get("session", "")).startswith(word)), None)
