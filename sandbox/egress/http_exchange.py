"""The exchange of one HTTP request and its answer with a server to which the proxy is connected.

Exactly the body of the request is sent to the server. An injected credential is masked in the answer.
"""

import asyncio
import time
from typing import TYPE_CHECKING

from sandbox.egress import http1
from sandbox.egress.ledger import Attempt, EgressRefused, Failed, Malformed
from sandbox.egress.relay import pour
from sandbox.egress.stream import Stream

if TYPE_CHECKING:
    from sandbox.egress.credential_injection import Broker, InjectedHeader

IDLE = 300.0  # seconds without data after which a connection is ended


class HttpExchange:
    """One request whose head was sent. `answered` is True once a part of the answer was passed on to the client."""

    def __init__(
        self,
        client: Stream,
        server: Stream,
        attempt: Attempt,
        request: http1.HttpRequest,
        added: "InjectedHeader | None",
        broker: "Broker | None",
    ) -> None:
        self.client, self.server, self.attempt, self.request = client, server, attempt, request
        self.added, self.broker = added, broker
        self.answered = False

    async def run(self, moved: tuple[str, str]) -> int:
        """Transfer in both directions until the answer is over, and return its status.

        A server may answer before it has received the whole body. `moved` is the argument of `http1.response`. Raises
        EgressRefused, Malformed for an invalid body, and Failed.
        """
        body = asyncio.create_task(self._body())
        answer = asyncio.create_task(self._answer(moved))
        waiting: set[asyncio.Task[None] | asyncio.Task[int]] = {body, answer}
        try:
            while answer in waiting:
                done, waiting = await asyncio.wait(waiting, timeout=IDLE / 4, return_when=asyncio.FIRST_COMPLETED)
                if body in done and isinstance(fault := body.exception(), EgressRefused):
                    raise fault
                if not done and time.monotonic() - self.attempt.moved > IDLE:
                    raise Failed(f"no data was transferred for {IDLE:.0f} seconds", host=self.attempt.host)
            return answer.result()
        finally:
            body.cancel()
            answer.cancel()
            await asyncio.gather(body, answer, return_exceptions=True)

    async def _body(self) -> None:
        """Pass on exactly the body of this request, and read no further, because following data was not judged."""
        if self.request.length >= 0:
            await self._exactly(self.request.length)
            return
        client, server = self.client, self.server
        while True:
            await asyncio.sleep(0)  # thousands of chunks may be available at once, and other tasks need their turn
            line = await client.until(b"\n", 4096)
            size = http1.chunk_size(line or b"")
            await server.send(b"%x\r\n" % size)
            if not size:
                break
            await self._exactly(size)
            if await client.until(b"\r\n", 2) is None:
                raise Malformed("a chunk is longer than its stated size")
            await server.send(b"\r\n")
        # Trailers are not passed on.
        for _ in range(http1.MOST_FIELDS):
            if (line := await client.until(b"\n", http1.LONGEST)) == b"\r\n":
                await server.send(b"\r\n")
                return
            if line is None:
                break
        raise Malformed("the end of a chunked request is invalid")

    async def _exactly(self, size: int) -> None:
        while size:
            data = await self.client.some(size)
            if not data:
                raise Malformed("the connection was closed before the request was complete")
            self.attempt.sends(len(data))
            await self.server.send(data)
            size -= len(data)

    async def _answer(self, moved: tuple[str, str]) -> int:
        """Pass on the answer, provisional heads first, until the server ends it, and return its status.

        Credentials that were added to the request are masked in the answer.
        """
        client, server, request, added = self.client, self.server, self.request, self.added
        while True:
            head = await server.until(http1.END, http1.LONGEST)
            if head is None:
                raise Failed(f"host {self.attempt.host} closed without a complete answer", host=self.attempt.host)
            head = http1.unfolded(head)
            if added is not None:
                head = added.hide(head)
            status, response_head = http1.response(head, moved if client.clear else ("", ""))
            if status == 101 and not request.websocket:
                raise Failed(f"host {self.attempt.host} switched to a protocol that was not requested")
            chunked = added is not None and status >= 200 and http1.in_chunks(response_head)
            self.attempt.receives(len(response_head))
            self.answered = True
            await client.send(response_head)
            if status == 101:
                return status
            if status == 401 and added is not None and self.broker is not None:
                self.broker.rejected(added.credential)
            if status >= 200:
                if server.clear and client.clear and added is None:
                    await server.flush_into(client, self.attempt.receives)
                    await pour(server.sock, client.sock, self.attempt.receives, IDLE)
                elif added is not None and chunked:
                    await self._chunks(added)
                else:  # the answer must be masked, or one side uses TLS
                    await server.pour_into(client, self.attempt.receives, added.mask() if added else None)
                    if server.cut and http1.ends_with_connection(request.method, status, response_head):
                        # THREAT T123: only the missing close_notify shows that data is missing (RFC 9112, 9.8).
                        raise Failed(
                            f"the answer of host {self.attempt.host} is incomplete: TLS ended without close_notify",
                            host=self.attempt.host,
                        )
                return status

    async def _chunks(self, added: "InjectedHeader") -> None:
        """Pass on the body of a chunked answer in chunks of different sizes, so that a mask also matches across the
        server's chunks. Drop trailers.
        """
        client, server, mask = self.client, self.server, added.mask()
        while (line := await server.until(b"\n", 4096)) is not None:
            await asyncio.sleep(0)  # as in `_body`
            try:
                size = left = http1.chunk_size(line)
            except Malformed:
                raise Failed(f"the answer of host {self.attempt.host} is not validly chunked") from None
            while left:
                if not (data := await server.some(left)):
                    return  # the answer is incomplete: the missing last chunk tells the client
                left -= len(data)
                self.attempt.receives(len(data))
                await _chunk(client, mask.feed(data))
            if not size:
                await _chunk(client, mask.end())
                await client.send(b"0\r\n\r\n")
                return
            if await server.until(b"\r\n", 2) is None:
                return


async def _chunk(client: Stream, data: bytes) -> None:
    if data:
        await client.send(b"%x\r\n%b\r\n" % (len(data), data))
