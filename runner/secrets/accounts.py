"""The named accounts of each provider. Only names are stored here, because not every keyring can list its items.

The names are in `accounts.json` in the state folder, the keys only in the keyring.
"""

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import field, replace

from policy.model.frozen import dataclass
from runner.secrets.keyring_store import DEFAULT
from runner.state import paths
from runner.state.json_file import Held, StateFile

_FILE = "accounts.json"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@+-]{0,63}")
_PROVIDER = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")


def is_account(name: str) -> bool:
    """Return True if `name` is a valid account name: a letter or digit, then up to 63 letters, digits or `._@+-`."""
    return _NAME.fullmatch(name) is not None


def is_provider(name: str) -> bool:
    """Return True if `name` is a valid name of a provider, or of a credential in the configuration."""
    return _PROVIDER.fullmatch(name) is not None


@dataclass(frozen=True, slots=True)
class Accounts:
    """The accounts of one provider, sorted by name. `chosen` is one of them, or None."""

    names: tuple[str, ...] = ()
    chosen: str | None = None

    def added(self, name: str) -> "Accounts":
        """Return a copy with `name` added. The first account becomes the chosen one."""
        names = tuple(sorted({*self.names, name}))
        return replace(self, names=names, chosen=self.chosen or name)

    def without(self, name: str) -> "Accounts":
        """Return a copy without `name`. If it was the chosen one, a single other account becomes chosen; among several,
        none.
        """
        left = tuple(each for each in self.names if each != name)
        chosen = self.chosen if self.chosen != name else (left[0] if len(left) == 1 else None)
        return Accounts(left, chosen)


@dataclass(frozen=True, slots=True)
class AccountIndex:
    """The accounts of all providers."""

    by_provider: Mapping[str, Accounts] = field(default_factory=dict)

    def of(self, provider: str) -> Accounts:
        return self.by_provider.get(provider, Accounts())

    def put(self, provider: str, accounts: Accounts) -> "AccountIndex":
        others = {name: each for name, each in self.by_provider.items() if name != provider}
        return AccountIndex({**others, provider: accounts} if accounts.names else others)


class AccountFile:
    """The file with the list of accounts. Every method raises StateError, or PlaceError for a folder that cannot be
    used.
    """

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ

    def read(self) -> Held[AccountIndex]:
        """Return the list. No file or folder is created."""
        if not os.path.lexists(paths.private(self._environ)[0]):
            return Held(AccountIndex())
        return self._file().read()

    def add(self, provider: str, name: str) -> tuple[str, ...]:
        """Add an account and return notices for the user."""
        return self._change(provider, lambda accounts: accounts.added(name))

    def remove(self, provider: str, name: str) -> tuple[str, ...]:
        return self._change(provider, lambda accounts: accounts.without(name))

    def choose(self, provider: str, name: str) -> tuple[str, ...]:
        return self._change(provider, lambda accounts: replace(accounts.added(name), chosen=name))

    def _change(self, provider: str, edit: Callable[[Accounts], Accounts]) -> tuple[str, ...]:
        def put(accounts: AccountIndex) -> tuple[AccountIndex, None]:
            before = accounts.of(provider)
            after = edit(before)
            return (accounts if after == before else accounts.put(provider, after)), None

        return self._file().change(put)[1]

    def _file(self) -> StateFile[AccountIndex]:
        return StateFile(paths.state_dir(self._environ) / _FILE, "the list of accounts", 1, AccountIndex, _parse, _dump)


def _parse(content: dict[str, object], version: int) -> AccountIndex:
    table = content.pop("accounts", None)
    if content or not isinstance(table, dict):
        raise ValueError("it has no table of accounts")
    accounts = {}
    for provider, entry in table.items():
        if not is_provider(provider) or not isinstance(entry, dict) or set(entry) != {"names", "chosen"}:
            raise ValueError("an entry of it is not a list of accounts")
        names, chosen = entry["names"], entry["chosen"]
        if not isinstance(names, list) or not names or not all(isinstance(n, str) and is_account(n) for n in names):
            raise ValueError("a name in it is not valid")
        if chosen is not None and chosen not in names:
            raise ValueError("the chosen account is not in the list")
        accounts[provider] = Accounts(tuple(sorted(set(names))), chosen)
    return AccountIndex(accounts)


def _dump(accounts: AccountIndex) -> dict[str, object]:
    table = {name: {"names": list(each.names), "chosen": each.chosen} for name, each in accounts.by_provider.items()}
    return {"accounts": table}


def account_of(accounts: Accounts, configured: str | None) -> str:
    """Return the account to use if the run names none: the configured one, else the chosen one, else the default."""
    return configured or accounts.chosen or DEFAULT
