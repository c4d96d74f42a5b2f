"""The answer to the input of a hook, in the form of its agent. To ask a worker, only this module is loaded."""

import os

TYPE_CHECKING = False  # the name that type checkers know, without the import of `typing`
if TYPE_CHECKING:
    from collections.abc import Callable

    from policy.model.tier import Mode
    from runner.frontends.guard.call import GuardAnswer, GuardedCall

AGENTS = ("claude", "codex", "gemini", "cursor", "opencode")
UNREADABLE = "ringfence could not judge this call, so it was denied"

Rendered = tuple[str, str, int]  # standard output, standard error and exit code


def answer_bytes(agent: str, options: dict[str, str], data: bytes) -> Rendered:
    """Return the rendered answer to the call in `data`. Any failure is a denial."""
    from runner.frontends.guard.call import CallKind, GuardAnswer, HookAnswer

    module = agent_module(agent)
    try:
        from policy.model.frozen import replace
        from runner.frontends.guard.hook_input import parse_input

        call = module.read_call(parse_input(data))
        if "--redirect" in options:
            call = replace(call, rewrites=False)
        if call.kind is CallKind.INERT:
            return module.render(call, GuardAnswer(HookAnswer.NONE))
        if "--replaced" in options:
            from runner.frontends.guard.replaced_shell import answered

            if (answer := answered(call, os.environ)) is not None:
                return module.render(call, answer)
        from runner.frontends.guard.verdicts import judge

        return module.render(call, judge(call, _mode(options.get("--mode")), options.get("--config")))
    except Exception as failure:  # Seam of the hook: see `run_hook`
        return module.render(None, GuardAnswer(HookAnswer.DENY, f"{UNREADABLE}: {words_of(failure)}"))


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


def _mode(text: str | None) -> "Mode | None":
    if text is None:
        return None
    from policy.model.tier import Mode

    return Mode(text)


def words_of(failure: Exception) -> str:
    """Return the reason of a failure in words."""
    problem = getattr(failure, "problem", None)
    if problem is not None:
        return f"{problem.what}: {problem.why}. {problem.fix}"
    return str(failure) or type(failure).__name__
