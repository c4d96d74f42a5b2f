"""The answer `try` to a question about a command: it runs without network on a layer, and the user decides again.

THREAT T313: what the user sees after a try must be what an answer applies. All processes of the command have ended
before its changes are read. The state of the layer at that moment is compared before anything is applied, and if
anything differs nothing is. All shown text is free of control characters. Without a clear answer nothing is kept, and
the layer is removed.
"""

import time
from collections.abc import Callable
from dataclasses import replace

from policy.decide import preview_of
from policy.grants.resolve import answerer
from policy.model.verdict import Allow, Ask, Deny, ProblemError
from runner.approval.approver import Question
from runner.audit.records import Ran, RecordedAnswer
from runner.changes.transaction.transaction import Transaction, open_transaction
from runner.engine.authorize import Authorization, Evaluation
from runner.engine.judge import place_of_try, with_try
from runner.engine.run_context import RunContext
from runner.engine.tool_calls import Planned
from runner.engine.tried_changes import TriedChanges, ending_words
from runner.event_values import TriedCommand
from runner.events import Notice
from runner.gate.wording import action_words
from runner.text.phrases import many, os_reason
from sandbox.backend import Outcome

_MOST_OUTPUT = 60  # last lines of the output that the question shows
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

        `answer` is that of the user who wants the try. Nothing reaches the workspace. Raise asyncio.CancelledError if
        the user stops the turn.
        """
        trial = await self._trial(evaluation, answer)
        return trial if isinstance(trial, str) else trial.question(question)

    async def waits(self, evaluation: Evaluation) -> str:
        """Prepare the layer of the turn for a command that a rule tries. Return why it cannot run there, or nothing."""
        from runner.engine.waiting import waiting_list  # only for rules that try

        assert isinstance(evaluation.verdict, Ask)  # the caller has checked it
        why = await waiting_list(preview_of(evaluation.verdict).permit, self._planned, self._ctx)
        self._failed = bool(why)
        return f"{_NO_TRY}: {why}" if why else ""

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


class Trial(TriedChanges):
    """One try: a command on its layer, and later the transaction with the changes that the user kept.

    Attributes:
        verdict: The verdict that the command ran under.
    """

    def __init__(self, transaction: Transaction, verdict: Allow, planned: Planned, words: str, ctx: RunContext) -> None:
        super().__init__(transaction, verdict.permit, planned, words, ctx)
        self.verdict = verdict
        self._kept = ""

    async def run(self, number: int) -> None:
        """Run the command, and read its changes. `number` is that of the record of the decision."""
        ctx, started, began = self._ctx, time.monotonic(), time.time()
        outcome, made = Outcome(130, ended_by="cancelled"), None
        try:
            outcome = self.ran = await ctx.sandbox.run(self._permit, layer=self.layer)
            self._read(outcome)
            made = self.made()
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
        ctx = self._ctx
        masked = ctx.redactor.mask(outcome)
        printed = (masked.stdout + masked.stderr).decode("utf-8", "replace").splitlines()
        output = self.lines(printed[-_MOST_OUTPUT:], _MOST_OUTPUT)
        if (more := len(printed) - _MOST_OUTPUT) > 0:
            output = (f"({many(more, 'line')} before)", *output)
        notes = tuple(each.what for each in outcome.violations)
        self.describe(TriedCommand(self.lines([ending_words(outcome)], 1)[0], output, (), (), notes))

    def question(self, question: Question) -> Question:
        """Return the question about the changes, in place of the question about the command."""
        return self.about(question, f"Tried without network: {self.ended}")

    @property
    def ended(self) -> str:
        """Return how the command ended, in words."""
        return self.shown.ended

    def keep(self, numbers: frozenset[int]) -> str:
        """Do and return what TriedChanges does, and keep the words for `notice`."""
        words = super().keep(numbers)
        who = f"{answerer(self._ctx.approver.name)} ran this command without network on a copy of the workspace"
        self._kept = f"{who}, and kept {words}" if self.items else f"{who}, which it did not change"
        return words

    @property
    def notice(self) -> str:
        """Return what was kept and what was discarded, for the model."""
        if (problem := self.result.problem) is not None:
            return f"the user tried this command without network, and its changes were lost: {problem.why}"
        return self._kept
