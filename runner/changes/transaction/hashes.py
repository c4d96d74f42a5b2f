"""The hashes of a transaction's changes, for the record of a command whose changes are not stored for undo."""

import contextlib
import hashlib
import itertools
import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import closing

from runner.changes import safe_open
from runner.changes.file_state import Change, Entry, FileKind, entry_of
from runner.changes.transaction.judge import Judged
from runner.changes.transaction.plan import FolderCursor
from runner.changes.transaction.report import LISTED, NOTHING_UNAPPLIED, Unapplied, recorded_files
from runner.changes.transaction.transaction import Transferred
from sandbox.inside.regular_file import open_regular
from sandbox.workspace.layer import ChangeLayer, LayerChange

_MOST_BYTES = 64 << 20  # of all files that are read for one record


def unapplied(layer: ChangeLayer, judged: Judged, chosen: Judged) -> Unapplied:
    """Return the changes that could be applied and that the user did not choose. The layer still has them."""
    paths = {each.path for each in chosen.applied}
    rest = [each for each in judged.applied if each.path not in paths]
    return Unapplied(recorded_files(ChangeHashes(layer, rest).every), len(rest)) if rest else NOTHING_UNAPPLIED


class ChangeHashes:
    """The first changes of a layer, with the hashes of the contents before and after, as many as a record lists.

    They are read before the changes are applied. A content beyond _MOST_BYTES, or one that cannot be read, has no hash.
    """

    def __init__(self, layer: ChangeLayer, applied: Sequence[LayerChange]) -> None:
        self._left = _MOST_BYTES
        self._changes = tuple(itertools.islice(self._read(layer, applied), LISTED))

    @property
    def every(self) -> tuple[Change, ...]:
        """Return all of these changes."""
        return self._changes

    def of(self, result: Transferred) -> tuple[Change, ...]:
        """Return the changes that were applied."""
        missing = [each.path for each in result.left]
        return tuple(
            change
            for change in self._changes
            if not any(change.path == each or change.path.startswith(f"{each}/") for each in missing)
        )

    def _read(self, layer: ChangeLayer, applied: Sequence[LayerChange]) -> Iterator[Change]:
        known = {each.path for each in applied}
        # A path of a layer can be longer than the system takes in one piece.
        with closing(FolderCursor(layer.workspace)) as lower, closing(FolderCursor(layer.upper)) as upper:
            for change in applied:
                before = self._entry(lower, change.path)
                after = self._entry(upper, change.path) if change.kind is not None else None
                yield Change(layer.workspace, change.path, before, after)
                if before is None or before.kind != FileKind.FOLDER or (change.kind is not None and not change.whole):
                    continue
                for path in _below(lower, change.path):
                    if path not in known:
                        yield Change(layer.workspace, path, self._entry(lower, path), None)

    def _entry(self, cursor: FolderCursor, path: str) -> Entry | None:
        """Return the state of a file with the SHA-256 of its content; None if it does not exist or is out of reach."""
        try:
            status = cursor.status(path)
            above, name = cursor.above(path)
        except OSError:  # such as a folder that another program replaced by a link: a conflict, which is not applied
            return None
        if status is None:
            return None
        content = b""
        with contextlib.suppress(OSError, ValueError):  # another program replaced it, or this user cannot read it
            if stat.S_ISLNK(status.st_mode):
                content = os.fsencode(os.readlink(name, dir_fd=above))
            elif stat.S_ISREG(status.st_mode) and status.st_size <= self._left:
                self._left -= status.st_size
                with open(open_regular(name, follow=False, dir_fd=above)[0], "rb") as file:
                    content = hashlib.file_digest(file, "sha256").digest()
        return entry_of(status, True, content)


def _below(cursor: FolderCursor, top: str) -> Iterator[str]:
    """Yield the paths below a folder that the command removed or replaced."""
    pending = [top]
    while pending:
        folder = pending.pop()
        try:
            handle = safe_open.open_folder(".", cursor.at(folder))
            try:
                with os.scandir(handle) as entries:
                    found = sorted((entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries)
            finally:
                os.close(handle)
        except OSError:
            continue  # another program removed it, or this user cannot list it
        pending += [f"{folder}/{name}" for name, inner in found if inner]
        yield from (f"{folder}/{name}" for name, _ in found)
