"""Real overlays for tests: a script runs on a layer in a private mount namespace, and its changes are listed."""

import os
import subprocess
from collections.abc import Callable

from policy.model.action import RunScript
from policy.model.verdict import Permit
from runner.changes.transaction.judge import Judged, Standards, judge
from runner.changes.transaction.settings import MOST_DELETED
from runner.changes.transaction.transaction import Transaction
from runner.changes.undo.change_scan import left_out
from runner.changes.undo.recorder import RecordedTransfer
from runner.changes.undo.scope import inventory_of
from runner.state.paths import state_dir
from sandbox.linux.launch import survey
from sandbox.workspace.layer import ChangeLayer, prepare, read_layer
from tests.support.undo_workspace import WORK, UndoWorkspace

_MOUNT = (
    'mount -t overlay overlay -o "userxattr,lowerdir=$0,upperdir=$1,workdir=$2" "$0" && cd "$0" && shift 2 && exec "$@"'
)


def overlays_work() -> bool:
    """Return True if this user can mount an overlay in a namespace of its own."""
    return subprocess.run(["unshare", *_flags(), "true"], capture_output=True, check=False).returncode == 0


def on_layer(layer: ChangeLayer, *command: str, check: bool = True) -> None:
    """Run a command in the workspace of a layer, which receives its changes."""
    environ = {
        "PATH": os.environ["PATH"],
        "HOME": "/nonexistent",
        "LC_ALL": "C.UTF-8",
        "GIT_CONFIG_GLOBAL": "/dev/null",
    }
    script = ["unshare", *_flags(), "bash", "-c", _MOUNT, layer.workspace, layer.upper, layer.work, *command]
    prepare(layer)
    done = subprocess.run(script, env=environ, capture_output=True, timeout=120, check=False)
    assert not check or done.returncode == 0, done.stderr.decode("utf-8", "replace")


def _flags() -> tuple[str, ...]:
    return ("-m",) if os.geteuid() == 0 else ("-U", "-r", "-m")


class TransactionWorkspace(UndoWorkspace):
    """A workspace whose commands run on real layers, without a sandbox."""

    def begin(self, script: str, *, check: bool = True) -> "OpenTransaction":
        """Run a script on a layer, and return its transaction and the judgement."""
        permit = self.permit(RunScript(WORK, str(self.w)))
        transaction = Transaction(state_dir(self.environ), str(self.w))
        on_layer(transaction.layer, "bash", "-ec", script, check=check)
        return OpenTransaction(self, transaction, permit, script)

    def transact(self, script: str) -> RecordedTransfer:
        """Run a script as a transaction, and apply what may be applied."""
        return self.begin(script).apply()

    def traces(self) -> list[str]:
        """Return the folders of transactions that are left."""
        return sorted(str(each) for each in (self.base / "state").glob("transactions/*/*"))


class OpenTransaction:
    """A transaction whose command has ended."""

    def __init__(self, world: TransactionWorkspace, transaction: Transaction, permit: Permit, script: str) -> None:
        self.world, self.transaction, self._permit, self._script = world, transaction, permit, script
        self.changes = read_layer(transaction.layer)

    def judged(self, most_deleted: int = MOST_DELETED, later: Callable[[str], str] | None = None) -> Judged:
        scope, terms = self.world.ground, self._permit.terms
        protected, inventory = survey(terms, "", scope.cache), inventory_of(scope, terms, str(self.world.w))
        standards = Standards(terms, protected, inventory, left_out, most_deleted, later)
        return judge(self.transaction.layer, self.changes, standards)

    def apply(self, judged: Judged | None = None) -> RecordedTransfer:
        """Apply the changes and store them for undo."""
        keeper = self.world.keeper
        return keeper.transfer(
            self.transaction, judged or self.judged(), self._permit, self._script, "1.1", required=False
        )
