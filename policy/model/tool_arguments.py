"""Arguments of tool calls: the canonical JSON form in actions, and the texts with which conditions of rules compare."""

import json
from collections.abc import Mapping

from policy.model.action import Action, CallServerTool, FetchAddress, ReadServerResource, SearchWeb, SpawnAgent

_LONGEST = 1 << 20  # characters


def canonical(arguments: Mapping[str, object]) -> str:
    """Return `arguments` as JSON in ASCII with sorted keys and without blanks. Raises ValueError for a value that JSON
    cannot express.
    """
    return json.dumps(arguments, ensure_ascii=True, allow_nan=False, sort_keys=True, separators=(",", ":"))


def parsed(text: str) -> dict[str, object] | None:
    """Return the JSON object that `text` is the canonical form of, or None for any other text.

    THREAT T146: programs disagree about which of two equal keys counts, so a text with both is not canonical.
    """
    if len(text) > _LONGEST:
        return None
    try:
        found = json.loads(text)
        return found if isinstance(found, dict) and canonical(found) == text else None
    except (ValueError, RecursionError):
        return None


def argument_texts(action: Action) -> Mapping[str, tuple[str, ...] | None] | None:
    """Return the spellings of each argument of a tool call by its name: None for one that is not a text, number, true
    or false. Return None if the arguments cannot be read, or if rules have no conditions on such actions.

    A number without a fraction has two spellings, `1` and `1.0`, because servers read both as the same number. A prompt
    is no argument: no pattern can tell what a text asks for.
    """
    match action:
        case CallServerTool():
            found = parsed(action.arguments)
            return {name: _spellings(value) for name, value in found.items()} if found is not None else None
        case ReadServerResource():
            return {"uri": (action.uri,)}
        case SpawnAgent():
            return {"agent": (action.agent,), "mode": (action.mode,)}
        case FetchAddress():
            return {"url": (action.url,)}
        case SearchWeb():
            return {"query": (action.query,), "provider": (action.provider,)}
        case _:
            return None


def _spellings(value: object) -> tuple[str, ...] | None:
    match value:
        case str():
            return (value,)
        case bool():
            return ("true" if value else "false",)
        case int():
            return (str(value), f"{value}.0")
        case float():
            written = json.dumps(value)
            return (written, str(int(value))) if value.is_integer() else (written,)
        case _:
            return None
