"""A real Ray of one machine for tests: in a network and a folder of its own, stopped by the numbers of its processes."""

import os
import secrets
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.support.own_network import own_network
from tests.support.waiting import until

# Outside of the ports that Ray gives to its workers (10002 to 19999), and of those that the kernel gives to connections.
_PORT, _DOOR = 21000, 21001


class Cluster:
    """A running head node.

    Attributes:
        folder: the folder of the cluster.
        address: the address of the head, which only a command in its network reaches.
        command: the words before a command that run it in the network of the cluster.
        environ: the variables that a client needs to be let in.
    """

    def __init__(self, folder: Path, command: tuple[str, ...], environ: dict[str, str]) -> None:
        self.folder = folder
        self.address = f"ray://127.0.0.1:{_DOOR}"
        self.command = command
        self.environ = environ


def members(folder: Path) -> list[int]:
    """Return every process of the cluster: its words or its environment name the folder."""
    found = []
    for each in Path("/proc").iterdir():
        if each.name.isdigit() and int(each.name) != os.getpid():
            with suppress(OSError):
                if str(folder).encode() in (each / "cmdline").read_bytes() + (each / "environ").read_bytes():
                    found.append(int(each.name))
    return found


@contextmanager
def cluster(folder: Path, environ: Mapping[str, str]) -> Iterator[Cluster]:
    """Start a head with two CPUs, whose workers have `environ`; `folder` is short, since sockets lie in it."""
    token = folder / "token"
    token.write_text(secrets.token_hex(16))
    token.chmod(0o600)
    client = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(token), "RAY_USAGE_STATS_ENABLED": "0"}
    words = [
        str(Path(sys.executable).with_name("ray")),
        *("start", "--head", f"--port={_PORT}", f"--ray-client-server-port={_DOOR}", "--num-cpus=2"),
        *(f"--temp-dir={folder}/r", "--include-dashboard=false", "--node-ip-address=127.0.0.1"),
        *("--object-store-memory=80000000", "--disable-usage-stats"),
    ]
    # A fork of the head's client server, while another of its threads is in gRPC, dies now and then (ray 2.60).
    steady = {"GRPC_ENABLE_FORK_SUPPORT": "0"}
    with own_network() as command:
        try:
            started = {**environ, **client, **steady}
            subprocess.run([*command, *words], env=started, check=True, capture_output=True, text=True)
            yield Cluster(folder, command, client)
        finally:
            until(lambda: not _killed(folder), what="the end of the cluster")


def _killed(folder: Path) -> list[int]:
    """Kill every process of the cluster. Return those that were there."""
    found = members(folder)
    for number in found:
        with suppress(ProcessLookupError):
            os.kill(number, signal.SIGKILL)
    return found
