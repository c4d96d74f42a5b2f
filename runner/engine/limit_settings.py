"""Limits of one run, from command-line options and settings."""

from dataclasses import replace

from policy.model.frozen import dataclass
from policy.toml.schema import Value
from runner.config import Settings
from runner.engine.run_limits import RunLimits
from runner.problems import usage
from runner.providers import OpenModel
from runner.providers.pricing import price_of, published

# What holds for an unattended pipeline where nobody said anything. The amount of money holds where a price is known.
PIPELINE = RunLimits(seconds=30 * 60, tokens=2_000_000, money=5.0, output=50 << 20)


@dataclass(frozen=True, slots=True)
class BudgetFlags:
    """The limit options as typed. `turns` is the value of `--max-turns`, `timeout` that of `--timeout`."""

    turns: int | None = None
    tokens: int | None = None
    cost: str | None = None
    timeout: str | None = None
    output: str | None = None
    denials: int | None = None

    def given_options(self) -> tuple[tuple[str, str, Value], ...]:
        """Return the name, option and value of each given option except `--max-turns`. Raise a usage error."""
        from runner.config.amounts import parse_bytes, parse_money, parse_seconds

        cost, timeout, output = self.cost, self.timeout, self.output
        rows: tuple[tuple[str, str, Value | None], ...] = (
            ("tokens", "--max-tokens", self.tokens),
            ("money", "--max-cost", None if cost is None else parse_money(cost)),
            ("time", "--timeout", None if timeout is None else parse_seconds(timeout, "--timeout")),
            ("output", "--max-output", None if output is None else parse_bytes(output, "--max-output")),
            ("denials", "--max-denials", self.denials),
        )
        return tuple((name, option, value) for name, option, value in rows if value is not None)


def bounds(flags: BudgetFlags, settings: Settings, usual: RunLimits | None = None) -> RunLimits:
    """Return the limits of a run before its model is known: from flags, else from settings, else from `usual`."""
    usual = usual or RunLimits()

    def number(name: str, otherwise: float | None) -> float | None:
        said = settings.value("budget", name)
        return said if isinstance(said, int | float) else otherwise

    found = replace(
        usual,
        turns=flags.turns or settings.max_turns or usual.turns,
        tokens=_whole(number("tokens", usual.tokens)),
        money=number("money", usual.money),
        seconds=number("time", usual.seconds),
        output=_whole(number("output", usual.output)),
        total=_whole(number("denials", usual.total)) or usual.total,
        row=_whole(number("row", usual.row)) or usual.row,
    )
    if flags.denials is not None:  # that many, whether in a row or not
        found = replace(found, row=flags.denials)
    return found


def priced(found: RunLimits, model: OpenModel, settings: Settings) -> RunLimits:
    """Return the limits `found` with the price of the model.

    Raise a usage error if the user set a budget of money and the price of the model is unknown, because such a budget
    would have no effect.
    """
    name = model.named
    price = price_of(name, settings, vendor=model.vendors)
    chosen = settings.value("budget", "money") is not None
    if price is None or price.input is None or price.output is None:
        if chosen and found.money is not None:
            raise usage(
                f"nobody knows what `{name}` costs, so a budget of {found.money:g} would hold nothing",
                f"it is not in the list of {published().as_of} that comes with ringfence, nor in your configuration",
                f'write [price."{name}"] with input, output (of a million tokens), cache_read and cache_write into '
                "your configuration, or bound it by --max-tokens",
            )
        return replace(found, money=None, price=price)
    return replace(found, price=price)


def _whole(value: float | None) -> int | None:
    return None if value is None else int(value)
