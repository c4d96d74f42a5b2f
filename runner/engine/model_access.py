"""The model that requests are sent to, with the services that count, record and show those requests."""

from typing import TYPE_CHECKING

from policy.model.frozen import dataclass

if TYPE_CHECKING:
    from runner.engine.context.tokens import ContextMeter
    from runner.engine.model_pool import OpenModels
    from runner.engine.run_limits import RunLimits
    from runner.events import Emit
    from runner.messages import Provider
    from runner.secrets.redactor import Redactor
    from runner.sessions.journal import Journal


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
    """

    provider: "Provider"
    model: str
    limits: "RunLimits"
    models: "OpenModels | None"
    gauge: "ContextMeter"
    journal: "Journal"
    emit: "Emit"
    redactor: "Redactor"

    @property
    def named(self) -> str:
        """Return the model as `provider:model`."""
        return f"{self.provider.name}:{self.model}"
