"""Denials by Landlock from the kernel's audit log, readable as root with auditing switched on.

This module never switches auditing on. The feed also has records of other programs: only records of domains that one of
the runner's helpers entered are used (LANDLOCK_DOMAIN names the process, by its number outside of namespaces). Sources:
netlink(7), linux/audit.h, the kernel's admin-guide/LSM/landlock. A denial by a mount is in no log.
"""

import contextlib
import os
import socket
import struct
import time

from policy.model.deadline import deadline
from policy.model.glob import late
from sandbox.backend import Violation

_NETLINK_AUDIT, _READLOG = 9, 1
_GET, _LANDLOCK_ACCESS, _LANDLOCK_DOMAIN = 1000, 1423, 1424
_ANSWER = deadline(0.1)  # seconds for the kernel to say whether it audits
_PATIENCE = deadline(0.02)  # seconds to wait for records, which a thread of the kernel sends
_ACCESS = late(
    r"audit\((?P<when>\d+\.\d+):\d+\): domain=(?P<domain>[0-9a-f]+) blockers=(?P<blockers>[\w.,]+)"
    r'(?: (?:path|name)=(?P<path>"[^"]*"|[0-9A-F]+))?'
)
_DOMAIN = late(r"domain=(?P<domain>[0-9a-f]+) status=allocated .*?\bpid=(?P<pid>\d+) ")
_MOST, _KEPT = 5, 256  # violations of one command; records that are kept


class Feed:
    """The open audit log. `denials` removes the records of one helper; those of other helpers are kept for them."""

    def __init__(self, handle: socket.socket) -> None:
        self._socket = handle
        self._domains: dict[str, int] = {}  # domain -> the process that entered it
        self._seen: list[tuple[str, float, str, str]] = []  # domain, time, blockers, path; the oldest go first

    def denials(self, helper: frozenset[int], since: float) -> tuple[Violation, ...]:
        """Return at most five denials of one helper in order, each place once.

        `helper` is the result of `processes`, `since` the start of its command in seconds of time(2).
        """
        self._take()
        mine = [entry for entry in self._seen if self._domains.get(entry[0]) in helper]
        self._seen = [entry for entry in self._seen if entry not in mine]
        violations = {}
        for _, when, blockers, path in mine:
            if when < int(since * 1000) / 1000:  # the log counts milliseconds
                continue  # a denial of an earlier command
            fix = "change the command so that it does not need this"
            denied = ", ".join(dict.fromkeys(_WORDS.get(name, name) for name in blockers.split(",")))
            if path:
                denied += f" `{path}`"
                fix = f"name `{path}` in the command, so that the user can be asked"
            violations[blockers, path] = Violation(f"{denied} was denied", path, fix, False, "landlock")
        return tuple(violations.values())[:_MOST]

    @staticmethod
    def processes(helper: int) -> frozenset[int]:
        """Return the first process of a helper, and its child, which enters the domain."""
        with contextlib.suppress(OSError), open(f"/proc/{helper}/task/{helper}/children", encoding="ascii") as file:
            return frozenset((helper, *map(int, file.read().split())))
        return frozenset((helper,))

    def close(self) -> None:
        self._socket.close()

    def _take(self) -> None:
        until = time.monotonic() + _PATIENCE
        while True:
            self._socket.settimeout(max(until - time.monotonic(), 0.0001))
            try:
                message = self._socket.recv(1 << 16)
            except TimeoutError:
                return
            except OSError:
                continue  # ENOBUFS: some records were lost; the others are still valid
            if time.monotonic() > until:
                return  # other programs write many records
            if len(message) >= 16:
                self.note(struct.unpack_from("=IH", message)[1], message[16:].decode("utf-8", "replace"))

    def note(self, kind: int, text: str) -> None:
        """Add one record of the audit log, given its type and text. Other types are ignored."""
        if kind == _LANDLOCK_DOMAIN and (match := _DOMAIN.search(text)):
            self._domains[match["domain"]] = int(match["pid"])
            if len(self._domains) > _KEPT:
                del self._domains[next(iter(self._domains))]
        elif kind == _LANDLOCK_ACCESS and (match := _ACCESS.search(text)):
            self._seen.append((match["domain"], float(match["when"]), match["blockers"], _path(match["path"] or "")))
            del self._seen[:-_KEPT]


def feed() -> Feed | None:
    """Return the feed of the log; None if the log cannot be read, or auditing is off."""
    if os.geteuid() != 0:
        return None
    kinds = (socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, _NETLINK_AUDIT)
    try:
        with socket.socket(*kinds) as asking:
            asking.settimeout(_ANSWER)
            asking.send(struct.pack("=IHHII", 16, _GET, 1, 1, 0))  # NLM_F_REQUEST
            kind = 0
            while kind != _GET:
                answer = asking.recv(1 << 13)
                kind = struct.unpack_from("=IH", answer)[1]
                if kind == 2 and struct.unpack_from("=i", answer, 16)[0] != 0:  # NLMSG_ERROR
                    return None
            if not struct.unpack_from("=I", answer, 20)[0]:  # auditing is disabled
                return None
        with contextlib.ExitStack() as stack:
            listening = stack.enter_context(socket.socket(*kinds))
            listening.bind((0, _READLOG))
            stack.pop_all()
            return Feed(listening)
    except (OSError, struct.error):
        return None


def _path(text: str) -> str:
    """Return the path of a record, which is quoted, or in hexadecimal digits if it has characters that a log line
    cannot hold.
    """
    if text.startswith('"'):
        return text[1:-1]
    return bytes.fromhex(text).decode("utf-8", "replace") if text and len(text) % 2 == 0 else ""


# fmt: off
_WORDS = {
    "fs.execute": "running", "fs.write_file": "writing", "fs.read_file": "reading", "fs.read_dir": "listing",
    "fs.remove_dir": "removing from", "fs.remove_file": "removing from", "fs.make_char": "making a device in",
    "fs.make_dir": "making a folder in", "fs.make_reg": "making a file in", "fs.make_sock": "making a socket in",
    "fs.make_fifo": "making a pipe in", "fs.make_block": "making a device in", "fs.make_sym": "making a link in",
    "fs.refer": "moving or linking between folders at", "fs.truncate": "truncating",
    "fs.ioctl_dev": "controlling the device",
    "fs.change_topology": "mounting at", "fs.resolve_unix": "connecting to the socket",
    "net.bind_tcp": "listening on a port",
    "net.connect_tcp": "connecting to a port", "scope.abstract_unix_socket": "connecting to a socket of the host",
    "scope.signal": "signalling a process outside", "ptrace": "tracing a process outside",
}
# fmt: on
