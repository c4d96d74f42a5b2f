"""Model providers: wire formats, failures, catalog and prices.

May import `config` and everything below it. Start reading at `connection.py`; this file is the registry.
"""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from policy.model.frozen import dataclass
from policy.model.verdict import Problem
from runner.messages import Provider
from runner.providers.endpoint import Endpoint, SetupError, Timeouts, parse_endpoint
from runner.secrets.secret import Secret

if TYPE_CHECKING:
    from runner.secrets.resolve import KeyRequest


GOOGLE = "https://generativelanguage.googleapis.com"


@dataclass(frozen=True, slots=True)
class Remote:
    """A provider behind a URL.

    Attributes:
        url: default base URL.
        model: default model.
        variable: environment variable with another base URL, as the vendor's own tools read it.
    """

    url: str
    model: str
    variable: str


@dataclass(frozen=True, slots=True)
class OpenModel:
    """A provider that is ready for requests.

    Attributes:
        provider: the provider.
        model: name of the model.
        secrets: the live secrets, for masking.
        vendors: True if the server is the vendor's own, so that published prices hold.
    """

    provider: Provider
    model: str
    secrets: tuple[Secret, ...] = ()
    vendors: bool = False

    @property
    def named(self) -> str:
        """Return `provider:model`."""
        return f"{self.provider.name}:{self.model}"


# fmt: off
PROVIDERS: dict[str, Remote | None] = {
    "anthropic": Remote("https://api.anthropic.com", "claude-sonnet-5-5", "ANTHROPIC_BASE_URL"),
    "openai":    Remote("https://api.openai.com/v1", "gpt-6.2-sol",       "OPENAI_BASE_URL"),
    "gemini":    Remote(GOOGLE,                      "gemini-4-argon",    "GOOGLE_GEMINI_BASE_URL"),
    "scripted":  None,  # replays a file, without a server
}
# fmt: on


def open_provider(
    spec: str,
    *,
    base_url: str | None = None,
    environ: Mapping[str, str],
    timeouts: Timeouts | None = None,
    key: "KeyRequest | None" = None,
    api: str | None = None,
) -> OpenModel:
    """Return the provider and the model that `spec` names: `provider:model`, or `provider` for its default model.

    No request is sent yet. `base_url` outranks the vendor's environment variable, and the variable outranks the
    default. `key` says where the API key is; the provider and the environment are filled in here. `api` is
    `responses` or `chat`, for a provider that has both.

    Raises SetupError (a ProviderError), or SecretError if there is no key. A server on this machine needs no key.
    """
    name, _, model = spec.strip().partition(":")
    if name not in PROVIDERS:
        from runner.text.phrases import nearest

        known = ", ".join(f"`{each}`" for each in PROVIDERS)
        fix = nearest(name, PROVIDERS) or "write `provider:model`, such as `anthropic:claude-sonnet-5-5`"
        raise SetupError(Problem(f"there is no provider `{name}`", f"the providers are {known}", fix))
    remote = PROVIDERS[name]
    if remote is None:
        if key is not None and (key.stdin_key or key.account):
            raise SetupError(Problem(f"`{name}` takes no API key", "it connects to no server", "leave the key out"))
        if not model:
            raise _nameless(name, "it replays a file", f"write `{name}:FILE`")
        from runner.providers.script_file import read_script
        from runner.providers.scripted import ScriptedProvider

        return OpenModel(ScriptedProvider(read_script(Path(model))), model)
    endpoint = reached(remote, base_url, environ)
    vendors = endpoint == parse_endpoint(remote.url)
    if not model and not vendors:
        raise _nameless(name, f"`{endpoint.url}` has no default model", f"write `{name}:MODEL`")
    from runner.secrets.resolve import KeyRequest, find

    resolved = find(replace(key or KeyRequest(), provider=name, environ=environ, local=endpoint.loopback))
    secret = resolved.secret if resolved else None
    made = _http_provider(name, endpoint, secret, timeouts or Timeouts(), api)
    return OpenModel(made, model or remote.model, (secret,) if secret else (), vendors)


def _http_provider(
    name: str, endpoint: Endpoint, secret: Secret | None, timeouts: Timeouts, api: str | None
) -> Provider:
    """Return the provider. Its module is imported here, so that naming a provider loads no HTTP library.

    The provider `openai` uses the Responses API at OpenAI's own address and Chat Completions elsewhere, or as `api`
    says.
    """
    if name == "anthropic":
        from runner.providers.anthropic import AnthropicProvider

        return AnthropicProvider(endpoint, secret, timeouts)
    if name == "gemini":
        from runner.providers.gemini import GeminiProvider

        return GeminiProvider(endpoint, secret, timeouts)
    if api == "responses" or (api is None and endpoint.host.endswith(".openai.com")):
        from runner.providers.responses import ResponsesProvider

        return ResponsesProvider(endpoint, secret, timeouts)
    from runner.providers.openai import OpenAiProvider

    return OpenAiProvider(endpoint, secret, timeouts)


def reached(remote: Remote, base_url: str | None, environ: Mapping[str, str]) -> Endpoint:
    """Return the address: `base_url`, else the value of the vendor's variable, else the default. Raises SetupError."""
    return parse_endpoint(base_url or environ.get(remote.variable, "").strip() or remote.url)


def _nameless(name: str, why: str, fix: str) -> SetupError:
    return SetupError(Problem(f"`{name}` needs a model", why, fix))
