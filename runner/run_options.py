"""The options of `agent run` and of `agent` without a command, as the user typed them."""

from dataclasses import field

from policy.record import dataclass
from policy.tier import Mode
from runner.budget_flags import BudgetFlags
from runner.key_flags import KeyFlags
from runner.sessions.flags import GoOn


@dataclass(frozen=True, slots=True)
class RunArgs:
    """The options of one agent. None and empty values stand for options that were not given."""

    mode: Mode | None = None
    model: str | None = None
    provider: str | None = None
    json: bool = False
    unattended: bool = False
    cwd: str | None = None
    limits: tuple[str, ...] = ()
    config: str | None = None
    backend: str | None = None
    least: str | None = None
    go_on: GoOn = field(default_factory=GoOn)
    trust_config: str | None = None
    no_instructions: bool = False
    key: KeyFlags = field(default_factory=KeyFlags)
    budget: BudgetFlags = field(default_factory=BudgetFlags)
    plain: bool = False
    fallback: str | None = None
