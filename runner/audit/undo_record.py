"""The record of an undo: written before the first file is restored, and completed with the hashes afterwards."""

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager

from runner.audit.chain import AuditError
from runner.audit.log import AuditLog
from runner.audit.records import Reverting, SessionInfo, ran_changes
from runner.changes.file_state import Change
from sandbox.backend import Outcome


class UndoRecord:
    """The recorder of one undo or redo in `workspace`.

    `opened` returns the log, `session` is its current session, or the facts of a new one, and `by` is where the user
    asked for it. An undo must work when the disk is full, so it goes on if the log cannot be written, and `say` gets
    the reason.
    """

    def __init__(
        self,
        opened: Callable[[], AbstractContextManager[AuditLog]],
        session: str | SessionInfo,
        workspace: str,
        by: str,
        say: Callable[[str], None],
        *,
        redo: bool = False,
    ) -> None:
        self._opened, self._session, self._workspace = opened, session, workspace
        self._by, self._say, self._redo = by, say, redo
        self._number: int | None = None
        self._began = 0.0

    def begin(self, changes: Sequence[Change], steps: int) -> None:
        """Record what will be restored: the changes from now, of the last `steps` actions."""
        files = tuple((f"{each.root}/{each.path}", each.how) for each in changes)
        self._began = time.time()
        try:
            with self._opened() as log:
                session = self._session if isinstance(self._session, str) else log.session(self._session)
                self._number = log.applied(session, Reverting(steps, self._redo, self._by, self._workspace, files))
        except AuditError as error:
            self._say(f"this undo is not recorded: {error.problem.why}")

    def end(self, changes: Sequence[Change]) -> None:
        """Record what was restored."""
        if self._number is None:
            return
        outcome = Outcome(0, seconds=time.time() - self._began)
        try:
            with self._opened() as log:
                log.finished(self._number, outcome, ran_changes(self._began, changes))
        except AuditError as error:
            self._say(f"the end of this undo is not recorded: {error.problem.why}")
