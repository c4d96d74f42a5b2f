"""The scope of snapshots: the settings, the roots, and the paths that are never read or written, by the lists of the
sandbox.
"""

import hashlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from policy.model.facts import Facts
from policy.model.frozen import dataclass
from policy.model.profile import Profile
from policy.model.secret_paths import Secrets, folded, inside
from policy.model.verdict import Rights, Terms
from policy.terms import with_path_denials
from runner.changes.transaction.settings import TransactionSettings
from runner.changes.undo.change_scan import Rules
from runner.changes.undo.snapshot import Bounds
from runner.config import Settings
from runner.state.workspace import workspace_key
from sandbox.linux.launch import survey
from sandbox.workspace.inventory import AutorunInventory
from sandbox.workspace.protected_paths import Scan
from sandbox.workspace.secret_files import plain_names, secret_names


@dataclass(frozen=True, slots=True)
class UndoSettings:
    """The user's settings for undo.

    Attributes:
        enabled: True if snapshots are taken.
        required: True if no action may run without a snapshot.
        bounds: The limits of the store.
        most: The largest number of files and folders to scan.
        more: Further names of folders that are not stored.
    """

    enabled: bool = True
    required: bool = False
    bounds: Bounds = Bounds()
    most: int = 300_000
    more: frozenset[str] = frozenset()


def choice_of(settings: Settings) -> UndoSettings:
    """Return the `[undo]` settings of all layers."""

    def number(name: str, usual: int) -> int:
        found = settings.value("undo", name)
        return found if isinstance(found, int) else usual

    usual = Bounds()
    more = settings.value("undo", "leave_out")
    return UndoSettings(
        enabled=settings.value("undo", "enabled") is not False,
        required=settings.value("undo", "required") is True,
        bounds=Bounds(number("steps", usual.steps), number("size", usual.bytes), number("file", usual.file)),
        most=number("files", UndoSettings().most),
        more=frozenset(str(name) for name in more) if isinstance(more, tuple) else frozenset(),
    )


@dataclass(frozen=True, slots=True)
class SnapshotScope:
    """The facts, profile and settings that snapshots depend on.

    `cache` and `aside` are private folders: for cached scans, and for files that have to be set aside.
    """

    facts: Facts
    profile: Profile
    choice: UndoSettings
    cache: Path
    aside: Path
    transactions: TransactionSettings = TransactionSettings()

    @property
    def workspace(self) -> str:
        return self.facts.workspace

    def terms(self, roots: tuple[str, ...]) -> Terms:
        """Return the rights of an action on the workspace and all of `roots`."""
        locked, hidden, shown = with_path_denials(self.facts, self.profile)
        return Terms(
            rights=Rights.WORKSPACE_WRITE,
            workspace=self.workspace,
            home=self.facts.home,
            write=tuple(root for root in roots if not inside(root, self.workspace)),
            hidden=hidden,
            shown=shown,
            locked=locked,
        )

    def rules(self, terms: Terms, found: Scan | None = None) -> Rules:
        """Return the scan rules under `terms`, with `masked` as absolute paths; `below_root` converts them. `found` is
        the survey of the workspace, if it was made just now.
        """
        names = plain_names(terms.hidden)
        found = found or survey(terms, "", self.cache)
        # The sandbox also masks paths that this user cannot open. Those are not secrets.
        masked = frozenset(found.masked) - {*found.closed}
        return Rules(secret_names(names, terms.shown), masked, self.choice.more, self.choice.most)

    def digest(self, terms: Terms) -> str:
        """Return a digest of the rules about secrets and left-out folders. If it changes, files are scanned again."""
        seed = repr((terms.hidden, terms.shown, sorted(self.choice.more)))
        return hashlib.sha256(seed.encode("utf-8", "surrogatepass")).hexdigest()


def place(state: Path, workspace: str) -> Path:
    """Return the folder for the snapshots of a workspace."""
    return state / "snapshots" / workspace_key(workspace)


def scope_of(
    facts: Facts,
    profile: Profile,
    choice: UndoSettings,
    cache: Path,
    state: Path,
    transactions: TransactionSettings | None = None,
) -> SnapshotScope:
    """Return the scope of snapshots. `cache` and `state` are the private folders of ringfence."""
    return SnapshotScope(facts, profile, choice, cache, state / "aside", transactions or TransactionSettings())


def inventory_of(scope: SnapshotScope, terms: Terms, root: str, found: Scan | None = None) -> AutorunInventory:
    """Return the inventory of auto-run files below `root`: the workspace, or another folder that `terms` allow to
    write. `found` is the survey of the workspace, if it was made just now.
    """
    found = found or survey(terms, "", scope.cache)
    secrets = Secrets(scope.profile, scope.facts.home, scope.facts.private)
    workspace = scope.workspace if inside(root, scope.workspace) else root
    return AutorunInventory(secrets, root, workspace, (*found.locked, *found.named, *found.led), found.inner)


def secret_of(scope: SnapshotScope) -> Callable[[str], bool]:
    """Return a function that returns True for a path below the workspace that no command may read.

    The reason may be one of its names, its location, a rule of the user, or a link or hard link to a secret.
    """
    rules = scope.rules(scope.terms(()))
    top = scope.workspace.rstrip("/")
    masked = frozenset(folded(path) for path in (*rules.masked, *scope.facts.private))
    secrets = Secrets(scope.profile, scope.facts.home, scope.facts.private)

    def secret(path: str) -> bool:
        whole, names = f"{top}/{path}", path.split("/")
        above = ["/".join(names[:count]) for count in range(1, len(names) + 1)]
        return secrets.holds_folder(whole) or any(
            secrets.named(part) or rules.secret(part) or folded(f"{top}/{part}") in masked for part in above
        )

    return secret


def below_root(rules: Rules, root: str) -> Rules:
    """Return the rules with the masked paths relative to `root`."""
    top = root.rstrip("/") + "/"
    return replace(rules, masked=frozenset(path[len(top) :] for path in rules.masked if path.startswith(top)))
