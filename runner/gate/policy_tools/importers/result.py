"""Result of an import: rules, what was not imported and why, and examples; written as TOML or JSON."""

from collections.abc import Iterable
from dataclasses import field

from policy.model.frozen import dataclass
from policy.model.tier import Ruling
from policy.model.tool_names import SERVER
from runner.config.toml_value import quoted
from runner.text.phrases import many
from runner.text.sanitize import one_line

WordChoice = tuple[str, ...]  # the alternatives of one word
REST: WordChoice = ("**",)

# `*` and `?` are wildcards in our rules; a rule that allows cannot contain a literal one.
WILD = "*?"


@dataclass(frozen=True, slots=True)
class Origin:
    """Place in the imported file (line from 1; 0: unknown), with its original text."""

    line: int
    text: str

    def __str__(self) -> str:
        where = f"line {self.line}: " if self.line else ""
        return where + one_line(self.text, 160)


@dataclass(frozen=True, slots=True)
class Carried:
    """Imported rule. `note` names a difference to the original that is easily missed."""

    origin: Origin
    verdict: Ruling
    run: tuple[WordChoice, ...] = ()
    tool: tuple[str, ...] = ()
    read: tuple[str, ...] = ()
    write: tuple[str, ...] = ()
    host: tuple[str, ...] = ()
    arguments: tuple[tuple[str, str], ...] = ()
    why: str = ""
    note: str = ""


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Entry that was not imported, and the reason."""

    origin: Origin
    why: str


@dataclass(frozen=True, slots=True)
class Example:
    """Command that the original file gives as an example, with the verdict of its rules."""

    origin: Origin
    argv: tuple[str, ...]
    verdict: Ruling


@dataclass(slots=True)
class Import:
    """Result that grows while one file is read."""

    source: str
    rules: list[Carried] = field(default_factory=list)
    left: list[LeftOut] = field(default_factory=list)
    examples: list[Example] = field(default_factory=list)
    remarks: dict[str, None] = field(default_factory=dict)  # remarks on several rules, reported once
    mode: str = ""

    def leave(self, origin: Origin, why: str) -> None:
        if LeftOut(origin, why) not in self.left[-1:]:  # one original rule may become several rules
            self.left.append(LeftOut(origin, why))

    def carry(self, rule: Carried) -> None:
        """Add the rule, unless it would allow more than a rule can, or cannot be written."""
        if why := _unfit(rule):
            self.leave(rule.origin, why)
        else:
            self.rules.append(rule)

    def carry_tools(
        self, origin: Origin, verdict: Ruling, tools: tuple[str, ...], why: str = "", note: str = ""
    ) -> None:
        """Add a rule that only names tools. A rule that allows every command, or only reading, is left out with the
        reason.
        """
        writers = tuple(tool for tool in tools if tool in ("write", "edit"))
        if verdict is not Ruling.ALLOW or any(tool.startswith(SERVER) for tool in tools):
            self.carry(Carried(origin, verdict, tool=tools, why=why, note=note))
        elif "bash" in tools:
            self.leave(origin, "it allows every command; choose a mode instead (`agent policy matrix`)")
        elif writers:
            note = "it applies in the workspace; paths outside need an approval"
            self.carry(Carried(origin, verdict, tool=writers, write=("**",), why=why, note=note))
        else:
            self.leave(origin, "reading the workspace needs no rule; name readable folders outside of it")


def _unfit(rule: Carried) -> str:
    every = [text for word in rule.run for text in word]
    text = "".join([*every, *rule.tool, *rule.read, *rule.write, *rule.host, *(text for _, text in rule.arguments)])
    if not text.isprintable():  # surrogates do not print either
        return "it contains unprintable characters"
    if rule.run and any("**" in text for word in rule.run[:-1] for text in word):
        return "it contains `**` before the last word, which no rule can express"
    if rule.verdict is not Ruling.ALLOW:
        return ""
    if rule.run and any(not text.strip(WILD) for text in rule.run[0]):
        return "it allows every program"
    if rule.run and any(program.rpartition("/")[2] in _PRIVILEGED for program in rule.run[0]):
        return "its program needs privilege, and no rule allows tier `dangerous`"
    return ""


_SHORT = 60  # characters of an original that are repeated as the reason
_PRIVILEGED = ("sudo", "su", "doas", "pkexec", "run0", "dd", "mkfs", "shutdown", "reboot", "halt", "poweroff")


def as_toml(found: Import, kind: str) -> str:
    """Return the rules as a configuration file, each with its origin."""
    source = one_line(found.source, 200)
    lines = [
        f"# Imported from {source} ({kind}): {many(len(found.rules), 'rule')}, {len(found.left)} left out.",
        "# A rule that allows a command covers changes and execution inside the workspace. Access outside of it needs",
        "# an approval, unless `tier` names it. A rule that denies or asks finds its words in any order.",
        "# Check the rules (`agent policy lint FILE`), then copy them into your configuration.",
    ]
    if found.mode:
        lines += ["", f"mode = {_line(found.mode)}"]
    for rule in found.rules:
        lines += ["", f"# {rule.origin}", *([f"# note: {one_line(rule.note, 160)}"] if rule.note else [])]
        lines += rule_lines(rule, source)
    return "\n".join(lines) + "\n"


def rule_lines(rule: Carried, source: str) -> list[str]:
    """Return one rule as TOML."""
    lines = ["[[rule]]", f"verdict = {_line(rule.verdict.name.lower())}"]
    if rule.run:
        words = (quoted(word[0]) if len(word) == 1 else _list(word) for word in rule.run)
        lines.append(f"run = [{', '.join(words)}]")
    for key in ("tool", "read", "write", "host"):
        if values := getattr(rule, key):
            lines.append(f"{key} = {_list(values)}")
    if rule.arguments:
        pairs = ", ".join(f"{name} = {quoted(text)}" for name, text in rule.arguments)
        lines.append(f"arguments = {{ {pairs} }}")
    return [*lines, f"why = {_line(_why(rule, source))}"]


def examples_toml(found: Import) -> str:
    """Return the examples as a table for `agent policy test`."""
    lines = [f"# The examples of {one_line(found.source, 200)}, with the verdicts that its rules give them."]
    for each in found.examples:
        lines += ["", "[[test]]", f"argv = {_list(each.argv)}"]
        # `agent policy test` cannot answer questions: a rule that asks is tested as "not allowed".
        lines.append(f"verdict = {_line('not-allow' if each.verdict is Ruling.ASK else each.verdict.name.lower())}")
        lines.append(f"why = {_line(f'an example of {found.source}, {each.origin}')}")
    return "\n".join(lines) + "\n"


def as_json(found: Import, kind: str) -> dict[str, object]:
    """Return the complete result for programs."""

    def place(origin: Origin) -> dict[str, object]:
        return {"file": found.source, "line": origin.line, "text": origin.text}

    rules = [
        {
            "from": place(rule.origin),
            "verdict": rule.verdict.name.lower(),
            **({"run": [word[0] if len(word) == 1 else list(word) for word in rule.run]} if rule.run else {}),
            **{key: list(getattr(rule, key)) for key in ("tool", "read", "write", "host") if getattr(rule, key)},
            **({"arguments": dict(rule.arguments)} if rule.arguments else {}),
            "why": _why(rule, found.source),
            "note": rule.note,
        }
        for rule in found.rules
    ]
    left = [{"from": place(each.origin), "why": each.why} for each in found.left]
    examples = [
        {"from": place(each.origin), "argv": list(each.argv), "verdict": each.verdict.name.lower()}
        for each in found.examples
    ]
    return {"kind": kind, "mode": found.mode or None, "rules": rules, "left": left, "examples": examples}


def _line(text: str) -> str:
    """Return a TOML text on one line. Characters that do not print are spelled out first."""
    return quoted(one_line(text, 500))


def _why(rule: Carried, source: str) -> str:
    text, file = " ".join(rule.origin.text.split()), source.rpartition("/")[2]
    short = text if len(text) <= _SHORT and rule.origin.text.isprintable() else f"line {rule.origin.line}"
    return " ".join(rule.why.split()) or f"{short} in {file}"


def _list(texts: Iterable[str]) -> str:
    return "[" + ", ".join(quoted(text) for text in texts) + "]"
