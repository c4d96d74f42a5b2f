"""Where snapshots are taken, and what is never read or written there: by the same lists as the sandbox."""

import hashlib
from collections.abc import Callable
from pathlib import Path

from policy.model.facts import Facts
from policy.model.frozen import dataclass
from policy.model.profile import Profile
from policy.model.secret_paths import Secrets, folded, inside
from policy.model.verdict import Rights, Terms
from policy.terms import with_path_denials
from runner.changes.undo.change_scan import Rules
from runner.changes.undo.snapshot import Bounds
from sandbox.linux.launch import survey
from sandbox.workspace.inventory import Inventory
from sandbox.workspace.protected_paths import plain_names, secret_names


@dataclass(frozen=True, slots=True)
class Choice:
    """What a person configured. `more`: further names of folders that are not kept; `required`: without a snapshot
    nothing runs; `most`: files and folders that are looked at."""

    enabled: bool = True
    required: bool = False
    bounds: Bounds = Bounds()
    most: int = 300_000
    more: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class SnapshotScope:
    """`cache`, `aside`: our folders, of what is known of the disk and for what has to be set aside."""

    facts: Facts
    profile: Profile
    choice: Choice
    cache: Path
    aside: Path

    @property
    def workspace(self) -> str:
        return self.facts.workspace

    def terms(self, roots: tuple[str, ...]) -> Terms:
        """The rights that an action on the workspace and all of `roots` would have."""
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

    def rules(self, terms: Terms) -> Rules:
        """What is never read under `terms`; `masked` as absolute paths, for `below_root`."""
        names = plain_names(terms.hidden)
        found = survey(terms, "", self.cache)
        # What is closed to us is masked inside, too; it is no secret to whoever opens it again.
        masked = frozenset(found.masked) - {*found.closed}
        return Rules(secret_names(names, terms.shown), masked, self.choice.more, self.choice.most)

    def digest(self, terms: Terms) -> str:
        """While it is the same, what was kept may be kept."""
        seed = repr((terms.hidden, terms.shown, sorted(self.choice.more)))
        return hashlib.sha256(seed.encode("utf-8", "surrogatepass")).hexdigest()


def inventory_of(ground: SnapshotScope, terms: Terms, root: str) -> Inventory:
    """Return the judge of what other programs run by themselves below `root`: the workspace, or a folder that `terms`
    let be written."""
    found = survey(terms, "", ground.cache)
    secrets = Secrets(ground.profile, ground.facts.home, ground.facts.private)
    workspace = ground.workspace if inside(root, ground.workspace) else root
    return Inventory(secrets, root, workspace, (*found.locked, *found.named, *found.led), found.inner)


def secret_of(ground: SnapshotScope) -> Callable[[str], bool]:
    """Return the question whether no command may read what lies at a path below the workspace: by one of its names, by
    the place, by a rule of the user, or because a link or a second name leads there."""
    rules = ground.rules(ground.terms(()))
    top = ground.workspace.rstrip("/")
    masked = frozenset(folded(path) for path in (*rules.masked, *ground.facts.private))
    secrets = Secrets(ground.profile, ground.facts.home, ground.facts.private)

    def secret(path: str) -> bool:
        whole, names = f"{top}/{path}", path.split("/")
        above = ["/".join(names[:count]) for count in range(1, len(names) + 1)]
        return secrets.holds_folder(whole) or any(
            secrets.named(part) or rules.secret(part) or folded(f"{top}/{part}") in masked for part in above
        )

    return secret


def below_root(rules: Rules, root: str) -> Rules:
    """The same with the masked paths as they are below `root`."""
    top = root.rstrip("/") + "/"
    masked = frozenset(path[len(top) :] for path in rules.masked if path.startswith(top))
    return Rules(rules.secret, masked, rules.more, rules.most)
