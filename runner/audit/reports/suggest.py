"""Search for rules that would have settled recorded questions and denials: candidates are derived, combined and tried.

The search changes nothing. Each rule is tried on the recorded actions that it was derived from. Other actions that the
rule would allow are searched for in the log, in the examples of the rule files, and among scripts similar to the
recorded ones.
"""

import shlex
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import field, replace
from itertools import islice

from policy.decide import open_reasons
from policy.evaluation import EvaluationContext
from policy.grants.near_misses import beyond_family
from policy.model.action import RunScript
from policy.model.assessment import Assessment, EffectKind, Reason
from policy.model.frozen import dataclass
from policy.model.profile import PermissionRule
from policy.model.tier import Mode, Tier
from policy.model.verdict import Allow, Deny
from policy.permission.dead_rules import RuleFinding, Severity
from policy.permission.lint import check
from runner.audit.decisions import DecisionTrail
from runner.audit.fields import items, mapping, text
from runner.audit.list_view import action_line
from runner.audit.query import was_question
from runner.audit.reports.replay import NewVerdict, NotRecorded, Policy, RecordedParts, Replay
from runner.audit.reports.stats import answer_of
from runner.audit.reports.suggest_rules import SuggestedRule, combine, command_lines, parse_rules, probes, wider
from runner.gate.suggest import no_rule_lifts, read_rules, suggested
from runner.text.sanitize import look_alikes

_SHOWN = 2  # near misses in a report
_NEIGHBOURS = 6  # commands beside a family that are tried
_DIFFERS = "the answers differ"
_SETTLED = "allowed by the current configuration"
_NEVER = "no rule can allow it"
_INEXACT = "no rule matches exactly this action"


@dataclass(frozen=True, slots=True)
class Besides:
    """Action that a rule would newly allow. `source` is `log`, `examples` or `near`; `record` is its id in the log, if
    any.
    """

    source: str
    action: str
    record: int = 0


@dataclass(frozen=True, slots=True)
class Suggestion:
    """A rule and the records that it settles.

    Attributes:
        others: records that the rule settles together with further rules of the same report
        answers: number of records by answer: `yes`, `no`, `nobody`, or `denied` if there was no question
        besides: further actions that the rule would allow
        refused: near misses, which the rule would not allow
        notes: warnings of the rule checker
        wider: the same suggestion with a pattern instead of many alternatives, or None
    """

    rule: SuggestedRule
    records: tuple[int, ...]
    others: tuple[int, ...]
    answers: tuple[tuple[str, int], ...]
    workspaces: tuple[str, ...]
    besides: tuple[Besides, ...] = ()
    refused: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    wider: "Suggestion | None" = None


@dataclass(frozen=True, slots=True)
class Left:
    """Records without a suggestion, and the reason. `about` is the tier, the kind of a NotRecorded, or empty."""

    why: str
    about: str
    records: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class SuggestionReport:
    """Result of a search."""

    looked: int  # number of questions and denials that were considered
    more: bool  # True if there are older questions or denials
    suggestions: tuple[Suggestion, ...]
    left: tuple[Left, ...]
    examples: int  # number of examples of the rule files on which rules were tried


@dataclass(slots=True)
class _Case:
    """Recorded question or denial, with the rules that would settle it."""

    deed: DecisionTrail
    policy: Policy
    answer: str
    line: str
    rules: tuple[SuggestedRule, ...] = ()
    family: SuggestedRule | None = None  # the rule about the family of reading commands that the action belongs to

    @property
    def number(self) -> int:
        return self.deed.record.id


@dataclass(frozen=True, slots=True)
class _Places:
    workspace: str
    home: str


@dataclass(slots=True)
class Search:
    """A search for rules that would settle recorded questions and denials.

    `context` evaluates examples and near misses in the folder where the search is started.
    """

    facts: RecordedParts
    policy_of: Callable[[DecisionTrail], Policy | NotRecorded]
    context: EvaluationContext
    examples: Sequence[str]
    left: defaultdict[tuple[str, str], list[int]] = field(default_factory=lambda: defaultdict(list))
    _tried: dict[tuple[int, tuple[SuggestedRule, ...]], Policy] = field(default_factory=dict)
    _today: dict[str, bool] = field(default_factory=dict)  # by script: True if it is allowed without a new rule

    _replay: Replay = field(init=False)

    def __post_init__(self) -> None:
        self._replay = Replay(self.facts)

    def report(self, deeds: Iterable[DecisionTrail], *, limit: int, least: int) -> SuggestionReport:
        """Return the rules for the newest `limit` questions and denials of `deeds`; each settles at least `least`
        records.
        """
        looked, more, cases = 0, False, []
        for deed in deeds:
            if not _unsettled(deed):
                continue
            if looked == limit:
                more = True
                break
            looked += 1
            case = self._case(deed)
            if case is not None:
                cases.append(case)
        cases = list(self._agreed(cases))
        _join_families(cases)
        whole = combine(rule for case in cases for rule in case.rules)
        for case in cases:
            case.rules = tuple(dict.fromkeys(whole[rule] for rule in case.rules))
        cases = [case for case in cases if self._settled(case)]
        by_rule: defaultdict[SuggestedRule, list[_Case]] = defaultdict(list)
        for case in cases:
            for rule in case.rules:
                by_rule[rule].append(case)
        enough = {rule: found for rule, found in by_rule.items() if len(found) >= least}
        for rule, found in by_rule.items():
            if rule not in enough:
                self.left["fewer records than --min", ""] += [case.number for case in found]
        made = [self._suggestion(rule, found, cases) for rule, found in enough.items()]
        made.sort(key=lambda each: (-len(each.records) - len(each.others), each.rule.verdict, each.rule.subject()))
        left = tuple(Left(why, about, tuple(sorted(set(ids)))) for (why, about), ids in sorted(self.left.items()))
        return SuggestionReport(looked, more, tuple(made), left, len(self.examples))

    def _case(self, deed: DecisionTrail) -> _Case | None:
        body, number = deed.record.body, deed.record.id
        policy = self.policy_of(deed)
        again = self._rejudge(deed, policy) if isinstance(policy, Policy) else policy
        if isinstance(again, NotRecorded) or isinstance(policy, NotRecorded):
            why = again.kind if isinstance(again, NotRecorded) else ""
            self.left["it cannot be judged again", why].append(number)
            return None
        answer = answer_of(body) if was_question(body) else "denied"
        verdict, assessment = again.verdict, again.assessment
        if isinstance(verdict, Allow):
            self.left[_SETTLED, ""].append(number)
            return None
        beyond = no_rule_lifts(assessment)
        if beyond is not None:
            self.left[_NEVER, beyond.label].append(number)
            return None
        mode = policy.mode or Mode(text(body.get("mode")))
        parts = (self.facts(str(name)) for name in items(body.get("facts")))
        machine = next((part for part in parts if part is not None and part.get("about") == "machine"), {})
        places = _Places(text(machine.get("workspace")), text(machine.get("home")))
        said = suggested(assessment, open_reasons(assessment, mode), places)
        if said is None:
            self.left[_INEXACT, text(mapping(body.get("cell")).get("tier"))].append(number)
            return None
        line = action_line(deed).removeprefix("$ ")
        rules = parse_rules(said, "deny" if answer == "no" else "allow")
        if answer == "no":
            rules = tuple(replace(rule, why="a user refused it") for rule in rules)
        return _Case(deed, policy, answer, line, rules, _family_rule(assessment, open_reasons(assessment, mode)))

    def _agreed(self, cases: Sequence[_Case]) -> Iterator[_Case]:
        """Yield the cases, except those with a rule that both a refused case and a case with another answer suggest."""
        denied = {
            replace(rule, verdict="allow", why="") for case in cases for rule in case.rules if case.answer == "no"
        }
        wanted = {rule for case in cases for rule in case.rules if case.answer != "no"}
        both = denied & wanted
        for case in cases:
            if both & {replace(rule, verdict="allow", why="") for rule in case.rules}:
                self.left[_DIFFERS, ""].append(case.number)
            else:
                yield case

    def _settled(self, case: _Case) -> bool:
        """Return True if the rules of the case settle it without a user."""
        done = self._allows(case.rules, case)
        if case.answer == "no":  # without a user every question is denied: this rule must be the reason
            again = self._rejudge(case.deed, case.policy, case.rules)
            verdict = again.verdict if isinstance(again, NewVerdict) else None
            done = isinstance(verdict, Deny) and verdict.cell.tier is Tier.DENIED
        done = done and not any(self._refused(rule) for rule in case.rules)
        if not done:
            self.left[_INEXACT, text(mapping(case.deed.record.body.get("cell")).get("tier"))].append(case.number)
        return done

    def _suggestion(self, rule: SuggestedRule, found: Sequence[_Case], cases: Sequence[_Case]) -> Suggestion:
        alone = tuple(sorted(case.number for case in found if case.rules == (rule,)))
        others = tuple(sorted(case.number for case in found if case.rules != (rule,)))
        answers: defaultdict[str, int] = defaultdict(int)
        for case in found:
            answers[case.answer] += 1
        places = tuple(sorted({text(case.deed.start.get("workspace")) for case in found if case.deed.session}))
        made = Suggestion(rule, alone, others, tuple(sorted(answers.items())), places, notes=self._notes(rule))
        if rule.verdict == "deny":
            return made
        besides, refused = self._around(rule, found, cases)
        made = replace(made, besides=besides, refused=refused)
        for wide in wider(rule):
            if wide.tool and any(case.answer == "no" and self._allows((wide,), case) for case in cases):
                continue  # a user refused a call of this tool
            if not self._refused(wide) and all(self._allows((wide,), case) for case in found if case.rules == (rule,)):
                besides, refused = self._around(wide, found, cases)
                more = replace(made, rule=wide, besides=besides, refused=refused, notes=self._notes(wide))
                return replace(made, wider=more)
        return made

    def _allows(self, rules: tuple[SuggestedRule, ...], case: _Case) -> bool:
        again = self._rejudge(case.deed, case.policy, rules)
        return isinstance(again, NewVerdict) and isinstance(again.verdict, Allow)

    def _around(
        self, rule: SuggestedRule, found: Sequence[_Case], cases: Sequence[_Case]
    ) -> tuple[tuple[Besides, ...], tuple[str, ...]]:
        """Return other actions that the rule would allow, and similar ones that it would not."""
        own = {case.line for case in found} | set(command_lines(rule))
        besides = [
            Besides("log", case.line, case.number)
            for case in cases
            if case.line not in own
            and (rule.tool or self._likely(rule, case.line))  # a line of a call may lack the tool
            and self._allows((rule,), case)
        ]
        more = read_rules(rule.text())
        besides += [
            Besides("examples", script)
            for script in dict.fromkeys(self.examples)
            if script not in own and self._likely(rule, script) and self._newly(script, more)
        ]
        tried = probes(rule)
        if rule.family:
            words = tuple(shlex.split(found[0].line))
            tried = map(shlex.join, islice(beyond_family(words, rule.family, self.context.rules), _NEIGHBOURS))
        near = [(script, self._newly(script, more)) for script in tried if script not in own]
        besides += [Besides("near", script) for script, allowed in near if allowed]
        refused = [script for script, allowed in near if not allowed and not self._allowed(script)]
        return tuple(besides), tuple(refused[:_SHOWN])

    def _likely(self, rule: SuggestedRule, line: str) -> bool:
        """Return False if the rule cannot match the script `line`. The check is fast, and saves an evaluation."""
        if rule.family:
            return any(program in line for program in self.context.rules.families().get(rule.family, ()))
        if rule.run:
            return any(word in line for word in rule.run[0])
        if rule.host:
            return any(host.split()[0].lstrip("*.") in line for host in rule.host)
        return any(path.removesuffix("**").removeprefix("~/") in line for path in (*rule.write, *rule.read))

    def _allowed(self, script: str) -> bool:
        if script not in self._today:
            self._today[script] = self._may(script, ())
        return self._today[script]

    def _newly(self, script: str, more: tuple[PermissionRule, ...]) -> bool:
        """Return True if, without a user, the action is allowed with the rules `more` and not without them."""
        return not self._allowed(script) and self._may(script, more)

    def _may(self, script: str, more: tuple[PermissionRule, ...]) -> bool:
        action = RunScript(script, self.context.facts.workspace)
        return isinstance(self.context.evaluate(action, more, unattended=True)[1], Allow)

    def _findings(self, rule: SuggestedRule) -> tuple[RuleFinding, ...]:
        return check(read_rules(rule.text()), self.context.rules, None, self.context.profile)

    def _refused(self, rule: SuggestedRule) -> bool:
        """Return True if a configuration file with this rule would not load."""
        return any(finding.severity is Severity.ERROR for finding in self._findings(rule))

    def _notes(self, rule: SuggestedRule) -> tuple[str, ...]:
        warned = [finding.text for finding in self._findings(rule) if finding.severity is Severity.WARNING]
        return (*warned, *(f"a letter that looks like another: {each}" for each in look_alikes(rule.subject())))

    def _rejudge(
        self, deed: DecisionTrail, policy: Policy, rules: tuple[SuggestedRule, ...] = ()
    ) -> NewVerdict | NotRecorded:
        """Judge an action again with further rules."""
        key = id(policy), rules  # `_replay` stores each policy, so that no other policy gets its id
        if rules and key not in self._tried:
            more = tuple(each for rule in rules for each in read_rules(rule.text()))
            profile = replace(policy.profile, permissions=(*policy.profile.permissions, *more))
            self._tried[key] = replace(policy, profile=profile, unattended=True)
        return self._replay.rejudge(deed, self._tried[key] if rules else policy)


def _unsettled(deed: DecisionTrail) -> bool:
    """Return True for a question without an answer by a rule, flag or grant, and for a denial without a question."""
    body = deed.record.body
    if deed.record.kind != "decided":
        return False
    if was_question(body):
        return answer_of(body) in ("yes", "no", "nobody")
    return body.get("verdict") == "deny"


def _family_rule(assessment: Assessment, wanted: Iterable[Reason]) -> SuggestedRule | None:
    """Return the rule about the family on its hosts, if each command behind the reasons `wanted` belongs to it."""
    reasons = set(wanted)
    steps = [step for step in assessment.steps if not reasons.isdisjoint(step.reasons)]
    families = {step.family for step in steps}
    hosts = {effect.target for step in steps for effect in step.effects if effect.kind is EffectKind.CONNECTS}
    family = families.pop() if len(families) == 1 else ""
    return SuggestedRule("allow", host=tuple(sorted(hosts)), family=family) if family and hosts and all(hosts) else None


def _join_families(cases: Sequence[_Case]) -> None:
    """Replace the exact rules of approved actions by a rule about their family, where at least two different actions
    of the family were approved and none was refused.
    """
    refused = {case.family for case in cases if case.answer == "no"}
    approved: defaultdict[SuggestedRule, list[_Case]] = defaultdict(list)
    for case in cases:
        if case.answer == "yes" and case.family is not None and case.family not in refused:
            approved[case.family].append(case)
    for rule, found in approved.items():
        if len({case.rules for case in found}) > 1:
            for case in found:
                case.rules = (rule,)
