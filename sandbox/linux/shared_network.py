"""A network namespace that several helpers of one session may share, as the runner sees it."""

import asyncio
import contextlib
import errno
import fcntl
import os
import socket
import subprocess

from policy.model.deadline import deadline
from sandbox.linux.helper_process import import_folder, interpreter

_NS_GET_USERNS = 0xB701  # ioctl_ns(2): the user namespace that owns a namespace
_PATIENCE = deadline(15.0)  # seconds: more than the program needs for both addresses
_LISTENING = "0A"  # the state of a listening socket in /proc/net/tcp (include/net/tcp_states.h)


class SharedNetwork:
    """One network namespace with the helpers in it. It ends when its last helper leaves.

    Attributes:
        handles: The descriptors with which a later helper enters the namespace (`join_network.join`): the user
            namespace that owns it unless that is the runner's own, and the network namespace. Empty if no other helper
            can enter.
    """

    def __init__(self, shown: tuple[int, ...]) -> None:
        """Take over the descriptors that a helper showed (`join_network.show`): at least the namespace."""
        network, *self._tables = shown
        self._network = network
        self.handles: tuple[int, ...] = ()
        self._owner = -1
        with contextlib.suppress(OSError):  # EPERM: the owner is not below the user namespace of the runner
            owner = fcntl.ioctl(network, _NS_GET_USERNS)
            if os.fstat(owner).st_ino == os.stat("/proc/self/ns/user").st_ino:
                os.close(owner)
                self.handles = (network,)
            else:
                os.set_inheritable(owner, False)
                self._owner = owner
                self.handles = (owner, network)
        self._ports: dict[object, int] = {}  # the port of the proxy's listener for each helper; 0 for the usual one
        self.ended = False

    def free_port(self) -> int:
        """Return the lowest port for a proxy's listener that no helper of this namespace was given."""
        from sandbox.egress.variables import PORT  # only where helpers share a namespace

        taken = {port or PORT for port in self._ports.values()}
        return next(port for port in range(PORT, PORT + len(taken) + 1) if port not in taken)

    def enter(self, helper: object, port: int = 0) -> None:
        """Count `helper`, whose proxy listens on `port` (0: the usual one), among the helpers in the namespace."""
        self._ports[helper] = port

    def leave(self, helper: object) -> None:
        """Remove `helper`, and close the namespace with its last helper. Calling this again has no effect."""
        self._ports.pop(helper, None)
        if self._ports or self.ended:
            return
        self.ended, self.handles = True, ()
        for handle in (self._network, *((self._owner,) if self._owner >= 0 else ()), *self._tables):
            os.close(handle)
        self._tables = []

    def listening(self) -> tuple[int, ...]:
        """Return the TCP ports that something listens on in the namespace, except the listeners of the proxy."""
        ports: set[int] = set()
        for table in self._tables:
            rows = b""
            while chunk := os.pread(table, 1 << 16, len(rows)):
                rows += chunk
            ports |= listening_ports(rows.decode("ascii", "replace"))
        from sandbox.egress.variables import PORT  # only where the ports are shown

        return tuple(sorted(ports - {port or PORT for port in self._ports.values()}))

    async def connect(self, port: int) -> socket.socket:
        """Return a connection to `port` of the loopback in the namespace, and of nothing else. Raises OSError."""
        if not self.handles:
            raise OSError(errno.ENETDOWN, "the network of the process has ended, or cannot be entered")
        handles = [os.dup(handle) for handle in self.handles]  # `leave` may close the others meanwhile
        # A cancelled caller does not end the thread, which closes these descriptors.
        return await asyncio.shield(asyncio.to_thread(_dial, handles, port))


def listening_ports(table: str) -> set[int]:
    """Return the ports of the listening sockets in the text of /proc/PID/net/tcp or tcp6 (proc(5))."""
    rows = (line.split() for line in table.splitlines()[1:])
    return {int(row[1].rpartition(":")[2], 16) for row in rows if row[3] == _LISTENING}


def _dial(handles: list[int], port: int) -> socket.socket:
    script = os.path.join(os.path.dirname(os.path.dirname(__file__)), "inside", "dial.py")
    ours, theirs = socket.socketpair()
    with ours:
        with theirs, contextlib.ExitStack() as stack:
            for handle in handles:
                stack.callback(os.close, handle)
            words = (script, import_folder(), ",".join(map(str, handles)), str(theirs.fileno()), str(port))
            process = subprocess.Popen(
                [*interpreter(), *words],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env={},
                cwd="/",
                pass_fds=(*handles, theirs.fileno()),
                start_new_session=True,
            )
        try:
            ours.settimeout(_PATIENCE)
            answer, made, _, _ = socket.recv_fds(ours, 16, 1, socket.MSG_CMSG_CLOEXEC)
        finally:
            process.kill()  # it has answered, or has not answered in time
            process.wait()
    if not made:
        number = int(answer) if answer.isdigit() else errno.ECONNABORTED
        raise OSError(number, os.strerror(number))
    connection = socket.socket(fileno=made[0])
    connection.setblocking(False)
    return connection
