"""`agent profile learn`: run a command without further rights, show what it was refused, and write a rule for it."""

import asyncio
import os
from collections.abc import Sequence
from dataclasses import replace

from policy.describe.phrases import near, plain
from policy.evaluation import EvaluationContext
from policy.grants.extra_right import ExtraRight, extra_of
from policy.grants.trial import can_try, expected_rights, learned, trial
from policy.model.action import Action, RunArgv, RunScript
from policy.model.assessment import Assessment
from policy.model.facts import Facts
from policy.model.frozen import dataclass
from policy.model.profile import Source
from policy.model.secret_paths import inside
from policy.model.verdict import Allow, Deny, Problem
from policy.permission.flag_rights import FlagRights
from runner.audit.fact_recorder import FactRecorder
from runner.audit.records import RecordedAnswer
from runner.config.learned_rule import LearnedRule, append_rule, rule_file
from runner.frontends.exec.confined import confine
from runner.frontends.exec.in_loop import InLoop
from runner.frontends.exec.report import ExecCase, PlainReport
from runner.gate.gate import Gate, GateArgs, is_unattended, open_gate, refuse_folder
from runner.problems import Exit, Stopped, usage
from runner.stderr import say, say_notice
from runner.text.json_line import json_line
from runner.text.sanitize import one_line, visible
from sandbox.backend import Level, Outcome
from sandbox.inside.regular_file import read_whole

_MOST_ROUNDS = 8
_LONGEST_SCRIPT = 64 << 10  # bytes of a script of the workspace whose commands are looked up
_SHELLS = ("sh", "bash", "dash")
_SPECIAL = frozenset("*?")
_LONGEST = 200  # characters of one refusal
_FIRST = "run it without rights outside of the workspace, to learn what it needs?"
_FIX = "write the command without patterns and variables"
_DOING = {"--read": "read", "--write": "change", "--host": "connect to"}


@dataclass(frozen=True, slots=True)
class LearnArgs:
    """The options of `agent profile learn`.

    Attributes:
        gate: The command, and the options that `agent exec` has too.
        target: The file that gets the rule, or None for that of the project.
        dry: True to print the rule and write nothing.
        json: True to print one JSON object.
    """

    gate: GateArgs
    target: str | None = None
    dry: bool = False
    json: bool = False


@dataclass(frozen=True, slots=True)
class MissingRight:
    """One right that a run lacked, or that the facts about commands let expect.

    Attributes:
        right: the right, or None if no right would help.
        text: the refusal or the expectation in words.
        learnable: True if a rule may add the right.
    """

    right: ExtraRight | None
    text: str
    learnable: bool


class _ErrorReport(PlainReport):
    """The report of a run whose output goes to stderr, because stdout gets the JSON object."""

    def listen(self, stream: int, chunk: bytes) -> None:
        """Write a piece of output to stderr."""
        super().listen(2, chunk)


def learn(args: LearnArgs) -> int:
    """Run the command of `args` until it is refused nothing more, and write the rule. Return the exit code of its last
    run.

    Without a user at a terminal the command runs once, and the rule for all that could be learned is shown, not
    written.
    """
    gate, action = open_gate(args.gate, os.environ)
    refuse_folder(gate.cwd, os.environ, gate.settings.profile)
    for notice in gate.settings.notices:
        say_notice(visible(notice, lines=False))
    attended = not is_unattended(args.gate.unattended)
    context = gate.context(Source.PERSON, unattended=False)
    words = _words_of(context, action)
    minimum = Level(args.gate.least.upper()) if args.gate.least else gate.settings.sandbox_minimum
    chosen, declined, rows = FlagRights(), set[str](), list[MissingRight]()
    expected: tuple[ExtraRight, ...] | None = None
    session, card = "", _FIRST
    for _ in range(_MOST_ROUNDS):
        case, verdict = _case(gate, action, chosen, card)
        expected = _expected(case.assessment, gate) if expected is None else ()
        report = _ErrorReport() if args.json else PlainReport()
        backend = (args.gate.backend, minimum)
        ended = asyncio.run(confine(InLoop(), case, verdict, report, None, backend, None, session=session))
        session = ended.session
        context = replace(context, facts=case.gate.facts)
        found = _refusals(ended.outcome, expected, context, action, chosen, {*declined, *_rights(chosen)})
        rows += found
        offered = [each.right for each in found if each.right is not None and each.learnable]
        if not offered or ended.outcome.ended_by is not None:
            break
        picked = offered
        if attended:
            card = _card(found)
            picked = _ask(card, offered)
            declined |= {each.words for each in offered if each not in picked}
        for right in picked:
            chosen = learned(context, action, right, chosen) or chosen
        if not attended or not picked:
            break
    return _conclude(args, gate, LearnedRule(words, _shown_rights(chosen, gate.facts)), rows, ended.code, attended)


def _words_of(context: EvaluationContext, action: Action) -> tuple[str, ...]:
    """Return the words of the one command of `action`. Raise Stopped if no rule can add rights to the action."""
    assessment, verdict = context.evaluate(action)
    what = "the command cannot be learned"
    if not can_try(assessment, verdict):
        if isinstance(verdict, Deny):
            raise Stopped(verdict.problem, Exit.DENIED)
        reason = next(iter(assessment.asked), assessment.reasons[0])
        why = f"{reason.text}; no rule can allow that in advance"
        raise Stopped(Problem(what, plain(why), "run it with `agent exec`, which asks each time"), Exit.DENIED)
    commands = [step for step in assessment.steps if step.words or step.text]
    alone = len(commands) == 1 and not any(step.effects for step in assessment.steps if step is not commands[0])
    words = commands[0].literal if alone else None
    if words is None:
        fix = "put the steps into a script of the workspace: `agent profile learn -- bash install.sh`"
        raise usage(what, "a rule adds rights to one command with certain words", fix)
    if commands[0].set_up or any(not word.isprintable() or not word or _SPECIAL & set(word) for word in words):
        raise usage(what, "one of its words is a pattern or cannot be shown, or a variable is set for it", _FIX)
    return words


def _case(gate: Gate, action: Action, chosen: FlagRights, card: str) -> tuple[ExecCase, Allow]:
    """Return the decision about a run with the rights `chosen` and no others. Raise Stopped if there is none."""
    noted = FactRecorder(gate.facts, gate.settings.profile)
    gate = replace(gate, facts=noted.facts, typed=chosen or None)
    assessment, verdict = gate.evaluate(action, Source.PERSON, unattended=False)
    if not can_try(assessment, verdict) or isinstance(verdict, Deny):
        why = "the configuration or the machine changed"
        raise Stopped(Problem("the command cannot be learned any more", why, "start again"), Exit.DENIED)
    allow = trial(assessment, verdict, chosen, gate.settings.profile.bundle)
    answer = RecordedAnswer(card, True, "terminal, by `agent profile learn`")
    return ExecCase(gate, assessment, allow, answer, True, noted), allow


def _expected(assessment: Assessment, gate: Gate) -> tuple[ExtraRight, ...]:
    """Return the rights that the facts about commands name for the command, and for the script that it runs."""
    found = list(expected_rights(assessment))
    action = assessment.action
    words = (
        action.argv
        if isinstance(action, RunArgv)
        else tuple(action.script.split())
        if isinstance(action, RunScript)
        else ()
    )
    name = words[1] if len(words) > 1 and words[0] in _SHELLS else words[0] if words[:1] and "/" in words[0] else ""
    path = os.path.realpath(os.path.join(gate.cwd, name)) if name else ""
    if path and inside(path, gate.facts.workspace):
        try:
            text = read_whole(path, _LONGEST_SCRIPT, follow=True).decode()
        except (OSError, ValueError):
            text = ""  # it is not a script that can be looked up
        found += expected_rights(gate.evaluate(RunScript(text, gate.cwd), Source.PERSON, unattended=False)[0])
    return tuple(dict.fromkeys(found))


def _refusals(
    outcome: Outcome,
    expected: Sequence[ExtraRight],
    context: EvaluationContext,
    action: Action,
    chosen: FlagRights,
    known: set[str],
) -> list[MissingRight]:
    """Return what the run was refused, then what is expected in addition, each right once."""
    found: dict[str, MissingRight] = {}
    for violation in outcome.violations:
        right = extra_of(violation.right)
        learnable = right is not None and learned(context, action, right, chosen) is not None
        text = (
            f"refused: {_described(right, context.facts)}"
            if right
            else f"refused: {one_line(violation.what, _LONGEST)}"
        )
        found.setdefault(right.words if right else text, MissingRight(right, text, learnable))
    for right in expected if found or outcome.status else ():
        if right.flag == "--host":  # the whole host is expected, so its refused requests are not further rows
            narrow = [each for each in found.values() if each.right and _host_of(each.right) == right.target]
            found = {words: each for words, each in found.items() if each not in narrow}
        learnable = learned(context, action, right, chosen) is not None
        text = f"expected: {_described(right, context.facts)}"
        found.setdefault(right.words, MissingRight(right, text, learnable))
    # Requests of a host that the user declined as a whole are not asked about one by one.
    return [
        each
        for words, each in found.items()
        if words not in known and not (each.right and f"--host {_host_of(each.right)}" in known)
    ]


def _host_of(right: ExtraRight) -> str:
    """Return the host of a right without its method and path; empty for a path."""
    return right.target.split(" ")[-1].partition("/")[0] if right.flag == "--host" else ""


def _described(right: ExtraRight, facts: Facts) -> str:
    return f"{_DOING[right.flag]} {plain(right.target) if right.flag == '--host' else near(right.target, facts)}"


def _card(found: Sequence[MissingRight]) -> str:
    """Return the card of one round: the rights that may be added by number, then those that no rule may add."""
    rows, number = [], 0
    for each in found:
        number += each.learnable
        rows.append(f"  {number:>2}  {each.text}" if each.learnable else f"   -  {each.text} (no rule can add this)")
    return "\n".join(["the command was stopped, or will be:", *rows])


def _ask(card: str, offered: Sequence[ExtraRight]) -> list[ExtraRight]:
    """Show the card on the terminal, and return the rights that the user adds."""
    from runner.config.trust.prompt import typed_line  # only at a terminal

    say(visible(card))
    prompt = "add these rights for the next run and the rule? [y all, y 1 3 only these, n none] "
    while True:
        try:
            first, *numbers = typed_line(prompt).split() or ["n"]
        except EOFError:
            return []
        if first in ("n", "no") and not numbers:
            return []
        places = [int(each) for each in numbers if each.isascii() and each.isdigit()]
        if first in ("y", "yes") and len(places) == len(numbers) and all(0 < at <= len(offered) for at in places):
            return [right for at, right in enumerate(offered, 1) if not places or at in places]
        say("answer y, y with numbers, or n")


def _rights(chosen: FlagRights) -> set[str]:
    return set(chosen.words)


def _shown_rights(chosen: FlagRights, facts: Facts) -> tuple[str, ...]:
    """Return the rights as a rule states them, with `~/` for the home."""
    home = f"{facts.home}/"
    return tuple(
        f"{flag} ~/{path.removeprefix(home)}" if path.startswith(home) else f"{flag} {path}"
        for flag, path in (words.split(" ", 1) for words in chosen.words)
    )


def _conclude(
    args: LearnArgs, gate: Gate, rule: LearnedRule, rows: Sequence[MissingRight], code: int, attended: bool
) -> int:
    """Write or show the rule, and return the exit code."""
    written: str | None = None
    if rule.rights and attended and not args.dry:
        path, local = rule_file(args.target, gate.facts.workspace, os.environ)
        append_rule(path, rule, gate.settings, own=not local)
        written = str(path)
        say(f"the rule was written to {near(written, gate.facts)}")
        if local:
            say("`agent trust` makes it apply: a changed file of the project needs your trust")
    if args.json:
        listed = [
            {"right": each.right.words if each.right else None, "text": each.text, "learnable": each.learnable}
            for each in rows
        ]
        text = rule.text() if rule.rights else None
        print(json_line({"status": code, "refused": listed, "rule": text, "written": written}))
        return code
    if not rule.rights:
        say("no rule is needed: nothing was added" if not rows else "no rule was made: no right was added")
    else:
        print(rule.text())
        if written is None and not args.dry:
            say("nothing was written: only a user at a terminal can add rights")
    return code
