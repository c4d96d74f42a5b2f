"""Evaluation of the calls of a model, and the questions about them. Nothing is run.

Questions are put to the approver one by one, or as one list for a whole turn.
"""

import asyncio
import contextlib
import dataclasses
import itertools
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from policy.decide import preview_of
from policy.evaluation import EvaluationContext
from policy.grants.grant import GrantScope
from policy.model.action import Action, RunArgv, RunScript
from policy.model.frozen import dataclass
from policy.model.profile import MAIN, PermissionRule
from policy.model.tier import Mode
from policy.model.verdict import Ask, Permit, Problem, Verdict
from runner.approval.approver import Answer, Halt, Later, Question, Yes, ask_approver
from runner.approval.card import accept_edits_allows, card, of_agent, safe_line
from runner.approval.remembered import NOTHING, offer, with_grants
from runner.audit import records
from runner.audit.fact_recorder import FactRecorder
from runner.engine.authorize import EDITED, EarlyAnswer, Evaluation, text_before
from runner.engine.plan_mode import Proposal, proposal
from runner.engine.run_context import RunContext
from runner.engine.tool_calls import CallResult, HookedCall, Judgement, ModelCall, Planned, plan, refused
from runner.engine.unworkable import unworkable
from runner.events import Changed, MalformedCall, Notice, QuestionAnswered, QuestionAsked, ToolProposed, VerdictReached
from runner.gate.gate import ruling
from runner.gate.grants.store import GrantStore
from runner.text.sanitize import one_line

if TYPE_CHECKING:
    from policy.permission.flag_rights import FlagRights

_NUMBERS = itertools.count(1)  # of questions, unique in this process: a late answer cannot match another question
_LONGEST = 200  # characters of a replaced command in the notice


def judge_call(call: ModelCall, ctx: RunContext, early: EarlyAnswer | None = None) -> Judgement | Proposal | CallResult:
    """Evaluate `call` and announce it. Return the result at once if the call cannot become an action, or cannot work.

    `early` is the answer that a user gave before the call was due. It is obeyed even if the call cannot work any more.
    """
    proposed = proposal(call, ctx)
    return announce(call, evaluate_call(call, ctx, early), ctx) if proposed is None else proposed


def evaluate_call(call: ModelCall, ctx: RunContext, early: EarlyAnswer | None = None) -> Judgement | Problem:
    """Return the verdict on `call` as of now, or the problem. No event is emitted and nothing is recorded."""
    planned = plan(call, ctx)
    if isinstance(planned, Problem):
        return planned
    evaluation = evaluate_action(planned.action, ctx)
    problem = _outside_skills(call, planned.action, evaluation, ctx)
    if problem is None and early is None:
        problem = unworkable(planned.action, evaluation)
    return problem or Judgement(planned, evaluation, ctx.live.named, early)


def _outside_skills(call: ModelCall, action: Action, evaluation: Evaluation, ctx: RunContext) -> Problem | None:
    """Return the problem of a call that a skill in force does not allow, or None."""
    if call.own or not (skills := ctx.skills.restricting):
        return None
    from runner.engine.skill_use import beyond_skills  # few skills name their tools

    return beyond_skills(skills, action, evaluation.assessment, evaluation.recalled.context.facts)


def announce(call: ModelCall, evaluated: Judgement | Problem, ctx: RunContext) -> Judgement | CallResult:
    """Emit the event of `call`. Record a call that cannot become an action, and return the result of that call."""
    if isinstance(evaluated, Judgement):
        ctx.emit(ToolProposed(call.key, call.name, evaluated.planned.action))
        return evaluated
    ctx.emit(ToolProposed(call.key, call.name, None))
    raw = call.of.raw or json.dumps(call.of.arguments, default=str)  # the arguments as the model sent them
    ctx.audit.refused(ctx.session, records.Refusal(call.name, raw, evaluated, ctx.agent, ctx.parent, ctx.client))
    ctx.emit(MalformedCall(call.key, call.name, evaluated))
    return CallResult(refused(call, evaluated, ctx))


def evaluate_action(
    action: Action, ctx: RunContext, rules: tuple[PermissionRule, ...] = (), typed: "FlagRights | None" = None
) -> Evaluation:
    """Return the verdict on `action` as of now, with remembered answers applied. `rules` are answers of hooks, and
    `typed` are rights that the user typed for this action.
    """
    # The state of the machine is read once, with a record of the facts that the verdict depends on.
    profile = ctx.profile
    noted = FactRecorder(ctx.look(), profile)
    context = EvaluationContext(
        noted.facts,
        ctx.rules,
        profile,
        ctx.live.mode,
        ctx.environment,
        source=ctx.source,
        typed=typed,
        unattended=ctx.unattended,
        backend=ctx.sandbox.name,
        agents=ctx.limited(),
        flow=ctx.flow_state(),
    )
    context = context.with_rules(rules)
    assessment, verdict = context.evaluate(action)
    lookup = with_grants(context, assessment, verdict, ctx.grants)
    noted.parts()  # read now: a question may be open for minutes
    return Evaluation(lookup.assessment, lookup.verdict, lookup, noted, ctx.profiles.fingerprint(ctx.rules))


@dataclass(frozen=True, slots=True)
class CallRequester:
    """The requester of the action of one call. It reports every step as an event."""

    ctx: RunContext
    call: ModelCall
    hooked: HookedCall | None = dataclasses.field(default=None, kw_only=True)
    typed: "FlagRights | None" = dataclasses.field(default=None, kw_only=True)

    @property
    def approver(self) -> str:
        """Return the name of the approver for the record."""
        return self.ctx.approver.name

    @property
    def grants(self) -> GrantStore:
        """Return the grants of the session."""
        return self.ctx.grants

    def evaluate(self, action: Action) -> Evaluation:
        """Return the verdict on `action` as of now."""
        return evaluate_action(action, self.ctx, self.hooked.rules if self.hooked is not None else (), self.typed)

    def decided(self, evaluation: Evaluation, verdict: Verdict) -> None:
        """Emit the verdict."""
        reason, tiers = verdict.reason, evaluation.assessment.tiers
        self.ctx.emit(VerdictReached(self.call.key, tiers, ruling(verdict), reason.text, reason.rule, verdict.cell))

    def question(self, context: EvaluationContext, ask: Ask, again: str) -> Question:
        """Return the question with the answers that can be remembered.

        A question about a command that the user typed has no such answers: the user can type the command again.
        """
        action = ask.assessment.action
        before = text_before(action)
        if self.call.own:
            own_card = replace(
                card(ask, NOTHING, around=context.facts, before=before),
                editable=False,
                own=True,
                agent=self.ctx.agent,
                parent=self.ctx.parent,
            )
            return Question(self.call.key, ask, NOTHING, own_card, before, again)
        offered = offer(context, ask, scopes(self.ctx), self.ctx.grants)
        question_card = card(ask, offered, around=context.facts, before=before)
        edits = accept_edits_allows(context, action)
        question_card = of_agent(replace(question_card, edits=edits), self.ctx.agent, self.ctx.parent)
        if self.hooked is not None and (said := self.hooked.changed_words(self.ctx.cwd)):
            question_card = replace(question_card, caveats=(safe_line(said), *question_card.caveats))
        edited = partial(self._about_edited, action) if isinstance(action, RunScript) else None
        return Question(self.call.key, ask, offered, question_card, before, again, edited=edited)

    def _about_edited(self, action: RunScript, script: str) -> Question | None:
        """Return the question about `script` in place of the script of `action`, or None if it leads to none."""
        evaluation = self.evaluate(replace(action, script=script))
        if not isinstance(evaluation.verdict, Ask):
            return None
        return self.question(evaluation.recalled.context, evaluation.verdict, EDITED)

    async def ask(self, question: Question) -> tuple[Answer, float]:
        """Put the question to the approver of the session."""
        if self.ctx.hooks is not None:
            fields = {"message": question.ask.question, "title": "ringfence", "notification_type": "permission_prompt"}
            self.ctx.hooks.tell("Notification", "permission_prompt", fields)
        (answer,), seconds = await _ask_approver((question,), self.ctx)
        return answer, seconds

    def accept_edits(self) -> None:
        """Change the mode of the session to accept-edits, and report the change."""
        _accept_edits(self.ctx)

    def answered(self, yes: bool, feedback: str | None, client: records.AnsweringClient | None = None) -> None:
        """Emit the answer."""
        by = client.name if client is not None else ""
        self.ctx.emit(QuestionAnswered(self.call.key, yes, feedback, by=by))

    def replaced(self, action: RunScript, script: str) -> Action:
        """Emit that the user replaced the script, and return the action with the new script."""
        self.ctx.emit(QuestionAnswered(self.call.key, False, None, edited=script))
        self.ctx.emit(Notice(f"you edited the command `{one_line(action.script, _LONGEST)}`"))
        edited = replace(action, script=script)
        self.ctx.emit(ToolProposed(self.call.key, self.call.name, edited))
        return edited

    def notice(self, text: str) -> None:
        """Emit a notice."""
        self.ctx.emit(Notice(text))


async def ask_ahead(calls: Sequence[ModelCall], ctx: RunContext) -> Mapping[str, EarlyAnswer]:
    """Put the questions of a whole turn as one list, and return the answers by the keys of the calls.

    Return an empty mapping in an unattended session, and if there are fewer than two questions: a single question is
    asked when its call is due. Raise asyncio.CancelledError if the user stops the turn.
    """
    if ctx.unattended or len(calls) < 2:
        return {}
    questions = []
    for call in calls:
        await asyncio.sleep(0)  # lets the time limit or the user end the run between two evaluations
        planned = plan(call, ctx)
        if isinstance(planned, Planned):
            evaluation = evaluate_action(planned.action, ctx)
            if not isinstance(evaluation.verdict, Ask) or _outside_skills(call, planned.action, evaluation, ctx):
                continue
            if unworkable(planned.action, evaluation) is None:
                question = CallRequester(ctx, call).question(evaluation.recalled.context, evaluation.verdict, "")
                question = await with_try(question, ctx) if may_try(evaluation.verdict, ctx) else question
                if not (evaluation.verdict.tries and question.card.tries):  # a rule asks after the command has run
                    questions.append(question)
    if len(questions) < 2:
        return {}
    answers, seconds = await _ask_approver(tuple(questions), ctx)
    if any(isinstance(answer, Halt) for answer in answers):
        raise asyncio.CancelledError
    early = {}
    for each, answer in zip(questions, answers, strict=True):
        if isinstance(answer, Yes) and answer.mode is not None:
            # At once, because the mode also answers edits that are due before this one.
            _accept_edits(ctx)
        if not isinstance(answer, Later):
            early[each.call] = EarlyAnswer(each, answer, seconds)
    return early


def may_try(verdict: Verdict, ctx: RunContext) -> bool:
    """Return True if the user can be offered to try the action of a question. A layer may still be impossible."""
    if ctx.unattended or ctx.undo is None or getattr(ctx.approver, "tries", False) is not True:
        return False
    return isinstance(verdict, Ask) and isinstance(verdict.assessment.action, RunScript | RunArgv)


async def with_try(question: Question, ctx: RunContext) -> Question:
    """Return the question, with the answer `try` if the command can run on a layer and writes only the workspace."""
    tries = await has_layer(question.ask, ctx)
    return replace(question, card=replace(question.card, tries=True)) if tries else question


async def has_layer(ask: Ask, ctx: RunContext) -> bool:
    """Return True if the command of a question can run on a layer and writes only the workspace."""
    if ask.terms.writable:
        return False
    from runner.changes.transaction.transaction import why_no_layer  # only for a command that can be tried

    permit = preview_of(ask).permit
    try:
        state = place_of_try(permit, ctx)
        return state is not None and not await why_no_layer(state, permit.terms, ctx.sandbox)
    except OSError:  # there is no place for the layer
        return False


def place_of_try(permit: Permit, ctx: RunContext) -> Path | None:
    """Return the private state folder for the layer of a try, or None if the command cannot run on one."""
    return ctx.undo.transactions(permit, chosen=True) if ctx.undo is not None and ctx.undo.compares else None


def _accept_edits(ctx: RunContext) -> None:
    """Change the mode from default to accept-edits. A mode that was chosen since the question stays."""
    if ctx.live.mode is Mode.DEFAULT:
        ctx.live.mode = Mode.ACCEPT_EDITS
        ctx.journal.mode(ctx.live.mode)
        ctx.emit(Changed("mode", Mode.DEFAULT.value, ctx.live.mode.value, "chosen in the answer to a question"))


async def _ask_approver(questions: tuple[Question, ...], ctx: RunContext) -> tuple[Sequence[Answer], float]:
    """Put `questions` to the approver, and return the answers and the time that they took in seconds."""
    questions = tuple(replace(each, id=f"q{next(_NUMBERS)}") for each in questions)
    # Another agent may have a question. A client of `agent mcp serve` may have several questions at once.
    async with contextlib.nullcontext() if ctx.client else ctx.asking:
        for each in questions:
            ctx.emit(QuestionAsked(each.call, each.ask.question, each.card, each.again, each.id))
        began = time.monotonic()
        answers = await ask_approver(ctx.approver, questions)
        return answers, time.monotonic() - began


def scopes(ctx: RunContext) -> tuple[GrantScope, ...]:
    """Return the scopes of answers that may be remembered. An approval for a sub-agent ends with the session."""
    return (GrantScope.SESSION, GrantScope.PROJECT) if ctx.agent == MAIN else (GrantScope.SESSION, GrantScope.AGENTS)
