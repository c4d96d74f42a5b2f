"""Replay: the verdicts of another policy on recorded actions, and the actions that cannot be judged. Runs nothing."""

import json
from collections.abc import Callable, Mapping
from dataclasses import field, fields, replace
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache

from policy.evaluation import EvaluationContext
from policy.flow.state import FlowMode
from policy.grants.grant import Grant
from policy.grants.resolve import resolve
from policy.model.action import ACTIONS, Action
from policy.model.assessment import Assessment, Check, RuleRef
from policy.model.facts import Facts, PathFact
from policy.model.frozen import dataclass
from policy.model.profile import Layer, PermissionRule, Profile, Source
from policy.model.tier import MATRIX, Matrix, Mode, Ruling
from policy.model.verdict import Verdict
from policy.permission.flag_rights import FlagRights
from policy.rules.rulebook import RuleBook
from runner.audit.agent_limits import agent_limit
from runner.audit.decisions import DecisionTrail, answer_source
from runner.audit.fact_recorder import lists_digest
from runner.audit.fact_replay import Recorded
from runner.audit.fields import items, mapping, number, text
from runner.audit.flow_fields import flow_state
from runner.audit.records import AnswerSource
from runner.gate.gate import ruling
from runner.gate.grants.codec import from_json

NOT_ASKED = "facts that were not requested then"  # the only kind of NotRecorded that `now` of `rejudge` can avoid
_CONTENTS = ("content", "old", "new", "prompt")  # no verdict depends on these fields, so they may be cut or masked
_DECIDING = (
    "kind",
    "action",
    "facts",
    "granted",
    "typed",
    "mode",
    "source",
    "reach",
    "redacted",
    "hooks",
    "flow",
    "limits",
)
_PARTS, _CASES = 256, 20_000  # numbers of recorded parts and of verdicts in memory

RecordedParts = Callable[[str], dict[str, object] | None]  # finds a recorded part of the facts (`AuditLog.facts`)
TodaysDisk = Callable[[str], PathFact]  # describes a path as it is today
_FLAGS = ("--read", "--write", "--host", "--env", "--server", "--hook")


@dataclass(frozen=True, slots=True)
class Policy:
    """Policy for a replay. `mode`, `unattended` and `flow` are None to use the recorded values. `most_deleted` is the
    number of files that a command may delete; 0 for no limit.
    """

    profile: Profile
    rules: RuleBook
    matrix: Matrix = field(default_factory=lambda: MATRIX)
    mode: Mode | None = None
    unattended: bool | None = None
    flow: FlowMode | None = None
    most_deleted: int = 0


@dataclass(frozen=True, slots=True)
class NotRecorded:
    """Reason why a recorded action cannot be judged again. `kind` groups equal reasons; `why` is the text."""

    kind: str
    why: str = ""


@dataclass(frozen=True, slots=True)
class NewVerdict:
    """New verdict on a recorded action.

    Attributes:
        by: grants that the verdict uses
        without: ruling without grants and without rights from flags; None if there were neither
        looked: paths looked up on today's disk because they were not requested when the action was recorded
    """

    assessment: Assessment
    verdict: Verdict
    by: tuple[Grant, ...] = ()
    without: Ruling | None = None
    looked: tuple[str, ...] = ()


class Replay:
    """Judge of the actions of one log. Equal cases are judged only once, because most actions of a log repeat earlier
    ones."""

    def __init__(self, facts: RecordedParts, now: TodaysDisk | None = None) -> None:
        """Create a judge; the arguments are those of the function `rejudge`."""
        self._facts = lru_cache(maxsize=_PARTS)(facts)
        self._now = now
        self._known: dict[tuple[int, str], NewVerdict | NotRecorded] = {}
        self._policies: dict[int, Policy] = {}

    def rejudge(self, deed: DecisionTrail, policy: Policy) -> NewVerdict | NotRecorded:
        """Return the result of the function `rejudge`."""
        if deed.session is None:
            return rejudge(deed, policy, self._facts, now=self._now)
        self._policies[id(policy)] = policy  # stored, so that no other policy gets the same id
        # The values that, with the policy, determine the verdict, including the hour, since rules may expire.
        body, session = deed.body, deed.session.body
        deciding = [*map(body.get, _DECIDING), session.get("unattended"), session.get("offset"), _tried(body)]
        key = id(policy), json.dumps([*deciding, str(body.get("time"))[:13]])
        found = self._known.get(key)
        if found is None:
            if len(self._known) >= _CASES:
                self._known.clear()
            found = self._known[key] = rejudge(deed, policy, self._facts, now=self._now)
        return found

    def facts(self, deed: DecisionTrail) -> Facts | None:
        """Return the recorded facts of a decision; None if they are not recorded. What was not asked about is told as
        missing.
        """
        try:
            day = _day(deed.body, deed.session.body) if deed.session is not None else None
            return Recorded(*_parts(deed.body, self._facts), day).facts
        except (_UnknownError, ValueError, OverflowError):
            return None


class _UnknownError(Exception):
    def __init__(self, kind: str, why: str = "") -> None:
        super().__init__(why or kind)
        self.found = NotRecorded(kind, why)


def rejudge(
    deed: DecisionTrail, policy: Policy, facts: RecordedParts, *, now: TodaysDisk | None = None
) -> NewVerdict | NotRecorded:
    """Return the verdict of `policy` on a recorded action, or the reason why the action cannot be judged.

    `facts` finds a recorded part by its name (`AuditLog.facts`). `now` describes paths on today's disk for facts that
    were not recorded; without `now`, such an action is not judged.
    """
    try:
        return _judged(deed, policy, facts, now)
    except _UnknownError as error:
        return error.found


def recorded_ruling(body: Mapping[str, object]) -> Ruling:
    """Return the recorded ruling before the answer of the user, which is not part of the policy."""
    if answer_source(body) is AnswerSource.USER or _tried(body):
        return Ruling.ASK
    return Ruling.ALLOW if body.get("verdict") == "allow" else Ruling.DENY


def _tried(body: Mapping[str, object]) -> bool:
    """Return True for the decision to run a command that a rule tries, before the question about its changes."""
    return mapping(body.get("because")).get("rule") == str(Check.TRIED)


def _judged(deed: DecisionTrail, policy: Policy, facts: RecordedParts, now: TodaysDisk | None) -> NewVerdict:
    body = deed.record.body
    if deed.record.kind != "decided":
        raise _UnknownError("an invalid call", "it never became an action")
    action = _action(body)
    machine, top, asked = _parts(body, facts)
    if machine.get("lists") != lists_digest(policy.profile):
        raise _UnknownError("other system folders", "the policy names other folders, whose content is not recorded")
    if deed.session is None:
        raise _UnknownError("no session", "the record of its session is missing")
    try:
        recorded = Recorded(machine, top, asked, _day(body, deed.session.body), now)
        grants = tuple(map(from_json, items(body.get("granted"))))
        typed = _typed(items(body.get("typed")))
        reach = body.get("reach")
        # The start of a sub-agent answers the question about its empty worktree, also if no user could be asked. What a
        # rule tries is a question whose command runs before it is put.
        open_question = answer_source(body) is AnswerSource.USER or _tried(body)
        unattended = deed.session.body.get("unattended") is True and not open_question
        context = EvaluationContext(
            facts=recorded.facts,
            rules=policy.rules,
            profile=policy.profile,
            mode=policy.mode or Mode(str(body.get("mode"))),
            environment=(),  # no verdict depends on values of variables
            source=Source(str(body.get("source"))),
            typed=typed,
            unattended=unattended if policy.unattended is None else policy.unattended,
            backend=reach if isinstance(reach, str) else None,
            matrix=policy.matrix,
            flow=flow_state(body.get("flow"), policy.flow),
            agents=tuple(agent_limit(each) for each in items(body.get("limits")) if isinstance(each, dict)),
        )
    except (ValueError, OverflowError) as error:
        raise _UnknownError("not as this version writes it", str(error)) from None
    context = context.with_rules(_rules_of_hooks(items(body.get("hooks")), action.tool))
    assessment, verdict = context.evaluate(action)
    by: tuple[Grant, ...] = ()
    without: Ruling | None = None
    if grants:
        settled = resolve(context, assessment, verdict, grants)
        without, by = ruling(verdict), settled.by
        assessment, verdict = settled.assessment, settled.verdict
    if typed is not None:
        without = ruling(replace(context, typed=None).evaluate(action)[1])
    if recorded.missing:
        raise _UnknownError(NOT_ASKED, recorded.missing[0])
    return NewVerdict(assessment, verdict, by, without, tuple(recorded.looked))


def _action(body: Mapping[str, object]) -> Action:
    found = body.get("action")
    values = dict(found) if isinstance(found, dict) else {}
    kind = ACTIONS.get(str(values.pop("type", "")))
    if kind is None:
        raise _UnknownError("not as this version writes it", "the kind of action is unknown")
    lost = body.get("redacted")
    for name, value in values.items():
        if name in _CONTENTS:
            values[name] = ""
        elif isinstance(value, dict):
            raise _UnknownError("text that was cut", f"its {name} was too long to be recorded completely")
        elif isinstance(value, list):
            values[name] = tuple(map(str, value))
    for place in lost if isinstance(lost, list) else ():
        top, _, name = str(place).partition(".")
        if top in ("granted", "typed") or (top == "action" and name not in _CONTENTS):
            raise _UnknownError("a secret was removed", f"from {name or 'the rights of flags or grants'}")
    known = {each.name: each.type for each in fields(kind)}
    if set(values) != set(known) or not all(_fits(value, known[name]) for name, value in values.items()):
        raise _UnknownError("not as this version writes it", "its action has other fields")
    return kind(**values)


def _fits(value: object, shape: object) -> bool:
    """Return True if a value from JSON has the type of a field; a float may have lost its fraction."""
    if shape == tuple[str, ...]:
        return isinstance(value, tuple)  # `_action` made it a tuple of texts
    if isinstance(value, int) and not isinstance(value, bool) and shape is not int:
        return number(value) is not None and isinstance(float(value), shape)  # type: ignore[arg-type]  # as below
    return isinstance(value, shape)  # type: ignore[arg-type]  # a class or a union of classes


def _parts(
    body: Mapping[str, object], facts: RecordedParts
) -> tuple[dict[str, object], dict[str, object], dict[str, object]]:
    names = body.get("facts")
    if not isinstance(names, list) or not names:
        raise _UnknownError("facts that were not recorded", "an older version wrote the record")
    found = {str(part.get("about")): part for name in names if (part := facts(str(name))) is not None}
    if set(found) != {"machine", "top", "asked"}:
        raise _UnknownError("facts that are missing", "the log no longer contains them, or they were changed")
    return found["machine"], found["top"], found["asked"]


def _day(body: Mapping[str, object], session: Mapping[str, object]) -> date:
    """Return the day of the decision in the time zone where it was made."""
    offset = session.get("offset")
    when = datetime.fromisoformat(str(body.get("time")).replace("Z", "+00:00")).astimezone(UTC)
    return (when + timedelta(seconds=offset if isinstance(offset, int) else 0)).date()


def _rules_of_hooks(answers: list[object], tool: str) -> tuple[PermissionRule, ...]:
    """Return the answers of hooks as the rules that they were: a replay asks no hook again."""
    found = []
    for each in map(mapping, answers):
        verdict = {"ask": Ruling.ASK, "deny": Ruling.DENY}.get(text(each.get("answer")))
        if verdict is not None:
            ref = RuleRef.parse(text(each.get("place")))
            found.append(PermissionRule(verdict, ref, Layer.HOOK, tool=(tool,), why=text(each.get("reason"))))
    return tuple(found)


def _typed(words: list[object]) -> FlagRights | None:
    """Return the rights that flags added, with empty values of variables; None without any. Raises ValueError."""
    if not words:
        return None
    values: dict[str, list[str]] = {flag: [] for flag in _FLAGS}
    for word in words:
        flag, _, value = str(word).partition(" ")
        if not isinstance(word, str) or flag not in _FLAGS:
            raise ValueError("it contains a flag that was cut or is unknown")
        values[flag].append(value)
    read, write, hosts, env, servers, hooks = map(tuple, values.values())
    server, hook = servers[0] if servers else "", hooks[0] if hooks else ""
    return FlagRights(read, write, hosts, tuple((name, "") for name in env), server=server, hook=hook)
