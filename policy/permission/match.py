"""Applies the users' rules to one assessed action: denials, questions and permissions."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import IntEnum

from policy.describe.phrases import plain
from policy.model.abstract_word import AbstractWord, SourceSpan, literal
from policy.model.action import Action, CallServerTool, ReadServerResource, RunScript
from policy.model.assessment import Assessment, Effect, EffectKind, Reason, Scope, Step
from policy.model.command_pattern import broad, mentions, passed_on
from policy.model.facts import Facts, Kind
from policy.model.frozen import dataclass, replace
from policy.model.profile import Layer, PermissionRule, Source
from policy.model.secret_paths import inside
from policy.model.tier import Ruling, Tier
from policy.model.tool_arguments import argument_texts, argument_values, below_folder, canonical_value
from policy.model.tool_names import meets_name
from policy.permission.allow import Opened, about, covered, whose
from policy.permission.hosts import meets
from policy.permission.paths import absolute, holds_reading, holds_writing, touches

_CHANGES = (EffectKind.WRITES, EffectKind.DELETES)
_SPECIAL = frozenset("*?/")  # a program with one of these may match another name


SpelledArguments = Mapping[str, tuple[str, ...] | None]


class _Met(IntEnum):
    NO = 0
    MAYBE = 1  # known only at run time
    YES = 2


@dataclass(frozen=True, slots=True)
class _Meeting:
    how: _Met
    span: SourceSpan | None = None
    text: str = ""  # the reason of MAYBE


_NOT = _Meeting(_Met.NO)


def ruled(assessment: Assessment, facts: Facts, rules: Sequence[PermissionRule], source: Source) -> Assessment:
    """Return the assessment with everything that `rules` state about it: denials as reasons, questions, and
    permissions.

    INVARIANT: a rule that denies or asks makes no verdict looser. A rule that allows covers no reason of a dangerous,
    secret or denied tier, and no reason that belongs to no command unless the rule is about a path or host alone.
    """
    live = [
        rule
        for rule in rules
        if not rule.expired(facts.today) and rule.applies_to(source) and _names(rule, assessment.action.tool)
    ]
    action = assessment.action
    values = argument_values(action) if any(rule.arguments or rule.limits_arguments for rule in live) else None
    arguments = argument_texts(values) if values is not None else None
    allowing = [
        rule
        for rule in live
        if rule.verdict is Ruling.ALLOW
        and _arguments_met(rule, arguments).how is _Met.YES
        and (not rule.limits_arguments or _within_limits(rule, action, values, facts))
    ]
    # Last, so that a rule that allows counts first. One of the repository asks without covering anything.
    allowing += [rule for rule in live if rule.tries and _tries_for(rule, facts, source)]
    by, opened = covered(assessment, facts, allowing) if allowing else ({}, {})
    opened = _undenied(opened, live)
    denied: dict[Reason, None] = {}
    asked: dict[Reason, None] = {}
    tried: list[Reason] = []
    texts = _texts(assessment) if live else None
    for rule in live:
        if rule.verdict is Ruling.ALLOW or (texts is not None and not _may_meet(rule, texts)):
            continue
        met = min(_meeting(rule, assessment, facts, opened), _arguments_met(rule, arguments), key=lambda one: one.how)
        if met.how is _Met.NO:
            continue
        does = "denies" if rule.verdict is Ruling.DENY else "tries" if rule.tries else "asks before"
        subject = f"{whose(rule, facts)} {does} {about(rule)}"
        if met.how is _Met.MAYBE:
            asked[Reason(Tier.UNKNOWN, f"{subject}, and {met.text}: {rule.why}", rule.ref, met.span)] = None
        elif rule.verdict is Ruling.DENY:
            denied[Reason(Tier.DENIED, f"{subject}: {rule.why}", rule.ref, met.span)] = None
        else:
            reason = Reason(Tier.READ, f"{subject}: {rule.why}", rule.ref, met.span)
            asked[reason] = None
            if rule.tries:
                tried.append(reason)
    # INVARIANT: what only a rule that tries covers is asked about, however the two ways of matching differ.
    certain = {reason.rule for reason in tried}
    trying = {rule.ref for rule in live if rule.tries} - certain
    by = {reason: found for reason, found in by.items() if found.rule not in trying}
    reasons = (*denied, *assessment.reasons)
    return replace(
        assessment, reasons=reasons, asked=(*asked, *assessment.asked), covered=by, opened=opened, tried=tuple(tried)
    )


def _tries_for(rule: PermissionRule, facts: Facts, source: Source) -> bool:
    """Return True if a rule that tries may take the place of a question, as strictly as a rule that allows."""
    day = rule.until is None or facts.today is not None
    return day and rule.layer is not Layer.REPOSITORY and (not rule.source or source in rule.source)


def _names(rule: PermissionRule, tool: str) -> bool:
    return not rule.tool or tool in rule.tool or meets_name(rule.tool, tool, allows=rule.verdict is Ruling.ALLOW)


def _arguments_met(rule: PermissionRule, arguments: SpelledArguments | None) -> _Meeting:
    """Return the match of the conditions on arguments. A list, a table or null matches no pattern with certainty.

    THREAT T147: for a rule that forbids, one spelling that matches is enough, and case does not count.
    """
    if not rule.arguments:
        return _Meeting(_Met.YES)
    if arguments is None:
        return _Meeting(_Met.MAYBE, None, "its arguments cannot be read")
    allows, met = rule.verdict is Ruling.ALLOW, _Meeting(_Met.YES)
    for name, pattern in rule.arguments:
        spellings = arguments.get(name, ())
        if spellings is None:
            met = _Meeting(_Met.MAYBE, None, f"its argument `{plain(name)}` is not a text, a number, true or false")
            continue
        fits = [meets_name((pattern,), text, allows=allows) for text in spellings]
        if not (fits and all(fits) if allows else any(fits)):
            return _NOT
    return met


def _within_limits(rule: PermissionRule, action: Action, values: Mapping[str, object] | None, facts: Facts) -> bool:
    """Return True if the arguments of a call certainly meet `values`, `below` and `only` of a rule that allows."""
    if values is None or not isinstance(action, CallServerTool | ReadServerResource):
        return False
    if rule.only is not None and not values.keys() <= set(rule.only):
        return False
    if any(name not in values or canonical_value(values[name]) != value for name, value in rule.values):
        return False
    return all(name in values and _below(values[name], folder, facts) for name, folder in rule.below)


def _below(value: object, folder: str, facts: Facts) -> bool:
    """Return True if each path in `value` is below `folder`, both as text and after the links on this machine. A folder
    that is a link bounds nothing, because the link may lead elsewhere later.
    """
    if not below_folder(value, folder):
        return False
    if "://" in folder:
        return True
    root = absolute(folder, facts)
    if facts.look(root).real != root:
        return False
    paths = [str(path) for path in (value if isinstance(value, list) else [value])]
    return all(inside(facts.look(absolute(path, facts)).real, root) for path in paths)


def _undenied(opened: Opened, rules: Sequence[PermissionRule]) -> Opened:
    """Return `opened` without the hosts that a denial is about, for any command: a permission from another rule, or for
    one command, must not open them to code that is not read.
    """
    patterns = [host for rule in rules if rule.verdict is Ruling.DENY for host in rule.host]
    if not patterns:
        return opened
    undenied = {
        effect: tuple(host for host in hosts if not any(meets(pattern, host) for pattern in patterns))
        for effect, hosts in opened.items()
    }
    return {effect: hosts for effect, hosts in undenied.items() if hosts}


def _texts(assessment: Assessment) -> str | None:
    """Return every text in which the program of a rule may occur, or None if a word of the action may be any text."""
    found = [assessment.action.script] if isinstance(assessment.action, RunScript) else []
    for step in assessment.steps:
        if step.text or (step.words and not step.words[0].texts):
            return None
        words = (*step.words, *step.named)
        if any(word.text is None for word in words) and any(reason.uncertain for reason in step.reasons):
            return None
        found += [text for word in words for text in word.texts]
        found += step.also
    return "\0".join(found)


def _may_meet(rule: PermissionRule, texts: str) -> bool:
    """Return False if the text of the action does not name the program of the rule. A cheap first test: the
    result is False for nearly every rule.
    """
    return not rule.run or any("*" in name or "?" in name or name in texts for name in rule.run[0])


def _meeting(rule: PermissionRule, assessment: Assessment, facts: Facts, opened: Opened) -> _Meeting:
    """Return the match of all keys of the rule; any command of the action may match a key."""
    parts, steps = [], assessment.steps
    if rule.tier:
        met = _strongest(_tier_met(rule, step) for step in steps)
        # A call of a server remains one, whatever tier the user's configuration gives the tool.
        called = Tier.MCP_EXTERNAL in rule.tier and isinstance(assessment.action, CallServerTool)
        parts.append(_Meeting(_Met.YES) if called else met)
    if rule.run:
        met = _strongest(_run_met(rule, step) for step in steps)
        parts.append(_Meeting(_Met.YES) if _handed(rule, assessment) else met)
    if rule.read or rule.write or rule.host:
        parts.append(_strongest(_effects_met(rule, assessment, facts, opened)))
    if not parts:
        return _Meeting(_Met.YES)  # the rule has only `tool` or `source`
    weakest = min(parts, key=lambda part: part.how)
    return weakest if weakest.how is not _Met.YES else next((part for part in parts if part.span), weakest)


def _strongest(meetings: Iterable[_Meeting]) -> _Meeting:
    best = _NOT
    for met in meetings:
        best = max(best, met, key=lambda each: each.how)
        if best.how is _Met.YES:
            break
    return best


def _tier_met(rule: PermissionRule, step: Step) -> _Meeting:
    for reason in step.reasons:
        if reason.tier in rule.tier or (reason.bounded and Tier.UNKNOWN in rule.tier):
            return _Meeting(_Met.YES, reason.span)
    return _Meeting(_Met.MAYBE, None, "its effects cannot be read with certainty") if step.text else _NOT


def _handed(rule: PermissionRule, assessment: Assessment) -> bool:
    """Return True if a script contains the words, and a program that may run them reads the script (`echo .. | sh`)."""
    script = assessment.action.script if isinstance(assessment.action, RunScript) else ""
    interpreters = (step for step in assessment.steps if step.interprets)
    reads = any(reason.tier >= Tier.EXECUTE for step in interpreters for reason in step.reasons)
    return reads and mentions(script, rule.run)


def _run_met(rule: PermissionRule, step: Step) -> _Meeting:
    if step.text:
        if mentions(step.text, rule.run):
            return _Meeting(_Met.YES)
        return _Meeting(_Met.MAYBE, None, "the code that it runs cannot be read with certainty")
    if not step.words:
        return _NOT
    first = step.words[0]
    span = first.span
    if not first.texts:
        return _Meeting(_Met.MAYBE, span, "the program is known only at run time")
    if _program_is(rule, first) and any(broad(words, rule.run, name) for words, name in _readings(step)):
        return _Meeting(_Met.YES, span)
    if any(reason.tier in (Tier.EXECUTE, Tier.DANGEROUS, Tier.UNKNOWN) for reason in step.reasons):
        # The program may run its words as a command.
        after = step.words[1:] if step.name == 1 else step.named[step.name :]
        if passed_on(after, rule.run):
            return _Meeting(_Met.YES, span)
    unknown = any(reason.uncertain for reason in step.reasons)
    untold = next((word for word in step.words[1:] if word.text is None), None)
    if unknown and untold is not None:
        return _Meeting(_Met.MAYBE, untold.span, "a word is known only at run time")
    return _NOT


def _program_is(rule: PermissionRule, first: AbstractWord) -> bool:
    """Return False if the command cannot be one of the rule's programs. A cheap first test."""
    return any(
        not _SPECIAL.isdisjoint(name) or any(text == name or text.endswith(f"/{name}") for text in first.texts)
        for name in rule.run[0]
    )


def _readings(step: Step) -> Iterator[tuple[tuple[AbstractWord, ...], int]]:
    """Yield the words as given, unless the interpreter knows a subcommand in them, and the words as the interpreter
    understands them, in every spelling. Each comes with the number of words that name the program.
    """
    if step.name == 1:
        yield step.words, 1
    if step.named:
        yield step.named, step.name
        yield (*map(literal, step.also), *step.named[step.name :]), len(step.also)


def _effects_met(rule: PermissionRule, assessment: Assessment, facts: Facts, opened: Opened) -> Iterator[_Meeting]:
    """Yield the match of every effect of the action once, whichever commands cause the effect."""
    reading = tuple(path for path in rule.read if not holds_reading(rule, path, facts))
    writing = tuple(path for path in rule.write if not holds_writing(rule, path, facts))
    if (reading or writing or rule.host) and any(step.text for step in assessment.steps):
        yield _Meeting(_Met.MAYBE, None, "its effects cannot be read with certainty")
    for effect in assessment.effects:
        if effect.kind is EffectKind.CONNECTS or (effect.kind is EffectKind.USES_LOOPBACK and effect.target):
            yield _host_met(rule, effect, assessment, opened)
        elif effect.kind is EffectKind.READS and rule.read:
            yield _path_met(rule.read, reading, effect, assessment, facts)
        elif effect.kind in _CHANGES and rule.write:
            yield _path_met(rule.write, writing, effect, assessment, facts)


def _host_met(rule: PermissionRule, effect: Effect, assessment: Assessment, opened: Opened) -> _Meeting:
    if rule.host and opened.get(effect) and (not effect.target or effect.scope is Scope.SYSTEM):
        return _NOT  # only the opened hosts are reachable, and none of them is denied
    if rule.host and not effect.target:
        return _Meeting(_Met.MAYBE, None, "the host is known only at run time")
    fits = any(meets(host, effect.target) for host in rule.host)
    return _Meeting(_Met.YES, _span_of(effect, assessment)) if fits else _NOT


def _path_met(
    patterns: tuple[str, ...], loose: tuple[str, ...], effect: Effect, assessment: Assessment, facts: Facts
) -> _Meeting:
    """Return the match of one effect on a path. `loose` are those of `patterns` that the sandbox does not enforce."""
    reads = effect.kind is EffectKind.READS
    if not effect.target.startswith("/") or effect.scope is Scope.NONE:
        return _Meeting(_Met.MAYBE, None, "the path is known only at run time") if loose else _NOT
    vague = effect.kind is EffectKind.WRITES and not effect.exact
    if vague and not any(reason.about == effect for reason in assessment.reasons):
        # No word or redirection causes the effect: the command may change any file (`git commit`) except locked ones.
        return _Meeting(_Met.MAYBE, None, "it may change any file") if loose else _NOT
    wide = not effect.exact or facts.look(effect.target).kind is Kind.FOLDER
    for path in patterns:
        # Reading a folder does not show the paths in it that the sandbox hides.
        if touches(path, effect.target, facts, below=wide and (not reads or path in loose)):
            return _Meeting(_Met.YES, _span_of(effect, assessment))
    return _NOT


def _span_of(effect: Effect, assessment: Assessment) -> SourceSpan | None:
    return next((reason.span for reason in assessment.reasons if reason.about == effect), None)
