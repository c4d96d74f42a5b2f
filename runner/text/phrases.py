"""Phrases of messages: counts with their nouns, reasons of the system, and suggestions for mistyped names."""


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


def nearest(text: str, names: list[str]) -> str | None:
    """Return a suggestion with the name most similar to `text`, or None if no name is similar."""
    import difflib

    spelled = {name.casefold(): name for name in names}
    matches = difflib.get_close_matches(text.casefold(), spelled, n=1)
    return f"did you mean `{spelled[matches[0]]}`?" if matches else None
