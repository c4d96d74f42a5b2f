"""A listener in a container's network, for the proxy outside: a socket stays in the namespace that it was made in."""

import ctypes
import os
import socket
import threading

from sandbox.inside.confine import listen

_CLONE_NEWNET = 0x40000000


def listen_inside(pid: int, port: int) -> socket.socket:
    """Return a TCP listener on the loopback of process `pid`. Raises OSError if its network cannot be entered
    (setns(2)).

    SAFETY: setns moves the calling thread alone. That thread is made for this, and ends here.
    """
    made: list[socket.socket | OSError] = []

    def enter() -> None:
        try:
            handle = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
            try:
                if os.path.samestat(os.fstat(handle), os.stat("/proc/self/ns/net")):
                    raise OSError(0, "it shares the network of this machine")
                if ctypes.CDLL(None, use_errno=True).setns(handle, _CLONE_NEWNET) != 0:
                    number = ctypes.get_errno()
                    raise OSError(number, os.strerror(number))
            finally:
                os.close(handle)
            made.append(listen(port))
        except OSError as error:
            made.append(error)

    thread = threading.Thread(target=enter, name="listen-inside")
    thread.start()
    thread.join()
    if isinstance(made[0], OSError):
        raise made[0]
    return made[0]
