"""The process `agent serve web`, its tokens, and a browser without one: raw requests and WebSockets."""

import asyncio
import contextlib
import json
import os
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any

from websockets.asyncio.client import connect

from runner.frontends.remote.scope import TokenScope
from runner.frontends.remote.status import RemoteStatus
from runner.frontends.remote.tokens import RemoteTokens
from tests.support.cli_harness import AGENT, CliHarness
from tests.support.waiting import until as wait_until


class RemoteProcess:
    """One server on a free port of loopback."""

    def __init__(self, harness: CliHarness, *options: str) -> None:
        self.harness = harness
        self.folder = harness.base / "state" / "resident"
        self._alive, self.lifeline = os.pipe()
        self.process = subprocess.Popen(
            [AGENT, "serve", "web", "--listen", "127.0.0.1:0", *options, "--lifeline", str(self._alive)],
            env=harness.environ,
            cwd=harness.work,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            pass_fds=(self._alive,),
        )
        self.said: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self.status = wait_until(self._started, of=self.process, what=lambda: f"the start: {''.join(self.said)}")
        scheme, _, rest = self.status.url.partition("://")
        self.secure = scheme == "https"
        self.host = rest.rstrip("/")
        self.port = int(self.host.rpartition(":")[2])
        self.origin = f"{scheme}://{self.host}"
        self.store = RemoteTokens(self.folder)

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.said.append(line.decode())

    def _started(self) -> RemoteStatus | None:
        status = RemoteStatus.of(self.folder)
        return status if status is not None and status.pid == self.process.pid else None

    def token(self, name: str, scope: str = "view", *, until: float | None = None, folder: Path | None = None) -> str:
        where = os.path.realpath(folder) if folder is not None else None
        return self.store.add(name, TokenScope(scope), time.time(), until=until, folder=where).reveal()

    def tls(self) -> ssl.SSLContext | None:
        """A context that trusts the certificate of the server alone."""
        if not self.secure:
            return None
        return ssl.create_default_context(cafile=str(self.folder / "remote-certificate.pem"))

    def log(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.folder / "remote.log").read_text().splitlines()]

    def raw(self) -> socket.socket:
        plain = socket.create_connection(("127.0.0.1", self.port))
        context = self.tls()
        return plain if context is None else context.wrap_socket(plain, server_hostname="127.0.0.1")

    def get(self, path: str, headers: dict[str, str] | None = None, *, method: str = "GET") -> "Reply":
        lines = {"Host": self.host, **(headers or {})}
        head = f"{method} {path} HTTP/1.1\r\n" + "".join(f"{name}: {value}\r\n" for name, value in lines.items())
        with self.raw() as client:
            data = b""
            # A server may refuse the request before it has read all of it.
            with contextlib.suppress(ConnectionError, ssl.SSLError):
                client.sendall(f"{head}\r\n".encode())
                while more := client.recv(1 << 16):
                    data += more
        return Reply(data)

    def sign_in(self, secret: str) -> "Reply":
        return self.get("/sign-in", {"Authorization": f"Bearer {secret}", "X-Ringfence": "1"})

    def page(self, headers: dict[str, str], *, origin: str | None = "") -> "OpenSocket":
        """An open WebSocket. `origin` is that of the server by default, and absent for None."""
        address = f"ws{'s' if self.secure else ''}://{self.host}/socket"

        async def opening() -> Any:
            return await connect(
                address,
                ssl=self.tls(),
                origin=(self.origin if origin == "" else origin),  # type: ignore[arg-type]  # a text
                additional_headers=headers,
                compression=None,
                open_timeout=None,
                proxy=None,
                max_size=None,
            )

        return OpenSocket(opening())

    def opened(self, secret: str) -> "PageClient":
        return PageClient(self.page({"Authorization": f"Bearer {secret}"}, origin=None))

    def close(self) -> None:
        self.process.terminate()
        self.process.wait()
        self._reader.join()
        os.close(self.lifeline)
        os.close(self._alive)


class Reply:
    """The answer to a raw request; `status` is 0 if the server closed the connection without one."""

    def __init__(self, data: bytes) -> None:
        head, _, self.body = data.partition(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").split("\r\n")
        self.status = int(first.split(" ")[1]) if first else 0
        self.headers = [(name.lower(), value.strip()) for name, _, value in (line.partition(":") for line in lines)]

    def header(self, name: str) -> str:
        return next((value for key, value in self.headers if key == name.lower()), "")

    @property
    def cookie(self) -> str:
        """The name and the value of the cookie that the answer sets."""
        return self.header("set-cookie").partition(";")[0]


class OpenSocket:
    """A WebSocket for code without an event loop: a thread has the loop.

    The library's own client of this kind reads in one thread while it writes in another one. With TLS and Python 3.11,
    one in some hundred requests was lost that way.
    """

    _loop: asyncio.AbstractEventLoop | None = None

    def __init__(self, opening: Coroutine[Any, Any, Any]) -> None:
        if OpenSocket._loop is None:
            OpenSocket._loop = asyncio.new_event_loop()
            threading.Thread(target=OpenSocket._loop.run_forever, daemon=True).start()
        self._connection = self._run(opening)

    def _run(self, work: Coroutine[Any, Any, Any]) -> Any:
        assert OpenSocket._loop is not None
        return asyncio.run_coroutine_threadsafe(work, OpenSocket._loop).result()

    def recv(self, seconds: float) -> str | bytes:
        return self._run(asyncio.wait_for(self._connection.recv(), seconds))

    def send(self, message: str | bytes) -> None:
        self._run(self._connection.send(message))

    def close(self) -> None:
        self._run(self._connection.close())

    def __enter__(self) -> "OpenSocket":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class PageClient:
    """A page without a browser."""

    def __init__(self, connection: OpenSocket) -> None:
        self.connection = connection
        self.got: list[dict[str, Any]] = []

    def say(self, **message: object) -> None:
        self.connection.send(json.dumps(message))

    def until(self, type: str, **fields: object) -> dict[str, Any]:
        """The next message of that type with these fields."""
        while True:
            message = json.loads(self.connection.recv(60))
            self.got.append(message)
            if message["type"] == type and all(message.get(name) == value for name, value in fields.items()):
                return message

    def event(self, type: str) -> dict[str, Any]:
        """The next event of that type of the watched session."""
        while True:
            for event in self.until("events")["events"]:
                if event["type"] == type:
                    return dict(event)

    def close(self) -> None:
        self.connection.close()


@contextlib.contextmanager
def remote_process(base: Path, *options: str) -> Iterator[RemoteProcess]:
    """A server of a user with an own home, until the block ends."""
    harness = CliHarness(base)
    for name in ("home", "work", "state"):
        (base / name).mkdir(exist_ok=True)
    (base / "state").chmod(0o700)
    server = RemoteProcess(harness, *options)
    try:
        yield server
    finally:
        server.close()
        if server.process.returncode not in (0, 130, -15):
            sys.stderr.write("".join(server.said))
