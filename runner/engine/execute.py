"""Execution of one judged call: authorize the action, record the decision, run the action, record the outcome.

Escalation: after the sandbox blocked a command, the user is asked for one additional right, and the command runs again.
THREAT: the program itself may report what it could not reach. The program may lie and name what it wants. Therefore
floors and denials hold, the question says where the report comes from, a call is asked about at most a few times and
each time for another right, a refusal holds for the conversation, and no approval is remembered but that of the host of
reading commands, for that host and such commands.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING

from policy.decide import starts_without_network
from policy.evaluation import EvaluationContext
from policy.flow.destinations import UNKNOWN_HOST
from policy.flow.finding import Sink
from policy.grants.extra_right import ExtraRight, added, ask_for, extra_of
from policy.grants.resolve import answerer
from policy.model.action import (
    Action,
    AskUser,
    CallServerTool,
    EditFile,
    FetchAddress,
    LoadSkill,
    ManageAgent,
    ManageTasks,
    ProcessAction,
    ProposeNote,
    QueryCode,
    ReadFile,
    ReadProcess,
    ReadServerResource,
    RunArgv,
    RunScript,
    ScheduleJob,
    SearchNotes,
    SearchTools,
    SearchWeb,
    SpawnAgent,
    StartProcess,
    ToolAction,
    WriteFile,
    WriteProcess,
)
from policy.model.assessment import Assessment, EffectKind, Scope
from policy.model.frozen import dataclass
from policy.model.profile import MAIN
from policy.model.tier import Ruling
from policy.model.verdict import Allow, Ask, Deny, Permit, Problem, Rights, Terms, Verdict
from runner.approval.approver import Question
from runner.approval.card import card, of_agent
from runner.approval.remembered import NOTHING, offer_of_host
from runner.audit import records
from runner.audit.records import Decision
from runner.changes.undo.lock import UndoError
from runner.engine.authorize import Authorization, Evaluation, authorize
from runner.engine.judge import CallRequester, evaluate_action, may_try, scopes
from runner.engine.plan_mode import Proposal, propose
from runner.engine.run_context import RunContext
from runner.engine.signature_requests import signing
from runner.engine.tool_calls import CallResult, Judgement, Planned, denied, finished, headed, listener, noted
from runner.events import Notice
from runner.flow.written_files import content_hash
from runner.gate.wording import action_words, cell_words
from runner.sessions.entries import EntryBody
from runner.text.sanitize import one_line
from sandbox.backend import Outcome, OutputBuffer, Violation, interrupted_connections
from tools.extract import ExtractTool

if TYPE_CHECKING:
    from runner.audit.flow_fields import RecordedFlow
    from runner.engine.transactions import CommandTransaction
    from runner.engine.trial import Trials
    from runner.flow.held_change import HeldChange

_LONGEST = 1000  # characters of an action; the message that proposed the action contains all of it
ChangedFiles = tuple[tuple[str, str], ...] | None  # (path, kind of change), or None if changes were not searched


StopListener = Callable[[CallResult], None]  # takes the result of a command that was cancelled


async def execute_call(judgement: Judgement | Proposal, ctx: RunContext, stopped: StopListener) -> CallResult:
    """Authorize the action, record the decision, and run the action only after the record is durable.

    If the task is cancelled while a command runs, call `stopped` with the result of the command, which contains its
    output so far, before asyncio.CancelledError is raised.
    """
    if isinstance(judgement, Proposal):
        return await propose(judgement, ctx)
    trials = _trials(judgement, ctx)
    try:
        return await _execute_judged(judgement, ctx, stopped, trials)
    finally:
        if trials is not None:
            trials.discard()


def _trials(judgement: Judgement, ctx: RunContext) -> "Trials | None":
    """Return the tries of a call, or None if the user is not asked about a command or cannot try it."""
    evaluation = judgement.evaluation
    unattended = ctx.unattended and ctx.undo is not None and bool(evaluation.assessment.tried)
    if judgement.planned.call.own or not (unattended or may_try(evaluation.verdict, ctx)):
        return None
    from runner.engine.trial import Trials  # only for a question that a user can answer

    def record(authorization: Authorization) -> int:
        assessment = authorization.evaluation.assessment
        planned = replace(judgement.planned, action=assessment.action, tiers=assessment.tiers)
        decision = decision_of(replace(judgement, planned=planned), authorization, ctx)
        return record_decision(planned, decision, ctx)

    return Trials(judgement.planned, ctx, record)


async def _execute_judged(
    judgement: Judgement, ctx: RunContext, stopped: StopListener, trials: "Trials | None"
) -> CallResult:
    """Do what `execute_call` does, with the tries of the call."""
    requester = CallRequester(ctx, judgement.planned.call, hooked=judgement.hooked, typed=judgement.typed)
    evaluation = judgement.evaluation
    if trials is not None and ctx.unattended:
        evaluation = await trials.run_unattended(evaluation)
    authorization = await authorize(evaluation, requester, judgement.early, trials)
    trial = trials.open if trials is not None and authorization.kept is not None else None
    if trials is not None and trial is None:
        trials.discard()
    assessment, verdict = authorization.evaluation.assessment, authorization.verdict
    planned = replace(judgement.planned, action=assessment.action, tiers=assessment.tiers)
    judgement = replace(judgement, planned=planned)
    decision = decision_of(judgement, authorization, ctx)
    hooked, proposed = judgement.hooked, authorization.proposed
    if hooked is not None:
        proposed = hooked.proposed or proposed
        decision = replace(decision, hooks=hooked.recorded)
    decision = replace(decision, grants=authorization.names, granted=authorization.by, proposed=proposed)
    number = record_decision(planned, decision, ctx)

    def told(report: CallResult) -> CallResult:
        if authorization.proposed is None and (hooked is None or hooked.proposed is None):
            return report
        who, action = answerer(ctx.approver.name), action_words(planned.action, ctx.cwd)
        if authorization.proposed is None and hooked is not None:
            who = f"the hook {hooked.changed_by}"
        what = "command" if isinstance(planned.action, RunScript) else "call"
        return headed(report, f"{who} changed your {what}; this is the result of:\n{action}", ctx)

    if isinstance(verdict, Deny):
        return told(denied(planned, verdict, ctx, number))

    def stop(report: CallResult) -> None:
        stopped(told(report))

    watch = None
    if ctx.code is not None and isinstance(planned.action, EditFile | WriteFile):
        watch = await ctx.code.before_edit(planned.action, ctx)
    planned = _with_sources(planned, assessment, verdict.permit)
    judgement = replace(judgement, planned=planned)
    clean = ctx.flow is not None and not ctx.flow.untrusted
    if authorization.waits:
        return told(await _run_waiting(judgement, authorization.evaluation, verdict.permit, number, ctx, stop))
    if trial is not None:
        trial.keep(authorization.kept or frozenset())
        async with _changing_alone(number, ctx):
            outcome = await _run_transaction(verdict.permit, number, planned, ctx, trial, stop)
        report = headed(finished(planned, outcome, ctx, number), trial.notice, ctx)
    else:
        outcome = await _run_recorded(verdict.permit, number, planned, ctx, stop)
        report = await _finish(judgement, verdict.permit, outcome, number, ctx, stop)
    if planned.tool.name == ExtractTool.name:
        from runner.engine.quarantine import read_in_quarantine  # few calls are for the reader

        report = await read_in_quarantine(planned, report, ctx)
    if ctx.flow is not None and ctx.flow.untrusted:
        if clean and ctx.undo is not None and not isinstance(planned.action, ToolAction):
            # The action itself brought the text in, so that the files that it wrote may contain it.
            ctx.flow.wrote(ctx.undo.changed or ())
        if authorization.answer is not None and authorization.answer.yes:
            _endorse_destinations(authorization, ctx)
        if held := ctx.flow.take_held():
            from runner.engine.held_changes import propose_held  # few commands change such files

            report = await propose_held(held, report, judgement, ctx, lambda each: execute_call(each, ctx, stopped))
    if watch is not None and outcome.problem is None and outcome.status == 0:
        report = noted(report, await watch.new_errors(ctx), ctx)
    return told(report)


async def _run_waiting(
    judgement: Judgement, evaluation: Evaluation, permit: Permit, number: int, ctx: RunContext, stopped: StopListener
) -> CallResult:
    """Run a command that a rule tries on the layer of its turn, where its changes wait for a decision."""
    from runner.engine.waiting import run_waiting  # only for rules that try

    planned = judgement.planned
    async with _changing_alone(number, ctx):
        outcome, notice = await run_waiting(
            planned, evaluation, permit, number, ctx,
            lambda waiting: _run(permit, number, planned, ctx, waiting.look, stopped, waiting),
        )  # fmt: skip
    return headed(finished(planned, outcome, ctx, number), notice, ctx)


def _with_sources(planned: Planned, assessment: Assessment, permit: Permit) -> Planned:
    """Return the call with what tells the sources of its result."""
    usual = frozenset(
        effect.target
        for effect in assessment.effects
        if effect.kind is EffectKind.CONNECTS and effect.scope is Scope.SYSTEM
    )
    stays = isinstance(planned.action, StartProcess) and planned.action.stays
    return replace(
        planned, usual=usual, credentials=permit.terms.credentials, hosts=permit.terms.open_hosts if stays else ()
    )


def _endorse_destinations(authorization: Authorization, ctx: RunContext) -> None:
    """Note what the user approved: destinations are words of the user from now on, and contents of files approved."""
    evaluation, flow = authorization.evaluation, ctx.flow
    assert flow is not None  # the caller has checked it
    action = evaluation.assessment.action
    for finding in evaluation.recalled.context.flow_findings(evaluation.assessment):
        if finding.sink is Sink.SENDS and not isinstance(action, WriteProcess) and finding.what != UNKNOWN_HOST:
            flow.hear(finding.what)
        elif finding.sink is Sink.TRUSTED_LATER and isinstance(action, WriteFile | EditFile):
            flow.approve(action.path, content_hash(action.path))


def decision_of(judgement: Judgement, authorization: Authorization, ctx: RunContext) -> Decision:
    """Return the decision for the record, without the remembered answers."""
    return Decision(
        judgement.planned.call.name,
        authorization.evaluation.assessment,
        authorization.verdict,
        ctx.sandbox.name,
        authorization.answer,
        typed=judgement.typed.words if judgement.typed is not None else (),
        reach=ctx.sandbox.name,
        noted=authorization.evaluation.noted,
        model=judgement.model,
        policy=authorization.evaluation.policy,
        source=ctx.source,
        agent=ctx.agent,
        parent=ctx.parent,
        client=ctx.client,
        limits=ctx.limited(),
        flow=_flow_of(authorization, ctx),
    )


def _flow_of(authorization: Authorization, ctx: RunContext) -> "RecordedFlow | None":
    """Return the information flow for the record; None without untrusted text."""
    if ctx.flow is None or not ctx.flow.untrusted:
        return None
    from runner.audit.flow_fields import recorded_flow  # only after untrusted text was read

    context = authorization.evaluation.recalled.context
    return recorded_flow(context.flow, context.flow_findings(authorization.evaluation.assessment))


def record_decision(planned: Planned, decision: Decision, ctx: RunContext) -> int:
    """Record `decision` and return the number of the record.

    INVARIANT: the record is durable before the action runs. AuditError is raised if it cannot be written, and then the
    action does not run.
    """
    number = ctx.audit.decided(ctx.session, decision)
    verdict, answer = decision.verdict, decision.answer
    entry: EntryBody = {
        "call": planned.call.of.id,
        "tool": planned.call.name,
        "action": one_line(action_words(planned.action, ctx.cwd), _LONGEST),
        "tiers": [tier.label for tier in decision.assessment.tiers],
        "verdict": "allow" if isinstance(verdict, Allow) else "deny",
        "why": verdict.reason.text,
        "rule": str(verdict.reason.rule),
        "cell": cell_words(verdict.cell),
        "record": number,
        "answer": answer.yes if answer is not None else None,
        "by": answer.by if answer is not None else None,
        "feedback": answer.feedback if answer is not None else None,
    }
    if ctx.agent != MAIN:
        entry |= {"agent": ctx.agent, "parent": ctx.parent}
    ctx.journal.call(entry)
    return number


async def _finish(
    judgement: Judgement, permit: Permit, outcome: Outcome, number: int, ctx: RunContext, stopped: StopListener
) -> CallResult:
    """Return the result of an action. After the sandbox blocked it, run it again with each right that the user adds."""
    planned = judgement.planned
    granted: list[ExtraRight] = []
    remembered = False
    while (more := await request_escalation(planned, permit.terms, outcome, ctx, granted)) is not None:
        right, escalated = more
        granted.append(right)
        remembered = remembered or bool(escalated.names)
        decision = replace(decision_of(judgement, escalated, ctx), typed=tuple(each.words for each in granted))
        decision = replace(decision, grants=escalated.names)
        number, before = record_decision(planned, decision, ctx), number
        if isinstance(escalated.verdict, Deny):
            why = escalated.verdict.problem.why
            return headed(finished(planned, outcome, ctx, before), f"the sandbox stopped this action, and {why}", ctx)
        permit = escalated.verdict.permit
        ctx.emit(Notice(f"the action runs once more, with {right.words}"))
        outcome = await _run_recorded(permit, number, planned, ctx, stopped)
    report = finished(planned, outcome, ctx, number)
    if not granted:
        refused = [each.host for each in outcome.connections if not each.allowed and each.host]
        if not refused or outcome.status == 0 or not starts_without_network(judgement.evaluation.verdict):
            return report
        hosts = one_line(", ".join(dict.fromkeys(refused)), _LONGEST_REPORT)
        notice = f"this command started without network, and its connection to {hosts} was refused"
        asks = not ctx.unattended and judgement.evaluation.verdict.cell.ruling is Ruling.ASK
        who = "the user did not allow it" if asks else "this run asks no user"
        way = "the user can allow the host by a rule with `host`, or run the command with `agent exec --host HOST`"
        return headed(report, f"{notice}; {who}. {way}", ctx)
    who, rights = answerer(ctx.approver.name), " and ".join(each.words for each in granted)
    often = "" if remembered else " once"
    return headed(report, f"the sandbox stopped this action; {who} allowed {rights}{often}, and it ran again:", ctx)


async def _run_recorded(
    permit: Permit, number: int, planned: Planned, ctx: RunContext, stopped: StopListener
) -> Outcome:
    """Run the permit, and keep the files that it changes so that the changes can be undone.

    Nothing runs if a file on whose content the decision rests has changed.
    """
    if permit.sourced:
        from runner.facts.sourced_file import changed_file  # few commands read shell text from a file

        if (problem := changed_file(permit.sourced)) is not None:
            outcome = Outcome(status=1, problem=problem)
            ctx.audit.finished(number, outcome, agent=ctx.agent, parent=ctx.parent)
            return outcome
    if ctx.undo is None or isinstance(permit.action, ToolAction):
        return await _run(permit, number, planned, ctx, lambda: None, stopped)
    if permit.terms.rights is not Rights.WORKSPACE_WRITE and not permit.terms.write:
        return await _run_undoable(permit, number, planned, ctx, stopped)
    async with _changing_alone(number, ctx):
        return await _run_undoable(permit, number, planned, ctx, stopped)


@asynccontextmanager
async def _changing_alone(number: int, ctx: RunContext) -> AsyncIterator[None]:
    """Let no other agent change files meanwhile: the looks before and after an action must not see its changes."""
    with _recording_cancellation(number, ctx):
        await ctx.changing.acquire()
    try:
        yield
    finally:
        ctx.changing.release()


@contextmanager
def _recording_cancellation(number: int, ctx: RunContext) -> Iterator[None]:
    """Record the outcome of an allowed action that is cancelled before it runs."""
    try:
        yield
    except asyncio.CancelledError:
        ctx.audit.finished(number, Outcome(status=130, ended_by="cancelled"), agent=ctx.agent, parent=ctx.parent)
        raise


async def _run_undoable(
    permit: Permit, number: int, planned: Planned, ctx: RunContext, stopped: StopListener
) -> Outcome:
    """Run the permit as a transaction, or between two looks at the files."""
    assert ctx.undo is not None
    words = ctx.redactor.text(action_words(planned.action, ctx.cwd))
    if ctx.undo.transactions(permit) is not None:
        from runner.engine.transactions import transaction_for  # only with transactions

        with _recording_cancellation(number, ctx):
            transaction = await transaction_for(permit, planned, words, ctx)
        if transaction is not None:
            return await _run_transaction(permit, number, planned, ctx, transaction, stopped)
    try:
        hold = None
        if ctx.flow is not None and ctx.flow.untrusted:
            from runner.engine.held_changes import held_files  # only after untrusted text was read

            hold = held_files(permit, planned, ctx)
        with _recording_cancellation(number, ctx):
            running = await ctx.undo.before(permit, words, planned.call.key, required=hold is not None)
    except UndoError as error:  # the user wants no action to run that cannot be undone
        outcome = Outcome(status=1, problem=error.problem)
        ctx.audit.finished(number, outcome, agent=ctx.agent, parent=ctx.parent)
        return outcome
    undo, step = ctx.undo, None

    def look() -> ChangedFiles:
        nonlocal step
        step = undo.after(running, hold)
        follow_changes(undo.changed or (), undo.held, permit, ctx)
        return undo.changed

    try:
        return await _run(permit, number, planned, ctx, look, stopped)
    finally:  # after the outcome is recorded: the session file may refuse the entry
        if step is not None:
            ctx.journal.snapshot(str(step), planned.call.key)


def follow_changes(
    changed: Sequence[tuple[str, str]], held: "tuple[HeldChange, ...]", permit: Permit, ctx: RunContext
) -> None:
    """Tell the information flow what a command changed, and which changes were taken back."""
    if ctx.flow is None:
        return
    if ctx.flow.untrusted:
        ctx.flow.held += held
        if changed:
            from runner.engine.held_changes import note_changes  # only after untrusted text was read

            note_changes(changed, permit, ctx)
    ctx.flow.wrote(changed)


async def _run_transaction(
    permit: Permit,
    number: int,
    planned: Planned,
    ctx: RunContext,
    transaction: "CommandTransaction",
    stopped: StopListener,
) -> Outcome:
    """Run the permit on the layer of a transaction, and apply what the command changed there."""

    def look() -> ChangedFiles:
        result = transaction.conclude()
        follow_changes(result.changed, result.later, permit, ctx)
        return result.changed

    try:
        return await _run(permit, number, planned, ctx, look, stopped, transaction)
    finally:  # after the outcome is recorded: the session file may refuse the entry
        if transaction.result.step is not None:
            ctx.journal.snapshot(str(transaction.result.step), planned.call.key)


async def _run(
    permit: Permit,
    number: int,
    planned: Planned,
    ctx: RunContext,
    look: Callable[[], ChangedFiles],
    stopped: StopListener,
    transaction: "CommandTransaction | None" = None,
) -> Outcome:
    """Run the permit and record the outcome, even if an exception ends the run, with the changes that `look` finds.

    If a command is cancelled, call `stopped` with its result.
    """
    started, began = time.monotonic(), time.time()
    action = permit.action
    printed = OutputBuffer(permit.terms.limits.output, listener(planned.call, ctx.emit))
    client: records.AnsweringClient | None = None
    if ctx.notes is not None:
        ctx.notes.saw(action, permit.terms)

    def listen(stream: int, chunk: bytes) -> None:
        printed.take(stream, chunk)

    try:
        if isinstance(action, StartProcess | ProcessAction):
            from runner.engine.process_actions import perform  # few sessions have processes that stay

            outcome = await perform(permit, number, planned.tiers, ctx, listen, by_user=planned.call.own)
        elif isinstance(action, SpawnAgent | ManageAgent):
            if ctx.agents is None:
                problem = Problem("no agent was started", "this session has no sub-agents", "do the work yourself")
                outcome = Outcome(1, problem=problem)
            else:
                outcome = await ctx.agents.perform(permit, ctx.agent)
        elif isinstance(action, ManageTasks):
            if ctx.tasks is None:
                problem = Problem("nothing was done", "this session has no task list", "do without it")
                outcome = Outcome(1, problem=problem)
            else:
                outcome = await ctx.tasks.perform(action, ctx.agent)
        elif isinstance(action, ScheduleJob):
            if ctx.jobs is None:
                problem = Problem("nothing was done", "this session cannot request jobs", "do without it")
                outcome = Outcome(1, problem=problem)
            else:
                outcome = await asyncio.to_thread(ctx.jobs.perform, action)
        elif isinstance(action, AskUser):
            from runner.engine.user_questions import ask_user  # few calls ask

            outcome, client = await ask_user(action, ctx)
        elif isinstance(action, SearchTools):
            outcome = Outcome(0)  # the tool itself knows the descriptions, and answers when it renders the outcome
        elif isinstance(action, LoadSkill):
            from runner.engine.skill_use import load_skill  # few calls load a skill

            outcome = load_skill(action, ctx)
        elif isinstance(action, ProposeNote | SearchNotes):
            if ctx.notes is None:
                problem = Problem("nothing was done", "this session has no notes", "do without them")
                outcome = Outcome(1, problem=problem)
            else:
                outcome = await asyncio.to_thread(ctx.notes.perform, action)
        elif isinstance(action, QueryCode):
            if ctx.code is None:
                problem = Problem("nothing was asked", "this session has no language servers", "use `grep`")
                outcome = Outcome(1, problem=problem)
            else:
                outcome = await ctx.code.perform(action, planned.call, ctx)
        elif isinstance(action, CallServerTool | ReadServerResource):
            if ctx.servers is None:
                problem = Problem("nothing was called", "this session has no tool servers", "do it another way")
                outcome = Outcome(1, problem=problem)
            else:
                outcome = await ctx.servers.perform(permit, listen)
        elif isinstance(action, FetchAddress | SearchWeb):
            if ctx.web is None:
                problem = Problem("nothing was fetched", "this session does not use the web", "do without it")
                outcome = Outcome(1, problem=problem)
            else:
                outcome = await ctx.web.perform(permit, ctx.sandbox)
        else:
            signed = transaction is None or transaction.signs
            async with signing(permit, planned, ctx) if signed else nullcontext[list[Violation]]([]) as unsigned:
                # What the file tool answers is no output of a command: a document has up to 43 MB as base64.
                heard = None if isinstance(action, ReadFile) else listen
                if transaction is not None and transaction.ran is not None:  # a try, which the user kept
                    outcome = transaction.ran
                    listen(1, outcome.stdout)
                    listen(2, outcome.stderr)
                elif transaction is not None:
                    outcome = await ctx.sandbox.run(permit, listen=heard, layer=transaction.layer)
                else:
                    outcome = await ctx.sandbox.run(permit, listen=heard)
            if isinstance(action, ReadFile) and outcome.data.get("type") == "document":
                from runner.engine.read_document import converted_outcome  # few files are documents

                outcome = await converted_outcome(outcome, permit, ctx.sandbox)
            if unsigned:
                outcome = replace(outcome, violations=(*outcome.violations, *unsigned))
    except BaseException as end:
        cancelled = isinstance(end, asyncio.CancelledError)
        out, err = map(bytes, printed.streams)
        outcome = Outcome(
            130,
            out,
            err,
            seconds=time.monotonic() - started,
            ended_by="cancelled" if cancelled else "failure",
            connections=interrupted_connections(end),
        )
        changed = look()
        applied = transaction.result.record if transaction is not None else None
        if transaction is not None:
            outcome = replace(outcome, violations=transaction.result.reports)
        ran = records.Ran(began, changed=changed, transaction=applied, hashes=_hashes(changed, ctx))
        ctx.audit.finished(number, outcome, ran, agent=ctx.agent, parent=ctx.parent)
        if cancelled and isinstance(planned.action, RunScript | RunArgv):
            stopped(finished(planned, outcome, ctx, number))
        raise
    changed = look()
    applied = transaction.result.record if transaction is not None else None
    if transaction is not None:
        outcome = replace(outcome, violations=(*outcome.violations, *transaction.result.reports))
    if changed and ctx.code is not None:
        ctx.code.files_changed(changed)
    if changed and ctx.agent != MAIN:
        ctx.changed.update(changed)
    if isinstance(action, StartProcess) and action.stays and outcome.problem is None:
        return outcome  # `SessionProcesses` records the outcome when the process has ended
    # What a process was stopped from belongs to the outcome of that process.
    recorded = replace(outcome, violations=()) if isinstance(action, ReadProcess) else outcome
    answered = outcome.stdout.decode("utf-8", "replace") if isinstance(action, AskUser) else None
    ran = records.Ran(
        began, changed=changed, answered=answered, client=client, transaction=applied, hashes=_hashes(changed, ctx)
    )
    ctx.audit.finished(number, recorded, ran, agent=ctx.agent, parent=ctx.parent)
    return outcome


def _hashes(changed: ChangedFiles, ctx: RunContext) -> Mapping[str, tuple[str, str]]:
    """Return the hashes of the contents before and after, by the path, of changes that were just looked for."""
    return ctx.undo.hashes if changed is not None and ctx.undo is not None else {}


# ---- escalation

_MOST_RIGHTS = 4  # additional rights for one call; a download may need a registry and the host of its files
_LONGEST_REPORT = 300  # characters of the report about what was blocked, in the question


class _NotOffered(Exception):
    """The right may no longer be asked for, because the machine or the settings changed."""


@dataclass(frozen=True, slots=True)
class _EscalationRequester(CallRequester):
    """The requester of one more run with one additional right."""

    had: Terms
    extra: ExtraRight
    granted_rights: Sequence[ExtraRight]
    violation: Violation

    def evaluate(self, action: Action) -> Evaluation:
        """Return the question about the right as of now. Raise _NotOffered if there is none."""
        evaluation = evaluate_action(action, self.ctx)
        asked = _with_right(evaluation, self.had, self.extra, self.granted_rights)
        if asked is None:
            raise _NotOffered
        return asked

    def decided(self, evaluation: Evaluation, verdict: Verdict) -> None:
        """Report nothing: the verdict on the action was reported before the first run."""

    def question(self, context: EvaluationContext, ask: Ask, again: str) -> Question:
        """Return the question about the right, which cannot be answered with another script. An answer can be
        remembered only for a host of reading commands, if it is the first right of the call.
        """
        offered = NOTHING
        if self.extra.flag == "--host" and not self.granted_rights and not self.call.own:
            offered = offer_of_host(context, ask, scopes(self.ctx), self.grants)
        question_card = replace(card(ask, offered, around=context.facts), editable=False, own=self.call.own)
        question_card = of_agent(question_card, self.ctx.agent, self.ctx.parent)
        source = "reported by the program itself" if self.violation.inferred else "reported by the sandbox"
        report = f"the action ran and was stopped: {one_line(self.violation.what, _LONGEST_REPORT)} ({source})"
        return Question(self.call.key, ask, offered, question_card, None, again or report)


async def request_escalation(
    planned: Planned, had: Terms, outcome: Outcome, ctx: RunContext, granted_rights: Sequence[ExtraRight] = ()
) -> tuple[ExtraRight, Authorization] | None:
    """Ask the user for the right that `outcome` lacked, and return the right and the decision.

    With an Allow the caller runs the action once more. `had` are the terms of the run, and `granted_rights` were added
    for this call already. Return None if no question is asked: no right was missing, no user may grant it or can
    answer, the user refused it before, or the call already has _MOST_RIGHTS. Raise asyncio.CancelledError if the user
    stops the turn.
    """
    if len(granted_rights) >= _MOST_RIGHTS:
        return None
    if ctx.unattended or outcome.status == 0 or outcome.ended_by is not None or not outcome.violations:
        return None
    if not isinstance(planned.action, RunScript | RunArgv):
        return None
    now = evaluate_action(planned.action, ctx)
    for violation in outcome.violations:
        extra = extra_of(violation.right)
        asked = _with_right(now, had, extra, granted_rights) if extra else None
        if extra is None or asked is None or _right(asked, had).words in ctx.refused_rights:
            continue
        if ctx.hooks is not None:
            from runner.engine.hooked_calls import ask_before_question  # few sessions have hooks

            if (denial := await ask_before_question(asked, planned, ctx)) is not None:
                ctx.emit(Notice(f"the hook {denial.place} denies one more right: {one_line(denial.reason, _LONGEST)}"))
                return None
        requester = _EscalationRequester(ctx, planned.call, had, extra, granted_rights, violation)
        try:
            decision = await authorize(asked, requester)
        except _NotOffered:
            return None
        right = _right(decision.evaluation, had)
        if decision.answer is not None and not decision.answer.yes:
            ctx.refused_rights.add(right.words)
        return right, decision
    return None


def _with_right(
    evaluation: Evaluation, had: Terms, extra: ExtraRight, granted_rights: Sequence[ExtraRight]
) -> Evaluation | None:
    """Return the evaluation whose verdict is the question about `extra`, or None if no user may grant that right."""
    recalled = evaluation.recalled
    ask = ask_for(recalled.context, evaluation.assessment.action, had, extra, granted_rights)
    if ask is None:
        return None
    lookup = replace(recalled, assessment=ask.assessment, verdict=ask, by=(), question=ask)
    return Evaluation(ask.assessment, ask, lookup, evaluation.noted, evaluation.policy)


def _right(evaluation: Evaluation, had: Terms) -> ExtraRight:
    """Return the right that an approval of the question of `evaluation` adds to `had`."""
    assert isinstance(evaluation.verdict, Ask)  # `_with_right` creates no other verdict
    return added(evaluation.verdict, had)
