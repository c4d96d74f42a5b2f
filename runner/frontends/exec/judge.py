"""The verdicts on many scripts: JSON lines in, JSON lines out. The facts are gathered once, and nothing is run."""

import os
from collections.abc import Iterator
from functools import partial
from math import isfinite
from typing import BinaryIO, TextIO

from policy.model.action import RunScript
from policy.model.tier import Mode
from runner.gate.explain import reason_json
from runner.gate.gate import GateArgs, open_gate, ruling
from runner.problems import Exit, usage
from runner.stderr import say
from runner.text.json_line import json_line
from runner.text.strict_json import parse_strictly

_LONGEST = 16 << 20  # bytes of one line: enough for a script of 1 MiB with every character escaped


def judge_lines(
    source: BinaryIO, sink: TextIO, *, mode: Mode | None, unattended: bool, cwd: str | None, config: str | None
) -> int:
    """Answer each line of `source` on `sink` before reading the next line, and return the exit code.

    Raise a usage error with the number of the line for a line that is not a question. Earlier lines are answered.
    """
    args = GateArgs(script="", argv=None, mode=mode, unattended=unattended, cwd=cwd, config=config)
    gate, _ = open_gate(args, os.environ)
    context = gate.context(unattended=unattended)
    if source.isatty():
        say('judge: one question per line, such as {"id": 1, "cmd": "git status"}; Ctrl-D ends')
    for number, line in _lines(source):
        name, script = _question(line, number)
        assessment, verdict = context.evaluate(RunScript(script, gate.cwd, gate.limits.wall))
        # The deciding reason comes first, even if it is a rule of the user.
        reasons = (verdict.reason, *assessment.reasons, *assessment.asked, *assessment.covered.values())
        answer = {
            "id": name,
            "verdict": ruling(verdict).name.lower(),
            "tiers": [tier.label for tier in assessment.tiers],
            "reasons": [reason_json(reason) for reason in dict.fromkeys(reasons)],
        }
        sink.write(json_line(answer) + "\n")
        sink.flush()  # the caller may wait for this answer before its next question
    return Exit.DONE


def _lines(source: BinaryIO) -> Iterator[tuple[int, bytes]]:
    for number, line in enumerate(iter(partial(source.readline, _LONGEST + 1), b""), 1):
        if len(line) > _LONGEST:
            why = f"it is longer than {_LONGEST >> 20} MiB"
            raise usage(f"line {number} of standard input cannot be judged", why, "split it into several scripts")
        if line.strip():
            yield number, line


def _question(line: bytes, number: int) -> tuple[str | float | None, str]:
    """Return the id and the script. Invalid UTF-8 in the script is kept; the classifier treats it as opaque."""
    try:
        found = parse_strictly(line.decode("utf-8", "surrogateescape"))
    except (ValueError, RecursionError):
        found = None
    name = found.get("id") if isinstance(found, dict) else None
    plain = name is None or isinstance(name, str | int) or (isinstance(name, float) and isfinite(name))
    script = found.get("cmd") if isinstance(found, dict) else None
    if not isinstance(script, str) or not plain:
        raise usage(
            f"line {number} of standard input is not a question",
            'each line must be a JSON object with a text "cmd", and an "id" that is a text or a number',
            'write for example {"id": 1, "cmd": "git status"}',
        )
    return name, script
