"""Phrases of messages: counts with their nouns, reasons of the system, and suggestions for mistyped names."""

from collections.abc import Iterable


def many(count: int, noun: str) -> str:
    """Return a count with its noun: `1 file`, `2 files`. For nouns that take an s."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def os_reason(error: Exception) -> str:
    """Return the reason of a failed operation on a file, as a part of a sentence that is never empty.

    A ValueError is the error of Python for a path with a NUL or with characters that cannot be encoded.
    """
    if isinstance(error, OSError) and error.strerror:
        return error.strerror.lower()
    return "its name is not valid" if isinstance(error, ValueError) else str(error) or "the system refused it"


def nearest(text: str, names: Iterable[str], *, cutoff: float = 0.6) -> str | None:
    """Return a suggestion with the name most similar to `text`, or None if no name is similar."""
    found = similar(text, names, cutoff=cutoff)
    return f"did you mean `{found[0]}`?" if found else None


def similar(text: str, names: Iterable[str], *, most: int = 1, cutoff: float = 0.6) -> list[str]:
    """Return at most `most` names similar to `text`, the most similar first. The case of letters does not count.

    `cutoff` is the least similarity, from 0 to 1.
    """
    import difflib  # only for error messages

    spelled = {name.casefold(): name for name in names}
    return [spelled[each] for each in difflib.get_close_matches(text.casefold(), spelled, n=most, cutoff=cutoff)]
