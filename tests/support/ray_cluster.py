"""A real Ray of one machine for tests: on loopback, in a folder of its own, stopped by the numbers of its processes."""

import os
import random
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path


class Cluster:
    """A head node that is there. `environ`: what a client needs to be let in."""

    def __init__(self, folder: Path, port: int, environ: dict[str, str]) -> None:
        self.folder = folder
        self.address = f"ray://127.0.0.1:{port}"
        self.environ = environ


def _free(ports: range) -> int:
    """Return one of `ports` at which no process listens.

    The ports lie below the range from which the kernel assigns free ports, because other parts of Ray could get a port
    of that range between this check and its use.
    """
    for port in ports:
        with socket.socket() as taken, suppress(OSError):
            taken.bind(("0.0.0.0", port))  # nothing is said there, and nobody listens
            return port
    raise AssertionError("no port is free")


def members(folder: Path) -> list[int]:
    """Every process of the cluster: its words or its environment name the folder."""
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
    begin = random.randrange(21000, 31000, 100)
    port, door = _free(range(begin, begin + 50)), _free(range(begin + 50, begin + 100))
    words = [
        str(Path(sys.executable).with_name("ray")),
        *("start", "--head", f"--port={port}", f"--ray-client-server-port={door}", "--num-cpus=2"),
        *(f"--temp-dir={folder}/r", "--include-dashboard=false", "--node-ip-address=127.0.0.1"),
        *("--object-store-memory=80000000", "--disable-usage-stats"),
    ]
    try:
        # A fork of the head's client server, while another of its threads is in gRPC, dies now and then (ray 2.60).
        steady = {"GRPC_ENABLE_FORK_SUPPORT": "0"}
        subprocess.run(
            words, env={**environ, **client, **steady}, check=True, capture_output=True, text=True, timeout=300
        )
        yield Cluster(folder, door, client)
    finally:
        until = time.monotonic() + 30
        how = signal.SIGTERM
        while (left := members(folder)) and time.monotonic() < until:
            for number in left:
                with suppress(ProcessLookupError):
                    os.kill(number, how)
            time.sleep(0.5)
            how = signal.SIGKILL
        assert members(folder) == []
