"""Settings that a repository requests and gets only from a user who trusts it."""

from typing import TYPE_CHECKING

from policy.model.frozen import dataclass

if TYPE_CHECKING:
    from policy.toml.schema import TomlEntry
    from runner.config import Settings


@dataclass(frozen=True, slots=True)
class Widening:
    """One requested change of a key or of a `[[list]]` entry. The texts are untrusted.

    Attributes:
        path: the file.
        line: the line.
        key: the key or the list.
        old: value in force, as TOML.
        new: requested value, as TOML.
    """

    path: str
    line: int
    key: str
    old: str
    new: str


def widenings(settings: "Settings", workspace: str, *, never: bool = False) -> tuple[Widening, ...]:
    """Return what `settings`, loaded without any trust, left out of the files of `workspace`, in the order of the text.

    With `never`, return what no repository may change; otherwise what an approval would change. Nothing is in both.
    """
    from policy.toml.schema import dotted
    from runner.config.merge import entry_ignored, ignored, standing
    from runner.config.schema import Widens, key_of

    found = []
    for given in settings.layers:
        if not given.bound:
            continue
        path = given.document.source.removeprefix(f"{workspace.rstrip('/')}/")
        for key, value in given.document.values.items():
            if (key_of(key).widens is Widens.YOURS) is never and ignored(given, key) in settings.notices:
                now = standing(settings, key, key_of(key))
                old = "not set" if now is None else toml(now)
                found.append(Widening(path, given.document.line(key), dotted(key), old, toml(value)))
        for entry in given.document.entries:
            if not never and entry_ignored(entry) in settings.notices:
                found.append(Widening(path, entry.line, f"[[{entry.name}]]", "", _entry(entry)))
    return tuple(found)


def toml(value: object) -> str:
    """Return a value as TOML."""
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
    """Return a list of words as TOML. Alternatives for one word are a list in the list."""
    if not isinstance(value, tuple):
        return toml(value)
    return toml(tuple(word[0] if isinstance(word, tuple) and len(word) == 1 else word for word in value))
