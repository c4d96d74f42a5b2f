"""A plan in words, for the user who decides about it: the summary, the warnings, and every line."""

from collections.abc import Iterator
from functools import lru_cache

from runner.changes.review.apply_plan import PatchPlan, PlannedChange
from runner.changes.review.patch_format import LINK, PROGRAM, Hunk, Side, binary, hunks, split
from runner.changes.review.risk_flags import Danger
from runner.text.phrases import many
from runner.text.sanitize import visible
from sandbox.inside.files.diff import Effort

_EFFORT = Effort(20_000_000)  # steps of comparing lines, for all diffs that this process shows
_SIGNS = {"added": "+", "deleted": "-", "modified": "~", "renamed": ">"}
_KINDS = {LINK: "link", PROGRAM: "executable"}


def stat_lines(plan: PatchPlan) -> Iterator[str]:
    """Yield a line for each file, and a line with the totals."""
    plus = minus = 0
    for item in plan.items:
        added, removed = counts(item)
        plus, minus = plus + added, minus + removed
        size = "" if not _is_text(item) else f"+{added} -{removed}"
        name = f"{_name(item.was)} -> {_name(item.path)}" if item.was else _name(item.path)
        yield f"  {_SIGNS[item.how]} {size or 'no text':>12}  {name}"
        for number, said, found in item.moved:
            yield f"      hunk {number} fits at line {found}, not {said}"
    yield f"{many(len(plan.items), 'file')}: {many(plus, 'line')} added, {minus} removed"


def danger_lines(found: tuple[Danger, ...]) -> Iterator[str]:
    """Yield a line for each warning, safe to print on a terminal."""
    for danger in found:
        yield f"{'warning' if danger.severe else 'note'}: `{_name(danger.path)}`: {visible(danger.what, lines=False)}"


def diff_lines(plan: PatchPlan, *, colour: bool) -> Iterator[str]:
    """Yield every change as text that is safe to print on a terminal: without control, invisible and bidirectional
    characters."""
    red, green, cyan, bold, end = ("\x1b[31m", "\x1b[32m", "\x1b[36m", "\x1b[1m", "\x1b[0m") if colour else ("",) * 5
    for item in plan.items:
        yield f"{bold}{item.how}: {_name(item.was) + ' -> ' if item.was else ''}{_name(item.path)}{end}"
        if kinds := _kinds(item):
            yield f"{cyan}{kinds}{end}"
        if not _is_text(item):
            yield f"{cyan}no text: {_size(item.old)} -> {_size(item.new)}{end}"
            continue
        if item.only == () and item.old != item.new:
            yield f"{cyan}not shown, since it is a secret{end}"
        for hunk in _hunks(item):
            yield f"{cyan}@@ -{_range(hunk.old)} +{_range(hunk.new)} @@{end}"
            for line in hunk.lines:
                cut = not line.endswith(b"\n")
                text = visible(
                    line.removesuffix(b"\n").decode("utf-8", "surrogateescape").replace("\t", "    "), lines=False
                )
                mark = {"+": green, "-": red}.get(text[:1], "")
                yield f"{mark}{text}{end if mark else ''}"
                if cut:
                    yield f"{cyan}\\ no line break at the end{end}"


def plan_json(plan: PatchPlan, found: tuple[Danger, ...]) -> dict[str, object]:
    """Return the plan and its warnings as a JSON object."""
    files = []
    for item in plan.items:
        added, removed = counts(item)
        moved = [{"hunk": number, "said": said, "found": at} for number, said, at in item.moved]
        file = {"path": item.path, "how": item.how, "was": item.was or None}
        files.append({**file, "added": added, "removed": removed, "moved": moved})
    return {
        "files": files,
        "problems": [{"path": path, "why": why} for path, why in plan.problems],
        "warnings": [{"path": each.path, "what": each.what, "severe": each.severe} for each in found],
    }


def counts(item: PlannedChange) -> tuple[int, int]:
    """Return the numbers of added and removed lines, which are 0 for a file that is not text."""
    if not _is_text(item):
        return 0, 0
    signs = [line[:1] for hunk in _hunks(item) for line in hunk.lines]
    return signs.count(b"+"), signs.count(b"-")


@lru_cache(maxsize=1 << 12)  # called three times for each file
def _hunks(item: PlannedChange) -> tuple[Hunk, ...]:
    if item.only is not None:
        return item.only
    return tuple(hunks(split(item.old.data if item.old else b""), split(item.new.data if item.new else b""), _EFFORT))


def _is_text(item: PlannedChange) -> bool:
    return not any(side is not None and binary(side.data) for side in (item.old, item.new))


def _kinds(item: PlannedChange) -> str:
    """Return the kinds of the old and the new file if they differ, or the kind of a file that is not plain."""
    old = _KINDS.get(item.old.mode, "plain file") if item.old else ""
    new = _KINDS.get(item.new.mode, "plain file") if item.new else ""
    if old and new:
        return f"{old} -> {new}" if old != new else ""
    return "" if (old or new) == "plain file" else old or new


def _range(part: tuple[int, int]) -> str:
    return f"{part[0] + (part[1] > 0)},{part[1]}"


def _size(side: Side | None) -> str:
    return "nothing" if side is None else f"{len(side.data):,} bytes"


def _name(path: str) -> str:
    return visible(path, lines=False)
