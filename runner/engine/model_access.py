"""The open models of a session, and the model of one request with the services of that request."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from policy.model.frozen import dataclass
from policy.model.verdict import Problem
from runner.engine.context.tokens import ContextMeter
from runner.engine.run_limits import RunLimits, priced
from runner.providers import OpenModel
from runner.providers.endpoint import SetupError

if TYPE_CHECKING:
    from runner.config import Settings
    from runner.engine.hook_access import HookAccess
    from runner.events import Emit
    from runner.messages import Provider
    from runner.secrets.redactor import Redactor
    from runner.sessions.journal import Journal


class OpenModels:
    """A pool of models that opens each model once. `close` closes all of them."""

    def __init__(
        self, first: OpenModel, opener: Callable[[str], OpenModel] | None = None, settings: "Settings | None" = None
    ) -> None:
        """`settings` hold prices of models in addition to the published ones."""
        self._opener = opener
        self._settings = settings
        self._opened = {first.named: first}
        self._all = [first]

    def get(self, spec: str) -> OpenModel:
        """Return the model `spec` (`provider:model`). Raise SetupError, SecretError or Stopped."""
        if spec not in self._opened:
            if self._opener is None:
                why = "the program that uses the agent gave the session one model only"
                raise SetupError(Problem(f"`{spec}` cannot be opened here", why, "start a session with that model"))
            made = self._opener(spec)
            self._all.append(made)
            self._opened[spec] = self._opened.setdefault(made.named, made)
        return self._opened[spec]

    def vendors(self, spec: str) -> bool:
        """Return True if the model is open and its server is the vendor's own."""
        return spec in self._opened and self._opened[spec].vendors

    def limits(self, limits: RunLimits, model: OpenModel) -> RunLimits:
        """Return `limits` with the price of `model`. Raise Stopped if the user set a budget of money and the price is
        unknown. Without settings, return `limits` unchanged.
        """
        return limits if self._settings is None else priced(limits, model, self._settings)

    async def close(self) -> None:
        for each in self._all:
            await each.provider.close()


@dataclass(frozen=True, slots=True)
class ModelAccess:
    """The model of one request. The value stays the same while the request is answered, whatever the user changes.

    Attributes:
        provider: The provider that is asked.
        model: The name of the model at that provider.
        limits: The limits of the run, at the price of this model.
        models: The models that the session can open, or None if the session has only one model.
        gauge: The meter of the model's context window.
        journal: The journal of the session.
        emit: The receiver of events.
        redactor: The redactor of secrets in texts.
        hooks: The hooks of the session, or None.
    """

    provider: "Provider"
    model: str
    limits: RunLimits
    models: OpenModels | None
    gauge: ContextMeter
    journal: "Journal"
    emit: "Emit"
    redactor: "Redactor"
    hooks: "HookAccess | None" = None

    @property
    def named(self) -> str:
        """Return the model as `provider:model`."""
        return f"{self.provider.name}:{self.model}"
