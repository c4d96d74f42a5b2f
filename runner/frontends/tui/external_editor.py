"""The user's own editor (`VISUAL`, `EDITOR`) for the input. The editor has the terminal while it runs."""

import asyncio
import contextlib
import os
import shlex
import signal
import subprocess
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

from policy.model.deadline import deadline
from sandbox.inside.descendants import descendants

_USUAL = ("/usr/bin/editor", "/usr/bin/nano", "/usr/bin/pico", "/usr/bin/vi", "/usr/bin/emacs")
_PATIENCE = deadline(2.0)  # seconds for an editor to save its text and restore the terminal after SIGTERM
# Leaves the alternate screen and shows the cursor, for a killed editor that did not restore the terminal.
_LEFT = "\x1b[?1049l\x1b[?25h"


class OwnEditor:
    """The user's own editor. At most one runs at a time, while `open` is True. `write` writes to the terminal."""

    def __init__(self, environ: Mapping[str, str], write: Callable[[str], None]) -> None:
        self._environ = environ
        self._write = write
        self._process: subprocess.Popen[bytes] | None = None
        self._over = False
        self.open = False

    def write(self, text: str) -> str | None:
        """Let the user edit `text`, wait for the end of the editor, and return the new text; None if that failed."""
        with tempfile.TemporaryDirectory(prefix="ringfence-") as folder:
            path = Path(folder, "input.md")
            path.write_text(text, encoding="utf-8", errors="replace")
            status = self._run(str(path))
            if status < 0:
                self._write(_LEFT)
            if status == 0:
                with contextlib.suppress(OSError):
                    return path.read_text(encoding="utf-8", errors="replace").removesuffix("\n")
        return None

    def end(self) -> None:
        """Send SIGTERM to the editor, and SIGKILL after `_PATIENCE` seconds. Call it in the event loop's thread."""
        self._over = True
        self._send(signal.SIGTERM, signal.SIGCONT)  # SIGCONT, because the editor may be stopped
        asyncio.get_running_loop().call_later(_PATIENCE, self._send, signal.SIGKILL)

    def _run(self, path: str) -> int:
        for program in filter(None, (self._environ.get("VISUAL"), self._environ.get("EDITOR"), *_USUAL)):
            try:
                self._process = subprocess.Popen([*shlex.split(program), path])
            except (OSError, ValueError):  # this program does not exist: try the next one
                continue
            try:
                if self._over:
                    self._send(signal.SIGTERM, signal.SIGCONT)
                return self._process.wait()
            finally:
                self._process = None
        return 1

    def _send(self, *signals: signal.Signals) -> None:
        """Send signals to the editor and its children, because a script that calls an editor does not forward them."""
        if (process := self._process) is None:
            return
        below = descendants(process.pid)
        for number in signals:
            process.send_signal(number)  # safe after its end, when another process may have its id
            for pid in below:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, number)
