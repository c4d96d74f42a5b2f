"""The view of a session, as the configuration wants it."""

from runner.config import ConfigError, Settings
from runner.config.compaction_levels import Disorder, levels_of
from runner.engine.compaction.summarizer import Summarizer
from runner.engine.compaction.view import ConversationView
from runner.providers import Opened
from runner.providers.pricing import Price, price_of


def view_of(settings: Settings) -> ConversationView:
    """Thresholds, windows and the small model are those of `settings`, else what is known. Raises
    ConfigError where the levels are in no order."""
    windows = {name: given.get("tokens") for name, given in settings.named("window").items()}
    levels = levels_of(settings)
    if isinstance(levels, Disorder):
        raise ConfigError(levels.problem)

    def price(opened: Opened) -> Price | None:
        return price_of(opened.named, settings, vendor=opened.vendors)

    def window(spec: str) -> int | None:
        tokens = windows.get(spec)
        return tokens if isinstance(tokens, int) and tokens > 0 else None

    small = settings.value("small_model")
    return ConversationView(levels, Summarizer(str(small) if small else "", price), window)
