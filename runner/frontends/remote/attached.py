"""The connection to one hosted session: its events, and the lines that are sent to it."""

import asyncio
import json
import os
from collections.abc import AsyncIterator
from pathlib import Path

from policy.model.deadline import deadline
from policy.model.verdict import Problem, ProblemError
from runner.frontends.remote.scope import TokenScope
from runner.resident import peer_of
from runner.state.socket_path import short_path
from runner.text.json_line import json_line
from runner.text.phrases import os_reason

_LONGEST = 32 << 20  # bytes of one event
_PATIENCE = deadline(10.0)  # seconds until a session must answer


class SessionGone(ProblemError):
    """The error for a session that cannot be attached, or that ended."""

    def __init__(self, why: str) -> None:
        super().__init__(Problem("the session cannot be watched", why, "choose another session of the list"))


class AttachedSession:
    """A client of one session."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, attached: dict[str, object]) -> None:
        self._reader, self._writer = reader, writer
        self.attached = attached  # the answer of the session to `attach`

    @classmethod
    async def open(cls, path: Path, who: str, scope: TokenScope) -> "AttachedSession":
        """Attach to the session with the socket `path`. Raise SessionGone.

        `who` is recorded with every answer that is sent.
        """
        try:
            async with asyncio.timeout(_PATIENCE):
                with short_path(path) as short:
                    reader, writer = await asyncio.open_unix_connection(short, limit=_LONGEST)
                try:
                    if peer_of(writer.get_extra_info("socket"))[1] != os.geteuid():
                        raise SessionGone("another user waits at its socket")
                    writer.write(f"{json_line({'type': 'attach', 'who': who, 'scope': scope.value})}\n".encode("ascii"))
                    await writer.drain()
                    answer = _event(await reader.readline())
                except BaseException:
                    writer.transport.abort()
                    raise
        except TimeoutError:
            raise SessionGone("it does not answer") from None
        except (OSError, ValueError) as error:
            raise SessionGone(os_reason(error) if isinstance(error, OSError) else "its answer is not valid") from None
        if answer is None or answer.get("type") != "attached":
            writer.transport.abort()
            raise SessionGone("it refused the connection")
        return cls(reader, writer, answer)

    async def events(self) -> AsyncIterator[dict[str, object]]:
        """Yield the earlier events of the conversation and then every new one, until the session ends."""
        while True:
            try:
                event = _event(await self._reader.readline())
            except (OSError, ValueError):  # ValueError: a line without an end, longer than every event
                return
            if event is None:
                return
            yield event

    async def send(self, line: dict[str, object]) -> None:
        """Send one line. Raise SessionGone if the session does not take it."""
        try:
            async with asyncio.timeout(_PATIENCE):
                self._writer.write(f"{json_line(line)}\n".encode("ascii"))
                await self._writer.drain()
        except (OSError, TimeoutError):
            raise SessionGone("it has ended or does not read") from None

    def close(self) -> None:
        """Leave the session, which continues."""
        self._writer.transport.abort()


def _event(line: bytes) -> dict[str, object] | None:
    """Return the event in a line, or None at the end. Raise ValueError."""
    if not line.endswith(b"\n"):
        return None
    found = json.loads(line)
    if not isinstance(found, dict):
        raise ValueError("an event is an object")
    return found
