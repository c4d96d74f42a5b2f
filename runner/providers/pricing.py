"""What tokens cost: as the user said, else as the vendor published. Nothing is guessed: other models have no cost."""

from collections.abc import Mapping
from functools import cache

from policy.model.frozen import dataclass
from runner.config import Settings
from runner.messages import Usage
from runner.providers.catalog import DATED

_KINDS = ("input", "output", "cache_read", "cache_write")


@dataclass(frozen=True, slots=True)
class Price:
    """Of a million tokens each, in the user's currency. None: not said.

    `above`: a request with more tokens than that, in all that is sent, costs what `long` says.
    """

    input: float | None = None
    output: float | None = None
    cache_read: float | None = None
    cache_write: float | None = None
    above: int = 0
    long: "Price | None" = None

    def at(self, sent: int) -> "Price":
        """The price of a request of `sent` tokens."""
        return self.long if self.long is not None and sent > self.above else self


@dataclass(frozen=True, slots=True)
class Published:
    """The table that comes with the program."""

    as_of: str
    prices: Mapping[str, Price]


def cost(usage: Usage, price: Price | None) -> float | None:
    """What one request costs; None when a kind of token was used that has no price."""
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
    """What the tables `[price."provider:model"]` say, by that name."""
    found = {}
    for model, given in settings.named("price").items():
        found[model] = _price({name: value for name, value in given.items() if isinstance(value, int | float)})
    return found


def price_of(model: str, settings: Settings, *, vendor: bool) -> Price | None:
    """What `provider:model` costs; None: nobody says. `vendor`: its server is the vendor's own, so that published
    prices hold. A model that runs on this machine by a script costs nothing."""
    said = prices(settings).get(model)
    if said is not None:
        return said
    if model.startswith("scripted:"):
        return Price(0.0, 0.0, 0.0, 0.0)
    if not vendor:
        return None
    known = published().prices
    return known.get(model) or known.get(DATED.sub("", model))


@cache
def published() -> Published:
    """Read once. It lies beside our code in every kind of installation."""
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
