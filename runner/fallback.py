"""The model that goes on where the chosen one stays busy: for the rest of the run, and said."""

from runner.events import Changed, Notice
from runner.messages import Message, ProviderError, without_thoughts
from runner.problems import Stopped
from runner.secrets import SecretError
from runner.world import World


class Fallback:
    """Of one run. A run falls back once: two models that are busy end it."""

    def __init__(self) -> None:
        self._tried = False
        self._chosen: World | None = None  # the world with the model that was left
        self._now = ""

    def ready(self, world: World) -> bool:
        """Whether there is one that was not tried yet, and is another."""
        return not self._tried and world.fallback not in ("", world.named) and world.models is not None

    def take(self, world: World, why: str) -> bool:
        """Turn to it from the next request on. False when there is none, or none that may be paid for; that is said."""
        if not self.ready(world) or world.models is None:
            return False
        self._tried = True
        try:
            opened = world.models.get(world.fallback)
            bounds = world.models.bounds(world.bounds, opened)
        except (ProviderError, SecretError, Stopped) as error:
            problem = error.problem
            world.emit(Notice(f"the fallback model `{world.fallback}` cannot go on: {problem.what}: {problem.why}"))
            return False
        was, now = world.named, opened.named
        if now == was:
            return False
        self._chosen, self._now = world, now
        world.steering.change({"provider": opened.provider, "model": opened.model, "bounds": bounds})
        world.journal.model(now, bounds.price)
        world.emit(Changed("model", was, now, why))
        return True

    def over(self, world: World, messages: list[Message]) -> None:
        """The run is over: the next one goes to the chosen model again, unless the person chose another meanwhile."""
        if self._chosen is None or world.named != self._now:
            return
        chosen, was = self._chosen, self._chosen.named
        world.steering.change({"provider": chosen.provider, "model": chosen.model, "bounds": chosen.bounds})
        without_thoughts(messages)
        world.gauge.another()
        world.journal.model(was, chosen.bounds.price)
        world.emit(Changed("model", self._now, was, "the next prompt goes to it again"))
