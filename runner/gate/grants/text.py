"""A grant in words: in a list, and by itself. It is as untrusted as what led to it: show it through `visible`."""

import time

from policy.grants.grant import Grant, GrantScope
from policy.model.matrix import Ruling


def lines(grant: Grant, now: float, here: str) -> list[str]:
    """A grant in a list: what it is about, and below that for whom and how long. `here` is the folder one stands in."""
    word = "allow" if grant.ruling is Ruling.ALLOW else "deny"
    bounds = [_where(grant, here), *_left(grant, now), f"by {grant.who}" if grant.who else ""]
    lines = [f"{grant.id}  {word:<5}  {about(grant)}", f"           {', '.join(part for part in bounds if part)}"]
    return [*lines, f"           because {grant.reason}"] if grant.reason else lines


def about(grant: Grant) -> str:
    """What it is about; a no is broader than the words that led to it, so only its command is told."""
    what = grant.what
    return what.words if grant.ruling is Ruling.ALLOW else what.command or what.words


def _where(grant: Grant, here: str) -> str:
    if grant.span is GrantScope.SESSION:
        return "in this session"
    if grant.span is GrantScope.USER:
        return "in all your folders"
    return "in this folder" if grant.workspace == here else f"in {grant.workspace}"


def _left(grant: Grant, now: float) -> list[str]:
    if grant.ended(now):
        return ["over"]
    found = [f"until {_time(grant.expires)}"] if grant.expires is not None else []
    if grant.uses is not None:
        found.append("once more" if grant.uses == 1 else f"{grant.uses} times more")
    if grant.early(now):
        found.append("not yet: it was made at a time that has not come, since the clock was set back")
    return found


def said(grant: Grant, now: float) -> list[tuple[str, str]]:
    """Everything that it says, with a label for each."""
    what = grant.what
    rows = [
        ("grant", grant.id),
        ("answer", "yes" if grant.ruling is Ruling.ALLOW else "no, also where a mode would allow it"),
        ("what", about(grant)),
        ("tools", ", ".join(tool.value for tool in what.tool)),
        ("program", what.shape.program),
        ("reads", ", ".join(what.read)),
        ("changes", ", ".join(what.write)),
        ("talks to", ", ".join(what.host)),
        ("tiers", ", ".join(tier.label for tier in what.tiers)),
        ("where", "all your folders" if grant.span is GrantScope.USER else grant.workspace),
        ("agent", grant.agent if grant.ruling is Ruling.ALLOW else "every agent"),
        ("left", ", ".join(_left(grant, now)) or "until it is revoked"),
        ("made", f"{_time(grant.created)} by {grant.who}"),
        ("because", grant.reason),
        ("asked at", grant.script),
    ]
    return [(label, text) for label, text in rows if text]


def _time(seconds: float) -> str:
    try:
        return time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(seconds))
    except (OverflowError, ValueError, OSError):
        return "a time beyond every calendar"
