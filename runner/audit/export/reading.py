"""Readers of single record fields for exports. A record may be of another version, or cut: missing fields are empty."""

import re
from collections.abc import Iterator

from runner.audit.decisions import DecisionTrail
from runner.audit.fields import items as items
from runner.audit.fields import mapping as mapping
from runner.audit.fields import number as number
from runner.audit.query import was_question

_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")
_LONGEST = 1 << 31  # characters of a script

# What tells most of an action, by the name of its field.
_TELLING = ("script", "argv", "pattern", "path", "url", "root", "plan")


def text(value: object) -> str:
    """Return a text, or the recorded beginning of one that was cut."""
    if isinstance(value, dict):
        value = value.get("cut")
    return value if isinstance(value, str) else ""


def length(value: object) -> int:
    """Return the length of the whole text, also when only its beginning was recorded."""
    kept = len(text(value))
    said = whole(value.get("length")) if isinstance(value, dict) else None
    return max(kept, said or 0)


def whole(value: object) -> int | None:
    found = number(value)
    return found if isinstance(found, int) else None


def time(value: object) -> str:
    """Return a time in the format of records; empty for anything else."""
    said = text(value)
    return said if _TIME.fullmatch(said) else ""


def span(value: object) -> list[int]:
    """Return begin and end in code points, half-open; empty for none."""
    found = [whole(each) for each in items(value)]
    if len(found) != 2 or found[0] is None or found[1] is None or not 0 <= found[0] < found[1] <= _LONGEST:
        return []
    return [found[0], found[1]]


def body(deed: DecisionTrail) -> dict[str, object]:
    return deed.record.body


def outcome(deed: DecisionTrail) -> dict[str, object]:
    return deed.finished.body if deed.finished else {}


def session(deed: DecisionTrail) -> dict[str, object]:
    return deed.session.body if deed.session else {}


def action_text(deed: DecisionTrail) -> object:
    """Return the requested action as recorded: a script, the joined words of a program, a path, or the arguments of a
    call.
    """
    if deed.record.kind == "refused":
        return body(deed).get("arguments")
    action = mapping(body(deed).get("action"))
    found = next((action[name] for name in _TELLING if name in action), "")
    if isinstance(found, list):
        return " ".join(text(word) for word in found)
    return found if not isinstance(found, dict) else {**found, "cut": text(found).replace("\0", " ")}


def action(deed: DecisionTrail) -> str:
    return text(action_text(deed))


def tier(deed: DecisionTrail) -> str:
    """Return the deciding tier; `malformed` for a call that never became an action."""
    return "malformed" if deed.record.kind == "refused" else text(mapping(body(deed).get("cell")).get("tier"))


def rule(deed: DecisionTrail) -> str:
    return text(mapping(body(deed).get("because")).get("rule"))


def why(deed: DecisionTrail) -> str:
    said = body(deed).get("problem") if deed.record.kind == "refused" else body(deed).get("because")
    return text(mapping(said).get("what" if deed.record.kind == "refused" else "text"))


def denied(deed: DecisionTrail) -> bool:
    return body(deed).get("verdict") == "deny"


def asked(deed: DecisionTrail) -> bool:
    return was_question(body(deed))


def connections(deed: DecisionTrail) -> Iterator[dict[str, object]]:
    """Return every recorded attempt to reach a host, first to last."""
    for item in items(outcome(deed).get("connections")):
        yield mapping(item)


def hosts(deed: DecisionTrail) -> list[str]:
    """Return each host that the action named or tried to reach once, without ports."""
    named = [
        text(effect.get("target"))
        for effect in map(mapping, items(body(deed).get("effects")))
        if effect.get("kind") == "connects"
    ]
    tried = [text(made.get("host")) for made in connections(deed)]
    return list(dict.fromkeys(_bare(host) for host in [*named, *tried] if host))


def _bare(host: str) -> str:
    """Return the host without its port, and an IPv6 address without its brackets."""
    name, colon, port = host.rpartition(":")
    if colon and port.isdigit() and (":" not in name or name.endswith("]")):
        host = name
    return host[1:-1] if host.startswith("[") and host.endswith("]") else host
