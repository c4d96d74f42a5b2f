"""The command of a guarded agent in `agent exec`: its verdict by the token, and its undo."""

import os
from collections.abc import Awaitable, Callable

from policy.grants.resolve import approve
from policy.model.action import Action
from policy.model.profile import Source
from policy.model.verdict import Allow, Ask, Deny, Problem
from runner.approval.remembered import consume, with_grants
from runner.audit.fact_recorder import FactRecorder
from runner.audit.records import RecordedAnswer
from runner.changes.undo.lock import UndoError
from runner.changes.undo.recorder import snapshot_recorder
from runner.events import Notice
from runner.frontends.exec.report import ExecCase
from runner.frontends.guard.record import open_grants
from runner.frontends.guard.tokens import GuardToken
from runner.frontends.guard.verdicts import question_digest
from runner.gate.gate import Gate
from runner.gate.wording import action_words
from runner.problems import Exit, Stopped
from runner.stderr import say_notice
from runner.text.sanitize import visible
from sandbox.backend import Outcome

_AGAIN = "let the agent call its shell tool again"


def guarded_case(gate: Gate, action: Action, noted: FactRecorder, token: GuardToken) -> ExecCase:
    """Judge the command of a guarded agent again, and return the decision.

    A question counts as answered only if the user of the agent was asked exactly this question before.
    """
    context = gate.context(Source.MODEL, unattended=False)
    store = open_grants(gate)
    found = consume(with_grants(context, *context.evaluate(action), store), store)
    verdict, answer = found.verdict, found.answer
    if isinstance(verdict, Ask) and token.asked and question_digest(verdict) == token.asked:
        answer = RecordedAnswer(verdict.question, True, token.agent)
        decided: Allow | Deny = approve(verdict)
    elif isinstance(verdict, Ask):
        why = "what decides about the command has changed since the agent was answered"
        problem = Problem("the command needs a question that nobody was asked", why, _AGAIN)
        decided = Deny(problem, verdict.cell, verdict.reason)
    else:
        decided = verdict
    attended = bool(token.asked)
    return ExecCase(gate, found.assessment, decided, answer, attended, noted, found.names, found.by, guarded=token)


async def with_undo(
    case: ExecCase, verdict: Allow, session: str, run: Callable[[], Awaitable[tuple[Outcome, int | None]]]
) -> tuple[Outcome, int | None, tuple[tuple[str, str], ...] | None]:
    """Run the command with a snapshot before and after it. Return the result of `run` and the changed files."""
    assert case.guarded is not None, "only commands of guarded agents have undo here"

    def show(notice: object) -> None:
        if isinstance(notice, Notice):
            say_notice(visible(notice.text, lines=False))

    recorder = snapshot_recorder(case.gate.facts, case.gate.settings, os.environ, session, show)
    words = action_words(case.assessment.action, case.gate.cwd)
    try:
        try:
            step = await recorder.before(verdict.permit, words, case.guarded.call)
        except UndoError as error:
            raise Stopped(error.problem, Exit.FAILED) from None
        try:
            outcome, code = await run()
        finally:
            recorder.after(step)
        return outcome, code, recorder.changed
    finally:
        recorder.close()
