"""The log of remote access: sign-ins, refusals, answers and prompts, one JSON object on each line."""

import contextlib
import os
import time
from pathlib import Path

from runner.text.json_line import json_line, utc_now
from runner.text.sanitize import one_line

FILE = "remote.log"
LARGEST = 4 << 20  # bytes, after which the log is renamed to `remote.log.1`
MOST_REFUSALS = 30  # refusals in one minute; further ones are counted and reported with the next line
_MINUTE = 60.0
_LONGEST = 200  # characters of one value


class AccessLog:
    """The file `remote.log` in `folder`, readable by this user only.

    THREAT T286: a program that only causes refusals fills neither the log nor the disk.
    """

    def __init__(self, folder: Path, *, largest: int = LARGEST) -> None:
        self._path = folder / FILE
        self._largest = largest
        self._began, self._refusals, self._left_out = 0.0, 0, 0

    def write(self, event: str, *, address: str, token: str = "", **details: str | int) -> None:
        """Add one line. `event` is `signed_in`, `signed_out`, `opened`, `closed`, `answered`, `prompted`, ...

        Raise OSError if the line cannot be written: then nothing that it describes may happen.
        """
        values = {
            name: one_line(value, _LONGEST) if isinstance(value, str) else value for name, value in details.items()
        }
        left_out = {"refusals_left_out": self._left_out} if self._left_out else {}
        self._left_out = 0
        entry = {"time": utc_now(), "event": event, "address": one_line(address, _LONGEST), "token": token}
        self._append(json_line({**entry, **values, **left_out}))

    def refused(self, why: str, *, address: str, token: str = "") -> None:
        """Add a refusal, or only count it if there were many in this minute."""
        now = time.monotonic()
        if now - self._began > _MINUTE:
            self._began, self._refusals = now, 0
        self._refusals += 1
        if self._refusals > MOST_REFUSALS:
            self._left_out += 1
            return
        with contextlib.suppress(OSError):  # the refusal itself holds, also if the disk is full
            self.write("refused", address=address, token=token, why=why)

    def _append(self, line: str) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
        handle = os.open(self._path, flags, 0o600)
        try:
            data = f"{line}\n".encode("ascii")
            if os.fstat(handle).st_size + len(data) > self._largest:
                os.replace(self._path, self._path.with_name(f"{FILE}.1"))
                os.close(handle)
                handle = os.open(self._path, flags, 0o600)
            os.write(handle, data)
        finally:
            os.close(handle)
