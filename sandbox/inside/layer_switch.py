"""The switch of overlays: after a command, the next overlay of the workspace takes the place of the last one.

A process in a Landlock domain cannot change mounts, so the confined half of a helper makes all overlays before it locks
itself in and passes them to the other half. That one is outside of the Landlock domain and of the PID namespace, shares
no socket with commands, and obeys only the runner. Standard library only.
"""

import os
import select
import socket
import sys

from sandbox.inside import syscalls

MOST = 40  # descriptors of one message; the kernel allows 253 (unix(7), SCM_MAX_FD)
NEXT, DONE = b"n", b"y"


def offer(other: socket.socket, workspace: str, overlays: list[int]) -> int:
    """Pass the overlays and this mount namespace to the other half. Return the runner's end of the switch.

    `overlays`: the folder on which they are attached, the attached one, and the further ones in the order of use.
    """
    ours, theirs = socket.socketpair()
    mounts = os.open("/proc/self/ns/mnt", os.O_RDONLY | os.O_CLOEXEC)
    with theirs:
        socket.send_fds(other, [os.fsencode(workspace)], [theirs.fileno(), mounts, *overlays])
    os.close(mounts)
    return ours.detach()


def serve(other: socket.socket, child: int) -> None:
    """Receive what `offer` passes, and attach the next overlay at each request of the runner. Return when there is
    nothing to do any more: the caller then waits for `child` or ends it.
    """
    with other:
        name, handles, _, _ = socket.recv_fds(other, 4096, MOST, socket.MSG_CMSG_CLOEXEC)
    if not handles:
        return
    runner, mounts, place, *overlays = handles
    workspace = os.fsdecode(name)
    ended = os.pidfd_open(child)
    # THREAT T314: what a command can change must not reach this process. Nothing is imported or opened by name in the
    # mount namespace of the commands; what is needed was imported before.
    with socket.socket(fileno=runner) as control:
        syscalls.setns(mounts, syscalls.CLONE_NEWNS)
        os.close(mounts)
        sys.path.clear()
        syscalls.prctl(syscalls.PR_SET_NO_NEW_PRIVS, 1, "no new privileges")
        syscalls.drop_capabilities(syscalls.CAP_SYS_ADMIN)  # move_mount(2) and umount2(2) need it
        syscalls.prctl(syscalls.PR_SET_DUMPABLE, 0, "become non-dumpable")
        poll = select.poll()
        poll.register(control, select.POLLIN)
        poll.register(ended, select.POLLIN)
        while True:
            ready = [handle for handle, _ in poll.poll()]
            if ended in ready or control.recv(len(NEXT)) != NEXT or len(overlays) < 2:
                return
            _attach_next(place, overlays, workspace)
            control.send(DONE)


def _attach_next(place: int, overlays: list[int], workspace: str) -> None:
    """Detach the first overlay, and attach the next one. Raises OSError."""
    last = overlays.pop(0)
    os.fchdir(last)
    syscalls.detach_here()
    os.close(last)
    syscalls.attach_at(overlays[0], place, "the next layer")
    # A command may have renamed a folder above the workspace: the next one would find another folder at its path.
    found = syscalls.open_path(workspace, syscalls.RESOLVE_NO_SYMLINKS)
    shown, wanted = os.fstat(found), os.fstat(overlays[0])
    os.close(found)
    if (shown.st_dev, shown.st_ino) != (wanted.st_dev, wanted.st_ino):
        raise syscalls.replaced("of the workspace")
