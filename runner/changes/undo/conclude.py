"""The end of a command that ran on a layer: its changes are listed, judged, applied and stored for undo."""

from collections.abc import Callable

from policy.model.frozen import dataclass
from policy.model.verdict import Permit, Problem, ProblemError
from runner.changes.transaction.judge import HeldReason, Judged, judge
from runner.changes.transaction.report import NOTHING_UNAPPLIED, RecordedTransaction, recorded, violations
from runner.changes.transaction.transaction import NotApplied, Transaction
from runner.changes.undo.recorder import RecordedTransfer, SnapshotRecorder
from runner.flow.held_change import HeldChange
from runner.text.phrases import os_reason
from sandbox.backend import Violation
from sandbox.inside.regular_file import read_whole
from sandbox.workspace.layer import LayerChange, LayerUnreadable, read_layer

# THREAT T309: folders above all changes, each counted once per change. A million files two thousand deep would exhaust
# the memory.
_MOST_FOLDERS = 20_000_000
_TOO_DEEP = "the changes of the command cannot be judged, and none was applied"
_LONGEST_HELD = 1 << 20  # bytes of a changed file that a question can show


@dataclass(frozen=True, slots=True)
class Concluded:
    """The result of a transaction.

    Attributes:
        changed: The applied changes of files, as pairs of a path and the kind of change.
        later: The changes of files that are trusted later, none of which was applied.
        reports: What else was not applied.
        record: The transaction for the record; None after a failure, and if the command changed nothing.
        step: The number of the step for undo; None if no stored file changed.
        problem: Why nothing was applied; None without a failure.
        transfer: What `record` and `changed` tell of; None after a failure, and if the command changed nothing.
    """

    changed: tuple[tuple[str, str], ...] = ()
    later: tuple[HeldChange, ...] = ()
    reports: tuple[Violation, ...] = ()
    record: RecordedTransaction | None = None
    step: int | None = None
    problem: Problem | None = None
    transfer: RecordedTransfer | None = None


def conclude(
    recorder: SnapshotRecorder,
    transaction: Transaction,
    permit: Permit,
    words: str,
    call: str,
    trusted_later: Callable[[str], str] | None,
    *,
    keep: bool = True,
    choose: Callable[[Judged], Judged] = lambda judged: judged,
    tried: str = "",
) -> Concluded:
    """Judge and apply the changes of the command, which has ended. With `keep` they are stored for undo.

    `choose` returns what is applied of the judged changes, and `tried` is how much that is of a try, for the record.
    After a failure nothing was applied, and the changes are kept for the user.
    """
    workspace = permit.terms.workspace
    try:
        changes, judged = judged_changes(recorder, transaction, permit, trusted_later)
        chosen = choose(judged)
        if not changes:
            transaction.discard()
            return Concluded()
        rest = NOTHING_UNAPPLIED
        if chosen is not judged:
            from runner.changes.transaction.hashes import unapplied  # few commands are tried

            rest = unapplied(transaction.layer, judged, chosen)
        done = recorder.transfer(transaction, chosen, permit, words, call, required=False, keep=keep)
    except (OSError, ProblemError) as error:
        failed = error if isinstance(error, ProblemError) else transaction.give_up(os_reason(error))
        transaction.discard()
        problem = failed.problem
        report = Violation(f"{problem.what}: {problem.why}", workspace, problem.fix, False, "transaction")
        return Concluded(reports=(report,), problem=problem)
    later = [each for each in done.result.left if _is_later(each)]
    changed = recorder.changed
    if changed is None:  # they are not stored
        how = {f"{each.root}/{each.path}": each.how for each in done.changes}
        changed = tuple(
            (path, how.get(path, "deleted" if each.kind is None else "modified"))
            for each in done.result.applied
            for path in (f"{workspace}/{each.path}",)
        )
    return Concluded(
        changed,
        tuple(_held_change(workspace, each) for each in later),
        violations(workspace, (each for each in done.result.left if not _is_later(each))),
        recorded(workspace, done.result, done.changes, "user" if tried else "gate", tried, rest),
        done.step,
        transfer=done,
    )


def judged_changes(
    recorder: SnapshotRecorder,
    transaction: Transaction,
    permit: Permit,
    trusted_later: Callable[[str], str] | None,
) -> tuple[tuple[LayerChange, ...], Judged]:
    """Return what the command changed in its layer, and the judgement. Raise LayerUnreadable or OSError."""
    changes = read_layer(transaction.layer)
    if not changes:
        return (), Judged((), ())
    if sum(change.path.count("/") for change in changes) > _MOST_FOLDERS:
        raise LayerUnreadable(Problem(_TOO_DEEP, "its new files lie too deep", "run a smaller command"))
    return changes, judge(transaction.layer, changes, recorder.standards(permit, trusted_later, transaction.opened))


def _is_later(left: NotApplied) -> bool:
    return left.held is not None and left.held.reason is HeldReason.TRUSTED_LATER


def _held_change(workspace: str, left: NotApplied) -> HeldChange:
    """Return the change for a question or a report."""
    try:
        text = read_whole(left.kept, _LONGEST_HELD, follow=False).decode()
    except (OSError, ValueError):  # it is no text, or no file
        text = None
    return HeldChange(f"{workspace}/{left.path}", text)
