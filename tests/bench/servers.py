"""`make bench`: what the confinement of tool servers costs, each beside the same server without a sandbox in one run."""

import asyncio
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

from mcp import Client, StdioServerParameters

from policy.model.action import CallServerTool
from policy.model.profile import Layer
from policy.model.tier import Mode
from policy.model.tool_arguments import canonical
from policy.model.verdict import Allow
from runner.engine.judge import evaluate_action
from runner.mcp.package_digest import PackageDigest, PackageState
from runner.mcp.pins import checked, pin_of
from runner.mcp.server_config import ServerConfig
from runner.mcp.servers import SessionServers
from runner.mcp.tool_search import ServerTools
from tests.support.server_session import HOSTILE, all_approved, environ, hostile, server_session
from tools.registry import ToolRegistry
from tools.server_offer import OfferedTool, ServerOffer

STARTS, CALLS = 9, 300


def row(what: str, value: str, goal: str) -> None:
    print(f"  {what:<58} {value:>18}   goal {goal}")


async def plain() -> tuple[float, list[float]]:
    """Return the seconds until a server without a sandbox has listed its tools, and those of calls."""
    began = time.perf_counter()
    parameters = StdioServerParameters(command=sys.executable, args=["-u", str(HOSTILE), "plain"])
    async with Client(parameters) as client:
        await client.list_tools()
        await client.list_resources()
        await client.list_resource_templates()
        await client.list_prompts()
        start = time.perf_counter() - began
        spent = []
        for number in range(CALLS):
            began = time.perf_counter()
            await client.call_tool("echo", {"text": str(number)})
            spent.append(time.perf_counter() - began)
    return start, spent


async def confined(place: Path) -> tuple[float, list[float], list[float]]:
    """Return the seconds of the same in a session, those of calls, and those of calls with their verdict."""
    async with server_session(
        place / "home/work", environ(place), mode=Mode.DANGEROUSLY, check=all_approved, wait=False
    ) as session:
        own = SessionServers((hostile("one", "plain"),), environ(place), all_approved, session.shelf)
        began = time.perf_counter()
        own.begin(session.ctx)
        await own.ready()
        start = time.perf_counter() - began
        spent, judged = [], []
        action = CallServerTool("one", "echo", canonical({"text": "1"}))
        verdict = evaluate_action(action, session.ctx).verdict
        assert isinstance(verdict, Allow)
        for times in (spent, judged):
            for _ in range(CALLS):
                began = time.perf_counter()
                if times is judged:
                    evaluate_action(action, session.ctx)
                outcome = await own.perform(verdict.permit, lambda stream, chunk: None)
                assert outcome.problem is None
                times.append(time.perf_counter() - began)
        await own.close()
        return start, spent, judged


def many_tools() -> float:
    """Return the seconds to pin, compare, offer and search 1,000 tools."""
    words = [
        "create",
        "read",
        "update",
        "delete",
        "list",
        "search",
        "merge",
        "close",
        "open",
        "assign",
        "label",
        "issue",
        "page",
        "user",
        "team",
        "file",
    ]
    tools = tuple(
        OfferedTool(
            f"{words[number % 16]}_{words[number // 16 % 16]}_{number}",
            description=f"{words[number % 16]} a {words[number // 7 % 16]} of the project, number {number}. " * 4,
            input_schema={"type": "object", "properties": {word: {"type": "string"} for word in words[:6]}},
        )
        for number in range(1000)
    )
    offer = ServerOffer("2025-11-25", "many", "", tools)
    config = ServerConfig("many", Layer.USER, command="/bin/true")
    package = PackageDigest(PackageState.CONTENT, "many", "0" * 64)
    began = time.perf_counter()
    approved = checked(config, offer, package, pin_of(config, offer, package)).approved
    shelf = ServerTools(ToolRegistry())
    shelf.put(config, offer, approved)
    for query in ("merge an issue", "assign a user to a page", "delete_team_7"):
        assert shelf.find(query, 5)
    return time.perf_counter() - began


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="bench-servers-", dir="/var/tmp") as folder:
        place = Path(os.path.realpath(folder))
        (place / "home/work").mkdir(parents=True)
        starts: tuple[list[float], list[float]] = ([], [])
        calls: tuple[list[float], list[float], list[float]] = ([], [], [])
        for number in range(STARTS):
            start, spent = asyncio.run(plain())
            inside, quick, judged = asyncio.run(confined(place))
            if number:  # the first round loads modules
                starts[0].append(start)
                starts[1].append(inside)
                for found, each in zip(calls, (spent, quick, judged), strict=True):
                    found += each
        mine, theirs = statistics.median(starts[1]) * 1000, statistics.median(starts[0]) * 1000
        print("tool servers: beside the same server without a sandbox, and without a record")
        row("start until the tools are listed", f"{mine:.0f} / {theirs:.0f} ms", "150 ms more")
        one, other = (statistics.median(each) * 1e6 for each in (calls[1], calls[0]))
        row("a call of a tool", f"{one:.0f} / {other:.0f} us: {one / other:.2f}x", "1.2x")
        row("a call with its verdict", f"{statistics.median(calls[2]) * 1e6 / other:.2f}x", "-")
        row("1,000 tools pinned, compared, offered and searched", f"{many_tools() * 1000:.0f} ms", "300 ms")


if __name__ == "__main__":
    main()
