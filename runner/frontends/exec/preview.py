"""`agent exec --preview`: run a command on a copy-on-write view, show its changes, and apply those that the user keeps.

THREAT T310: a preview must leave nothing behind that the user did not accept. The command has the rights of
`preview_of`, and its changes lie in a layer. What the user does not choose is removed with the layer, and where no user
can be asked nothing is applied.
"""

import asyncio
import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from policy.model.verdict import Allow, Problem, ProblemError, Rights
from runner.audit.log import open_log
from runner.audit.records import Ran
from runner.changes.review.apply_plan import plan
from runner.changes.review.layer_choice import ChoiceItem, choice_items, held_line, kept
from runner.changes.review.layer_patch import layer_patch
from runner.changes.review.patch import Patch
from runner.changes.review.patch_parser import read
from runner.changes.review.patch_view import diff_lines, stat_lines
from runner.changes.transaction.hashes import unapplied
from runner.changes.transaction.judge import Judged
from runner.changes.transaction.report import RecordedTransaction, recorded, violations
from runner.changes.transaction.transaction import NotApplied, Transaction, Transferred, open_transaction
from runner.changes.undo.conclude import judged_changes
from runner.changes.undo.recorder import SnapshotRecorder
from runner.frontends.exec.confined import require_unchanged
from runner.frontends.exec.in_loop import InLoop
from runner.frontends.exec.report import EventReport, ExecCase, PlainReport, Report
from runner.gate.wording import action_words
from runner.problems import Exit, Stopped
from runner.state.paths import state_dir
from runner.stderr import coloured, say
from runner.text.phrases import many, os_reason
from runner.text.sanitize import visible
from sandbox.backend import Backend, Level, Outcome

if TYPE_CHECKING:
    from runner.changes.transaction.place import MadeAhead
    from sandbox.linux.launch import PrelaunchedHelper

_MOST_LINES = 300  # of a difference that is shown without a question
_HELP = "`all`, `none`, numbers such as `1,3-5`, or `diff` to see every line"


def run_preview(
    case: ExecCase,
    verdict: Allow,
    wanted: tuple[str | None, Level],
    ahead: "PrelaunchedHelper | None",
    folders: "MadeAhead | None",
    *,
    json: bool,
) -> int:
    """Run the command of `case` on a view, show its changes, and apply what the user keeps. Return the exit code.

    `ahead` is its helper, launched over `folders` if there are some.

    A command without a right to write runs as usual. Raise Stopped if this machine has no view for the workspace, and
    then nothing runs.
    """
    return asyncio.run(_Preview(case, verdict, json=json).run(wanted, ahead, folders))


class _Preview:
    """One preview: the command, its changes, and the answer of the user."""

    def __init__(self, case: ExecCase, verdict: Allow, *, json: bool) -> None:
        self._case, self._verdict = case, verdict
        self._asks = case.attended and not json and os.isatty(0) and os.isatty(1)
        self._events = _PreviewEvents() if json else None
        # Where no user is asked, standard output is for the patch.
        self._report: Report = self._events or PlainReport(1 if self._asks else 2)

    async def run(
        self, wanted: tuple[str | None, Level], ahead: "PrelaunchedHelper | None", folders: "MadeAhead | None"
    ) -> int:
        case, permit = self._case, self._verdict.permit
        driver = InLoop()
        async with driver.boundary(wanted, permit.terms, ahead, case.gate.settings) as opening:
            backend, enforcement = await opening
            works = permit.terms.rights is Rights.WORKSPACE_WRITE
            transaction = await self._transaction(backend, folders) if works else None
            try:
                with open_log(case.gate.settings, os.environ) as audit:
                    case.noted.parts()
                    # INVARIANT: the decision is on the disk before anything runs.
                    about = case.session(enforcement, case.policy())
                    session, decided = audit.began(about, "", case.decision(self._verdict, backend.name))
                    ran, outcome = Ran(time.time()), Outcome(status=Exit.FAILED, ended_by="failure")
                    recorder = case.recorder(session)
                    try:
                        require_unchanged(permit)
                        self._report.started(case.assessment, self._verdict, session, enforcement)
                        layer = transaction.layer if transaction is not None else None
                        outcome, ours = await driver.run(backend, self._verdict, None, self._report, layer=layer)
                        code = self._report.finished(outcome, permit.terms.limits) if ours is None else ours
                        held = False
                        if ours is not None:
                            pass  # the user ended it, or nobody reads the output
                        elif transaction is None:
                            self._choice(Patch(b"", ()), Judged((), ()), lambda path: False)
                        else:
                            applied, held = self._shown(transaction, recorder)
                            ran = replace(ran, changed=recorder.changed, transaction=applied)
                    finally:
                        recorder.close()
                        audit.finished(decided, outcome, ran)
            finally:
                if transaction is not None:
                    transaction.discard()
        if not self._asks and held:
            code = Exit.DENIED
        return self._events.end(code) if self._events is not None else code

    async def _transaction(self, backend: Backend, folders: "MadeAhead | None") -> Transaction:
        """Return a transaction for the command. Raise Stopped if it cannot run on a view."""
        try:
            opened = await open_transaction(state_dir(os.environ), self._verdict.permit.terms, backend, folders)
        except OSError as error:
            opened = os_reason(error)
        if isinstance(opened, Transaction):
            return opened
        fix = "run it without --preview; `agent undo` takes back what an agent's command changed"
        raise Stopped(Problem("there is no preview of this command", opened, fix), Exit.SANDBOX)

    def _shown(self, transaction: Transaction, recorder: SnapshotRecorder) -> tuple[RecordedTransaction, bool]:
        """Show the changes, and apply what the user keeps. Return what was applied, and whether anything was held back.

        Raise Stopped if the changes cannot be read or applied.
        """
        permit, gate = self._verdict.permit, self._case.gate
        workspace, who = permit.terms.workspace, "user" if self._asks else "gate"
        try:
            changes, judged = judged_changes(recorder, transaction, permit, None)
            secret = judged.or_secret(recorder.secret())
            chosen = self._choice(layer_patch(transaction.layer, changes, secret), judged, secret)
            rest = unapplied(transaction.layer, judged, chosen)
            if not chosen.applied:
                left = tuple(NotApplied(each.change.path, each.why, held=each) for each in judged.held)
                return recorded(workspace, Transferred((), left), (), who, "", rest), bool(judged.held)
            words = action_words(permit.action, gate.cwd)
            done = recorder.transfer(transaction, chosen, permit, words, "", required=False)
        except ProblemError as error:
            raise Stopped(error.problem, Exit.FAILED) from None
        except OSError as error:
            raise Stopped(transaction.give_up(os_reason(error)).problem, Exit.FAILED) from None
        say(
            f"kept {many(len(done.result.applied), 'change')}" + ("; `agent undo` takes them back" if done.step else "")
        )
        for each in violations(workspace, done.result.left):
            say(f"  {visible(each.what, lines=False)}; {visible(each.fix, lines=False)}")
        return recorded(workspace, done.result, done.changes, who, "", rest), bool(judged.held)

    def _choice(self, patch: Patch, judged: Judged, secret: Callable[[str], bool]) -> Judged:
        """Show the changes, and return those that the user keeps; none where no user is asked. `secret` returns True
        for a path that must not be shown.
        """
        if self._events is not None:
            self._events.preview(patch, judged)
            return Judged((), judged.held)
        if not self._asks:
            sys.stdout.flush()
            # THREAT T27: contents that a command wrote must not drive the terminal. A program gets the exact bytes.
            exact = not os.isatty(1)
            text = patch.text if exact else visible(patch.text.decode("utf-8", "surrogateescape")).encode()
            sys.stdout.buffer.write(text)
            sys.stdout.flush()
            for line in (*patch.notes, *map(held_line, judged.held)):
                say(line)
            return Judged((), judged.held)
        items = choice_items(judged.applied)
        planned = plan(self._verdict.permit.terms.workspace, read(patch.text), secret)
        lines = [*diff_lines(planned, colour=coloured(sys.stdout))]
        if len(lines) <= _MOST_LINES:
            print("\n".join(lines))
        for line in (*stat_lines(planned), *patch.notes):
            print(line)
        for number, item in enumerate(items, 1):
            print(f"{number:>4}  {item.words}")
        for each in judged.held:
            print(held_line(each))
        sys.stdout.flush()
        if not items:
            say("the command changed nothing that can be kept" if judged.held else "the command changed nothing")
            return Judged((), judged.held)
        return kept(items, judged, _asked(items, lines))


class _PreviewEvents(EventReport):
    """The events of a preview: those of a command, then the event `preview`, then the end."""

    def _end(self, code: int) -> int:
        return code

    def preview(self, patch: Patch, judged: Judged) -> None:
        """Print what the command changed in its view, and what would be held back."""
        held = [{"path": each.change.path, "reason": each.reason, "why": each.why} for each in judged.held]
        files = [{"path": each.path, "how": each.how, "was": each.was or None} for each in patch.files]
        left = [{"path": path, "why": why} for path, why in patch.left_out]
        text = patch.text.decode("utf-8", "replace")
        self._print({"type": "preview", "files": files, "left_out": left, "held": held, "patch": text})

    def end(self, code: int) -> int:
        return super()._end(code)


def _asked(items: Sequence[ChoiceItem], lines: Sequence[str]) -> frozenset[int]:
    """Ask which items to keep, and return their numbers, from 1. Without an answer none is kept."""
    from runner.approval.approver import chosen_numbers
    from runner.config.trust.prompt import typed_line

    while True:
        try:
            answer = typed_line(f"keep these changes? [{_HELP}] ").strip().lower()
        except EOFError:
            return frozenset()
        if answer == "diff":
            print("\n".join(lines), flush=True)
            continue
        numbers = chosen_numbers(answer, len(items))
        if numbers is not None:
            return numbers
        say(f"`{visible(answer, lines=False)}` is not an answer: type {_HELP}")
