"""The signals that end a program. The runner handles them, so that no terminal stays raw and no command keeps running.

SOURCE: signal(7), "Standard signals": all whose default action is Term or Core, and the real-time signals.
"""

import signal

# Left as they are: those that no program can take, that end nothing, that Python ignores (EPIPE and EFBIG are errors to
# it), and those by which the kernel reports a faulty instruction, to which a handler that returns goes back for ever.
_OTHERS = frozenset(
    getattr(signal, name, None)
    for name in (
        "SIGKILL", "SIGSTOP", "SIGTSTP", "SIGTTIN", "SIGTTOU", "SIGCONT", "SIGCHLD", "SIGURG", "SIGWINCH", "SIGINFO",
        "SIGPIPE", "SIGXFSZ", "SIGSEGV", "SIGBUS", "SIGFPE", "SIGILL", "SIGTRAP", "SIGSYS", "SIGINT",
    )
)  # fmt: skip


def ending_signals() -> tuple[int, ...]:
    """Return every signal but SIGINT that ends a program by default and that the parent process does not have ignored,
    as nohup(1) does with SIGHUP.
    """
    every = sorted(int(number) for number in signal.valid_signals() if number not in _OTHERS)
    return tuple(number for number in every if signal.getsignal(number) is not signal.SIG_IGN)
