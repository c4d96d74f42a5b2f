"""The watches over the workspace for one command: for auto-run files that it creates, while it runs and afterwards."""

from pathlib import Path
from typing import TYPE_CHECKING

from policy.model.action import RunArgv, RunScript
from policy.model.frozen import replace
from policy.model.verdict import Permit, Rights
from sandbox.backend import Enforcement, Violation
from sandbox.linux.launch import known_trees
from sandbox.workspace.protected_paths import Scan

if TYPE_CHECKING:
    from sandbox.workspace.autorun import Watch
    from sandbox.workspace.autorun_watch import Live


class CommandWatch:
    """The watches for auto-run files that one command may create; none for a command that only reads.

    Attributes:
        live: The watch while the command runs; None for file actions and for commands that only read.
    """

    def __init__(
        self, permit: Permit, protected: Scan, aside: Path | None, cache: Path | None, *, sockets: bool = True
    ) -> None:
        """Prepare the watches. `sockets` is False in a sandbox that never opens AF_UNIX sockets."""
        self.live: Live | None = None
        self._watch: Watch | None = None
        if permit.terms.rights is Rights.WORKSPACE_WRITE:
            from sandbox.workspace import autorun, autorun_watch  # a command that only reads creates no files

            trees = known_trees(cache)
            self._watch = autorun.Watch(permit.terms, protected, aside, trees)
            if isinstance(permit.action, RunScript | RunArgv):
                self.live = autorun_watch.Live(self._watch, protected, trees, sockets=sockets and permit.terms.unix)

    def settle(self) -> tuple[Violation, ...]:
        """Set aside the auto-run files that a command created, after its end, and return a violation for each."""
        return self._watch.settle() if self._watch is not None else ()

    def close(self) -> None:
        if self.live is not None:
            self.live.close()

    def completed(
        self, others: tuple[Violation, ...], enforcement: Enforcement
    ) -> tuple[tuple[Violation, ...], Enforcement]:
        """Settle, and return all violations of the command, `others` included, and the updated enforcement."""
        late, live = self.settle(), self.live
        if live is None or not (live.found or live.folders.lacks):
            return (*others, *late), enforcement
        at_once = {violation.what for violation in live.found}
        late = tuple(violation for violation in late if violation.what not in at_once)
        if live.folders.lacks:
            enforcement = replace(enforcement, missing=(*enforcement.missing, live.folders.lacks))
        return (*others, *live.found, *late), enforcement
