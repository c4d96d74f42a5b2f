"""Comparison of two of the users' rules: finds rules that another rule repeats or overrides."""

from collections.abc import Iterator, Sequence

from policy.model.glob import glob
from policy.model.profile import Layer, PermissionRule
from policy.model.tier import Ruling, Tier
from policy.permission.finding import RuleFinding, Severity


def beside(rule: PermissionRule, rules: Sequence[PermissionRule], index: int) -> Iterator[RuleFinding]:
    """Yield the findings about `rule`, which is `rules[index]`, that the other rules cause."""

    def warn(code: str, text: str, fix: str, other: PermissionRule) -> RuleFinding:
        return RuleFinding(Severity.WARNING, code, rule.ref, text, fix, other.ref)

    for place, other in enumerate(rules):
        if place == index or (rule.layer is Layer.REPOSITORY and rule.verdict is Ruling.ALLOW):
            continue
        same = _same(rule, other)
        if same and rule.verdict is not other.verdict:
            if index > place:
                strict = max(rule, other, key=lambda one: one.verdict)
                difference = f"it says `{_name(rule)}`, and {other.ref} says `{_name(other)}` about the same"
                text = f"{difference}; the stricter one counts ({strict.ref})"
                yield warn("ambiguous", text, "keep one of them", other)
            continue
        if other.verdict < rule.verdict or not _wider(other, rule) or (same and index < place):
            continue
        if other.verdict is rule.verdict:
            yield warn("redundant", f"{other.ref} says the same, or more", "remove one of them", other)
        else:
            text = f"it never takes effect: {other.ref} says `{_name(other)}` about all of it, which is stronger"
            yield warn("shadowed", text, "remove one of them", other)


def _name(rule: PermissionRule) -> str:
    return rule.verdict.name.lower()


def _same(rule: PermissionRule, other: PermissionRule) -> bool:
    return _wider(rule, other) and _wider(other, rule)


def _wider(wide: PermissionRule, narrow: PermissionRule) -> bool:
    """Return True if `wide` certainly matches everything that `narrow` matches."""
    allows = wide.verdict is Ruling.ALLOW
    tiers = (_allowed(narrow), _allowed(wide)) if allows else (narrow.tier, wide.tier)
    for given, wanted in ((narrow.tool, wide.tool), (narrow.source, wide.source), tiers):
        if wanted and not (given and set(given) <= set(wanted)):
            return False
    if wide.until is not None and (narrow.until is None or narrow.until > wide.until):
        return False
    named = (narrow.read, narrow.write, narrow.host)
    meant = (wide.read, wide.write, wide.host)
    if any(meant) and not any(named):
        return False
    if any(meant) and not all(
        all(_among(text, there) for text in here) for here, there in zip(named, meant, strict=True)
    ):
        return False
    if allows and any(named) and not any(meant):
        return False  # paths add to what an allow covers
    return _run_wider(wide, narrow)


def _allowed(rule: PermissionRule) -> tuple[Tier, ...]:
    """Return the tiers that an allowing rule covers if it names none."""
    return rule.tier or ((Tier.WRITE, Tier.EXECUTE) if rule.run else ())


def _run_wider(wide: PermissionRule, narrow: PermissionRule) -> bool:
    if not wide.run:
        return not (wide.verdict is Ruling.ALLOW and narrow.run)
    if not narrow.run or len(narrow.run) < len(wide.run):
        return False
    pairs = zip(wide.run, narrow.run, strict=False)
    if not all(all(any(glob(text, each) for each in wanted) for text in given) for wanted, given in pairs):
        return False
    if wide.verdict is not Ruling.ALLOW:
        return True  # what forbids is a beginning
    return wide.more or (len(narrow.run) == len(wide.run) and not narrow.more)


def _among(text: str, patterns: Sequence[str]) -> bool:
    for pattern in patterns:
        folder = pattern[:-3] if pattern.endswith("/**") else None
        if pattern in (text, "**") or (folder is not None and "*" not in folder and text.startswith(f"{folder}/")):
            return True
    return False
