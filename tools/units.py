"""Numbers in readable form."""


def count(number: int, noun: str, nouns: str | None = None) -> str:
    """Return `1 line` or `2,000 lines`; `nouns` is the plural if it is not formed with an s."""
    return f"{number:,} {noun if number == 1 else nouns or noun + 's'}"


def size(number: int) -> str:
    """Return `340 bytes`, `1.2 KB` or `20.0 MB`, in units of 1024."""
    if number < 1024:
        return count(number, "byte")
    amount, unit = number / 1024, "KB"
    for larger in ("MB", "GB", "TB"):
        if amount < 1024:
            break
        amount, unit = amount / 1024, larger
    return f"{amount:.1f} {unit}"


def seconds(number: float) -> str:
    """Return `0.4 s` or `12 s`."""
    return f"{number:.1f} s" if number < 10 else f"{number:.0f} s"
