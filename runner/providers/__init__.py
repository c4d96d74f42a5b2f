"""Model providers: wire formats, failures, catalog and prices.

May import `config` and everything below it. Start reading at `connection.py`; `remotes.py` is the registry.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from policy.model.frozen import dataclass
from policy.model.verdict import Problem
from runner.messages import Provider, ProviderError
from runner.providers.endpoint import Endpoint, SetupError, Timeouts, parse_endpoint
from runner.providers.remotes import PROVIDERS, reached
from runner.secrets.secret import Secret

if TYPE_CHECKING:
    from runner.providers.stream import HttpProvider
    from runner.secrets.resolve import FoundKey, KeyRequest


_NAMED = 5  # models of a server that an error names


@dataclass(frozen=True, slots=True)
class OpenModel:
    """A provider that is ready for requests.

    Attributes:
        provider: the provider.
        model: name of the model.
        secrets: the live secrets, for masking.
        vendors: True if the server is the vendor's own, so that published prices hold.
        why: why this model is used, in words, if the user did not name it.
    """

    provider: Provider
    model: str
    secrets: tuple[Secret, ...] = ()
    vendors: bool = False
    why: str = ""

    @property
    def named(self) -> str:
        """Return `provider:model`."""
        return f"{self.provider.name}:{self.model}"


# Chooses one of the models that a server offers: the provider's name, the server's name for the user, and the models.
# Raises Stopped if none is chosen.
PickModel = Callable[[str, str, tuple[str, ...]], str]


def open_provider(
    spec: str,
    *,
    base_url: str | None = None,
    environ: Mapping[str, str],
    timeouts: Timeouts | None = None,
    key: "KeyRequest | None" = None,
    api: str | None = None,
    pick: PickModel | None = None,
) -> OpenModel:
    """Return the provider and the model that `spec` names: `provider:model`, or `provider` for its default model.

    No request is sent, unless the provider has no default model. Then its server is asked for its models, and the only
    one is used; `pick` chooses one of several. `base_url` outranks the vendor's environment variable, and the variable
    outranks the default. `key` says where the API key is; the provider and the environment are filled in here. `api` is
    `responses` or `chat`, for a provider that has both.

    Raises SetupError (a ProviderError), SecretError if there is no key, or what `pick` raises. A server on this machine
    needs no key.
    """
    name, _, model = spec.strip().partition(":")
    if name not in PROVIDERS:
        raise _unknown(spec.strip())
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
    own = endpoint == parse_endpoint(remote.url)
    from runner.secrets.resolve import KeyRequest, find

    resolved = find(replace(key or KeyRequest(), provider=name, environ=environ, local=endpoint.loopback))
    made = _http_provider(name, endpoint, resolved, timeouts or Timeouts(), api)
    model = model or (remote.model if own else "")
    if not model:
        model = _offered(name, made, endpoint, pick)
    secrets = (resolved.secret,) if resolved else ()
    return OpenModel(made, model, secrets, vendors=own and not remote.openai)


def _http_provider(
    name: str, endpoint: Endpoint, key: "FoundKey | None", timeouts: Timeouts, api: str | None
) -> "HttpProvider":
    """Return the provider. Its module is imported here, so that naming a provider loads no HTTP library.

    The provider `openai` uses the Responses API at OpenAI's own address and Chat Completions elsewhere, or as `api`
    says.
    """
    secret = key.secret if key is not None else None
    if name == "anthropic":
        from runner.providers.anthropic import AnthropicProvider

        return AnthropicProvider(endpoint, secret, timeouts, found=key)
    if name == "gemini":
        from runner.providers.gemini import GeminiProvider

        return GeminiProvider(endpoint, secret, timeouts, found=key)
    if name == "openai" and (api == "responses" or (api is None and endpoint.host.endswith(".openai.com"))):
        from runner.providers.responses import ResponsesProvider

        return ResponsesProvider(endpoint, secret, timeouts, found=key)
    from runner.providers.openai import OpenAiProvider

    return OpenAiProvider(endpoint, secret, timeouts, name=name, found=key)


def _offered(name: str, made: "HttpProvider", endpoint: Endpoint, pick: PickModel | None) -> str:
    """Return the only model that the server offers, or the one that `pick` chooses. Raises SetupError."""
    from runner.providers.listing import offered_models

    try:
        models = offered_models(made)
    except ProviderError as error:
        if error.status is not None:
            raise
        why = f"`{endpoint.url}` cannot be asked for its models: {error.problem.why}"
        raise _nameless(name, why, f"{error.problem.fix}, or write `{name}:MODEL`") from None
    if len(models) == 1:
        return models[0]
    if models and pick is not None:
        return pick(name, made.who, models)
    why = f"`{endpoint.url}` has no default model"
    if models:
        shown = ", ".join(f"`{model}`" for model in models[:_NAMED])
        why = f"`{endpoint.url}` offers {len(models)}: {shown}{', ...' if len(models) > _NAMED else ''}"
    raise _nameless(name, why, f"write `{name}:{models[0] if models else 'MODEL'}`")


def _unknown(spec: str) -> SetupError:
    """Return the error for a text that names no provider, with the model or provider that was probably meant."""
    from runner.providers.catalog import meant_model
    from runner.text.phrases import nearest

    name = spec.partition(":")[0]
    known = ", ".join(f"`{each}`" for each in PROVIDERS)
    meant = meant_model(spec)
    fix = f"did you mean `{meant}`?" if meant else nearest(name, PROVIDERS)
    fix = fix or "write `provider:model`, such as `anthropic:claude-sonnet-5-5` or `ollama:qwen3:8b`"
    return SetupError(Problem(f"there is no provider `{name}`", f"the providers are {known}", fix))


def _nameless(name: str, why: str, fix: str) -> SetupError:
    return SetupError(Problem(f"`{name}` needs a model", why, fix))
