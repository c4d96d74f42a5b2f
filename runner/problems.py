"""How the command line ends: Problems on stderr, exit codes, and the seam where the unexpected becomes a Problem."""

import errno
import os
import sys
import time
from enum import IntEnum
from typing import TextIO

from policy.verdict import Problem, ProblemError
from runner.live_secrets import from_environment, masked

ISSUES = "the project's issue tracker"


class Exit(IntEnum):
    """What the shell learns. `agent exec` passes the command's own status through when the command ran to its end."""

    DONE = 0
    FAILED = 1
    USAGE = 2
    DENIED = 3
    SANDBOX = 4
    LIMIT = 5
    INTERRUPTED = 130
    BROKEN_PIPE = 141


class Stopped(ProblemError):
    """The command cannot go on: print the Problem, exit with the code."""

    def __init__(self, problem: Problem, code: Exit) -> None:
        super().__init__(problem)
        self.code = code


def usage(what: str, why: str, fix: str) -> Stopped:
    """A mistake on the command line or in the configuration."""
    return Stopped(Problem(what, why, fix), Exit.USAGE)


def coloured(stream: TextIO) -> bool:
    """Whether `stream` is a terminal that wants colour (NO_COLOR and TERM=dumb say no)."""
    return not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb" and stream.isatty()


def print_problem(problem: Problem, *, label: str = "agent") -> None:
    """What, why and how to fix, on stderr; nothing in it can drive the terminal."""
    from runner.visible import visible

    bold, dim, end = ("\x1b[1;31m", "\x1b[2m", "\x1b[0m") if coloured(sys.stderr) else ("", "", "")
    lines = [f"{bold}{label}: {visible(problem.what)}{end}"]
    for name, text in (("why", problem.why), ("fix", problem.fix)):
        if text:
            shown = visible(text).replace("\n", "\n       ")
            lines.append(f"  {dim}{name}:{end} {shown}")
    _tell("\n".join(lines))


def say(text: str) -> None:
    """Write one message on stderr, whole, whatever encoding the terminal speaks; nothing in it can drive the
    terminal."""
    from runner.visible import visible

    _tell(visible(text))


def _tell(text: str) -> None:
    """Write `text`, in which everything untrusted was spelled out, on stderr."""
    from_environment(os.environ)  # what was typed wrongly may be one; most messages come before any run
    # Nor is a key shown that was typed in the wrong place (`agent auth login KEY`): it has no place to be known from.
    from runner.redactor import Redactor

    text = Redactor(shapes=True).text(masked(text))
    if os.environ.get("CI") or os.environ.get("GITHUB_ACTIONS"):  # where a line of a log can be a command
        from runner.ci.workflow import broken

        text = "\n".join(broken(line) for line in text.split("\n"))
    data = f"{text}\n".encode(sys.stderr.encoding or "utf-8", "backslashreplace")
    sys.stderr.flush()
    try:
        while data:
            data = data[os.write(2, data) :]
    except OSError:
        return  # nobody reads stderr any more; there is no better place to say so


def known_problem(error: BaseException) -> tuple[Problem, Exit] | None:
    """The Problem that a deliberate exception carries, with its exit code; None for what nobody planned."""
    if isinstance(error, Stopped):
        return error.problem, error.code
    problem = getattr(error, "problem", None)
    if not isinstance(problem, Problem):
        return starved(error)
    # By name, so that printing an error loads none of the modules that could have raised it.
    codes = {
        "SandboxUnavailable": Exit.SANDBOX,
        "NoDaemon": Exit.SANDBOX,
        "AuditError": Exit.FAILED,
        "ProviderError": Exit.FAILED,
        "JournalError": Exit.FAILED,
    }
    return problem, codes.get(type(error).__name__, Exit.USAGE)


# What the system refuses to whom it has given too much already: no defect of ours (errno(3)).
_STARVED = {
    errno.EMFILE: ("open files", "raise the limit of the shell that starts it (`ulimit -n 256`)"),
    errno.ENFILE: ("open files on this machine", "close other programs"),
    errno.EAGAIN: ("processes", "raise the limit of the shell that starts it (`ulimit -u`), or close other programs"),
    errno.ENOMEM: ("memory", "close other programs, or raise the limit of the shell that starts it (`ulimit -v`)"),
}


def starved(error: BaseException | None) -> tuple[Problem, Exit] | None:
    """The Problem of a run that the limits of its own surroundings left too little; None for any other error."""
    while error is not None:
        if isinstance(error, OSError | MemoryError):
            number = (error.errno or 0) if isinstance(error, OSError) else errno.ENOMEM
            if number in _STARVED and (number != errno.EAGAIN or _starting(error)):
                what, fix = _STARVED[number]
                said = f"ringfence itself ran out of {what} and stopped; nothing more was run"
                return Problem(said, os.strerror(number).lower(), fix), Exit.FAILED
        error = error.__cause__ or error.__context__
    return None


def _starting(error: BaseException) -> bool:
    """Whether it came from starting a process: the same number means other things elsewhere."""
    at = error.__traceback__
    while at is not None and at.tb_next is not None:
        at = at.tb_next
    return at is not None and at.tb_frame.f_code.co_filename.endswith("subprocess.py")


def unwritten(error: OSError) -> Problem:
    """Stdout takes nothing more: a full disk, a device that went away."""
    why = (error.strerror or "the system refused it").lower()
    return Problem("the output could not be written", why, "check where standard output goes")


def unexpected(error: BaseException) -> Problem:
    """Keep the details of a defect of ours in a private file, and answer the Problem to print.

    THREAT: a traceback can carry secrets. The file holds frames (file, line, function) and the exception's type, never
    locals, and its message only with every token-like run masked.
    """
    what = "ringfence hit a defect of its own and stopped; nothing more was run"
    try:
        path = _write_crash(error)
    except (
        Exception
    ) as second:  # the seam below the seam: a full disk or a bad state folder must not hide the first error
        return Problem(
            what,
            f"{type(error).__name__.lower()}, and the details could not be kept ({type(second).__name__.lower()})",
            f"run `agent doctor`, and report this on {ISSUES}",
        )
    return Problem(what, "this should not happen, whatever the input was", f"report it on {ISSUES} with `{path}`")


def _write_crash(error: BaseException) -> str:
    import platform
    import re
    import traceback

    from runner.places import state_dir
    from runner.version import VERSION

    walked = traceback.walk_tb(error.__traceback__)
    frames = "".join(f"{frame.f_code.co_filename}:{line} {frame.f_code.co_qualname}\n" for frame, line in walked)
    message = re.sub(r"(?=[A-Za-z_.+=-]*\d)[A-Za-z0-9_.+=-]{20,}", "[masked]", masked(str(error)))[:500]
    text = (
        f"ringfence {VERSION}, python {platform.python_version()}, {platform.system()} {platform.release()}\n"
        f"command: {sys.argv[1] if len(sys.argv) > 1 else ''}\n{frames}{type(error).__name__}: {message}\n"
    )
    stamp = time.strftime("%Y%m%dT%H%M%S", time.gmtime())
    path = state_dir(os.environ) / f"crash-{stamp}-{os.getpid()}.txt"
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with open(descriptor, "w", encoding="utf-8", errors="backslashreplace") as file:
        file.write(text)
    return str(path)
