"""Where snapshots are taken, and what is never read or written there: by the same lists as the sandbox."""

import hashlib
from pathlib import Path

from policy.facts import Facts
from policy.profile import Profile
from policy.record import dataclass
from policy.secrecy import Secrets, inside
from policy.terms import walled
from policy.verdict import Rights, Terms
from runner.undo.taking import Bounds
from runner.undo.walk import Rules
from sandbox.launch import survey
from sandbox.scan import secret_names


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
class Ground:
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
        locked, hidden, shown = walled(self.facts, self.profile)
        return Terms(
            rights=Rights.WORK,
            workspace=self.workspace,
            home=self.facts.home,
            write=tuple(root for root in roots if not inside(root, self.workspace)),
            hidden=hidden,
            shown=shown,
            locked=locked,
        )

    def rules(self, terms: Terms) -> Rules:
        """What is never read under `terms`; `masked` as absolute paths, for `below_root`."""
        names = tuple(name for name in terms.hidden if "/" not in name)
        found = survey(terms, "", self.cache)
        # What is closed to us is masked inside, too; it is no secret to whoever opens it again.
        masked = frozenset(found.masked) - {*found.closed}
        return Rules(secret_names(names, terms.shown), masked, self.choice.more, self.choice.most)

    def digest(self, terms: Terms) -> str:
        """While it is the same, what was kept may be kept."""
        seed = repr((terms.hidden, terms.shown, sorted(self.choice.more)))
        return hashlib.sha256(seed.encode("utf-8", "surrogatepass")).hexdigest()


class Locked:
    """Whether other programs run a path by themselves: by the patterns, and by what the sandbox locks right now."""

    def __init__(self, ground: Ground, terms: Terms) -> None:
        found = survey(terms, "", ground.cache)
        self._workspace = ground.workspace
        self._places = (*found.locked, *found.named)
        self._secrets = Secrets(ground.profile, ground.facts.home, ground.facts.private)

    def __call__(self, root: str, path: str) -> bool:
        place = f"{root.rstrip('/')}/{path}"
        top = self._workspace if inside(place, self._workspace) else root
        return self._secrets.locked_in(place, top) or any(inside(place, each) for each in self._places)


def below_root(rules: Rules, root: str) -> Rules:
    """The same with the masked paths as they are below `root`."""
    top = root.rstrip("/") + "/"
    masked = frozenset(path[len(top) :] for path in rules.masked if path.startswith(top))
    return Rules(rules.secret, masked, rules.more, rules.most)
