"""Where the whole of a long output is kept, for the user: the model sees a part of it."""

import os
from pathlib import Path


class Shelf:
    """The folder of one session's outputs, made at the first one. Its files are the user's alone."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._count = 0

    def keep(self, stdout: bytes, stderr: bytes) -> str:
        """Write both streams to a new file and answer its path. Raises OSError when the disk refuses."""
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._count += 1
        path = self._folder / f"{self._count:04}.txt"  # numbered: a call id comes from the model, so it names no file
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        with open(descriptor, "wb") as file:
            file.write(stdout)
            if stderr:
                file.write((b"" if stdout.endswith(b"\n") or not stdout else b"\n") + b"[stderr]\n" + stderr)
        return str(path)
