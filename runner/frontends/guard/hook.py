"""The hook program `agent guard hook AGENT`: one call of a guarded agent in, the answer of its gate out.

THREAT T193: an agent runs the original command if its hook breaks. Every failure is therefore a denial in the form
that the agent understands: an exception, an input that cannot be read, and a verdict that takes too long. The judgement
runs in a process of its own, so that nothing that it waits for can delay the answer.
"""

import os
import sys

from runner.frontends.guard.call import CallKind, GuardAnswer, GuardedCall, HookAnswer

TYPE_CHECKING = False  # the name that type checkers know, without the import of `typing`
if TYPE_CHECKING:
    from collections.abc import Callable

    from policy.model.tier import Mode

AGENTS = ("claude", "codex", "gemini", "cursor", "opencode")
DEADLINE = 20.0  # seconds until the answer; `--install` sets the time limit of the agent to `TIME_LIMIT`
TIME_LIMIT = 60  # seconds
_INPUT_TIME = 5.0  # seconds until the input must be complete
_UNREADABLE = "ringfence could not judge this call, so it was denied"

Rendered = tuple[str, str, int]  # standard output, standard error and exit code


def run_hook(words: list[str]) -> int:
    """Read the call from standard input, print the answer, and return the exit code."""
    # Seam of the hook: whatever happens, the agent gets a denial. An exit code of 2 denies in every agent.
    try:
        agent, options = _options(words)
        data = _standard_input()
        out, error, code = _within_deadline(lambda: answer_bytes(agent, options, data))
    except Exception as failure:
        out, error, code = "", f"{_UNREADABLE}: {_words_of(failure)}", 2
    sys.stdout.write(out)
    sys.stderr.write(f"{error}\n" if error else "")
    sys.stdout.flush()
    return code


def answer_bytes(agent: str, options: dict[str, str], data: bytes) -> Rendered:
    """Return the rendered answer to the call in `data`. Any failure is a denial."""
    module = agent_module(agent)
    try:
        from policy.model.frozen import replace
        from runner.frontends.guard.hook_input import parse_input

        call = module.read_call(parse_input(data))
        if "--redirect" in options:
            call = replace(call, rewrites=False)
        if call.kind is CallKind.INERT:
            return module.render(call, GuardAnswer(HookAnswer.NONE))
        from runner.frontends.guard.verdicts import judge

        return module.render(call, judge(call, _mode(options.get("--mode")), options.get("--config")))
    except Exception as failure:  # Seam of the hook: see `run_hook`
        return module.render(None, GuardAnswer(HookAnswer.DENY, f"{_UNREADABLE}: {_words_of(failure)}"))


class AgentModule:
    """The interface of the module of one agent: how to read a call, and how to render an answer."""

    read_call: "Callable[[dict[str, object]], GuardedCall]"
    render: "Callable[[GuardedCall | None, GuardAnswer], Rendered]"


def agent_module(agent: str) -> AgentModule:
    """Return the module of `agent`. Raise ValueError for an unknown name."""
    if agent not in AGENTS:
        raise ValueError(f"there is no agent `{agent}`; the agents are {', '.join(AGENTS)}")
    from importlib import import_module

    package = __name__.rpartition(".")[0]
    found: AgentModule = import_module(f"{package}.{agent}")  # type: ignore[assignment]  # each module has both
    return found


def _options(words: list[str]) -> tuple[str, dict[str, str]]:
    """Return the name of the agent and its options. Raise ValueError for other words."""
    agent, *rest = words or [""]
    rest = [word for name in rest for word in ((name, "yes") if name == "--redirect" else (name,))]
    if len(rest) % 2 or any(name not in ("--mode", "--config", "--redirect") for name in rest[::2]):
        raise ValueError("the hook takes an agent, and `--mode MODE`, `--config FILE` or `--redirect`")
    return agent, dict(zip(rest[::2], rest[1::2], strict=True))


def _mode(text: str | None) -> "Mode | None":
    if text is None:
        return None
    from policy.model.tier import Mode

    return Mode(text)


def _standard_input() -> bytes:
    """Return standard input up to its end. Raise ValueError if it is too long or does not end in time."""
    import select
    import time

    from runner.frontends.guard.hook_input import MOST

    until, parts, size = time.monotonic() + _INPUT_TIME, list[bytes](), 0
    while True:
        left = until - time.monotonic()
        if left <= 0 or not select.select([0], [], [], left)[0]:
            raise ValueError("the input of the hook does not end")
        chunk = os.read(0, 1 << 20)
        if not chunk:
            return b"".join(parts)
        parts.append(chunk)
        size += len(chunk)
        if size > MOST:
            raise ValueError(f"the input of the hook is longer than {MOST >> 20} MiB")


def _within_deadline(judge: "Callable[[], Rendered]") -> Rendered:
    """Return the result of `judge`, which runs in a child process. Raise ValueError if it takes too long or dies."""
    import select
    import signal
    import time
    from json import dumps, loads

    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.close(reader)
            data = dumps(judge()).encode()
            while data:
                data = data[os.write(writer, data) :]
            code = 0
        finally:
            os._exit(code)  # the parent prints; nothing of the parent's cleanup may run twice
    os.close(writer)
    until, parts = time.monotonic() + DEADLINE, list[bytes]()
    try:
        while True:
            left = until - time.monotonic()
            if left <= 0 or not select.select([reader], [], [], left)[0]:
                raise ValueError(f"the judgement takes longer than {DEADLINE:g} s")
            chunk = os.read(reader, 1 << 16)
            if not chunk:
                break
            parts.append(chunk)
    finally:
        os.close(reader)
        if time.monotonic() >= until:
            os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
    if status:
        raise ValueError("the judgement ended without an answer")
    out, error, code = loads(b"".join(parts))
    return str(out), str(error), int(code)


def _words_of(failure: Exception) -> str:
    """Return the reason of a failure in words."""
    problem = getattr(failure, "problem", None)
    if problem is not None:
        return f"{problem.what}: {problem.why}. {problem.fix}"
    return str(failure) or type(failure).__name__
