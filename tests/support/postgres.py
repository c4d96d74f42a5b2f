"""A real PostgreSQL for tests: a cluster of its own in a short folder, listening on a socket there and on loopback.

On loopback the server has an address of its own, so that no server of another test worker or of another checkout has the
same address and port.
"""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.own_network import own_address
from tests.support.sandbox_bench import NOBODY
from tests.support.waiting import until

PASSWORD = "the-password-of-the-log"
# Below the ports that the kernel gives to connections and to servers that ask for any port, and not PostgreSQL's own.
PORT = 15432


def _binary(name: str) -> str:
    found = shutil.which(name) or next(map(str, sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"))), None)
    if found is None:
        pytest.skip(f"PostgreSQL's `{name}` is not installed")
    return found


@dataclass(frozen=True)
class Server:
    """A running server.

    Attributes:
        folder: holds the socket, through which no password is asked for.
        address: an address of loopback, where the user `ringfence` needs PASSWORD.
        port: the port at that address, which is also in the name of the socket.
        database: the database of the log, which the role `ringfence` owns.
    """

    folder: Path
    address: str
    port: int = PORT
    database: str = "audit"

    @property
    def url(self) -> str:
        return f"postgresql://ringfence@/{self.database}?host={self.folder}&port={self.port}"

    @property
    def by_network(self) -> str:
        return f"postgresql://ringfence@{self.address}:{self.port}/{self.database}"

    def sql(self, *texts: str) -> str:
        """Run statements as the administrator of the server, each text by itself. Return what they print."""
        words = [
            "psql",
            "-XAtq",
            "-v",
            "ON_ERROR_STOP=1",
            "-h",
            str(self.folder),
            "-p",
            str(self.port),
            "-U",
            "postgres",
        ]
        commands = [word for text in texts for word in ("-c", text)]
        done = subprocess.run([*words, self.database, *commands], check=True, capture_output=True, text=True)
        return done.stdout.strip()


@contextlib.contextmanager
def postgres() -> Iterator[Server]:
    """Started as another user where we are root, which PostgreSQL refuses to run as; ended at once on leaving."""
    initdb, server = _binary("initdb"), _binary("postgres")
    folder = Path(tempfile.mkdtemp(prefix="pg"))
    who = {"user": NOBODY, "group": NOBODY, "extra_groups": []} if os.geteuid() == 0 else {}
    if os.geteuid() == 0:
        os.chown(folder, NOBODY, NOBODY)
    folder.chmod(0o755)  # the socket is for every user of the tests
    data, address = folder / "data", own_address()
    environ = {"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8", "HOME": str(folder)}
    try:
        made = [initdb, "-D", str(data), "-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-sync"]
        subprocess.run(made, check=True, capture_output=True, env=environ, cwd=folder, **who)
        (data / "pg_hba.conf").write_text("local all all trust\nhost all all 127.0.0.0/8 scram-sha-256\n")
        settings = {"unix_socket_directories": str(folder), "listen_addresses": address, "port": str(PORT)}
        options = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
        with (folder / "log").open("wb") as log:
            running = subprocess.Popen(
                [server, "-D", str(data), *options], stdout=log, stderr=log, env=environ, cwd=folder, **who
            )
        try:
            until(lambda: _answers(folder), of=running, what=(folder / "log").read_text)
            made_here = Server(folder, address)
            subprocess.run(
                ["psql", "-Xq", "-h", str(folder), "-p", str(PORT), "-U", "postgres", "postgres"],
                input=f"CREATE ROLE ringfence LOGIN PASSWORD '{PASSWORD}'; CREATE DATABASE audit OWNER ringfence;",
                check=True,
                capture_output=True,
                text=True,
            )
            yield made_here
        finally:
            running.send_signal(signal.SIGINT)  # SOURCE: postgres(1): fast shutdown
            running.wait()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _answers(folder: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as door:
        try:
            door.connect(str(folder / f".s.PGSQL.{PORT}"))
        except OSError:
            return False
    asked = ["pg_isready", "-q", "-h", str(folder), "-p", str(PORT)]
    return subprocess.run(asked, check=False).returncode == 0
