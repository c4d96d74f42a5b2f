"""The plan of an import: the tables that would be written, and what is not taken over."""

from collections.abc import Iterable, Mapping

from policy.model.frozen import dataclass
from policy.toml.schema import Value
from runner.config.schema import key_of
from runner.config.server_values import fitting_name, literal_keys, name_fault, pairs_in
from runner.config.serverfiles.foreign_server import ForeignServer
from runner.config.toml_value import value_toml
from runner.mcp.importers.sources import ServerSource


@dataclass(frozen=True, slots=True)
class PlannedServer:
    """One server of another client.

    Attributes:
        name: The name here.
        source: The file of the other client.
        literals: The values of `[mcp.NAME]` as TOML, by key; empty if the server is not imported.
        notes: Sentences about what is not taken over, and why.
    """

    name: str
    source: str
    literals: Mapping[str, str]
    notes: tuple[str, ...] = ()


def plan_import(sources: Iterable[ServerSource], existing: Iterable[str]) -> tuple[PlannedServer, ...]:
    """Return what an import of `sources` would do for a user who has servers with the names `existing`."""
    taken = {name.casefold(): "you have a server with this name" for name in existing}
    planned = []
    for source in sources:
        for server in source.servers:
            one = _planned(server, source.label, taken)
            if one.literals:
                taken[one.name.casefold()] = f"the one of {source.label} is imported"
            planned.append(one)
    return tuple(planned)


def _planned(server: ForeignServer, source: str, taken: Mapping[str, str]) -> PlannedServer:
    name, notes = server.name, list(server.left)
    if server.fault:
        return PlannedServer(name, source, {}, (f"not imported: {server.fault}",))
    if wrong := name_fault(name):
        name = fitting_name(name)
        notes.insert(0, f"it is called `{server.name}` there: {wrong[0]}")
    if earlier := taken.get(name.casefold()):
        return PlannedServer(name, source, {}, (f"not imported: {earlier}",))
    values, replaced = without_literal_keys(name, server.values)
    if values is None:
        why = "not imported: its command or address contains a key, which other users and logs could see"
        return PlannedServer(name, source, {}, (why,))
    return PlannedServer(name, source, as_literals(values), (*notes, *replaced))


def without_literal_keys(
    server: str, values: Mapping[str, Value]
) -> tuple[Mapping[str, Value] | None, tuple[str, ...]]:
    """Return `values` with variables in place of keys in plain text, and a sentence about each; None if a key is in the
    command line or in the address.
    """
    changed, notes = dict(values), []
    for key, name in literal_keys(values):
        if not name:
            return None, ()
        variable = name if key == "env" else _variable(server, name)
        pairs = pairs_in(changed[key])
        start = next((each for each in ("Bearer ", "Basic ", "token ") if dict(pairs)[name].startswith(each)), "")
        changed[key] = tuple((each, f"{start}${{{variable}}}" if each == name else text) for each, text in pairs)
        notes.append(f"`{name}` of `{key}` looks like a key, and is not copied: set the variable `{variable}`")
    return changed, tuple(notes)


def _variable(server: str, header: str) -> str:
    text = "".join(char if char.isalnum() else "_" for char in f"{server}_{header}").upper()
    return f"_{text}" if text[0].isdigit() else text


def as_literals(values: Mapping[str, Value]) -> Mapping[str, str]:
    """Return the values of one `[mcp.NAME]` as TOML, by key, in the order of the table of keys."""
    from runner.config.schema import KEYS

    order = [key.path[2] for key in KEYS if key.path[0] == "mcp"]
    known = sorted(values, key=order.index)
    return {key: value_toml(values[key], key_of(("mcp", "x", key)).shape) for key in known}
