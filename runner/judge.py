"""Verdicts in bulk: JSON lines in, JSON lines out, one look at the machine for all of them. Runs nothing."""

import json
import os
from collections.abc import Iterable
from typing import TextIO

from policy.action import RunScript
from policy.tier import Mode
from runner.explain import reason_json
from runner.gate import open_gate, ruling
from runner.gate_args import GateArgs
from runner.problems import Exit, usage


def judge_lines(
    source: Iterable[bytes], sink: TextIO, *, mode: Mode | None, unattended: bool, cwd: str | None, config: str | None
) -> int:
    """Answer every line in order. A line that is not a question ends it with a usage error that names the line."""
    args = GateArgs(script="", argv=None, mode=mode, unattended=unattended, cwd=cwd, config=config)
    gate, _ = open_gate(args, os.environ)
    for number, line in enumerate(source, 1):
        if not line.strip():
            continue
        name, script = _question(line, number)
        assessment = gate.assess(RunScript(script, gate.cwd, gate.limits.wall))
        verdict = gate.judge(assessment, unattended=unattended)
        answer = {
            "id": name,
            "verdict": ruling(verdict).name.lower(),
            "tiers": [tier.label for tier in assessment.tiers],
            "reasons": [reason_json(reason) for reason in assessment.reasons],
        }
        sink.write(json.dumps(answer) + "\n")
    sink.flush()
    return Exit.DONE


def _question(line: bytes, number: int) -> tuple[object, str]:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict) or not isinstance(found.get("cmd"), str):
        raise usage(
            f"line {number} of standard input is not a question",
            'each line must be a JSON object with "id" and a text "cmd"',
            'write for example {"id": 1, "cmd": "git status"}',
        )
    return found.get("id"), found["cmd"]
