"""From a verdict to a decision: a question is put, its answer is tried against the machine as it is by then.

INVARIANT: a yes counts for exactly what was on the screen. When the same call is judged otherwise by the time it is
due, it is asked about anew; a no holds all the same.
"""

import asyncio
import itertools
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace

from policy.action import Action, RunScript
from policy.grant import Grant, Span
from policy.grants import approve, refuse
from policy.hearing import EvaluationContext
from policy.matrix import Ruling
from policy.record import dataclass
from policy.verdict import Allow, Ask, Deny, Verdict
from runner.approval import Answer, Edited, Halt, No, Question, Yes, put
from runner.audit import records
from runner.before import text_before
from runner.calls import Call, EarlyAnswer, Judgement, Planned, plan
from runner.card import card
from runner.events import Answered, Asked, Judged, Notice, Proposed
from runner.grant_store import Keep
from runner.judging import judge_action
from runner.remembered import keep, offer, spent
from runner.run_context import RunContext
from runner.visible import one_line

_CHANGED = "what this rests on has changed since you were asked"
_NUMBERS = itertools.count(1)  # of this process, so that an answer that comes late names no other question
_TOLD = 200  # characters of the command that was changed
_EDITED = "this is the command as you changed it"


@dataclass(frozen=True, slots=True)
class Authorization:
    """What will happen with a call. `proposed`: what the model wanted, where a person put something else in its
    place."""

    judgement: Judgement
    verdict: Allow | Deny
    answer: records.Answer | None = None
    names: tuple[str, ...] = ()
    by: tuple[Grant, ...] = ()
    proposed: Action | None = None


async def authorize(judgement: Judgement, ctx: RunContext) -> Authorization:
    """Ask if the verdict is a question, again if what it rests on has changed meanwhile, or if the person has changed
    the command."""
    early, proposed, again = judgement.early, None, ""
    while True:
        found = spent(judgement.recalled, ctx.grants)
        verdict, call = found.verdict, judgement.planned.call
        _tell(judgement, verdict, ctx)
        if isinstance(verdict, Deny) or (isinstance(verdict, Allow) and (early is None or _willing(early.answer))):
            return Authorization(judgement, verdict, found.answer, found.names, found.by, proposed)
        if early is not None and (not isinstance(verdict, Ask) or not _willing(early.answer)
                                  or _same(early.question, verdict, judgement)):  # fmt: skip
            question, answer, seconds = early.question, early.answer, early.seconds
        else:
            assert isinstance(verdict, Ask)  # an Allow has gone its way, or has an early answer
            question = _question(judgement, verdict, found.context, ctx, again or (_CHANGED if early else ""))
            (answer,), seconds = await _put((question,), ctx)
        early = None
        match answer:
            case Halt():
                raise asyncio.CancelledError  # nothing was decided, nothing ran, and the turn is over
            case No(feedback, wanted):
                ctx.emit(Answered(call.key, False, feedback))
                names = _keep(found.context, question.ask, wanted, ctx)
                said = records.Answer(question.ask.question, False, ctx.approver.name, feedback, seconds)
                return Authorization(
                    judgement, refuse(question.ask, feedback, ctx.approver.name), said, names, (), proposed
                )
            case Edited(script):
                action = judgement.planned.action
                if not isinstance(action, RunScript):  # nobody offered that; the answer to an unknown word is no
                    answer, early = No(), EarlyAnswer(question, No(), seconds)
                    continue
                ctx.emit(Answered(call.key, False, None, edited=script))
                ctx.emit(Notice(f"you changed the command `{one_line(action.script, _TOLD)}`"))
                proposed, action = proposed or action, replace(action, script=script)
                planned = replace(judgement.planned, action=action)
                ctx.emit(Proposed(call.key, call.name, action))
                judgement, again = judge_action(planned, ctx), _EDITED
            case Yes(wanted):
                now = judge_action(judgement.planned, ctx)
                if isinstance(now.verdict, Ask) and _same(question, now.verdict, now):
                    ctx.emit(Answered(call.key, True, None))
                    names = _keep(now.recalled.context, now.verdict, wanted, ctx)
                    said = records.Answer(question.ask.question, True, ctx.approver.name, None, seconds)
                    return Authorization(now, approve(now.verdict), said, names, (), proposed)
                judgement, again = now, _CHANGED


async def ask_ahead(calls: Sequence[Call], ctx: RunContext) -> Mapping[str, EarlyAnswer]:
    """The answers to the questions of a whole turn, put as one list; by the keys of the calls. Empty where there are
    not two of them: one is put when it is due."""
    if ctx.unattended or len(calls) < 2:
        return {}
    questions = []
    for call in calls:
        planned = plan(call, ctx)
        if isinstance(planned, Planned):
            found = judge_action(planned, ctx)
            if isinstance(found.verdict, Ask):
                questions.append(_question(found, found.verdict, found.recalled.context, ctx, ""))
    if len(questions) < 2:
        return {}
    answers, seconds = await _put(tuple(questions), ctx)
    if any(isinstance(answer, Halt) for answer in answers):
        raise asyncio.CancelledError
    return {each.call: EarlyAnswer(each, answer, seconds) for each, answer in zip(questions, answers, strict=True)}


async def ask_about(question: Question, ctx: RunContext) -> tuple[Answer, float]:
    """One answer, and how many seconds it took."""
    (answer,), seconds = await _put((question,), ctx)
    return answer, seconds


async def _put(questions: tuple[Question, ...], ctx: RunContext) -> tuple[Sequence[Answer], float]:
    questions = tuple(replace(each, id=f"q{next(_NUMBERS)}") for each in questions)
    for each in questions:
        ctx.emit(Asked(each.call, each.ask.question, each.card, each.again, each.id))
    began = time.monotonic()
    answers = await put(ctx.approver, questions)
    return answers, time.monotonic() - began


def _question(judgement: Judgement, ask: Ask, context: EvaluationContext, ctx: RunContext, again: str) -> Question:
    offered = offer(context, ask, (Span.SESSION, Span.PROJECT), ctx.grants)
    before = text_before(ask.assessment.action)
    told = card(ask, offered, around=context.facts, before=before)
    return Question(judgement.planned.call.key, ask, offered, told, before, again)


def _same(question: Question, ask: Ask, judgement: Judgement) -> bool:
    """Whether the answer to `question` is one to `ask`: the same action, effects, reasons and rights, and the same
    text where a file is written."""
    return question.ask == ask and question.before == text_before(judgement.planned.action)


def _willing(answer: Answer) -> bool:
    return isinstance(answer, Yes)


def _tell(judgement: Judgement, verdict: Verdict, ctx: RunContext) -> None:
    ruling = {Allow: Ruling.ALLOW, Ask: Ruling.ASK, Deny: Ruling.DENY}[type(verdict)]
    reason, cell, tiers = verdict.reason, verdict.cell, judgement.assessment.tiers
    ctx.emit(Judged(judgement.planned.call.key, tiers, ruling, reason.text, reason.rule, cell))


def _keep(context: EvaluationContext, ask: Ask, wanted: Keep | None, ctx: RunContext) -> tuple[str, ...]:
    """Remember an answer where the person said so; its grants are named in the record."""
    if wanted is None:
        return ()
    names, told = keep(context, ask, wanted, ctx.grants)
    ctx.emit(Notice(told))
    return names
