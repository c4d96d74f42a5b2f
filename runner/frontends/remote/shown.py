"""Events and records in the form that the page gets: without control characters, and without endless texts."""

from collections.abc import Mapping

from runner.text.sanitize import visible, visible_prose

LONGEST_TEXT = 24_000  # characters of one text; a phone shows no more of it usefully
MOST_ITEMS = 500  # entries of one list
_DEEPEST = 12  # levels of objects and lists
# Events with texts that no decision depends on: words of the model and of the user, and output. In every other text,
# each invisible character is spelled out.
_PROSE = frozenset({"text", "prompted", "output", "finished", "plan_proposed", "steered", "queued", "shown"})
# Events that ask for a decision. They are never cut: a hidden end must not be approved.
_WHOLE = frozenset({"question_asked", "pick_wanted", "input_wanted"})
# Events that the page does not show.
LEFT_OUT = frozenset({"thinking", "call_begun", "verdict"})


def shown_event(event: Mapping[str, object]) -> dict[str, object]:
    """Return a copy of an event in the form that the page gets."""
    prose, whole = event.get("type") in _PROSE, event.get("type") in _WHOLE
    return {str(name): shown(value, prose=prose, whole=whole) for name, value in event.items()}


def shown(value: object, level: int = 0, *, prose: bool = False, whole: bool = False) -> object:
    """Return a copy of a JSON value whose texts are safe to show. `prose` is for texts that no decision depends on, and
    `whole` for values of which nothing may be left out.

    THREAT T284: an invisible or reversing character could make a command look like another one. The page itself shows
    every text as text, never as markup.
    """
    if level > _DEEPEST:
        return "…"
    match value:
        case str():
            return _text(value, prose=prose, most=len(value) if whole else LONGEST_TEXT)
        case Mapping():
            items = list(value.items())
            items = items if whole else items[:MOST_ITEMS]
            return {
                visible(str(key), lines=False): shown(item, level + 1, prose=prose, whole=whole) for key, item in items
            }
        case list() | tuple():
            most = len(value) if whole else MOST_ITEMS
            listed = [shown(item, level + 1, prose=prose, whole=whole) for item in value[:most]]
            return [*listed, f"… {len(value) - most} more"] if len(value) > most else listed
        case bool() | int() | float() | None:
            return value
        case _:
            return str(value)


def _text(text: str, *, prose: bool, most: int) -> str:
    cut = text[:most]
    said = visible_prose(cut) if prose else visible(cut)
    left = len(text) - len(cut)
    return f"{said}\n… {left:,} more characters" if left else said
