"""The view of a session, as the configuration wants it."""

from runner.compaction.levels import Thresholds
from runner.compaction.scribe import Scribe
from runner.compaction.view import View
from runner.config import Settings
from runner.providers import Opened
from runner.sessions.cost import Price, price_of


def view_of(settings: Settings) -> View:
    """Thresholds, windows and the small model are those of `settings`, else what is known."""
    windows = {name: given.get("tokens") for name, given in settings.named("window").items()}
    usual = Thresholds()

    def percent(name: str) -> int:
        said = settings.value("compaction", name)
        return said if isinstance(said, int) else int(getattr(usual, name))

    def price(opened: Opened) -> Price | None:
        return price_of(f"{opened.provider.name}:{opened.model}", settings, vendor=opened.vendors)

    def window(spec: str) -> int | None:
        tokens = windows.get(spec)
        return tokens if isinstance(tokens, int) and tokens > 0 else None

    small = settings.value("small_model")
    levels = Thresholds(**{name: percent(name) for name in Thresholds.__slots__})
    return View(levels, Scribe(str(small) if small else "", price), window)
