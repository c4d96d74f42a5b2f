"""Tables: CSV with columns that keep their names and order (new columns are added at the end), and JSON Lines."""

import csv
import io
from collections.abc import Iterable, Iterator

from runner.audit.decisions import DecisionTrail
from runner.audit.fields import beginning, items, length, mapping, number
from runner.audit.list_view import json_line

COLUMNS = (
    "id", "time", "session", "workspace", "model", "tool", "verdict", "asked", "tier", "mode", "ruling", "action",
    "why", "rule", "answer", "answered_by", "hosts", "status", "seconds", "ended_by", "violations", "hash", "log",
)  # fmt: skip
_CUT = 2_000  # characters of one cell; a spreadsheet takes 32,767
# SOURCE: owasp.org/www-community/attacks/CSV_Injection. A spreadsheet takes such a cell for a formula.
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")


def lines(deeds: Iterable[DecisionTrail]) -> Iterator[str]:
    """Yield the header, then one line for each decision (RFC 4180, without line ends)."""
    yield ",".join(COLUMNS)
    for deed in deeds:
        out = io.StringIO()
        csv.writer(out, lineterminator="").writerow([_cell(value) for value in _row(deed)])
        yield out.getvalue()


def _row(deed: DecisionTrail) -> list[object]:
    body, outcome, session = deed.body, deed.outcome, deed.start
    cell, answer = mapping(body.get("cell")), mapping(body.get("answer"))
    found: dict[str, object] = {
        "id": deed.record.id,
        "time": body.get("time"),
        "session": body.get("session"),
        "workspace": session.get("workspace"),
        "model": session.get("model"),
        "tool": beginning(body.get("tool")),
        "verdict": body.get("verdict"),
        "asked": "yes" if deed.asked else "no",
        "tier": deed.tier,
        "mode": body.get("mode"),
        "ruling": cell.get("ruling"),
        "action": _cut(deed.action_value),
        "why": deed.why,
        "rule": deed.rule,
        "answer": ("yes" if answer.get("yes") else "no") if answer else "",
        "answered_by": answer.get("by"),
        "hosts": " ".join(deed.hosts),
        "status": outcome.get("status"),
        "seconds": outcome.get("seconds"),
        "ended_by": outcome.get("ended_by"),
        "violations": "; ".join(beginning(mapping(item).get("what")) for item in items(outcome.get("violations"))),
        "hash": deed.record.hash,
        "log": deed.record.log,
    }
    return [found[name] for name in COLUMNS]


def _cut(value: object) -> str:
    kept, whole = beginning(value), length(value)
    return kept if whole <= _CUT else f"{kept[:_CUT]}… ({whole} characters)"


def _cell(value: object) -> str:
    """Return the cell such that a spreadsheet reads no formula and a terminal no control or direction character in
    it."""
    if value is None:
        return ""
    if number(value) is not None:
        return str(value)
    from runner.text.sanitize import visible

    said = str(value)
    shown = visible(said, lines=False)  # one decision, one line
    return f"'{shown}" if said.lstrip(" ").startswith(_FORMULA) else shown


def jsonl_lines(deeds: Iterable[DecisionTrail]) -> Iterator[str]:
    """Yield each decision as one line of JSON, with the same object as `agent audit list --json`."""
    for deed in deeds:
        yield json_line(deed)
