"""A real PostgreSQL for tests: a cluster of its own in a short folder, listening on a socket there and on loopback."""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.sandbox_bench import NOBODY

PASSWORD = "the-password-of-the-log"


def _binary(name: str) -> str:
    found = shutil.which(name) or next(map(str, sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"))), None)
    if found is None:
        pytest.skip(f"PostgreSQL's `{name}` is not installed")
    return found


@dataclass(frozen=True)
class Server:
    """`folder` holds the socket (no password asked); on loopback at `port` the user `ringfence` needs PASSWORD."""

    folder: Path
    port: int

    @property
    def url(self) -> str:
        return f"postgresql://ringfence@/audit?host={self.folder}&port={self.port}"

    @property
    def by_network(self) -> str:
        return f"postgresql://ringfence@127.0.0.1:{self.port}/audit"

    def sql(self, text: str) -> str:
        command = ["psql", "-XAtq", "-h", str(self.folder), "-p", str(self.port), "-U", "postgres", "audit", "-c", text]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


@contextlib.contextmanager
def postgres() -> Iterator[Server]:
    """Started as another user where we are root, which PostgreSQL refuses to run as; ended at once on leaving."""
    initdb, server = _binary("initdb"), _binary("postgres")
    folder = Path(tempfile.mkdtemp(prefix="pg"))
    who = {"user": NOBODY, "group": NOBODY, "extra_groups": []} if os.geteuid() == 0 else {}
    if os.geteuid() == 0:
        os.chown(folder, NOBODY, NOBODY)
    folder.chmod(0o755)  # the socket is for every user of the tests
    data, port = folder / "data", _free_port()
    environ = {"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8", "HOME": str(folder)}
    try:
        made = [initdb, "-D", str(data), "-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-sync"]
        subprocess.run(made, check=True, capture_output=True, env=environ, cwd=folder, **who)
        (data / "pg_hba.conf").write_text("local all all trust\nhost all all 127.0.0.1/32 scram-sha-256\n")
        settings = {"unix_socket_directories": str(folder), "listen_addresses": "127.0.0.1", "port": str(port)}
        options = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
        with (folder / "log").open("wb") as log:
            running = subprocess.Popen(
                [server, "-D", str(data), *options], stdout=log, stderr=log, env=environ, cwd=folder, **who
            )
        try:
            _wait(folder, port, running)
            made_here = Server(folder, port)
            subprocess.run(
                ["psql", "-Xq", "-h", str(folder), "-p", str(port), "-U", "postgres", "postgres"],
                input=f"CREATE ROLE ringfence LOGIN PASSWORD '{PASSWORD}'; CREATE DATABASE audit OWNER ringfence;",
                check=True,
                capture_output=True,
                text=True,
            )
            yield made_here
        finally:
            running.send_signal(signal.SIGINT)  # SOURCE: postgres(1): fast shutdown
            running.wait(120)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _free_port() -> int:
    """Return a free port below those that the kernel gives to connections, so that no connection takes the port.

    Each process begins at a port of its own, because two test workers may ask at the same time.
    """
    lowest = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    first = lowest - 1 - os.getpid() * 7 % (lowest // 2)
    for port in (*range(first, 1023, -1), *range(lowest - 1, first, -1)):
        with socket.socket() as found, contextlib.suppress(OSError):
            found.bind(("127.0.0.1", port))
            return port
    raise AssertionError("no port is free")


def _wait(folder: Path, port: int, running: "subprocess.Popen[bytes]") -> None:
    until = time.monotonic() + 60
    while running.poll() is None and time.monotonic() < until:
        with socket.socket(socket.AF_UNIX) as door:
            try:
                door.connect(str(folder / f".s.PGSQL.{port}"))
            except OSError:
                time.sleep(0.02)
                continue
            if subprocess.run(["pg_isready", "-q", "-h", str(folder), "-p", str(port)], check=False).returncode == 0:
                return
            time.sleep(0.02)
    raise AssertionError(f"PostgreSQL did not start:\n{(folder / 'log').read_text()}")
