"""The lines between a hosted session and its clients, beside those of JSON mode.

A client begins with `attach`. The session answers with `attached`, the condensed events so far, `replayed` with the
open questions after it, and then every event of JSON mode. The client sends lines of JSON mode, and `detach`.
"""

from collections.abc import Mapping
from enum import StrEnum

from policy.model.frozen import dataclass
from policy.model.verdict import Problem
from runner.frontends.jsonl.protocol import Misread
from runner.text.sanitize import one_line
from runner.text.strict_json import DuplicateNameError, parse_strictly

VERSION = 1
USUAL_REPLAY = 300  # condensed events that a client gets if it names no number
_LONGEST_WHO = 200  # characters
_LONGEST_LINE = 4096  # bytes of the first line


class ClientScope(StrEnum):
    """The lines that a client may send: nothing, answers to questions, or everything."""

    VIEW = "view"
    ANSWER = "answer"
    PROMPT = "prompt"


@dataclass(frozen=True, slots=True)
class Attach:
    """The first line of a client.

    Attributes:
        who: The kind and place of the client, for users and the record: `terminal /dev/pts/3`.
        scope: What the client may send.
        replay: The number of condensed events that it gets; None for all that are kept.
    """

    who: str
    scope: ClientScope
    replay: int | None = USUAL_REPLAY


def parse_attach(line: bytes) -> Attach:
    """Parse the first line of a client. Raise Misread."""
    found = _object(line)
    if found.get("type") != "attach":
        raise _misread("the first line is not of type `attach`")
    if unknown := set(found) - {"type", "who", "scope", "replay"}:
        raise _misread(f"`{sorted(unknown)[0][:40]}` is not a field of attach")
    who, scope, replay = found.get("who"), found.get("scope"), found.get("replay", USUAL_REPLAY)
    if not isinstance(who, str) or not who.strip():
        raise _misread("attach needs `who`, a text")
    if not isinstance(scope, str) or scope not in list(ClientScope):
        raise _misread(f"`scope` is one of {', '.join(ClientScope)}")
    if replay != "all" and (not isinstance(replay, int) or isinstance(replay, bool) or replay < 0):
        raise _misread("`replay` is a number of events, or all")
    return Attach(one_line(who.strip(), _LONGEST_WHO), ClientScope(scope), None if replay == "all" else int(replay))


def _object(line: bytes) -> Mapping[str, object]:
    if len(line) > _LONGEST_LINE:
        raise _misread(f"it is longer than {_LONGEST_LINE:,} bytes")
    try:
        found = parse_strictly(line.decode("utf-8"))
    except (ValueError, RecursionError, DuplicateNameError):
        raise _misread("it is not valid JSON") from None
    if not isinstance(found, dict):
        raise _misread("it is not a JSON object")
    return found


def _misread(why: str) -> Misread:
    fix = 'begin with {"type": "attach", "who": "my program", "scope": "view"}'
    return Misread(Problem("the line has no effect", why, fix))


def refusal(scope: ClientScope) -> Problem:
    """Return the Problem for a line that the scope of its client does not include."""
    allowed = "nothing" if scope is ClientScope.VIEW else "answers to questions alone"
    return Problem(
        "the line has no effect", f"this client may send {allowed}", f"attach with a scope other than `{scope}`"
    )
