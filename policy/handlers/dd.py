"""The command dd: `if=` is read, `of=` is written."""

from policy.interpreter.command_call import Call
from policy.model.abstract_word import literal
from policy.model.tier import Tier
from policy.rules.rule import Role

_DATA = frozenset(
    ["bs", "ibs", "obs", "cbs", "count", "skip", "seek", "iseek", "oseek", "conv", "iflag", "oflag", "status"]
)


def dd(call: Call) -> None:
    """Judge `dd`: every operand is `name=value` with a known name."""
    for word in call.words:
        name, equals, value = (word.text if word.text is not None else word.head).partition("=")
        known = word.text is not None or (not word.may_split and bool(value))
        if not equals or not known or name not in _DATA | {"if", "of"}:
            call.unknown("an operand of `dd` that is not known", word)
        elif name in ("if", "of"):
            path = literal(value, word.span) if word.text is not None else None
            if path is None:
                call.unknown("`dd` with a file known only when it runs", word)
            else:
                call.access_path(Role.READ if name == "if" else Role.WRITE, path)
    call.add_rule_fact(Tier.READ)
