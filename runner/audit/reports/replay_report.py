"""Report on a replay: the changed verdicts, grouped by the kind of change and by the old and the new deciding rule."""

from collections.abc import Iterable, Iterator
from enum import StrEnum

from policy.model.frozen import dataclass
from policy.model.tier import Ruling, Tier
from runner.audit.decisions import DecisionTrail
from runner.audit.fields import beginning, items
from runner.audit.reports.replay import NOT_ASKED, NewVerdict, NotRecorded, recorded_ruling
from runner.audit.reports.replay_changes import ReplayedChanges
from runner.gate.gate import ruling
from runner.text.phrases import many
from runner.text.sanitize import one_line, visible

_HELD = 20  # listed commands whose changes would be held back
_SHOWN = 3  # listed actions of one group
_NAMED = 5  # listed records of one reason why actions cannot be judged
_RED, _GREEN, _YELLOW, _DIM, _END = "\x1b[31m", "\x1b[32m", "\x1b[33m", "\x1b[2m", "\x1b[0m"


class VerdictChange(StrEnum):
    """Kind of a difference, in the order of the report."""

    ALLOWED = "now allowed"
    ASKED = "now asked"
    DENIED = "now denied"
    TIER = "other tiers"


_CHANGES = {Ruling.ALLOW: VerdictChange.ALLOWED, Ruling.ASK: VerdictChange.ASKED, Ruling.DENY: VerdictChange.DENIED}
_HUES = {VerdictChange.ALLOWED: _YELLOW, VerdictChange.DENIED: _RED, VerdictChange.TIER: _DIM}


@dataclass(frozen=True, slots=True)
class VerdictSummary:
    """Summary of a verdict. `tier` is the deciding tier, `tiers` are all tiers, `rule` is the deciding rule."""

    ruling: Ruling
    tier: str
    tiers: tuple[str, ...]
    rule: str
    why: str

    @property
    def words(self) -> str:
        return f"{self.ruling.name.lower()} ({self.tier}; {self.rule})"


@dataclass(frozen=True, slots=True)
class Difference:
    """One recorded action that the other policy decides differently.

    Attributes:
        without: ruling of the other policy without grants and flags; None if there were none
        worst: highest tier under the other policy
    """

    deed: DecisionTrail
    change: VerdictChange
    then: VerdictSummary
    now: VerdictSummary
    worst: Tier
    without: Ruling | None
    looked: tuple[str, ...]


class Replayed:
    """Summary of a replay. Actions are added newest first."""

    def __init__(self) -> None:
        self.count = 0
        self.malformed = 0  # number of malformed calls, which no policy can judge
        self.by_user = 0  # number of steps of the user, which no policy judges (an applied patch, an undo, a port)
        self.looked = 0  # number of verdicts that depend on today's disk
        self.differences: list[Difference] = []
        self.unknown: dict[NotRecorded, list[int]] = {}
        self.changes: list[ReplayedChanges] = []  # of commands, by what they did

    def add(self, deed: DecisionTrail, found: NewVerdict | NotRecorded) -> None:
        self.count += 1
        if isinstance(found, NotRecorded):
            kind = NotRecorded(found.kind)
            self.unknown.setdefault(kind, []).append(deed.record.id)
            return
        self.looked += bool(found.looked)
        difference = _difference(deed, found)
        if difference is not None:
            self.differences.append(difference)

    def above(self, tier: Tier) -> list[Difference]:
        """Return the newly allowed actions with a tier above `tier`."""
        return [each for each in self.differences if each.change is VerdictChange.ALLOWED and each.worst > tier]

    @property
    def counts(self) -> dict[VerdictChange, int]:
        """Return the number of differences of each kind."""
        return {change: sum(each.change is change for each in self.differences) for change in VerdictChange}

    @property
    def groups(self) -> list[list[Difference]]:
        """Return the differences grouped by kind and rules.

        Groups are in the order of VerdictChange, then by size, the largest first, then the newest first.
        """
        groups_by_key: dict[tuple[object, ...], list[Difference]] = {}
        for each in self.differences:
            key = (each.change, each.then.ruling, each.then.tier, each.then.rule, each.now.words, each.now.tiers)
            groups_by_key.setdefault(key, []).append(each)
        order = list(VerdictChange)
        return sorted(groups_by_key.values(), key=lambda group: (order.index(group[0].change), -len(group)))


def _difference(deed: DecisionTrail, judged: NewVerdict) -> Difference | None:
    tiers = tuple(map(beginning, items(deed.body.get("tiers"))))
    then = VerdictSummary(recorded_ruling(deed.body), deed.tier, tiers, deed.rule, deed.why)
    verdict, tiers = judged.verdict, tuple(tier.label for tier in judged.assessment.tiers)
    rule, why = str(verdict.reason.rule), verdict.reason.text
    now = VerdictSummary(ruling(verdict), verdict.cell.tier.label, tiers, rule, why)
    if then.ruling is now.ruling and set(then.tiers) == set(now.tiers):
        return None
    change = _CHANGES[now.ruling] if then.ruling is not now.ruling else VerdictChange.TIER
    return Difference(deed, change, then, now, judged.assessment.tiers[0], judged.without, judged.looked)


def lines(found: Replayed, *, colour: bool = False, width: int = 110) -> Iterator[str]:
    """Yield the report as text that is safe to print on a terminal: each group with its rules and newest actions, then
    the counts.
    """
    dim, end = (_DIM, _END) if colour else ("", "")
    for group in found.groups:
        first = group[0]
        hue = _HUES.get(first.change, "") if colour else ""
        yield f"{hue}{first.change.value:<12}{end if hue else ''} {len(group):>5}  {_told(first.now)}"
        yield f"{dim}       was  {' ' * 6}  {_told(first.then)}{end}"
        seen: set[str] = set()
        for each in group:
            action = one_line(each.deed.action, max(width - 20, 30))
            if action in seen:
                continue
            seen.add(action)
            if len(seen) > _SHOWN:
                yield f"{'':>20} and {len(group) - _SHOWN} more"
                break
            yield f"{each.deed.record.id:>18}  {action}{_without(each)}"
    yield from _changes(found, width)
    yield from _counts(found)


def _changes(found: Replayed, width: int) -> Iterator[str]:
    """Yield the commands whose recorded changes the other policy would not have let through."""
    if found.changes:
        yield f"{'held back':<12} {len(found.changes):>5}  commands whose changes would not be applied completely"
    for each in found.changes[:_HELD]:
        yield f"{each.deed.record.id:>18}  {one_line(each.deed.action, max(width - 20, 30))}"
        for change in each.changes[:_SHOWN]:
            yield visible(f"{'':>20}{change.how} {change.path}: {change.why}", lines=False)
        if (more := len(each.changes) - _SHOWN) > 0:
            yield f"{'':>20}and {more} more"
        if each.unknown:
            yield f"{'':>20}{many(each.unknown, 'further change')} of this command not recorded by name"
    if (more := len(found.changes) - _HELD) > 0:
        yield f"{'':>20}and {many(more, 'more command')}"


def _told(side: VerdictSummary) -> str:
    return visible(f"{side.ruling.name.lower()}: {side.why} ({side.tier}; {side.rule})", lines=False)


def _without(each: Difference) -> str:
    if each.without is None:
        return ""
    what = "the flags" if items(each.deed.body.get("typed")) else "the remembered answer"
    return f"  [without {what}: {each.without.name.lower()}]"


def _counts(replayed: Replayed) -> Iterator[str]:
    said = ", ".join(f"{count} {change.value}" for change, count in replayed.counts.items() if count)
    decisions = many(replayed.count, "decision")
    known = replayed.count - sum(map(len, replayed.unknown.values()))
    if replayed.count and not known:
        yield f"none of {decisions} could be replayed"
    else:
        yield f"{f'{known} of ' if replayed.unknown else ''}{decisions} replayed: {said or 'none differs'}"
    for kind, numbers in replayed.unknown.items():
        named = ", ".join(map(str, numbers[:_NAMED])) + (", ..." if len(numbers) > _NAMED else "")
        way = "; --look reads them from the disk" if kind.kind == NOT_ASKED else ""
        yield visible(f"unknown {len(numbers):>5}  {kind.kind} (record {named}){way}", lines=False)
    if replayed.malformed:
        yield f"{many(replayed.malformed, 'malformed call')} not replayed: no policy judges a call that is no action"
    if replayed.by_user:
        yield f"{many(replayed.by_user, 'step')} of the user not replayed: a policy judges actions of the model"
    if replayed.looked:
        yield f"{replayed.looked} of the verdicts use the files on the disk today"


def document(found: Replayed, policy: str, above: Iterable[Difference] = ()) -> dict[str, object]:
    """Return the report as a JSON object. `policy` is the fingerprint of the other policy; `above` are newly allowed
    actions above the user's limit.
    """
    return {
        "replayed": found.count,
        "policy": policy,
        "differences": [
            {
                "record": each.deed.record.id,
                "session": each.deed.body.get("session"),
                "change": each.change.name.lower(),
                "action": each.deed.action,
                "then": _side(each.then),
                "now": _side(each.now),
                "without": each.without.name.lower() if each.without is not None else None,
                "looked": list(each.looked),
            }
            for each in found.differences
        ],
        "changes": [
            {
                "record": each.deed.record.id,
                "session": each.deed.body.get("session"),
                "action": each.deed.action,
                "files": [
                    {"path": file.path, "how": file.how, "reason": file.reason, "why": file.why}
                    for file in each.changes
                ],
                "unknown": each.unknown,
            }
            for each in found.changes
        ],
        "counts": {change.name.lower(): count for change, count in found.counts.items()},
        "unknown": [{"why": kind.kind, "records": numbers} for kind, numbers in found.unknown.items()],
        "malformed": found.malformed,
        "by_user": found.by_user,
        "looked": found.looked,
        "above": [each.deed.record.id for each in above],
    }


def _side(side: VerdictSummary) -> dict[str, object]:
    verdict = side.ruling.name.lower()
    return {"verdict": verdict, "tier": side.tier, "tiers": list(side.tiers), "rule": side.rule, "why": side.why}
