"""The models that a session has opened: the first one, and those that it changed to."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from policy.model.verdict import Problem
from runner.providers import Opened
from runner.providers.endpoint import SetupError

if TYPE_CHECKING:
    from runner.config import Settings
    from runner.engine.run_limits import RunLimits


class OpenModels:
    """A pool that opens each model once and closes all models with the session."""

    def __init__(
        self, first: Opened, opener: Callable[[str], Opened] | None = None, settings: "Settings | None" = None
    ) -> None:
        """`settings` hold prices of models in addition to the published ones."""
        self._opener = opener
        self._settings = settings
        self._opened = {first.named: first}
        self._all = [first]

    def get(self, spec: str) -> Opened:
        """Return the model `spec` (`provider:model`). Raise SetupError or SecretError."""
        if spec not in self._opened:
            if self._opener is None:
                why = "this program gave the session one model, and no way to open others"
                raise SetupError(Problem(f"`{spec}` cannot be opened here", why, "start a session with that model"))
            made = self._opener(spec)
            self._all.append(made)
            self._opened[spec] = self._opened.setdefault(made.named, made)
        return self._opened[spec]

    def vendors(self, spec: str) -> bool:
        """Return True if the model is open and its server is the vendor's own."""
        return spec in self._opened and self._opened[spec].vendors

    def limits(self, limits: "RunLimits", model: Opened) -> "RunLimits":
        """Return `limits` with the price of `model`. Raise Stopped if the run has a budget of money and the price is
        unknown."""
        from runner.engine.limit_settings import priced

        return limits if self._settings is None else priced(limits, model, self._settings)

    async def close(self) -> None:
        for each in self._all:
            await each.provider.close()
