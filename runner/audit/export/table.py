"""Tables: CSV and JSON Lines. Columns keep their names and order; later versions add columns at the end."""

import csv
import io
from collections.abc import Iterable, Iterator

from runner.audit.decisions import DecisionTrail
from runner.audit.fields import beginning, items, length, mapping, number
from runner.audit.list_view import decision_json

COLUMNS = (
    "id", "time", "session", "workspace", "model", "tool", "verdict", "asked", "tier", "mode", "ruling", "action",
    "why", "rule", "answer", "answered_by", "hosts", "status", "seconds", "ended_by", "violations", "hash", "log",
    "agent", "parent",
)  # fmt: skip
_CUT = 2_000  # characters of one cell; a spreadsheet accepts 32,767
# SOURCE: owasp.org/www-community/attacks/CSV_Injection. A spreadsheet reads a cell with this beginning as a formula.
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")


def lines(deeds: Iterable[DecisionTrail]) -> Iterator[str]:
    """Yield the header, then one line for each decision (RFC 4180, without line ends)."""
    yield ",".join(COLUMNS)
    for deed in deeds:
        row = flat(deed)
        row |= {"tool": beginning(row["tool"]), "action": _cut(deed.action_value), "hosts": " ".join(deed.hosts)}
        row |= {"asked": "yes" if deed.asked else "no", "violations": "; ".join(violations(deed))}
        out = io.StringIO()
        csv.writer(out, lineterminator="").writerow([_cell(row[name]) for name in COLUMNS])
        yield out.getvalue()


def flat(deed: DecisionTrail) -> dict[str, object]:
    """Return the fields of a decision, its session and its outcome on one level, by the names of COLUMNS."""
    answer = mapping(deed.body.get("answer"))
    return {
        "id": deed.record.id,
        **{name: deed.body.get(name) for name in ("time", "session", "tool", "verdict", "mode")},
        **{name: deed.start.get(name) for name in ("workspace", "model")},
        **{name: deed.outcome.get(name) for name in ("status", "seconds", "ended_by")},
        **{name: getattr(deed, name) for name in ("asked", "tier", "action", "why", "rule", "hosts")},
        "ruling": mapping(deed.body.get("cell")).get("ruling"),
        "answer": ("yes" if answer.get("yes") else "no") if answer else None,
        "answered_by": answer.get("by"),
        "violations": violations(deed),
        "hash": deed.record.hash,
        "log": deed.record.log,
        "agent": deed.agent,
        "parent": deed.parent or None,
    }


def violations(deed: DecisionTrail) -> list[str]:
    """Return the violations of the outcome, in words."""
    return [beginning(mapping(item).get("what")) for item in items(deed.outcome.get("violations"))]


def _cut(value: object) -> str:
    kept, whole = beginning(value), length(value)
    return kept if whole <= _CUT else f"{kept[:_CUT]}… ({whole} characters)"


def _cell(value: object) -> str:
    """Return the text of a cell without formulas for a spreadsheet, and without control and direction characters."""
    if value is None:
        return ""
    if number(value) is not None:
        return str(value)
    from runner.text.sanitize import visible

    text = str(value)
    shown = visible(text, lines=False)  # without line breaks: each decision is one line
    return f"'{shown}" if text.lstrip(" ").startswith(_FORMULA) else shown


def jsonl_lines(deeds: Iterable[DecisionTrail]) -> Iterator[str]:
    """Yield each decision as one line of JSON, with the same object as `agent audit list --json`."""
    for deed in deeds:
        yield decision_json(deed)
