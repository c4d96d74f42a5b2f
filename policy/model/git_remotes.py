"""Where a Git repository's own settings say that its remotes are. Read from the repository, so never to be believed."""

from collections.abc import Iterable, Mapping
from dataclasses import field

from policy.model.frozen import dataclass

USUAL = "origin"  # git-fetch(1): the remote when nothing names one


@dataclass(frozen=True, slots=True)
class Remotes:
    """`fetch`, `push`: addresses by the remote's name, as written. `groups`: names of several remotes together.

    `usual`, `usual_push`: the remote of the branch that is checked out. `modules`: addresses of inner repositories.
    `instead`, `instead_push`: (beginning, what stands for it), as `url.*.insteadOf` has them.
    """

    fetch: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    push: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    groups: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    usual: str = USUAL
    usual_push: str = USUAL
    modules: tuple[str, ...] = ()
    instead: tuple[tuple[str, str], ...] = ()
    instead_push: tuple[tuple[str, str], ...] = ()

    def addresses(self, names: Iterable[str], *, push: bool = False) -> tuple[str, ...]:
        """The addresses behind `names`, as Git would use them; nothing for one that is no remote here."""
        found: dict[str, None] = {}
        for name in names:
            for remote in self.groups.get(name, (name,)):
                own = self.push.get(remote, ()) if push else ()
                told = own or self.fetch.get(remote, ())
                found |= dict.fromkeys(self.rewritten(address, push=push and not own) for address in told)
        return tuple(found)

    def every(self, *, push: bool = False) -> tuple[str, ...]:
        return self.addresses(dict.fromkeys((*self.fetch, *self.push)), push=push)

    def rewritten(self, address: str, *, push: bool = False) -> str:
        """`address` after `insteadOf`: the longest beginning counts, and for pushing first those for pushing."""
        for pairs in (self.instead_push, self.instead) if push else (self.instead,):
            fits = [pair for pair in pairs if address.startswith(pair[0])]
            if fits:
                start, stands = max(fits, key=lambda pair: len(pair[0]))
                return stands + address[len(start) :]
        return address
