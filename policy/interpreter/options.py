"""Parsing of options: flags and operands are told apart as getopt does, by the flags that a rule lists."""

from dataclasses import dataclass, field, replace

from policy.model.abstract_word import AbstractWord, literal
from policy.rules.rule import CommandRule, Flag


@dataclass(slots=True)
class ParsedOptions:
    """Options and operands of one command. `trouble` is the reason why they could not be told apart."""

    flags: list[tuple[Flag, AbstractWord | None]] = field(default_factory=list)
    operands: list[AbstractWord] = field(default_factory=list)
    trouble: str = ""
    where: AbstractWord | None = None


def parse(rule: CommandRule, label: str, words: list[AbstractWord]) -> ParsedOptions:
    """Tell flags from operands as getopt does. Stop at the first operand if the rest is another command."""
    shape = ParsedOptions()
    stops = rule.operands.runs or bool(rule.subs)
    position = 0
    while position < len(words) and not shape.trouble:
        word = words[position]
        position += 1
        text = word.text
        if text == "--":
            shape.operands += words[position:]
            break
        if text is None or text[:1] != "-" or (text == "-" and "-" not in rule.flags):
            if not (word.plain or rule.anywhere or (rule.single and not word.may_split)):
                shape.trouble = f"a word known only when it runs may become a flag of `{label}`"
                shape.where = word
            elif (
                text is not None
                and text[:1] in ("+", "@")
                and (known := rule.flags.get(text) or rule.flags.get(text[:1]))
            ):
                shape.flags.append((known, None))
            elif stops:
                shape.operands += words[position - 1 :]
                break
            else:
                shape.operands.append(word)
            continue
        after = words[position : position + 2]
        # `-chdir=folder`, where flags are whole words with one dash; `-c=x` is a short flag with the value `=x`.
        name = text.partition("=")[0]
        whole = len(name) > len("-c") and name in rule.flags
        if text in rule.flags or whole or rule.words or text.startswith("--"):
            position += _long(rule, label, text, after, shape, word)
        else:
            position += _cluster(rule, label, text, after, shape, word)
    return shape


def _long(
    rule: CommandRule, label: str, text: str, after: list[AbstractWord], shape: ParsedOptions, word: AbstractWord
) -> int:
    """Read one long flag by its exact name. Return how many further words it took."""
    name, equals, value = text.partition("=")
    flag = rule.flags.get(name)
    if flag is None:
        shape.trouble, shape.where = f"`{name}` is not a known flag of `{label}`", word
    elif equals and flag.role is None:
        shape.trouble, shape.where = f"`{name}` takes no value", word
    elif equals:
        shape.flags.append((flag, literal(value, word.span)))
    elif flag.role is None or flag.optional:
        shape.flags.append((flag, None))
    else:
        return _value(rule, label, flag, after, shape)
    return 0


def _cluster(
    rule: CommandRule, label: str, text: str, after: list[AbstractWord], shape: ParsedOptions, word: AbstractWord
) -> int:
    """Read a cluster of one-letter flags, which a letter with a value ends. Return how many further words it took."""
    if "-#" in rule.flags and text[1:].isdigit():
        shape.flags.append((rule.flags["-#"], None))
        return 0
    for index in range(1, len(text)):
        flag = rule.flags.get(f"-{text[index]}")
        if flag is None:
            shape.trouble, shape.where = f"`-{text[index]}` is not a known flag of `{label}`", word
            return 0
        attached = text[index + 1 :]
        if flag.role is None:
            shape.flags.append((flag, None))
        elif attached or flag.optional:
            shape.flags.append((flag, literal(attached, word.span) if attached else None))
            return 0
        else:
            return _value(rule, label, flag, after, shape)
    return 0


def _value(rule: CommandRule, label: str, flag: Flag, after: list[AbstractWord], shape: ParsedOptions) -> int:
    """Read the next word, or two, as the value of a flag. A word that may become several words could contain flags."""
    roles = [flag.role] if flag.second is None else [flag.role, flag.second]
    taken = after[: len(roles)]
    for role, value in zip(roles, taken, strict=False):
        if value.may_split and not rule.anywhere:
            why = f"the value of `{flag.name}` may become further words of `{label}`"
            shape.trouble, shape.where = why, value
        shape.flags.append((replace(flag, role=role), value))
    if not taken:
        shape.flags.append((flag, None))
    return len(taken)
