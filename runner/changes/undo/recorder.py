"""The snapshots before and after each action that may write. An action that only reads needs none."""

import asyncio
import contextlib
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Concatenate, ParamSpec, TypeVar

from policy.model.action import EditFile, RunArgv, RunScript, WriteFile
from policy.model.deadline import deadline
from policy.model.facts import Facts
from policy.model.frozen import dataclass
from policy.model.secret_paths import inside
from policy.model.verdict import Permit, Problem, Rights, Terms
from runner.changes import file_state
from runner.changes.file_state import Change, content_hash
from runner.changes.transaction.settings import transaction_settings
from runner.changes.undo.blobs import Lost
from runner.changes.undo.change_scan import Rules, ScanStopped, TooMany, left_out
from runner.changes.undo.lock import Turns, UndoError
from runner.changes.undo.scope import SnapshotScope, below_root, choice_of, inventory_of, place, scope_of, secret_of
from runner.changes.undo.snapshot import Snapshotter, complete_interrupted
from runner.changes.undo.store import Roots, Store, convert_failures, sign, undoable
from runner.config import Settings
from runner.flow.held_change import HeldChange
from runner.state.lineage import SessionLineage
from runner.state.paths import cache_dir, state_dir
from runner.text.phrases import os_reason
from runner.text.sanitize import one_line
from sandbox.linux.launch import recent_survey
from sandbox.workspace.protected_paths import Scan

if TYPE_CHECKING:
    from runner.changes.transaction.judge import Judged, Standards
    from runner.changes.transaction.transaction import Transaction, Transferred
    from runner.changes.undo.revert import RevertRecord, RevertResult

_SLOW = deadline(1.0)  # seconds of a first scan from which on its duration is reported
_SAID = frozenset((file_state.TOO_BIG, file_state.NO_ROOM, file_state.CLOSED, file_state.MOVING, file_state.TOO_DEEP))
_UNKNOWN = 1 << 53  # larger than every step: used if the list cannot be read, so that no action counts as later
_LONGEST = 1000  # characters of the note for the model about a /rewind

_FAILURES = (OSError, sqlite3.Error, UndoError, TooMany, ScanStopped)

Say = Callable[[str], None]
Hold = Callable[[str], bool]  # tells of an absolute path whether a change of it is held back
Writers = tuple[tuple[str, Permit], ...]  # names and permits of processes
P = ParamSpec("P")
T = TypeVar("T")


def _alone(method: "Callable[Concatenate[SnapshotRecorder, P], T]") -> "Callable[Concatenate[SnapshotRecorder, P], T]":
    """Let one thread at a time run `method`.

    SAFETY: a command that was stopped continues in its thread. Closing the SQLite connection in another thread at that
    moment crashes the whole program.
    """

    @wraps(method)
    def waiting(self: "SnapshotRecorder", /, *args: P.args, **kwargs: P.kwargs) -> T:
        with self.using:
            return method(self, *args, **kwargs)

    return waiting


@dataclass(frozen=True, slots=True)
class OpenAction:
    """An action between `before` and `after`.

    Attributes:
        step: The number of its step.
        roots: The folders that the action may write, each with the only paths that count (none: all) and the scan
            rules.
        notes: Notes for the list of steps.
        if_changed: A note that is added if files were changed, or an empty string.
    """

    step: int
    roots: tuple[tuple[str, tuple[str, ...], Rules], ...]
    notes: tuple[str, ...]
    if_changed: str = ""


@dataclass(frozen=True, slots=True)
class RecordedTransfer:
    """The result of a transaction.

    Attributes:
        result: The changes that were applied, and the others.
        changes: The changes with the hashes of the contents before and after, at least as many as a record lists.
        step: The number of the step for undo; None if no stored file changed.
    """

    result: "Transferred"
    changes: tuple[Change, ...]
    step: int | None = None


class SnapshotRecorder:
    """The recorder of the file changes of one session.

    `folder` is the store of the workspace in the state folder. `say` shows a notice to the user. `earlier` are the runs
    that the session continues.
    """

    def __init__(
        self, folder: Path, session: str, scope: SnapshotScope, say: Say, earlier: SessionLineage | None = None
    ) -> None:
        self._folder = folder
        self._session = session
        self._earlier = earlier or SessionLineage()
        self._lineage = replace(self._earlier, runs=self._earlier.runs | {session})
        self._scope = scope
        self._choice = scope.choice
        self._say = say
        self._stop = threading.Event()
        self.using = threading.RLock()
        self._store: Store | None = None
        self._told: set[str] = set()
        self._shown: set[str] = set()  # folders whose files without stored content were reported
        self._later: list[str] = []  # notices that were not shown yet
        self._full = False  # True after the notice that old steps are deleted
        self._given_up: set[str] = set()  # folders with too many files
        self._news: list[str] = []  # paths restored by /rewind that the model was not told about yet
        # Pairs of a path and `added`, `modified` or `deleted` for the last call of `after`; None if changes were not
        # recorded.
        self.changed: tuple[tuple[str, str], ...] | None = None
        # The SHA-256 of the contents before and after by the path, as in RecordedFile, for these changes.
        self.hashes: dict[str, tuple[str, str]] = {}
        # The changes that the last call of `after` held back.
        self.held: tuple[HeldChange, ...] = ()
        self._found: Scan | None = None  # of the last call of `standards`
        self._writers: Callable[[], Writers] = tuple
        self._note_step: Callable[[int], None] = lambda step: None
        self._beside: list[int] = []  # steps of processes that were not noted yet

    def watch(self, writers: "Callable[[], Writers]", note: Callable[[int], None]) -> None:
        """Attribute changes between actions to the processes that `writers` returns: those that stay beside actions
        and may write. Call `note` with the number of each step of theirs.
        """
        self._writers, self._note_step = writers, note

    @property
    def compares(self) -> bool:
        """Return True if the files are compared before and after each action that may write."""
        return self._choice.enabled and not self._given_up

    def transactions(self, permit: Permit, *, chosen: bool = False) -> Path | None:
        """Return the private state folder for a transaction of the action (`open_transaction`).

        Return None if the action must run on the workspace itself: the user wants no transactions and has not `chosen`
        one for this action, it is no command that may write the workspace alone, or a process that stays may write
        there as well.
        """
        if type(permit.action) not in (RunScript, RunArgv):
            return None  # a process that stays is a RunScript as well
        return self.place_of_transactions(permit.terms, chosen=chosen)

    def place_of_transactions(self, terms: Terms, *, chosen: bool = False) -> Path | None:
        """Return the private state folder for transactions of commands under `terms`; None as `transactions` does."""
        if not (chosen or self._scope.transactions.enabled):
            return None
        if terms.rights is not Rights.WORKSPACE_WRITE or terms.writable or self._writers():
            return None
        from sandbox.inside import renames  # most processes run no transaction

        if not renames.available():
            return None
        return self._folder.parent.parent

    def secret(self) -> Callable[[str], bool]:
        """Return a function that returns True for a path below the workspace that no command may read."""
        return secret_of(self._scope)

    def standards(
        self, permit: Permit, trusted_later: Callable[[str], str] | None, since: float = float("inf")
    ) -> "Standards":
        """Return what the changes of the action are judged by. The action began at `since` (time.monotonic)."""
        from runner.changes.transaction.judge import Standards  # most processes run no transaction

        scope, terms = self._scope, permit.terms
        self._found = found = recent_survey(terms, scope.cache, since)
        return Standards(
            terms,
            found,
            inventory_of(scope, terms, terms.workspace, found),
            lambda name, above: left_out(name, above, self._choice.more),
            scope.transactions.most_deleted,
            trusted_later,
        )

    async def settle(self) -> None:
        """Store what processes changed since the last action as a step of their own. Failures are reported."""
        done: set[Roots] = set()
        for _, permit in self._writers():
            if (roots := _roots(permit)) in done:
                continue
            done.add(roots)
            try:
                running = await self.before(permit, "", "")
            except UndoError as error:
                self._say(f"what processes changed cannot be undone: {_why(error)}")
                continue
            if running is not None:  # the scan is over: this step stays empty and is deleted
                self.after(replace(running, notes=()))

    async def before(self, permit: Permit, words: str, call: str, *, required: bool = False) -> OpenAction | None:
        """Take a snapshot of everything that the action may write.

        Return None if there is nothing to store, or if the snapshot fails, which is reported. Raise UndoError if the
        user requires a snapshot, or if `required`: then the action must not run.
        """
        roots = _roots(permit) if self._choice.enabled else ()
        if not roots:
            return None
        self._stop.clear()
        names = tuple(name for name, _ in self._writers())
        work = asyncio.ensure_future(asyncio.to_thread(self._before, permit.terms, roots, words, call, names, required))
        try:
            running = await asyncio.shield(work)
            self._speak()
            beside, self._beside = self._beside, []
            for step in beside:
                self._note_step(step)
            return running
        except asyncio.CancelledError:
            self._stop.set()
            (answer,) = await asyncio.gather(work, return_exceptions=True)
            if isinstance(answer, OpenAction):
                self.after(answer)
            raise

    @_alone
    def after(self, running: OpenAction | None, hold: Hold | None = None) -> int | None:
        """Store the changes of the action. Return the number of the step, or None if no stored file changed.

        Return None as well if the changes could not be recorded, which is reported. The changes of files for which
        `hold` returns True are taken back at once, and `held` has them afterwards.
        """
        self.changed, self.hashes, self.held = None, {}, ()
        if running is None or self._store is None:
            return None
        store = self._store
        self._stop.clear()
        try:
            with store.turns.locked(), store.transaction():
                store.turns.leave()
                notes = running.notes
                snapshotter = Snapshotter(store, self._choice.bounds, self._stop)
                for root, paths, rules in running.roots:
                    taken = snapshotter.take(root, paths, rules)
                    store.note(running.step, taken.changes)
                    notes += self._tell(taken.unkept)
                if hold is not None:
                    self.held = self._held_back(store, snapshotter, running, hold)
                if running.if_changed and store.changed(running.step):
                    notes += (running.if_changed,)
                store.end(running.step, notes)
                self._drop_old(store)
                self._speak()
                self._note_changed(store.changes(running.step))
                return running.step if any(step.id == running.step for step in store.steps()) else None
        except _FAILURES as error:
            store.turns.leave()
            return self._without_contents(store, running, error)

    @_alone
    def transfer(
        self,
        transaction: "Transaction",
        judged: "Judged",
        permit: Permit,
        words: str,
        call: str,
        *,
        required: bool,
        keep: bool = True,
    ) -> "RecordedTransfer":
        """Apply the changes of a transaction and, with `keep`, store them as one step, without a scan of the workspace.

        The contents before and after are stored for the changed paths only. Raise ApplyError: then nothing was applied,
        because of a failure, or because the changes cannot be stored and the user, or `required`, demands that.
        """
        self.changed, self.hashes, self.held = None, {}, ()
        self._stop.clear()
        if not self._choice.enabled or not keep:
            try:
                return self._unrecorded(transaction, judged)
            except (OSError, UndoError) as error:
                raise transaction.give_up(_why(error)) from None
        try:
            store = self._opened()
            with store.turns.locked():
                return self._transferred(store, transaction, judged, permit, words[:_LONGEST], call)
        except _FAILURES as error:
            if transaction.result is not None:  # the changes are in the workspace, and the next scan notes them
                self._say(f"the changes of this action could not be recorded: {_why(error)}")
                return RecordedTransfer(transaction.result, ())
            if required or self._choice.required:
                raise transaction.give_up(f"they could not be undone: {_why(error)}") from None
            self._later.append(f"the changes of this action cannot be undone: {_why(error)}")
        try:
            return self._unrecorded(transaction, judged)
        except (OSError, UndoError) as error:
            raise transaction.give_up(_why(error)) from None
        finally:
            self._speak()

    def _unrecorded(self, transaction: "Transaction", judged: "Judged") -> RecordedTransfer:
        """Apply the changes without storing them. Raise OSError, UndoError or ApplyError."""
        from runner.changes.transaction.hashes import ChangeHashes  # most processes run no transaction

        with _locked_turns(self._folder, self._scope.workspace):
            self._later += complete_interrupted(self._folder)
            steps = transaction.prepare(judged)
            hashes = ChangeHashes(transaction.layer, judged.applied)
            result = transaction.apply(judged, steps)
        self._speak()
        return RecordedTransfer(result, hashes.of(result))

    def _transferred(
        self, store: Store, transaction: "Transaction", judged: "Judged", permit: Permit, words: str, call: str
    ) -> "RecordedTransfer":
        root, terms = self._scope.workspace, permit.terms
        store.use_rules(self._scope.digest(terms))
        every = self._scope.rules(terms, self._found)
        rules = below_root(every, root)
        snapshotter = Snapshotter(store, self._choice.bounds, self._stop)
        self._later += complete_interrupted(self._folder)
        if store.turns.alone():
            with store.transaction():
                snapshotter.recover(lambda each: below_root(every, each))
            self._later += store.notices
            store.notices = ()
        prepared = transaction.prepare(judged)
        with store.transaction():
            snapshotter.take_paths(root, prepared.paths, rules)
            step = store.begin("action", words, self._session, call, ((root, prepared.paths),))
        try:
            result = transaction.apply(judged, prepared)
        except BaseException:
            with store.transaction():
                store.end(step, ())
            raise
        with store.transaction():
            taken = snapshotter.take_paths(root, prepared.paths, rules)
            conflicts = {each.path for each in result.left if each.held is None}
            store.note(step, (each for each in taken.changes if each.path not in conflicts))
            notes = self._tell(taken.unkept)
            store.end(step, notes)
            self._drop_old(store)
            changes = tuple(store.changes(step))
        self._speak()
        self._note_changed(changes)
        return RecordedTransfer(result, changes, step if changes else None)

    def _opened(self) -> Store:
        """Return the open store of the workspace. Raise OSError, sqlite3.Error or UndoError."""
        if self._store is not None and self._store.turns.was_removed():
            self.close()
        if self._store is None:
            self._store = Store(self._folder)
            sign(self._folder, self._scope.workspace)
        return self._store

    def _drop_old(self, store: Store) -> None:
        """Delete the oldest steps beyond the limit of the user."""
        most = self._choice.bounds.steps
        if store.drop_oldest(most):
            store.sweep()
            if not self._full:
                self._later.append(f"only the last {most} actions can be undone (`undo.steps`)")
            self._full = True

    def _held_back(
        self, store: Store, snapshotter: Snapshotter, running: OpenAction, hold: Hold
    ) -> tuple[HeldChange, ...]:
        """Take back the changes for which `hold` returns True, and return them. A deletion leaves nothing to trust."""
        every = store.changes(running.step)
        changes = [each for each in every if each.after is not None and hold(f"{each.root}/{each.path}")]
        if not changes:
            return ()
        from runner.changes.undo.apply import restore  # few changes are held back
        from runner.changes.undo.plan import Item

        store.packs.flush()
        found = [HeldChange(f"{each.root}/{each.path}", _text_of(store, each)) for each in changes]
        items = tuple(Item(each.root, each.path, each.after, each.before) for each in changes)
        restored = {(item.root, item.path): item for item in restore(store, items, running.step)}
        for root, _, rules in running.roots:
            if paths := tuple(each.path for each in changes if each.root == root):
                store.note(running.step, snapshotter.take_paths(root, paths, rules).changes)
        return tuple(
            replace(each, problem=restored[change.root, change.path].problem)
            for each, change in zip(found, changes, strict=True)
            if change.after is not None and change.after.kind != file_state.FileKind.FOLDER
        )

    def _without_contents(self, store: Store, running: OpenAction, error: Exception) -> int | None:
        """Store the changes without the new contents, for example on a full disk. The contents before the action are
        stored already.
        """
        bounds = replace(self._choice.bounds, bytes=0)
        try:
            with store.turns.locked(), store.transaction():
                snapshotter = Snapshotter(store, bounds, self._stop, may_drop=False)
                for root, paths, rules in running.roots:
                    store.note(running.step, snapshotter.take(root, paths, rules).changes)
                self._note_changed(store.changes(running.step))
                store.end(running.step, (*running.notes, f"its changes were not stored: {_why(error)}"))
            self._say(f"the files of this action were not stored, so its undo may need `--force`: {_why(error)}")
            return running.step
        except _FAILURES as again:
            # The step stays open: the next scan notes its changes.
            self._say(f"the changes of this action could not be recorded; the next action tries again: {_why(again)}")
            return None

    def _note_changed(self, changes: Sequence[Change]) -> None:
        self.changed = tuple((f"{each.root}/{each.path}", each.how) for each in changes)
        self.hashes = {
            f"{each.root}/{each.path}": (content_hash(each.before), content_hash(each.after)) for each in changes
        }

    def _speak(self) -> None:
        """Show the pending notices. Called in the thread that the listeners use."""
        if self._store is not None and self._store.lost:
            count, self._store.lost = self._store.lost, 0
            which = "the oldest action" if count == 1 else f"the oldest {count} actions"
            self._later.append(f"to free space, {which} stored here cannot be undone any more (`undo.size`)")
        notices, self._later = self._later, []
        for text in notices:
            self._say(text)

    @_alone
    def revert(self, count: int, record: "RevertRecord | None" = None) -> "RevertResult":
        """Undo the last `count` actions of this session. Raise UndoError, OSError or sqlite3.Error."""
        from runner.changes.undo.revert import RevertRequest, revert  # most sessions undo nothing

        self._store = self._store or Store(self._folder)
        request = RevertRequest(count, session=self._session, lineage=self._lineage, record=record)
        return revert(self._store, self._scope, request)

    @_alone
    def rewind(self, count: int, record: "RevertRecord | None" = None) -> tuple[bool, tuple[str, ...]]:
        """Undo the last `count` actions for /rewind. Return True on success, and a report in lines. Never raise."""
        try:
            result = self.revert(count, record)
        except (OSError, sqlite3.Error, UndoError) as error:
            return False, (f"nothing was undone: {_why(error)}",)
        from runner.changes.undo.text import revert_text

        if done := [item.path for item in result.items if item.obstacle is None]:
            self._news.append(one_line(", ".join(done), _LONGEST))
        return True, tuple(revert_text(result, self._scope.workspace, dry=False, redo=False))

    @_alone
    def latest(self) -> int:
        """Return the newest step of this session and of the runs that it continues, or 0 if there is none.

        Return a number larger than every step if the list cannot be read. Do not wait for another process.
        """
        try:
            steps = self._store.steps() if self._store is not None else []  # else nothing was written by this process
        except sqlite3.Error:
            return _UNKNOWN
        return max(
            (step.id for step in steps if self._lineage.holds(step.session, step.id)), default=self._earlier.last
        )

    @_alone
    def actions(self) -> tuple[int, ...]:
        """Return the steps of this session that changed files and were not undone, newest first. Raise UndoError."""
        with convert_failures(self._folder):
            if self._store is None and self._earlier != SessionLineage() and (self._folder / "steps.db").exists():
                self._store = Store(self._folder)
            return tuple(step.id for step in undoable(self._store, self._lineage)) if self._store is not None else ()

    @_alone
    def diff(self) -> list[str]:
        """Return the changes of this session's actions as a diff from before the first action to the current state.
        Raise UndoError.
        """
        count = len(self.actions())
        if not count or self._store is None:
            return []
        from runner.changes.undo.revert import RevertRequest, revert
        from runner.changes.undo.text import diff_text

        request = RevertRequest(count, dry=True, session=self._session, lineage=self._lineage)
        with convert_failures(self._folder):
            result = revert(self._store, self._scope, request)
            return list(diff_text(self._store, result.items, self._scope.workspace, forward=True))

    def news(self) -> str:
        """Return, once, the note for the model about undone changes, or an empty string."""
        paths, self._news = ", ".join(self._news), []
        return f"[I undid your last changes with /rewind. Restored to their old state: {paths}]\n\n" if paths else ""

    @_alone
    def close(self) -> None:
        if self._store is not None:
            self._store.close()
            self._store = None

    # ---- methods that run in another thread, because the first scan of a large folder takes seconds

    @_alone
    def _before(
        self, terms: Terms, roots: Roots, words: str, call: str, names: tuple[str, ...], required: bool
    ) -> OpenAction | None:
        try:
            store = self._opened()
            if self._given_up.intersection(root for root, _ in roots) and not self._choice.required:
                return None
            return self._begin(store, terms, roots, words[:_LONGEST], call, names)
        except ScanStopped:
            return None
        except (OSError, sqlite3.Error, UndoError, TooMany) as error:
            if isinstance(error, TooMany):
                self._given_up |= {root for root, _ in roots}
            if required and not self._choice.required:
                why = f"{_why(error)}, and this conversation has read untrusted text"
                fix = "propose it again: the user is then asked about what it may change"
                raise UndoError(Problem("nothing was run, because its changes cannot be compared", why, fix)) from None
            if self._choice.required:
                why = f"{_why(error)}, and your configuration has `undo.required`"
                fix = "free space, or remove `required` from [undo]"
                raise UndoError(Problem("nothing was run, because the action could not be undone", why, fix)) from None
            more = ""
            if isinstance(error, TooMany):
                more = ", nor can the changes of later actions"
            self._later.append(f"the changes of this action cannot be undone: {_why(error)}{more}")
            return None

    def _begin(
        self, store: Store, terms: Terms, roots: Roots, words: str, call: str, names: tuple[str, ...]
    ) -> OpenAction:
        from runner.changes.undo.text import unkept_of  # a transaction needs no scan

        with store.turns.locked():
            store.use_rules(self._scope.digest(terms))
            alone = store.turns.alone()
            with store.transaction():
                snapshotter = Snapshotter(store, self._choice.bounds, self._stop)
                every = self._scope.rules(terms)
                started, known = time.monotonic(), bool(store.index(roots[0][0]))
                dead = snapshotter.recover(lambda root: below_root(every, root)) if alone else []
                others = [] if alone else store.open_steps()
                notes: tuple[str, ...] = () if alone else (BESIDE,)
                running, between = [], list[Change]()
                for root, paths in roots:
                    rules = below_root(every, root)
                    complete = bool(store.index(root))
                    taken = snapshotter.take(root, paths, rules)
                    if complete and others:  # the running action made these changes; no other cause is known
                        store.note(others[0].id, taken.changes)
                    elif complete and names:
                        between += taken.changes
                    first = complete and root not in self._shown
                    self._tell(unkept_of(root, store.index(root)) if first else taken.unkept)
                    self._shown.add(root)
                    running.append((root, paths, rules))
                if between:
                    own = store.begin("action", _processes(names), self._session, "", roots)
                    store.note(own, between)
                    store.end(own, (YOURS,))
                    self._beside.append(own)
                step = store.begin("action", words, self._session, call, roots)
            store.turns.join()
        self._later += store.notices
        store.notices = ()
        if dead:
            self._later.append("the last run was killed during an action: `agent undo --list` shows its changes")
        seconds = time.monotonic() - started
        if not known and seconds > _SLOW:
            self._later.append(f"storing the files here for `agent undo` took {seconds:.1f} s, this once")
        note = f"{_processes(names)} ran at the same time: what they changed may be among these" if names else ""
        return OpenAction(step, tuple(running), notes, note)

    def _tell(self, unkept: tuple[Change, ...]) -> tuple[str, ...]:
        """Report each file that could not be stored once, and return the notes for the list of steps."""
        reported = [each for each in unkept if each.after is not None and each.after.unkept in _SAID]
        new = [each for each in reported if f"{each.root}/{each.path}" not in self._told]
        self._told |= {f"{each.root}/{each.path}" for each in new}
        if not new:
            return ()
        from runner.changes.undo.text import not_kept  # nearly all files can be stored

        lines = not_kept(new)
        self._later += [f"`agent undo` cannot restore {line}" for line in lines]
        return tuple(f"not kept: {line}" for line in lines)


_LONGEST_HELD = 1 << 20  # bytes of a changed file that a question can show


def _text_of(store: Store, change: Change) -> str | None:
    """Return the content after a change, or None if it is not a text that is stored."""
    entry = change.after
    if entry is None or entry.kind != file_state.FileKind.FILE or entry.unkept:
        return None
    place = store.place(entry.content)
    if place is None or place.size > _LONGEST_HELD:
        return None
    try:
        return b"".join(store.packs.read(place, entry.content)).decode()
    except (ValueError, Lost):
        return None


@contextlib.contextmanager
def _locked_turns(folder: Path, workspace: str) -> Iterator[None]:
    """Hold the lock of a workspace without the list of steps. Raise OSError or UndoError."""
    folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder.mkdir(mode=0o700, exist_ok=True)
    sign(folder, workspace)
    turns = Turns(folder)
    try:
        with turns.locked():
            yield
    finally:
        turns.close()


YOURS = "what you changed yourself since the action before may be among these"
BESIDE = "another `agent` was at work at the same time: its changes may be among these"


def _processes(names: tuple[str, ...]) -> str:
    return f"{'process' if len(names) == 1 else 'processes'} {', '.join(names)}"


def _roots(permit: Permit) -> Roots:
    """Return the folders that the action may write, each with the paths that it may change there (none: all)."""
    terms, action = permit.terms, permit.action
    if isinstance(action, WriteFile | EditFile):
        real = os.path.realpath(action.path)
        root = terms.workspace if inside(real, terms.workspace) else os.path.dirname(real)
        while not os.path.isdir(root):  # the action will create missing folders
            root = os.path.dirname(root)
        return ((root, (os.path.relpath(real, root),)),)
    folders = [terms.workspace] if terms.rights is Rights.WORKSPACE_WRITE else []
    single: dict[str, list[str]] = {}
    for path in terms.writable:
        if any(inside(path, folder) for folder in folders):
            continue
        if os.path.isdir(path) and not os.path.islink(path):
            folders.append(path)
        else:
            single.setdefault(os.path.dirname(path), []).append(os.path.basename(path))
    return (*((folder, ()) for folder in folders), *((folder, tuple(names)) for folder, names in single.items()))


def _why(error: Exception) -> str:
    if isinstance(error, UndoError):
        return error.problem.why
    if isinstance(error, TooMany):
        return "this folder has more files than the limit `undo.files`"
    if isinstance(error, OSError):
        return os_reason(error)
    return str(error) or "the list of steps could not be written"


def snapshot_recorder(
    facts: Facts,
    settings: Settings,
    environ: Mapping[str, str],
    session: str,
    say: Say,
    earlier: SessionLineage | None = None,
) -> SnapshotRecorder:
    """Return the recorder for one session in the workspace of `facts`. `say` shows a notice to the user.

    No folder is created before the first action that may write.
    """
    state = state_dir(environ)
    transactions = transaction_settings(settings)
    scope = scope_of(facts, settings.profile, choice_of(settings), cache_dir(environ), state, transactions)
    return SnapshotRecorder(place(state, facts.workspace), session, scope, say, earlier)
