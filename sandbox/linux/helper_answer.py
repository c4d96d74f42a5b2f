"""The outcome that the last line of a helper's answer states. The helper is not trusted: every value is checked."""

import errno
import os

from policy.model.verdict import Problem
from sandbox.backend import Outcome, Used
from sandbox.linux.helper_handle import HelperHandle

_DIGITS = 16  # digits of the largest number of milliseconds or KiB that is accepted from a helper


def ended_outcome(
    helper: HelperHandle, line: str, streams: tuple[bytes, bytes], seconds: float, ended: str | None
) -> Outcome:
    """Return the outcome of a program that was started, from the last line of its helper (empty if it is gone).

    `ended` is the limit that the runner saw passed, or None.
    """
    out, err = streams
    verb, _, rest = line.partition(" ")
    # An out-of-memory kill may come between two checks, and may have ended the helper itself.
    passed = helper.group.excess() if ended is None and not line.startswith("exit 0 - ") else None
    if verb != "exit":
        if ended or passed:
            return Outcome(137, out, err, seconds, ended or passed, ended == "output")
        return Outcome(125, out, err, seconds, "helper", problem=GONE)
    code, _, told_of = rest.partition(" ")
    why, *numbers = told_of.split(" ")
    if ended == "watch" and why == "-":
        ended = None  # the command ended by itself before the watch ended it
    ended = ended or passed or (None if why == "-" else why)
    used = None  # the helper is not trusted: values that are no numbers are ignored
    if len(numbers) == 2 and all(each.isdigit() and len(each) < _DIGITS for each in numbers):
        used = Used(int(numbers[0]) / 1000, int(numbers[1]) << 10)
    result = (out, err, seconds, ended, ended == "output")
    return Outcome(int(code), *result, enforcement=helper.enforcement, used=used)


GONE = Problem("the sandbox helper ended while a command ran", "the command ended with the helper process", "try again")


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
    fix = "check the name, and that the folder and the program are in the workspace or a system folder"
    if code == errno.EACCES:
        held = "in the sandbox they hold for root, too"
        fix = f"check the modes of the working folder and of the program: {held}"
    why = f"{reason} (inside the sandbox, where only granted paths exist)"
    problem = Problem(f"`{program}` could not be started", why, fix)
    return Outcome(status, b"", text.encode(), seconds, problem=problem)
