"""Moments as people type them: `2h`, `yesterday`, `2026-03-04T05:06`; and as records spell them, in UTC."""

import re
from datetime import UTC, datetime, timedelta

from runner.problems import usage

_UNITS = {"s": 1, "min": 60, "m": 60, "h": 3600, "d": 86400, "w": 604800}
_DURATION = re.compile(r"([0-9]{1,9})\s*([a-z]+)")


def moment(text: str, option: str, now: datetime) -> str:
    """`2026-03-04T05:06:07.089Z`, in UTC. A duration counts back from `now`; a day stands for its beginning, and so do
    `today` and `yesterday`, in UTC as records have it; a time with an offset (`+02:00`) is converted.

    Raises a usage error for anything else, and for a time that records cannot have.
    """
    word = text.strip().lower()
    midnight = now.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    try:
        if word == "now":
            found = now
        elif word in ("today", "yesterday"):
            found = midnight - timedelta(days=word == "yesterday")
        elif (duration := _DURATION.fullmatch(word)) and duration[2] in _UNITS:
            found = now - timedelta(seconds=int(duration[1]) * _UNITS[duration[2]])
        else:
            found = datetime.fromisoformat(text.strip())
            found = found if found.tzinfo else found.replace(tzinfo=UTC)
        found = found.astimezone(UTC)
    except (ValueError, OverflowError):
        why = "a time is 30s, 15m, 2h, 7d, 2w (ago), now, today, yesterday, or a date as in 2026-03-04T05:06 (UTC)"
        raise usage(f"`{text}` is no time for {option}", why, f"try {option} 7d") from None
    return found.strftime("%Y-%m-%dT%H:%M:%S.") + f"{found.microsecond // 1000:03d}Z"
