"""Commands with known output: `$(mktemp -d)` is a new path, `$(date +%F)` is not a path at all."""

import re

from policy.interpreter.command_call import Call
from policy.interpreter.judge_command import judge
from policy.model.abstract_word import AbstractWord
from policy.model.tier import Tier
from policy.rules.rule import Role

# Letters of `date` that print digits and letters, never `/` and no blank. With these, the output is one calm word.
_FORMAT = re.compile(r"\+(?:%[-_0]?[YmdHMSFTjsNVuUWyCGIklDeabBhpz]|[A-Za-z0-9_.:,=@-])+")
_WITH_SLASH_OR_BLANK = re.compile(r"%[-_0]?[Dekl]|%_")
_YEAR_FIRST = re.compile(r"\+%[FYG]")
_USUAL = "/tmp/tmp."  # noqa: S108  # where mktemp makes what has no template; the sandbox's own
_TEMPLATE = re.compile(r"([A-Za-z0-9_./-]*?)X{3,}(?:\.[A-Za-z0-9]+)?")


def date(call: Call) -> None:
    """Judge `date`: without a blank or a slash in its format it prints a name that stays in its folder."""
    judge(call)
    words = [word.text for word in call.words]
    formats = [text for text in words if text is not None and text[:1] == "+"]
    if len(formats) != 1 or not _FORMAT.fullmatch(formats[0]) or _WITH_SLASH_OR_BLANK.search(formats[0]):
        return
    if ".." in formats[0]:
        return  # the folder above
    literal = formats[0][1:].partition("%")[0]
    now = set(words) - {formats[0]} <= {"-u", "--utc", "--universal"}
    head = literal or ("2" if now and _YEAR_FIRST.match(formats[0]) else "")
    call.prints = AbstractWord(head=head, globbed=True, never_an_option=head[:1] != "-", depends_on_substitution=True)


def mktemp(call: Call) -> None:
    """Judge `mktemp`, which prints the path that it created, or nothing if it failed."""
    judge(call)
    words = [word.text for word in call.words]
    operands = [text for text in words if text is not None and text[:1] != "-"]
    if not operands and call.rule.tier is Tier.WRITE and not call.quiet:
        call.access_path(Role.WRITE, AbstractWord(head=_USUAL, globbed=True))
    if None in words or any(
        text not in ("-d", "-u", "-q", "-dq", "-qd", "--directory", "--dry-run", "--quiet", "--")
        for text in words
        if text not in operands
    ):
        return
    if not operands:
        head = _USUAL
    else:
        found = _TEMPLATE.fullmatch(operands[0])
        if found is None or ".." in operands[0] or len(operands) > 1:
            return
        head = found[1]
    if head:
        call.prints = AbstractWord(
            head=head, globbed=True, never_an_option=head[:1] != "-", depends_on_substitution=True
        )
