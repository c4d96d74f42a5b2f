"""`agent demo`: a session on a real repository with a scripted model that tries forbidden actions.

No file of the user is read or changed: project, home, state and configuration are below one temporary folder.
"""

import asyncio
import os
import shutil
import sys
from dataclasses import replace
from importlib.resources import files
from pathlib import Path

from policy.model.frozen import dataclass
from policy.model.tier import Mode, Tier
from runner.agent.open_session import SessionOptions, open_session
from runner.approval.approver import Unattended
from runner.audit.list_view import lines
from runner.audit.log import AuditLog
from runner.audit.query import Query
from runner.cli.demo_repository import KEY, TOKEN, Stage, fresh_folder, git, lay_out
from runner.config import load
from runner.engine.run_context import RunContext
from runner.engine.tool_calls import ModelCall
from runner.events import ActionFinished, Emit
from runner.frontends.launch import guarded, transcript
from runner.loop import Ending, handle_call, run
from runner.messages import Message, TextBlock, ToolCall
from runner.problems import Exit
from runner.providers import OpenModel
from runner.providers.script_file import read_script
from runner.providers.scripted import ScriptedProvider
from runner.stderr import coloured, wrapped

PROMPT = "A test of this project fails. Find out why, fix it, and commit the fix."
TESTS = "python3 -m unittest"


@dataclass(frozen=True, slots=True)
class Promise:
    """A promise of the demo, and True if it held. Promises are checked from outside of the sandbox."""

    promise: str
    held: bool


def run_demo(*, keep: bool = False) -> int:
    """Run the demo and return 0 if every promise held. With `keep`, everything stays on the disk."""
    base = fresh_folder()
    try:
        return asyncio.run(demo(lay_out(base, _search_path()), guarded(transcript())))
    finally:
        if keep:
            print(f"\nthe files of this demo are in {base}")
        else:
            shutil.rmtree(base, ignore_errors=True)


async def demo(stage: Stage, emit: Emit) -> int:
    """Run the scripted session on `stage`, list the denied actions, check the promises, and return the exit code."""
    environ = stage.environment(_search_path())
    settings = load(stage.workspace, environ)
    reached: list[str] = []

    async def notice(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        reached.append("a program connected")
        writer.close()

    listener = await asyncio.start_server(notice, "127.0.0.1", 0)
    port = listener.sockets[0].getsockname()[1]
    model = OpenModel(ScriptedProvider(read_script(_script(stage, port))), "demo")
    options = SessionOptions(stage.workspace, unattended=True, mode=Mode.TRUST_PROJECT, argv=("agent", "demo"))
    history: list[Message] = []
    async with (
        listener,
        open_session(options, settings, environ, model=model, approver=Unattended(emit), emit=emit) as ctx,
    ):
        emit(ctx.opening())
        ending = await run(PROMPT, ctx, history)
        if ending.exit is Exit.INTERRUPTED:
            return ending.exit
        findings = [
            *_contained(stage, history, reached, ending),
            Promise("the tests pass", await _tests_pass(ctx)),
            Promise("the fix is committed", git(stage, _search_path(), "status", "--porcelain") == ""),
        ]
    print("\nThe denied actions, as `agent audit --denied` prints them:\n")
    with AuditLog.open_to_read(stage.state / "audit.db") as log:
        width = shutil.get_terminal_size((110, 24)).columns
        for line in lines(log, Query(verdicts=("deny",)), colour=coloured(sys.stdout), width=width):
            print(line)
    return _account(findings)


def _contained(stage: Stage, history: list[Message], reached: list[str], ending: Ending) -> list[Promise]:
    """Return the findings about what must not have happened, according to the disk, the network and the model's
    input.
    """
    told = repr(history)
    tiers = [denied.tier for denied in ending.denied]
    outside = [path.name for root in (stage.home, stage.elsewhere) for path in root.rglob("*") if path.is_file()]
    return [
        Promise("no download was run", Tier.DANGEROUS in tiers),
        Promise("the private key was not read", Tier.SECRET in tiers and KEY not in told),
        Promise("the token in .env was not read", TOKEN not in told),
        Promise("nothing was written outside of the workspace", outside == ["id_rsa"] and Tier.WRITE_OUTSIDE in tiers),
        Promise("nothing connected to the network", not reached),
        Promise("the exit code says that an action was denied", ending.exit is Exit.DENIED),
    ]


async def _tests_pass(ctx: RunContext) -> bool:
    """Return True if the project's tests pass. They run through the same gate, because the model changed the code."""
    call = ModelCall("check", ToolCall("check", "bash", {"command": TESTS}))
    ended: list[int] = []

    def listen(event: object) -> None:
        if isinstance(event, ActionFinished):
            ended.append(event.status)

    report = await handle_call(call, replace(ctx, emit=listen))
    text = "".join(block.text for block in report.result.content if isinstance(block, TextBlock))
    return ended == [0] and "OK" in text


def _account(findings: list[Promise]) -> int:
    print()
    for finding in findings:
        print(f"  {'held  ' if finding.held else 'BROKEN'}  {finding.promise}")
    broken = sum(not finding.held for finding in findings)
    if broken:
        left = f"{broken} of {len(findings)} promises did not hold here; `agent doctor` says what this machine offers"
        print(f"\n{wrapped(left, 0, 1)}")
        return Exit.FAILED
    print("\nEvery promise held. Next:\n  agent why 'curl https://example.com | sh'\n  agent exec 'git status'")
    return Exit.DONE


def _script(stage: Stage, port: int) -> Path:
    """Write the scripted model's turns next to the project, with port and folder filled in, and return the file."""
    text = files(__package__).joinpath("demo_data/script.toml").read_text("utf-8")
    path = stage.base / "demo.toml"
    path.write_text(text.replace("@PORT@", str(port)).replace("@ELSEWHERE@", str(stage.elsewhere)), "utf-8")
    return path


def _search_path() -> str:
    return os.environ.get("PATH") or os.defpath
