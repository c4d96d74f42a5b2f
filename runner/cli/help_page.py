"""The help page of `agent`, made in advance for an output without colours and with 80 columns.

Such an output is a pipe, a file, a script or another agent. Typer and rich make the page for every other output, which
takes 0.2 s of imports. `docs/make_help.py` writes the page (`make docs`), and a test compares it with that of typer.
"""

import os
import sys

COLUMNS = 80
PAGE = os.path.join(os.path.dirname(__file__), "help_page.txt")
# Environment variables by which typer or rich make another page, or print completions instead.
_OTHER_PAGE = (
    *("FORCE_COLOR", "GITHUB_ACTIONS", "PY_COLORS", "TERMINAL_WIDTH", "TTY_COMPATIBLE", "TYPER_USE_RICH"),
    *("_AGENT_COMPLETE", "_TYPER_FORCE_DISABLE_TERMINAL", "UNICODE_VERSION"),
)


def stored_page() -> str | None:
    """Return the page made in advance, or None if typer would print another page on this standard output."""
    if any(name in os.environ for name in _OTHER_PAGE) or sys.stdout.encoding.lower() != "utf-8":
        return None
    if os.isatty(1) or _columns() != COLUMNS:
        return None
    with open(PAGE, encoding="utf-8") as file:
        return file.read()


def _columns() -> int:
    """Return the width that rich uses: that of COLUMNS, else that of the first terminal among the standard streams."""
    named = os.environ.get("COLUMNS", "")
    if named.isdigit():
        return int(named) or COLUMNS
    for number in (0, 1, 2):
        try:
            return os.get_terminal_size(number).columns or COLUMNS
        except OSError:
            continue
    return COLUMNS
