"""Findings about the users' rules, and the rules that can never take effect.

Each of these rules is an error, so that no rule is mistaken for a protection.
"""

import re
from collections.abc import Iterator
from enum import StrEnum
from functools import partial
from itertools import pairwise, takewhile

from policy.describe.phrases import secret_kind
from policy.model.assessment import RuleRef
from policy.model.command_pattern import is_flag
from policy.model.frozen import dataclass
from policy.model.profile import REST, Layer, PermissionRule, Profile, Tool
from policy.model.secret_paths import Secrets
from policy.model.tier import Ruling, Tier
from policy.model.tool_names import meets_name, names_language_server, names_server_tools
from policy.model.verdict import Problem
from policy.permission.allow import BY_TOOL, NEVER, OF_SERVER
from policy.rules.rule import CommandRule
from policy.rules.rulebook import RuleBook


class Severity(StrEnum):
    """The severity of a finding: an error keeps a user's file from being loaded, a notice only informs."""

    ERROR = "error"
    WARNING = "warning"
    NOTICE = "notice"


@dataclass(frozen=True, slots=True)
class RuleFinding:
    """One finding about one rule.

    Attributes:
        code: a stable identifier of the kind of finding.
        text: the finding as text for the user.
        fix: the fix as text for the user.
        other: the second rule, if the finding is about two.
    """

    severity: Severity
    ref: RuleRef
    code: str
    text: str
    fix: str
    other: RuleRef | None = None


WRAPPERS = frozenset(["env", "xargs", "command", "exec", "eval"])
_NAME = r"(?:\*\.)?[a-z0-9*?_-]+(?:\.[a-z0-9*?_-]+)*\.?"
_HOST = re.compile(rf"{_NAME}(?::[0-9]+)?|\[[0-9a-f:]+\](?::[0-9]+)?|[0-9a-f:]*:[0-9a-f:]+")
_READING = frozenset([Tool.READ, Tool.EDIT, Tool.GLOB, Tool.GREP, Tool.LS, Tool.BASH])
_WRITING = frozenset([Tool.WRITE, Tool.EDIT, Tool.BASH])
_CONNECTING = frozenset([Tool.BASH, Tool.WEB_FETCH, Tool.WEB_SEARCH])
# The tools of the program that have arguments for conditions (`policy.model.tool_arguments`).
_ARGUMENTS: dict[str, tuple[str, ...]] = {
    Tool.AGENT.value: ("agent", "mode"),
    Tool.WEB_FETCH.value: ("url",),
    Tool.WEB_SEARCH.value: ("query", "provider"),
}


def faults(rule: PermissionRule, rulebook: RuleBook, profile: Profile | None = None) -> Iterator[RuleFinding]:
    """Yield every reason why `rule`, or a part of it, can never take effect."""
    fault = partial(RuleFinding, Severity.ERROR, rule.ref)
    for pattern in (*rule.read, *rule.write):
        if why := _path_fault(pattern):
            yield fault("path", f"no path can match `{pattern}`: {why[0]}", why[1])
    for host in rule.host:
        if rule.verdict is Ruling.ALLOW:
            from policy.model.host_rule import host_rule  # imported here: only rules about hosts need it

            if isinstance(found := host_rule(host), Problem):
                yield fault("host", f"{found.what}: {found.why}", found.fix)
        elif not _HOST.fullmatch(host):
            fix = 'write only the host, such as "example.com" or "*.example.com"'
            yield fault("host", f"`{host}` is not the name of a host", fix)
    if any(REST in word for word in rule.run):
        text = "`**` matches all further words, so no word may follow it"
        yield fault("rest", text, "make `**` the last word")
    for program in rule.run[0] if rule.run else ():
        if any(char.isspace() for char in program):
            words = ", ".join(f'"{word}"' for word in program.split())
            yield fault("blank", f"no program is named `{program}`", f"write each word in quotes: run = [{words}]")
    if rule.family and rule.family not in (families := rulebook.families()):
        fix = f"the families are {', '.join(f'`{name}`' for name in families)}"
        yield fault("family", f"there is no family `{rule.family}`", fix)
    yield from _rights_faults(rule, profile)
    yield from _tool_faults(rule)
    if rule.verdict is Ruling.ALLOW:
        yield from _allow_faults(rule, rulebook, profile)


def _rights_faults(rule: PermissionRule, profile: Profile | None) -> Iterator[RuleFinding]:
    fault = partial(RuleFinding, Severity.ERROR, rule.ref)
    for text in rule.rights:
        flag, _, target = text.partition(" ")
        if flag == "--host":
            from policy.model.host_rule import host_rule  # imported here: only rules about hosts need it

            if isinstance(found := host_rule(target), Problem):
                yield fault("host", f"{found.what}: {found.why}", found.fix)
            continue
        if why := _path_fault(target):
            yield fault("path", f"no right can name `{target}`: {why[0]}", why[1])
        elif not target.startswith(("/", "~/")) or "*" in target or "?" in target:
            yield fault("path", f"`{target}` is not one path outside of the workspace", "write it from `/` or `~/` on")
        elif profile is not None and _secret(target, Secrets(profile, "/~", ())):
            yield fault("secret", f"`{target}` is {secret_kind(target)}; no rule allows it", "remove it")


def _tool_faults(rule: PermissionRule) -> Iterator[RuleFinding]:
    fault = partial(RuleFinding, Severity.ERROR, rule.ref)
    names = ", ".join(f"`{tool}`" for tool in rule.tool)
    for given, key, does in (
        (bool(rule.run), "run", frozenset([Tool.BASH])),
        (bool(rule.host), "host", _CONNECTING),
        (bool(rule.read) and not rule.write, "read", _READING),
        (bool(rule.write) and not rule.read, "write", _WRITING),
    ):
        if given and rule.tool and not any(meets_name(rule.tool, tool.value, allows=False) for tool in does):
            fix = f"remove `tool`, or name {' or '.join(f'`{tool.value}`' for tool in sorted(does))}"
            yield fault("tool", f"`{key}` never applies to the tool {names}", fix)
    if not rule.arguments:
        return
    if rule.run or rule.read or rule.write:
        text = "a command or a file tool has no `arguments`, so the rule never applies"
        yield fault("arguments", text, "remove `arguments`, or remove `run`, `read` and `write`")
    for tool in rule.tool or ("",):
        known = [name for name, _ in _ARGUMENTS.items() if meets_name((tool,), name, allows=False)]
        if not known and not (tool and names_server_tools(tool)):
            text = f"`arguments` never applies to the tool `{tool}`" if tool else "`arguments` needs `tool`"
            yield fault("arguments", text, 'name the tools that have these arguments: tool = ["mcp__github__*"]')
            continue
        for name, _ in rule.arguments:
            wanted = [each for each in known if name in _ARGUMENTS[each]]
            if known and not wanted and not names_server_tools(tool):
                listed = ", ".join(f"`{each}`" for each in _ARGUMENTS[known[0]])
                yield fault("arguments", f"the tool `{known[0]}` has no argument `{name}`", f"it has {listed}")


def _path_fault(pattern: str) -> tuple[str, str] | None:
    """Return the reason why no path matches `pattern`, and the fix; None if a path may match."""
    first, *rest = parts = pattern.split("/")
    # fmt: off
    checks = (
        (pattern in ("/", "~", "~/", ""), "a whole root or home folder is not a pattern", "name a folder inside it"),
        (pattern.endswith("/"), "paths do not end in `/`", f"write `{pattern}**` for everything in the folder"),
        (first.startswith("~") and first != "~", "only your own home is known, as `~/`", "write the absolute path"),
        ("." in parts or ".." in parts, "`.` and `..` are resolved before the comparison", "write the resolved path"),
        ("" in rest, "it contains `//`", "write a single `/`"),
        (any("**" in part and part != "**" for part in parts), "`**` matches whole names only",
         "put `**` between two `/`, or write one `*` within a name"),
        (("**", "**") in pairwise(parts), "two `**` in a row match the same as one", "remove one of them"),
    )
    # fmt: on
    return next(((why, fix) for wrong, why, fix in checks if wrong), None)


def _allow_faults(rule: PermissionRule, rulebook: RuleBook, profile: Profile | None) -> Iterator[RuleFinding]:
    fault = partial(RuleFinding, Severity.ERROR, rule.ref)
    if rule.layer is Layer.REPOSITORY:
        fix = "copy the rule into your own configuration if it is intended"
        yield fault("repository", "a rule of the repository may ask and deny, but not allow", fix)
    if not any((rule.run, rule.read, rule.write, rule.host)):
        called = [
            tool for tool in rule.tool if tool == Tool.AGENT or names_server_tools(tool) or names_language_server(tool)
        ]
        if not called or len(called) < len(rule.tool):
            fix = "name a command, a path, a host or the tool of a server, or choose another --mode"
            yield fault("allow-what", "a tool or a tier alone limits the rule to no command, path or host", fix)
            return
        usable = BY_TOOL | OF_SERVER if any(map(names_server_tools, called)) else BY_TOOL
        usable |= {Tier.EXECUTE} if any(map(names_language_server, called)) else frozenset()
        if rule.tier and not set(rule.tier) & usable:
            labels = ", ".join(f"`{tier.label}`" for tier in sorted(usable))
            yield fault("tier", f"calls of these tools have the tiers {labels}", "remove `tier`, or name one of them")
        return
    for tier in rule.tier:
        if tier in NEVER:
            yield fault("never", f"no rule allows tier `{tier.label}`", "remove it; the user is asked each time")
    if rule.tier and not set(rule.tier) - NEVER - {Tier.READ}:
        return
    by_paths = {Tier.READ_OUTSIDE} if rule.read else set()
    by_paths |= {Tier.WRITE, Tier.WRITE_OUTSIDE} if rule.write else set()
    by_paths |= {Tier.NETWORK} if rule.host else set()
    if rule.tier and not rule.run and not set(rule.tier) & by_paths:
        fix = "name the command with `run`, or remove `tier`"
        yield fault("tier", "none of its tiers applies to its paths and hosts", fix)
    if rule.run and all("*" not in word and "?" not in word for word in rule.run[0]):
        found = [why for word in rule.run[0] if (why := _never_run(word, rule, rulebook))]
        if len(found) == len(rule.run[0]):
            yield fault("never", *found[0])
    if profile is not None:
        secrets = Secrets(profile, "/~", ())
        for pattern in (*rule.read, *rule.write):
            if _secret(pattern, secrets):
                text = f"`{pattern}` is {secret_kind(pattern)}; no rule allows it"
                yield fault("secret", text, "remove it")


def _secret(pattern: str, secrets: Secrets) -> bool:
    parts = (f"/{pattern}" if pattern.startswith("~/") else pattern).split("/")
    path = "/".join(takewhile(lambda part: "*" not in part, parts))
    last = pattern.rpartition("/")[2]
    named = "*" not in last and "?" not in last and secrets.named(last)
    return named or (path.startswith("/") and len(path) > 1 and secrets.holds_folder(path))


def _never_run(program: str, rule: PermissionRule, rulebook: RuleBook) -> tuple[str, str] | None:
    """Return text and fix if an allow of `program` with the words of `rule` changes nothing, else None."""
    known, rest = follow(program, rule, rulebook)
    if known is None:
        return None
    tiers: list[tuple[str, Tier | None]] = [(known.name, known.tier)]
    flags = [word[0] for word in rest if len(word) == 1 and is_flag(word[0])]
    for flag in flags:
        if fact := known.flags.get(flag.partition("=")[0]):
            tiers.append((f"{known.name} {flag}", fact.tier))
    for label, tier in tiers:
        if tier is not None and tier in NEVER:
            return f"`{label}` is tier `{tier.label}`, which no rule allows", "remove it; the user is asked each time"
    shell = known.grammar == "sh" and any("-c" in word for word in rest[:1])
    wraps = known.grammar in WRAPPERS or known.operands.runs or shell
    plain = known.tier is Tier.READ and not known.interpreter and not (rule.tier or rule.write or rule.read)
    if not wraps or not plain:
        return None
    text = f"what `{known.name}` runs is judged separately, so this rule allows nothing"
    return text, "write a rule for the command that it runs"


def follow(
    program: str, rule: PermissionRule, rulebook: RuleBook
) -> tuple[CommandRule | None, tuple[tuple[str, ...], ...]]:
    """Return the facts about the command that `rule` names, down to the subcommand, and the words after it. The rule
    is None if there are no facts.
    """
    known = rulebook.find(program.rpartition("/")[2] if program.startswith("/") else program)
    rest = rule.run[1:]
    while known is not None and known.subs and rest and len(rest[0]) == 1 and rest[0][0] in known.subs:
        known, rest = known.subs[rest[0][0]], rest[1:]
    return known, rest
