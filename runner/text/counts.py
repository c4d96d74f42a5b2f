"""Counts in words."""


def many(count: int, noun: str) -> str:
    """Return a count with its noun: `1 file`, `2 files`. For nouns that take an s."""
    return f"{count} {noun}{'' if count == 1 else 's'}"
