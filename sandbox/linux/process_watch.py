"""The watch for files that a process must not see, and that appear in its folders while it runs.

The mounts of a helper hide the secret files that existed when it started, and keep files with hard links elsewhere
read-only. A command ends before the user edits much; a process that stays does not. So the folders are watched by
inotify(7), and scanned again when a name appeared. A process whose mounts no longer cover every such file is ended.
A process that reads the folder all the time may read a new file in the milliseconds before that.
"""

import asyncio
import os
import time
from collections.abc import Callable, Iterable

from policy.model.secret_paths import inside
from policy.model.verdict import Rights, Terms
from sandbox.backend import Process, SandboxUnavailable, Violation
from sandbox.workspace.folder_cache import FolderTrees
from sandbox.workspace.folder_watch import FolderWatch
from sandbox.workspace.protected_paths import Scan
from sandbox.workspace.secret_files import plain_names, secret_names

_TURN = 0.05  # seconds for new folders at one time: meanwhile the event loop handles nothing else
_SHARE = 20  # a scan that took N seconds is repeated after 20 N seconds at the earliest
_MOST_FAILURES = 5  # scans in succession that failed because files changed meanwhile


class LateFiles:
    """The watch over the folders that a process can read. `attach` it while the process runs, and `close` it.

    Attributes:
        found: A violation if the mounts of the process do not cover a file any more; None as long as they cover all.
    """

    def __init__(self, terms: Terms, before: Scan, trees: FolderTrees, survey: Callable[[], Scan]) -> None:
        """Prepare the watch. `before` is the scan from which the mounts were made, `survey` scans again."""
        self.found: Violation | None = None
        self._terms, self._survey = terms, survey
        self._covered = {*before.masked, *before.shared}
        self._marks = {*before.marks}
        self._secret = secret_names(plain_names(terms.hidden), terms.shown)
        self._folders = FolderWatch((terms.workspace, *terms.read, *terms.write), trees)
        self._changed = True  # a file may have appeared between the first scan and the watch
        self._next = 0.0  # time before which no scan is made unless the name of a secret appears
        self._named: set[str] = set()  # paths with the name of a secret that appeared since the last scan
        self._failures = 0
        self._alert: Callable[[], None] = lambda: None

    def attach(self, alert: Callable[[], None]) -> None:
        """Watch in the event loop until `close`, and call `alert` when `found` is set."""
        self._alert = alert
        if self._folders.begin():
            for _ in self._folders.events():
                pass  # of an earlier process
        self._folders.add_known()
        if self._folders.handle >= 0:
            asyncio.get_running_loop().add_reader(self._folders.handle, self._on_event)

    def close(self) -> None:
        if self._folders.handle >= 0:
            asyncio.get_running_loop().remove_reader(self._folders.handle)
        self._folders.close()

    def tick(self) -> None:
        """Watch more folders, and scan if a name appeared since the last scan."""
        self._folders.poll()
        self._grow()
        if self._named or (self._changed and time.monotonic() >= self._next):
            self._scan()

    def _on_event(self) -> None:
        for folder, name, _, _ in self._folders.events():
            self._note(f"{folder}/{name}")
        self._grow()
        if self._named:
            self._scan()

    def _grow(self) -> None:
        """Watch some more folders, and note the names in new ones."""
        until = time.monotonic() + _TURN
        while self._folders.pending and time.monotonic() < until:
            for folder, name, _ in self._folders.grow():
                self._note(f"{folder}/{name}")

    def _note(self, path: str) -> None:
        self._changed = True
        if path not in self._covered and self._secret(path):
            self._named.add(path)

    def _scan(self) -> None:
        if self.found is not None:
            return
        named, self._named = self._named, set()
        began = time.monotonic()
        try:
            now = self._survey()
        except SandboxUnavailable as error:
            self._set(f"{error.problem.what}: {error.problem.why}")
            return
        except OSError:  # files became links during the scan; the next tick scans again
            self._failures += 1
            self._named |= named
            if self._failures >= _MOST_FAILURES:
                self._set("files of the workspace change all the time, so it is not certain what the process can read")
            return
        self._failures, self._changed = 0, False
        ended = time.monotonic()
        self._next = ended + _SHARE * (ended - began)
        if now.truncated or (now.crowded and not self._marks):
            self._set("the workspace contains too many secret files to hide them one by one")
            return
        opened = {*self._terms.read, *self._terms.write}
        late = next((path for path in (*now.masked, *now.shared) if path not in self._covered | opened), None)
        if late is None:
            kept = {*now.masked, *now.shared} - opened
            late = next((mark[0] for mark in now.marks if mark[0] in kept and mark not in self._marks), None)
        if late is not None:
            secret = late in now.masked
            why = "a secret file that appeared" if secret else "a file with another name outside that appeared"
            self._set(
                f"`{late}` is {why} while the process ran, and the process could {'read' if secret else 'change'} it",
                late,
            )
            return
        # THREAT T127: the process may have moved the file to another name, by which nothing hides it.
        gone = next((path for path in sorted(named) if not os.path.lexists(path)), None)
        if gone is not None:
            self._set(f"`{gone}`, a secret file by its name, appeared while the process ran and was gone again", gone)

    def _set(self, what: str, path: str = "") -> None:
        fix = "start the process again: the file is covered then"
        self.found = Violation(what, path, fix, False, "watch")
        self._alert()


async def end_exposed(processes: Iterable[Process], written: tuple[str, ...]) -> None:
    """End the processes in whose folders the paths `written` lie, before an approved action writes there.

    Files are replaced by renaming, which removes the read-only mount over an auto-run file. A process that stays could
    then change the new file, which other programs run.
    """
    for process in [each for each in processes if each.outcome is None]:
        terms = process.permit.terms
        tops = (terms.workspace, *terms.write) if terms.rights is Rights.WORKSPACE_WRITE else ()
        if any(path != top and inside(path, top) for path in {*written} - {*terms.write} for top in tops):
            await process.end("exposed")
