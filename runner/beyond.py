"""What the sandbox stopped, put to the person: the exact right that was missing, for one more run.

THREAT: a program says itself what it could not reach. It may lie, and name what it wants; so floors and denials hold,
the card says whose word it is, a call is asked about a few times at most and each time for another right, a no holds
for the conversation, and no yes is remembered.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import replace

from policy.action import RunArgv, RunScript
from policy.extra import ExtraRight, added, ask_for, extra_of
from policy.grants import approve, refuse
from policy.record import dataclass
from policy.verdict import Allow, Ask, Deny, Terms
from runner.approval import Halt, No, Question, Yes
from runner.approval_offer import NOTHING
from runner.asking import ask_about
from runner.audit import records
from runner.calls import Judgement, Planned
from runner.card import card
from runner.events import Answered
from runner.judging import judge_action
from runner.run_context import RunContext
from runner.visible import one_line
from sandbox.backend import Outcome, Violation

_MOST = 4  # rights that one call may be asked for: a registry, and where its files lie
_LONGEST = 300  # characters of what was stopped, in the card


@dataclass(frozen=True, slots=True)
class Escalation:
    """What a person said to one more right: `verdict` Allow runs the action again, by it and for this once."""

    judgement: Judgement
    extra: ExtraRight
    verdict: Allow | Deny
    answer: records.Answer


async def request_escalation(
    planned: Planned, had: Terms, outcome: Outcome, ctx: RunContext, granted_rights: Sequence[ExtraRight] = ()
) -> Escalation | None:
    """Ask the user for the right that `outcome` lacked, and return the answer.

    `granted_rights` were added for this call already. Return None if no right was missing, or if no user may grant it.
    """
    if len(granted_rights) >= _MOST:
        return None
    if ctx.unattended or outcome.status == 0 or outcome.ended_by is not None or not outcome.violations:
        return None
    if not isinstance(planned.action, RunScript | RunArgv):
        return None
    now = judge_action(planned, ctx)
    found = next(
        (
            (violation, extra, first)
            for violation in outcome.violations
            if (extra := extra_of(violation.right))
            and (first := _ask(now, had, extra, granted_rights, ctx))
            and added(first, had).words not in ctx.refused_rights
        ),
        None,
    )
    if found is None:
        return None
    ask: Ask | None
    violation, extra, ask = found
    why = _again(violation)
    while ask is not None:
        told = replace(card(ask, NOTHING, around=now.recalled.context.facts), editable=False)
        answer, seconds = await ask_about(Question(planned.call.key, ask, NOTHING, told, None, why), ctx)
        if isinstance(answer, Halt):
            raise asyncio.CancelledError
        yes = isinstance(answer, Yes)
        feedback = answer.feedback if isinstance(answer, No) else None
        asked, now = ask, judge_action(planned, ctx)  # the machine as it is by now
        ask = _ask(now, had, extra, granted_rights, ctx)
        if yes and ask != asked:
            why = "what this rests on has changed since you were asked"
            continue
        ctx.emit(Answered(planned.call.key, yes, feedback))
        if not yes:
            ctx.refused_rights.add(added(asked, had).words)
        said = records.Answer(asked.question, yes, ctx.approver.name, feedback, seconds)
        verdict = approve(asked) if yes else refuse(asked, feedback, ctx.approver.name)
        return Escalation(replace(now, assessment=asked.assessment), added(asked, had), verdict, said)
    return None


def _ask(
    now: Judgement, had: Terms, extra: ExtraRight, granted_rights: Sequence[ExtraRight], ctx: RunContext
) -> Ask | None:
    return ask_for(now.recalled.context, now.planned.action, had, extra, granted_rights)


def _again(violation: Violation) -> str:
    said = one_line(violation.what, _LONGEST)
    whose = "the program says so itself" if violation.inferred else "the sandbox says so"
    return f"it ran, and was stopped: {said} ({whose})"
