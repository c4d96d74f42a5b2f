"""The changes that commands made on a layer before they count: what the user sees of them, and what an answer keeps.

THREAT T313: what the user sees must be what an answer applies. The state of the layer is compared before anything is
applied, and if anything differs nothing is. All shown text is free of control characters.
"""

import hashlib
import os
from collections.abc import Callable, Iterable
from dataclasses import replace

from policy.model.verdict import Permit, Problem
from runner.approval.approver import Question
from runner.approval.card import safe_line
from runner.approval.remembered import NOTHING
from runner.changes.review.apply_plan import plan
from runner.changes.review.layer_choice import ChoiceItem, choice_items, held_line, kept
from runner.changes.review.layer_patch import layer_patch
from runner.changes.review.patch_parser import read
from runner.changes.review.patch_view import diff_lines, stat_lines
from runner.changes.transaction.hashes import unapplied
from runner.changes.transaction.judge import Judged
from runner.changes.transaction.report import RecordedTransaction, recorded
from runner.changes.transaction.transaction import Transaction, Transferred
from runner.changes.undo.conclude import judged_changes
from runner.engine.run_context import RunContext
from runner.engine.tool_calls import Planned
from runner.engine.transactions import CommandTransaction
from runner.event_values import TriedCommand
from runner.text.phrases import many, os_reason
from runner.text.sanitize import one_line
from sandbox.backend import ChangeLayer, Outcome
from sandbox.workspace.layer import LayerKind, LayerUnreadable, read_layer

_MOST_DIFF = 1000  # lines of the difference
_MOST_ITEMS = 200  # more changes can only be kept all together
_LONGEST = 2000  # characters of a line
_MOST_NAMED = 20  # discarded changes that the model is told of


class TriedChanges(CommandTransaction):
    """The changes that commands made on a layer, and those of them that the user keeps.

    Attributes:
        shown: What the user sees of them; empty before `describe`.
    """

    def __init__(self, transaction: Transaction, permit: Permit, planned: Planned, words: str, ctx: RunContext) -> None:
        super().__init__(transaction, permit, planned, words, ctx)
        self.shown = TriedCommand("", (), (), (), ())
        self._judged = Judged((), ())
        self.items: tuple[ChoiceItem, ...] = ()
        self._chosen = frozenset[int]()
        self._state, self._patch = "", b""

    def describe(self, shown: TriedCommand, maker: Callable[[str], str] = lambda path: "") -> None:
        """Judge the changes, and describe them. `shown` has the output and notes of the commands, and `maker` returns
        what is added to an item. Raise ProblemError or OSError.
        """
        ctx, workspace = self._ctx, self._permit.terms.workspace
        assert ctx.undo is not None  # no layer is made without it
        self._state = layer_state(self.layer)
        changes, self._judged = judged_changes(ctx.undo, self._transaction, self._permit, self._trusted_later())
        self.items = choice_items(self._judged.applied)
        secret = self._judged.or_secret(ctx.undo.secret())
        patch = layer_patch(self.layer, changes, secret)
        self._patch = patch.text
        planned = plan(workspace, read(patch.text), secret)
        diff = self.lines(diff_lines(planned, colour=False), _MOST_DIFF)
        stats = self.lines(stat_lines(planned), _MOST_DIFF)
        notes = [*stats[-1:], *patch.notes, *map(held_line, self._judged.held)] if changes else []
        items = self._named(maker)
        self.shown = replace(shown, diff=diff, items=items, notes=self.lines([*notes, *shown.notes], _MOST_DIFF))
        if layer_state(self.layer) != self._state:
            raise differs()

    def made(self) -> RecordedTransaction:
        """Return the changes for the record before the user has kept any."""
        rest = unapplied(self.layer, self._judged, Judged((), ()))
        return recorded(self.layer.workspace, Transferred((), ()), (), unapplied=rest)

    def _named(self, maker: Callable[[str], str]) -> tuple[str, ...]:
        """Return the words of what can be kept: each item, or of many one for all."""
        if len(self.items) > _MOST_ITEMS:
            return (f"all {many(len(self.items), 'change')}, which can only be kept together",)
        return self.lines([each.words + maker(each.change.path) for each in self.items], _MOST_ITEMS)

    def lines(self, lines: Iterable[str], most: int) -> tuple[str, ...]:
        """Return lines that are safe to print, without secrets; the first `most` and how many there are more."""
        every = self._ctx.redactor.text("\n".join(lines)).split("\n")
        shown = [safe_line(line[:_LONGEST]) + ("…" if len(line) > _LONGEST else "") for line in every[:most]]
        if (more := len(every) - most) > 0:
            shown.append(f"@@ {many(more, 'line')} more: they are not shown @@")
        return tuple(shown) if every != [""] else ()

    def about(self, question: Question, line: str) -> Question:
        """Return the question about the changes, in place of the question about a command."""
        count = len(self.items)
        waits = f"{many(count, 'change')} {'waits' if count == 1 else 'wait'} for your answer" if count else "no change"
        tried = replace(
            question.card, line=f"{line}, {waits}", change=None, choices=(), paths=(), editable=False, edits=False,
            tries=False, tried=self.shown,
        )  # fmt: skip
        return replace(question, card=tried, offer=NOTHING, again="", edited=None)

    def keep_patch(self) -> str:
        """Store the changes as a patch for the user, and return in words where it is."""
        if not self.items:
            return "it changed nothing that could be kept"
        try:
            where = self._transaction.set_aside(self._patch)
            return f"its changes were discarded; the user finds them as a patch at {where}"
        except OSError as error:
            return f"its changes were discarded, and no patch could be stored: {os_reason(error)}"

    def keep(self, numbers: frozenset[int]) -> str:
        """Let `conclude` apply the items with these numbers, from 1. Return what is kept and discarded, in words."""
        every = frozenset(range(1, len(self.items) + 1))
        self._chosen = every if numbers == frozenset(range(1, len(self.shown.items) + 1)) else numbers
        self.tried = "whole" if self._chosen == every else "part"
        left = [self.items[number - 1].change.path for number in sorted(every - self._chosen)]
        if not left:
            return f"all of its {many(len(every), 'change')}"
        named = ", ".join(f"`{one_line(path, _LONGEST)}`" for path in left[:_MOST_NAMED])
        more = f" and {len(left) - _MOST_NAMED} more" if len(left) > _MOST_NAMED else ""
        return f"{len(self._chosen)} of {many(len(every), 'change')}; discarded: {named}{more}"

    def choose(self, judged: Judged) -> Judged:
        """Return the changes that the user kept. Raise LayerUnreadable if they are not those that were shown."""
        if judged != self._judged or layer_state(self.layer) != self._state:
            raise differs()
        return kept(self.items, judged, self._chosen)

    def discard(self) -> None:
        """Remove the layer. It has none any more after `conclude`."""
        self._transaction.discard()


def differs() -> LayerUnreadable:
    """Return the error for changes that are no longer those that were shown."""
    why = "they are no longer those that the user saw"
    return LayerUnreadable(Problem("the changes of the command were not kept", why, "run the command again"))


def layer_state(layer: ChangeLayer) -> str:
    """Return a hash over the entries of a layer (`layer_entries`)."""
    state = hashlib.sha256()
    for entry in layer_entries(layer).values():
        state.update(repr(entry).encode("utf-8", "surrogatepass") + b"\n")
    return state.hexdigest()


def layer_entries(layer: ChangeLayer) -> dict[str, object]:
    """Return the kind, size and times of everything in a layer, by the path.

    No process can set the time of change of a file (ctime, inode(7)), so an equal value stands for an equal content.
    That of a folder is left out, because the list of a layer is read with rights that the command may have taken away.
    """
    entries = dict[str, object]()
    for change in read_layer(layer):
        found = os.lstat(os.path.join(layer.upper, change.path)) if change.kind is not None else None
        folder = change.kind is LayerKind.FOLDER
        times = (found.st_size, found.st_mtime_ns, found.st_ctime_ns) if found is not None and not folder else ()
        entries[change.path] = (change, found.st_ino if found is not None else 0, times)
    return entries


def ending_words(outcome: Outcome) -> str:
    """Return how a command ended, in words."""
    if outcome.problem is not None:
        return f"{outcome.problem.what}: {outcome.problem.why}"
    return f"ended by {outcome.ended_by}" if outcome.ended_by is not None else f"exit code {outcome.status}"
