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
    parser = _Parser(rule, label, words)
    parser.run()
    return parser.shape


class _Parser:
    def __init__(self, rule: CommandRule, label: str, words: list[AbstractWord]) -> None:
        self.rule, self.label, self.words = rule, label, words
        self.position = 0  # of the next word
        self.shape = ParsedOptions()

    def fail(self, trouble: str, where: AbstractWord) -> None:
        self.shape.trouble, self.shape.where = trouble, where

    def run(self) -> None:
        rule, shape = self.rule, self.shape
        stops = rule.operands.runs or bool(rule.subs)
        while self.position < len(self.words) and not shape.trouble:
            word = self.words[self.position]
            self.position += 1
            text = word.text
            if text == "--":
                shape.operands += self.words[self.position :]
                break
            if text is None or text[:1] != "-" or (text == "-" and "-" not in rule.flags):
                signed = text is not None and text[:1] in ("+", "@")
                if not (word.plain or rule.anywhere or (rule.single and not word.may_split)):
                    self.fail(f"a word known only when it runs may become a flag of `{self.label}`", word)
                elif text and signed and (known := rule.flags.get(text) or rule.flags.get(text[:1])):
                    shape.flags.append((known, None))
                elif stops:
                    shape.operands += self.words[self.position - 1 :]
                    break
                else:
                    shape.operands.append(word)
                continue
            # `-chdir=folder`, where flags are whole words with one dash; `-c=x` is a short flag with the value `=x`.
            name = text.partition("=")[0]
            whole = len(name) > len("-c") and name in rule.flags
            if text in rule.flags or whole or rule.words or text.startswith("--"):
                self.long(text, word)
            else:
                self.cluster(text, word)

    def long(self, text: str, word: AbstractWord) -> None:
        """Read one long flag by its exact name."""
        name, equals, value = text.partition("=")
        flag = self.rule.flags.get(name)
        if flag is None:
            self.fail(f"`{name}` is not a known flag of `{self.label}`", word)
        elif equals and flag.role is None:
            self.fail(f"`{name}` takes no value", word)
        elif equals:
            self.shape.flags.append((flag, literal(value, word.span)))
        elif flag.role is None or flag.optional:
            self.shape.flags.append((flag, None))
        else:
            self.value(flag)

    def cluster(self, text: str, word: AbstractWord) -> None:
        """Read a cluster of one-letter flags, which a letter with a value ends."""
        if "-#" in self.rule.flags and text[1:].isdigit():
            self.shape.flags.append((self.rule.flags["-#"], None))
            return
        for index in range(1, len(text)):
            flag = self.rule.flags.get(f"-{text[index]}")
            attached = text[index + 1 :]
            if flag is not None and flag.role is None:
                self.shape.flags.append((flag, None))
                continue
            if flag is None:
                self.fail(f"`-{text[index]}` is not a known flag of `{self.label}`", word)
            elif attached or flag.optional:
                self.shape.flags.append((flag, literal(attached, word.span) if attached else None))
            else:
                self.value(flag)
            return

    def value(self, flag: Flag) -> None:
        """Read the next word, or two, as the value of a flag. A word that may become several words could contain
        flags.
        """
        roles = [flag.role] if flag.second is None else [flag.role, flag.second]
        taken = self.words[self.position : self.position + len(roles)]
        for role, value in zip(roles, taken, strict=False):
            if value.may_split and not self.rule.anywhere:
                self.fail(f"the value of `{flag.name}` may become further words of `{self.label}`", value)
            self.shape.flags.append((replace(flag, role=role), value))
        if not taken:
            self.shape.flags.append((flag, None))
        self.position += len(taken)
