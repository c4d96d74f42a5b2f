"""List view of the log: for people two lines per decision, for programs one JSON object per line."""

import json
import textwrap
from collections.abc import Iterator

from policy.model.frozen import dataclass
from runner.audit.chain import Record
from runner.audit.decisions import DecisionTrail, deeds
from runner.audit.fields import Body, items, mapping, number, text
from runner.audit.log import AuditLog
from runner.audit.query import Query
from runner.text.sanitize import one_line, visible

_RED, _GREEN, _YELLOW, _DIM, _END = "\x1b[31m", "\x1b[32m", "\x1b[33m", "\x1b[2m", "\x1b[0m"
# The tiers that no rule and no remembered yes lifts are the loud ones; what only reads is quiet.
_LOUD = "\x1b[1;31m"
_HUES = {"read": _DIM, "dangerous": _LOUD, "unknown": _LOUD, "secret": _LOUD, "denied": _LOUD, "malformed": _LOUD}
# What an action's line shows, by the field of the action that says most.
_TELLING = ("script", "argv", "pattern", "path", "root", "plan")
_HOSTS = 5  # that are named of one command
_INDENT = " " * 7
NARROW = 84  # columns below which an action gets a line of its own
WIDE = 400  # characters of a line that nobody looks at through a terminal


@dataclass(frozen=True, slots=True)
class ListEntry:
    """One decision and its outcome, in words."""

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
    log: str = ""  # which of several logs that were merged


def lines(
    log: AuditLog, query: Query | None = None, *, limit: int | None = None, colour: bool = False, width: int = 110
) -> Iterator[str]:
    """Yield the list as text that is safe to print on a terminal, with a note when it is empty or incomplete."""
    count = 0
    for deed in deeds(log, query, limit=None if limit is None else limit + 1):
        if count == limit:
            notice = f"there are older ones; these are the newest {limit} (--limit N)"
            yield f"{_DIM}{notice}{_END}" if colour else notice
            return
        count += 1
        yield from entry_lines(entry(deed), colour=colour, width=width)
    if not count:
        yield nothing(query)


def nothing(query: Query | None) -> str:
    """Return the message for a query without results."""
    if query is None or query == Query():
        return "nothing was decided yet"
    return "nothing was denied" if query == Query(verdicts=("deny",)) else "no decision matches"


def json_lines(log: AuditLog, query: Query | None = None, *, limit: int | None = None) -> Iterator[str]:
    """Yield the same decisions as JSON: every field of the record, and `outcome` (null when nothing ran)."""
    for deed in deeds(log, query, limit=limit):
        yield json_line(deed)


def json_line(deed: DecisionTrail) -> str:
    """Return one decision as JSON. In a merged file, it names its chain and its number in that chain."""
    outcome = {"id": deed.finished.id, **deed.finished.body} if deed.finished else None
    return json.dumps({**_named(deed.record), **deed.record.body, "outcome": outcome})


def _named(record: Record) -> dict[str, object]:
    chain = {"log": record.log, "number": record.number} if record.log else {}
    return {"id": record.id, "hash": record.hash, **chain}


def whole(log: AuditLog, record: Record) -> str:
    """Return one record with its session and its outcome as indented JSON."""
    session = log.named("session", str(record.body.get("session")))
    finished = log.outcome_of(record.id)
    body = {**_named(record), **record.body}
    body["session_record"] = session.body if session and session.id != record.id else None
    body["outcome"] = finished.body if finished else None
    return json.dumps(body, indent=2)


def entry(deed: DecisionTrail) -> ListEntry:
    """Return one decision in words, which are as untrusted as the record: `entry_lines` makes them safe to print."""
    record, finished = deed.record, deed.finished
    body = record.body
    because, cell, problem = mapping(body.get("because")), mapping(body.get("cell")), mapping(body.get("problem"))
    answer = mapping(body.get("answer"))
    said = ("yes" if answer.get("yes") else "no") if answer else ""
    malformed = deed.malformed
    stopped = items(deed.outcome.get("violations"))
    return ListEntry(
        id=record.id,
        time=text(body.get("time")),
        tool=text(body.get("tool")),
        verdict=text(body.get("verdict")),
        tier=deed.tier,
        action=text(body.get("arguments")) if malformed else action_line(mapping(body.get("action"))),
        why=text(problem.get("what") if malformed else because.get("text")),
        rule=deed.rule,
        cell="" if malformed else _cell(cell, unanswered=body.get("verdict") == "deny" and not answer),
        answer=f"{said}, by {text(answer.get('by'))}{_kept(body, answer)}" if answer else "",
        outcome=_outcome(finished.body) if finished else "",
        typed=", ".join(map(text, items(body.get("typed")))),
        network=_network(finished.body) if finished else "",
        violations=tuple(text(mapping(item).get("what")) for item in stopped),
        log=record.log,
    )


def entry_lines(told: ListEntry, *, colour: bool, width: int) -> Iterator[str]:
    """Return safe lines of at most `width` columns for a terminal. A width above `WIDE` means no terminal: nothing is
    cut.
    """
    red, green, yellow, dim, end = (_RED, _GREEN, _YELLOW, _DIM, _END) if colour else ("",) * 5
    hue = red if told.verdict == "deny" else green
    tier = _HUES.get(told.tier, "") if colour else ""
    narrow = width < NARROW
    time = f"{told.time[5:10]} {told.time[11:16]}" if narrow else f"{told.time[:10]} {told.time[11:19]}"
    day = visible(time, lines=False)
    head = f"{told.id:>5}  {day}  "
    verdict, badge = (f"{visible(told.verdict, lines=False):<5}  ", f"{visible(told.tier, lines=False):<13}  ")
    who = visible(f"{told.log[:8]}  {told.tool}" if told.log else told.tool, lines=False)
    start = f"{dim}{head}{end}{hue}{verdict}{end}{tier}{badge}{end if tier else ''}{who}"
    if narrow:
        yield start
        yield f"{_INDENT}{one_line(told.action, max(width - len(_INDENT), 20))}"
    else:
        room = max(width - len(head) - len(verdict) - len(badge) - len(who) - 2, 20)
        yield f"{start}  {one_line(told.action, room)}"
    where = "; ".join(part for part in (told.rule, told.cell) if part)
    parts = [f"{told.why} ({where})" if told.rule else told.why]
    parts += [f"added by flags: {told.typed}"] if told.typed else []
    parts += [f"answered: {told.answer}"] if told.answer else []
    parts += [told.outcome] if told.outcome else []
    parts += [f"network: {told.network}"] if told.network else []
    for part in parts:
        yield from (f"{dim}{line}{end}" for line in _folded(part, width))
    for part in told.violations:
        yield from (f"{yellow}{line}{end}" for line in _folded(f"stopped: {part}", width))


def finished_line(record: Record, *, colour: bool, width: int) -> Iterator[str]:
    """Return the outcome of a decision as a line of its own."""
    dim, yellow, end = (_DIM, _YELLOW, _END) if colour else ("",) * 3
    network = _network(record.body)
    line_text = (
        f"{record.body.get('decided')!s:>5}  {_outcome(record.body)}{f'; network: {network}' if network else ''}"
    )
    yield f"{dim}{one_line(line_text, max(width, 20)) if width < WIDE else visible(line_text, lines=False)}{end}"
    for item in items(record.body.get("violations")):
        stopped = text(mapping(item).get("what"))
        yield from (f"{yellow}{line}{end}" for line in _folded(f"stopped: {stopped}", width))


def action_line(action: Body) -> str:
    """Return the action in short: the script, the words, or the path."""
    kind = text(action.get("type"))
    value = next((action[name] for name in _TELLING if name in action), "")
    words = " ".join(text(word) for word in value) if isinstance(value, list) else text(value)
    if kind in ("RunScript", "RunArgv"):
        return f"$ {words}"
    where = f" in {text(action['root'])}" if "pattern" in action and "root" in action else ""
    return f"{words}{where}"


def _folded(words: str, width: int) -> list[str]:
    """Return indented lines for a terminal of `width` columns; one line without a terminal."""
    shown = visible(words, lines=False)
    if width >= WIDE or len(shown) + len(_INDENT) <= width:
        return [f"{_INDENT}{shown}"]
    fits = max(width, len(_INDENT) + 20)
    return textwrap.wrap(shown, fits, initial_indent=_INDENT, subsequent_indent=f"{_INDENT}  ", break_on_hyphens=False)


def _kept(body: Body, answer: Body) -> str:
    """Return the names under which an answer was remembered; empty if a grant gave the answer."""
    names = [text(name) for name in items(body.get("grants"))]
    return f", remembered as {', '.join(names)}" if names and answer.get("by") == "terminal" else ""


def _cell(cell: Body, *, unanswered: bool) -> str:
    nobody = ", with nobody there to ask" if unanswered and cell.get("ruling") == "ask" else ""
    return f"{cell.get('tier')} x {cell.get('mode')} = {cell.get('ruling')}{nobody}"


def _outcome(body: Body) -> str:
    seconds = number(body.get("seconds"))
    took = f" after {seconds:.2f} s" if seconds is not None else ""
    ended = f", ended by: {body['ended_by']}" if body.get("ended_by") else ""
    return f"exit {body.get('status')}{took}{ended}"


def _network(body: Body) -> str:
    """Return some of the hosts and ports with the verdict, each once, in the order of the first attempt."""
    made = [mapping(item) for item in items(body.get("connections"))]
    attempts = [
        f"{place(each)} {'allowed' if each.get('allowed') else 'denied'}"
        + (f" with credential {text(each.get('credential'))}" if each.get("credential") else "")
        for each in made
    ]
    distinct = list(dict.fromkeys(attempts))
    return ", ".join(distinct[:_HOSTS]) + (f" and {len(distinct) - _HOSTS} more" if len(distinct) > _HOSTS else "")


def place(made: Body) -> str:
    """Return host and port of a connection as an allowlist spells them; empty for a name that could not be read."""
    host, port = text(made.get("host")), made.get("port")
    if not host:
        return "nobody"
    host = f"[{host}]" if ":" in host else host
    return f"{host}:{port}" if port else host
