"""Explanation of a verdict, from the parsed action to the rights, as text with carets and as JSON."""

import unicodedata

from policy.model.action import Action, RunScript
from policy.model.assessment import Assessment, Check, Effect, EffectKind, Reason, RuleKind
from policy.model.frozen import dataclass
from policy.model.host_words import names_private_network
from policy.model.tier import Mode, Ruling, Tier
from policy.model.verdict import Allow, Ask, Cell, Deny, Problem, Terms, Verdict
from runner.gate.wording import RULING_WORDS, action_words, cell_words, rule_words, terms_words
from runner.text.sanitize import visible

_LONGEST_LINE = 200  # characters of a script line shown around the words a reason points at

_VERBS = {
    EffectKind.CONNECTS: "connects to",
    EffectKind.USES_LOOPBACK: "uses the loopback of the sandbox:",
    EffectKind.PRIVILEGE: "needs privilege:",
    EffectKind.UNKNOWN: "unknown:",
}
_UNNAMED = {EffectKind.CONNECTS: "a host known only at run time", EffectKind.USES_LOOPBACK: "a server"}


@dataclass(frozen=True, slots=True)
class Explanation:
    """Everything that determined one verdict.

    Attributes:
        line: one line about what the action does
        terms: rights that a permit would hold; None if no approval can give one
        rules: statements of the users' own rules about the action
        ways: ways to get the action allowed, in words; empty if it is allowed
        rule: the `[[rule]]` that would allow the action; it was verified
        digest: digest of the terms if they came from a record, which has no values of environment variables
    """

    action: Action
    tree: str
    effects: tuple[Effect, ...]
    tiers: tuple[Tier, ...]
    reasons: tuple[Reason, ...]
    cell: Cell
    because: Reason
    verdict: Ruling
    problem: Problem | None
    question: str | None
    terms: Terms | None
    ways: tuple[str, ...]
    workspace: str
    line: str = ""
    rules: tuple[Reason, ...] = ()
    rule: str | None = None
    digest: str = ""
    tries: bool = False

    def as_json(self) -> dict[str, object]:
        """Return a JSON object without the values of environment variables."""
        from dataclasses import asdict

        terms = None
        if self.terms is not None:
            terms = {**asdict(self.terms), "env": [name for name, _ in self.terms.env], "digest": self.terms.digest}
        return {
            "action": {"type": self.action.kind, **asdict(self.action)},
            "line": self.line,
            "tree": self.tree,
            "effects": [asdict(effect) for effect in self.effects],
            "tiers": [tier.label for tier in self.tiers],
            "reasons": [reason_json(reason) for reason in self.reasons],
            "mode": self.cell.mode.value,
            "cell": {
                "tier": self.cell.tier.label,
                "mode": self.cell.mode.value,
                "ruling": self.cell.ruling.name.lower(),
            },
            "verdict": self.verdict.name.lower(),
            "because": reason_json(self.because),
            "problem": asdict(self.problem) if self.problem else None,
            "question": self.question,
            "terms": terms,
            "rules": [reason_json(reason) for reason in self.rules],
            "ways": list(self.ways),
            "rule": self.rule,
            "tries": self.tries,
        }


def explain(
    assessment: Assessment,
    verdict: Verdict,
    workspace: str,
    rulings_by_mode: tuple[tuple[Mode, Ruling], ...],
    *,
    line: str = "",
    rule: str | None = None,
) -> Explanation:
    """Build the explanation. `rulings_by_mode` has the ruling of every mode on the same action if a user can be asked;
    see Explanation for `line` and `rule`.
    """
    ruling, terms = Ruling.DENY, None
    if isinstance(verdict, Allow):
        ruling, terms = Ruling.ALLOW, verdict.permit.terms
    elif isinstance(verdict, Ask):
        ruling, terms = Ruling.ASK, verdict.terms
    return Explanation(
        action=assessment.action,
        tree=assessment.tree,
        effects=assessment.effects,
        tiers=assessment.tiers,
        reasons=assessment.reasons,
        cell=verdict.cell,
        because=verdict.reason,
        verdict=ruling,
        problem=verdict.problem if isinstance(verdict, Deny) else None,
        question=verdict.question if isinstance(verdict, Ask) else None,
        terms=terms,
        ways=_ways(ruling, verdict.cell, rulings_by_mode, assessment),
        workspace=workspace,
        line=line,
        rules=tuple(dict.fromkeys((*assessment.asked, *assessment.covered.values()))),
        rule=rule,
        tries=isinstance(verdict, Ask) and verdict.tries,
    )


ExplanationSection = tuple[str, list[str]]  # a title, and its lines, safe to print on a terminal


def render(explanation: Explanation, *, colour: bool = False, config: str = "~/.config/ringfence/config.toml") -> str:
    """Return the explanation as plain text, one section for each question of a reader. Safe to print on a terminal.

    `config` is the file of the user's own rules, whether or not it exists.
    """
    parts = sections(explanation)
    parts.append(("how to allow it", shown(list(explanation.ways))))
    if explanation.rule is not None:
        title = visible(f"or with this rule in {config}", lines=False)
        parts.append((title, shown(explanation.rule.split("\n"))))
    return titled(parts, colour=colour)


def sections(explanation: Explanation) -> list[ExplanationSection]:
    """Return the sections of the explanation, from the action to the rights."""
    action = explanation.action
    verdict = [RULING_WORDS[explanation.verdict]]
    if explanation.because.rule == Check.OFFLINE_START:
        verdict.append(f"{explanation.because.text}; a refused connection becomes a question")
    if explanation.tries:
        verdict.append(
            "in a session a rule tries it: it runs without network on a copy, and at the end of the turn you decide "
            "what to keep"
        )
    if explanation.question:
        verdict.append(explanation.question)
    if problem := explanation.problem:
        verdict += [problem.what, f"why: {problem.why}", f"fix: {problem.fix}"]
    parts = [
        ("action", shown([action_words(action, explanation.workspace)])),
        ("in one line", shown([explanation.line] if explanation.line else [])),
        ("parse", shown(explanation.tree.splitlines())),
        ("effects", shown([effect_words(effect) for effect in explanation.effects])),
        ("reasons", [line for reason in explanation.reasons for line in caret_lines(action, reason)]),
        ("rules", [line for reason in explanation.rules for line in caret_lines(action, reason)]),
        ("tier", shown([", ".join(tier.shown for tier in explanation.tiers)])),
        ("cell", shown([cell_words(explanation.cell)])),
        ("verdict", shown(verdict)),
    ]
    if explanation.terms is not None:
        title = "permit" if explanation.verdict is Ruling.ALLOW else "permit, if you approve"
        lines = [f"{name:<8} {words}" for name, words in terms_words(explanation.terms)]
        lines.append(f"{'environ':<8} {names_of(explanation.terms) or 'empty'}")
        lines.append(f"{'digest':<8} {explanation.digest or explanation.terms.digest[:16]}")
        parts.append((title, shown(lines)))
    return parts


def titled(parts: list[ExplanationSection], *, colour: bool) -> str:
    """Return sections as plain text; sections without lines are left out."""
    bold, end = ("\x1b[1m", "\x1b[0m") if colour else ("", "")
    return "\n".join("\n".join([f"{bold}{title}{end}", *lines]) for title, lines in parts if lines)


def shown(lines: list[str]) -> list[str]:
    """Return the lines of a section, safe for a terminal."""
    return [f"  {part}".rstrip() for line in lines for part in visible(line).split("\n")]


def names_of(terms: Terms) -> str:
    """Return the names of the environment. A numbered family (`GIT_CONFIG_KEY_0` and on) is one word."""
    return " ".join(
        dict.fromkeys(f"{name.rstrip('0123456789')}N" if name[-1:].isdigit() else name for name, _ in terms.env)
    )


def effect_words(effect: Effect) -> str:
    """Return what an effect does and to what, with its scope if it has one. The text is as untrusted as the effect."""
    below = "" if effect.exact else " (and everything below it)"
    scope = f" [{effect.scope.value}]" if effect.scope.value != "none" else ""
    verb = _VERBS.get(effect.kind, effect.kind.value)
    unknown = _UNNAMED.get(effect.kind, "an unknown target")
    return f"{verb} {effect.target or unknown}{below}{scope}"


def caret_lines(action: Action, reason: Reason, *, brief: bool = False) -> list[str]:
    """Return one reason, with the words of the script that it refers to underlined.

    With `brief`, a rule of the program itself is called "built in" instead of its place in the rule files.
    """
    text = f"{reason.tier.shown}: {reason.text}  ({rule_words(reason.rule) if brief else reason.rule})"
    if reason.rule.kind is RuleKind.USER and reason.rule.line:
        # The text of a rule in a configuration file includes its place; a rule that asks does so for every tier.
        text = f"{'asks' if reason.tier is Tier.READ else reason.tier.shown}: {reason.text}"
    text = visible(text, lines=False)
    if not isinstance(action, RunScript) or reason.span is None:
        return [f"  {text}"]
    script = action.script
    start, end = min(reason.span.start, len(script)), min(reason.span.end, len(script))
    first = script.rfind("\n", 0, start) + 1
    last = script.find("\n", start)
    last = len(script) if last < 0 else last
    # Of a very long line only the neighbourhood is shown, so that the caret stays on the screen.
    low, high = max(first, start - _LONGEST_LINE // 2), min(last, start + _LONGEST_LINE)
    end = min(max(end, start), high)
    before, under, after = (
        visible(part, lines=False) for part in (script[low:start], script[start:end], script[end:high])
    )
    lead, tail = ("…" if low > first else ""), ("…" if high < last else "")
    number = f"{script.count(chr(10), 0, start) + 1}: " if "\n" in script.strip("\n") else ""
    indent = " " * (len(number) + len(lead) + _width(before))
    return [f"  {number}{lead}{before}{under}{after}{tail}", f"  {indent}{'^' * max(_width(under), 1)} {text}"]


def _width(text: str) -> int:
    """Return the width in terminal columns: wide characters take two, combining marks none."""
    return sum(
        0 if unicodedata.combining(char) else 2 if unicodedata.east_asian_width(char) in "WF" else 1 for char in text
    )


def _ways(
    ruling: Ruling, cell: Cell, rulings_by_mode: tuple[tuple[Mode, Ruling], ...], assessment: Assessment
) -> tuple[str, ...]:
    if ruling is Ruling.ALLOW:
        return ()
    from runner.gate.suggest import no_rule_lifts  # nothing is suggested for an allowed action

    ways = ["approve the question at a terminal"] if ruling is Ruling.ASK else []
    free = [mode for mode, other in rulings_by_mode if other is Ruling.ALLOW and mode is not Mode.DANGEROUSLY]
    asks = [mode for mode, other in rulings_by_mode if other is Ruling.ASK]
    if free:
        ways.append("allowed without a question in: " + ", ".join(f"--mode {mode.value}" for mode in free))
    if ruling is Ruling.DENY and asks:
        modes = ", ".join(f"--mode {mode.value}" for mode in asks)
        ways.append(f"a question at a terminal (no --unattended) in: {modes}")
    if not free and (Mode.DANGEROUSLY, Ruling.ALLOW) in rulings_by_mode:
        ways.append("--mode dangerously allows it, still sandboxed: for throw-away machines only")
    hosts = [effect.target for effect in assessment.effects if effect.kind is EffectKind.CONNECTS and effect.exact]
    beyond_network = any(reason.tier > Tier.NETWORK for reason in assessment.reasons)
    if ways and hosts and not beyond_network and cell.mode is not Mode.PLAN:
        every = [f"'{host} private'" if names_private_network(host) else host for host in dict.fromkeys(hosts) if host]
        named = " ".join(f"--host {host}" for host in every) or "--host HOST"
        ways.append(f"for a single command: `agent exec {named} ...`")
    what = f"the `{cell.tier.label}` floor" if cell.tier >= Tier.SECRET else "this refusal"
    beyond = no_rule_lifts(assessment)
    if ways and beyond is not None:
        ways.append(f"no rule allows tier `{beyond.label}`{'' if free else ': each run needs an approval'}")
    denials = [str(reason.rule) for reason in assessment.reasons if reason.tier is Tier.DENIED]
    if cell.tier is Tier.DENIED and denials and not any(reason.tier is Tier.SECRET for reason in assessment.reasons):
        ways.append(f"no mode and no approval allows this: change the rule at {' and '.join(dict.fromkeys(denials))}")
    return tuple(ways) or (f"nothing: no mode, approval or rule lifts {what}",)


def reason_json(reason: Reason) -> dict[str, object]:
    """Return a reason as JSON: `span` is [start, end) in characters of the script."""
    span = [reason.span.start, reason.span.end] if reason.span else None
    return {"tier": reason.tier.label, "text": reason.text, "rule": str(reason.rule), "span": span}
