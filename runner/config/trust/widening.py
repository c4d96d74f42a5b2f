"""What a repository's configuration asks for and gets only from somebody who trusts it."""

from typing import TYPE_CHECKING

from policy.model.frozen import dataclass

if TYPE_CHECKING:
    from policy.toml.schema import TomlEntry
    from runner.config import Settings


@dataclass(frozen=True, slots=True)
class Widening:
    """One key, or one `[[list]]` entry, at `line` of `path`: `old` holds now, `new` would. As in TOML; untrusted."""

    path: str
    line: int
    key: str
    old: str
    new: str


def widenings(settings: "Settings", workspace: str, *, never: bool = False) -> tuple[Widening, ...]:
    """What `settings`, loaded without any trust, left out of the files of `workspace`, in the order of the text.

    With `never` what no repository may ever say, else what a yes would change: nothing is both.
    """
    from policy.toml.schema import dotted
    from runner.config.merge import entry_ignored, ignored, standing
    from runner.config.schema import Widens, key_of

    found = []
    for given in settings.layers:
        if not given.bound:
            continue
        path = given.keyed.source.removeprefix(f"{workspace.rstrip('/')}/")
        for key, value in given.keyed.values.items():
            if (key_of(key).widens is Widens.YOURS) is never and ignored(given, key) in settings.notices:
                now = standing(settings, key, key_of(key))
                old = "not set" if now is None else toml(now)
                found.append(Widening(path, given.keyed.line(key), dotted(key), old, toml(value)))
        for entry in given.keyed.entries:
            if not never and entry_ignored(entry) in settings.notices:
                found.append(Widening(path, entry.line, f"[[{entry.name}]]", "", _entry(entry)))
    return tuple(found)


def toml(value: object) -> str:
    """A value as somebody would write it into a file."""
    match value:
        case bool():
            return "true" if value else "false"
        case str():
            from json import dumps

            return dumps(value, ensure_ascii=False)
        case tuple():
            return f"[{', '.join(map(toml, value))}]"
        case float() if value == int(value):
            return str(int(value))
        case _:
            return str(value)


def _entry(entry: "TomlEntry") -> str:
    from policy.toml.schema import ValueType
    from runner.config.schema import list_of

    shapes = list_of(entry.name).keys
    return ", ".join(
        f"{key} = {_words(value) if shapes[key] is ValueType.WORDS else toml(value)}"
        for key, value in entry.values.items()
    )


def _words(value: object) -> str:
    """A list of words, where several in place of one stand in a list of their own."""
    if not isinstance(value, tuple):
        return toml(value)
    return toml(tuple(word[0] if isinstance(word, tuple) and len(word) == 1 else word for word in value))
