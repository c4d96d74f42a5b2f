"""One page of remote access against sessions that flood, end or speak nonsense, and pages that do not read."""

import asyncio
import base64
import contextlib
import json
import os
import socket
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from runner.frontends.hosted.address import HostedSession
from runner.frontends.remote import access_log
from runner.frontends.remote.access_log import AccessLog
from runner.frontends.remote.door import Door
from runner.frontends.remote.scope import TokenScope
from runner.frontends.remote.server import RemoteServer
from runner.frontends.remote.tokens import RemoteTokens
from runner.frontends.remote.viewer import ViewerPlaces
from runner.state.socket_path import short_path
from tests.support.waiting import until_async

ID = "0123456789abcdef"
Session = Callable[[asyncio.StreamReader, asyncio.StreamWriter], object]


class Stage:
    """A server without TLS in this process, and a session whose behaviour is a function."""

    def __init__(self, folder: Path, port: int) -> None:
        self.folder, self.port = folder, port
        self.store = RemoteTokens(folder)
        self.door = Door(self.store, {"localhost"}, secure=False)
        self.left = asyncio.Event()
        self.heard: list[dict[str, object]] = []

    def token(self, scope: str, until: float | None = None) -> str:
        name = f"t{len(self.store.tokens())}"
        return self.store.add(name, TokenScope(scope), time.time(), until=until, folder=None).reveal()

    @contextlib.asynccontextmanager
    async def page(self, secret: str) -> AsyncIterator[ClientConnection]:
        headers = {"Authorization": f"Bearer {secret}"}
        async with connect(
            f"ws://127.0.0.1:{self.port}/socket",
            additional_headers=headers,
            compression=None,
            max_size=None,
            proxy=None,
        ) as page:
            yield page

    def log(self) -> str:
        return (self.folder / "remote.log").read_text()


@contextlib.asynccontextmanager
async def staged(folder: Path, session: Session, patience: float = 600.0) -> AsyncIterator[Stage]:
    sessions = folder / ("sessions-with-a-path-that-is-too-long-for-the-address-of-a-socket" * 2)
    sessions.mkdir(mode=0o700)
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(8)
        listener.setblocking(False)
        stage = Stage(folder, listener.getsockname()[1])

        async def host(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            stage.heard.append(json.loads(await reader.readline()))
            try:
                await session(reader, writer)  # type: ignore[misc]  # a coroutine
            except ConnectionError:
                pass
            finally:
                writer.transport.abort()
                stage.left.set()

        facts = HostedSession(ID, os.getpid(), "/w", "/w", "a title", "default", "x:y", "idle", 1.0, 1.0).as_json()
        (sessions / f"{ID}.json").write_text(json.dumps(facts))
        with short_path(sessions / ID) as short:
            unix = await asyncio.start_unix_server(host, short, limit=1 << 20)
        places = ViewerPlaces(sessions, folder / "audit.db", AccessLog(folder), patience)
        server = RemoteServer(stage.door, places, None)
        serving = asyncio.create_task(server.run(listener))
        try:
            yield stage
        finally:
            serving.cancel()
            unix.close()
            await asyncio.gather(serving, return_exceptions=True)


def line(**event: object) -> bytes:
    return json.dumps(event).encode() + b"\n"


async def until(page: ClientConnection, type: str) -> dict[str, object]:
    while True:
        message = json.loads(await page.recv())
        if message["type"] == type:
            return dict(message)


WATCH = json.dumps({"type": "watch", "session": ID})


@pytest.mark.threat("T286")
def test_a_page_that_does_not_read_is_dropped(tmp_path: Path) -> None:
    async def flood(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(line(type="attached"))
        while True:
            writer.write(line(type="output", call="c", stream=1, text="x" * 20_000))
            await writer.drain()

    async def scene() -> None:
        async with staged(tmp_path, flood, patience=0.5) as stage:
            reader, writer = await asyncio.open_connection("127.0.0.1", stage.port, limit=1 << 12)
            key = base64.b64encode(os.urandom(16)).decode()
            writer.write(
                f"GET /socket HTTP/1.1\r\nHost: 127.0.0.1:{stage.port}\r\nAuthorization: Bearer {stage.token('view')}\r\n"
                "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
                f"Sec-WebSocket-Key: {key}\r\n\r\n".encode()
            )
            assert b"101" in await reader.readline()
            data, mask = WATCH.encode(), os.urandom(4)
            masked = bytes(each ^ mask[place % 4] for place, each in enumerate(data))
            writer.write(bytes([0x81, 0x80 | len(data)]) + mask + masked)
            await stage.left.wait()  # the session has no client any more
            await until_async(lambda: "it does not read" in stage.log())
            async with stage.page(stage.token("view")) as other:
                await until(other, "sessions")
            writer.transport.abort()

    asyncio.run(scene())


@pytest.mark.threat("T286")
@pytest.mark.parametrize(
    "said",
    [b"", b"nonsense\n", b"[]\n", b'{"type": "error"}\n', b"{" * 100_000 + b"\n", b'{"type": "attached"}'],
    ids=["nothing", "nonsense", "list", "refusal", "nested", "no end"],
)
def test_a_session_that_speaks_nonsense_is_refused(tmp_path: Path, said: bytes) -> None:
    async def odd(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(said)
        await writer.drain()
        writer.write_eof()

    async def scene() -> None:
        async with staged(tmp_path, odd) as stage, stage.page(stage.token("prompt")) as page:
            await page.send(WATCH)
            assert (await until(page, "refused"))["about"] == "watch"
            await page.send(json.dumps({"type": "line", "session": ID, "line": {"type": "interrupt"}}))
            assert (await until(page, "refused"))["about"] == "line"

    asyncio.run(scene())


@pytest.mark.threat("T286")
def test_a_session_that_ends_or_breaks_ends_for_the_page_alone(tmp_path: Path) -> None:
    async def broken(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(line(type="attached") + line(type="notice", text="one") + b"{nonsense\n")
        await writer.drain()
        await reader.readline()

    async def scene() -> None:
        async with staged(tmp_path, broken) as stage, stage.page(stage.token("view")) as page:
            for _ in range(3):
                await page.send(WATCH)
                await until(page, "events")
                await until(page, "ended")

    asyncio.run(scene())


@pytest.mark.threat("T283")
def test_the_session_learns_who_and_with_which_scope(tmp_path: Path) -> None:
    heard: list[bytes] = []

    async def attentive(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(line(type="attached"))
        while data := await reader.readline():
            heard.append(data)
            writer.write(line(type="notice", text="heard"))

    async def scene() -> None:
        async with staged(tmp_path, attentive) as stage, stage.page(stage.token("answer")) as page:
            await page.send(WATCH)
            await until(page, "attached")
            assert stage.heard == [{"type": "attach", "who": "web: token t0 from 127.0.0.1", "scope": "answer"}]
            for said in ({"type": "prompt", "text": "x"}, {"type": "answer", "id": "q1", "answer": "yes"}):
                await page.send(json.dumps({"type": "line", "session": ID, "line": said}))
            await until(page, "events")
            assert [json.loads(each) for each in heard] == [{"type": "answer", "id": "q1", "answer": "yes"}]
            assert '"event":"sent answer"' in stage.log()
            # INVARIANT: what cannot be logged has no effect
            (tmp_path / "remote.log").unlink()
            (tmp_path / "remote.log").mkdir()
            await page.send(
                json.dumps({"type": "line", "session": ID, "line": {"type": "answer", "id": "q2", "answer": "yes"}})
            )
            assert (await until(page, "refused"))["about"] == "line"
            assert len(heard) == 1

    asyncio.run(scene())


@pytest.mark.threat("T283")
def test_after_the_removal_nothing_has_an_effect(tmp_path: Path) -> None:
    heard: list[bytes] = []

    async def attentive(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(line(type="attached"))
        while data := await reader.readline():
            heard.append(data)

    async def scene() -> None:
        async with staged(tmp_path, attentive) as stage, stage.page(stage.token("answer")) as page:
            await page.send(WATCH)
            await until(page, "attached")
            stage.store.remove("t0")
            await page.send(
                json.dumps({"type": "line", "session": ID, "line": {"type": "answer", "id": "q1", "answer": "yes"}})
            )
            with pytest.raises(ConnectionClosed):
                await until(page, "never")
            await stage.left.wait()
            assert heard == []

    asyncio.run(scene())


@pytest.mark.threat("T283")
def test_an_open_page_is_closed_when_its_token_expires(tmp_path: Path) -> None:
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    async def scene() -> None:
        async with staged(tmp_path, silent) as stage:
            end = time.time() + 86_400
            secret = stage.token("view", until=end)
            async with stage.page(secret) as page:
                await until(page, "hello")
                stage.door.clock = lambda: end
                with pytest.raises(ConnectionClosed) as closed:
                    await until(page, "never")
            assert closed.value.rcvd is not None
            assert closed.value.rcvd.code == 4401
            with pytest.raises(InvalidStatus) as refused:
                async with stage.page(secret):
                    pass
            assert refused.value.response.status_code == 401

    asyncio.run(scene())


@pytest.mark.threat("T286")
def test_the_log_of_refusals_is_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(access_log, "_MINUTE", 1e9)  # seconds, so that all requests come in time

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    async def status(stage: Stage, path: str, **headers: str) -> int:
        reader, writer = await asyncio.open_connection("127.0.0.1", stage.port)
        lines = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
        writer.write(f"GET {path} HTTP/1.1\r\n{lines}\r\n".encode())
        first = await reader.readline()
        writer.close()
        return int(first.split()[1])

    async def scene() -> None:
        async with staged(tmp_path, silent) as stage:
            for _ in range(60):
                assert await status(stage, "/", Host="evil.example") == 421
            assert stage.log().count('"event":"refused"') == 30
            host, secret = f"127.0.0.1:{stage.port}", f"Bearer {stage.token('view')}"
            assert await status(stage, "/sign-in", Host=host, Authorization=secret, X_Ringfence="1") == 204
            assert json.loads(stage.log().splitlines()[-1])["refusals_left_out"] == 30

    asyncio.run(scene())
