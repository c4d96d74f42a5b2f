"""The limits that a command reached, in words. Limits that are inferred from messages of programs are marked."""

import re
import signal

from policy.model.verdict import Limits, Problem
from sandbox.backend import Outcome, Violation
from sandbox.linux.cgroup_places import MEMORY

# Messages of the C library for errors caused by a limit (errno(3)), and those of some runtimes.
_OPEN_FILES = re.compile(r"too many open files", re.IGNORECASE)
_FILE = re.compile(r"file too large|file size limit exceeded", re.IGNORECASE)
_MEMORY = re.compile(r"cannot allocate memory|out of memory|memory exhausted|MemoryError|bad_alloc", re.IGNORECASE)
_PIDS = re.compile(r"(fork|clone|thread|spawn).*resource temporarily unavailable|can't start new thread", re.IGNORECASE)
_SPACE = re.compile(r"no space left on device", re.IGNORECASE)
_TAIL = 16 << 10  # bytes at the end of each stream that are examined


# ended_by -> (the resource that was used up, the field of Limits, the flags that raise it)
_PASSED = {
    "wall": ("wall time", "wall", "--timeout or --limit wall"),
    "cpu": ("processor time", "cpu", "--limit cpu"),
    "pids": ("processes and threads", "pids", "--limit pids"),
    "memory": ("memory", "memory", "--limit memory"),
    "file": ("file size", "file", "--limit file"),
    "output": ("output", "output", "--limit output"),
    "disk": ("disk space", "disk", "--limit disk"),
}


def passed(ended_by: str, limits: Limits) -> Problem:
    """Return the problem for `ended_by`, the reason why a command was ended; for a limit, with its value and the flag
    that raises the limit.
    """
    if ended_by == "watch":
        what = "the command was ended: it created an auto-run file, or could have reached a socket of another program"
        why = "editors, prompts or Git run such files automatically, outside of the sandbox; the file was set aside"
        return Problem(what, why, "create the file yourself, or name it in the command, so that you are asked")
    if ended_by == "exposed":
        what = "the process was ended: a file changed that it must not read or write"
        why = "its sandbox was built for the files that existed when it started"
        return Problem(what, why, "start it again")
    if ended_by not in _PASSED:
        what = f"the command was ended ({ended_by})"
        if ended_by == "group":
            what = "the command was ended: its control group was removed"
        return Problem(what, "its limits were not enforced any more", "try again, and check `agent doctor`")
    used, field, how = _PASSED[ended_by]
    value = getattr(limits, field)
    number = f"{value:g} s" if field in ("wall", "cpu") else str(value) if field == "pids" else amount(value)
    # The disk is checked once more after the command, so the command may have ended by itself.
    what = f"the command {'' if ended_by == 'disk' else 'was ended: it '}used up its {used} ({number})"
    return Problem(what, "the limit holds for a command and all its processes", f"raise the limit with {how}")


def reached(outcome: Outcome, limits: Limits, refused: int, held: frozenset[str]) -> tuple[Violation, ...]:
    """Return the limits that a command reached without being ended; nothing for a command that succeeded.

    `refused` is the number of processes that the kernel did not start. `held` are the limits that a control group
    enforces.
    """
    if outcome.status == 0 or outcome.ended_by is not None:
        return ()
    text = (outcome.stderr[-_TAIL:] + b"\n" + outcome.stdout[-_TAIL:]).decode("utf-8", "replace")
    pids = f"the limit of {limits.pids} processes was reached"
    if refused:
        pids = f"{refused} attempt(s) to start a process or thread failed: the limit is {limits.pids}"
    files = f"the limit of {limits.open_files} open files, or a lower one that the command set, was reached"
    too_large = outcome.status == 128 + signal.SIGXFSZ or _FILE.search(text)
    largest = f"{'disk' if limits.largest < limits.file else 'file'}={amount(limits.largest * 2)}"
    too_long = outcome.status == 128 + signal.SIGXCPU
    rows = (
        (refused or _PIDS.search(text), pids, f"pids={limits.pids * 2}"),
        (_OPEN_FILES.search(text), files, f"open-files={limits.open_files * 2}"),
        (too_large, f"a file reached the limit of {amount(limits.largest)}", largest),
        (too_long, f"a process used up its processor time ({limits.cpu} s)", f"cpu={limits.cpu * 2}"),
        (
            MEMORY not in held and _MEMORY.search(text),
            f"a process reached the limit of memory ({amount(limits.memory)})",
            f"memory={amount(limits.memory * 2)}",
        ),
    )
    violations = [
        # Only the number of refused processes comes from the kernel.
        Violation(what, "", f"raise the limit with --limit {limit}, or use less", not refused or what != pids, "limit")
        for is_reached, what, limit in rows
        if is_reached
    ]
    if _SPACE.search(text):
        most = amount(min(limits.memory // 2, limits.file))
        what = f"HOME or /dev/shm (both in memory, {most} each) or the disk is full"
        violations.append(Violation(what, "", "write to the workspace or to /tmp instead", inferred=True))
    return tuple(violations)


def amount(size: int) -> str:
    """Return bytes in the form that `--limit` accepts, in the largest unit that is exact."""
    for unit, bytes_ in (("T", 1 << 40), ("G", 1 << 30), ("M", 1 << 20), ("K", 1 << 10)):
        if size >= bytes_ and size % bytes_ == 0:
            return f"{size // bytes_}{unit}"
    return str(size)
