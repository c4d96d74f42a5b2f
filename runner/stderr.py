"""Output of problems and messages to standard error: masks secrets, escapes CI commands, and writes crash files."""

import os
import sys
import time
from typing import TextIO

from policy.model.verdict import Problem
from runner import VERSION
from runner.problems import ISSUES
from runner.secrets.redactor import Redactor, masked
from runner.secrets.secret import register_environment


def coloured(stream: TextIO) -> bool:
    """Return True if `stream` is a terminal that supports colour; NO_COLOR and TERM=dumb turn colour off."""
    return not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb" and stream.isatty()


def print_problem(problem: Problem, *, label: str = "agent") -> None:
    """Write a problem (what, why, how to fix) to stderr, after `label`. Control characters are escaped visibly.

    At a terminal, lines are wrapped at words.
    """
    from runner.text.sanitize import visible

    bold, dim, end = ("\x1b[1;31m", "\x1b[2m", "\x1b[0m") if coloured(sys.stderr) else ("", "", "")
    lines = [f"{bold}{wrapped(f'{label}: {visible(problem.what)}', 0)}{end}"]
    for name, text in (("why", problem.why), ("fix", problem.fix)):
        if text:
            shown = wrapped(f"  {name}: {visible(text)}", _INDENT).removeprefix(f"  {name}:")
            lines.append(f"  {dim}{name}:{end}{shown}")
    _write("\n".join(lines))


_INDENT = 7  # columns before the text of `why` and `fix`
_NOTICE_INDENT = 8  # columns before the further lines of a notice


def wrapped(text: str, indent: int, output: int = 2) -> str:
    """Return `text`, wrapped at words to the width of the terminal with the descriptor `output` (stderr: 2).

    Other outputs get whole lines. Lines after the first begin with `indent` blanks.
    """
    lines, after = text.split("\n"), " " * indent
    try:
        width = os.get_terminal_size(output).columns
    except OSError:
        width = 0
    if width > 4 * _INDENT:
        from textwrap import TextWrapper

        wrapper = TextWrapper(width - indent, break_on_hyphens=False, break_long_words=False)
        first = TextWrapper(width, subsequent_indent=after, break_on_hyphens=False, break_long_words=False)
        rest = [row for each in lines[1:] for row in (wrapper.wrap(each) or [""])]
        return f"\n{after}".join(["\n".join(first.wrap(lines[0])), *rest])
    return f"\n{after}".join(lines)


def say(text: str) -> None:
    """Write one message to stderr. Control characters and unencodable characters are escaped visibly."""
    from runner.text.sanitize import visible

    _write(visible(text))


def say_notice(text: str) -> None:
    """Write one notice to stderr, wrapped at words at a terminal. Control characters are escaped visibly."""
    from runner.text.sanitize import visible

    _write(wrapped(f"notice: {visible(text)}", _NOTICE_INDENT))


def _write(text: str) -> None:
    """Write `text` to stderr. The caller has already escaped control characters in untrusted parts."""
    register_environment(os.environ)  # a wrongly typed word may be a secret; most messages are written before any run
    # An unregistered key may have been typed in the wrong place (`agent auth login KEY`); it is masked by its shape.
    text = Redactor(shapes=True).text(masked(text))
    if os.environ.get("CI") or os.environ.get("GITHUB_ACTIONS"):  # there, a line of output can be a command
        from runner.text.sanitize import without_ci_commands

        text = "\n".join(without_ci_commands(line) for line in text.split("\n"))
    data = f"{text}\n".encode(sys.stderr.encoding or "utf-8", "backslashreplace")
    sys.stderr.flush()
    try:
        while data:
            data = data[os.write(2, data) :]
    except OSError:
        return  # stderr is closed, and there is no other place for the message


def unwritten(error: OSError) -> Problem:
    """Return the problem of output that standard output did not accept, for example on a full disk."""
    from runner.text.phrases import os_reason

    return Problem("the output could not be written", os_reason(error), "check where standard output goes")


def unexpected(error: BaseException) -> Problem:
    """Write the details of an internal defect to a private crash file and return the Problem to print.

    THREAT: a traceback can contain secrets. The file contains frames (file, line, function) and the exception's type,
    never local variables, and the exception's message with everything masked that resembles a key.
    """
    what = "ringfence stopped because of an internal error; nothing more was run"
    try:
        path = _write_crash(error)
    except Exception as second:  # Seam: a failure to write the file, such as a full disk, must not hide the first error
        kinds = type(error).__name__.lower(), type(second).__name__.lower()
        why = f"{kinds[0]}, and the details could not be kept ({kinds[1]})"
        return Problem(what, why, f"run `agent doctor`, and report this on {ISSUES}")
    return Problem(what, "this must not happen with any input", f"report it on {ISSUES} with `{path}`")


def _write_crash(error: BaseException) -> str:
    import platform
    import re
    import traceback

    from runner.state.paths import state_dir

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
