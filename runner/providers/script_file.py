"""The reader of the scripts that `runner/providers/scripted.py` describes. This module loads pydantic, which a program
that passes its own turns does not need.
"""

import json
import tomllib
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from policy.model.verdict import Problem
from runner.messages import Stop, ToolCall, Usage
from runner.providers.endpoint import SetupError
from runner.providers.scripted import Turn
from runner.text.model_text import parse_call
from runner.text.phrases import nearest, os_reason

SIZE_LIMIT = 16 << 20  # bytes


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class CallEntry(_Strict):
    name: str = Field(min_length=1)
    arguments: dict[str, object] | None = None
    raw: str | None = None


class UsageEntry(_Strict):
    input: int = Field(default=0, ge=0)
    output: int = Field(default=0, ge=0)
    cache_read: int = Field(default=0, ge=0)
    cache_write: int = Field(default=0, ge=0)


class PlainTurnEntry(_Strict):
    text: str = ""
    thinking: str = ""
    calls: list[CallEntry] = []
    stop: str | None = None
    usage: UsageEntry = UsageEntry()
    early: bool = False


class TurnEntry(PlainTurnEntry):
    when: str | None = None
    otherwise: PlainTurnEntry | None = None


class ScriptEntry(_Strict):
    turn: list[TurnEntry] = Field(min_length=1)


KEYS = sorted({*TurnEntry.model_fields, *CallEntry.model_fields, *UsageEntry.model_fields, *ScriptEntry.model_fields})

# Messages of pydantic, in the words of a script's author.
WORDS = {
    "missing": "is missing",
    "string_type": "is not text",
    "string_too_short": "is empty",
    "list_type": "is not a list",
    "too_short": "is empty",
    "dict_type": "is not a table",
    "model_type": "is not a table",
}


def read_script(path: Path) -> tuple[Turn, ...]:
    """Return the turns in the file. Raises SetupError, which names the file and the place in it."""
    try:
        entry = ScriptEntry.model_validate(_load(path))
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        raise _invalid(path, first["loc"], first["type"]) from None
    return tuple(_turn(path, number, entry) for number, entry in enumerate(entry.turn, start=1))


def _load(path: Path) -> object:
    try:
        with path.open("rb") as file:
            data = file.read(SIZE_LIMIT + 1)
    except (OSError, ValueError) as error:
        why = os_reason(error)
        raise _unread(path, why, "check the path; `scripted:FILE` is relative to the current folder") from None
    if len(data) > SIZE_LIMIT:
        raise _unread(path, f"it is larger than {SIZE_LIMIT >> 20} MiB", "split the script")
    try:
        match path.suffix.lower():
            case ".toml":
                return tomllib.loads(data.decode())
            case ".json":
                return json.loads(data)
    except UnicodeDecodeError:
        raise _unread(path, "it is not UTF-8 text", "save it as UTF-8") from None
    except (tomllib.TOMLDecodeError, json.JSONDecodeError) as error:
        why = str(error).lower()
        raise _unread(path, f"{path.suffix.lower().removeprefix('.')}: {why}", "correct the script") from None
    except (RecursionError, ValueError):
        raise _unread(path, "it has too deep nesting or too large numbers", "simplify it") from None
    raise _unread(path, "its name ends in neither `.toml` nor `.json`", "rename it")


def _turn(path: Path, number: int, entry: PlainTurnEntry) -> Turn:
    stop = None
    if entry.stop is not None:
        if entry.stop not in set(Stop):
            raise _unread(path, f"turn {number}: `stop` must be one of {', '.join(Stop)}", "use one of these")
        stop = Stop(entry.stop)
    calls = tuple(_call(path, number, call) for call in entry.calls)
    when, otherwise = None, None
    if isinstance(entry, TurnEntry):
        when = entry.when
        otherwise = _turn(path, number, entry.otherwise) if entry.otherwise is not None else None
        if otherwise is not None and when is None:
            raise _unread(path, f"turn {number}: `otherwise` can never be played without `when`", "add `when`")
    used = Usage(**entry.usage.model_dump())
    return Turn(entry.text, entry.thinking, calls, stop, when, otherwise, used, entry.early)


def _call(path: Path, number: int, entry: CallEntry) -> ToolCall:
    if entry.arguments is not None and entry.raw is not None:
        raise _unread(path, f"turn {number}: a call has both `arguments` and `raw`", "leave one of them out")
    if entry.raw is None:
        return ToolCall("", entry.name, entry.arguments or {})
    return parse_call("", entry.name, entry.raw)


def _invalid(path: Path, loc: tuple[int | str, ...], kind: str) -> SetupError:
    """Return the error for a place in the script such as `turn 2, calls 1`, and the key there."""
    words: list[str] = []
    for part in loc[:-1]:
        words += [str(part)] if isinstance(part, str) else [f"{words.pop() if words else 'entry'} {part + 1}"]
    start = f"{', '.join(words)}: " if words else ""
    key = str(loc[-1]) if loc else ""
    if kind == "extra_forbidden":
        if not words and key in TurnEntry.model_fields:
            return _unread(path, f"`{key}` is outside of a turn", f"move `{key}` below a line `[[turn]]`")
        fix = nearest(key, KEYS) or f"the keys are {', '.join(f'`{name}`' for name in KEYS)}"
        return _unread(path, f"{start}unknown key `{key}`", fix)
    complaint = WORDS.get(kind, "has a value of the wrong type")
    return _unread(path, f"{start}`{key}` {complaint}" if key else f"it {complaint}", "correct the script")


def _unread(path: Path, why: str, fix: str) -> SetupError:
    return SetupError(Problem(f"the script `{path}` cannot be used", why, fix))
