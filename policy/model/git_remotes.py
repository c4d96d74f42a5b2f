"""The remotes in the settings of a Git repository. Untrusted, because the repository contains these settings."""

from collections.abc import Iterable, Mapping
from dataclasses import field

from policy.model.frozen import dataclass

USUAL = "origin"  # git-fetch(1): the remote when nothing names one


@dataclass(frozen=True, slots=True)
class Remotes:
    """The remotes of one repository.

    Attributes:
        fetch: fetch addresses by the name of the remote, as written.
        push: push addresses by the name of the remote, as written.
        groups: names that stand for several remotes.
        usual: the remote of the current branch for fetching.
        usual_push: the remote of the current branch for pushing.
        modules: addresses of submodules.
        instead: pairs (prefix, replacement) of `url.*.insteadOf`.
        instead_push: pairs (prefix, replacement) of `url.*.pushInsteadOf`.
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
        """Return the addresses of `names` as Git would use them; no address for a name that is not a remote of the
        repository.
        """
        found: dict[str, None] = {}
        for name in names:
            for remote in self.groups.get(name, (name,)):
                own = self.push.get(remote, ()) if push else ()
                addresses = own or self.fetch.get(remote, ())
                found |= dict.fromkeys(self.rewritten(address, push=push and not own) for address in addresses)
        return tuple(found)

    def every(self, *, push: bool = False) -> tuple[str, ...]:
        return self.addresses(dict.fromkeys((*self.fetch, *self.push)), push=push)

    def rewritten(self, address: str, *, push: bool = False) -> str:
        """Return `address` after `insteadOf`. The longest prefix applies; for a push, the prefixes for pushing apply
        first.
        """
        for pairs in (self.instead_push, self.instead) if push else (self.instead,):
            fits = [pair for pair in pairs if address.startswith(pair[0])]
            if fits:
                start, stands = max(fits, key=lambda pair: len(pair[0]))
                return stands + address[len(start) :]
        return address
