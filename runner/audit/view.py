"""The audit log as people read it (one verdict, two lines) and as programs do (one JSON object a line)."""

import json
from collections.abc import Iterator

from policy.record import dataclass
from runner.audit.deeds import deeds
from runner.audit.log import AuditLog, Record
from runner.audit.query import Query
from runner.visible import one_line, visible

_RED, _GREEN, _YELLOW, _DIM, _END = "\x1b[31m", "\x1b[32m", "\x1b[33m", "\x1b[2m", "\x1b[0m"
# What an action's line shows, by the field of the action that says most.
_TELLING = ("script", "argv", "pattern", "path", "root")
_HOSTS = 5  # that are named of one command


@dataclass(frozen=True, slots=True)
class Entry:
    """One decision and what became of it, in words. `status` is None when nothing ran, or when no end was recorded."""

    id: int
    time: str
    tool: str
    verdict: str
    tier: str
    action: str
    why: str
    rule: str
    cell: str
    answer: str
    outcome: str
    network: str  # whom it connected to, and whom it did not
    violations: tuple[str, ...]
    typed: str = ""


def entries(log: AuditLog, query: Query | None = None, *, limit: int | None = None) -> Iterator[Entry]:
    """The decisions, newest first."""
    for deed in deeds(log, query, limit=limit):
        yield _entry(deed.record, deed.finished)


def lines(
    log: AuditLog, query: Query | None = None, *, limit: int | None = None, colour: bool = False, width: int = 110
) -> Iterator[str]:
    """The listing for people, safe to print on a terminal. Says so when there is nothing to list."""
    empty = True
    for entry in entries(log, query, limit=limit):
        empty = False
        yield from _lines(entry, colour, width)
    if empty:
        yield nothing(query)


def nothing(query: Query | None) -> str:
    """What to say when a query found nothing."""
    if query is None or query == Query():
        return "nothing was decided yet"
    return "nothing was denied" if query == Query(verdicts=("deny",)) else "no decision matches"


def json_lines(log: AuditLog, query: Query | None = None, *, limit: int | None = None) -> Iterator[str]:
    """The same decisions with every field of their records, and `outcome` (null when nothing ran)."""
    for deed in deeds(log, query, limit=limit):
        outcome = {"id": deed.finished.id, **deed.finished.body} if deed.finished else None
        yield json.dumps({"id": deed.record.id, "hash": deed.record.hash, **deed.record.body, "outcome": outcome})


def whole(log: AuditLog, number: int) -> str | None:
    """One decision with its session and its outcome as indented JSON; None when there is no such record."""
    found = next(log.rows(first=number, limit=1), None)
    if found is None or found.id != number:
        return None
    session = next(log.rows(kind="session", session=str(found.body.get("session"))), None)
    finished = log.outcome_of(number)
    shown = {"id": found.id, "hash": found.hash, **found.body}
    shown["session_record"] = session.body if session and session.id != number else None
    shown["outcome"] = finished.body if finished else None
    return json.dumps(shown, indent=2)


def _entry(record: Record, finished: Record | None) -> Entry:
    body = record.body
    because, cell, problem = _object(body, "because"), _object(body, "cell"), _object(body, "problem")
    answer = _object(body, "answer")
    said = ("yes" if answer.get("yes") else "no") if answer else ""
    malformed = record.kind == "refused"
    return Entry(
        id=record.id,
        time=_string(body.get("time")),
        tool=_string(body.get("tool")),
        verdict=_string(body.get("verdict")),
        tier="malformed" if malformed else _string(cell.get("tier")),
        action=_string(body.get("arguments")) if malformed else _action(_object(body, "action")),
        why=_string(problem.get("what") if malformed else because.get("text")),
        rule=_string(because.get("rule")),
        cell="" if malformed else _cell(cell, unanswered=body.get("verdict") == "deny" and not answer),
        answer=f"{said}, by {_string(answer.get('by'))}{_kept(body, answer)}" if answer else "",
        outcome=_outcome(finished.body) if finished else "",
        typed=", ".join(map(_string, _items(body.get("typed")))),
        network=_network(finished.body) if finished else "",
        violations=tuple(_string(_mapping(item).get("what")) for item in _list(finished)),
    )


def _lines(entry: Entry, colour: bool, width: int) -> Iterator[str]:
    red, green, yellow, dim, end = (_RED, _GREEN, _YELLOW, _DIM, _END) if colour else ("",) * 5
    hue = red if entry.verdict == "deny" else green
    day = f"{entry.time[:10]} {entry.time[11:19]}"
    head = f"{entry.id:>5}  {day}  "
    badge = f"{entry.verdict:<5}  {entry.tier:<13}  "
    room = max(width - len(head) - len(badge) - len(entry.tool) - 2, 20)
    yield f"{dim}{head}{end}{hue}{badge}{end}{visible(entry.tool)}  {one_line(entry.action, room)}"
    told = [
        f"{entry.why} ({'; '.join(part for part in (entry.rule, entry.cell) if part)})" if entry.rule else entry.why
    ]
    told += [f"added by flags: {entry.typed}"] if entry.typed else []
    told += [f"answered: {entry.answer}"] if entry.answer else []
    told += [entry.outcome] if entry.outcome else []
    told += [f"network: {entry.network}"] if entry.network else []
    for text in told:
        yield f"       {dim}{visible(text, lines=False)}{end}"
    for text in entry.violations:
        yield f"       {yellow}stopped: {visible(text, lines=False)}{end}"


def _kept(body: dict[str, object], answer: dict[str, object]) -> str:
    """Under which names an answer was remembered; nothing where a grant gave it."""
    names = [_string(name) for name in _items(body.get("grants"))]
    return f", remembered as {', '.join(names)}" if names and answer.get("by") == "terminal" else ""


def _cell(cell: dict[str, object], *, unanswered: bool) -> str:
    nobody = ", with nobody there to ask" if unanswered and cell.get("ruling") == "ask" else ""
    return f"{cell.get('tier')} x {cell.get('mode')} = {cell.get('ruling')}{nobody}"


def _outcome(body: dict[str, object]) -> str:
    seconds = body.get("seconds")
    took = f" after {seconds:.2f} s" if isinstance(seconds, int | float) else ""
    ended = f", ended by: {body['ended_by']}" if body.get("ended_by") else ""
    return f"exit {body.get('status')}{took}{ended}"


def _network(body: dict[str, object]) -> str:
    """Every host and port once, in the order of the first attempt, with the verdict; a few of them."""
    made = [_mapping(item) for item in _items(body.get("connections"))]
    said = [
        f"{_place(each)} {'allowed' if each.get('allowed') else 'denied'}"
        + (f" with credential {_string(each.get('credential'))}" if each.get("credential") else "")
        for each in made
    ]
    found = list(dict.fromkeys(said))
    return ", ".join(found[:_HOSTS]) + (f" and {len(found) - _HOSTS} more" if len(found) > _HOSTS else "")


def _place(made: dict[str, object]) -> str:
    """Host and port as an allowlist spells them; a name that could not be read has neither."""
    host, port = _string(made.get("host")), made.get("port")
    if not host:
        return "nobody"
    host = f"[{host}]" if ":" in host else host
    return f"{host}:{port}" if port else host


def _action(body: dict[str, object]) -> str:
    kind = _string(body.get("type"))
    shown = next((body[name] for name in _TELLING if name in body), "")
    text = " ".join(_string(word) for word in shown) if isinstance(shown, list) else _string(shown)
    if kind in ("RunScript", "RunArgv"):
        return f"$ {text}"
    where = f" in {_string(body['root'])}" if "pattern" in body and "root" in body else ""
    return f"{text}{where}"


def _string(value: object) -> str:
    """A text, or the beginning of one that was cut when it was recorded."""
    if isinstance(value, dict):
        return f"{value.get('cut', '')}…"
    return value if isinstance(value, str) else ""


def _object(body: dict[str, object], name: str) -> dict[str, object]:
    return _mapping(body.get(name))


def _mapping(value: object) -> dict[str, object]:
    return value if isinstance(value, dict) else {}


def _list(finished: Record | None) -> list[object]:
    return _items(finished.body.get("violations") if finished else None)


def _items(value: object) -> list[object]:
    return value if isinstance(value, list) else []
