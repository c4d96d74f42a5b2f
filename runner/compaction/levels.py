"""How full the window may become before what is sent gets shorter, and how much of it then stays."""

from enum import StrEnum

from policy.record import dataclass


class Level(StrEnum):
    """What is done, gentlest first; the names are those of the settings and of the event."""

    TRIM = "trim"  # long results of old calls lose their middle
    ONE_LINE = "one-line"  # results of old calls become one line
    SUMMARY = "summary"  # old turns become notes, which the small model writes
    RECENT = "recent"  # only the latest turns stay beside the notes
    TRUNCATE = "truncate"  # whatever is left is cut, without asking anybody
    ASKED = "asked"  # the person wanted it: as SUMMARY, but all that is old


@dataclass(frozen=True, slots=True)
class Thresholds:
    """Per cent of what the window holds beside one answer, from which on each level is used."""

    trim: int = 70
    one_line: int = 80
    summary: int = 85
    recent: int = 90
    truncate: int = 95

    def reached(self, level: Level, used: float) -> bool:
        """Whether `used`, a part of 1, calls for `level`."""
        least = getattr(self, level.value.replace("-", "_"), None)
        return isinstance(least, int) and used * 100 >= least


# Part of the window that stays as it is, at the end of the conversation.
KEEPS = {
    Level.TRIM: 0.25,
    Level.ONE_LINE: 0.20,
    Level.SUMMARY: 0.25,
    Level.RECENT: 0.10,
    Level.TRUNCATE: 0.08,
    Level.ASKED: 0.05,
}
GAIN = 0.05  # of the window: less is not worth sending again what the provider has cached
