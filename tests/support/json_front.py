"""A front end that speaks the JSON protocol with `agent`."""

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import pytest

from runner.events import Event


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "home" / "w").mkdir(parents=True)
    for name in [name for name in os.environ if name.startswith("RINGFENCE_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("RINGFENCE_STATE_DIR", str(tmp_path / "state"))
    return tmp_path / "home" / "w"


class Front:
    """A program at the other end: writes lines, and waits for events."""

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []
        self._lines: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._more = asyncio.Event()
        self._unread = asyncio.Event()

    def emit(self, event: Event) -> None:
        self.events.append(json.loads(event.line()))
        self._more.set()

    def say(self, type: str, **fields: object) -> None:
        self._lines.put_nowait(json.dumps({"type": type, **fields}).encode())

    def say_raw(self, line: bytes) -> None:
        self._lines.put_nowait(line)

    def end(self) -> None:
        self._lines.put_nowait(None)

    async def until(self, type: str, count: int = 1) -> dict[str, Any]:
        """The `count`th event of that type."""
        while len(found := self.of(type)) < count:
            self._more.clear()
            await self._more.wait()
        return found[count - 1]

    async def closed(self) -> None:
        """Wait until the session stops to read lines while it waits for one."""
        await self._unread.wait()

    def of(self, type: str) -> list[dict[str, Any]]:
        return [event for event in self.events if event["type"] == type]

    def __aiter__(self) -> "Front":
        return self

    async def __anext__(self) -> bytes:
        try:
            line = await self._lines.get()
        except asyncio.CancelledError:
            self._unread.set()
            raise
        if line is None:
            raise StopAsyncIteration
        return line
