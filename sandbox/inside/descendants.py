"""The end of all descendants of a helper that has no PID namespace to end them. Standard library only.

The code runs in the unconfined half of the helper, which commands cannot signal if Landlock scopes signals, and in the
runner for a helper that does not end in time.
"""

import os
import select
import signal
import socket

from sandbox.inside.watchdog import WALL, send_signal, status


def outlive(control: socket.socket, child: int) -> None:
    """Wait in the unconfined half for the end of the runner or of `child`, then end all remaining descendants. Never
    returns.

    Without a PID namespace nothing else ends them if the runner was killed, or if a command has killed the other half.
    Nothing is read from `control`: poll(2) reports with POLLHUP that its other end is closed.
    """
    poll = select.poll()
    poll.register(control, 0)
    poll.register(os.pidfd_open(child), select.POLLIN)
    poll.poll()
    kill_descendants(os.getpid())
    try:
        while True:
            os.waitpid(-1, WALL)
    except ChildProcessError:
        os._exit(0)


def kill_descendants(top: int) -> None:
    """Kill every process that descends from the process `top`, which is a child subreaper.

    A process cannot escape by a new session or the end of its parent: a child subreaper adopts orphans (prctl(2)). All
    are stopped first, round by round, so that no process forks meanwhile.
    """
    stopped: set[int] = set()
    while new := descendants(top) - stopped:
        for pid in new:
            send_signal(pid, signal.SIGSTOP)
        stopped |= new
    # The list is read again, because the number of a process that ended before it was stopped may be in use again.
    for pid in descendants(top):
        send_signal(pid, signal.SIGKILL)


def descendants(top: int) -> set[int]:
    """Return the process numbers of all current descendants of the process `top`, from /proc."""
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit() and len(fields := status(name)) > 1:
            children.setdefault(int(fields[1]), []).append(int(name))
    pids: set[int] = set()
    pending = [top]
    while pending:
        below = children.get(pending.pop(), ())
        pids.update(below)
        pending += below
    return pids
