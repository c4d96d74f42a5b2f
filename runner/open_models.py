"""The models that a session has opened: the one it began with, and those it turned to since."""

from collections.abc import Callable

from policy.verdict import Problem
from runner.providers import Opened
from runner.providers.endpoint import SetupError


class OpenModels:
    """Opens a model once and keeps it; all are closed with the session."""

    def __init__(self, first: Opened, opener: Callable[[str], Opened] | None = None) -> None:
        self._opener = opener
        self._opened = {f"{first.provider.name}:{first.model}": first}

    def get(self, spec: str) -> Opened:
        """The model that `spec` (`provider:model`) names. Raises SetupError, SecretError."""
        if spec not in self._opened:
            if self._opener is None:
                why = "this program gave the session one model, and no way to open others"
                raise SetupError(Problem(f"`{spec}` cannot be opened here", why, "start a session with that model"))
            self._opened[spec] = self._opener(spec)
        return self._opened[spec]

    def vendors(self, spec: str) -> bool:
        """Whether that model is open, and its server the vendor's own."""
        return spec in self._opened and self._opened[spec].vendors

    async def close(self) -> None:
        for each in self._opened.values():
            await each.provider.close()
