"""The requests for signatures of one running command: each is judged, asked about, recorded, and then answered."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import replace

from policy.evaluation import EvaluationContext
from policy.languages.git_object import GitObjectError, read_git_object
from policy.model.action import RunArgv, RunScript, SignGit
from policy.model.frozen import dataclass
from policy.model.verdict import Ask, Deny, Permit, Problem, Rights, Verdict
from runner.approval.approver import Question
from runner.approval.card import card, of_agent
from runner.approval.remembered import NOTHING
from runner.audit.records import Decision
from runner.engine.authorize import Evaluation, authorize
from runner.engine.judge import CallRequester, evaluate_action
from runner.engine.run_context import RunContext
from runner.engine.signing import PLACEHOLDER, SignatureRequest, SigningBroker, SigningError
from runner.engine.tool_calls import Planned
from runner.events import Notice
from sandbox.backend import Outcome, Violation

_TURN = 0.1  # seconds between two looks for requests, while a command runs
_MOST = 50  # requests of one command; more are refused without a question


@contextlib.asynccontextmanager
async def signing(permit: Permit, planned: Planned, ctx: RunContext) -> AsyncIterator[list[Violation]]:
    """Answer requests for signatures while the command of `planned` runs, and yield the list of those without a
    signature, for the report: Git does not print the reason. A file tool and a command that only reads make none.

    If the user stops the turn in answer to a question, the task of the caller is cancelled.
    """
    broker = ctx.signing
    writes = permit.terms.rights is Rights.WORKSPACE_WRITE and isinstance(permit.action, RunScript | RunArgv)
    if broker is None or not writes or not broker.begin():
        yield []
        return
    unsigned: list[Violation] = []
    serving = asyncio.create_task(_serve(broker, planned, ctx, unsigned))
    caller = asyncio.current_task()

    def ended(task: asyncio.Task[None]) -> None:
        if (task.cancelled() and not over) or (not task.cancelled() and task.exception() is not None):
            assert caller is not None
            caller.cancel()

    over = False
    serving.add_done_callback(ended)
    try:
        yield unsigned
    finally:
        over = True
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)
    if not serving.cancelled() and (error := serving.exception()) is not None:
        raise error  # a record could not be written


async def _serve(broker: SigningBroker, planned: Planned, ctx: RunContext, unsigned: list[Violation]) -> None:
    answered = 0
    while True:
        await asyncio.sleep(_TURN)
        for request in broker.requests():
            answered += 1
            signature, problem = await _signature(request, broker, planned, ctx, many=answered > _MOST)
            broker.answer(request, signature, f"ringfence: {problem}")
            if problem is not None:
                unsigned.append(Violation(f"{problem.what}: {problem.why}", "", problem.fix, False, "signing"))


async def _signature(
    request: SignatureRequest, broker: SigningBroker, planned: Planned, ctx: RunContext, *, many: bool
) -> tuple[bytes | None, Problem | None]:
    """Return the signature for a request, or the reason why there is none. THREAT T139: a command may request anything,
    so the text is read strictly, the key is the user's own, and each request is a question of its own.
    """
    try:
        what, text = read_git_object(request.payload)
    except GitObjectError as error:
        return None, Problem(_NOT_SIGNED, f"it {error}", "let Git make the commit or the tag")
    if request.key != PLACEHOLDER:
        why = "only the key that the user's own Git settings name can sign"
        return None, Problem(_NOT_SIGNED, why, "use `-S` or `-s` without a key")
    if many:
        return None, Problem(_NOT_SIGNED, f"a command gets at most {_MOST} signatures", "sign in several commands")
    asked = await authorize(
        evaluate_action(SignGit(what, text, broker.key.name), ctx), _SignatureRequester(ctx, planned.call)
    )
    verdict, assessment = asked.verdict, asked.evaluation.assessment
    decision = Decision(
        planned.call.name,
        assessment,
        verdict,
        "none",
        asked.answer,
        reach="none",
        noted=asked.evaluation.noted,
        policy=asked.evaluation.policy,
        source=ctx.source,
        agent=ctx.agent,
        parent=ctx.parent,
    )
    number = ctx.audit.decided(ctx.session, decision)  # INVARIANT: durable before the key is used
    if isinstance(verdict, Deny):
        ctx.emit(Notice(f"a {what} was not signed: {verdict.problem.why}"))
        return None, replace(verdict.problem, what=_NOT_SIGNED)
    try:
        signature = await broker.key.sign(verdict.permit, request.payload)
    except SigningError as error:
        ctx.audit.finished(number, Outcome(status=1, problem=error.problem), agent=ctx.agent, parent=ctx.parent)
        ctx.emit(Notice(f"a {what} was not signed: {error.problem.why}"))
        return None, error.problem
    except BaseException:
        ctx.audit.finished(number, Outcome(status=130, ended_by="cancelled"), agent=ctx.agent, parent=ctx.parent)
        raise
    ctx.audit.finished(number, Outcome(status=0), agent=ctx.agent, parent=ctx.parent)
    ctx.emit(Notice(f"a {what} was signed with your key {broker.key.name}"))
    return signature, None


_NOT_SIGNED = "the text was not signed"


@dataclass(frozen=True, slots=True)
class _SignatureRequester(CallRequester):
    """The requester of one signature for a running command."""

    def decided(self, evaluation: Evaluation, verdict: Verdict) -> None:
        """Report nothing: the events of the call are about its command."""

    def question(self, context: EvaluationContext, ask: Ask, again: str) -> Question:
        """Return the question, whose answer can neither be remembered nor edited."""
        question_card = replace(card(ask, NOTHING, around=context.facts), editable=False, own=self.call.own)
        question_card = of_agent(question_card, self.ctx.agent, self.ctx.parent)
        return Question(self.call.key, ask, NOTHING, question_card, None, again)
