"""The models that a server offers, for a provider without a default model, and the model servers on this machine.

A list is untrusted text of limited length: at most MOST names, each of at most LONGEST printable characters.
"""

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TypeVar

from policy.model.frozen import dataclass
from runner.messages import ProviderError
from runner.providers.endpoint import Timeouts, parse_endpoint
from runner.providers.openai import OpenAiProvider
from runner.providers.remotes import PROVIDERS
from runner.providers.stream import HttpProvider
from runner.text.model_text import parse_object

MOST = 1000  # models of one server
LONGEST = 200  # characters of a model's name
_PATIENCE = Timeouts(connect=3.0, read=5.0, total=8.0)  # of a server that the user named
_BRIEF = Timeouts(connect=0.4, read=1.0, total=1.5)  # of a server that may not exist

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class FoundServer:
    """A model server on this machine that answered, with its models. `provider` is the name that opens it."""

    provider: str
    models: tuple[str, ...]


def offered_models(provider: HttpProvider) -> tuple[str, ...]:
    """Return the names of the models that the server of `provider` offers; empty if it does not list them.

    Raise ProviderError if the server cannot be reached, or refuses the key.
    """
    try:
        return names_in(_in_thread(partial(provider.models, _PATIENCE)))
    except ProviderError as error:
        if error.status is None or error.status in (401, 403):
            raise
        return ()


def found_servers() -> tuple[FoundServer, ...]:
    """Return the model servers that answer at their usual ports on this machine, in the order of PROVIDERS.

    Only 127.0.0.1 and [::1] are asked, all at the same time, and without a key.
    """
    return _in_thread(_search)


async def _search() -> tuple[FoundServer, ...]:
    urls = {name: remote.url for name, remote in PROVIDERS.items() if remote is not None and remote.openai}
    local = {name: url for name, url in urls.items() if parse_endpoint(url).loopback}
    found = await asyncio.gather(*(_answer(name, url) for name, url in local.items()))
    return tuple(FoundServer(name, models) for name, models in zip(local, found, strict=True) if models)


async def _answer(name: str, url: str) -> tuple[str, ...]:
    """Return the models of the local server `name`; empty if none answers."""
    urls = [url.replace("localhost", host) for host in ("127.0.0.1", "[::1]")]
    made = [OpenAiProvider(parse_endpoint(each), None, name=name) for each in urls]
    answers = await asyncio.gather(*(each.models(_BRIEF) for each in made), return_exceptions=True)
    return next((names for answer in answers if isinstance(answer, bytes) and (names := names_in(answer))), ())


def names_in(body: bytes) -> tuple[str, ...]:
    """Return the names of the models in a server's list, without models that only make embeddings."""
    content = parse_object(body) or {}
    rows = next((rows for key in ("data", "models") if isinstance(rows := content.get(key), list) and rows), [])
    named = [row.get("id") or row.get("name") for row in rows[:MOST] if isinstance(row, dict)]
    names = [name.removeprefix("models/") for name in named if isinstance(name, str) and _sound(name)]
    return tuple(dict.fromkeys(name for name in names if "embed" not in name.casefold()))


def _sound(name: str) -> bool:
    return 0 < len(name) <= LONGEST and name.isprintable() and not any(char.isspace() for char in name)


def _in_thread(work: Callable[[], Coroutine[None, None, T]]) -> T:
    """Return the result of `work` in an event loop of its own, because the caller may be in a running one."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(lambda: asyncio.run(work())).result()
