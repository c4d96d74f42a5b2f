"""`make bench`: what the labels of the information flow cost, beside one turn of a session in the same run."""

import asyncio
import os
import statistics
import tempfile
import time
from pathlib import Path

from policy.model.action import RunScript
from policy.model.tier import Mode
from runner.agent.open_session import SessionOptions, open_session
from runner.approval.approver import Unattended
from runner.config import load
from runner.engine.judge import evaluate_action
from runner.engine.tool_calls import ModelCall
from runner.loop import handle_call
from runner.messages import ToolCall
from runner.providers import OpenModel
from runner.providers.scripted import ScriptedProvider

RUNS = 100
PROMPT = "Fix the bug in src/main.py; see docs.example.org and issue 13. " * 200  # a long prompt: 13,000 characters
RESULT = "a line of a page with some words\n" * 2_000  # 66,000 characters


def row(what: str, value: str, goal: str) -> None:
    print(f"  {what:<58} {value:>18}   goal {goal}")


async def measured(place: Path) -> tuple[float, float]:
    """Return the medians of the seconds of one turn with one command, and of the work of the labels in such a turn."""
    work, home = place / "w", place / "h"
    work.mkdir()
    home.mkdir()
    environ = {"HOME": str(home), "PATH": os.environ["PATH"]}
    settings = load(work, environ)
    options = SessionOptions(work, True, mode=Mode.TRUST_PROJECT)
    model = OpenModel(ScriptedProvider(()), "none")
    turns, labels = [], []
    async with open_session(
        options, settings, environ, model=model, approver=Unattended(lambda event: None), emit=lambda event: None
    ) as ctx:
        assert ctx.flow is not None
        action = RunScript("cat src/main.py; ls", str(work))
        for number in range(RUNS):
            began = time.perf_counter()
            await handle_call(ModelCall(f"{number}.1", ToolCall("1", "bash", {"command": "ls"})), ctx)
            turns.append(time.perf_counter() - began)
        ctx.flow.hear(PROMPT)
        ctx.flow.note_untrusted("the page https://example.org/", RESULT)
        context = evaluate_action(action, ctx).recalled.context
        assessment = context.classify(action)
        for _ in range(RUNS):
            began = time.perf_counter()
            ctx.flow.saw(action, RESULT)
            ctx.flow_state()
            context.flow_findings(assessment)
            labels.append(time.perf_counter() - began)
    return statistics.median(turns), statistics.median(labels)


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="bench-flow-", dir="/var/tmp") as folder:
        print("information flow: beside one turn with one command, without the time of the model")
        turn, label = asyncio.run(measured(Path(folder)))
        row("labels of a result of 66 kB, and the rules about one action", f"{label / turn:.2%} of a turn", "< 1 %")


if __name__ == "__main__":
    main()
