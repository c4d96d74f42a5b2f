"""The fallback model, which replaces a model that stays busy until the end of the run."""

from policy.model.frozen import dataclass
from runner.engine.run_context import RunContext
from runner.engine.run_limits import RunLimits
from runner.events import Changed, Notice
from runner.messages import Message, Provider, ProviderError, without_thoughts
from runner.problems import Stopped
from runner.secrets.secret import SecretError


@dataclass(frozen=True, slots=True)
class _Replaced:
    """The chosen model, and the name of the fallback model that replaced it."""

    provider: Provider
    model: str
    limits: RunLimits
    named: str
    by: str


class Fallback:
    """The state of the fallback in one run. A run falls back once: it ends if the second model is busy, too."""

    def __init__(self) -> None:
        self._tried = False
        self._replaced: _Replaced | None = None

    def ready(self, ctx: RunContext) -> bool:
        """Return True if a fallback model is set that was not tried yet and is not the model in use."""
        return not self._tried and ctx.fallback not in ("", ctx.live.named) and ctx.models is not None

    def take(self, ctx: RunContext, why: str) -> bool:
        """Use the fallback model from the next request on, and say so.

        Return False if there is none, or if it cannot be opened or paid for.
        """
        if not self.ready(ctx) or ctx.models is None:
            return False
        self._tried = True
        try:
            opened = ctx.models.get(ctx.fallback)
            limits = ctx.models.limits(ctx.live.limits, opened)
        except (ProviderError, SecretError, Stopped) as error:
            problem = error.problem
            ctx.emit(Notice(f"the fallback model `{ctx.fallback}` cannot go on: {problem.what}: {problem.why}"))
            return False
        live, was, now = ctx.live, ctx.live.named, opened.named
        if now == was:
            return False
        self._replaced = _Replaced(live.provider, live.model, live.limits, was, now)
        live.use_model(opened.provider, opened.model, limits)
        ctx.journal.model(now, limits.price)
        ctx.emit(Changed("model", was, now, why))
        return True

    def over(self, ctx: RunContext, messages: list[Message]) -> None:
        """Return to the chosen model at the end of the run, unless the user chose another one in the meantime."""
        replaced = self._replaced
        if replaced is None or ctx.live.named != replaced.by:
            return
        ctx.live.use_model(replaced.provider, replaced.model, replaced.limits)
        without_thoughts(messages)
        ctx.gauge.another()
        ctx.journal.model(replaced.named, replaced.limits.price)
        ctx.emit(Changed("model", replaced.by, replaced.named, "the next prompt goes to it again"))
