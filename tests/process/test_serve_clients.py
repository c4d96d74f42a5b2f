"""Tests of `agent mcp serve` with the client of the protocol library, over both transports and in both generations."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.cli_harness import AGENT, CliHarness
from tests.support.marked_processes import new_nap, processes
from tests.support.tool_client import workspace
from tests.support.waiting import until_async

mcp = pytest.importorskip("mcp")  # an extra


@contextlib.asynccontextmanager
async def over_pipes(place: CliHarness, mode: str, **callbacks: Any) -> AsyncIterator[Any]:
    started = mcp.StdioServerParameters(command=AGENT, args=["mcp", "serve"], env=place.environ, cwd=place.work)
    async with mcp.Client(started, mode=mode, **callbacks) as client:
        yield client


@contextlib.asynccontextmanager
async def over_http(place: CliHarness, mode: str, **callbacks: Any) -> AsyncIterator[Any]:
    import httpx2
    from mcp.client.streamable_http import streamable_http_client

    process = await asyncio.create_subprocess_exec(
        AGENT, "mcp", "serve", "--http", "--token-file", str(place.base / "token"),
        cwd=place.work, env=place.environ, stdin=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    try:
        assert process.stderr is not None
        url = (await process.stderr.readline()).decode().split()[-1]
        await process.stderr.readline()
        headers = {"Authorization": f"Bearer {(place.base / 'token').read_text().strip()}"}
        async with (
            httpx2.AsyncClient(headers=headers, timeout=None) as http,
            mcp.Client(streamable_http_client(url, http_client=http), mode=mode, **callbacks) as client,
        ):
            yield client
    finally:
        process.terminate()
        assert await process.wait() == 130
    assert (place.base / "token").exists()  # a file that the user named stays


ROWS = [(way, mode) for way in (over_pipes, over_http) for mode in ("legacy", "auto")]


@pytest.mark.parametrize(("way", "mode"), ROWS, ids=[f"{way.__name__}-{mode}" for way, mode in ROWS])
def test_the_client_of_the_library_gets_on_with_the_server(tmp_path: Path, way: Any, mode: str) -> None:
    place = workspace(tmp_path)
    said: list[str] = []
    lines: list[str] = []

    async def answer(context: Any, params: Any) -> Any:
        from mcp_types import ElicitResult

        said.append(params.message)
        return ElicitResult(action="accept", content={"answer": "yes"})

    async def progress(count: float, total: float | None, message: str | None) -> None:
        lines.append(message or "")

    async def work() -> None:
        async with way(place, mode, elicitation_callback=answer) as client:
            assert client.protocol_version == ("2025-11-25" if mode == "legacy" else "2026-07-28")
            assert {"bash", "why"} <= {tool.name for tool in (await client.list_tools()).tools}
            found = await client.call_tool("read", {"path": "a.txt"})
            assert (found.is_error, "one" in found.content[0].text) == (False, True)
            why = await client.call_tool("why", {"command": "rm -rf /"})
            assert why.structured_content["verdict"] in ("ask", "deny")
            written = await client.call_tool("write", {"path": "b.txt", "content": "two\n"})
            assert (written.is_error, len(said)) == (False, 1)
            assert "Creates b.txt" in said[0]
            mark = new_nap()
            # The last lines of a report can be held back, because they could be the beginning of a secret.
            script = {"command": f"echo begun; seq 40; sleep {mark}"}
            running = asyncio.create_task(client.call_tool("bash", script, progress_callback=progress))
            await until_async(lambda: "begun" in "".join(lines) and processes(mark))
            running.cancel()
            await until_async(lambda: not processes(mark))
            assert (await client.call_tool("read", {"path": "b.txt"})).is_error is False

    asyncio.run(work())
    assert (place.work / "b.txt").read_text() == "two\n"
