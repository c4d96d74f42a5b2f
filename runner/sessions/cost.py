"""What tokens cost, where the user said what they do. Nothing is guessed: a model without a price has no cost."""

from policy.record import dataclass
from runner.config import Settings
from runner.messages import Usage


@dataclass(frozen=True, slots=True)
class Price:
    """Of a million tokens each, in the user's currency. None: not said."""

    input: float | None = None
    output: float | None = None
    cache_read: float | None = None
    cache_write: float | None = None


def cost(usage: Usage, price: Price | None) -> float | None:
    """What `usage` costs; None when a kind of token was used that has no price."""
    if price is None:
        return None
    total = 0.0
    for tokens, each in (
        (usage.input, price.input),
        (usage.output, price.output),
        (usage.cache_read, price.cache_read),
        (usage.cache_write, price.cache_write),
    ):
        if tokens and each is None:
            return None
        total += tokens * (each or 0.0)
    return total / 1_000_000


def prices(settings: Settings) -> dict[str, Price]:
    """What the tables `[price."provider:model"]` say, by that name."""
    found = {}
    for model, given in settings.named("price").items():
        said = {name: float(value) for name, value in given.items() if isinstance(value, int | float)}
        found[model] = Price(**said)
    return found
