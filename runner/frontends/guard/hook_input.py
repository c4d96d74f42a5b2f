"""Checked access to the JSON object that an agent sends to its hook."""

import os

from runner.frontends.guard.call import LONGEST_INPUT, UnreadableCallError


def parse_input(data: bytes) -> dict[str, object]:
    """Return the JSON object in `data`. Raise UnreadableCallError for anything else.

    THREAT T193: a text in which a name is given twice is refused, because the agent may use the other value.
    """
    from runner.text.strict_json import parse_strictly

    if len(data) > LONGEST_INPUT:
        raise UnreadableCallError(f"the input of the hook is longer than {LONGEST_INPUT >> 20} MiB")
    try:
        found = parse_strictly(data.decode())
    except (ValueError, RecursionError) as error:
        raise UnreadableCallError(f"the input of the hook is not valid JSON: {error}") from None
    if not isinstance(found, dict):
        raise UnreadableCallError("the input of the hook is not a JSON object")
    return found


def text(source: dict[str, object], name: str, *, default: str | None = None) -> str:
    """Return the text in field `name`. Without it, return `default`, or raise UnreadableCallError if that is None."""
    value = source.get(name)
    if isinstance(value, str):
        return value
    if value is None and default is not None:
        return default
    raise UnreadableCallError(f"the field `{name}` of the hook input is {'missing' if value is None else 'no text'}")


def table(source: dict[str, object], name: str) -> dict[str, object]:
    """Return the object in field `name`; empty if it is missing. Raise UnreadableCallError for another value."""
    value = source.get(name)
    if value is None:
        return {}
    if isinstance(value, dict):
        return value
    raise UnreadableCallError(f"the field `{name}` of the hook input is not an object")


def folder(source: dict[str, object], name: str = "cwd") -> str:
    """Return the absolute path in field `name`. Without the field, return the folder of this process."""
    found = text(source, name, default="") or os.getcwd()
    if not found.startswith("/") or "\0" in found:
        raise UnreadableCallError(f"the field `{name}` of the hook input is not an absolute path")
    return found


def absolute(path: str, cwd: str) -> str:
    """Return `path` as an absolute path: `~` is the home of the user, other paths count from `cwd`."""
    if "\0" in path:
        raise UnreadableCallError("a path in the hook input contains a NUL character")
    if path == "~" or path.startswith("~/"):
        path = os.path.expanduser(path)
    return os.path.normpath(os.path.join(cwd, path))
