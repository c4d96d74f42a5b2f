"""Commands of `agent exec` that run as transactions: on a layer, whose changes are judged before they are applied."""

from collections.abc import Awaitable, Callable
from dataclasses import replace

from policy.model.verdict import Allow, Problem
from runner.changes.transaction.place import MadeAhead
from runner.changes.transaction.transaction import open_transaction
from runner.changes.undo.conclude import conclude
from runner.frontends.exec.report import ExecCase, UndoableRun
from runner.gate.wording import action_words
from runner.stderr import say_notice
from runner.text.phrases import os_reason
from runner.text.sanitize import visible
from sandbox.backend import Backend, Outcome
from sandbox.workspace.layer import ChangeLayer


async def run_transacted(
    case: ExecCase,
    verdict: Allow,
    session: str,
    backend: Backend,
    run: Callable[[ChangeLayer], Awaitable[tuple[Outcome, int | None]]],
    ahead: MadeAhead | None = None,
) -> UndoableRun | None:
    """Run the command as a transaction, in the folders `ahead` if there are some. Return None if it must run on the
    workspace itself; then nothing was run.

    Only the changes of guarded agents and of commands from untrusted text are stored for undo, as without a
    transaction.
    """
    recorder = case.recorder(session)
    try:
        permit = verdict.permit
        state = recorder.transactions(permit)
        if state is None:
            return None
        try:
            transaction = await open_transaction(state, permit.terms, backend, ahead)
        except OSError as error:
            say_notice(f"this command runs without a transaction: {os_reason(error)}")
            return None
        if isinstance(transaction, str):
            return None
        words = action_words(case.assessment.action, case.gate.cwd)
        call = case.guarded.call if case.guarded is not None else ""
        keep = case.guarded is not None or case.gate.flow is not None
        later, held = None, tuple[Problem, ...]()
        if case.gate.flow is not None:
            from runner.frontends.exec.guarded import held_problem, trusted_files  # few commands state such a source

            later = trusted_files(case)
        try:
            outcome, code = await run(transaction.layer)
        except BaseException:
            conclude(recorder, transaction, permit, words, call, later, keep=keep)
            raise
        done = conclude(recorder, transaction, permit, words, call, later, keep=keep)
        if code is not None:  # the user ended it: no report about its end follows
            for each in done.reports:
                say_notice(visible(f"{each.what}; {each.fix}", lines=False))
        outcome = replace(outcome, violations=(*outcome.violations, *done.reports))
        if done.problem is not None and outcome.problem is None:
            outcome = replace(outcome, problem=done.problem)
        if done.later:
            held = tuple(held_problem(change, case) for change in done.later)
        return UndoableRun(outcome, code, done.changed, held, done.record)
    finally:
        recorder.close()
