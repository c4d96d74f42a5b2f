"""Address of a provider, and limits on the time of requests."""

from typing import ClassVar

from policy.model.frozen import dataclass
from policy.model.verdict import Problem
from runner.config.validators import provider_address
from runner.messages import ProviderError
from runner.problems import Exit
from runner.text.http_address import is_loopback


class SetupError(ProviderError):
    """The error for a provider with a wrong name, model, base URL or script. Nothing was sent."""

    exit_code: ClassVar[int] = Exit.USAGE


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Time limits in seconds. `read` limits the silence inside an answer, `total` the whole answer."""

    connect: float = 10.0
    read: float = 300.0
    total: float = 3600.0


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A base URL that is safe to send a key to: https, or this machine; no credentials, query or fragment in it."""

    url: str  # without a trailing slash
    host: str
    secure: bool
    loopback: bool


def parse_endpoint(text: str) -> Endpoint:
    """Parse a base URL. Raises SetupError, which never quotes a URL that contains credentials."""
    found = provider_address(text.strip())
    if isinstance(found, tuple):
        raise SetupError(Problem("the provider's base URL cannot be used", *found))
    return Endpoint(str(found), found.host, found.secure, is_loopback(found.host))
