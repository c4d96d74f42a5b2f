"""Text of steps and plans: the list of steps, the files that are not stored, the report of an undo, a diff, and
JSON.
"""

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from runner.changes.file_state import Change, Entry, FileKind
from runner.changes.undo.blobs import Lost
from runner.changes.undo.change_scan import Index
from runner.changes.undo.plan import Item
from runner.changes.undo.revert import RevertResult
from runner.changes.undo.store import Store, UndoStep
from runner.text.json_line import utc_time
from runner.text.sanitize import one_line, visible
from sandbox.inside.files.diff import unified_rows

_WORDS = 60  # characters of a command in the list
_LARGEST = 1 << 20  # bytes of a file that is compared line by line
_LINES = 2000  # of one file's diff


def steps_text(store: Store, limit: int) -> Iterator[str]:
    """Yield one line for each step, newest first, followed by the files that were not stored."""
    for step in store.steps()[:limit]:
        signs = [change.sign for change in store.changes(step.id)]
        counts = " ".join(f"{sign}{signs.count(sign)}" for sign in "+~-")
        when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(step.started))
        said = "" if step.undone is None else "  (undone)"
        yield f"{step.id:>5}  {when}  {counts:<8}  {step_words(step)}{said}"
        yield from (f"       {visible(note, lines=False)}" for note in step.notes)
    for root in store.roots():
        # Git's objects are never stored.
        unkept = (each for each in unkept_of(root, store.index(root)) if not f"/{each.path}".endswith("/objects"))
        yield from (f"not kept: {line}" for line in not_kept(unkept))


def step_words(step: UndoStep) -> str:
    """Return a step in words, on one line."""
    if step.kind == "action":
        return one_line(step.words, _WORDS)
    return f"{step.kind} of {step.words}"


def steps_json(store: Store, limit: int) -> list[dict[str, object]]:
    """Return the newest `limit` steps as JSON objects, with their changes."""
    return [
        {
            "id": step.id,
            "kind": step.kind,
            "command": step.words,
            "session": step.session,
            "call": step.call,
            "started": utc_time(step.started),
            "ended": utc_time(step.ended),
            "undone_by": step.undone,
            "takes_back": list(step.takes_back),
            "notes": list(step.notes),
            "changes": [
                {"root": change.root, "path": change.path, "change": change.sign} for change in store.changes(step.id)
            ],
        }
        for step in store.steps()[:limit]
    ]


def revert_text(result: RevertResult, workspace: str, *, dry: bool, redo: bool) -> Iterator[str]:
    """Yield the report of an undo: each restored path, then each path that was left as it is."""
    for step in result.dead:
        yield f"notice: the runner was killed during {step.id}: {step_words(step)}"
    nothing = bool(result.items) and all(item.obstacle is not None for item in result.items)
    verb, done = ("redo", "redid") if redo else ("undo", "undid")
    said = f"would {verb}" if dry else f"could not {verb}" if nothing else done
    for step in result.steps:
        yield f"{said} {step.words}" if redo else f"{said} {step.id}: {step_words(step)}"
    for item in result.items:
        if item.obstacle is None:
            yield f"  {item.operation:<11} {_path(item, workspace)}"
    left = [item for item in result.items if item.obstacle is not None]
    for item in left:
        yield f"  {'left':<11} {_path(item, workspace)}: {visible(item.problem, lines=False)}"
    yield from (f"  set aside   {visible(line, lines=False)}" for line in result.aside)
    if not result.items:
        yield "  nothing to do: every file already has its old content"


def revert_json(result: RevertResult, *, dry: bool) -> dict[str, object]:
    """Return the result of an undo as a JSON object. `dry` is True if nothing was executed."""
    return {
        "dry": dry,
        "whole": result.whole,
        "step": result.step,
        "steps": [step.id for step in result.steps],
        "items": [
            {
                "root": item.root,
                "path": item.path,
                "do": item.operation,
                "moved_from": item.moved or None,
                "done": item.obstacle is None and not dry,
                "problem": item.problem or None,
            }
            for item in result.items
        ],
        "set_aside": list(result.aside),
    }


def diff_text(store: Store, items: Sequence[Item], workspace: str, *, forward: bool = False) -> Iterator[str]:
    """Yield the changes of an undo as a unified diff, with a line for each file that is not text.

    `forward` reverses the diff: from the old state to the current one.
    """
    for item in items:
        if forward:
            item = replace(item, now=item.wanted, wanted=item.now)
        if item.obstacle is not None:
            continue
        path = _path(item, workspace)
        kinds = [entry.kind for entry in (item.now, item.wanted) if entry is not None]
        appeared = "added" if item.now is None else "removed" if item.wanted is None else ""
        if FileKind.FOLDER in kinds:
            if appeared:
                yield f"folder {appeared}: {path}"
            continue
        old, new = _text(store, item.now), _text(store, item.wanted)
        if old is None or new is None:
            yield f"{item.operation}: {path} (not text, or too long to show)"
            continue
        if item.now is not None and item.wanted is not None and item.now.mode != item.wanted.mode:
            yield f"mode of {path}: {item.now.mode:o} to {item.wanted.mode:o}"
        names = (path if item.now else "/dev/null", path if item.wanted else "/dev/null")
        rows = unified_rows(old.splitlines(), new.splitlines())
        if appeared and not rows:
            yield f"empty file {appeared}: {path}"
        for number, line in enumerate((f"--- {names[0]}", f"+++ {names[1]}", *rows) if rows else ()):
            if number == _LINES:
                yield "… more lines"
                break
            yield visible(line, lines=False)


def _path(item: Item, workspace: str) -> str:
    return visible(item.path if item.root == workspace else f"{item.root}/{item.path}", lines=False)


def _text(store: Store, entry: Entry | None) -> str | None:
    if entry is None:
        return ""
    if entry.kind == FileKind.LINK:
        return f"-> {entry.content.decode('utf-8', 'replace')}"
    place = store.place(entry.content) if entry.kind == FileKind.FILE and not entry.unkept else None
    if place is None or place.size > _LARGEST:
        return None
    try:
        data = b"".join(store.packs.read(place, entry.content))
    except Lost:
        return None
    return None if b"\0" in data else data.decode("utf-8", "replace")


_NAMED = 3  # files that a line names


def unkept_of(root: str, index: Index) -> tuple[Change, ...]:
    """Return every entry without a stored content as a new file, so that a new session reports each once."""
    return tuple(
        Change(root, f"{folder}/{name}" if folder else name, None, found)
        for folder, names in index.items()
        for name, found in names.items()
        if found.unkept
    )


def not_kept(changes: Iterable[Change]) -> list[str]:
    """Return one line for each reason: the largest files, the number of others, and the reason."""
    by_reason: dict[str, list[Change]] = {}
    for each in changes:
        if each.after is not None:
            by_reason.setdefault(each.after.unkept, []).append(each)
    lines = []
    for why, found in by_reason.items():
        found.sort(key=lambda change: -(change.after.size if change.after else 0))
        named = ", ".join(f"`{visible(change.path, lines=False)}`" for change in found[:_NAMED])
        more = f" and {len(found) - _NAMED} more" if len(found) > _NAMED else ""
        lines.append(f"{named}{more}: {why}")
    return lines
