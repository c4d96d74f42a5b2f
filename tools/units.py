"""Numbers as people read them."""


def count(number: int, noun: str, nouns: str | None = None) -> str:
    """`1 line`, `2,000 lines`; `nouns` where an s does not make the plural."""
    return f"{number:,} {noun if number == 1 else nouns or noun + 's'}"


def size(number: int) -> str:
    """`340 bytes`, `1.2 KB`, `20.0 MB`: thousands are 1024."""
    if number < 1024:
        return count(number, "byte")
    amount, unit = number / 1024, "KB"
    for larger in ("MB", "GB", "TB"):
        if amount < 1024:
            break
        amount, unit = amount / 1024, larger
    return f"{amount:.1f} {unit}"


def seconds(number: float) -> str:
    """`0.4 s`, `12 s`."""
    return f"{number:.1f} s" if number < 10 else f"{number:.0f} s"
