"""An action as what a backend starts for it: the words of a program, or one file operation with limits of its own."""

from dataclasses import asdict, replace

from policy.model.action import Action, RunArgv, RunScript
from policy.model.verdict import Limits

_SHELL = ("/bin/bash", "--norc", "--noprofile", "-c", "--")
_FILE_BYTES = 64 << 20  # of a file operation's answer
_FILE_SECONDS = 60.0


def argv_of(action: RunScript | RunArgv) -> tuple[str, ...]:
    return (*_SHELL, action.script) if isinstance(action, RunScript) else action.argv


def file_request(action: Action) -> dict[str, object]:
    """Return the request that `sandbox/inside/files/operations.py` performs."""
    return {"op": action.kind, **asdict(action)}


def file_limits(limits: Limits) -> Limits:
    return replace(limits, wall=min(limits.wall, _FILE_SECONDS), output=_FILE_BYTES)
