"""yq: the jq language, maybe after the name of a mode."""

from policy.interpreter.command_call import Call
from policy.interpreter.judge_command import judge

_MODES = frozenset(["eval", "e", "eval-all", "ea"])


def yq(call: Call) -> None:
    """`yq [eval] PROGRAM FILE..`."""
    if call.words and call.words[0].text in _MODES:
        del call.words[0]
    judge(call)
