"""The rights that the user adds to one action by flags: paths, hosts and variables beyond the needs of the action."""

from collections.abc import Sequence

from policy.describe.phrases import secret_kind
from policy.interpreter.path_classifier import PathClassifier
from policy.model.assessment import Assessment, Effect, EffectKind, Reason, RuleKind, RuleRef, Scope
from policy.model.facts import Facts, Kind
from policy.model.frozen import dataclass, replace
from policy.model.host_rule import HostRule, host_rule
from policy.model.profile import Layer, PermissionRule, Profile, Source, Tool
from policy.model.tier import Ruling, Tier
from policy.permission.allow import runs

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
        by: the rule of a configuration file that adds the rights; None if the user typed them.
        server: the name of the tool server whose start a configuration file allows; empty for other actions.
        hook: the event of the hook whose run a configuration file allows; empty for other actions.
    """

    read: tuple[str, ...] = ()
    write: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    env: tuple[tuple[str, str], ...] = ()
    by: RuleRef | None = None
    server: str = ""
    hook: str = ""

    @property
    def rules(self) -> tuple[PermissionRule, ...]:
        """Return the permissions of the flags as rules about this one action."""
        read, write, host = (self.by or RuleRef(RuleKind.FLAG, flag) for flag in ("--read", "--write", "--host"))
        rules = (
            PermissionRule(Ruling.ALLOW, read, Layer.TYPED, read=self.read),
            PermissionRule(Ruling.ALLOW, write, Layer.TYPED, read=self.write, write=self.write),
            PermissionRule(Ruling.ALLOW, host, Layer.TYPED, host=self.hosts),
        )
        usable = tuple(rule for rule in rules if rule.read or rule.write or rule.host)
        if not self.server and not self.hook:
            return usable
        start = (f"mcp__{self.server}__@start" if self.server else f"hook@{self.hook}",)
        by = self.by or RuleRef(RuleKind.FLAG, "--server" if self.server else "--hook")
        return (*usable, PermissionRule(Ruling.ALLOW, by, Layer.TYPED, tool=start))

    @property
    def words(self) -> tuple[str, ...]:
        """Return the flags for records and for the user: variables without their values."""
        servers = (self.server,) if self.server else ()
        hooks = (self.hook,) if self.hook else ()
        named = (
            ("--read", self.read), ("--write", self.write), ("--host", self.hosts), ("--server", servers),
            ("--hook", hooks),
        )  # fmt: skip
        bounds = [f"{flag} {value}" for flag, values in named for value in values]
        return (*bounds, *(f"--env {name}" for name, _ in self.env))

    def __bool__(self) -> bool:
        return bool(self.read or self.write or self.hosts or self.env or self.server)


def with_rights_of_rules(
    assessment: Assessment, typed: FlagRights | None, facts: Facts, rules: Sequence[PermissionRule], source: Source
) -> FlagRights | None:
    """Return `typed` with the rights that `rules` add to the one command of the action, or `typed` if there are none.

    The action must be exactly this one command, with nothing beside it: one action has one set of rights. A path that
    does not exist adds nothing.
    """
    commands = [step for step in assessment.steps if step.words or step.text]
    if len(commands) != 1 or any(step.reasons or step.effects for step in assessment.steps if step is not commands[0]):
        return typed
    whole, by = typed or FlagRights(), None
    for rule in rules:
        if not rule.rights or rule.layer is Layer.REPOSITORY or rule.expired(facts.today):
            continue
        if not rule.applies_to(source) or (rule.tool and Tool.BASH not in rule.tool):
            continue
        if not runs(rule, commands[0], facts):
            continue
        pairs = [right.partition(" ")[::2] for right in rule.rights]
        paths = {
            flag: tuple(filter(None, (_existing(target.strip(), facts) for each, target in pairs if each == flag)))
            for flag in ("--read", "--write")
        }
        named = [found for flag, target in pairs if flag == "--host" for found in [host_rule(target)]]
        hosts = tuple(str(found) for found in named if isinstance(found, HostRule))
        by = by or rule.ref
        whole = replace(
            whole,
            read=tuple(dict.fromkeys((*whole.read, *paths["--read"]))),
            write=tuple(dict.fromkeys((*whole.write, *paths["--write"]))),
            hosts=tuple(dict.fromkeys((*whole.hosts, *hosts))),
            by=by if not typed else None,
        )
    return whole if by is not None else typed


def _existing(target: str, facts: Facts) -> str | None:
    """Return the real path of `target`, or None if it does not exist or is a path that no right may name."""
    found = facts.look(f"{facts.home}/{target[2:]}" if target.startswith("~/") else target)
    return found.real if found.kind in (Kind.FILE, Kind.FOLDER) and found.real != "/" else None


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
