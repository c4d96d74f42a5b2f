"""Texts that name a rule to people: its owner, its place, and its subject."""

from policy.describe.phrases import near
from policy.model.facts import Facts
from policy.model.profile import Layer, PermissionRule
from policy.model.tier import Ruling

_OWNERS = {
    Layer.SYSTEM: "the system's rule",
    Layer.REPOSITORY: "the repository's rule",
    Layer.TRUSTED: "the repository's rule",
}


def whose(rule: PermissionRule, facts: Facts) -> str:
    """Return `your rule ~/.config/ringfence/config.toml:12`, `the repository's rule FILE:3` or `your grant g1`."""
    if rule.layer is Layer.TYPED:
        return f"`{rule.ref.id}` of this command line"
    if rule.layer is Layer.GRANT:
        kind = "grant" if rule.verdict is Ruling.ALLOW else "remembered no"
        return f"your {kind} {rule.ref.id}"
    return f"{_OWNERS.get(rule.layer, 'your rule')} {near(rule.ref.id, facts)}:{rule.ref.line}"


def about(rule: PermissionRule) -> str:
    """Return the subject of the rule: `git push **`, changing `docs/**`."""
    parts = [f"`{rule.pattern}`"] if rule.run else []
    parts += [f"reading `{path}`" for path in rule.read]
    parts += [f"changing `{path}`" for path in rule.write]
    parts += [f"talking to `{host}`" for host in rule.host]
    parts += [f"tier `{tier.label}`" for tier in rule.tier]
    parts += [f"the tool `{tool.value}`" for tool in rule.tool if rule.layer is not Layer.GRANT]
    return ", ".join(parts)
