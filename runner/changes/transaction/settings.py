"""The user's settings for transactions."""

from policy.model.frozen import dataclass
from runner.config import Settings

MOST_DELETED = 10_000  # files of one command, without those that tools can make again


@dataclass(frozen=True, slots=True)
class TransactionSettings:
    """The settings for transactions.

    Attributes:
        enabled: True if writing commands run as transactions where that is possible.
        most_deleted: The largest number of files that a command may delete; 0 for no limit.
    """

    enabled: bool = False
    most_deleted: int = MOST_DELETED


def transaction_settings(settings: Settings) -> TransactionSettings:
    """Return the settings of all layers of the configuration."""
    most = settings.value("sandbox", "most_deleted")
    enabled = settings.value("sandbox", "transactions") is True
    return TransactionSettings(enabled, most if isinstance(most, int) else MOST_DELETED)
