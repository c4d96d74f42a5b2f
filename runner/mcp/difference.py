"""The difference between two pins of a tool server, as lines of safe characters for a terminal."""

import json
from collections.abc import Iterator, Mapping, Sequence
from difflib import unified_diff

from runner.mcp.pins import Cause, PinCheck, ServerPin, StoredPin, ToolPin
from runner.text.phrases import many
from runner.text.sanitize import one_line, visible

_MOST_PATHS = 40  # changed values of a schema that are listed
_MOST_LINES = 1000  # lines of one text; `suspicions` warns about far shorter ones
_LONGEST = 300  # characters of one value
_NAME = 80  # characters of a name

_HEADS = {
    Cause.NEW: "new",
    Cause.CHANGED: "changed",
    Cause.RENAMED: "renamed",
    Cause.REMOVED: "removed",
    Cause.REFUSED: "refused",
    Cause.UNREADABLE: "quarantined",
}


def difference(check: PinCheck, pinned: StoredPin) -> list[str]:
    """Return what changed since the user approved the server, or all of the offer if there is no pin.

    Everything that the server wrote is in it: no text that an approval is about is left out without a count.
    """
    before = pinned if isinstance(pinned, ServerPin) else None
    lines = list(_server(check, before))
    old = {tool.name: tool for tool in before.tools} if before is not None else {}
    now = {tool.name: tool for tool in check.pin.tools}
    held = sorted(check.quarantined, key=lambda each: each.name)
    unchanged = [each.name for each in held if each.cause is Cause.SERVER]
    for each in held:
        if each.cause in (Cause.SERVER, Cause.LEFT_OUT):
            continue
        name = one_line(each.name, _NAME)
        was = f", was {one_line(each.was, _NAME)}" if each.was else ""
        why = f" ({each.why})" if before is not None or each.cause is not Cause.NEW else ""
        lines.append(f"{_HEADS[each.cause]}: {name}{was}{why}")
        tool = now.get(each.name)
        if tool is not None:
            lines += _tool(tool, old.get(each.was or each.name))
    if unchanged:
        names = ", ".join(one_line(each, _NAME) for each in unchanged)
        lines.append(f"{many(len(unchanged), 'tool')} unchanged: {names}")
    return lines


def _server(check: PinCheck, before: ServerPin | None) -> Iterator[str]:
    now = check.pin
    if before is None:
        yield f"runs: {one_line(now.runs, 4096)}"
        yield f"package: {one_line(now.package_name, _LONGEST) or 'none'} ({now.package})"
        if now.instructions:
            yield "instructions of the server:"
            yield from (f"  {line}" for line in _lines(now.instructions))
        return
    if now.runs != before.runs:
        yield "changed: what is run"
        yield f"  - {one_line(before.runs, 4096)}"
        yield f"  + {one_line(now.runs, 4096)}"
    if now.package != before.package:
        yield "changed: the package"
        yield f"  - {one_line(before.package_name, _LONGEST)} ({one_line(before.package, _LONGEST)})"
        yield f"  + {one_line(now.package_name, _LONGEST)} ({one_line(now.package, _LONGEST)})"
    if now.instructions != before.instructions:
        yield "changed: the instructions of the server"
        yield from _compared(before.instructions, now.instructions)


def _tool(now: ToolPin, before: ToolPin | None) -> Iterator[str]:
    """Yield the definition of a tool, or what changed of it."""
    new = _values(now)
    if before is None:
        for key, value in new.items():
            if isinstance(value, str) and value:
                yield f"  {key}:"
                yield from (f"    {line}" for line in _lines(value))
            elif value:
                yield f"  {key}:"
                yield from (f"    {line}" for line in _lines(json.dumps(value, ensure_ascii=False, indent=1)))
        return
    old = _values(before)
    if not before.definition:
        yield "  its earlier definition was too large to be stored; this is the new one"
        yield from _tool(now, None)
        return
    for key in dict.fromkeys((*old, *new)):
        one, other = old.get(key), new.get(key)
        if _same(one, other):
            continue
        yield f"  {key}:"
        if isinstance(one, str) and isinstance(other, str):
            yield from (f"  {line}" for line in _compared(one, other))
            continue
        changes = list(_changes(one, other, ""))
        yield from (f"    {line}" for line in changes[:_MOST_PATHS])
        if len(changes) > _MOST_PATHS:
            yield f"    … {len(changes) - _MOST_PATHS:,} more changes"


def _values(pin: ToolPin) -> Mapping[str, object]:
    if not pin.definition:
        return {}
    found = json.loads(pin.definition)
    order = ("title", "description", "inputSchema", "outputSchema", "annotations")
    return {key: found.get(key) for key in order}


def _changes(one: object, other: object, path: str) -> Iterator[str]:
    """Yield each changed value of two JSON values with its path."""
    if isinstance(one, dict) and isinstance(other, dict):
        for key in dict.fromkeys((*one, *other)):
            inner = f"{path}.{one_line(str(key), _NAME)}" if path else one_line(str(key), _NAME)
            if key not in other:
                yield f"- {inner}: {_value(one[key])}"
            elif key not in one:
                yield f"+ {inner}: {_value(other[key])}"
            elif not _same(one[key], other[key]):
                yield from _changes(one[key], other[key], inner)
        return
    where = f"{path}: " if path else ""
    yield f"- {where}{_value(one)}"
    yield f"+ {where}{_value(other)}"


def _same(one: object, other: object) -> bool:
    """Return True if two JSON values have the same canonical form: `1`, `1.0` and `true` differ."""
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)


def _value(value: object, most: int = _LONGEST) -> str:
    return one_line(json.dumps(value, ensure_ascii=False), most)


def _compared(one: str, other: str) -> Iterator[str]:
    """Yield the changed lines of two texts with three lines around them, without the heads of files."""
    lines = list(unified_diff(_lines(one), _lines(other), lineterm="", n=3))[2:]
    yield from (f"  {line}" for line in lines[:_MOST_LINES])
    if len(lines) > _MOST_LINES:
        yield f"  … {many(len(lines) - _MOST_LINES, 'line')} more"
    if not lines:
        yield "  only line ends differ"


def _lines(text: str) -> Sequence[str]:
    """Return the lines of an untrusted text in safe characters. A lone carriage return is spelled out."""
    shown = visible(text).split("\n")
    if len(shown) <= _MOST_LINES:
        return shown
    return [*shown[:_MOST_LINES], f"… {many(len(shown) - _MOST_LINES, 'line')} more"]
