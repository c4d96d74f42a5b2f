"""Sockets with a path whose owner is a program outside of the sandbox: found, and told from those of a command.

A path leads to the socket that was bound there (unix(7)) in every network namespace and through every mount, so the
sandbox masks such paths. A socket whose owner has ended can never be used again, and is harmless.

Sources: unix(7), sock_diag(7), `linux/unix_diag.h`. Without the kernel's list of sockets (the module `unix_diag`) the
list in /proc/net/unix is used, which has names only.
"""

import os
import socket
import stat
import struct
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress

from policy.model.deadline import deadline
from policy.model.frozen import dataclass
from sandbox.inside.safe_rmtree import closing

_SOCK_DIAG, _BY_FAMILY, _DUMP = 4, 20, 0x301  # NETLINK_SOCK_DIAG, SOCK_DIAG_BY_FAMILY, NLM_F_REQUEST | NLM_F_DUMP
_PATIENCE = deadline(5.0)  # seconds for the kernel to send its list
_ERROR, _DONE = 2, 3  # NLMSG_ERROR, NLMSG_DONE
_NAME, _VFS = 0, 1  # UNIX_DIAG_NAME, UNIX_DIAG_VFS: both the attribute and the bit that requests it
_HEADER, _ANSWER, _ATTRIBUTE = struct.Struct("=IHHII"), 16, struct.Struct("=HH")


@dataclass(frozen=True, slots=True)
class BoundSocket:
    """A socket of this network namespace that is bound to a path.

    Attributes:
        name: The path as its program wrote it; it may be relative, or renamed meanwhile.
        number: The low 32 bits of the inode number of the file; -1 if unknown.
        device: The device in the kernel's own form; -1 if unknown.
    """

    name: str
    number: int = -1
    device: int = -1


def in_use(path: str, above: int | None = None) -> bool:
    """Return True if a program may receive what is sent to the socket at `path`; False for its remains, and for paths
    that are no socket. Nothing is sent, and the program does not notice. `path` is relative to the open folder `above`.
    """
    try:
        handle = os.open(path, getattr(os, "O_PATH", 0) | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=above)
    except OSError:
        return False
    with closing(handle), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as probe:
        if not stat.S_ISSOCK(os.fstat(handle).st_mode):
            return False
        try:
            # A datagram socket is connected without a message, and refused by a listener of another type (EPROTOTYPE).
            # The path of a descriptor has no limit of length.
            probe.connect(f"/proc/self/fd/{handle}")
        except ConnectionRefusedError:
            return False  # no process has it bound
        except OSError:
            return True
        return True


def is_foreign(path: str, status: os.stat_result) -> bool:
    """Return True if a program in this network namespace, thus outside of the sandbox, has bound the socket at `path`,
    a file with the status `status`.

    Uncertain cases count as foreign: an equal name, or an equal inode number on a device that cannot be compared.
    """
    device = os.major(status.st_dev) << 20 | os.minor(status.st_dev)
    for each in bound_sockets():
        known = os.path.isabs(each.name) and _is_other(each.name, status)
        if each.number == status.st_ino & 0xFFFFFFFF and not known:
            return True
        if (each.number, each.device) == (status.st_ino & 0xFFFFFFFF, device):
            return True
        if each.name == path or (
            not os.path.isabs(each.name) and os.path.basename(each.name) == os.path.basename(path)
        ):
            return True
    return False


def _is_other(name: str, status: os.stat_result) -> bool:
    """Return True if `name` is an existing socket, and not the file of `status`."""
    with suppress(OSError, ValueError):
        there = os.lstat(name)
        return stat.S_ISSOCK(there.st_mode) and (there.st_dev, there.st_ino) != (status.st_dev, status.st_ino)
    return False


def in_folders(folders: Iterable[str]) -> tuple[str, ...]:
    """Return the paths in `folders` at which programs in this network namespace have bound sockets, by their names.

    Only for folders that are too large for a search, and in which only the administrator creates files.
    """
    roots = tuple(f"{folder.rstrip('/')}/" for folder in folders)
    return tuple(sorted({each.name for each in bound_sockets() if each.name.startswith(roots) and in_use(each.name)}))


def bound_sockets() -> list[BoundSocket]:
    """Return all sockets of this network namespace that are bound to a path."""
    if sys.platform != "linux":
        return []
    try:
        return [each for each in _listed() if each.name[:1] not in ("", "\0")]
    except (OSError, struct.error):
        return list(_named())


def _listed() -> Iterator[BoundSocket]:
    """Yield the sockets from the kernel's list. Raises OSError if the kernel has none."""
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _SOCK_DIAG) as link:
        link.settimeout(_PATIENCE)
        wanted = struct.pack("=BBHIIIII", socket.AF_UNIX, 0, 0, 0xFFFFFFFF, 0, 1 << _NAME | 1 << _VFS, 0, 0)
        link.sendto(_HEADER.pack(_HEADER.size + len(wanted), _BY_FAMILY, _DUMP, 1, 0) + wanted, (0, 0))
        while True:
            data, at = link.recv(1 << 18), 0
            while at < len(data):
                length, kind, *_ = _HEADER.unpack_from(data, at)
                if kind == _ERROR:
                    raise OSError("the kernel has no list of sockets")
                if kind == _DONE:
                    return
                yield _parsed(data[at + _HEADER.size + _ANSWER : at + length])
                at += length + 3 & ~3


def _parsed(attributes: bytes) -> BoundSocket:
    name, number, device, at = "", -1, -1, 0
    while at + 4 <= len(attributes):
        size, kind = _ATTRIBUTE.unpack_from(attributes, at)
        value = attributes[at + 4 : at + size]
        if kind == _NAME:
            name = os.fsdecode(value if value[:1] == b"\0" else value.rstrip(b"\0"))
        elif kind == _VFS:
            number, device = struct.unpack("=II", value)
        at += max(size, 4) + 3 & ~3
    return BoundSocket(name, number, device)


def _named() -> Iterator[BoundSocket]:
    """Yield the sockets with their names alone (proc(5))."""
    with open("/proc/net/unix", "rb") as file:
        for line in file.read().splitlines()[1:]:
            words = line.split(None, 7)
            if len(words) == 8 and not words[7].startswith(b"@"):
                yield BoundSocket(os.fsdecode(words[7]))
