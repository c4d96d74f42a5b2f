"""Everything a run needs, as one value: handed in, never reached for."""

from collections.abc import Callable, Sequence
from dataclasses import field
from typing import TYPE_CHECKING

from policy.record import dataclass
from runner.context.context import Context
from runner.context.refusals import Refusals
from runner.context.tokens import Gauge
from runner.messages import Thinking
from runner.retry import Patience
from runner.steering import Steering

if TYPE_CHECKING:
    from policy.facts import Facts
    from policy.profile import Profile
    from policy.rules import RuleBook
    from policy.tier import Mode
    from runner.approval import Approver
    from runner.audit.log import AuditLog
    from runner.compaction.view import View
    from runner.events import Emit, SessionStarted
    from runner.grant_store import GrantStore
    from runner.messages import Provider
    from runner.open_models import OpenModels
    from runner.redactor import Redactor
    from runner.sessions.cost import Price
    from runner.sessions.journal import Journal
    from runner.shelf import Shelf
    from runner.undo.keeper import Keeper
    from sandbox.backend import Backend, Enforcement
    from tools.tool import Seen, Tool


@dataclass(frozen=True, slots=True)
class Bounds:
    """When a run ends by itself, with exit 5. `seconds` is wall time; `row` and `total` count denials of an unattended
    run; `output` is bytes, of all actions together; `money` is in the currency of `price`, and holds only with one."""

    turns: int = 50
    seconds: float | None = None
    row: int = 3
    total: int = 20
    calls: int = 200  # of one reply that are done; the others are refused
    parallel: int = 10  # calls of one turn that only read, at the same time
    tokens: int | None = None  # sent and received, cached or not
    money: float | None = None
    output: int | None = None
    price: "Price | None" = None
    patience: Patience = field(default_factory=Patience)  # with a provider that fails


def _unkept() -> "Journal":
    from runner.sessions.journal import Journal

    return Journal()


def _view() -> "View":
    from runner.compaction.view import View

    return View()


def _no_grants() -> "GrantStore":
    """Where nothing was remembered, and what is remembered is gone with the run."""
    from policy.grant import MAIN, Key
    from runner.grant_store import GrantStore

    return GrantStore(None, Key("", MAIN, "none"), lambda text: None)


@dataclass(frozen=True, slots=True)
class World:
    """What the loop may use. `look` sees the disk as it is now: one call, one decision."""

    session: str
    cwd: str
    mode: "Mode"
    unattended: bool
    tools: "Sequence[Tool]"
    seen: "Seen"
    look: "Callable[[], Facts]"
    rules: "RuleBook"
    profile: "Profile"
    environment: tuple[tuple[str, str], ...]
    approver: "Approver"
    audit: "AuditLog"
    sandbox: "Backend"
    enforcement: "Enforcement"
    provider: "Provider"
    model: str
    shelf: "Shelf"
    emit: "Emit"
    redactor: "Redactor"
    bounds: Bounds = field(default_factory=Bounds)
    journal: "Journal" = field(default_factory=_unkept)  # writes the session down; this one keeps nothing
    context: Context = field(default_factory=Context)  # what the model is told beside the conversation
    undo: "Keeper | None" = None
    grants: "GrantStore" = field(default_factory=_no_grants)
    thinking: Thinking = Thinking.OFF
    steering: Steering = field(default_factory=Steering)  # what is said while the model works
    refusals: Refusals = field(default_factory=Refusals)
    gauge: Gauge = field(default_factory=Gauge)  # how much of the model's window the conversation takes
    view: "View" = field(default_factory=_view)  # what of the conversation the model is shown
    fallback: str = ""  # `provider:model` that goes on where the model stays busy; empty: none
    models: "OpenModels | None" = None  # how another model is opened: a smaller one, a fallback, the user's choice

    @property
    def agent(self) -> str:
        """Who works here, as grants name it: a sub-agent has another name, and inherits no yes."""
        return self.grants.key.agent

    @property
    def named(self) -> str:
        """The model that is asked, as `provider:model`."""
        return f"{self.provider.name}:{self.model}"

    def opening(self) -> "SessionStarted":
        """The event that says what this world is."""
        from runner.events import SessionStarted

        return SessionStarted(
            session=self.session,
            workspace=self.look().workspace,
            cwd=self.cwd,
            mode=self.mode,
            model=self.named,
            unattended=self.unattended,
            enforcement=self.enforcement,
        )
