"""The rights that the user adds to one action by flags: paths, hosts and variables beyond the needs of the action."""

from dataclasses import replace

from policy.describe.phrases import secret_kind
from policy.interpreter.path_classifier import PathClassifier
from policy.model.assessment import Assessment, Effect, EffectKind, Reason, RuleKind, RuleRef, Scope
from policy.model.facts import Facts
from policy.model.frozen import dataclass
from policy.model.profile import Layer, PermissionRule, Profile
from policy.model.tier import Ruling, Tier

_ASKED = {"--read": EffectKind.READS, "--write": EffectKind.WRITES}
_VERBS = {EffectKind.READS: "reads", EffectKind.WRITES: "changes"}


@dataclass(frozen=True, slots=True)
class FlagRights:
    """The rights given by flags.

    Attributes:
        read: absolute paths that exist.
        write: absolute paths that exist.
        hosts: entries of an allowlist in canonical spelling.
        env: pairs of the name and the value of a variable.
    """

    read: tuple[str, ...] = ()
    write: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    env: tuple[tuple[str, str], ...] = ()

    @property
    def rules(self) -> tuple[PermissionRule, ...]:
        """Return the permissions of the flags as rules about this one action."""
        rules = (
            PermissionRule(Ruling.ALLOW, RuleRef(RuleKind.FLAG, "--read"), Layer.TYPED, read=self.read),
            PermissionRule(
                Ruling.ALLOW, RuleRef(RuleKind.FLAG, "--write"), Layer.TYPED, read=self.write, write=self.write
            ),
            PermissionRule(Ruling.ALLOW, RuleRef(RuleKind.FLAG, "--host"), Layer.TYPED, host=self.hosts),
        )
        return tuple(rule for rule in rules if rule.read or rule.write or rule.host)

    @property
    def words(self) -> tuple[str, ...]:
        """Return the flags for records and for the user: variables without their values."""
        named = (("--read", self.read), ("--write", self.write), ("--host", self.hosts))
        bounds = [f"{flag} {value}" for flag, values in named for value in values]
        return (*bounds, *(f"--env {name}" for name, _ in self.env))

    def __bool__(self) -> bool:
        return bool(self.read or self.write or self.hosts or self.env)


def widened(assessment: Assessment, typed: FlagRights, facts: Facts, profile: Profile) -> Assessment:
    """Return `assessment` with the rights of the flags as further effects, so that every floor and every denial applies
    to them.

    INVARIANT: no tier except `secret` is added, and none is removed.
    """
    classifier = PathClassifier(facts, profile)
    effects: list[Effect] = []
    reasons: list[Reason] = []
    for flag, kind in _ASKED.items():
        for path in typed.read if kind is EffectKind.READS else typed.write:
            place = classifier.place(path, "/")
            effects.append(Effect(kind, place.path, place.scope))
            if place.scope is Scope.SECRET:
                text = f"`{flag}` {_VERBS[kind]} {place.shown}, {secret_kind(place.path)}"
                reasons.append(Reason(Tier.SECRET, text, RuleRef(RuleKind.FLAG, flag), about=effects[-1]))
    effects += [Effect(EffectKind.CONNECTS, host) for host in typed.hosts]
    return replace(
        assessment,
        effects=tuple(dict.fromkeys((*assessment.effects, *effects))),
        reasons=(*reasons, *assessment.reasons),
        typed=tuple(effects),
    )
