"""The output in the log of a job, where lines of a certain form are commands to the runner of the job.

THREAT: the model and the output of its commands must not give such commands. On GitHub, all output except the group
commands of this program is between `stop-commands` and an unguessable word. In every job log, a possible command is
broken by a zero-width space.

SOURCE: docs.github.com, "Workflow commands for GitHub Actions" (`::`, and the older `##[`); learn.microsoft.com,
"Logging commands" (`##vso[`, `##[`); GitLab's sections need an escape character, which is shown.
"""

import io
import os
import secrets
from typing import TextIO

from runner.text.sanitize import without_ci_commands


class JobLog(io.TextIOBase):
    """A job log that takes text in pieces and writes whole lines to `stream`.

    With `github`, it writes groups, and disables workflow commands in untrusted text.
    """

    def __init__(self, stream: TextIO, *, github: bool) -> None:
        self._stream = stream
        self._word = secrets.token_hex(16) if github else ""
        self._line = ""
        self._grouped = False
        if self._word:
            self._own(f"::stop-commands::{self._word}")

    @property
    def encoding(self) -> str:  # type: ignore[override]  # the base class has no value for it
        return self._stream.encoding or "utf-8"

    def isatty(self) -> bool:
        return False

    def fileno(self) -> int:
        raise OSError(os.strerror(9))  # all output must pass through `write`

    def write(self, text: str) -> int:
        *lines, self._line = (self._line + text).split("\n")
        for line in lines:
            self._stream.write(without_ci_commands(line) + "\n")
        return len(text)

    def flush(self) -> None:
        self._stream.flush()

    def group(self, title: str) -> None:
        """Begin a group that the reader can fold, on GitHub. `title` is trusted."""
        if self._word:
            self.ungroup()
            self._commands(f"::group::{title}")
            self._grouped = True

    def ungroup(self) -> None:
        if self._grouped:
            self._commands("::endgroup::")
            self._grouped = False

    def end(self) -> None:
        """Complete the last line, close the open group, and enable workflow commands again."""
        if self._line:
            self.write("\n")
        self.ungroup()
        if self._word:
            self._own(f"::{self._word}::")
        self.flush()

    def _commands(self, line: str) -> None:
        if self._line:
            self.write("\n")
        for each in (f"::{self._word}::", line, f"::stop-commands::{self._word}"):
            self._own(each)

    def _own(self, line: str) -> None:
        self._stream.write(line + "\n")
