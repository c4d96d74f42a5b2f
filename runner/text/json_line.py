"""The JSON output of commands: one thing is one object on one line, and a list is one line for each entry."""

import json
import time


def json_line(value: object) -> str:
    """Return `value` as JSON on one line of ASCII, without blanks between its parts."""
    return json.dumps(value, ensure_ascii=True, separators=(",", ":"))


def utc_time(seconds: float | None) -> str | None:
    """Return a time in seconds since 1970 in the form of all times in JSON: ISO 8601 in UTC, with milliseconds."""
    from datetime import UTC, datetime

    if seconds is None:
        return None
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def utc_now() -> str:
    """Return the current time in the form of all times in JSON."""
    return str(utc_time(time.time()))
