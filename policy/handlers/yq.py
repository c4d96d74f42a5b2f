"""The command yq: the jq language, with an optional mode name before it."""

from policy.interpreter.command_call import Call
from policy.interpreter.judge_command import judge

_MODES = frozenset(["eval", "e", "eval-all", "ea"])


def yq(call: Call) -> None:
    """Judge `yq [eval] PROGRAM FILE..`."""
    if call.words and call.words[0].text in _MODES:
        del call.words[0]
    judge(call)
