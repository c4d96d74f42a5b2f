"""Decoder of recorded decisions: the values of a decision, as far as its record holds them.

Decoding never raises: a record of another version, or a modified record, yields fewer values. Text that was cut when it
was recorded ends with an ellipsis.
"""

from dataclasses import MISSING, fields, replace

from policy.model.abstract_word import SourceSpan
from policy.model.action import ACTIONS, Action
from policy.model.assessment import Effect, EffectKind, Reason, RuleRef, Scope
from policy.model.tier import Mode, Ruling, Tier
from policy.model.verdict import Cell, Limits, Problem, Rights, Terms
from runner.audit.fields import Body, items, mapping, number, text, texts
from runner.gate.explain import Explanation

_TIERS = {tier.label: tier for tier in Tier}


def action_of(body: Body) -> Action | None:
    """Return the recorded action; None if the record has no action of a kind that this version knows.

    When the words of a command were cut as a whole, the last word returned is the beginning of the last recorded word.
    """
    recorded = mapping(body.get("action"))
    made = ACTIONS.get(text(recorded.get("type")))
    if made is None:
        return None
    values: dict[str, object] = {}
    for item in fields(made):
        value = recorded.get(item.name)
        if item.name == "argv":
            values["argv"] = texts(value) if isinstance(value, list) else tuple(text(value).split("\0"))
        elif isinstance(value, dict) or item.default is MISSING:
            values[item.name] = text(value)
        elif isinstance(value, list):
            values[item.name] = texts(value)
        elif item.name in recorded:
            values[item.name] = value
    return made(**values)  # type: ignore[arg-type]  # texts where texts belong; the rest is only shown


def reasons_of(body: Body, name: str = "reasons") -> tuple[Reason, ...]:
    """Return the recorded reasons in the field `name`. The field `rules` has the reasons from rules of users."""
    return tuple(reason_of(mapping(item)) for item in items(body.get(name)))


def reason_of(recorded: Body) -> Reason:
    """Return a recorded reason. Its tier is `unknown` if this version does not know the recorded tier."""
    ends = [max(each, 0) for each in items(recorded.get("span")) if isinstance(each, int)]
    span = SourceSpan(*ends) if len(ends) == 2 else None
    rule = RuleRef.parse(text(recorded.get("rule")))
    return Reason(tier_of(recorded.get("tier")), text(recorded.get("text")), rule, span)


def tier_of(label: object) -> Tier:
    """Return the tier with this label; `unknown` for a label that this version does not know."""
    return _TIERS.get(text(label), Tier.UNKNOWN)


def cell_of(body: Body) -> Cell:
    """Return the cell of the permission matrix; an unknown mode is `default`, an unknown ruling `deny`."""
    recorded = mapping(body.get("cell"))
    mode = next((mode for mode in Mode if mode.value == recorded.get("mode")), Mode.DEFAULT)
    ruling = next((each for each in Ruling if each.name.lower() == recorded.get("ruling")), Ruling.DENY)
    return Cell(tier_of(recorded.get("tier")), mode, ruling)


def problem_of(value: object) -> Problem | None:
    """Return a recorded problem, or None."""
    recorded = mapping(value)
    return Problem(*(text(recorded.get(name)) for name in ("what", "why", "fix"))) if recorded else None


def terms_of(body: Body) -> Terms | None:
    """Return the granted rights without the values of environment variables; None for a denial.

    The digest of the returned terms differs from the recorded digest, which covers those values.
    """
    recorded = mapping(body.get("terms"))
    if not recorded:
        return None
    rights = Rights.WORKSPACE_WRITE if recorded.get("rights") == Rights.WORKSPACE_WRITE.value else Rights.READ_ONLY
    none, usual = Terms(rights, "", ""), Limits()
    values: dict[str, object] = {}
    for item in fields(Terms):
        value, shape = recorded.get(item.name), type(getattr(none, item.name))
        if item.name == "env":
            values["env"] = tuple((name, "") for name in texts(value))
        elif shape is tuple:
            values[item.name] = texts(value)
        elif shape in (str, bool) and type(value) is shape:
            values[item.name] = value
    amounts: dict[str, object] = {}
    for item in fields(Limits):
        amount = number(mapping(recorded.get("limits")).get(item.name))
        if amount is not None and isinstance(amount, int | type(getattr(usual, item.name))):
            amounts[item.name] = amount
    return replace(none, **values, limits=replace(usual, **amounts))  # type: ignore[arg-type]  # each has its field's type


def explanation_of(body: Body, workspace: str) -> Explanation | None:
    """Return the explanation of a decision as `agent why` prints it; None for an unknown kind of action."""
    action = action_of(body)
    if action is None:
        return None
    return Explanation(
        action=action,
        tree=text(body.get("tree")),
        effects=tuple(_effect(mapping(item)) for item in items(body.get("effects"))),
        tiers=tuple(tier_of(label) for label in items(body.get("tiers"))),
        reasons=reasons_of(body),
        cell=cell_of(body),
        because=reason_of(mapping(body.get("because"))),
        verdict=Ruling.ALLOW if body.get("verdict") == "allow" else Ruling.DENY,
        problem=problem_of(body.get("problem")),
        question=None,
        terms=terms_of(body),
        ways=(),
        rules=reasons_of(body, "rules"),
        workspace=workspace,
        digest=text(body.get("digest")),
    )


def _effect(recorded: Body) -> Effect:
    kind = next((each for each in EffectKind if each.value == recorded.get("kind")), EffectKind.UNKNOWN)
    scope = next((each for each in Scope if each.value == recorded.get("scope")), Scope.NONE)
    return Effect(kind, text(recorded.get("target")), scope, recorded.get("exact") is not False)
