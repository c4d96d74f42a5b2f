"""The statistics of a log as people and as programs read them."""

from collections.abc import Mapping

from policy.model.frozen import dataclass
from runner.audit.reports.stats import ANSWERS, Asked, Count, Stats, unnamed
from runner.gate.explain import Section, titled
from runner.text.counts import many
from runner.text.sanitize import one_line, visible

_ANSWERS = {
    "yes": "yes, by a person",
    "no": "no, by a person",
    "remembered": "a remembered answer",
    "by rule": "a rule or a flag",
    "nobody": "nobody was there",
}
_NAMED = 20  # rules of one's own that are listed by name


@dataclass(frozen=True, slots=True)
class Known:
    """The existing rules, in the text form of `RuleRef`: `own` in the configuration files that hold here, `shipped` by
    file."""

    own: tuple[str, ...] = ()
    shipped: Mapping[str, tuple[str, ...]] | None = None


def stats_text(stats: Stats, known: Known, *, colour: bool, width: int) -> str:
    """Safe to print on a terminal."""
    whole = stats.whole
    sessions = len(stats.sessions)
    spoken = f"{stats.first[:10]} to {stats.last[:10]} (UTC)" if stats.first else ""
    told: list[Section] = [
        (f"{many(whole.all, 'decision')} in {many(sessions, 'session')}, {visible(spoken, lines=False)}", [""]),
        ("verdict", [f"  {count:>8}  {_share(count, whole.all)}  {name}" for name, count in _verdicts(whole)]),
        ("questions, by who answered", [_answer(stats, name) for name in ANSWERS if stats.answers[name]]),
        _table("tier that decided", stats.tiers, stats, width),
        _table("mode", stats.modes, stats, width),
        _table("tool", stats.tools, stats, width),
        _table("rule that decided", stats.rules, stats, width),
        _table("host", stats.hosts, stats, width),
        _table("command", stats.commands, stats, width),
    ]
    told.append(("asked most", [_asked(line, asked, width) for line, asked in stats.asked_most()]))
    told.append(("denied most", [_denied(line, found, width) for line, found in stats.denied_most()]))
    slow = [
        f"  {seconds:>8.2f} s  {one_line(line, width - 24)} ({number})" for seconds, number, line in stats.slowest()
    ]
    told.append(("slowest", slow))
    told += _never(stats, known)
    return titled(told, colour=colour)


def stats_json(stats: Stats, known: Known) -> dict[str, object]:
    """The same, whole: every count, not only the largest; of questions, denials and outcomes the `top`."""
    return {
        "decisions": stats.whole.all,
        "sessions": len(stats.sessions),
        "first": stats.first,
        "last": stats.last,
        "verdicts": dict(_verdicts(stats.whole)),
        "answers": {name: stats.answers[name] for name in ANSWERS},
        **{
            name: [{"name": key, **_counted(count)} for key, count in _ranked(counts)]
            for name, counts in (
                ("tiers", stats.tiers),
                ("modes", stats.modes),
                ("tools", stats.tools),
                ("rules", stats.rules),
                ("hosts", stats.hosts),
                ("commands", stats.commands),
            )
        },
        "asked": [
            {
                "action": line,
                "tier": asked.tier,
                "count": asked.answers.total(),
                "answers": dict(asked.answers),
                "last": asked.last,
            }
            for line, asked in stats.asked_most()
        ],
        "denied": [
            {"action": line, "count": count.deny, "tier": tier, "rule": rule, "last": count.last}
            for line, (count, tier, rule) in stats.denied_most()
        ],
        "slowest": [{"id": number, "seconds": seconds, "action": line} for seconds, number, line in stats.slowest()],
        "never": {
            "own": unnamed(stats, known.own),
            "shipped": [rule for rules in (known.shipped or {}).values() for rule in unnamed(stats, rules)],
        },
    }


def _verdicts(whole: Count) -> tuple[tuple[str, int], tuple[str, int]]:
    return ("allow", whole.allow), ("deny", whole.deny)


def _ranked(counts: Mapping[str, Count]) -> list[tuple[str, Count]]:
    return sorted(counts.items(), key=lambda each: (-each[1].all, each[0]))


def _counted(count: Count) -> dict[str, int]:
    return {"allow": count.allow, "deny": count.deny, "asked": count.asked, "last": count.last}


def _table(title: str, counts: Mapping[str, Count], stats: Stats, width: int) -> Section:
    shown = stats.most(counts)
    room = max(width - 32, 20)
    lines = [f"  {count.allow:>8}  {count.deny:>6}  {count.asked:>6}  {one_line(name, room)}" for name, count in shown]
    left = len(counts) - len(shown)
    lines += [f"  and {left} more (--top {len(counts)})"] if left else []
    return title, [f"  {'allowed':>8}  {'denied':>6}  {'asked':>6}", *lines] if lines else []


def _answer(stats: Stats, name: str) -> str:
    count = stats.answers[name]
    return f"  {count:>8}  {_share(count, stats.answers.total())}  {_ANSWERS[name]}"


def _asked(line: str, asked: Asked, width: int) -> str:
    how = ", ".join(f"{asked.answers[name]} {name}" for name in ANSWERS if asked.answers[name])
    told = visible(f"{asked.tier}: {how}; last in {asked.last}", lines=False)
    return f"  {asked.answers.total():>6}x  {one_line(line, max(width - 13 - len(told), 30))}  ({told})"


def _denied(line: str, found: tuple[Count, str, str], width: int) -> str:
    count, tier, rule = found
    told = visible(f"{tier}{f', {rule}' if rule else ''}; last in {count.last}", lines=False)
    return f"  {count.deny:>6}x  {one_line(line, max(width - 13 - len(told), 30))}  ({told})"


def _never(stats: Stats, known: Known) -> list[Section]:
    """What no decision names. A rule of one's own is named when it allowed, asked or denied something."""
    own = unnamed(stats, known.own)
    told: list[Section] = []
    if known.own:
        lines = [f"  {visible(rule, lines=False)}" for rule in own[:_NAMED]]
        lines += [f"  and {len(own) - _NAMED} more (--json)"] if len(own) > _NAMED else []
        told.append((f"rules of your own that never spoke: {len(own)} of {len(known.own)}", lines or ["  none"]))
    if known.shipped:
        total = sum(map(len, known.shipped.values()))
        silent = {file: len(unnamed(stats, rules)) for file, rules in known.shipped.items()}
        spoke = [
            f"  {len(rules) - silent[file]:>6} of {len(rules):>5}  {file}" for file, rules in known.shipped.items()
        ]
        title = f"rules of the program that never spoke: {sum(silent.values())} of {total}; those that did, by file"
        told.append(
            (
                title,
                [
                    line
                    for line, file in zip(spoke, known.shipped, strict=True)
                    if silent[file] < len(known.shipped[file])
                ],
            )
        )
    return told


def _share(part: int, whole: int) -> str:
    return f"{100 * part / whole:>3.0f} %" if whole else "     "
