"""Storage of complete outputs for the user. The model receives only a part of a long output."""

import contextlib
import errno
import os
from pathlib import Path

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
