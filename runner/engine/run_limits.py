"""Limits of one run: what the run may use before it ends by itself."""

from dataclasses import field
from typing import TYPE_CHECKING

from policy.model.frozen import dataclass
from runner.providers.backoff import RetryPolicy

if TYPE_CHECKING:
    from runner.providers.pricing import Price


@dataclass(frozen=True, slots=True)
class RunLimits:
    """Limits of one run. A run that reaches one of them ends with exit code 5.

    Attributes:
        turns: The largest number of turns, each with one answer of the model.
        seconds: The wall time of the run in seconds, or None for no limit.
        row: The number of consecutive denials that ends an unattended run.
        total: The number of denials that ends an unattended run.
        calls: The number of calls of one reply that are executed. Calls beyond that number are refused.
        parallel: The number of read-only calls of one turn that run at the same time.
        tokens: The number of tokens sent and received, cached or not, or None for no limit.
        money: The cost of the run in the currency of `price`, or None. Without a price no cost is known.
        output: The number of bytes that all actions together may print, or None for no limit.
        price: The price of the model, or None if it is unknown.
        patience: The retry policy for a provider that fails.
    """

    turns: int = 50
    seconds: float | None = None
    row: int = 3
    total: int = 20
    calls: int = 200
    parallel: int = 10
    tokens: int | None = None
    money: float | None = None
    output: int | None = None
    price: "Price | None" = None
    patience: RetryPolicy = field(default_factory=RetryPolicy)
