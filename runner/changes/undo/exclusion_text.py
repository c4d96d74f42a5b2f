"""Description of the files that are not stored."""

from collections.abc import Iterable

from runner.changes.undo.change_scan import Index
from runner.changes.undo.file_state import Change
from runner.text.sanitize import visible

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
