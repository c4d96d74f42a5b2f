"""The commented file that `agent init` writes, made from the table of keys."""

from collections.abc import Iterator, Mapping

from policy.toml.schema import KeyPath, Value, ValueType
from runner.config.json_schema import FILE as SCHEMA
from runner.config.migrations import VERSION
from runner.config.schema import KEYS, LISTS, SECTIONS, Key, TableList, Widens
from runner.config.toml_value import amount, toml

_USER = ("Your configuration of ringfence, for all projects.",)
_PROJECT = (
    "The configuration of ringfence for all users of this project. It can only tighten the configuration of a user",
    "until that user trusts exactly this content. Your own settings for this project belong into config.local.toml.",
)
_ONLY_USER = (Widens.NEVER, Widens.YOURS)
_ALL = (
    "Each line with a `#` shows the default value, or an example. `agent config check` checks this file, and",
    "`agent config show --effective` prints the values in effect and the files that set them.",
)


def starter(packaged: Mapping[KeyPath, Value], *, user: bool) -> str:
    """Return the text of a new file of the user, or of a project without `user`. `packaged` are the packaged values."""
    rows = [f"#:schema ./{SCHEMA}", *(f"# {line}" for line in (*(_USER if user else _PROJECT), *_ALL))]
    rows += ["", f"version = {VERSION}"]
    keys = [key for key in KEYS if key.path != ("version",) and (user or key.widens not in _ONLY_USER)]
    told: set[str] = set()
    for table in dict.fromkeys(key.path[:-1] for key in sorted(keys, key=lambda key: len(key.path) > 1)):
        rows += _table(table, [key for key in keys if key.path[:-1] == table], packaged, told)
    for each in LISTS:
        if user or each.widens not in _ONLY_USER:
            rows += _list(each)
    if not user:
        left = [key.name for key in KEYS if key.widens is Widens.NEVER]
        # In backticks, so that no line looks like the header of a table.
        left += [f"`[[{each.name}]]`" for each in LISTS if each.widens is Widens.NEVER]
        rows += ["", "# Keys for the own file of each user (or to trust):", *_wrapped(left)]
    return "\n".join(rows) + "\n"


def _table(path: KeyPath, keys: list[Key], packaged: Mapping[KeyPath, Value], told: set[str]) -> Iterator[str]:
    yield ""
    if path:
        about = SECTIONS.get(".".join(path)) or SECTIONS.get(path[0], "")
        if about not in (*told, ""):
            yield f"# {about}"
            told.add(about)
        any_name = "*" in path
        yield ("# " if any_name else "") + f"[{'.'.join('NAME' if word == '*' else word for word in path)}]"
    for key in keys:
        choices = f": {', '.join(key.choices)}" if key.choices else ""
        yield f"# {key.help[:1].upper()}{key.help[1:]}{choices}."
        yield f"# {key.path[-1]} = {example_of(key, packaged)}"


def example_of(key: Key, packaged: Mapping[KeyPath, Value]) -> str:
    """Return the packaged or default value of a key as TOML, or the example of a key without one or of a list."""
    value = packaged.get(key.path, key.default)
    if key.adds or value is None:
        return key.example
    return toml(amount(value) if key.shape is ValueType.SIZE and isinstance(value, int) else value)


def _list(table: TableList) -> Iterator[str]:
    yield ""
    yield f"# {table.help[:1].upper()}{table.help[1:]}."
    yield f"# [[{table.name}]]"
    for line in table.example.split("\n"):
        yield f"# {line}"


def _wrapped(names: list[str]) -> list[str]:
    rows, at = [], "#"
    for name in names:
        if len(at) + len(name) > 110:
            rows.append(at)
            at = "#"
        at += f" {name}," if name != names[-1] else f" {name}"
    return [*rows, at]
