"""The lines of a session file: the fields of each type, and the conversion of messages to lines and back.

A line is one JSON object in ASCII. Each line has `id` and `parentId` (numbers as text, unique in the file; the parent
is an earlier line), `time` (UTC, for people: the order is that of the file) and `type`. `KINDS` lists the exact fields
of each type. A line that does not fit raises Unsound and is never accepted in part.
"""

import json
import math
import re
from collections.abc import Callable

from policy.model.frozen import dataclass, replace
from runner.messages import (
    AssistantMessage,
    Block,
    ImageBlock,
    TextBlock,
    ThinkingBlock,
    ToolCall,
    ToolResult,
    UserMessage,
)
from runner.text.model_text import shallow

VERSION = 1  # version of the format; a file with another version is refused
LONGEST = 32 << 20  # bytes of one line; images make the longest
EntryBody = dict[str, object]


class Unsound(Exception):
    """An error for an invalid line. The text states the cause in words for the user."""


@dataclass(frozen=True, slots=True)
class JournalEntry:
    """One valid line. `parent` is None for the first line only; `body` contains the fields of its type."""

    id: str
    parent: str | None
    time: str
    type: str
    body: EntryBody


PLACES = ("cut", "lined", "trimmed", "capped")
SPACE = 16_000  # characters of notes, and of the user's own words beside them


@dataclass(frozen=True, slots=True)
class CompactionRecord:
    """The shortened form of a conversation. Places are numbers of messages in the history.

    Attributes:
        cut: Messages before this place are replaced by `notes`.
        lined: Results before this place are shortened to one line.
        trimmed: Results before this place lost their middle.
        capped: Texts before this place have at most `cap` characters.
        cap: The largest number of characters of a capped text.
        notes: The notes about the messages before `cut`.
        space: The largest number of characters of the notes, and of the user's texts before `cut`.
    """

    cut: int = 0
    lined: int = 0
    trimmed: int = 0
    capped: int = 0
    cap: int = 0
    notes: str = ""
    space: int = SPACE

    @property
    def end(self) -> int:
        """Return the place from which on the history is sent unchanged."""
        return max(self.cut, self.lined, self.trimmed, self.capped)

    def turned(self, end: int) -> "CompactionRecord":
        """Return a copy with places counted back from `end`, as a session file stores them. Applying it twice gives the
        original.
        """
        return replace(self, **{name: min(max(end - getattr(self, name), 0), end) for name in PLACES})


FieldCheck = Callable[[object], bool]


def _is(kind: type) -> FieldCheck:
    return lambda value: isinstance(value, kind)


_text, _switch, _table = _is(str), _is(bool), _is(dict)


def _count(value: object) -> bool:
    return type(value) is int and 0 <= value < 1 << 53


def _texts(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def _arguments(value: object) -> bool:
    return isinstance(value, dict) and shallow(value)


def _name(value: object) -> bool:
    """Return True if `value` has the form of a session's name, so that it cannot be another path on the disk."""
    return isinstance(value, str) and re.fullmatch(r"[0-9a-f]{16}", value) is not None


def _cost(value: object) -> bool:
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1e12)


def _origin(value: object) -> bool:
    if not isinstance(value, dict) or set(value) != {"session", "entry"}:
        return value is None
    return _name(value["session"]) and _text(value["entry"])


def _maybe(check: FieldCheck) -> FieldCheck:
    return lambda value: value is None or check(value)


# fmt: off
KINDS: dict[str, dict[str, FieldCheck]] = {
    "session":  {"version": _count, "session": _name, "workspace": _text, "program": _text, "forked_from": _origin},
    "run":      {"audit": _name, "mode": _text, "model": _text, "cwd": _text, "unattended": _switch, "process": _count},
    "message":  {"role": _text, "content": lambda value: isinstance(value, list)},  # of a tool: `_ANSWER`
    "call":     {"call": _text, "tool": _text, "action": _text, "tiers": _texts, "verdict": _text, "why": _text,
                 "rule": _text, "cell": _text, "record": _count, "answer": _maybe(_switch), "by": _maybe(_text),
                 "feedback": _maybe(_text)},
    "grant":    {"grant": _table},
    "usage":    {"model": _text, "input": _count, "output": _count, "cache_read": _count, "cache_write": _count,
                 "cost": _cost},
    "mode":     {"mode": _text},
    "compaction": {"level": _text, "before": _count, "after": _count, "cut": _count, "lined": _count,
                   "trimmed": _count, "capped": _count, "cap": _count, "notes": _text, "space": _count},
    "typed":    {"text": _text},  # the text that the user typed for the message above
    "model":    {"model": _text},
    "snapshot": {"snapshot": _text, "call": _text},
    "process":  {"process": _text, "command": _text, "agent": _text},  # a process that stays has started
    "flow":     {"kind": _text, "text": _text, "at": _text, "sha256": _text},  # a change of the information flow
    "notice":   {"text": _text},
    "end":      {"exit": _count, "reason": _text, "turns": _count},
}
# fmt: on
# Fields that an entry may also have: entries of earlier versions, and those of the agent `main`, have none.
_OPTIONAL: dict[str, dict[str, FieldCheck]] = {
    "call": {"agent": _text, "parent": _maybe(_text)},
    "session": {"agent": _text, "parent": _text, "main": _name},  # the file of a sub-agent
}
_ANSWER: dict[str, FieldCheck] = {**KINDS["message"], "place": _count, "call": _text, "error": _switch}


def _no_number(text: str) -> object:
    raise Unsound(f"it contains `{text[:40]}`, which is not a JSON number")


def _finite(text: str) -> float | object:
    value = float(text)
    return value if math.isfinite(value) else _no_number(text)


# The scanner of `json` without its wrapper, which doubles the time; a session may have a hundred thousand lines.
_scan = json.JSONDecoder(parse_constant=_no_number, parse_float=_finite).scan_once  # type: ignore[attr-defined]  # not in the stubs


def line(entry: JournalEntry) -> bytes:
    """Return the line of `entry` for the file, with its newline."""
    whole = {"id": entry.id, "parentId": entry.parent, "time": entry.time, "type": entry.type, **entry.body}
    return json.dumps(whole, ensure_ascii=True, separators=(",", ":"), allow_nan=False).encode() + b"\n"


def parse(raw: bytes) -> JournalEntry:
    """Return the entry of one line. Raise Unsound."""
    if len(raw) > LONGEST:
        raise Unsound(f"it is longer than {LONGEST >> 20} MiB")
    try:
        text = raw.decode("utf-8")
        whole, end = _scan(text, 0)
    except UnicodeDecodeError:
        raise Unsound("it is not text") from None
    except (ValueError, RecursionError, StopIteration):
        raise Unsound("it is not JSON") from None
    if text[end:].strip():
        raise Unsound("it is not JSON")
    if not isinstance(whole, dict):
        raise Unsound("it is not a JSON object")
    take = whole.pop
    id, parent, when, type = take("id", None), take("parentId", None), take("time", None), take("type", None)
    if not isinstance(id, str) or not id.isascii() or not id.isdecimal() or len(id) > 15:
        raise Unsound("it has no `id`")
    if not (parent is None if type == "session" else isinstance(parent, str) and parent.isascii()):
        raise Unsound("its `parentId` is not valid")
    if not isinstance(when, str) or len(when) > 40:
        raise Unsound("it has no `time`")
    if not isinstance(type, str) or type not in KINDS:
        raise Unsound(f"there is no type `{str(type)[:40]}`")
    checks = _ANSWER if type == "message" and whole.get("role") == "tool" else KINDS[type]
    if type in _OPTIONAL:
        checks = checks | {name: check for name, check in _OPTIONAL[type].items() if name in whole}
    _fields(whole, checks)
    return JournalEntry(id, parent, when, type, whole)


def _fields(body: EntryBody, checks: dict[str, FieldCheck]) -> None:
    """Raise Unsound unless `body` has exactly the fields of `checks`, each with a valid value."""
    if body.keys() != checks.keys():
        for name in checks:
            if name not in body:
                raise Unsound(f"`{name}` is missing")
        raise Unsound(f"there is no field `{next(name for name in body if name not in checks)[:40]}`")
    for name, value in body.items():
        if not checks[name](value):
            raise Unsound(f"`{name}` is not a valid value")


# ---- messages


def of_message(message: UserMessage | AssistantMessage) -> EntryBody:
    """Return the body of a message of the user or the model."""
    role = "user" if isinstance(message, UserMessage) else "assistant"
    return {"role": role, "content": [_of_block(block) for block in message.content]}


def of_result(place: int, result: ToolResult) -> EntryBody:
    """Return the body of one call's result. `place` is the place of the call in its message, from 0."""
    content = [_of_block(block) for block in result.content]
    return {"role": "tool", "content": content, "place": place, "call": result.call_id, "error": result.is_error}


def _of_block(block: Block) -> EntryBody:
    kind = _KINDS_OF_BLOCKS[type(block)]
    values = (getattr(block, name) for name in type(block).__slots__)
    return {"type": kind, **dict(zip(_BLOCKS[kind], values, strict=True))}


_BASE64 = re.compile(r"[A-Za-z0-9+/]*={0,2}")
# fmt: off
# The fields of a block in a line, in the order of the fields of its class.
_BLOCKS: dict[str, dict[str, FieldCheck]] = {
    "text":     {"text": _text},
    "thinking": {"text": _text, "signature": _text, "redacted": _text},
    "image":    {"media": lambda value: value in ("image/png", "image/jpeg", "image/gif", "image/webp"),
                 "data": lambda value: isinstance(value, str) and _BASE64.fullmatch(value) is not None},
    "call":     {"id": _text, "name": _text, "arguments": _maybe(_arguments), "raw": _text},
}
_CLASSES: dict[str, Callable[..., Block]] = {
    "text": TextBlock, "thinking": ThinkingBlock, "image": ImageBlock, "call": ToolCall}
_KINDS_OF_BLOCKS = {made: kind for kind, made in _CLASSES.items()}
_MAY = {"user": ("text", "image"), "assistant": ("text", "thinking", "call"), "tool": ("text", "image")}
# fmt: on


@dataclass(frozen=True, slots=True)
class Answered:
    """A result with the place of its call in the message."""

    place: int
    result: ToolResult


def message_of(body: EntryBody) -> UserMessage | AssistantMessage | Answered:
    """Return the message in the body of a valid `message` entry. Raise Unsound."""
    role, content = body["role"], body["content"]
    if not isinstance(role, str) or role not in _MAY or not isinstance(content, list):
        raise Unsound(f"there is no role `{str(role)[:40]}`")
    may = _MAY[role]
    blocks = (_block(content[0], may),) if len(content) == 1 else tuple([_block(block, may) for block in content])
    # mypy: `_MAY` limits the kinds of block of a role, `_ANSWER` the fields of an answer
    match role:
        case "user":
            return UserMessage(blocks)  # type: ignore[arg-type]
        case "assistant":
            return AssistantMessage(blocks)  # type: ignore[arg-type]
        case _:
            result = ToolResult(body["call"], blocks, body["error"])  # type: ignore[arg-type]
            return Answered(body["place"], result)  # type: ignore[arg-type]


def usual(raw: bytes) -> UserMessage | AssistantMessage | Answered | None:
    """Return the message of a line with a known beginning, or None if the line needs the full check of `parse`.

    For a valid line the result equals `message_of(parse(raw).body)` in a third of the time, which matters for a session
    of a hundred thousand lines.
    """
    try:
        text = raw.decode("ascii")
        whole, end = _scan(text, 0)
        answer = whole["role"] == "tool"
        if end != len(text) - 1 or len(whole) != (9 if answer else 6):
            return None
        if answer and not (_text(whole["call"]) and _count(whole["place"]) and _switch(whole["error"])):
            return None
        return message_of(whole)
    except (ValueError, RecursionError, StopIteration, LookupError, TypeError, Unsound):
        return None


def _block(value: object, may: tuple[str, ...]) -> Block:
    if (
        isinstance(value, dict)
        and len(value) == 2
        and value.get("type") == "text"
        and isinstance(value.get("text"), str)
    ):
        return TextBlock(value["text"])  # most blocks are texts, so they are checked first
    kind = value.get("type") if isinstance(value, dict) else None
    if not isinstance(value, dict) or not isinstance(kind, str) or kind not in may:
        raise Unsound(f"it has a part of an unknown kind: `{str(kind)[:40]}`")
    fields = {name: item for name, item in value.items() if name != "type"}
    _fields(fields, _BLOCKS[kind])
    return _CLASSES[kind](*(fields[name] for name in _BLOCKS[kind]))
