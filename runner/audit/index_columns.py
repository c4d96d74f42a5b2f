"""Index columns of a store: a few fields of a record's body, as text, by which the store selects records."""

from json import loads
from typing import NamedTuple


class IndexColumns(NamedTuple):
    """Index columns of one record. A column is None if the body has no such field.

    Attributes:
        name: of `session` and `ended` the session's id, of other kinds the field `sha256`
        rules: the rule of every reason, then the rule that decided
    """

    kind: str | None = None
    time: str | None = None
    session: str | None = None
    verdict: str | None = None
    mode: str | None = None
    tool: str | None = None
    tiers: list[str] | None = None
    rules: list[str] | None = None
    name: str | None = None
    decided: int | None = None


def index_columns_of(text: str) -> IndexColumns:
    """Return the index columns of a record's canonical text; empty columns if the text is not an object."""
    try:
        body = loads(text)
    except (ValueError, RecursionError):
        return IndexColumns()
    if not isinstance(body, dict):
        return IndexColumns()
    kind = _text(body.get("kind"))
    decided = body.get("decided")
    return IndexColumns(
        **{name: _text(body.get(name)) for name in ("time", "session", "verdict", "mode", "tool")},
        kind=kind,
        tiers=_texts(body.get("tiers")),
        rules=_rules(body),
        name=_text(body.get("session" if kind in ("session", "ended") else "sha256")),
        decided=decided if isinstance(decided, int) else None,
    )


def holdable(text: str) -> str:
    """Return the text as a database can store and query it: without NUL and lone surrogates."""
    return text.encode("utf-8", "replace").decode().replace("\0", "�")


def _text(value: object) -> str | None:
    return holdable(value) if isinstance(value, str) else None


def _texts(value: object) -> list[str] | None:
    return [holdable(str(item)) for item in value] if isinstance(value, list) else None


def _rules(body: dict[str, object]) -> list[str] | None:
    reasons = body.get("reasons")
    if not isinstance(reasons, list):
        return None
    every = [body.get("because"), *reasons]
    return list(dict.fromkeys(holdable(str(each.get("rule"))) for each in every if isinstance(each, dict)))
