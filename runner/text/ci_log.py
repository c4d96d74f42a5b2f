"""Text for the log of a CI job, in which no line can be a command to the job runner.

SOURCE: docs.github.com, "Workflow commands for GitHub Actions" (`::`, and `##[` of before);
learn.microsoft.com, "Logging commands" (`##vso[`, `##[`).
"""

import re

_COMMAND = re.compile(r"^(\s*):(?=:)|#(?=#[A-Za-z]*\[)")


_ZERO_WIDTH = "\u200b"


def broken(line: str) -> str:
    """Return `line` with a zero-width space in every place where a job runner would read a command."""
    return _COMMAND.sub(lambda found: f"{found[1] or ''}{found[0].strip()}{_ZERO_WIDTH}", line)
