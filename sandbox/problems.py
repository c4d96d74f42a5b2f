"""The Problems of the sandbox: a boundary that cannot be built, a command that did not start, a failed file action."""

import errno
import os
from collections.abc import Callable

from policy.describe.phrases import plain
from policy.model.verdict import Problem
from sandbox.backend import Outcome, SandboxUnavailable

GONE = Problem(
    "the sandbox helper died while a command ran", "its process is gone; the command went with it", "try again"
)


def unavailable(tier: str, answer: str, said: str = "") -> SandboxUnavailable:
    """Return the error for the line `failed ERRNO STEP` of a helper that could not confine itself.

    `said` is the error text of the program that should have started the helper.
    """
    _, _, rest = answer.partition(" ")
    number, _, step = rest.partition(" ")
    why = os.strerror(int(number)) if number.isdigit() and number != "0" else "the helper ended without a word"
    return SandboxUnavailable(
        Problem(
            f"the {tier} sandbox cannot be built here",
            said or f"the kernel refused to {step or 'start the helper'} ({why.lower()})",
            "run `agent doctor`: it says what this machine lacks and the command that adds it; nothing was run",
        )
    )


def no_landlock(tier: str) -> SandboxUnavailable:
    return SandboxUnavailable(
        Problem(
            f"the {tier} sandbox cannot be built here",
            "the kernel has no Landlock, or it was switched off at boot",
            "run `agent doctor`: it says which, and what to do; nothing was run",
        )
    )


def unsteady(error: OSError) -> SandboxUnavailable:
    """Return the error for a workspace in which another process replaces files by links during the scan."""
    return SandboxUnavailable(
        Problem(
            "the workspace cannot be looked at",
            f"`{plain(os.fsdecode(error.filename or '?'))}` changed meanwhile ({(error.strerror or '').lower()})",
            "stop what is changing it, and try again; nothing was run",
        )
    )


def no_bubblewrap() -> SandboxUnavailable:
    return SandboxUnavailable(
        Problem(
            "the T2 sandbox cannot be built here",
            "bubblewrap (`bwrap`) is not installed in a system folder",
            "run `agent doctor`: it says how to install it; nothing was run",
        )
    )


def too_many(most: int) -> SandboxUnavailable:
    return SandboxUnavailable(
        Problem(
            "the workspace holds too many secret, auto-run or hard-linked files for the T2 sandbox",
            f"bubblewrap takes too long over more than {most} of them, and protecting only some would be a gap",
            "use --cwd with a smaller folder; a clone that shares its objects stops doing so by `git repack -a -d`",
        )
    )


def leaks(tier: str, broken: tuple[str, ...]) -> SandboxUnavailable:
    """Return the error for a canary that got out; `broken` are the checks that failed."""
    return SandboxUnavailable(
        Problem(
            f"the {tier} sandbox does not hold on this machine",
            f"its canary got out: {', '.join(broken)}",
            "run `agent doctor` for what the machine lacks; nothing was run",
        )
    )


def not_started(rest: str, request: dict[str, object], seconds: float) -> Outcome:
    """Return the outcome for a program that did not start, from the rest of the line `failed ERRNO NAME`.

    The status is that of a shell for such a program: 127 or 126.
    """
    number, _, name = rest.partition(" ")
    code = int(number) if number.isdigit() else 0
    argv = request.get("argv")
    program = str(argv[0]) if isinstance(argv, list) and argv else "the action"
    reason = os.strerror(code).lower() if code else "the sandbox refused"
    status = 127 if code == 2 else 126
    text = f"{name or program}: {reason}\n"
    fix = "check the name, and that the folder and the program lie in the workspace or a system folder"
    if code == errno.EACCES:
        fix = (
            "check that the modes of the working folder and of the program let you in: root, too, is held to them here"
        )
    why = f"{reason} (inside the sandbox, where only granted paths exist)"
    problem = Problem(f"`{program}` could not be started", why, fix)
    return Outcome(status, b"", text.encode(), seconds, problem=problem)


def file_outcome(status: int, data: bytes, seconds: float, ended: str | None) -> Outcome:
    """Return the answer of a file action, or the reason why there is none."""
    import json

    failed = Problem("the file action did not finish", f"it ended with status {status}", "try again, or ask for less")
    if ended is not None:
        failed = Problem("the file action was ended", f"it passed the {ended} limit", "ask for less")
        return Outcome(status or 1, seconds=seconds, ended_by=ended, problem=failed)
    try:
        answer = json.loads(data)
    except ValueError:
        return Outcome(status or 1, seconds=seconds, problem=failed)
    if not isinstance(answer, dict):
        return Outcome(status or 1, seconds=seconds, problem=failed)
    told = answer.get("problem")
    if isinstance(told, dict):
        words: Callable[[str], str] = lambda key: str(told.get(key, ""))  # noqa: E731  # three reads of one record
        return Outcome(1, seconds=seconds, problem=Problem(words("what"), words("why"), words("fix")), data=answer)
    return Outcome(status, seconds=seconds, data=answer)
