"""Counts in words."""


def many(count: int, noun: str) -> str:
    """`1 file`, `2 files`: for nouns that take an s."""
    return f"{count} {noun}{'' if count == 1 else 's'}"
