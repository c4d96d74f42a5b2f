"""A linter for the users' rules: dead rules, rules that another rule repeats or overrides, and misleading rules.

A misleading rule states more, or less, than it seems to.
"""

from collections.abc import Iterator, Sequence
from datetime import date
from functools import partial

from policy.model.command_pattern import is_flag
from policy.model.facts import Facts, Kind, PathFact
from policy.model.glob import glob
from policy.model.profile import Layer, PermissionRule, Profile
from policy.model.tier import Ruling, Tier
from policy.model.tool_names import SERVER, covers_names, is_pattern
from policy.permission.dead_rules import RuleFinding, Severity, faults, follow
from policy.permission.paths import holds_reading, holds_writing
from policy.rules.rulebook import RuleBook
from policy.toml.schema import similar_name

_ORDER = {severity: index for index, severity in enumerate(Severity)}
_BETWEEN = frozenset("&|;<>")  # a word that contains only these and digits is an operator of bash
_NOWHERE = Facts(
    workspace="/w",
    home="/h",
    path=(),
    system=("/usr", "/bin", "/sbin", "/lib", "/lib64", "/opt", "/etc"),
    private=(),
    look=lambda path: PathFact(path, Kind.MISSING),
    which=lambda name: None,
)


def check(
    rules: Sequence[PermissionRule], rulebook: RuleBook, today: date | None = None, profile: Profile | None = None
) -> tuple[RuleFinding, ...]:
    """Return all findings about `rules`, worst first, in the order of the files among equals.

    `rules` are those of all layers, lowest layer first; `rulebook` holds the facts about commands; `profile` names the
    secret paths.
    """
    found = [each for rule in rules for each in _alone(rule, rulebook, today, profile)]
    live = [rule for rule in rules if today is None or not rule.expired(today)]
    found += [each for index, rule in enumerate(live) for each in beside(rule, live, index)]
    place = {rule.ref: index for index, rule in enumerate(rules)}
    return tuple(sorted(dict.fromkeys(found), key=lambda one: (_ORDER[one.severity], place[one.ref])))


def _alone(
    rule: PermissionRule, rulebook: RuleBook, today: date | None, profile: Profile | None
) -> Iterator[RuleFinding]:
    if today is not None and rule.expired(today):
        text = f"the rule has expired: its last day was {rule.until}"
        yield RuleFinding(Severity.NOTICE, rule.ref, "expired", text, "remove the rule, or set a later `until`")
        return
    errors = tuple(faults(rule, rulebook, profile))
    yield from errors
    if errors:
        return
    yield from _program(rule, rulebook)
    yield from _joined(rule)
    for pattern in (*rule.read, *rule.write):
        if "{" in pattern:
            text = f"braces are not expanded in `{pattern}`"
            yield RuleFinding(Severity.WARNING, rule.ref, "braces", text, "write one pattern for each alternative")
    if rule.verdict is Ruling.ALLOW:
        yield from _broad(rule, rulebook)
    elif rule.verdict is Ruling.DENY:
        yield from _unheld(rule)


def _program(rule: PermissionRule, rulebook: RuleBook) -> Iterator[RuleFinding]:
    for program in rule.run[0] if rule.run else ():
        if "*" in program or "?" in program or "/" in program or rulebook.find(program) is not None:
            continue
        names = rulebook.names()
        swapped = (name for name in names if sorted(name) == sorted(program))  # two letters are swapped
        near = similar_name(program, names, cutoff=0.8) or next(swapped, None)
        if near:
            text = f"no command rule describes a program `{program}`, but one describes `{near}`"
            yield RuleFinding(Severity.WARNING, rule.ref, "typo", text, f"write `{near}` if that program is meant")
        elif rule.verdict is Ruling.ALLOW:
            text = f"no command rule describes `{program}`, so all it does in the project is allowed, without network"
            yield RuleFinding(Severity.WARNING, rule.ref, "no-facts", text, "allow only the words that are needed")
        else:
            text = f"no command rule describes `{program}`, so options before a subcommand are taken for it"
            fix = "check the spelling; if unsure, deny the whole program"
            yield RuleFinding(Severity.WARNING, rule.ref, "no-facts", text, fix)


def _joined(rule: PermissionRule) -> Iterator[RuleFinding]:
    """Yield findings about words that seem to match across several commands, but do not."""
    for text in (text for word in rule.run for text in word):
        if (bare := text.strip("0123456789")) and set(bare) <= _BETWEEN:
            message = f"a rule applies to one command, so `{text}` matches only as a quoted word"
            fix = "write a rule for each command; files go into `write`"
            yield RuleFinding(Severity.WARNING, rule.ref, "operator", message, fix)
            return


def _broad(rule: PermissionRule, rulebook: RuleBook) -> Iterator[RuleFinding]:
    code = "any code: it may read and change everything in the project, without network"
    warn = partial(RuleFinding, Severity.WARNING, rule.ref, "broad")
    for program in rule.run[0] if rule.run else ():
        if not program.strip("*?"):
            yield warn(f"every command may run {code}", "name the programs that are meant")
            break
        known, rest = follow(program, rule, rulebook)
        open_end = rule.more or any(not text.strip("*?") for word in rest for text in word)
        runs = known is not None and (known.interpreter or known.grammar == "sh")
        first = rest[0] if rest else ("*",)
        named = first == ("-m",) or not any(is_flag(text) or "*" in text for text in first)
        if runs and open_end and not named:
            yield warn(f"`{rule.pattern}` runs {code}", "name the script that may run")
            break
    if Tier.UNKNOWN in rule.tier and rule.more:
        text = "tier `unknown` with `**` also allows uses of this program that no command rule describes"
        yield warn(text, "name the words that are needed")
    for pattern in rule.write:
        if pattern in ("**", "*", "~/**", "/**"):
            yield warn(f"`{pattern}` matches every file", "name the folders that are meant")
    for tool in rule.tool:
        bounded = rule.run or rule.read or rule.write or rule.host or rule.arguments or rule.limits_arguments
        if is_pattern(tool) and not bounded:
            server = tool.removeprefix(SERVER).partition("__")
            if not tool.startswith(SERVER) or not server[1] or is_pattern(server[0]):
                yield warn(f"`{tool}` matches the tools of every server", "name the server: `mcp__github__*`")
    for host in rule.host:
        if host.startswith("*.") and host.count(".") == 1:
            yield warn(f"`{host}` matches most of the internet", "name the hosts that are meant")


def _unheld(rule: PermissionRule) -> Iterator[RuleFinding]:
    """Yield findings about denials that apply only to the text of a script, because the sandbox cannot enforce them."""
    kept = "the sandbox cannot prevent changes of `{}` by code that is not analysed, such as a build"
    hidden = "the sandbox cannot hide `{}`: reading a folder above it is denied, but a build can read it"
    for patterns, holds, text, example in (
        (rule.write, holds_writing, kept, "docs/**"), (rule.read, holds_reading, hidden, "private/**"),
    ):  # fmt: skip
        fix = f"name one folder, such as `{example}`, without `**` in the middle or brackets"
        if rule.run or rule.tool or rule.tier or rule.source:
            fix = "deny the path in a separate rule that names no command"
        for pattern in patterns:
            if not holds(rule, pattern, _NOWHERE):
                yield RuleFinding(Severity.WARNING, rule.ref, "parser-only", text.replace("{}", pattern), fix)
    if rule.run and not (rule.read or rule.write or rule.host):
        text = f"`{rule.pattern}` is denied where a script contains it, but not where a build runs it"
        fix = "also deny the paths to protect: a denied path applies to all code"
        yield RuleFinding(Severity.NOTICE, rule.ref, "parser-only", text, fix)


def beside(rule: PermissionRule, rules: Sequence[PermissionRule], index: int) -> Iterator[RuleFinding]:
    """Yield the findings about `rule`, which is `rules[index]`, that the other rules cause."""
    warn = partial(RuleFinding, Severity.WARNING, rule.ref)
    for place, other in enumerate(rules):
        if place == index or (rule.layer is Layer.REPOSITORY and rule.verdict is Ruling.ALLOW):
            continue
        if other.tries and not rule.tries and rule.verdict is Ruling.ASK:  # a question counts more than a try
            continue
        same = _wider(rule, other) and _wider(other, rule)
        if same and rule.verdict is not other.verdict:
            if index > place:
                strict = max(rule, other, key=lambda one: one.verdict)
                own, others = rule.word, other.word
                difference = f"its verdict is `{own}`, and {other.ref} has `{others}` for the same actions"
                text = f"{difference}; the stricter rule applies ({strict.ref})"
                yield warn("ambiguous", text, "keep one of them", other.ref)
            continue
        if other.verdict < rule.verdict or not _wider(other, rule) or (same and index < place):
            continue
        if other.verdict is rule.verdict:
            yield warn("redundant", f"{other.ref} covers the same actions, or more", "remove one of them", other.ref)
        else:
            stronger = f"{other.ref} has the stricter verdict `{other.word}` for all of its actions"
            yield warn("shadowed", f"it never takes effect: {stronger}", "remove one of them", other.ref)


def _wider(wide: PermissionRule, narrow: PermissionRule) -> bool:
    """Return True if `wide` certainly matches everything that `narrow` matches."""
    allows = wide.verdict is Ruling.ALLOW
    tiers = (_allowed(narrow), _allowed(wide)) if allows else (narrow.tier, wide.tier)
    for given, wanted in ((narrow.source, wide.source), tiers):
        if wanted and not (given and set(given) <= set(wanted)):
            return False
    if wide.tool and not (narrow.tool and all(covers_names(wide.tool, each) for each in narrow.tool)):
        return False
    for ours, theirs in ((wide.arguments, narrow.arguments), (wide.values, narrow.values), (wide.below, narrow.below)):
        if not set(ours) <= set(theirs):
            return False
    if wide.only is not None and (narrow.only is None or not set(narrow.only) <= set(wide.only)):
        return False
    if wide.until is not None and (narrow.until is None or narrow.until > wide.until):
        return False
    pairs = ((narrow.read, wide.read), (narrow.write, wide.write), (narrow.host, wide.host))
    named, meant = any(here for here, _ in pairs), any(there for _, there in pairs)
    if meant and not (named and all(_among(text, there) for here, there in pairs for text in here)):
        return False
    if allows and named and not meant:
        return False  # paths extend an allowing rule
    return _run_wider(wide, narrow)


def _allowed(rule: PermissionRule) -> tuple[Tier, ...]:
    """Return the tiers that limit an allowing rule: those named, else the defaults of a command; empty for no limit."""
    return rule.tier or ((Tier.WRITE, Tier.EXECUTE) if rule.run else ())


def _run_wider(wide: PermissionRule, narrow: PermissionRule) -> bool:
    if narrow.rights and narrow.rights != wide.rights:
        return False
    if wide.family != narrow.family and (wide.family or wide.run):
        return False
    if not wide.run:
        return not (wide.verdict is Ruling.ALLOW and narrow.run)
    if not narrow.run or len(narrow.run) < len(wide.run):
        return False
    pairs = zip(wide.run, narrow.run, strict=False)
    if not all(all(any(glob(text, each) for each in wanted) for text in given) for wanted, given in pairs):
        return False
    if wide.verdict is not Ruling.ALLOW:
        return True  # a rule that forbids matches every longer command
    return wide.more or (len(narrow.run) == len(wide.run) and not narrow.more)


def _among(text: str, patterns: Sequence[str]) -> bool:
    folders = [pattern[:-2] for pattern in patterns if pattern.endswith("/**") and "*" not in pattern[:-3]]
    return text in patterns or "**" in patterns or text.startswith(tuple(folders))
