"""The history of typed lines of earlier conversations: one private file, one JSON text per line, without known
secrets.
"""

import contextlib
import json
import os
import stat
from collections.abc import Callable, Iterable
from pathlib import Path

from prompt_toolkit.history import History

_KEPT = 1000  # entries
LONGEST = 4000  # characters of an entry; a longer text was pasted, and is in the session
_LARGEST = 8 << 20  # bytes of the file


class Remembered(History):
    """The typed lines of this conversation and, after a call of `keep`, of earlier ones.

    A file that is not private, or not a file at all, is ignored: nothing is read from it or written to it.
    """

    def __init__(self) -> None:
        super().__init__()
        self.path: Path | None = None
        self._clean: Callable[[str], str] = str
        self._loaded = True  # prompt_toolkit has nothing to load: `keep` fills the list

    def keep(self, path: Path, clean: Callable[[str], str]) -> None:
        """Load the history from `path`, and store the lines of this conversation there.

        `clean` masks secrets in a text. A line that begins with a blank or is longer than LONGEST characters is not
        stored.
        """
        self.path, self._clean = path, clean
        early = self._loaded_strings
        self._loaded_strings = [*early, *reversed(self._read())]
        for text in reversed(early):
            self.store_string(text)

    def load_history_strings(self) -> Iterable[str]:
        return ()

    def store_string(self, string: str) -> None:
        if self.path is None or string.startswith(" ") or len(string) > LONGEST:
            return
        line = json.dumps(self._clean(string)).encode() + b"\n"
        if (handle := _opened(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND)) is None:
            return
        # Ignore a full disk: only the history is incomplete.
        with contextlib.suppress(OSError), open(handle, "wb", buffering=0) as file:
            if os.fstat(handle).st_size + len(line) <= _LARGEST:
                file.write(line)

    def shorten(self) -> None:
        """Keep only the latest `_KEPT` entries of a file with twice as many. Called when a conversation ends."""
        if self.path is None or len(rows := self._read(_KEPT * 4)) < _KEPT * 2:
            return
        new = self.path.with_name(f"{self.path.name}.{os.getpid()}")
        if (handle := _opened(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL)) is None:
            return
        try:
            with open(handle, "w", encoding="utf-8") as file:
                file.writelines(json.dumps(row) + "\n" for row in rows[-_KEPT:])
            os.replace(new, self.path)
        except OSError:  # a full disk: the history stays as it was
            with contextlib.suppress(OSError):
                new.unlink()

    def _read(self, most: int = _KEPT) -> list[str]:
        if self.path is None or (handle := _opened(self.path, os.O_RDONLY)) is None:
            return []
        with open(handle, "rb") as file:
            data = file.read(_LARGEST)
        rows: list[str] = []
        for line in data.split(b"\n")[-most - 1 :]:
            try:
                row = json.loads(line)
            except ValueError:
                continue  # an incomplete line of a crash; the other lines are complete
            if isinstance(row, str) and row:
                rows.append(row)
        return rows


def _opened(path: Path, flags: int) -> int | None:
    """Open a private regular file, or return None.

    THREAT: a link, or a file of another user, could redirect the writes or propose that user's text.
    """
    try:
        handle = os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK, 0o600)
    except OSError:
        return None
    status = os.fstat(handle)
    if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid() or status.st_mode & 0o077:
        os.close(handle)
        return None
    return handle
