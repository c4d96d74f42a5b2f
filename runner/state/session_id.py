"""The form of the ID of a session, as a user may abbreviate it."""

from policy.model.glob import late

ID_RULE = "an ID has 4 to 16 characters, 0-9 and a-f"

_FORM = late("[0-9a-f]{4,16}")


def is_session_id(word: str) -> bool:
    """Return True if `word` can be the ID of a session, or the beginning of the ID."""
    return _FORM.fullmatch(word) is not None
