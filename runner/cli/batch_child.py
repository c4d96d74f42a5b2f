"""The process of one task: `agent` itself, which on Linux ends when its parent process ends for any reason."""

import os
import signal
import sys


def main() -> int:
    """Run `agent` on the words after the first, which is the parent's process id, and return the exit code."""
    if sys.platform == "linux":
        from sandbox.inside import syscalls

        # SIGTERM ends `agent` in an orderly way. It is sent when the thread that started this process ends, prctl(2).
        syscalls.prctl(syscalls.PR_SET_PDEATHSIG, signal.SIGTERM, "follow the parent")
    if os.getppid() != int(sys.argv[1]):
        return 130  # the parent process ended before the signal was requested
    sys.argv = ["agent", *sys.argv[2:]]
    from runner.cli.main import main as agent

    return agent()
