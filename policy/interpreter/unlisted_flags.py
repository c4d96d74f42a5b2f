"""Judgement of a command with a flag that its rule does not list, where the sandbox bounds what the flag may do."""

from policy.interpreter.command_call import Call
from policy.model.abstract_word import SourceSpan, literal
from policy.model.assessment import Scope
from policy.model.tier import Tier
from policy.rules.rule import Flag, Role


def judge_possible_flags(call: Call) -> None:
    """Report what a flag that is not listed, or a word beside it, may do beyond the sandbox.

    The flag may abbreviate a listed flag, or stand in a cluster with one, so each listed flag that raises the command
    above code of the project counts if it may be meant. A word may be the value of the flag, a file that the command
    writes, so files that other programs run automatically stay a question, and rules about files apply.
    """
    edits = call.rule.operands.writes or any(flag.edits for flag in call.rule.flags.values())
    for word in call.words:
        if edits and word.globbed:
            call.access_path(Role.WRITE, word)
        for text in word.texts:
            if text[:1] == "-":
                for flag in call.rule.flags.values():
                    if flag.tier is not None and flag.tier > Tier.EXECUTE and _may_mean(text, flag):
                        call.add_fact(flag.tier, "may be meant by a flag that is not listed", word, flag=flag.name)
            _judge_value(call, text, word.span, edits=edits)


def _may_mean(text: str, flag: Flag) -> bool:
    """Return True if the flag `text` may be `flag`: by its name, an abbreviation, or a letter of a cluster."""
    name = text.partition("=")[0]
    if flag.name[:2] == "--":
        return len(name) > len("--") and flag.name.startswith(name)
    return text[:2] != "--" and flag.name[1:] in text


def _judge_value(call: Call, text: str, span: SourceSpan | None, *, edits: bool) -> None:
    """Report a write of the path that a part of `text` may name, if the path is locked or the command `edits` files."""
    values = [text] if text[:1] != "-" else [text.partition("=")[2], text[len("-x") :]]
    classifier = call.findings.classifier
    for value in filter(None, values):
        places = [classifier.place(value, cwd) for cwd in call.state.cwds or ()]
        started = any(place.locked and place.scope is Scope.OUTSIDE for place in places)  # `~/.bashrc`
        locked = started or any(classifier.secrets.locked_in(place.path, call.facts.workspace) for place in places)
        if locked or (edits and text[:1] not in ("-", "/")):
            call.access_path(Role.WRITE, literal(value, span))
