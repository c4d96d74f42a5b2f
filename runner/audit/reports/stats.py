"""Statistics of a log: counts by tier, rule, host, command and mode, frequent questions, and slow actions.

One pass reads the decisions. The memory used grows with the number of different actions, not with their length.
"""

import heapq
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import assert_never

from policy.model.profile import MAIN
from runner.audit.decisions import DecisionTrail, answer_source, bare_host
from runner.audit.fields import Body, items, mapping, number, text
from runner.audit.list_view import action_line
from runner.audit.query import command_of, was_question
from runner.audit.records import AnswerSource
from runner.gate.explain import ExplanationSection, titled
from runner.text.phrases import many
from runner.text.sanitize import one_line, visible

LINE = 200  # characters of an action: actions with the same beginning are counted as one
ANSWERS = {
    "yes": "yes, by the user",
    "no": "no, by the user",
    "remembered": "a remembered answer",
    "by rule": "a rule or a flag",
    "nobody": "no user could be asked",
}
# Tables of Stats, with their titles.
_TABLES = {
    "tiers": "tier that decided",
    "modes": "mode",
    "tools": "tool",
    "agents": "agent, with those that started it",
    "rules": "rule that decided",
    "hosts": "host",
    "commands": "command",
}


@dataclass(slots=True)
class DecisionCount:
    """Numbers of allowed actions, denied actions and questions, and the id of the last record."""

    allow: int = 0
    deny: int = 0
    asked: int = 0
    last: int = 0

    @property
    def all(self) -> int:
        return self.allow + self.deny

    def add(self, *, allowed: bool, asked: bool, number: int) -> None:
        self.allow += allowed
        self.deny += not allowed
        self.asked += asked
        self.last = max(self.last, number)

    def join(self, other: "DecisionCount") -> None:
        """Add the numbers of `other`."""
        self.allow, self.deny, self.asked = self.allow + other.allow, self.deny + other.deny, self.asked + other.asked
        self.last = max(self.last, other.last)


@dataclass(slots=True)
class Asked:
    """Questions about one action: the deciding tier, the number of answers by kind, and the id of the last record."""

    tier: str
    answers: Counter[str] = field(default_factory=Counter)
    last: int = 0


@dataclass(slots=True)
class Stats:
    """Statistics of the decisions that were passed to `add`, in any order. `top` is the length of the rankings."""

    top: int = 10
    first: str = ""
    last: str = ""
    sessions: set[str] = field(default_factory=set)
    whole: DecisionCount = field(default_factory=DecisionCount)
    answers: Counter[str] = field(default_factory=Counter)
    tables: dict[str, defaultdict[str, DecisionCount]] = field(
        default_factory=lambda: {name: defaultdict(DecisionCount) for name in _TABLES}
    )
    by_agent: defaultdict[tuple[str, str], DecisionCount] = field(default_factory=lambda: defaultdict(DecisionCount))
    parents: dict[tuple[str, str], str] = field(default_factory=dict)  # by session and agent
    questions: dict[str, Asked] = field(default_factory=dict)
    denials: dict[str, tuple[DecisionCount, str, str]] = field(default_factory=dict)
    named: set[str] = field(default_factory=set)  # every rule that applied to an action, deciding or not
    slow: list[tuple[float, int, str]] = field(default_factory=list)

    def add(self, deed: DecisionTrail) -> None:
        body, place = deed.record.body, deed.record.id
        time, session = text(body.get("time")), text(body.get("session"))
        self.first = min(self.first or time, time)
        self.last = max(self.last, time)
        self.sessions.add(session)
        allowed, asked = body.get("verdict") == "allow", was_question(body)
        tier, rule, line = deed.tier, deed.rule, action_line(deed)[:LINE]
        mode, tool, command = text(body.get("mode")), text(body.get("tool")), command_of(body)
        names = {"tiers": tier, "modes": mode, "tools": tool, "rules": rule, "commands": command}
        self.parents[session, deed.agent] = deed.parent
        self.by_agent[session, deed.agent].add(allowed=allowed, asked=asked, number=place)
        for table, name in names.items():
            if name:
                self.tables[table][name].add(allowed=allowed, asked=asked, number=place)
        self.whole.add(allowed=allowed, asked=asked, number=place)
        for host, through in _hosts(deed).items():
            self.tables["hosts"][host].add(allowed=through, asked=asked, number=place)
        reasons = [*items(body.get("reasons")), *items(body.get("rules")), body.get("because")]
        self.named |= {text(mapping(each).get("rule")) for each in reasons}
        if asked:
            self._ask(line, tier, answer_of(body), place)
        if not allowed:
            count, _, _ = self.denials.setdefault(line, (DecisionCount(), tier, rule))
            count.add(allowed=False, asked=asked, number=place)
        seconds = number(deed.outcome.get("seconds"))
        if seconds is not None:
            entry = (float(seconds), place, line)
            heapq.heappush(self.slow, entry) if len(self.slow) < self.top else heapq.heappushpop(self.slow, entry)

    def with_agents(self) -> "Stats":
        """Fill the table of agents, in which each name begins with those of the agents above: `main > explore-1`. It
        stays empty if only `main` acted. Called after the last `add`.
        """
        self.tables["agents"].clear()
        if any(agent != MAIN for _, agent in self.by_agent):
            for (session, agent), counts in self.by_agent.items():
                self.tables["agents"][self._path(session, agent)].join(counts)
        return self

    def _path(self, session: str, agent: str) -> str:
        names = [agent]
        while (above := self.parents.get((session, names[0]))) and above not in names:
            names.insert(0, above)
        return " > ".join(names)

    def _ask(self, line: str, tier: str, answer: str, number: int) -> None:
        self.answers[answer] += 1
        asked = self.questions.setdefault(line, Asked(tier))
        asked.answers[answer] += 1
        asked.last = max(asked.last, number)

    def asked_most(self) -> list[tuple[str, Asked]]:
        return sorted(self.questions.items(), key=lambda each: (-each[1].answers.total(), each[0]))[: self.top]

    def denied_most(self) -> list[tuple[str, tuple[DecisionCount, str, str]]]:
        return sorted(self.denials.items(), key=lambda each: (-each[1][0].deny, each[0]))[: self.top]

    def slowest(self) -> list[tuple[float, int, str]]:
        return sorted(self.slow, reverse=True)


def unnamed(stats: Stats, rules: Iterable[str]) -> list[str]:
    """Return the `rules` (in the text form of `RuleRef`) that no decision names."""
    return [rule for rule in dict.fromkeys(rules) if rule not in stats.named]


def answer_of(body: Body) -> str:
    """Return the kind of the answer to a question: a key of ANSWERS."""
    match answer_source(body):
        case None:
            return "by rule" if body.get("verdict") == "allow" else "nobody"
        case AnswerSource.USER:
            return "yes" if mapping(body.get("answer")).get("yes") else "no"
        case AnswerSource.GRANT | AnswerSource.REFUSAL:
            return "remembered"
        case never:
            assert_never(never)


def _hosts(deed: DecisionTrail) -> dict[str, bool]:
    """Return each host of a decision, with True if the connection was, or would have been, allowed."""
    allowed = deed.record.body.get("verdict") == "allow"
    found: dict[str, bool] = {}
    for effect in map(mapping, items(deed.record.body.get("effects"))):
        if effect.get("kind") == "connects" and (host := bare_host(text(effect.get("target")))):
            found[host] = allowed
    for made in map(mapping, items(deed.outcome.get("connections"))):
        if host := text(made.get("host")):
            found[host] = found.get(host, True) and bool(made.get("allowed"))
    return found


_NAMED = 20  # listed rules of the user


@dataclass(frozen=True, slots=True)
class Known:
    """Existing rules in the text form of `RuleRef`: `own` from the configuration files in effect, `shipped` by file."""

    own: tuple[str, ...] = ()
    shipped: Mapping[str, tuple[str, ...]] | None = None


def stats_text(stats: Stats, known: Known, *, colour: bool, width: int) -> str:
    """Return the statistics as text that is safe to print on a terminal."""
    whole = stats.with_agents().whole
    sessions = len(stats.sessions)
    spoken = f"{stats.first[:10]} to {stats.last[:10]} (UTC)" if stats.first else ""
    total = stats.answers.total()
    answers = [(stats.answers[name], words) for name, words in ANSWERS.items() if stats.answers[name]]
    answered = [f"  {count:>8}  {_share(count, total)}  {words}" for count, words in answers]
    told: list[ExplanationSection] = [
        (f"{many(whole.all, 'decision')} in {many(sessions, 'session')}, {visible(spoken, lines=False)}", [""]),
        ("verdict", [f"  {count:>8}  {_share(count, whole.all)}  {name}" for name, count in _verdicts(whole)]),
        ("questions, by who answered", answered),
        *(_table(title, stats.tables[name], stats, width) for name, title in _TABLES.items()),
        ("asked most often", [_asked(line, asked, width) for line, asked in stats.asked_most()]),
        ("denied most often", [_denied(line, denied, width) for line, denied in stats.denied_most()]),
        ("slowest", [f"  {time:>8.2f} s  {one_line(line, width - 24)} ({id})" for time, id, line in stats.slowest()]),
        *_never(stats, known),
    ]
    return titled(told, colour=colour)


def stats_json(stats: Stats, known: Known) -> dict[str, object]:
    """Return the complete statistics: all counts, and the `top` questions, denials and outcomes."""
    stats.with_agents()
    return {
        "decisions": stats.whole.all,
        "sessions": len(stats.sessions),
        "first": stats.first,
        "last": stats.last,
        "verdicts": dict(_verdicts(stats.whole)),
        "answers": {name: stats.answers[name] for name in ANSWERS},
        **{name: [{"name": key, **asdict(count)} for key, count in _ranked(stats.tables[name])] for name in _TABLES},
        "asked": [
            {
                "action": line,
                "tier": each.tier,
                "count": each.answers.total(),
                "answers": {**each.answers},
                "last": each.last,
            }
            for line, each in stats.asked_most()
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


def _verdicts(whole: DecisionCount) -> tuple[tuple[str, int], tuple[str, int]]:
    return ("allow", whole.allow), ("deny", whole.deny)


def _ranked(counts: Mapping[str, DecisionCount]) -> list[tuple[str, DecisionCount]]:
    """Return the names, the most frequent first; equal counts by name."""
    return sorted(counts.items(), key=lambda each: (-each[1].all, each[0]))


def _table(title: str, counts: Mapping[str, DecisionCount], stats: Stats, width: int) -> ExplanationSection:
    shown = _ranked(counts)[: stats.top]
    room = max(width - 32, 20)
    lines = [f"  {count.allow:>8}  {count.deny:>6}  {count.asked:>6}  {one_line(name, room)}" for name, count in shown]
    left = len(counts) - len(shown)
    lines += [f"  and {left} more (--top {len(counts)})"] if left else []
    return title, [f"  {'allowed':>8}  {'denied':>6}  {'asked':>6}", *lines] if lines else []


def _asked(line: str, asked: Asked, width: int) -> str:
    how = ", ".join(f"{asked.answers[name]} {name}" for name in ANSWERS if asked.answers[name])
    told = visible(f"{asked.tier}: {how}; last in {asked.last}", lines=False)
    return f"  {asked.answers.total():>6}x  {one_line(line, max(width - 13 - len(told), 30))}  ({told})"


def _denied(line: str, found: tuple[DecisionCount, str, str], width: int) -> str:
    count, tier, rule = found
    told = visible(f"{tier}{f', {rule}' if rule else ''}; last in {count.last}", lines=False)
    return f"  {count.deny:>6}x  {one_line(line, max(width - 13 - len(told), 30))}  ({told})"


def _never(stats: Stats, known: Known) -> list[ExplanationSection]:
    """Return sections about the rules that no decision names. A user's rule is named if it allowed, asked or denied."""
    own = unnamed(stats, known.own)
    told: list[ExplanationSection] = []
    if known.own:
        lines = [f"  {visible(rule, lines=False)}" for rule in own[:_NAMED]]
        lines += [f"  and {len(own) - _NAMED} more (--json)"] if len(own) > _NAMED else []
        told.append((f"your rules that never matched: {len(own)} of {len(known.own)}", lines or ["  none"]))
    if known.shipped:
        total = sum(map(len, known.shipped.values()))
        silent = {file: len(unnamed(stats, rules)) for file, rules in known.shipped.items()}
        title = f"packaged rules that never matched: {sum(silent.values())} of {total}; matched rules, by file"
        lines = [
            f"  {len(rules) - silent[file]:>6} of {len(rules):>5}  {file}"
            for file, rules in known.shipped.items()
            if silent[file] < len(rules)
        ]
        told.append((title, lines))
    return told


def _share(part: int, whole: int) -> str:
    return f"{100 * part / whole:>3.0f} %" if whole else "     "
