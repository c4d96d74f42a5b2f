"""A linter for the users' rules: rules that can never take effect, and rules that state more, or less, than they seem
to.
"""

from collections.abc import Iterator, Sequence
from datetime import date

from policy.model.command_pattern import is_flag
from policy.model.facts import Facts, Kind, PathFact
from policy.model.profile import PermissionRule, Profile
from policy.model.tier import Ruling, Tier
from policy.permission.dead_rules import faults, follow
from policy.permission.finding import RuleFinding as RuleFinding
from policy.permission.finding import Severity as Severity
from policy.permission.overlap import beside
from policy.permission.path_denials import holds_reading, holds_writing
from policy.rules.rulebook import RuleBook

_ORDER = {severity: index for index, severity in enumerate(Severity)}
_BETWEEN = frozenset("&|;<>")  # a word of these and digits alone is an operator of bash
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
    rules: Sequence[PermissionRule],
    rulebook: RuleBook,
    today: date | None = None,
    profile: Profile | None = None,
) -> tuple[RuleFinding, ...]:
    """Return all findings about `rules`, worst first, in the order of the files among equals.

    `rules` are those of all layers, lowest layer first; `rulebook` holds the facts about commands; `profile` names the
    secret paths.
    """
    found = [finding for rule in rules for finding in _alone(rule, rulebook, today, profile)]
    live = [rule for rule in rules if today is None or not rule.expired(today)]
    found += [finding for index, rule in enumerate(live) for finding in beside(rule, live, index)]
    place = {rule.ref: index for index, rule in enumerate(rules)}
    return tuple(sorted(dict.fromkeys(found), key=lambda one: (_ORDER[one.severity], place[one.ref])))


def _alone(
    rule: PermissionRule, rulebook: RuleBook, today: date | None, profile: Profile | None
) -> Iterator[RuleFinding]:
    if today is not None and rule.expired(today):
        yield _say(
            Severity.NOTICE, "expired", rule, f"its last day was {rule.until}", "remove it, or give it a later day"
        )
        return
    found = tuple(faults(rule, rulebook, profile))
    yield from found
    if found:
        return
    yield from _program(rule, rulebook)
    yield from _joined(rule)
    for pattern in (*rule.read, *rule.write):
        if "{" in pattern:
            yield _say(
                Severity.WARNING, "braces", rule, f"in `{pattern}` braces mean themselves", "write one pattern for each"
            )
    if rule.verdict is Ruling.ALLOW:
        yield from _broad(rule, rulebook)
    elif rule.verdict is Ruling.DENY:
        yield from _unheld(rule)


def _say(
    severity: Severity, code: str, rule: PermissionRule, text: str, fix: str, other: PermissionRule | None = None
) -> RuleFinding:
    return RuleFinding(severity, code, rule.ref, text, fix, other.ref if other else None)


def _program(rule: PermissionRule, rulebook: RuleBook) -> Iterator[RuleFinding]:
    for program in rule.run[0] if rule.run else ():
        if "*" in program or "?" in program or "/" in program or rulebook.find(program) is not None:
            continue
        from difflib import get_close_matches  # only for complaints

        names = rulebook.names()
        near = get_close_matches(program, names, n=1, cutoff=0.8)
        near = near or [name for name in names if sorted(name) == sorted(program)]  # two letters that changed places
        if near:
            text = f"nothing is known about a program `{program}`, but about `{near[0]}`"
            yield _say(Severity.WARNING, "typo", rule, text, f"if you mean it, write `{near[0]}`")
        elif rule.verdict is Ruling.ALLOW:
            text = f"nothing is known about `{program}`, so whatever it does in the project is allowed, without network"
            yield _say(Severity.WARNING, "no-facts", rule, text, "allow only the words that you need")
        else:
            text = f"nothing is known about `{program}`, so options before a subcommand are not told from it"
            yield _say(
                Severity.WARNING, "no-facts", rule, text, "check the spelling; deny the program as a whole if unsure"
            )


def _joined(rule: PermissionRule) -> Iterator[RuleFinding]:
    """Yield findings about words that seem to match across several commands, but do not."""
    for text in (text for word in rule.run for text in word):
        if (bare := text.strip("0123456789")) and set(bare) <= _BETWEEN:
            message = f"a rule is about one command, so `{text}` is only met as a quoted word"
            fix = "write a rule for each command; files go into `write`"
            yield _say(Severity.WARNING, "operator", rule, message, fix)
            return


def _broad(rule: PermissionRule, rulebook: RuleBook) -> Iterator[RuleFinding]:
    code = "any code: it may read and change everything in the project, without network"

    def warn(text: str, fix: str) -> RuleFinding:
        return _say(Severity.WARNING, "broad", rule, text, fix)

    for program in rule.run[0] if rule.run else ():
        if not program.strip("*?"):
            yield warn(f"every command may run {code}", "name the programs that you mean")
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
        text = "tier `unknown` with `**` allows also what nobody knows about this program"
        yield warn(text, "name the words that you need")
    for pattern in rule.write:
        if pattern in ("**", "*", "~/**", "/**"):
            yield warn(f"`{pattern}` is every file there", "name the folders that you mean")
    for host in rule.host:
        if host.startswith("*.") and host.count(".") == 1:
            yield warn(f"`{host}` is most of the internet", "name the hosts that you mean")


def _unheld(rule: PermissionRule) -> Iterator[RuleFinding]:
    """Yield findings about denials that apply to words that can be read, and not to the behaviour of other code."""
    for pattern in rule.write:
        if not holds_writing(rule, pattern, _NOWHERE):
            text = f"the sandbox cannot keep `{pattern}` from being changed by code that nobody reads, such as a build"
            yield _say(Severity.WARNING, "parser-only", rule, text, _simpler(rule, "docs/**"))
    for pattern in rule.read:
        if not holds_reading(rule, pattern, _NOWHERE):
            text = f"the sandbox cannot hide `{pattern}`: looking at a folder above is denied, and a build can read it"
            yield _say(Severity.WARNING, "parser-only", rule, text, _simpler(rule, "private/**"))
    if rule.run and not (rule.read or rule.write or rule.host):
        text = f"`{rule.pattern}` is denied where a script says it; a build that runs it is not seen"
        fix = "deny the paths that matter, too: those hold for any code"
        yield _say(Severity.NOTICE, "parser-only", rule, text, fix)


def _simpler(rule: PermissionRule, example: str) -> str:
    if rule.run or rule.tool or rule.tier or rule.source:
        return "deny the path by a rule of its own, whatever the command"
    return f"name one folder, such as `{example}`, without `**` in the middle or brackets"
