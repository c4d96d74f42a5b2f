"""The hashes of a transaction's changes, for the record of a command whose changes are not stored for undo."""

import contextlib
import hashlib
import itertools
import os
import stat
from collections.abc import Iterator, Sequence

from runner.changes.file_state import Change, Entry, entry_of
from runner.changes.transaction.judge import Judged
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
        for change in applied:
            before = self._entry(f"{layer.workspace}/{change.path}")
            after = self._entry(f"{layer.upper}/{change.path}") if change.kind is not None else None
            yield Change(layer.workspace, change.path, before, after)
            if change.kind is None or change.whole:
                for path in _below(layer.workspace, change.path):
                    if path not in known:
                        yield Change(layer.workspace, path, self._entry(f"{layer.workspace}/{path}"), None)

    def _entry(self, path: str) -> Entry | None:
        """Return the state of a file with the SHA-256 of its content; None if there is no file."""
        try:
            status = os.lstat(path)
        except (FileNotFoundError, NotADirectoryError):
            return None
        content = b""
        if stat.S_ISLNK(status.st_mode):
            content = os.fsencode(os.readlink(path))
        elif stat.S_ISREG(status.st_mode) and status.st_size <= self._left:
            self._left -= status.st_size
            with contextlib.suppress(OSError, ValueError), open(open_regular(path, follow=False)[0], "rb") as file:
                content = hashlib.file_digest(file, "sha256").digest()
        return entry_of(status, True, content)


def _below(workspace: str, folder: str) -> Iterator[str]:
    """Yield the paths below a folder that the command removed or replaced; nothing for a file or a link."""
    if os.path.islink(f"{workspace}/{folder}"):
        return
    for above, folders, names in os.walk(f"{workspace}/{folder}"):
        for name in (*folders, *names):
            yield f"{above[len(workspace) + 1 :]}/{name}"
