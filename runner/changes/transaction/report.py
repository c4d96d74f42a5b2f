"""Reports about a transaction: to the model and the user, and in the record."""

import hashlib
from collections.abc import Iterable

from policy.model.frozen import dataclass
from runner.changes.file_state import Change, FileKind, content_hash
from runner.changes.transaction.judge import HeldReason
from runner.changes.transaction.transaction import NotApplied, Transferred
from sandbox.backend import Violation

LISTED = 200  # entries of one record
_SHOWN = 20  # changes that are reported one by one


@dataclass(frozen=True, slots=True)
class RecordedFile:
    """A changed file in the record.

    Attributes:
        path: The absolute path.
        how: `added`, `modified` or `deleted`.
        before: The SHA-256 of the content before, in hex; empty if there was none, or it is not stored.
        after: The same of the content after.
    """

    path: str
    how: str
    before: str = ""
    after: str = ""


@dataclass(frozen=True, slots=True)
class Unapplied:
    """The changes of a preview or of a try that the user did not keep, or has not kept yet.

    Attributes:
        files: The first of them.
        count: The number of all of them.
    """

    files: tuple[RecordedFile, ...] = ()
    count: int = 0


NOTHING_UNAPPLIED = Unapplied()


@dataclass(frozen=True, slots=True)
class RecordedTransaction:
    """A transaction in the record.

    Attributes:
        applied: The first changes that were applied.
        count: The number of all of them.
        tree: The SHA-256 over all of them, in hex, so that a longer list can be compared.
        held: The first changes that were not applied: the path, the kind of reason (`conflict`, or one of HeldReason)
            and the reason in words.
        left: The number of all of these.
        deleted: The number of deleted files; what tools can make again does not count.
        by: The name of what decided: `gate`, or the user.
        tried: How much the user kept of a try, `whole` or `part`; empty for other transactions.
        unapplied: The changes that the user did not keep, or has not kept yet.
    """

    applied: tuple[RecordedFile, ...]
    count: int
    tree: str
    held: tuple[tuple[str, str, str], ...]
    left: int
    deleted: int = 0
    by: str = "gate"
    tried: str = ""
    unapplied: Unapplied = NOTHING_UNAPPLIED


def recorded_files(changes: Iterable[Change]) -> tuple[RecordedFile, ...]:
    """Return changes as the record lists them."""
    return tuple(
        RecordedFile(f"{each.root}/{each.path}", each.how, content_hash(each.before), content_hash(each.after))
        for each in changes
    )


def recorded(
    workspace: str,
    result: Transferred,
    changes: Iterable[Change],
    by: str = "gate",
    tried: str = "",
    unapplied: Unapplied = NOTHING_UNAPPLIED,
) -> RecordedTransaction:
    """Return the transaction for the record. `changes` are those with hashes; empty if none were stored."""
    changes = tuple(changes)
    files = [*recorded_files(changes)]
    known = {each.path for each in files}
    for change in result.applied:  # what is not stored, such as packages of npm
        path = f"{workspace}/{change.path}"
        if path not in known:
            files.append(RecordedFile(path, "deleted" if change.kind is None else "written"))
    tree = hashlib.sha256()
    for file in files:
        line = "\0".join((file.path, file.how, file.before, file.after))
        tree.update(line.encode("utf-8", "surrogatepass") + b"\n")
    held = tuple((f"{workspace}/{each.path}", _reason(each), each.why) for each in result.left[:LISTED])
    gone = (each.before for each in changes if each.after is None)
    deleted = max(result.deleted, sum(each is not None and each.kind != FileKind.FOLDER for each in gone))
    return RecordedTransaction(
        tuple(files[:LISTED]), len(files), tree.hexdigest(), held, len(result.left), deleted, by, tried, unapplied
    )


def violations(workspace: str, left: Iterable[NotApplied]) -> tuple[Violation, ...]:
    """Return what was not applied, as reports to the model and the user."""
    every = tuple(left)
    reports = [_violation(workspace, each) for each in every[:_SHOWN]]
    if (more := len(every) - _SHOWN) > 0:
        what = f"{more:,} more changes were not applied"
        reports.append(Violation(what, "", "look at the record (`agent audit show`)", False, "transaction"))
    return tuple(reports)


def _violation(workspace: str, each: NotApplied) -> Violation:
    path = f"{workspace}/{each.path}"
    fix = f"examine {each.kept}, and copy it back if you want it" if each.kept else "make the change yourself"
    if each.held is None:
        what = f"the change of `{path}` was not applied: {each.why}"
    elif each.held.reason is HeldReason.AUTO_RUN:
        what = f"`{path}` is a new auto-run file: other programs run or read it automatically; it was set aside"
    else:
        what = f"the change of `{path}` was held back: {each.why}"
    return Violation(what, path, fix, False, "transaction")


def _reason(each: NotApplied) -> str:
    return each.held.reason if each.held is not None else "conflict"
