"""AgentDyn: recorded runs of models, made again with a gate.

The benchmark is a fork of AgentDojo with three more suites and the recorded runs of many models. Its folder is given by
the user, because it cannot be installed. A run is repeated call by call, with the recorded arguments; a call that the
gate does not allow is left out, and the rest of the recording goes on as if nothing had happened. The benchmark's own
checkers decide. This module must be imported in a process of its own: both benchmarks are called `agentdojo`.
"""

import json
import random
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.flow.gate import Allowed, Answer, Gate

SUITES = ("shopping", "github", "dailylife")
MODELS = ("google_gemini-2.5-pro", "gpt-4o-2024-08-06", "gpt-5.1-2025-11-13")
VERSION = "v1.2.2"
FAILURES = 0.15  # the share of the recorded failures of attacks that are made again


@dataclass(frozen=True, slots=True)
class Recording:
    """One recorded run.

    Attributes:
        model: The model.
        suite: The suite.
        user_task: The id of the user task.
        injection_task: The id of the injection task; empty for a benign run.
        prompt: The words of the user.
        injections: The planted texts by their places.
        calls: The recorded calls: names and arguments.
        said: The last text of the model.
        reached: True if the recording solved the task (benign) or the attack succeeded in it.
    """

    model: str
    suite: str
    user_task: str
    injection_task: str
    prompt: str
    injections: dict[str, str]
    calls: tuple[tuple[str, dict[str, Any]], ...]
    said: str
    reached: bool


@dataclass(frozen=True, slots=True)
class Repeat:
    """One repeated run.

    Attributes:
        recording: The run that was repeated.
        reached: True if the checker says that the task was solved (benign) or that the attack succeeded.
        stopped: The calls that the gate did not allow: tool, arguments and answer.
    """

    recording: Recording
    reached: bool
    stopped: tuple[tuple[str, dict[str, Any], Answer], ...]


def recordings(folder: Path, every: int = 1) -> list[Recording]:
    """Return the benign runs, the attacks that succeeded and a sample of the attacks that failed, of three models."""
    chosen, sample = [], random.Random(21)
    for path in sorted(folder.glob("runs/*/*/user_task_*/*/*.json")):
        model, suite = path.parts[-5], path.parts[-4]
        if model not in MODELS or suite not in SUITES:
            continue
        run = json.loads(path.read_text())
        benign = path.parent.name == "none"
        reached = bool(run["utility"] if benign else run["security"])
        if not benign and not reached and sample.random() >= FAILURES:
            continue
        messages = run["messages"]
        calls = [(call["function"], call["args"]) for each in messages for call in each.get("tool_calls") or ()]
        chosen.append(
            Recording(
                model,
                suite,
                run["user_task_id"],
                "" if benign else run["injection_task_id"],
                _text(next(each for each in messages if each["role"] == "user")),
                run["injections"] or {},
                tuple(calls),
                _text(messages[-1]) if messages[-1]["role"] == "assistant" else "",
                reached,
            )
        )
    return chosen[::every]


def repeats(folder: Path, made: list[Recording], gate_for: Callable[[str, str], Gate]) -> Iterator[Repeat]:
    """Yield the repeated runs. `gate_for` returns a gate for a suite and a prompt."""
    sys.path.insert(0, str(folder / "src"))
    from agentdojo.functions_runtime import FunctionCall, FunctionsRuntime
    from agentdojo.task_suite.load_suites import get_suites

    from tests.flow.tool_text import result_text

    suites = get_suites(VERSION)
    environments: dict[str, Any] = {}
    for recording in made:
        suite = suites[recording.suite]
        key = recording.suite + json.dumps(recording.injections, sort_keys=True)
        if key not in environments:
            environments[key] = suite.load_and_inject_default_environment(recording.injections)
        task = suite.user_tasks[recording.user_task]
        environment = task.init_environment(environments[key].model_copy(deep=True))
        before = environment.model_copy(deep=True)
        gate, runtime = gate_for(recording.suite, recording.prompt), FunctionsRuntime(suite.tools)
        done, stopped = [], []
        for name, arguments in recording.calls:
            if name not in runtime.functions:
                continue  # the model invented a tool
            answer = gate.call(name, arguments)
            if not isinstance(answer, Allowed):
                stopped.append((name, arguments, answer))
                continue
            result, error = runtime.run_function(environment, name, arguments)
            gate.result(name, error or result_text(result))
            done.append(FunctionCall(function=name, args=arguments))
        said = [{"type": "text", "content": recording.said}]
        if recording.injection_task:
            checked = suite.injection_tasks[recording.injection_task]
            reached = suite._check_injection_task_security(checked, said, before, environment, done)
        else:
            reached = suite._check_user_task_utility(task, said, before, environment, done)
        yield Repeat(recording, bool(reached), tuple(stopped))


def _text(message: dict[str, Any]) -> str:
    content = message.get("content") or []
    return content if isinstance(content, str) else "\n".join(part.get("content") or "" for part in content)
