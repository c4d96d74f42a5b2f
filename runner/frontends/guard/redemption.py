"""The arguments of `agent exec --guard-token`: the token decides about everything but the script."""

from collections.abc import Mapping
from dataclasses import replace

from policy.model.tier import Mode
from policy.model.verdict import Problem
from runner.frontends.guard.tokens import GuardToken, redeem
from runner.gate.gate import GateArgs, folder
from runner.problems import Exit, Stopped, usage
from runner.text.phrases import os_reason


def redeem_args(args: GateArgs, environ: Mapping[str, str]) -> tuple[GateArgs, GuardToken]:
    """Use up the token of `args`, and return the arguments of the run and the token.

    Raise Stopped with exit code 3 for a token that does not count for this command, and a usage error if other options
    are given: none of them may widen what the hook allowed.
    """
    word, script = args.guard_token or "", args.script
    if script is None or replace(args, guard_token=None) != GateArgs(script, None):
        why = "the token decides about the mode and the rights"
        raise usage("`--guard-token` takes a script and no other option", why, "leave the other options out")
    cwd = str(folder(None))
    try:
        found = redeem(word, script, cwd, environ)
    except OSError as error:
        # SAFETY: the sandbox of an agent may make the state folder read-only. Nothing runs then.
        fix = "switch off the sandbox of the agent: ringfence confines its commands"
        raise Stopped(Problem("the token of this command cannot be used", os_reason(error), fix), Exit.DENIED) from None
    if isinstance(found, Problem):
        raise Stopped(found, Exit.DENIED)
    config = found.config or None
    return replace(args, guard_token=None, mode=Mode(found.mode), config=config, unattended=True, cwd=cwd), found
