"""The providers that can be used without further setup: for a session that names no model, and for `agent doctor`.

A provider is usable if its key is at hand (environment variable, helper command, keyring), or if its server has an own
address on this machine. The keyring itself is not asked: the list of accounts says whether it has a key.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from policy.model.frozen import dataclass
from runner.providers.endpoint import SetupError, parse_endpoint
from runner.providers.remotes import PROVIDERS, Remote, reached
from runner.secrets.accounts import AccountFile, AccountIndex
from runner.secrets.resolve import VARIABLES
from runner.state.json_file import StateError
from runner.state.paths import PlaceError

if TYPE_CHECKING:
    from runner.config import Settings


@dataclass(frozen=True, slots=True)
class UsableProvider:
    """A provider that can be used without further setup.

    Attributes:
        name: The name of the provider.
        model: The default model; empty if the server has to be asked for its models.
        why: The reason why the provider is usable, in words.
    """

    name: str
    model: str
    why: str

    @property
    def spec(self) -> str:
        """Return `provider:model`, or the provider alone."""
        return f"{self.name}:{self.model}" if self.model else self.name


def usable_providers(settings: "Settings", environ: Mapping[str, str]) -> tuple[UsableProvider, ...]:
    """Return the usable providers, in the order of PROVIDERS. No provider, keyring or helper command is asked."""
    accounts = known_accounts(environ)
    found = (_usable(name, settings, environ, accounts) for name in PROVIDERS)
    return tuple(each for each in found if each is not None)


def known_accounts(environ: Mapping[str, str]) -> AccountIndex:
    """Return the accounts with a key in the keyring; none if their list cannot be read: `agent doctor` reports that."""
    try:
        return AccountFile(environ).read().value
    except (PlaceError, StateError):
        return AccountIndex()


def _usable(
    name: str, settings: "Settings", environ: Mapping[str, str], accounts: AccountIndex
) -> UsableProvider | None:
    remote, url = PROVIDERS[name], settings.base_urls.get(name)
    if not isinstance(remote, Remote):
        return None
    try:
        endpoint = reached(remote, url, environ)
    except SetupError:  # a wrong address: the error is reported when the provider is named
        return None
    own = endpoint != parse_endpoint(remote.url)
    model = settings.models.get(name) or ("" if own else remote.model)
    place = "its address is in the configuration" if url else f"its address is in `{remote.variable}`"
    why = f"a key for it is {found}" if (found := key_place(name, settings, environ, accounts)) else ""
    if own and (why or endpoint.loopback):
        return UsableProvider(name, model, place)
    if why and not endpoint.loopback:
        return UsableProvider(name, model, why)
    return None


def key_place(name: str, settings: "Settings", environ: Mapping[str, str], accounts: AccountIndex) -> str:
    """Return where the key of the provider `name` is, in words; empty if there is none."""
    if name in VARIABLES and environ.get(VARIABLES[name], "").strip():
        return f"in `{VARIABLES[name]}`"
    if "helper" in settings.named("auth").get(name, {}):
        return "printed by a helper command"
    names = accounts.of(name).names
    return f"in the keyring (account {', '.join(names)})" if names else ""
