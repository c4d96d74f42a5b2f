"""Storage of complete outputs for the user. The model receives only a part of a long output."""

import contextlib
import errno
import os
from collections.abc import Callable
from pathlib import Path

_MOST_LIVE = 64 << 20  # bytes of the stored output of one process that stays
MOST = 256 << 20  # bytes of one session; needed because the limits of a command do not include its stored output


class OutputStore:
    """The private folder of one session's outputs, created with the first one and limited to `most` bytes in all."""

    def __init__(self, folder: Path, most: int = MOST) -> None:
        self._folder = folder
        self._count = 0
        self._left = most

    def keep(self, stdout: bytes, stderr: bytes) -> str:
        """Write both streams to a new file and return its path. Raise OSError if the disk or the limit refuses it."""
        parts = [stdout]
        if stderr:
            parts += [b"" if stdout.endswith(b"\n") or not stdout else b"\n", b"[stderr]\n", stderr]
        size = sum(map(len, parts))
        if size > self._left:
            raise OSError(errno.EDQUOT, "the stored outputs of this session have reached their limit")
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._count += 1
        path = self._folder / f"{self._count:04}.txt"  # numbered: a call id comes from the model, so it names no file
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        try:
            with open(descriptor, "wb") as file:
                file.writelines(parts)
        except OSError:
            with contextlib.suppress(OSError):  # an incomplete file would look complete
                os.unlink(path)
            raise
        self._left -= size
        return str(path)

    def open(self, name: str) -> "OutputFile":
        """Create a file for output that is still to come, and return it. `name` must be safe as a part of a path.

        Raise OSError if the disk or the limit refuses it.
        """
        if self._left <= 0:
            raise OSError(errno.EDQUOT, "the stored outputs of this session have reached their limit")
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._count += 1
        path = self._folder / f"{self._count:04}-{name}.txt"
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        return OutputFile(descriptor, str(path), self._reserve)

    def _reserve(self, size: int) -> bool:
        """Return True if `size` further bytes may be stored, and count them."""
        if size > self._left:
            return False
        self._left -= size
        return True


class OutputFile:
    """The file of the output of one process that stays. It ends at `most` bytes, or at the limit of the session.

    Attributes:
        path: The path of the file.
        full: The reason why the file does not have the whole output; empty if it has.
    """

    def __init__(self, descriptor: int, path: str, reserve: Callable[[int], bool], most: int = _MOST_LIVE) -> None:
        self.path = path
        self.full = ""
        self._descriptor, self._reserve, self._left = descriptor, reserve, most

    def write(self, text: str) -> None:
        """Append the text. After the first failure nothing more is written, and `full` has the reason."""
        if self.full or self._descriptor < 0:
            return
        data = memoryview(text.encode("utf-8", "replace"))
        if len(data) > self._left or not self._reserve(len(data)):
            self.full = "the limit of stored output was reached"
            return
        self._left -= len(data)
        try:
            while data:
                data = data[os.write(self._descriptor, data) :]
        except OSError as error:
            self.full = (error.strerror or "disk error").lower()

    def close(self) -> None:
        """Close the file. Further text is dropped."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)
