"""Text of a grant, for lists and for single grants. The text is untrusted: print it through `visible`."""

import time

from policy.grants.grant import Grant, GrantScope
from policy.model.tier import Ruling


def lines(grant: Grant, now: float, here: str) -> list[str]:
    """Return a grant for a list: its subject, then its holder and validity. `here` is the current folder."""
    word = "allow" if grant.ruling is Ruling.ALLOW else "deny"
    bounds = [_where(grant, here), *_left(grant, now), f"by {grant.who}" if grant.who else ""]
    lines = [f"{grant.id}  {word:<5}  {about(grant)}", f"           {', '.join(part for part in bounds if part)}"]
    return [*lines, f"           because {grant.reason}"] if grant.reason else lines


def about(grant: Grant) -> str:
    """Return the subject of a grant. A denial is broader than the words that led to it, so only its command is
    named.
    """
    what = grant.what
    return what.words if grant.ruling is Ruling.ALLOW else what.command or what.words


def _where(grant: Grant, here: str) -> str:
    if grant.of_session:
        return "in this session" + (", for all of its agents" if grant.span is GrantScope.AGENTS else "")
    if grant.span is GrantScope.USER:
        return "in all your folders"
    return "in this folder" if grant.workspace == here else f"in {grant.workspace}"


def _left(grant: Grant, now: float) -> list[str]:
    if grant.ended(now):
        return ["over"]
    limits = [f"until {_time(grant.expires)}"] if grant.expires is not None else []
    if grant.uses is not None:
        limits.append("once more" if grant.uses == 1 else f"{grant.uses} times more")
    if grant.early(now):
        limits.append("not yet: its creation time is in the future, because the clock was set back")
    return limits


def labelled_fields(grant: Grant, now: float) -> list[tuple[str, str]]:
    """Return all fields of a grant as pairs of a label and a text."""
    what = grant.what
    rows = [
        ("grant", grant.id),
        ("answer", "yes" if grant.ruling is Ruling.ALLOW else "no, also where a mode would allow it"),
        ("what", about(grant)),
        ("tools", ", ".join(what.tool)),
        ("arguments", ", ".join(f"{name}={text}" for name, text in (*what.arguments, *what.values) if text)),
        ("below", ", ".join(f"{name} in {folder}" for name, folder in what.below)),
        ("no other than", ", ".join(what.only) or "(no arguments)" if what.only is not None else ""),
        ("program", what.shape.program),
        ("family", what.shape.family),
        ("reads", ", ".join(what.read)),
        ("changes", ", ".join(what.write)),
        ("connects to", ", ".join(what.host)),
        ("tiers", ", ".join(tier.label for tier in what.tiers)),
        ("where", "all your folders" if grant.span is GrantScope.USER else grant.workspace),
        ("agent", _holder(grant)),
        ("left", ", ".join(_left(grant, now)) or "until it is revoked"),
        ("made", f"{_time(grant.created)} by {grant.who}"),
        ("because", grant.reason),
        ("asked at", grant.script),
    ]
    return [(label, text) for label, text in rows if text]


def _holder(grant: Grant) -> str:
    if grant.ruling is Ruling.DENY:
        return "every agent"
    return "all agents of the session" if grant.span is GrantScope.AGENTS else grant.agent


def _time(seconds: float) -> str:
    try:
        return time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(seconds))
    except (OverflowError, ValueError, OSError):
        return "a date too far in the future"
