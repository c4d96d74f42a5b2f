"""List view of the log: a line with the action and indented lines with the reason, answer, outcome and violations of
each decision, or one line of JSON per decision.
"""

import textwrap
from collections.abc import Iterator

from policy.model.profile import MAIN
from runner.audit.chain import Record
from runner.audit.decisions import DecisionTrail, deeds
from runner.audit.fields import Body, items, mapping, number, text, texts
from runner.audit.log import AuditLog
from runner.audit.query import Query
from runner.text.json_line import json_line
from runner.text.sanitize import one_line, visible

_RED, _GREEN, _YELLOW, _DIM, _END = "\x1b[31m", "\x1b[32m", "\x1b[33m", "\x1b[2m", "\x1b[0m"
_LOUD = "\x1b[1;31m"  # for the tiers that no rule and no grant can allow
_HUES = {"read": _DIM, "dangerous": _LOUD, "unknown": _LOUD, "secret": _LOUD, "denied": _LOUD, "malformed": _LOUD}
_HOSTS = 5  # listed connections of one command
_INDENT = " " * 7
NARROW = 84  # columns below which an action gets a line of its own
WIDE = 400  # columns from which on the output is not a terminal, so that lines are not cut


def lines(
    log: AuditLog, query: Query | None = None, *, limit: int | None = None, colour: bool = False, width: int = 110
) -> Iterator[str]:
    """Yield the list as text that is safe to print on a terminal, with a note when it is empty or incomplete."""
    count = 0
    for count, deed in enumerate(deeds(log, query, limit=None if limit is None else limit + 1), 1):
        if limit is not None and count > limit:
            notice = f"there are older decisions; these are the newest {limit} (--limit N)"
            yield f"{_DIM}{notice}{_END}" if colour else notice
            return
        yield from entry_lines(deed, colour=colour, width=width)
    if not count:
        yield nothing(query)


def nothing(query: Query | None) -> str:
    """Return the message for a query without results."""
    if query is None or query == Query():
        return "nothing was decided yet"
    return "nothing was denied" if query == Query(verdicts=("deny",)) else "no decision matches"


def json_lines(log: AuditLog, query: Query | None = None, *, limit: int | None = None) -> Iterator[str]:
    """Yield the decisions that match `query` as JSON: every field of the record, and `outcome` (null if there is
    none)."""
    for deed in deeds(log, query, limit=limit):
        yield decision_json(deed)


def decision_json(deed: DecisionTrail) -> str:
    """Return one decision as JSON. In a merged file, the object has the chain and the number in that chain."""
    outcome = {"id": deed.finished.id, **deed.finished.body} if deed.finished else None
    return json_line({**_named(deed.record), **deed.record.body, "outcome": outcome})


def _named(record: Record) -> dict[str, object]:
    chain = {"log": record.log, "number": record.number} if record.log else {}
    return {"id": record.id, "hash": record.hash, **chain}


def whole(log: AuditLog, record: Record) -> str:
    """Return one record with its session and its outcome as JSON."""
    session = log.named("session", str(record.body.get("session")))
    finished = log.outcome_of(record.id)
    body = {**_named(record), **record.body}
    body["session_record"] = session.body if session and session.id != record.id else None
    body["outcome"] = finished.body if finished else None
    return json_line(body)


def entry_lines(deed: DecisionTrail, *, colour: bool, width: int) -> Iterator[str]:
    """Yield one decision and its outcome as lines of at most `width` columns that are safe to print on a terminal. From
    a width of `WIDE` on, lines are not cut.
    """
    record, body = deed.record, deed.body
    because, cell, answer = (mapping(body.get(name)) for name in ("because", "cell", "answer"))
    denied, grants = body.get("verdict") == "deny", items(body.get("grants"))
    red, green, yellow, dim, end = (_RED, _GREEN, _YELLOW, _DIM, _END) if colour else ("",) * 5
    tier = _HUES.get(deed.tier, "") if colour else ""
    time, tool = text(body.get("time")), text(body.get("tool"))
    narrow, action = width < NARROW, action_line(deed)
    day = visible(f"{time[5:10]} {time[11:16]}" if narrow else f"{time[:10]} {time[11:19]}", lines=False)
    head = f"{record.id:>5}  {day}  "
    verdict = f"{visible(text(body.get('verdict')), lines=False):<5}  "
    badge = f"{visible(deed.tier, lines=False):<13}  "
    by = "" if deed.agent == MAIN else f"[{deed.agent} < {deed.parent or '?'}] "
    who = visible(f"{record.log[:8]}  {by}{tool}" if record.log else f"{by}{tool}", lines=False)
    start = f"{dim}{head}{end}{red if denied else green}{verdict}{end}{tier}{badge}{end if tier else ''}{who}"
    if narrow:
        yield start
        yield f"{_INDENT}{one_line(action, max(width - len(_INDENT), 20))}"
    else:
        room = max(width - len(head) - len(verdict) - len(badge) - len(who) - 2, 20)
        yield f"{start}  {one_line(action, room) if width < WIDE else visible(action.strip(), lines=False)}"
    nobody = ", and no user could be asked" if denied and not answer and cell.get("ruling") == "ask" else ""
    matrix = "" if deed.malformed else f"{cell.get('tier')} x {cell.get('mode')} = {cell.get('ruling')}{nobody}"
    where = "; ".join(part for part in (deed.rule, matrix) if part)
    why = text(mapping(body.get("problem")).get("what") if deed.malformed else because.get("text"))
    parts = [f"{why} ({where})" if deed.rule else why]
    if typed := ", ".join(texts(body.get("typed"))):
        parts.append(f"added by flags: {typed}")
    if answer:
        stored = f", remembered as {', '.join(map(text, grants))}" if grants and answer.get("by") == "terminal" else ""
        parts.append(f"answered: {'yes' if answer.get('yes') else 'no'}, by {text(answer.get('by'))}{stored}")
    if deed.finished:
        parts.append(_outcome(deed.outcome))
        parts += [f"network: {network}"] if (network := _network(deed.outcome)) else []
    for part in parts:
        yield from (f"{dim}{line}{end}" for line in _folded(part, width))
    yield from (f"{yellow}{line}{end}" for line in _stopped(deed.outcome, width))


def finished_line(record: Record, *, colour: bool, width: int) -> Iterator[str]:
    """Yield the outcome of an earlier decision as lines that are safe to print on a terminal."""
    dim, yellow, end = (_DIM, _YELLOW, _END) if colour else ("",) * 3
    network = _network(record.body)
    line_text = (
        f"{record.body.get('decided')!s:>5}  {_outcome(record.body)}{f'; network: {network}' if network else ''}"
    )
    yield f"{dim}{one_line(line_text, max(width, 20)) if width < WIDE else visible(line_text, lines=False)}{end}"
    yield from (f"{yellow}{line}{end}" for line in _stopped(record.body, width))


def action_line(deed: DecisionTrail) -> str:
    """Return the action in short: the script, the words, the path, or the arguments of a malformed call."""
    value = deed.subject
    words = " ".join(text(word) for word in value) if isinstance(value, list) else text(value)
    action = {} if deed.malformed else mapping(deed.body.get("action"))
    if text(action.get("type")) in ("RunScript", "RunArgv"):
        return f"$ {words}"
    if text(action.get("type")) in ("SpawnAgent", "ManageAgent"):
        return f"{text(action.get('agent'))}: {text(action.get('prompt') or action.get('text'))}".rstrip(": ")
    where = f" in {text(action['root'])}" if "pattern" in action and "root" in action else ""
    return f"{words}{where}"


def _folded(words: str, width: int) -> list[str]:
    """Return indented lines for a terminal of `width` columns; one line without a terminal."""
    shown = visible(words, lines=False)
    if width >= WIDE or len(shown) + len(_INDENT) <= width:
        return [f"{_INDENT}{shown}"]
    fits = max(width, len(_INDENT) + 20)
    return textwrap.wrap(shown, fits, initial_indent=_INDENT, subsequent_indent=f"{_INDENT}  ", break_on_hyphens=False)


def _stopped(body: Body, width: int) -> Iterator[str]:
    """Yield the violations of an outcome as indented lines."""
    for item in items(body.get("violations")):
        yield from _folded(f"blocked: {text(mapping(item).get('what'))}", width)


def _outcome(body: Body) -> str:
    seconds = number(body.get("seconds"))
    took = f" after {seconds:.2f} s" if seconds is not None else ""
    ended = f", ended by: {body['ended_by']}" if body.get("ended_by") else ""
    return f"exit {body.get('status')}{took}{ended}"


def _network(body: Body) -> str:
    """Return the first hosts and ports with their verdicts, without repetitions, in the order of the attempts."""
    made = [mapping(item) for item in items(body.get("connections"))]
    attempts = [
        f"{place(each)} {'allowed' if each.get('allowed') else 'denied'}"
        + (f" with credential {text(each.get('credential'))}" if each.get("credential") else "")
        for each in made
    ]
    distinct = list(dict.fromkeys(attempts))
    return ", ".join(distinct[:_HOSTS]) + (f" and {len(distinct) - _HOSTS} more" if len(distinct) > _HOSTS else "")


def place(made: Body) -> str:
    """Return host and port of a connection in the form of the allowlist, or words if the host cannot be read."""
    host, port = text(made.get("host")), made.get("port")
    if not host:
        return "an unreadable host"
    host = f"[{host}]" if ":" in host else host
    return f"{host}:{port}" if port else host
