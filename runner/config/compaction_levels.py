"""The levels of compaction: how full the context window is when a level begins, and how much a level keeps."""

from collections.abc import Mapping
from enum import StrEnum

from policy.model.frozen import dataclass
from policy.model.verdict import Problem
from runner.config.settings import Settings


class CompactionLevel(StrEnum):
    """The levels of compaction, the mildest first. The values are used in the settings and in the event."""

    TRIM = "trim"  # the middle of long results of old calls is removed
    ONE_LINE = "one-line"  # results of old calls become one line
    SUMMARY = "summary"  # a summary by the small model replaces old turns
    RECENT = "recent"  # only the summary and the latest turns stay
    TRUNCATE = "truncate"  # the remaining messages are shortened, without a request to a model
    ASKED = "asked"  # requested by the user: like SUMMARY, but for everything old


@dataclass(frozen=True, slots=True)
class Thresholds:
    """Thresholds of the levels, in per cent of the context window minus the space reserved for one answer."""

    trim: int = 70
    one_line: int = 80
    summary: int = 85
    recent: int = 90
    truncate: int = 95

    def reached(self, level: CompactionLevel, used: float) -> bool:
        """Return True if `used`, a fraction of 1, reaches `level`."""
        least = getattr(self, level.value.replace("-", "_"), None)
        return isinstance(least, int) and used * 100 >= least


ORDER = ("trim", "one_line", "summary", "recent", "truncate")


@dataclass(frozen=True, slots=True)
class Disorder:
    """Thresholds in a wrong order, so that a level is never reached.

    Attributes:
        level: name of that level.
        problem: description for the user.
    """

    level: str
    problem: Problem


def thresholds(said: Mapping[str, int]) -> Thresholds | Disorder:
    """Return the thresholds with the configured values, in per cent by name; or Disorder if they are not in order.

    A milder level without a configured value begins no later than the next level.
    """
    usual, found, above, after = Thresholds(), dict[str, int](), 100, ""
    for name in reversed(ORDER):
        at = said.get(name, min(getattr(usual, name), above))
        if at > above:
            why = f"`{after}`, which removes more text, already begins at {above}"
            fix = f"write {above} or less, or raise `compaction.{after}`"
            return Disorder(name, Problem(f"`compaction.{name}` is {at}, which is never reached", why, fix))
        found[name], above, after = at, at, name
    return Thresholds(**found)


# Fraction of the window, minus the space for one answer, that a level keeps unchanged at the end of the conversation.
KEEPS = {
    CompactionLevel.TRIM: 0.25,
    CompactionLevel.ONE_LINE: 0.20,
    CompactionLevel.SUMMARY: 0.25,
    CompactionLevel.RECENT: 0.10,
    CompactionLevel.TRUNCATE: 0.08,
    CompactionLevel.ASKED: 0.05,
}
# Fraction of the same space that a level must save: otherwise it does not pay to invalidate the provider's cache.
# TRIM is possible most often, so it must save more; otherwise it would run again soon.
GAINS = {
    CompactionLevel.TRIM: 0.15,
    CompactionLevel.ONE_LINE: 0.10,
    CompactionLevel.SUMMARY: 0.05,
    CompactionLevel.RECENT: 0.05,
}


def levels_of(settings: Settings) -> Thresholds | Disorder:
    """Return the thresholds that the settings configure, or Disorder if they are not in order."""
    configured: dict[str, int] = {}
    for name in ORDER:
        if isinstance(value := settings.values.get(("compaction", name)), int):
            configured[name] = value
    return thresholds(configured)
