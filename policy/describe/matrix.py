"""The permission matrix as text for `agent policy matrix`."""

from policy.model.tier import MATRIX, Mode, Tier

_NOTES = """\
A verdict is the strictest cell over all tiers of an action.
Without a user to ask (--unattended, no terminal) every `ask` is a `deny`.
accept-edits allows `write` for the file tools and plain file commands; any other write asks.
No mode, grant or approval lifts `secret` and `denied`.
A rule with the verdict `try` comes after an `allow` or an `ask`: the command runs on a copy, and at the end of the turn
you decide what to keep. It lifts no `deny`. No mode does this by itself."""


def rows() -> tuple[tuple[str, ...], ...]:
    """Return the table as words: a heading, then one row for each tier, in the order of the matrix."""
    heading = ("tier", *(mode.value for mode in Mode))
    return (heading, *((tier.label, *(MATRIX[tier][mode].name.lower() for mode in Mode)) for tier in MATRIX))


def table() -> str:
    """Return the whole page, ending in a newline."""
    assert set(MATRIX) == set(Tier)  # every tier must have a row
    widths = [max(map(len, column)) for column in zip(*rows(), strict=True)]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows()]
    rule = "  ".join("-" * width for width in widths)
    return "\n".join([lines[0], rule, *lines[1:], "", _NOTES, ""])
