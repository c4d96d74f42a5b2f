"""The changes of the commands that rules try in a turn: one layer and one list, which wait for one decision.

A turn is the work on one prompt, up to the answer of the model. Every other action that may see the workspace waits for
the decision, so that the model never works with two states of the workspace.

THREAT T317: a command must not change what a later command of the list finds, or what the user sees, after it has
ended. All processes of a command have ended before the next one gets the layer, on an overlay and in a helper of its
own. What the layer has is compared before each command, before the list is shown, and before anything is applied, and
if anything differs nothing of the list is kept.
"""

import shlex
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace

from policy.model.action import RunScript
from policy.model.frozen import dataclass
from policy.model.verdict import Limits, Permit, ProblemError, Terms
from runner.approval.approver import Question
from runner.changes.review.layer_choice import kept
from runner.changes.transaction.hashes import ChangeHashes
from runner.changes.transaction.report import RecordedTransaction, Unapplied, recorded, recorded_files
from runner.changes.transaction.transaction import Transaction, Transferred, open_transaction
from runner.changes.undo.conclude import Concluded
from runner.engine.authorize import Evaluation
from runner.engine.judge import place_of_try
from runner.engine.run_context import RunContext
from runner.engine.tool_calls import Planned
from runner.engine.tried_changes import TriedChanges, differs, ending_words, layer_entries
from runner.event_values import TriedCommand
from runner.gate.wording import action_words
from runner.text.phrases import many, os_reason
from runner.text.sanitize import one_line
from sandbox.backend import ChangeLayer, Outcome
from sandbox.workspace.layer import read_layer

_LONGEST = 300  # characters of a command in a line

RunOnLayer = Callable[["WaitingList"], Awaitable[Outcome]]


@dataclass(frozen=True, slots=True)
class TriedRun:
    """One command of the list.

    Attributes:
        planned: Its call.
        evaluation: The question about it, in place of which it ran.
        permit: What it ran with.
        words: The command in words.
        number: The number of the record of the decision to run it.
        began: The time of its start, in seconds since 1970.
        outcome: Its outcome.
    """

    planned: Planned
    evaluation: Evaluation
    permit: Permit
    words: str
    number: int
    began: float
    outcome: Outcome = Outcome(130, ended_by="cancelled")

    @property
    def script(self) -> str:
        """Return the command as it would be typed."""
        action = self.permit.action
        return action.script if isinstance(action, RunScript) else shlex.join(getattr(action, "argv", ()))


class WaitingList(TriedChanges):
    """The commands of one list, and their changes.

    Attributes:
        runs: The commands, in order.
    """

    signs = False  # as with a preview, nothing that lasts leaves the layer

    def __init__(self, transaction: Transaction, permit: Permit, planned: Planned, ctx: RunContext) -> None:
        super().__init__(transaction, permit, planned, "", ctx)
        self.runs: list[TriedRun] = []
        self._entries: dict[str, object] | None = {}  # of the layer after the last command; None if unreadable
        self._looked = 0  # commands whose changes are in `_entries`
        self._makers: dict[str, int] = {}  # the numbers of the commands that changed each path last, from 1

    @property
    def layer(self) -> ChangeLayer:
        """Return the layer, which all commands of the list share."""
        return replace(self._transaction.layer, shared=True)

    def takes(self, permit: Permit) -> bool:
        """Return True if a command with `permit` may use this layer: with the rights of the commands before it, and
        judged by no file that these may have changed.
        """
        return not permit.sourced and _rights(permit.terms) == _rights(self._permit.terms)

    def require_unchanged(self) -> None:
        """Raise LayerUnreadable or OSError if the layer is not as the last command left it."""
        if self._entries is None or layer_entries(self.layer) != self._entries:
            raise differs()

    async def run(self, tried: TriedRun, perform: RunOnLayer) -> Outcome:
        """Let `perform` run a command on the layer, and add it to the list, however it ends."""
        outcome = tried.outcome
        try:
            outcome = await perform(self)
            return outcome
        except ProblemError as error:
            outcome = Outcome(1, problem=error.problem)
            raise
        finally:
            self.look()
            self.runs.append(replace(tried, outcome=outcome))
            self._permit, self._planned = tried.permit, tried.planned
            self._words = "; ".join(each.words for each in self.runs)

    def look(self) -> tuple[tuple[str, str], ...]:
        """Note what the command that has ended changed, also for its record. Nothing of it counts yet."""
        number = len(self.runs) + 1
        if self._looked == number:
            return ()
        self._looked, before = number, self._entries or {}
        try:
            changes = read_layer(self.layer)
            now = layer_entries(self.layer)
        except (OSError, ProblemError):  # `review` meets the error again, and then nothing is kept
            self._entries = None
            return ()
        self._makers = {
            path: self._makers.get(path, number) if before.get(path) == entry else number for path, entry in now.items()
        }
        self._entries = now
        own = [each for each in changes if self._makers.get(each.path) == number]
        rest = Unapplied(recorded_files(ChangeHashes(self.layer, own).every), len(own))
        workspace = self.layer.workspace
        self.result = Concluded(record=recorded(workspace, Transferred((), ()), (), unapplied=rest))
        return ()

    def review(self) -> bool:
        """Describe the changes. Return False if nothing changed. Raise LayerUnreadable, ProblemError or OSError."""
        self.require_unchanged()
        ends = [f"{one_line(each.script, _LONGEST)}: {ending_words(each.outcome)}" for each in self.runs]
        ends = [self.lines([each], 1)[0] for each in ends]
        ended = ending_words(self.runs[0].outcome) if len(ends) == 1 else many(len(ends), "command")
        shown = TriedCommand(ended, (), (), (), (), tuple(ends))
        self.describe(shown, self._maker if len(ends) > 1 else lambda path: "")
        return bool(self._entries)

    def set_aside(self) -> str:
        """Remove the changes after they were stored as a patch for the user, and return in words where it is."""
        try:
            self.review()
            return self.keep_patch()
        except (OSError, ProblemError) as error:
            why = error.problem.why if isinstance(error, ProblemError) else os_reason(error)
            return f"its changes were discarded, and no patch could be stored: {why}"
        finally:
            self.discard()

    def _maker(self, path: str) -> str:
        return f"  (command {self._number(path)})"

    def _number(self, path: str) -> int:
        """Return the number of the command that changed an entry, or the folder above it, last."""
        while path and path not in self._makers:
            path = path.rpartition("/")[0]
        return self._makers.get(path, len(self.runs))

    def question(self, question: Question, why: str) -> Question:
        """Return the question about the list, in place of the question about its last command. `why` says why it is
        asked now.
        """
        count = len(self.runs)
        ran = "1 command ran" if count == 1 else f"{count} commands ran"
        asked = self.about(question, f"{ran} without network")
        text = "keep what it changed?" if count == 1 else "keep what they changed?"
        shown = replace(
            asked.card, question=text, command=self.script, marks=(), letters=(), more=(), rights=(), caveats=()
        )
        ask = replace(asked.ask, question=f"{ran} without network, as a rule says: {text}")
        return replace(asked, ask=ask, card=shown, again=why)

    @property
    def script(self) -> str:
        """Return the commands as they would be typed, without secrets."""
        return self._ctx.redactor.text("\n".join(each.script for each in self.runs))

    def share(self, number: int) -> RecordedTransaction | None:
        """Return what was applied of the changes of the command `number`, from 1, for the record."""
        done = self.result.transfer
        if done is None:
            return None
        workspace = self._permit.terms.workspace
        own = Transferred(
            tuple(each for each in done.result.applied if self._number(each.path) == number),
            tuple(each for each in done.result.left if self._number(each.path) == number),
        )
        changes = [each for each in done.changes if self._number(each.path) == number]
        chosen = {each.path for each in kept(self.items, self._judged, self._chosen).applied}
        left = [each for each in self._judged.applied if each.path not in chosen and self._number(each.path) == number]
        every = self.result.record.unapplied.files if self.result.record is not None else ()
        files = tuple(each for each in every if self._number(each.path.removeprefix(f"{workspace}/")) == number)
        return recorded(workspace, own, changes, "user", self.tried, Unapplied(files, len(left)))

    def changed_by(self, number: int) -> tuple[tuple[str, str], ...]:
        """Return the applied changes of files of the command `number`, from 1."""
        start = f"{self._permit.terms.workspace}/"
        return tuple(each for each in self.result.changed if self._number(each[0].removeprefix(start)) == number)


async def waiting_list(permit: Permit, planned: Planned, ctx: RunContext) -> str:
    """Open a list for a command of a rule, unless one is open that takes it. Return why there is none, or nothing."""
    tries = ctx.tries
    if not tries.open:
        return "no turn is in progress"
    assert tries.list is None or isinstance(tries.list, WaitingList)
    if tries.list is not None:
        if not tries.list.takes(permit):
            return "the changes of the commands before it are not decided yet"
        try:
            tries.list.require_unchanged()
            return ""
        except (OSError, ProblemError) as error:
            tries.lose(error.problem.why if isinstance(error, ProblemError) else os_reason(error), ctx.emit)
    if (state := place_of_try(permit, ctx)) is None:
        return "no layer is possible any more"
    try:
        transaction = await open_transaction(state, permit.terms, ctx.sandbox)
    except OSError as error:
        return os_reason(error)
    if isinstance(transaction, str):
        return transaction
    tries.list = WaitingList(transaction, permit, planned, ctx)
    return ""


async def run_waiting(
    planned: Planned, evaluation: Evaluation, permit: Permit, number: int, ctx: RunContext, perform: RunOnLayer
) -> tuple[Outcome, str]:
    """Let `perform` run a command on the layer of the open list. Return its outcome, and what the model is told of it.

    `number` is that of the record of the decision.
    """
    waiting = ctx.tries.list
    assert isinstance(waiting, WaitingList)  # `waiting_list` opened it
    words = ctx.redactor.text(action_words(permit.action, ctx.cwd))
    outcome = await waiting.run(TriedRun(planned, evaluation, permit, words, number, time.time()), perform)
    before = ", which has what the commands before it left there" if len(waiting.runs) > 1 else ""
    notice = (
        f"a rule of the user tries this command: it ran without network on a copy of the workspace{before}. Its "
        "changes wait for the user's decision at the end of the turn; the workspace does not have them yet. Only "
        "commands that such a rule tries see them; any other action asks the user first"
    )
    return outcome, notice


def _rights(terms: Terms) -> Terms:
    """Return the rights of a command without what limits it alone."""
    return replace(terms, env=(), limits=Limits())
