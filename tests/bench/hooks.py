"""`make bench`: what a hook costs beyond its own run, beside the same command without a sandbox in one run."""

import asyncio
import os
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

from runner.agent.open_session import SessionOptions, open_session
from runner.approval.approver import Unattended
from runner.config import load
from runner.hooks.configured import find_hooks
from runner.hooks.session_hooks import SessionHooks
from runner.providers import OpenModel
from runner.providers.scripted import ScriptedProvider
from tests.support.hook_session import folders, hook

RUNS = 60
COMMANDS = {"true": "cat > /dev/null", "jq": "jq -e .tool_input.command > /dev/null"}


def row(what: str, value: str, goal: str) -> None:
    print(f"  {what:<58} {value:>18}   goal {goal}")


def plain(command: str) -> float:
    """Return the median of the seconds that the command takes without a sandbox."""
    spent = []
    for _ in range(RUNS):
        began = time.perf_counter()
        subprocess.run(["/bin/bash", "-c", command], input=b'{"tool_input": {"command": "ls"}}', check=True)
        spent.append(time.perf_counter() - began)
    return statistics.median(spent)


async def confined(place: Path, command: str) -> float:
    """Return the median of the seconds that the same hook takes in a session, with its verdict and records."""
    work, environ = folders(place, hook("PreToolUse", command))
    settings = load(work, environ)
    hooks = find_hooks(settings, str(work), environ["HOME"])
    options = SessionOptions(work, True, hooks=hooks)
    model = OpenModel(ScriptedProvider(()), "none")
    spent = []
    async with open_session(
        options, settings, environ, model=model, approver=Unattended(lambda event: None), emit=lambda event: None
    ) as ctx:
        assert isinstance(ctx.hooks, SessionHooks)
        for _ in range(RUNS):
            began = time.perf_counter()
            reply = await ctx.hooks.ask_about_call("PreToolUse", "bash", {"command": "ls"}, "1")
            spent.append(time.perf_counter() - began)
            assert not any(each.failed for each in reply.answers)
    return statistics.median(spent)


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="bench-hooks-", dir="/var/tmp") as folder:
        print("hooks: beside the same command without a sandbox, a verdict and a record")
        for name, command in COMMANDS.items():
            alone = plain(command) * 1000
            inside = asyncio.run(confined(Path(os.path.realpath(folder)) / name, command)) * 1000
            row(f"a hook that runs `{name}`", f"{inside:.1f} / {alone:.1f} ms", "30 ms more")


if __name__ == "__main__":
    main()
