"""Handlers of a few lines each: `date`, `dd`, `mktemp`, `pdftotext` and `yq`."""

import re

from policy.interpreter.command_call import Call
from policy.interpreter.judge_command import judge
from policy.interpreter.operand_roles import apply
from policy.model.abstract_word import AbstractWord, literal
from policy.model.tier import Tier
from policy.rules.rule import Role

# Formats of `date` that print digits and letters, and no `/` and no blank. The output is one word without a slash.
_DATE_FORMAT = re.compile(r"\+(?:%[-_0]?[YmdHMSFTjsNVuUWyCGIklDeabBhpz]|[A-Za-z0-9_.:,=@-])+")
_LEAVES_FOLDER_OR_SPLITS = re.compile(r"%[-_0]?[Dekl]|%_|\.\.")
_YEAR_FIRST = re.compile(r"\+%[FYG]")
_DEFAULT_HEAD = "/tmp/tmp."  # noqa: S108  # where mktemp creates files without a template; a private folder of the sandbox
_TEMPLATE = re.compile(r"([A-Za-z0-9_./-]*?)X{3,}(?:\.[A-Za-z0-9]+)?")


def date(call: Call) -> None:
    """Judge `date`. With a format without blanks and slashes, it prints one word that names no other folder."""
    judge(call)
    words = [word.text for word in call.words]
    formats = [text for text in words if text is not None and text[:1] == "+"]
    if len(formats) != 1 or not _DATE_FORMAT.fullmatch(formats[0]) or _LEAVES_FOLDER_OR_SPLITS.search(formats[0]):
        return
    now = set(words) - {formats[0]} <= {"-u", "--utc", "--universal"}
    call.prints = _name_word(formats[0][1:].partition("%")[0] or ("2" if now and _YEAR_FIRST.match(formats[0]) else ""))


def mktemp(call: Call) -> None:
    """Judge `mktemp`, which prints the path that it created, or nothing if it fails."""
    judge(call)
    words = [word.text for word in call.words]
    operands = [text for text in words if text is not None and text[:1] != "-"]
    if not operands and call.rule.tier is Tier.WRITE and not call.quiet:
        call.access_path(Role.WRITE, AbstractWord(head=_DEFAULT_HEAD, globbed=True))
    template = _TEMPLATE.fullmatch(operands[0]) if operands else None
    unclear = operands and (template is None or ".." in operands[0] or len(operands) > 1)
    if unclear or not set(words) - set(operands) <= _MKTEMP_FLAGS:
        return
    if head := template[1] if template else _DEFAULT_HEAD:
        call.prints = _name_word(head)


def _name_word(head: str) -> AbstractWord:
    """Return a printed word that begins with `head` and contains no further slash."""
    return AbstractWord(head=head, globbed=True, never_an_option=head[:1] != "-", depends_on_substitution=True)


_MKTEMP_FLAGS = frozenset(["-d", "-u", "-q", "-dq", "-qd", "--directory", "--dry-run", "--quiet", "--"])
_DD_NAMES = frozenset(
    ["bs", "ibs", "obs", "cbs", "count", "skip", "seek", "iseek", "oseek", "conv", "iflag", "oflag", "status"]
)


def dd(call: Call) -> None:
    """Judge `dd`: every operand is `name=value` with a known name."""
    for word in call.words:
        name, equals, value = (word.text if word.text is not None else word.head).partition("=")
        known = word.text is not None or (not word.may_split and bool(value))
        if not equals or not known or name not in _DD_NAMES | {"if", "of"}:
            call.unknown("an unknown operand of `dd`", word)
        elif name in ("if", "of") and word.text is None:
            call.unknown("`dd` with a file known only at run time", word)
        elif name in ("if", "of"):
            call.access_path(Role.READ if name == "if" else Role.WRITE, literal(value, word.span))
    call.add_rule_fact(Tier.READ)


def pdftotext(call: Call) -> None:
    """Judge `pdftotext`. `pdftotext FILE -` prints the text; with another or no second word, it writes a file."""
    shape = call.parse()
    if shape.trouble or len(shape.operands) > 2:
        judge(call)
        return
    call.add_rule_fact(Tier.READ)
    for flag, value in shape.flags:
        if flag.role is not None and value is not None:
            apply(call, flag.role, value)
    match shape.operands:
        case [source, target]:
            call.access_path(Role.READ, source)
            if target.text != "-":
                call.access_path(Role.WRITE, target)
        case [source]:
            call.access_path(Role.READ, source)
            if source.text is None:
                call.unknown(f"`{call.label}` writes next to a file known only at run time", source)
            else:
                call.access_path(Role.WRITE, literal(source.text.removesuffix(".pdf") + ".txt", source.span))


_YQ_COMMANDS = frozenset(["eval", "e", "eval-all", "ea"])


def yq(call: Call) -> None:
    """Judge `yq [eval] PROGRAM FILE..`."""
    if call.words and call.words[0].text in _YQ_COMMANDS:
        del call.words[0]
    judge(call)
