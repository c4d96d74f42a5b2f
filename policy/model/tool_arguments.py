"""Arguments of tool calls: the canonical JSON form in actions, and what conditions of rules compare with it."""

import json
import re
from collections.abc import Mapping

from policy.model.action import Action, CallServerTool, FetchAddress, ReadServerResource, SearchWeb, SpawnAgent

_LONGEST = 1 << 20  # characters
# A part of a path that every program reads as one name: no separator of lists, no variable, no quoting and no pattern.
_NAME = re.compile(r"[\w.@+-]+")
_SITE = re.compile(r"https?://[a-z0-9.-]+(?::[0-9]{1,5})?/", re.ASCII)
_OF_PAGE = re.compile(r"[!-\[\]-~]*")  # visible ASCII without the backslash


def canonical(arguments: Mapping[str, object]) -> str:
    """Return `arguments` as JSON in ASCII with sorted keys and without blanks. Raises ValueError for a value that JSON
    cannot express.
    """
    return canonical_value(arguments)


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


def argument_values(action: Action) -> Mapping[str, object] | None:
    """Return the arguments of a tool call by their names. Return None if they cannot be read, or if rules have no
    conditions on such actions. A prompt is no argument: no pattern can tell what a text asks for.
    """
    match action:
        case CallServerTool():
            return parsed(action.arguments)
        case ReadServerResource():
            return {"uri": action.uri}
        case SpawnAgent():
            return {"agent": action.agent, "mode": action.mode}
        case FetchAddress():
            return {"url": action.url}
        case SearchWeb():
            return {"query": action.query, "provider": action.provider}
        case _:
            return None


def argument_texts(values: Mapping[str, object]) -> Mapping[str, tuple[str, ...] | None]:
    """Return the spellings of each of the arguments `values`: None for one that is not a text, number, true or false.

    A number without a fraction has two spellings, `1` and `1.0`, because servers read both as the same number.
    """
    return {name: _spellings(value) for name, value in values.items()}


def canonical_value(value: object) -> str:
    """Return one value as JSON in the form of `canonical`. Raises ValueError for a value that JSON cannot express."""
    return json.dumps(value, ensure_ascii=True, allow_nan=False, sort_keys=True, separators=(",", ":"))


def value_text(value: str) -> str:
    """Return a canonical value as text for the user: JSON with the letters of all languages, if each can be seen."""
    shown = json.dumps(json.loads(value), ensure_ascii=False, sort_keys=True)
    return shown if shown.isprintable() else value


def bounds_folder(folder: str) -> bool:
    """Return True if `folder` can bound the values of an argument: a path of at least one name, or the start of all
    addresses of one host, each with a `/` at its end.
    """
    if "://" in folder:
        return _SITE.fullmatch(folder) is not None
    names = folder.removeprefix("/").removesuffix("/").split("/")
    plain = folder.isprintable() and not {"*", "?", "\\"} & set(folder) and names[0][:1] not in ("~", "$", "-")
    return folder.endswith("/") and plain and not {"", ".", ".."} & set(names)


def below_folder(value: object, folder: str) -> bool:
    """Return True if `value` is certainly the path `folder`, a path below it, or a list of such paths. For an address,
    `folder` is the start of all addresses of one host.

    THREAT T201: programs read a path in different ways, so every name after `folder` has plain characters only: no
    `..`, no second path after a comma or blank, no escapes, and no character that becomes `/` or `.` in another
    normal form.
    """
    if isinstance(value, list):
        return bool(value) and all(isinstance(each, str) and below_folder(each, folder) for each in value)
    if not isinstance(value, str):
        return False
    if value == folder.removesuffix("/") and "://" not in folder:
        return True
    if not value.startswith(folder):
        return False
    rest = value[len(folder) :]
    if "://" in folder:
        return _OF_PAGE.fullmatch(rest) is not None
    names = rest.removesuffix("/").split("/") if rest else []
    if not all(_NAME.fullmatch(name) and ".." not in name and name != "." for name in names):
        return False
    if rest.isascii():
        return True
    from unicodedata import is_normalized  # only for names with other letters than those of ASCII

    return is_normalized("NFKC", rest)


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
