"""Prices of tokens, from the user's configuration or else as the vendor published them. Other models have no price."""

from collections.abc import Mapping
from functools import cache

from policy.model.frozen import dataclass
from runner.config import Settings
from runner.messages import Usage
from runner.providers.catalog import DATED

_KINDS = ("input", "output", "cache_read", "cache_write")


@dataclass(frozen=True, slots=True)
class Price:
    """Prices of a million tokens in the user's currency. None stands for an unknown price.

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
    """Return the published prices. The file is read once and is part of every kind of installation."""
    import os
    import tomllib

    import profiles

    with open(os.path.join(os.path.dirname(str(profiles.__file__)), "prices.toml"), "rb") as file:
        data = tomllib.load(file)
    return Published(data["as_of"], {name: _price(row) for name, row in data["price"].items()})


def _price(row: Mapping[str, object]) -> Price:
    sent, received, read, written = (float(str(row[kind])) if kind in row else None for kind in _KINDS)
    long, above = row.get("long"), row.get("above")
    if isinstance(long, dict) and isinstance(above, int):
        return Price(sent, received, read, written, above, _price(long))
    return Price(sent, received, read, written)
