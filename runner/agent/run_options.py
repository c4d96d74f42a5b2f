"""The options of `agent run` and of `agent` without a command, as the user typed them."""

from dataclasses import field

from policy.model.frozen import dataclass
from policy.model.tier import Mode
from runner.agent.options import Given, least, parse_backend, parse_mode
from runner.engine.limit_settings import BudgetFlags
from runner.providers.key_source import KeyFlags
from runner.sessions.selection import SessionSelection, parse_selection


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
    selection: SessionSelection = field(default_factory=SessionSelection)
    trust_config: str | None = None
    no_instructions: bool = False
    key: KeyFlags = field(default_factory=KeyFlags)
    budget: BudgetFlags = field(default_factory=BudgetFlags)
    plain: bool = False
    fallback: str | None = None


def run_args(given: Given) -> RunArgs:
    """Return what the options of `agent run`, `agent ci` or plain `agent` say. Raises a usage error."""
    latest, unkept = given.switch("continue_"), given.switch("no_session")
    return RunArgs(
        parse_mode(given.text("mode")),
        given.text("model"),
        given.text("provider"),
        given.switch("json"),
        given.switch("unattended"),
        given.text("cwd"),
        given.texts("limit"),
        given.text("config"),
        parse_backend(given.text("backend")),
        least(given.switch("accept_partial"), given.text("require")),
        selection=parse_selection(latest, given.text("resume"), given.text("fork"), unkept),
        trust_config=given.text("trust_config"),
        no_instructions=given.switch("no_instructions"),
        key=KeyFlags(given.text("account"), given.switch("api_key_stdin")),
        fallback=given.text("fallback_model"),
        plain=given.switch("plain"),
        budget=BudgetFlags(
            given.number("max_turns"),
            given.number("max_tokens"),
            given.text("max_cost"),
            given.text("timeout"),
            given.text("max_output"),
            given.number("max_denials"),
        ),
    )
