"""The exit codes and fatal signals of the program, and the mapping from exceptions to a Problem and an exit code."""

import contextlib
import errno
import os
import signal
from collections.abc import Iterator
from contextvars import ContextVar
from enum import IntEnum

from policy.model.verdict import Problem, ProblemError

ISSUES = "the project's issue tracker"


class Exit(IntEnum):
    """The exit codes of the program. `agent exec` returns the exit code of the command if the command ran to its
    end."""

    DONE = 0
    FAILED = 1
    USAGE = 2
    DENIED = 3
    SANDBOX = 4
    LIMIT = 5
    INTERRUPTED = 130
    BROKEN_PIPE = 141


class Stopped(ProblemError):
    """The error that ends a command: the front end prints the Problem and exits with `code`."""

    def __init__(self, problem: Problem, code: Exit) -> None:
        super().__init__(problem)
        self.code = code


class CommandChosen(Exception):
    """The signal that the user chose a command of `agent` in place of a session. `words` are its command line."""

    def __init__(self, words: tuple[str, ...]) -> None:
        super().__init__(" ".join(words))
        self.words = words


def usage(what: str, why: str, fix: str) -> Stopped:
    """Return the error for a mistake on the command line or in the configuration."""
    return Stopped(Problem(what, why, fix), Exit.USAGE)


# The arguments of `Agent` (runner/agent/agent.py) that have the meaning of options of the command line.
_ARGUMENTS = {
    "--config": "config={}",
    "--continue": "SessionSelection(latest=True)",
    "--cwd": "cwd={}",
    "--fork": "SessionSelection(fork={})",
    "--limit": "limits=[{}]",
    "--max-cost": "RunBudget(cost={})",
    "--max-denials": "RunBudget(denials={})",
    "--max-output": "RunBudget(output={})",
    "--max-tokens": "RunBudget(tokens={})",
    "--max-turns": "RunBudget(turns={})",
    "--mode": "mode={}",
    "--model": "model={}",
    "--no-session": "SessionSelection(unkept=True)",
    "--resume": "SessionSelection(resume={})",
    "--timeout": "RunBudget(timeout={})",
    "--trust-config": "trust_config={}",
}
_in_program: ContextVar[bool] = ContextVar("in_program", default=False)


@contextlib.contextmanager
def naming_arguments(program: bool) -> Iterator[None]:
    """Let `option` name arguments of `Agent` inside this context if `program` is True: a Python program gave them."""
    token = _in_program.set(program)
    try:
        yield
    finally:
        _in_program.reset(token)


def option(name: str, value: str | int = "", command: str = "") -> str:
    """Return how the user or the program that started this session writes an option.

    `--cwd` with the value `/w` is `--cwd /w` on a command line, where `command` precedes it, and `cwd="/w"` in a Python
    program. A value of capitals (`FOLDER`) is a placeholder. Return an empty string if a program cannot give the
    option.
    """
    if not _in_program.get():
        return " ".join(word for word in (command, name, str(value)) if word)
    quoted = isinstance(value, str) and value and not value.isupper()
    return _ARGUMENTS.get(name, "").format(f'"{value}"' if quoted else value)


def unless_program(text: str) -> str:
    """Return `text`, which names a command of `agent`; an empty string if a Python program started this session."""
    return "" if _in_program.get() else text


def known_problem(error: BaseException) -> tuple[Problem, Exit] | None:
    """Return the Problem and the exit code that a deliberate exception carries, or None for an unexpected exception."""
    if isinstance(error, Stopped):
        return error.problem, error.code
    if isinstance(error, ProblemError):
        return error.problem, Exit(error.exit_code)
    return resource_problem(error)


# Errors of a process that reached a limit of the system, which are no defects of this program. SOURCE: errno(3)
_STARVED = {
    errno.EMFILE: ("open files", "raise the limit of the shell that starts it (`ulimit -n 256`)"),
    errno.ENFILE: ("open files on this machine", "close other programs"),
    errno.EAGAIN: ("processes", "raise the limit of the shell that starts it (`ulimit -u`), or close other programs"),
    errno.ENOMEM: ("memory", "close other programs, or raise the limit of the shell that starts it (`ulimit -v`)"),
}


def resource_problem(error: BaseException | None) -> tuple[Problem, Exit] | None:
    """Return the Problem of a run that exceeded a system limit such as the number of open files, or None for any other
    error.
    """
    while error is not None:
        if isinstance(error, OSError | MemoryError):
            number = (error.errno or 0) if isinstance(error, OSError) else errno.ENOMEM
            if number in _STARVED and (number != errno.EAGAIN or _is_process_limit(error)):
                what, fix = _STARVED[number]
                said = f"ringfence itself ran out of {what} and stopped; nothing more was run"
                return Problem(said, os.strerror(number).lower(), fix), Exit.FAILED
        error = error.__cause__ or error.__context__
    return None


def _is_process_limit(error: BaseException) -> bool:
    from sandbox.linux.helper_process import ProcessLimitReached

    return isinstance(error, ProcessLimitReached)


def ending_signals() -> tuple[int, ...]:
    """Return the signals that the runner handles, so that no terminal stays raw and no command keeps running: those
    that end a program by default and that no parent process has set to be ignored, as nohup(1) does with SIGHUP.
    """
    # SOURCE: signal(7), "Standard signals". Left out are SIGINT, signals that no program can handle, signals that end
    # nothing, and signals that Python ignores (EPIPE and EFBIG are errors). Signals for a faulty instruction are left
    # out, too: after the handler returns, the instruction would be executed again, without end.
    others = frozenset(
        getattr(signal, name, None)
        for name in (
            "SIGKILL", "SIGSTOP", "SIGTSTP", "SIGTTIN", "SIGTTOU", "SIGCONT", "SIGCHLD", "SIGURG", "SIGWINCH",
            "SIGINFO", "SIGPIPE", "SIGXFSZ", "SIGSEGV", "SIGBUS", "SIGFPE", "SIGILL", "SIGTRAP", "SIGSYS", "SIGINT",
        )
    )  # fmt: skip
    every = sorted(int(number) for number in signal.valid_signals() if number not in others)
    return tuple(number for number in every if signal.getsignal(number) is not signal.SIG_IGN)
