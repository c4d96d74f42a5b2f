"""Facts about models: context window, longest answer, how thinking is requested, and prices of tokens.

`profiles/models.toml` contains the facts as the vendors published them. A model without an entry has the facts of its
vendor's newest model. Another server than the vendor's may have a smaller window; its error is then handled as
`Failure.CONTEXT`.
"""

import re
from collections.abc import Mapping
from enum import StrEnum
from functools import cache
from typing import Any

from policy.model.frozen import dataclass
from runner.config import Settings
from runner.messages import Thinking, Usage

DATED = re.compile(r"-(?:20\d{6}|20\d\d-\d\d-\d\d|latest)$")  # `claude-opus-5-20260724` is `claude-opus-5`
_KINDS = ("input", "output", "cache_read", "cache_write")


class ThinkingKind(StrEnum):
    """Ways of requesting a certain amount of thinking from a model."""

    NONE = "none"  # thinking cannot be requested
    ADAPTIVE = "adaptive"  # Anthropic: the model decides, steered by an effort
    BUDGET = "budget"  # Anthropic and Gemini, older: a number of tokens
    EFFORT = "effort"  # OpenAI: a word
    LEVEL = "level"  # Gemini: a word


# The part of `max_tokens` that a model may think, for a model that takes a number of tokens (BUDGET).
SHARES = {Thinking.LOW: 1 / 8, Thinking.MEDIUM: 1 / 4, Thinking.HIGH: 1 / 2, Thinking.MAX: 3 / 4}


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """Facts about one model. None is an unknown value.

    Attributes:
        window: tokens of a request and its answer together.
        output: tokens of one answer with its thinking.
        thinking: way of requesting thinking.
        most: word for the largest amount of thinking that the model accepts.
        small: a cheap model of the same vendor for summaries (`provider:model`). A small model names itself.
        thinks: True if the model thinks without a request for it.
        request: tokens of a request alone, if the server accepts fewer than the window leaves.
    """

    window: int | None = None
    output: int | None = None
    thinking: ThinkingKind = ThinkingKind.NONE
    most: str = "high"
    small: str | None = None
    thinks: bool = False
    request: int | None = None

    def effort(self, thinking: Thinking) -> str:
        """Return the word for `thinking`, for a model that takes a word (ADAPTIVE, EFFORT, LEVEL)."""
        return self.most if thinking is Thinking.MAX else thinking.value


def facts_of(spec: str) -> ModelFacts:
    """Return the facts of `provider:model`, also under a dated name. An unknown model has those of its vendor's
    newest.
    """
    table = _table()
    known = table.get(spec) or table.get(DATED.sub("", spec))
    return known or table.get(spec.partition(":")[0], ModelFacts())


def known_models() -> tuple[str, ...]:
    """Return the names `provider:model` of all models with facts."""
    return tuple(name for name in _table() if ":" in name)


def full_name(spec: str) -> str:
    """Return `provider:model` for the name of a known model without its provider, also for a dated name. Return every
    other text unchanged.
    """
    plain = DATED.sub("", spec)
    found = [name for name in known_models() if ":" not in spec and name.partition(":")[2] == plain]
    return f"{found[0].partition(':')[0]}:{spec}" if len(found) == 1 else spec


def meant_model(text: str) -> str | None:
    """Return the known model that a part of its name or a misspelled name means, or None. The newest model of several
    is returned.
    """
    from runner.text.phrases import similar

    word = text.strip().casefold()
    own = {name.partition(":")[2].casefold(): name for name in known_models()}
    within = [name for model, name in own.items() if len(word) > 2 and word in re.split(r"[-.]", model)]
    begun = [name for model, name in own.items() if len(word) > 2 and model.startswith(word)]
    close = similar(word, own, cutoff=0.75) if ":" not in word else []
    return next(iter((*begun, *within, *(own[each] for each in close))), None)


@cache
def _table() -> Mapping[str, ModelFacts]:
    """Return the facts by the name of the model or of the vendor. The file is read once."""
    data = _profile("models.toml")
    rows = {**data["model"], **data["vendor"]}
    return {name: ModelFacts(**{**row, "thinking": ThinkingKind(row["thinking"])}) for name, row in rows.items()}


def _profile(name: str) -> dict[str, Any]:
    """Return the content of the TOML file `name` in the package `profiles`."""
    import os
    import tomllib

    import profiles

    with open(os.path.join(os.path.dirname(str(profiles.__file__)), name), "rb") as file:
        return tomllib.load(file)


@dataclass(frozen=True, slots=True)
class Price:
    """Prices of a million tokens in the currency of the prices. None is an unknown price.

    Attributes:
        input: price of tokens sent.
        output: price of tokens received.
        cache_read: price of tokens read from the cache.
        cache_write: price of tokens written to the cache.
        above: number of sent tokens above which `long` holds.
        long: prices of longer requests.
    """

    input: float | None = None
    output: float | None = None
    cache_read: float | None = None
    cache_write: float | None = None
    above: int = 0
    long: "Price | None" = None

    def at(self, sent: int) -> "Price":
        """Return the price that holds for a request of `sent` tokens."""
        return self.long if self.long is not None and sent > self.above else self


FREE = Price(0.0, 0.0, 0.0, 0.0)


@dataclass(frozen=True, slots=True)
class Published:
    """Published prices, which are part of the program."""

    as_of: str
    prices: Mapping[str, Price]


def cost(usage: Usage, price: Price | None) -> float | None:
    """Return the cost of one request; None if the request used a kind of token without a price."""
    if price is None:
        return None
    price = price.at(usage.input + usage.cache_read + usage.cache_write)
    total = 0.0
    for kind in _KINDS:
        tokens, each = getattr(usage, kind), getattr(price, kind)
        if tokens and each is None:
            return None
        total += tokens * (each or 0.0)
    return total / 1_000_000


def prices(settings: Settings) -> dict[str, Price]:
    """Return the prices in the tables `[price."provider:model"]`, by that name."""
    return {
        model: _price({kind: value for kind, value in row.items() if isinstance(value, int | float)})
        for model, row in settings.named("price").items()
    }


def price_of(model: str, settings: Settings, *, vendor: bool) -> Price | None:
    """Return the price of `provider:model`; None if it is unknown.

    `vendor` is True for the vendor's own server, where published prices hold. A scripted model costs nothing.
    """
    configured = prices(settings).get(model)
    if configured is not None:
        return configured
    if model.startswith("scripted:"):
        return FREE
    if not vendor:
        return None
    known = published().prices
    return known.get(model) or known.get(DATED.sub("", model))


@cache
def published() -> Published:
    """Return the published prices. The file is read once."""
    data = _profile("prices.toml")
    return Published(data["as_of"], {name: _price(row) for name, row in data["price"].items()})


def _price(row: Mapping[str, object]) -> Price:
    sent, received, read, written = (float(str(row[kind])) if kind in row else None for kind in _KINDS)
    long, above = row.get("long"), row.get("above")
    if isinstance(long, dict) and isinstance(above, int):
        return Price(sent, received, read, written, above, _price(long))
    return Price(sent, received, read, written)
