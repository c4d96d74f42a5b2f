"""Display form of a command in a card: every character is visible, and the relevant words are marked.

THREAT: the author of a command may want it to look like another one. Beside the characters that `visible` spells out, a
carriage return and long runs of blanks, which push a tail off the screen, are spelled out here.
"""

import re
from collections.abc import Iterable

from policy.model.assessment import Reason
from policy.model.tier import Tier
from runner.events import Mark
from runner.text.sanitize import spelled, visible

_TAB = "    "
_MOST_SPANS = 400  # of one command; whatever has more is marked where it is worst
_BLANKS = re.compile(r" {24,}")


def safe(text: str) -> str:
    """Return `text` in a form that is safe to print in a card. Newlines stay."""
    return text if text.isascii() and text.isprintable() else "".join(_spelled(text))


def safe_line(text: str) -> str:
    """Return `text` in a form that is safe to print, on one line."""
    return "".join(visible(char, lines=False) if char == "\n" else char for char in safe(text))


def marked(script: str, reasons: Iterable[Reason]) -> tuple[str, tuple[Mark, ...]]:
    """Return the script in a safe form, with marks on the words that `reasons` point at. If two marks overlap, the
    worse tier counts.
    """
    spans = sorted((each for each in reasons if each.span is not None), key=lambda each: -each.tier)[:_MOST_SPANS]
    level: list[Tier | None] = [None] * len(script)
    for reason in reversed(spans):
        if reason.span is not None:
            start, end = max(reason.span.start, 0), min(reason.span.end, len(script))
            level[start:end] = [reason.tier] * max(end - start, 0)
    shown = _spelled(script)
    marks: list[Mark] = []
    place, at = 0, 0
    while at < len(shown):
        end = at
        while end < len(shown) and level[end] is level[at]:
            end += 1
        piece = "".join(shown[at:end])
        tier = level[at]
        if tier is not None and piece.strip():
            marks.append(Mark(place, place + len(piece), tier, piece))
        place += len(piece)
        at = end
    return "".join(shown), tuple(marks)


def _spelled(text: str) -> list[str]:
    """Return the display form of each character, with tabs as blanks."""
    return [_TAB if char == "\t" else shown for char, shown in zip(text, spelled(text), strict=True)]


def squeezed(text: str) -> str:
    """Replace long runs of blanks by their count, so that nothing is hidden behind them."""
    return _BLANKS.sub(lambda run: f"⟨{len(run[0])} blanks⟩", text)
