"""A network, or an address, of its own for a server that cannot take port 0 and print it: no other program listens there."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

# Switches loopback on (SIOCSIFFLAGS with IFF_UP), and ends when its input ends.
_HOLD = """
import fcntl, socket, struct, sys
fcntl.ioctl(socket.socket(), 0x8914, struct.pack("16sh14x", b"lo", 1))
print("ready", flush=True)
sys.stdin.read()
"""


@contextmanager
def own_network() -> Iterator[tuple[str, ...]]:
    """Make a network namespace with loopback only, and yield the words that start a command in it."""
    root = os.geteuid() == 0
    kinds = ("net",) if root else ("user", "net")
    how = () if root else ("--user", "--map-current-user", "--keep-caps")
    with subprocess.Popen(
        ["unshare", *how, "--net", sys.executable, "-c", _HOLD], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"ready\n"
        entered = (f"--{kind}=/proc/{holder.pid}/ns/{kind}" for kind in kinds)
        yield ("nsenter", *entered, *(() if root else ("--preserve-credentials",)), "--")
        # The namespace exists as long as a process is in it. The end of this block ends the input of the holder.


def own_address() -> str:
    """Return an address of loopback (127.0.0.0/8) that belongs to this process as long as it lives.

    A server of another process of pytest has another address. So a port at this address is taken only by a server that
    listens on every address. Connections of other programs come from 127.0.0.1.
    """
    high, low = divmod(os.getpid(), 1 << 16)  # SOURCE: proc_sys_kernel(5): a process has a number below 2^22
    return f"127.{64 + high}.{low >> 8}.{low & 255}"
