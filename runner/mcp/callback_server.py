"""The server on 127.0.0.1 to which a browser returns from a sign-in (RFC 8252, 7.3).

It answers one address, which nobody can guess: a random port, and a random path unless the path is registered. It
ignores every request without the `state` of the sign-in, so no other page can end or replace the sign-in.
"""

import asyncio
import hmac
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import parse_qs, urlsplit

from policy.model.deadline import deadline
from policy.model.frozen import dataclass
from policy.model.verdict import Problem, ProblemError

_LONGEST = 16384  # bytes of a request head
_PATIENCE = deadline(10.0)  # seconds for one request
_PAGE = "The sign-in is complete. You can close this window and return to the terminal."
_ERROR = "The sign-in was not completed. Return to the terminal."
_UNKNOWN = "This address is not known."


@dataclass(frozen=True, slots=True)
class SignInAnswer:
    """The answer of a sign-in server. `issuer` is None if it does not name itself (RFC 9207)."""

    code: str
    state: str
    issuer: str | None


class CallbackServer:
    """The server of one sign-in. `address` is the redirect URI."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._state = ""
        self._answer: asyncio.Future[SignInAnswer] = asyncio.get_running_loop().create_future()
        self.address = ""

    @property
    def expecting(self) -> bool:
        """Return True after the browser was sent to the sign-in."""
        return bool(self._state)

    def expect(self, state: str) -> None:
        """Accept an answer with this `state` from now on."""
        self._state = state

    async def answer(self, seconds: float) -> SignInAnswer:
        """Return the answer. Raises ProblemError if the user refuses, or after `seconds`."""
        try:
            async with asyncio.timeout(seconds):
                return await asyncio.shield(self._answer)
        except TimeoutError:
            why = f"the browser did not return within {seconds:.0f} seconds"
            raise ProblemError(Problem("the sign-in was not completed", why, "run the command again")) from None

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(_PATIENCE):
                head = await reader.readuntil(b"\r\n\r\n")
                status, text = self._page(head)
                body = f"<!doctype html><meta charset=utf-8><title>Sign-in</title><p>{text}</p>".encode()
                lines = (
                    f"HTTP/1.1 {status}",
                    "Content-Type: text/html; charset=utf-8",
                    f"Content-Length: {len(body)}",
                    "Content-Security-Policy: default-src 'none'",
                    "Referrer-Policy: no-referrer",
                    "Cache-Control: no-store",
                    "Connection: close",
                )
                writer.write("\r\n".join(lines).encode() + b"\r\n\r\n" + body)
                await writer.drain()
        except (TimeoutError, OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            return  # the sign-in waits for a complete request
        finally:
            writer.close()

    def _page(self, head: bytes) -> tuple[str, str]:
        """Return the status and the text for a request, and keep the answer if it belongs to this sign-in."""
        words = head.split(b"\r\n", 1)[0].decode("latin-1").split(" ")
        if len(words) != 3 or words[0] != "GET":
            return "405 Method Not Allowed", _UNKNOWN
        target = urlsplit(words[1])
        fields = parse_qs(target.query, keep_blank_values=True)
        single = {name: values[0] for name, values in fields.items() if len(values) == 1}
        expected = self._state and hmac.compare_digest(single.get("state", "").encode(), self._state.encode())
        if target.path != self._path or not expected or len(single) != len(fields):
            return "404 Not Found", _UNKNOWN
        if self._answer.done():
            return "410 Gone", _UNKNOWN
        if "error" in single or not single.get("code"):
            said = ": ".join(single[name] for name in ("error", "error_description") if single.get(name))
            problem = Problem("the sign-in was refused", said[:300] or "the answer has no code", "sign in again")
            self._answer.set_exception(ProblemError(problem))
            return "200 OK", _ERROR
        self._answer.set_result(SignInAnswer(single["code"], single["state"], single.get("iss")))
        return "200 OK", _PAGE


@asynccontextmanager
async def callback_server(*, fixed_path: bool, port: int = 0) -> AsyncIterator[CallbackServer]:
    """Serve on `port` of 127.0.0.1, or on a free one. `fixed_path` is for a client whose redirect URI is registered.
    Raise ProblemError if the port cannot be used.
    """
    made = CallbackServer("/callback" if fixed_path else f"/callback/{secrets.token_urlsafe(16)}")
    try:
        server = await asyncio.start_server(made.serve, "127.0.0.1", port, limit=_LONGEST)
    except OSError as error:
        what, fix = (
            f"the port {port} of `callback_port` cannot be used",
            "end the program that uses it, or change the key",
        )
        raise ProblemError(Problem(what, error.strerror or "it is in use", fix)) from None
    made.address = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}{made._path}"
    try:
        yield made
    finally:
        server.close()
        if made._answer.done() and not made._answer.cancelled():
            made._answer.exception()  # an answer that nobody waits for any more is no error
        await asyncio.sleep(0)
