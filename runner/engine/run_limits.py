"""Limits of one run, from command-line options and settings."""

from dataclasses import field, replace
from typing import TYPE_CHECKING, Self

from policy.model.frozen import dataclass
from policy.toml.schema import Value
from runner.config import Settings
from runner.engine.retry_policy import RetryPolicy
from runner.problems import option, usage
from runner.providers import OpenModel
from runner.providers.catalog import price_of, published

if TYPE_CHECKING:
    from runner.providers.catalog import Price


@dataclass(frozen=True, slots=True)
class RunLimits:
    """Limits of one run. A run ends with exit code 5 at its limit of turns, time, denials, tokens, money or output.

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


# Defaults for an unattended pipeline. The limit of money applies only if the price of the model is known.
PIPELINE = RunLimits(seconds=30 * 60, tokens=2_000_000, money=5.0, output=50 << 20)


@dataclass(frozen=True, slots=True)
class RunBudget:
    """The limits that the starter of a run sets; None leaves a limit to the configuration.

    Attributes:
        turns: The largest number of turns.
        tokens: The largest number of tokens, sent and received.
        cost: The largest cost in the currency of the prices.
        timeout: The longest duration, in seconds or with a unit: `90s`, `20m`, `1h`.
        output: The largest number of bytes that all actions together may print, or a text with a unit: `50M`.
        denials: The number of denials that ends an unattended run.
    """

    turns: int | None = None
    tokens: int | None = None
    cost: str | float | None = None
    timeout: str | float | None = None
    output: str | int | None = None
    denials: int | None = None

    def checked(self) -> Self:
        """Return these limits. Raise a usage error for a count below 1."""
        for name, count in (("turns", self.turns), ("tokens", self.tokens), ("denials", self.denials)):
            if count is not None and count < 1:
                named = option(f"--max-{name}", count)
                raise usage(f"`{named}` is not a limit", "a limit is at least 1", "write 1 or more, or leave it out")
        return self

    def given_options(self) -> tuple[tuple[str, str, Value], ...]:
        """Return the name, option and value of each given option except `--max-turns`. Raise a usage error."""
        from runner.config.amounts import parse_bytes, parse_money, parse_seconds

        cost, timeout, output = self.cost, self.timeout, self.output
        rows: tuple[tuple[str, str, Value | None], ...] = (
            ("tokens", "--max-tokens", self.tokens),
            ("money", "--max-cost", None if cost is None else parse_money(str(cost))),
            ("time", "--timeout", None if timeout is None else parse_seconds(str(timeout), option("--timeout"))),
            ("output", "--max-output", None if output is None else parse_bytes(str(output), option("--max-output"))),
            ("denials", "--max-denials", self.denials),
        )
        return tuple((name, option, value) for name, option, value in rows if value is not None)


def bounds(flags: RunBudget, settings: Settings, usual: RunLimits | None = None) -> RunLimits:
    """Return the limits of a run before its model is known: from `settings`, which include the options, else `usual`.

    Only `flags.turns` and `flags.denials` are read from `flags`.
    """
    usual = usual or RunLimits()

    def number(name: str, otherwise: float | None) -> float | None:
        value = settings.value("budget", name)
        return value if isinstance(value, int | float) else otherwise

    limits = replace(
        usual,
        turns=flags.turns or settings.max_turns or usual.turns,
        tokens=_whole(number("tokens", usual.tokens)),
        money=number("money", usual.money),
        seconds=number("time", usual.seconds),
        output=_whole(number("output", usual.output)),
        total=_whole(number("denials", usual.total)) or usual.total,
        row=_whole(number("row", usual.row)) or usual.row,
    )
    if flags.denials is not None:  # one limit for all denials, consecutive or not
        limits = replace(limits, row=flags.denials)
    return limits


def priced(limits: RunLimits, model: OpenModel, settings: Settings) -> RunLimits:
    """Return `limits` with the price of the model.

    Raise a usage error if the user set a budget of money and the price of the model is unknown, because such a budget
    would have no effect. Otherwise an unknown price removes the limit of money.
    """
    name = model.named
    price = price_of(name, settings, vendor=model.vendors)
    chosen = settings.value("budget", "money") is not None
    if price is None or price.input is None or price.output is None:
        if chosen and limits.money is not None:
            raise usage(
                f"no price is known for `{name}`, so a budget of {limits.money:g} cannot be enforced",
                f"neither ringfence's price list of {published().as_of} nor your configuration has a price for it",
                f'add [price."{name}"] with input, output, cache_read and cache_write (per million tokens) to '
                f"your configuration, or limit the run with {option('--max-tokens')}",
            )
        return replace(limits, money=None, price=price)
    return replace(limits, price=price)


def _whole(value: float | None) -> int | None:
    return None if value is None else int(value)
