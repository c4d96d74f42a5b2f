"""The allowing rules of users: each applies to exactly one command, or to exactly the paths and hosts that it names."""

from collections.abc import Mapping, Sequence

from policy.describe.phrases import near
from policy.model.action import Action, CallServerTool, RunHook, StartLanguageServer, StartServer, ToolAction
from policy.model.assessment import Assessment, Effect, EffectKind, Reason, RuleKind, Scope, Step
from policy.model.command_pattern import belongs, exact
from policy.model.facts import Facts
from policy.model.profile import Layer, PermissionRule
from policy.model.secret_paths import inside
from policy.model.tier import Ruling, Tier
from policy.permission.hosts import PUBLIC, opens, opens_public
from policy.permission.paths import covers, meant

_OWNERS = {
    Layer.SYSTEM: "the system's rule",
    Layer.REPOSITORY: "the repository's rule",
    Layer.TRUSTED: "the repository's rule",
}


def whose(rule: PermissionRule, facts: Facts) -> str:
    """Return `your rule ~/.config/ringfence/config.toml:12`, `the repository's rule FILE:3` or `your grant g1`."""
    if rule.layer is Layer.TYPED and rule.ref.kind is RuleKind.FLAG:
        return f"`{rule.ref.id}` of this command line"
    if rule.layer is Layer.HOOK:
        return f"the hook {near(rule.ref.id, facts)}:{rule.ref.line}"
    if rule.layer is Layer.GRANT:
        kind = "grant" if rule.verdict is Ruling.ALLOW else "remembered refusal"
        return f"your {kind} {rule.ref.id}"
    return f"{_OWNERS.get(rule.layer, 'your rule')} {near(rule.ref.id, facts)}:{rule.ref.line}"


def about(rule: PermissionRule) -> str:
    """Return the subject of the rule: `git push **`, changing `docs/**`."""
    parts = [f"`{rule.pattern}`"] if rule.run and not (rule.shape and rule.shape.family) else []
    if family := rule.family or (rule.shape.family if rule.shape else ""):
        parts.append(f"commands of the family `{family}`")
    parts += [f"its right `{right}`" for right in rule.rights]
    parts += [f"reading `{path}`" for path in rule.read]
    parts += [f"changing `{path}`" for path in rule.write]
    parts += [f"connecting to `{host}`" for host in rule.host]
    parts += [f"tier `{tier.label}`" for tier in rule.tier]
    parts += [f"the tool `{tool}`" for tool in rule.tool if rule.layer is not Layer.GRANT]
    parts += [f"its argument `{name}` like `{pattern}`" for name, pattern in rule.arguments]
    parts += [f"its argument `{name}` equal to `{value}`" for name, value in rule.values]
    parts += [f"its argument `{name}` below `{folder}`" for name, folder in rule.below]
    if rule.only is not None:
        parts.append(f"no argument but {', '.join(rule.only)}" if rule.only else "no argument")
    return ", ".join(parts)


_CHANGES = (EffectKind.WRITES, EffectKind.DELETES)
_ORDINARY = frozenset([Tier.WRITE, Tier.EXECUTE])  # the tiers that a rule with `run` allows if it names no tiers
NEVER = frozenset([Tier.DANGEROUS, Tier.SECRET, Tier.DENIED])
_OF_FAMILY = frozenset([Tier.NETWORK])  # the tier that a rule about a family allows
# The tiers that a rule which only names tools allows, for calls of these tools.
BY_TOOL = frozenset([Tier.MCP_EXTERNAL, Tier.AGENT_SPAWN])
# The tiers of calls of servers' tools, beside `read`: without a choice of the user, and those that the user can choose.
OF_SERVER = frozenset([Tier.MCP_EXTERNAL, Tier.WRITE, Tier.NETWORK])
# Programs that create no links. Any other program that changes a folder may create a link there.
_NO_LINKS = frozenset(["mkdir", "touch", "tee", "rm", "rmdir", "unlink", "truncate", "sed", "sort"])


Opened = dict[Effect, tuple[str, ...]]


def _opened_hosts(rule: PermissionRule, wanted: str) -> tuple[str, ...]:
    """Return the part of the host `wanted` that an allowing rule opens. Only a rule that no file contains can open
    every public host.
    """
    if rule.layer is Layer.TYPED and rule.host == (PUBLIC,):
        return opens_public(wanted)
    return opens(rule.host, wanted)


def covered(
    assessment: Assessment, facts: Facts, rules: Sequence[PermissionRule]
) -> tuple[dict[Reason, Reason], Opened]:
    """Return the reasons that the rules allow for every command that causes them, and the hosts that the rules open.

    INVARIANT: code that is not read gets no host by a rule about another command: one action has one set of rights.
    """
    found_by: dict[Reason, Reason] = {}
    opened: Opened = {}
    refused: set[Reason] = set()
    shut: set[Reason] = set()
    linked = _linked(assessment.steps)
    bound = [rule for rule in rules if rule.run or rule.family or rule.shape is not None]
    alone = [rule for rule in rules if not (rule.run or rule.family or rule.shape is not None)]
    by_step = [[rule for rule in bound if runs(rule, step, facts)] for step in assessment.steps]
    own = [_reached(step, running, alone) for step, running in zip(assessment.steps, by_step, strict=True)]
    unread = [index for index, step in enumerate(assessment.steps) if _opaque(step)]
    for index, step in enumerate(assessment.steps):
        running = by_step[index]
        crowded = any(other != index and not own[index] <= own[other] for other in unread)
        doubts = [reason for reason in step.reasons if reason.bounded]
        doubted = any(_allowing(reason, step, running, alone, facts, linked) is None for reason in doubts)
        for reason in step.reasons:
            if reason.tier is Tier.READ or reason.tier in NEVER:
                continue
            # The command may be another one than the rule is about, so it gets nothing beyond the sandbox.
            beyond = doubted and reason.tier > Tier.EXECUTE
            # The name of a server's tool may look like a host, so a rule about hosts does not apply to its calls.
            usable = () if isinstance(assessment.action, CallServerTool) else alone
            found = None if beyond else _allowing(reason, step, running, usable, facts, linked)
            if found is None and _by_tool(reason.tier, assessment.action):
                found = next((rule for rule in alone if names_only_tools(rule, reason.tier)), None)
            if found is None:
                refused.add(reason)
                shut.add(reason)
                continue
            if crowded and reason.tier is Tier.NETWORK and found.layer is not Layer.TYPED:
                refused.add(reason)  # the user is asked, and an approval allows the hosts of the rule
            text = f"{'tried' if found.tries else 'allowed'} by {whose(found, facts)}: {found.why or about(found)}"
            found_by.setdefault(reason, Reason(reason.tier, text, found.ref, reason.span))
            if reason.tier is Tier.NETWORK:
                bounds = {effect: _hosts(effect, running, alone) for effect in _behind(reason, step)}
                opened |= {effect: hosts for effect, hosts in bounds.items() if hosts}
    closed = {effect for step in assessment.steps for reason in step.reasons if reason in shut
              for effect in (_behind(reason, step) if reason.tier is Tier.NETWORK else ())}  # fmt: skip
    return (
        {reason: by for reason, by in found_by.items() if reason not in refused},
        {effect: hosts for effect, hosts in opened.items() if effect not in closed},
    )


def _by_tool(tier: Tier, action: Action) -> bool:
    """Return True if a rule that only names tools can allow `tier` for `action`."""
    if isinstance(action, CallServerTool):
        return tier in OF_SERVER
    if isinstance(action, RunHook | StartLanguageServer):
        return tier is Tier.EXECUTE
    return tier in BY_TOOL and isinstance(action, ToolAction | StartServer)


def names_only_tools(rule: PermissionRule, tier: Tier) -> bool:
    """Return True if the rule is about calls of tools, and covers `tier`. The caller has compared the tool's name and
    the arguments.
    """
    bounded = rule.run or rule.read or rule.write or rule.host
    return bool(rule.tool) and not bounded and (not rule.tier or tier in rule.tier)


def _reached(step: Step, running: Sequence[PermissionRule], alone: Sequence[PermissionRule]) -> frozenset[str]:
    """Return the hosts that the rules open to this command alone."""
    connections = [effect for effect in step.effects if effect.kind is EffectKind.CONNECTS]
    return frozenset(host for effect in connections for host in _hosts(effect, running, alone))


def _opaque(step: Step) -> bool:
    """Return True if the command runs code that is not read. Such code gets only the hosts of its own command."""
    return bool(step.text) or any(reason.tier in (Tier.EXECUTE, Tier.UNKNOWN) for reason in step.reasons)


def _behind(reason: Reason, step: Step) -> list[Effect]:
    """Return the effects that a reason is about."""
    return [reason.about] if reason.about else [effect for effect in step.effects if _of(reason.tier, effect)]


def _hosts(effect: Effect, running: Sequence[PermissionRule], alone: Sequence[PermissionRule]) -> tuple[str, ...]:
    """Return the hosts that the rules open for `effect`; for a host that nothing names, those that the rules name for
    this command.
    """
    usable = [rule for rule in (*running, *alone) if rule.host and (not rule.tier or Tier.NETWORK in rule.tier)]
    found = [host for rule in usable if _unnamed(effect) and _speaks_of_unknown(rule) for host in rule.host]
    if not found and effect.target:
        found = [host for rule in usable for host in _opened_hosts(rule, effect.target)]
    return tuple(dict.fromkeys(found))


def _unnamed(effect: Effect) -> bool:
    """Return True if neither the command nor settings name the host: it is unknown, or the usual one of the tool."""
    return not effect.target or effect.scope is Scope.SYSTEM


def _speaks_of_unknown(rule: PermissionRule) -> bool:
    """Return True if the rule names hosts for one command, so that the hosts bound every connection of that command."""
    return bool(rule.run or rule.family) or (rule.layer is Layer.TYPED and rule.host != (PUBLIC,))


def runs(rule: PermissionRule, step: Step, facts: Facts) -> bool:
    """Return True if the rule is about exactly this command: its words are certain, no variable is set for it, and it
    runs in the workspace.
    """
    if rule.shape is not None:
        return rule.shape.fits(step, facts)
    if rule.family:
        return belongs(step, rule.family, facts)
    words = step.literal
    if words is None or not exact(words, rule.run, more=rule.more):
        return False
    if step.set_up or step.cwds is None or not all(inside(cwd, facts.workspace) for cwd in step.cwds):
        return False
    # `./run` in a rule is a file of the workspace, not of the current folder.
    elsewhere = "/" in words[0] and not words[0].startswith("/") and step.cwds != (facts.workspace,)
    return not elsewhere


def _allowing(
    reason: Reason,
    step: Step,
    running: Sequence[PermissionRule],
    alone: Sequence[PermissionRule],
    facts: Facts,
    linked: Mapping[str, set[int]],
) -> PermissionRule | None:
    if step.text:
        return None
    tier, effects = reason.tier, _behind(reason, step)
    # The only unknown about the step is its program.
    stranger = step.stranger and sum(each.uncertain for each in step.reasons) == 1
    # THREAT T68: a remote that names another host. If the repository names the host, a rule must name it too.
    led_out = tier is Tier.NETWORK and any(effect.scope is Scope.WORKSPACE for effect in effects)
    for rule in running:
        if reason.uncertain:
            if Tier.UNKNOWN in rule.tier or (stranger and (not rule.tier or Tier.EXECUTE in rule.tier)):
                return rule
        elif (
            tier in (rule.tier or (_OF_FAMILY if rule.family else _ORDINARY)) and not _globs(rule, tier) and not led_out
        ):
            return rule
    if tier not in (Tier.READ_OUTSIDE, Tier.NETWORK, Tier.WRITE, Tier.WRITE_OUTSIDE):
        return None
    # A rule without `run` applies to named paths and hosts, not to the general effects of a program.
    named = reason.about is not None or (tier in (Tier.WRITE, Tier.NETWORK) and bool(step.words))
    usable = [rule for rule in (*running, *(alone if named else ())) if not rule.tier or tier in rule.tier]
    if any(_led_astray(effect.target, step, linked) for effect in effects if effect.target.startswith("/")):
        return None
    by = [next((rule for rule in usable if _inside(rule, tier, effect, facts)), None) for effect in effects]
    return by[0] if by and None not in by else None


def _linked(steps: Sequence[Step]) -> dict[str, set[int]]:
    """Return the paths at which a command of the action may create a link, each with the ids of the steps with such
    commands.

    THREAT T49: `ln -s ../src docs/z; echo x > docs/z/y` writes below src.
    """
    found: dict[str, set[int]] = {}
    for step in steps:
        if step.words and (step.named or step.words)[0].text not in _NO_LINKS:
            for effect in step.effects:
                if effect.kind in _CHANGES:
                    found.setdefault(effect.target, set()).add(id(step))
    return found


def _led_astray(path: str, step: Step, linked: Mapping[str, set[int]]) -> bool:
    """Return True if `path` may lead elsewhere because of a link that another command creates."""
    while path not in ("", "/"):
        if linked.get(path, set()) - {id(step)}:
            return True
        path = path.rpartition("/")[0]
    return False


def _globs(rule: PermissionRule, tier: Tier) -> tuple[str, ...]:
    if tier in (Tier.WRITE, Tier.WRITE_OUTSIDE):
        return rule.write
    return {Tier.READ_OUTSIDE: rule.read, Tier.NETWORK: rule.host}.get(tier, ())


def _of(tier: Tier, effect: Effect) -> bool:
    if tier in (Tier.WRITE, Tier.WRITE_OUTSIDE):
        return effect.kind in _CHANGES
    if tier is Tier.NETWORK:
        return effect.kind is EffectKind.CONNECTS
    return effect.kind is EffectKind.READS and effect.scope is Scope.OUTSIDE


def _inside(rule: PermissionRule, tier: Tier, effect: Effect, facts: Facts) -> bool:
    if tier is Tier.NETWORK and effect.exact:
        if _unnamed(effect) and rule.host and _speaks_of_unknown(rule):
            return True
        return bool(effect.target and _opened_hosts(rule, effect.target))
    if not effect.exact or not effect.target:
        return False
    if rule.layer is Layer.TYPED:  # literal paths, no patterns
        return any(inside(effect.target, path) for path in _globs(rule, tier))
    fits = meant if rule.layer is Layer.GRANT else covers
    return effect.target.startswith("/") and any(fits(path, effect.target, facts) for path in _globs(rule, tier))
