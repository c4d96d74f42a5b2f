"""A scripted HTTP server on loopback, for tests of clients of remote servers."""

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field


@dataclass
class Asked:
    """One request as it arrived."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes
    writer: asyncio.StreamWriter

    def json(self) -> dict:
        return json.loads(self.body or b"{}")


Script = Callable[[Asked], Awaitable[bytes | None]]


@dataclass
class ScriptedServer:
    """The server of one test. `seen` has the requests in their order."""

    port: int
    scheme: str
    seen: list[Asked] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"{self.scheme}://127.0.0.1:{self.port}"


def answer(status: int, body: bytes | str | dict | list = b"", kind: str = "application/json", **headers: str) -> bytes:
    """Return a complete HTTP answer."""
    data = body if isinstance(body, bytes) else (body if isinstance(body, str) else json.dumps(body)).encode()
    lines = [f"HTTP/1.1 {status} X", f"Content-Length: {len(data)}", f"Content-Type: {kind}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return ("\r\n".join(lines) + "\r\n\r\n").encode() + data


@asynccontextmanager
async def scripted_server(script: Script, context: ssl.SSLContext | None = None) -> AsyncIterator[ScriptedServer]:
    """Serve `script`, which returns the answer to each request, or writes it itself and returns None."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tasks.add(asyncio.current_task())
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
                method, path, _ = head[0].split(" ")
                headers = {k.lower(): v.strip() for k, _, v in (line.partition(":") for line in head[1:] if line)}
                body = await reader.readexactly(int(headers.get("content-length", "0")))
                made.seen.append(Asked(method, path, headers, body, writer))
                said = await script(made.seen[-1])
                if said is None:
                    break
                writer.write(said)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError, ssl.SSLError):
            pass  # the client is gone
        finally:
            writer.close()

    tasks: set = set()
    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
    made = ScriptedServer(server.sockets[0].getsockname()[1], "https" if context else "http")
    try:
        yield made
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
