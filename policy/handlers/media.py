"""Media programs whose last word decides if they write."""

from policy.interpreter.command_call import Call
from policy.interpreter.judge_command import judge
from policy.interpreter.operand_roles import apply
from policy.interpreter.options import parse
from policy.model.abstract_word import literal
from policy.model.tier import Tier
from policy.rules.rule import Role


def pdftotext(call: Call) -> None:
    """Judge `pdftotext`: `pdftotext FILE -` prints; with one word, or any other second word, it writes a file."""
    shape = parse(call.rule, call.label, call.words)
    if shape.trouble or len(shape.operands) > 2:
        judge(call)
        return
    call.add_rule_fact(Tier.READ)
    for flag, value in shape.flags:
        if flag.role is not None and value is not None:
            apply(call, flag.role, value)
    for word in shape.operands[:1]:
        call.access_path(Role.READ, word)
    if len(shape.operands) == 2 and shape.operands[1].text != "-":
        call.access_path(Role.WRITE, shape.operands[1])
    elif len(shape.operands) == 1 and shape.operands[0].text is not None:
        call.access_path(
            Role.WRITE, literal(shape.operands[0].text.removesuffix(".pdf") + ".txt", shape.operands[0].span)
        )
    elif len(shape.operands) == 1:
        call.unknown(f"`{call.label}` writes beside a file known only when it runs", shape.operands[0])
