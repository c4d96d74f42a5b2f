"""The refusal of Terms that include a way to the container daemon, which would be a way out of the sandbox."""

import os
import stat
from collections.abc import Iterable

from policy.model.secret_paths import inside
from policy.model.verdict import Terms
from sandbox.backend import SandboxUnavailable

MOST = 1_000_000  # entries that are examined for a hard link


def refuse_daemons(terms: Terms, sockets: Iterable[str]) -> None:
    """Raise SandboxUnavailable if a path of `terms` is, contains, leads to or is another name of a daemon's socket.

    THREAT T58: a program that can use a container daemon is root outside. `sockets` are those of the daemons of this
    machine, existing or not.
    """
    granted = {terms.workspace, *terms.read, *terms.writable}
    real = {path: os.path.realpath(path) for path in granted}
    for path in sorted(granted):
        if any(inside(each, "/dev") for each in (path, real[path])):
            raise _refused(path, "devices belong to the machine, and a container has a few of its own")
    for socket in sockets:
        try:
            status = os.stat(socket)
        except OSError:
            continue
        place = os.path.realpath(socket)
        for path in sorted(granted):
            if inside(place, real[path]) or inside(socket, path) or os.path.samestat(_stat(path), status):
                why = f"the container daemon listens at `{socket}`, which gives the rights of root outside"
                raise _refused(path, why)
            if other := _elsewhere(real[path], status):
                raise _refused(path, f"`{other}` is another name of the container daemon's socket `{socket}`")


def _elsewhere(root: str, socket: os.stat_result) -> str:
    """Return another name of `socket` below `root`: a hard link, or a mount of the socket itself.

    The result is empty if there is none, and `root` if there are more than MOST names to examine.
    """
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
        mount_points = [unescape(line.split(" ", 5)[4]) for line in file]  # proc_pid_mountinfo(5)
    for mounted in mount_points:
        if inside(mounted, root) and os.path.samestat(_stat(mounted), socket):
            return mounted
    if socket.st_nlink < 2 or _stat(root).st_dev != socket.st_dev:
        return ""  # the socket has only one name, or is on another file system
    seen = 0
    for folder, _, names in os.walk(root):
        for name in names:
            seen += 1
            path = os.path.join(folder, name)
            if seen > MOST:
                return root
            status = _stat(path)
            if stat.S_ISSOCK(status.st_mode) and os.path.samestat(status, socket):
                return path
    return ""


def unescape(path: str) -> str:
    """Return a path of mountinfo with its octal escapes for white space decoded."""
    for code in (r"\040", r"\011", r"\012"):
        path = path.replace(code, chr(int(code[1:], 8)))
    return path.replace(r"\134", "\\")


def _stat(path: str) -> os.stat_result:
    """Return the state of a path, links followed; for a missing path, the state of nothing."""
    try:
        return os.stat(path)
    except OSError:
        return os.stat_result((0,) * 10)


def _refused(path: str, why: str) -> SandboxUnavailable:
    fix = "name a narrower path, or use another folder"
    return SandboxUnavailable.of(f"`{path}` cannot be given to a container", why, fix)
