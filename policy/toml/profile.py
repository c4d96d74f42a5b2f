"""The parser of a profile: TOML text to a Profile, strictly."""

import re
from collections.abc import Mapping
from typing import Any

from policy.model.frozen import fields, replace
from policy.model.glob import late
from policy.model.profile import Profile
from policy.model.verdict import Limits, ProblemError
from policy.toml.schema import KeyPath, TomlDocument, TomlError, Value, ValueType, read

LIMITS: Mapping[str, ValueType] = {
    "wall": ValueType.SECONDS,
    "cpu": ValueType.WHOLE_SECONDS,
    "pids": ValueType.WHOLE,
    "memory": ValueType.SIZE,
    "file": ValueType.SIZE,
    "open_files": ValueType.WHOLE,
    "disk": ValueType.SIZE,
    "output": ValueType.SIZE,
}

# fmt: off
_LISTS: Mapping[KeyPath, str] = {  # where it stands in the file -> the field of Profile
    ("secret", "home"):       "secret_home",
    ("secret", "paths"):      "secret_paths",
    ("secret", "names"):      "secret_names",
    ("secret", "public"):     "public_names",
    ("locked", "paths"):      "locked",
    ("system", "folders"):    "system",
    ("system", "etc"):        "etc",
    ("environment", "names"): "environment",
}
# fmt: on
_DENIED = ("deny", "commands")
_ABSOLUTE = {("secret", "paths"), ("system", "folders")}
_NAMES = {("secret", "names"), ("secret", "public"), ("environment", "names")}
_CREDENTIAL = late(r"TOKEN|SECRET|PASSW|CREDENTIAL|_KEY|APIKEY|AUTH(?!ORS?(?:_|\Z))|COOKIE|SESSION", re.IGNORECASE)


class ProfileError(ProblemError):
    """An error in the profile that keeps the program from running. `problem` names file, line and key."""


def parse_profile(text: str, source: str) -> Profile:
    """Return the profile that `text` states. Every list must be there. `source` is the name of the file for
    the user.
    """
    try:
        document = read(text, source, shapes())
        lists: dict[str, Any] = {field: _checked_list(document, path) for path, field in _LISTS.items()}
        denied = patterns(document.values.get(_DENIED, ()))
        if fault := patterns_fault(denied):
            raise document.error_at(_DENIED, *fault)
        return Profile(**lists, denied=denied, limits=limits(document.values, Limits()), permissions=())
    except TomlError as error:
        raise ProfileError(error.problem) from None


def shapes() -> dict[KeyPath, ValueType]:
    """Return the keys of a complete profile, each with the type of its value."""
    amounts: dict[KeyPath, ValueType] = {("limits", name): shape for name, shape in LIMITS.items()}
    return {**dict.fromkeys(_LISTS, ValueType.TEXTS), _DENIED: ValueType.PATTERNS, **amounts}


def _checked_list(document: TomlDocument, path: KeyPath) -> tuple[str, ...]:
    """Return the list at `path` after validating each entry. Raises TomlError."""
    if path not in document.values:
        why = "without this list, files or names could be unprotected without notice"
        fix = f"add `{path[-1]} = []` under `[{path[0]}]` if it is meant to be empty"
        raise TomlError(document.source, 0, f"`{'.'.join(path)}`", why, fix, fault="is missing")
    entries = texts(document.values[path])
    if fault := list_fault(entries, path):
        raise document.error_at(path, *fault)
    return tuple(dict.fromkeys(entries))


def list_fault(value: Value, path: KeyPath) -> tuple[str, str] | None:
    """Return the cause and the fix for the first invalid entry of the list at `path`, or None."""
    for entry in texts(value):
        if why := _fault(entry, path):
            return f"`{entry}` {why}", "correct or remove that entry"
    return None


def patterns(value: Value) -> tuple[tuple[str, ...], ...]:
    """Return `value` as a list of lists of words; `read` has checked the type."""
    return tuple(item for item in value if isinstance(item, tuple)) if isinstance(value, tuple) else ()


def patterns_fault(value: Value) -> tuple[str, str] | None:
    """Return the cause and the fix for the first pattern whose first word would match every program, or None."""
    for words in patterns(value):
        if not words[0].strip("*?"):
            why = f"the first word of {list(words)} would match every program"
            return why, "start the pattern with a program's name"
    return None


def limits(values: Mapping[KeyPath, Value], base: Limits) -> Limits:
    """Return `base` with the values of `[limits]` in place of its own."""
    given = {field.name: values.get(("limits", field.name)) for field in fields(Limits)}
    whole = {name: int(value) for name, value in given.items() if isinstance(value, int | float) and name != "wall"}
    wall = given["wall"]
    return replace(base, **whole, wall=float(wall) if isinstance(wall, int | float) else base.wall)


def texts(value: Value) -> tuple[str, ...]:
    """Return `value` as a list of texts; `read` has checked the type."""
    return tuple(item for item in value if isinstance(item, str)) if isinstance(value, tuple) else ()


def _fault(entry: str, path: KeyPath) -> str | None:
    words = [word for word in entry.split("/") if word]
    if "[" in entry or "]" in entry or "\0" in entry or "\n" in entry or not words:
        return "may contain only a name, `/`, `*` and `?`"
    if path == ("secret", "names") and len(words) == 2 and not any(char in words[0] for char in "*?"):
        words = words[1:]  # a folder, and a name in it
    if path in _NAMES and len(words) != 1:
        return "is a path, but this list takes names"
    if path == ("environment", "names"):
        return _name_fault(entry)
    if path not in _NAMES and (path in _ABSOLUTE) != entry.startswith("/"):
        return "must start with `/`" if path in _ABSOLUTE else "must not start with `/`"
    if "." in words or ".." in words or "~" in words:
        return "may not contain `.`, `..` or `~` as a part"
    if path not in (("secret", "public"),) and not "".join(words).strip("*?"):
        return "would match everything"
    return None


def names_credential(name: str) -> bool:
    """Return True if a variable with this name usually contains a credential."""
    return _CREDENTIAL.search(name) is not None


def _name_fault(entry: str) -> str | None:
    stem = entry[:-1] if entry.endswith("*") else entry
    if not stem.replace("_", "").isalnum() or not stem.isascii() or (stem != entry and len(stem) < 3):
        return "is not a variable name (a `*` at the end needs three letters or more before it)"
    if names_credential(entry):
        return "looks like a credential, and credentials never enter the sandbox"
    return None
