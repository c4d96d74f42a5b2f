"""Encoder of decisions and outcomes to JSON. Long texts are cut and keep their length and SHA-256.

Values of environment variables are left out, because a user may pass a token through. The digest of the terms covers
these values nevertheless.
"""

import hashlib
import time
from dataclasses import fields
from typing import TYPE_CHECKING

from policy.model.action import Action
from policy.model.assessment import Effect, Reason
from policy.model.verdict import Problem, Terms
from sandbox.backend import Connection, Enforcement

if TYPE_CHECKING:
    from policy.grants.grant import Grant

TEXT_KEPT = 16_384  # characters of one text


def now(seconds: float | None = None) -> str:
    """Return the current time, or the time `seconds` after 1970, in UTC as records spell it."""
    at = time.time() if seconds is None else seconds
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(at)) + f".{int(at * 1000) % 1000:03d}Z"


def text(said: str) -> object:
    """Return the text, or its beginning together with the length and SHA-256 of the whole."""
    if len(said) <= TEXT_KEPT:
        return said
    digest = hashlib.sha256(said.encode("utf-8", "surrogatepass")).hexdigest()
    return {"cut": said[:TEXT_KEPT], "length": len(said), "sha256": digest}


def action(asked: Action) -> dict[str, object]:
    found: dict[str, object] = {"type": asked.kind}
    for item in fields(asked):
        value = getattr(asked, item.name)
        if isinstance(value, tuple):  # argv: cut as one text, so that a million words stay one short record
            whole = sum(len(word) + 1 for word in value) > TEXT_KEPT
            found[item.name] = text("\0".join(value)) if whole else list(value)
        else:
            found[item.name] = text(value) if isinstance(value, str) else value
    return found


def effect(one: Effect) -> dict[str, object]:
    target = text(one.target)
    return {"kind": one.kind.value, "target": target, "scope": one.scope.value, "exact": one.exact}


def reason(one: Reason) -> dict[str, object]:
    span = [one.span.start, one.span.end] if one.span else None
    return {"tier": one.tier.label, "text": text(one.text), "rule": str(one.rule), "span": span}


def problem(one: Problem) -> dict[str, object]:
    return {"what": text(one.what), "why": text(one.why), "fix": text(one.fix)}


def granted(grants: "tuple[Grant, ...]") -> list[dict[str, object]]:
    if not grants:
        return []
    from runner.gate.grants.codec import to_json  # few actions rest on one

    return [to_json(grant) for grant in grants]


def enforcement(report: Enforcement) -> dict[str, object]:
    return {
        "level": report.level.value,
        "backend": report.backend,
        "checks": dict(report.checks),
        "missing": list(report.missing),
        "limits": report.limits,
    }


def terms(given: Terms) -> dict[str, object]:
    return {
        "rights": given.rights.value,
        "workspace": given.workspace,
        "home": given.home,
        "system": list(given.system),
        "read": list(given.read),
        "write": list(given.write),
        "hidden": list(given.hidden),
        "shown": list(given.shown),
        "locked": list(given.locked),
        "hosts": list(given.hosts),
        "env": [name for name, _ in given.env],
        "cache": given.cache,
        "unix": given.unix,
        "credentials": list(given.credentials),
        "limits": {item.name: getattr(given.limits, item.name) for item in fields(given.limits)},
    }


def connection(made: Connection) -> dict[str, object]:
    """Return one attempt to reach a host, with the verdict of the proxy."""
    told = {item.name: getattr(made, item.name) for item in fields(made)}
    return {**told, "host": text(made.host), "asked": text(made.asked), "why": text(made.why)}
