"""Suggestion of the narrowest `[[rule]]` that would allow one action, derived from its effects and verified."""

import json
from collections.abc import Iterable, Iterator, Sequence

from policy.describe.phrases import Around
from policy.model.action import Action, CallServerTool
from policy.model.assessment import Assessment, Effect, EffectKind, Reason, Scope, Step
from policy.model.host_words import names_private_network
from policy.model.profile import Layer, PermissionRule, Tool
from policy.model.tier import Tier

_BEYOND = (Tier.DANGEROUS, Tier.SECRET, Tier.DENIED)
_CHANGES = (EffectKind.WRITES, EffectKind.DELETES)
_KINDS = {Tier.NETWORK: (EffectKind.CONNECTS,), Tier.READ_OUTSIDE: (EffectKind.READS,), Tier.WRITE_OUTSIDE: _CHANGES}
_SPECIAL = frozenset("*?")  # wildcards of rules
_LONGEST = 600  # characters of the arguments of a call
_MOST = 4  # rules; for more, a mode is the better choice


def no_rule_lifts(assessment: Assessment) -> Tier | None:
    """Return the highest tier that no rule can allow, or None."""
    return next((tier for tier in assessment.tiers if tier in _BEYOND), None)


def suggested(assessment: Assessment, open_reasons: Iterable[Reason], places: Around) -> str | None:
    """Return `[[rule]]` tables as text for exactly the commands behind `open_reasons`; None if no rule can allow them.

    The caller must verify with `read_rules` that these rules allow the action.
    """
    wanted = set(open_reasons)
    if no_rule_lifts(assessment) is not None or not wanted:
        return None
    tables: dict[str, None] = {}
    uncovered = set(wanted)
    for step in assessment.steps:
        reasons = [reason for reason in step.reasons if reason in wanted]
        if not reasons:
            continue
        table = _table(step, reasons, places, assessment.action)
        if table is None:
            return None
        tables[table] = None
        uncovered -= set(reasons)
    return "\n\n".join(tables) if tables and not uncovered and len(tables) <= _MOST else None


def read_rules(text: str) -> tuple[PermissionRule, ...]:
    """Return the rules in `text`, exactly as a configuration file with that text would have them."""
    from policy.permission.file import read_permissions

    return read_permissions(text, "the suggested rule", Layer.USER)


def _table(step: Step, reasons: Sequence[Reason], places: Around, action: Action) -> str | None:
    keys: dict[str, list[str]] = {}
    conditions: list[str] = []
    if step.words:
        words = step.literal
        if words is None or any(not word or _SPECIAL & set(word) or not word.isprintable() for word in words):
            return None
        keys["run"] = list(words)
    effects = list(dict.fromkeys(effect for reason in reasons for effect in _behind(reason, step)))
    tiers = {reason.tier for reason in reasons}
    if not step.words or Tier.WRITE_OUTSIDE in tiers:
        keys["write"] = _paths(effects, _CHANGES, places)
    if Tier.READ_OUTSIDE in tiers:
        keys["read"] = _paths(effects, (EffectKind.READS,), places)
    if Tier.NETWORK in tiers:
        # A rule allows this machine and private networks only by their keyword.
        hosts = [effect.target for effect in effects if effect.kind is EffectKind.CONNECTS]
        keys["host"] = [f"{host} private" if host and names_private_network(host) else host for host in hosts]
    called = [effect.target for effect in effects if effect.kind is EffectKind.CALLS]
    if called:
        agents = [target.removeprefix("agent ") for target in called if target.startswith("agent ")]
        keys["tool"] = [Tool.AGENT.value] if agents else called
        if agents:
            conditions = [f"arguments = {{ agent = {json.dumps(agents[0])} }}"]
        elif isinstance(action, CallServerTool):
            conditions = _exactly(action)
    elif Tier.AGENT_SPAWN in tiers:
        keys["tier"] = [tier.label for tier in sorted(tiers - {Tier.READ})]
    named = [value for key in ("write", "read", "host", "tool") for value in keys.get(key, [])]
    certain = all(effect.exact and effect.target for effect in effects) or not named
    if not certain or any(not value or _SPECIAL & set(value) or not value.isprintable() for value in named):
        return None
    texts = {key: list(dict.fromkeys(values)) for key, values in keys.items() if values}
    lines = [f"{key:<7} = {json.dumps(values, ensure_ascii=False)}" for key, values in texts.items()]
    return "\n".join(["[[rule]]", 'verdict = "allow"', *lines, *conditions]) if lines else None


def _exactly(action: CallServerTool) -> list[str]:
    """Return the conditions for exactly the arguments of a call; none if TOML has no such values, or if they are too
    long to be read.
    """
    from policy.model.tool_arguments import argument_values
    from policy.toml.schema import ValueType, value_of
    from runner.config.toml_value import toml, value_toml

    given = argument_values(action) or {}
    pairs = value_of(given, ValueType.VALUES) if given else ()
    halves = any("\ud800" <= char <= "\udfff" for char in json.dumps(given, ensure_ascii=False))
    if not isinstance(pairs, tuple) or halves or len(action.arguments) > _LONGEST:
        return []
    values = [f"values  = {value_toml(pairs, ValueType.VALUES)}"] if given else []
    return [*values, f"only    = {toml(tuple(given))}"]


def _behind(reason: Reason, step: Step) -> Iterator[Effect]:
    """Return the effects that a reason refers to; those of its tier if it names none."""
    if reason.about is not None:
        yield reason.about
        return
    for effect in step.effects:
        in_scope = reason.tier is Tier.NETWORK or effect.scope is Scope.OUTSIDE
        if in_scope and effect.kind in _KINDS.get(reason.tier, ()):
            yield effect


def _paths(effects: Iterable[Effect], kinds: Sequence[EffectKind], places: Around) -> list[str]:
    return list(dict.fromkeys(_path(effect.target, places) for effect in effects if effect.kind in kinds))


def _path(path: str, places: Around) -> str:
    for root, short in ((places.workspace, ""), (places.home, "~/")):
        if path.startswith(f"{root}/"):
            return short + path[len(root) + 1 :]
    return path
