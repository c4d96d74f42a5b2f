"""The answer `try` to a question about a command: it runs without network on a layer, and the user decides again.

THREAT T313: what the user sees after a try must be what an answer applies. All processes of the command have ended
before its changes are read. The state of the layer at that moment is compared before anything is applied, and if
anything differs nothing is. All shown text is free of control characters. Without a clear answer nothing is kept, and
the layer is removed.
"""

import hashlib
import os
import time
from collections.abc import Callable, Iterable
from dataclasses import replace

from policy.decide import preview_of
from policy.grants.resolve import answerer
from policy.model.verdict import Allow, Ask, Deny, Problem, ProblemError
from runner.approval.approver import Question
from runner.approval.card import safe_line
from runner.approval.remembered import NOTHING
from runner.audit.records import Ran, RecordedAnswer
from runner.changes.review.apply_plan import plan
from runner.changes.review.layer_choice import ChoiceItem, choice_items, held_line, kept
from runner.changes.review.layer_patch import layer_patch
from runner.changes.review.patch_parser import read
from runner.changes.review.patch_view import diff_lines, stat_lines
from runner.changes.transaction.hashes import unapplied
from runner.changes.transaction.judge import Judged
from runner.changes.transaction.report import recorded
from runner.changes.transaction.transaction import Transaction, Transferred, open_transaction
from runner.changes.undo.conclude import judged_changes
from runner.engine.authorize import Authorization, Evaluation
from runner.engine.judge import place_of_try, with_try
from runner.engine.run_context import RunContext
from runner.engine.tool_calls import Planned
from runner.engine.transactions import CommandTransaction
from runner.event_values import TriedCommand
from runner.events import Notice
from runner.gate.wording import action_words
from runner.text.phrases import many, os_reason
from runner.text.sanitize import one_line
from sandbox.backend import ChangeLayer, Outcome
from sandbox.workspace.layer import LayerKind, LayerUnreadable, read_layer

_MOST_OUTPUT = 60  # last lines of the output that the question shows
_MOST_DIFF = 1000  # lines of the difference
_MOST_ITEMS = 200  # more changes can only be kept all together
_LONGEST = 2000  # characters of a line
_MOST_NAMED = 20  # discarded changes that the model is told of
_NO_TRY = "the command was not tried"


class Trials:
    """The tries of one call: offers them, runs them, and ends them. At most one is open.

    Attributes:
        open: The try whose changes wait for an answer, or None.
    """

    def __init__(self, planned: Planned, ctx: RunContext, record: Callable[[Authorization], int]) -> None:
        """Store `record`, which records the decision to run a try and returns the number of the record."""
        self._planned, self._ctx, self._record = planned, ctx, record
        self._failed = False
        self.open: Trial | None = None

    async def offered(self, question: Question) -> Question:
        """Return the question, with the answer `try` if the command can run on a layer."""
        return question if self._failed else await with_try(question, self._ctx)

    async def run(self, evaluation: Evaluation, answer: RecordedAnswer | None, question: Question) -> Question | str:
        """Run the command on a layer, and return the question about what it changed, or why it was not tried.

        `answer` is that of the user who wants the try, or None if a rule does. Nothing reaches the workspace. Raise
        asyncio.CancelledError if the user stops the turn.
        """
        trial = await self._trial(evaluation, answer)
        return trial if isinstance(trial, str) else trial.about(question)

    async def run_unattended(self, evaluation: Evaluation) -> Evaluation:
        """Run a command that a rule tries, where no user can decide about its changes, and return the denial.

        The changes are discarded. The user gets them as a patch. If the command cannot be tried, it does not run.
        """
        denial = evaluation.verdict
        asked = replace(evaluation.recalled.context, unattended=False).decide(evaluation.assessment)
        if not isinstance(denial, Deny) or not isinstance(asked, Ask) or not asked.tries or asked.terms.writable:
            return evaluation
        trial = await self._trial(replace(evaluation, verdict=asked), None)
        if isinstance(trial, str):
            return evaluation
        why = f"{denial.problem.why}; it was tried without network ({trial.ended}), and {trial.keep_patch()}"
        refused = replace(denial, problem=replace(denial.problem, why=why))
        return replace(evaluation, verdict=refused, recalled=replace(evaluation.recalled, verdict=refused))

    async def _trial(self, evaluation: Evaluation, answer: RecordedAnswer | None) -> "Trial | str":
        """Run the command on a layer, and return the try, or why there is none."""
        self.discard()
        ctx = self._ctx
        assert isinstance(evaluation.verdict, Ask)  # the callers try only what is asked about
        verdict = preview_of(evaluation.verdict)
        permit = verdict.permit
        if permit.sourced:
            from runner.facts.sourced_file import changed_file  # few commands read shell text from a file

            if (problem := changed_file(permit.sourced)) is not None:
                return problem.why
        async with ctx.changing:  # what is below a layer must not change while it is mounted
            if (state := place_of_try(permit, ctx)) is None:
                return self._unable("no layer is possible any more")
            try:
                transaction = await open_transaction(state, permit.terms, ctx.sandbox)
            except OSError as error:
                return self._unable(os_reason(error))
            if isinstance(transaction, str):
                return self._unable(transaction)
            words = ctx.redactor.text(action_words(permit.action, ctx.cwd))
            trial = self.open = Trial(transaction, verdict, self._planned, words, ctx)
            # INVARIANT: the decision is on the disk before anything runs.
            number = self._record(Authorization(evaluation, verdict, answer))
            ctx.emit(Notice("the command is tried without network; nothing that it changes counts yet"))
            try:
                await trial.run(number)
                return trial
            except (ProblemError, OSError) as error:  # nothing was applied
                self.discard()
                return self._unable(error.problem.why if isinstance(error, ProblemError) else os_reason(error))

    def discard(self) -> None:
        """Remove the layer of the open try, if there is one."""
        if self.open is not None:
            self.open.discard()
            self.open = None

    def _unable(self, why: str) -> str:
        """Offer no further try, and return why there is none."""
        self._failed = True
        return f"{_NO_TRY}: {why}"


class Trial(CommandTransaction):
    """One try: a command on its layer, and later the transaction with the changes that the user kept.

    Attributes:
        verdict: The verdict that the command ran under.
    """

    def __init__(self, transaction: Transaction, verdict: Allow, planned: Planned, words: str, ctx: RunContext) -> None:
        super().__init__(transaction, verdict.permit, planned, words, ctx)
        self.verdict = verdict
        self._kept = ""
        self._judged = Judged((), ())
        self._items: tuple[ChoiceItem, ...] = ()
        self._chosen = frozenset[int]()
        self._shown = TriedCommand("", (), (), (), ())
        self._state, self._patch = "", b""

    async def run(self, number: int) -> None:
        """Run the command, and read its changes. `number` is that of the record of the decision."""
        ctx, started, began = self._ctx, time.monotonic(), time.time()
        outcome, made = Outcome(130, ended_by="cancelled"), None
        try:
            outcome = self.ran = await ctx.sandbox.run(self._permit, layer=self.layer)
            self._read(outcome)
            rest = unapplied(self.layer, self._judged, Judged((), ()))
            made = recorded(self.layer.workspace, Transferred((), ()), (), unapplied=rest)
        except ProblemError as error:
            outcome = replace(self.ran or Outcome(1), problem=error.problem)
            raise
        finally:
            if not outcome.seconds:
                outcome = replace(outcome, seconds=time.monotonic() - started)
            ran = Ran(began, changed=(), transaction=made)
            ctx.audit.finished(number, outcome, ran, agent=ctx.agent, parent=ctx.parent)

    def _read(self, outcome: Outcome) -> None:
        """Judge the changes, and describe them. Raise ProblemError or OSError."""
        ctx, workspace = self._ctx, self._permit.terms.workspace
        assert ctx.undo is not None  # `Trials` checked it
        self._state = layer_state(self.layer)
        changes, self._judged = judged_changes(ctx.undo, self._transaction, self._permit, self._trusted_later())
        self._items = choice_items(self._judged.applied)
        secret = ctx.undo.secret()
        patch = layer_patch(self.layer, changes, secret)
        self._patch = patch.text
        planned = plan(workspace, read(patch.text), secret)
        diff = self._lines(diff_lines(planned, colour=False), _MOST_DIFF)
        stats = self._lines(stat_lines(planned), _MOST_DIFF)
        masked = ctx.redactor.mask(outcome)
        printed = (masked.stdout + masked.stderr).decode("utf-8", "replace").splitlines()
        output = self._lines(printed[-_MOST_OUTPUT:], _MOST_OUTPUT)
        if (more := len(printed) - _MOST_OUTPUT) > 0:
            output = (f"({many(more, 'line')} before)", *output)
        notes = [*stats[-1:], *patch.notes, *map(held_line, self._judged.held)] if changes else []
        notes += [each.what for each in outcome.violations]
        self._shown = TriedCommand(
            self._lines([_ended(outcome)], 1)[0], output, diff, self._named(), self._lines(notes, _MOST_DIFF)
        )
        if layer_state(self.layer) != self._state:
            raise self._differs()

    def _named(self) -> tuple[str, ...]:
        """Return the words of what can be kept: each item, or of many one for all."""
        if len(self._items) > _MOST_ITEMS:
            return (f"all {many(len(self._items), 'change')}, which can only be kept together",)
        return self._lines([each.words for each in self._items], _MOST_ITEMS)

    def _lines(self, lines: Iterable[str], most: int) -> tuple[str, ...]:
        """Return lines that are safe to print, without secrets; the first `most` and how many there are more."""
        every = self._ctx.redactor.text("\n".join(lines)).split("\n")
        shown = [safe_line(line[:_LONGEST]) + ("…" if len(line) > _LONGEST else "") for line in every[:most]]
        if (more := len(every) - most) > 0:
            shown.append(f"@@ {many(more, 'line')} more: they are not shown @@")
        return tuple(shown) if every != [""] else ()

    def about(self, question: Question) -> Question:
        """Return the question about the changes, in place of the question about the command."""
        count = len(self._items)
        waits = f"{many(count, 'change')} {'waits' if count == 1 else 'wait'} for your answer" if count else "no change"
        line = f"Tried without network: {self._shown.ended}, {waits}"
        tried = replace(
            question.card, line=line, change=None, choices=(), paths=(), editable=False, edits=False, tries=False,
            tried=self._shown,
        )  # fmt: skip
        return replace(question, card=tried, offer=NOTHING, again="", edited=None)

    @property
    def ended(self) -> str:
        """Return how the command ended, in words."""
        return self._shown.ended

    def keep_patch(self) -> str:
        """Store the changes as a patch for the user, and return in words where it is."""
        if not self._items:
            return "it changed nothing that could be kept"
        try:
            where = self._transaction.set_aside(self._patch)
            return f"its changes were discarded; the user finds them as a patch at {where}"
        except OSError as error:
            return f"its changes were discarded, and no patch could be stored: {os_reason(error)}"

    def keep(self, numbers: frozenset[int]) -> None:
        """Let `conclude` apply the items with these numbers, from 1."""
        every = frozenset(range(1, len(self._items) + 1))
        chosen = every if numbers == frozenset(range(1, len(self._shown.items) + 1)) else numbers
        self.tried = "whole" if chosen == every else "part"
        left = [self._items[number - 1].change.path for number in sorted(every - chosen)]
        who = answerer(self._ctx.approver.name)
        head = f"{who} ran this command without network on a copy of the workspace, and kept"
        if not every:
            self._kept = f"{who} ran this command without network on a copy of the workspace, which it did not change"
        elif not left:
            self._kept = f"{head} all of its {many(len(every), 'change')}"
        else:
            named = ", ".join(f"`{one_line(path, _LONGEST)}`" for path in left[:_MOST_NAMED])
            more = f" and {len(left) - _MOST_NAMED} more" if len(left) > _MOST_NAMED else ""
            self._kept = f"{head} {len(chosen)} of {many(len(every), 'change')}; discarded: {named}{more}"
        self._chosen = chosen

    @property
    def notice(self) -> str:
        """Return what was kept and what was discarded, for the model."""
        if (problem := self.result.problem) is not None:
            return f"the user tried this command without network, and its changes were lost: {problem.why}"
        return self._kept

    def choose(self, judged: Judged) -> Judged:
        """Return the changes that the user kept. Raise LayerUnreadable if they are not those that were shown."""
        if judged != self._judged or layer_state(self.layer) != self._state:
            raise self._differs()
        return kept(self._items, judged, self._chosen)

    def _differs(self) -> LayerUnreadable:
        why = "they are no longer those that the user saw"
        return LayerUnreadable(Problem("the changes of the command were not kept", why, "run the command again"))

    def discard(self) -> None:
        """Remove the layer. A concluded try has none any more."""
        self._transaction.discard()


def layer_state(layer: ChangeLayer) -> str:
    """Return a hash over the names, kinds, sizes and times of everything in a layer.

    No process can set the time of change of a file (ctime, inode(7)), so an equal hash stands for equal contents. That
    of a folder is left out, because the list of a layer is read with rights that the command may have taken away.
    """
    state = hashlib.sha256()
    for change in read_layer(layer):
        found = os.lstat(os.path.join(layer.upper, change.path)) if change.kind is not None else None
        folder = change.kind is LayerKind.FOLDER
        times = (found.st_size, found.st_mtime_ns, found.st_ctime_ns) if found is not None and not folder else ()
        entry = (change, found.st_ino if found is not None else 0, times)
        state.update(repr(entry).encode("utf-8", "surrogatepass") + b"\n")
    return state.hexdigest()


def _ended(outcome: Outcome) -> str:
    if outcome.problem is not None:
        return f"{outcome.problem.what}: {outcome.problem.why}"
    return f"ended by {outcome.ended_by}" if outcome.ended_by is not None else f"exit code {outcome.status}"
