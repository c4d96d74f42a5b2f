"""The command-line options that limit a run: `--max-turns`, `--max-tokens`, `--max-cost`, `--timeout`, `--max-output`
and `--max-denials`.
"""

from policy.model.frozen import dataclass
from policy.toml.schema import Value


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

        found: list[tuple[str, str, Value]] = []
        if self.tokens is not None:
            found.append(("tokens", "--max-tokens", self.tokens))
        if self.cost is not None:
            found.append(("money", "--max-cost", parse_money(self.cost)))
        if self.timeout is not None:
            found.append(("time", "--timeout", parse_seconds(self.timeout, "--timeout")))
        if self.output is not None:
            found.append(("output", "--max-output", parse_bytes(self.output, "--max-output")))
        if self.denials is not None:
            found.append(("denials", "--max-denials", self.denials))
        return tuple(found)
