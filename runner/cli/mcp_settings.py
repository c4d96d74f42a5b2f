"""The actions of `agent mcp list`, `show`, `add`, `remove` and `import` after their arguments were parsed."""

import os
import shlex
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from policy.model.frozen import dataclass
from policy.model.profile import Layer
from policy.model.verdict import ProblemError
from policy.toml.schema import KeyPath, TomlError, Value, dotted, parse
from runner.config.edit import with_table, with_value, without_table, write
from runner.config.inventory import EntryKind
from runner.config.load import WHOSE, files, load, settings_bytes
from runner.config.read_layer import as_text, read_all
from runner.config.schema import key_of
from runner.config.server_values import literal_keys, name_fault, pairs_in, server_fault, texts_in
from runner.config.settings import ConfigError, ConfigLayer
from runner.config.trust.session_check import look_at
from runner.gate.gate import folder
from runner.mcp.configured import ConfiguredServers, find_servers, names_of, servers_here
from runner.mcp.importers.plan import PlannedServer, as_literals, plan_import
from runner.mcp.importers.sources import CLIENTS, client_sources, file_source
from runner.mcp.pins import PinStore
from runner.mcp.server_config import ServerConfig
from runner.problems import Exit, Stopped, usage
from runner.secrets.redactor import masked
from runner.secrets.secret import register_environment
from runner.state import paths as places
from runner.state.workspace import workspace_at
from runner.stderr import say, say_notice
from runner.text.json_line import json_line
from runner.text.phrases import many
from runner.text.sanitize import visible


def known_names() -> tuple[str, ...]:
    """Return the names of the configured servers, for completion; nothing if the configuration cannot be read."""
    try:
        return tuple(names_of(servers_here(folder(None), os.environ)))
    except (ProblemError, Stopped, OSError):
        return ()


def run_list(*, as_json: bool, config: str | None, cwd: str | None) -> int:
    """Print the servers and return the exit code."""
    found = _servers(config, cwd)
    wide = max((len(name) for name in names_of(found)), default=0)
    for each in found.servers:
        state = "on" if each.enabled else "off"
        if as_json:
            print(json_line(_as_json(each, state)))
        else:
            print(masked(_line(f"{each.name:<{wide}}  {state:<5}  {each.layer:<10}  {address_of(each)}")))
    for fault in found.faults:
        if as_json:
            print(json_line(_fault_json(fault.name, fault.place, str(fault))))
        else:
            print(masked(_line(f"{fault.name:<{wide}}  fault  {fault}")))
    untrusted = _untrusted(folder(cwd), found)
    for each in untrusted.servers:
        if as_json:
            print(json_line(_as_json(each, "untrusted")))
        else:
            print(masked(_line(f"{each.name:<{wide}}  {_UNTRUSTED}: {each.place}: {address_of(each)}")))
    for fault in untrusted.faults:
        if as_json:
            print(json_line({**_fault_json(fault.name, fault.place, str(fault)), "state": "untrusted"}))
        else:
            print(masked(_line(f"{fault.name:<{wide}}  {_UNTRUSTED}, and a fault: {fault}")))
    if not as_json and not (*found.servers, *found.faults, *untrusted.servers, *untrusted.faults):
        print("there are no tool servers; `agent mcp add` configures one")
    return Exit.DONE


_UNTRUSTED = "not trusted, see `agent trust`"


def _untrusted(where: Path, found: ConfiguredServers) -> ConfiguredServers:
    """Return the servers of the repository that would be there if the user trusted it."""
    workspace = workspace_at(str(where), os.environ)
    inventory = look_at(workspace, str(where), os.environ)
    trusted = inventory.hashes(EntryKind.CONFIGURATION)
    if not trusted and not inventory.hashes(EntryKind.SERVERS):
        return ConfiguredServers()
    settings = load(where, os.environ, unattended=True, trusted=trusted)
    home = os.path.realpath(places.home(os.environ))
    everything = find_servers(settings, workspace, os.environ, home, inventory)
    known = set(names_of(found))
    return ConfiguredServers(
        tuple(each for each in everything.servers if each.layer is Layer.TRUSTED and each.name not in known),
        tuple(each for each in everything.faults if each.name not in known),
    )


def run_server_show(name: str, *, as_json: bool, config: str | None, cwd: str | None) -> int:
    """Print the settings of one server in words and return the exit code."""
    found = _servers(config, cwd)
    for fault in found.faults:
        if fault.name == name:
            raise Stopped(fault.problem, Exit.USAGE)
    server = next((each for each in found.servers if each.name == name), None)
    if server is None:
        raise unknown_server(name, tuple(names_of(found)))
    if as_json:
        print(json_line(_settings_json(server)))
        return Exit.DONE
    rows = [(label, text) for label, text in _settings_rows(server) if text]
    for label, text in rows:
        print(masked(_line(f"{label:<10} {text}")))
    return Exit.DONE


def unknown_server(name: str, known: tuple[str, ...]) -> Stopped:
    """Return the usage error for a name that no server has."""
    from runner.text.phrases import nearest

    fix = nearest(name, known) or "`agent mcp list` shows the servers, and `agent mcp add` configures one"
    return usage(f"there is no tool server `{visible(name, lines=False)}`", "no table `[mcp.NAME]` has this name", fix)


def _settings_rows(server: ServerConfig) -> Iterator[tuple[str, str]]:
    yield "name", server.name
    yield "from", f"{server.place} ({server.layer})"
    yield "state", "on" if server.enabled else "off: no session starts it"
    if server.command:
        yield "starts", address_of(server)
        yield "in", server.cwd or "a folder of its own"
        yield "variables", ", ".join(name for name, _ in server.env) or "none of yours"
        yield "reads", ", ".join(server.read) or "only its own installation"
        yield "changes", ", ".join(server.write) or "only its own folder"
        yield "hosts", ", ".join(server.hosts) or "no network"
    else:
        yield "connects", f"{server.url} ({server.transport})"
        yield "headers", ", ".join(name for name, _ in server.headers)
    yield "tools", ", ".join(server.tools) or "all that it offers"
    yield "without", ", ".join(server.exclude_tools)
    yield "tiers", ", ".join(f"{pattern}: {tier}" for pattern, tier in server.tiers)
    yield "time limit", f"{server.timeout:g} s for a call"


def _settings_json(server: ServerConfig) -> dict[str, object]:
    return {
        **_as_json(server, "on" if server.enabled else "off"),
        "cwd": server.cwd or None,
        "variables": [name for name, _ in server.env],
        "headers": [name for name, _ in server.headers],
        "hosts": list(server.hosts),
        "read": list(server.read),
        "write": list(server.write),
        "tools": list(server.tools),
        "exclude_tools": list(server.exclude_tools),
        "tiers": dict(server.tiers),
        "timeout": server.timeout,
        "start_timeout": server.start_timeout,
    }


@dataclass(frozen=True, slots=True)
class AddArgs:
    """The arguments of `agent mcp add`, as typed."""

    name: str
    command: tuple[str, ...]
    env: tuple[str, ...]
    headers: tuple[str, ...]
    hosts: tuple[str, ...]
    read: tuple[str, ...]
    write: tuple[str, ...]
    url: str | None
    transport: str | None


def run_add(args: AddArgs, *, scope: str, cwd: str | None) -> int:
    """Write the table of one server and return the exit code. Raise a usage error for a value that cannot be used."""
    values = _typed(args)
    path, layer = _file(scope, cwd)
    text = _text(path, layer)
    exists = ("mcp", args.name) in _paths(text)
    if exists and not values.keys() <= _MORE:
        fix = f"`agent mcp remove {args.name}` removes it; or choose another name"
        raise usage(f"`{args.name}` cannot be added", f"{path} contains a server with this name", fix)
    _require_no_keys(values)
    if exists:
        found, _ = read_all(text, str(path), most=1)
        before = {at[2]: value for at, value in found.values.items() if at[:2] == ("mcp", args.name)}
        new, values = text, {**before, **{key: _more(before.get(key), value) for key, value in values.items()}}
        _require_good(args.name, values)
        for key, literal in as_literals(values).items():
            new = with_value(new, ("mcp", args.name, key), literal) if values[key] != before.get(key) else new
    else:
        _require_good(args.name, values)
        new = with_table(text, ("mcp", args.name), as_literals(values))
    _require_readable(new, path)
    write(path, new, own=layer is ConfigLayer.USER)
    _print_table(args.name, as_literals(values))
    say(f"agent: written to {visible(str(path), lines=False)}")
    if layer is ConfigLayer.PROJECT:
        say("agent: it is started only for users who trust the project (see `agent trust`), without their secrets")
    return Exit.DONE


_MORE = frozenset(("env", "headers", "hosts", "read", "write"))  # keys that a second `add` extends


def _more(before: Value | None, added: Value) -> Value:
    """Return a list or a table with more entries. An entry of a table replaces one with the same name."""
    if pairs_in(added):
        return tuple({**dict(pairs_in(before)), **dict(pairs_in(added))}.items())
    return tuple(dict.fromkeys((*texts_in(before), *texts_in(added))))


def _typed(args: AddArgs) -> dict[str, Value]:
    """Return the values of the table. Raise a usage error for words in a wrong form."""
    values: dict[str, Value] = {}
    words, url = list(args.command), args.url
    if url is None and len(words) == 1 and words[0].startswith(("https://", "http://")):
        url = words.pop()
    if words:
        values["command"] = words[0]
    if words[1:]:
        values["args"] = tuple(words[1:])
    if url is not None:
        values["url"] = url
    if args.transport is not None:
        values["transport"] = args.transport
    for key, given, sign in (("env", args.env, "="), ("headers", args.headers, ":")):
        if pairs := tuple(_pair(each, sign) for each in given):
            values[key] = pairs
    for key, texts in (("hosts", args.hosts), ("read", args.read), ("write", args.write)):
        if texts:
            values[key] = texts
    return values


def _pair(text: str, sign: str) -> tuple[str, str]:
    """Return the parts of NAME=VALUE or NAME:VALUE. Raise a usage error."""
    name, _, value = text.partition(sign)
    name, value = name.strip(), value.strip()
    if not name or not value:
        shown = masked(visible(name, lines=False))
        raise usage(f"`{shown}` is not NAME{sign}VALUE", "a part is missing", f"write it as NAME{sign}VALUE")
    return name, value


def _require_good(name: str, values: Mapping[str, Value]) -> None:
    """Raise a usage error for a name, a value or a combination that the configuration does not accept."""
    if wrong := name_fault(name):
        raise usage(f"`{visible(name, lines=False)}` cannot be added", *wrong)
    for key, value in values.items():
        row = key_of(("mcp", name, key))
        if wrong := row.fault(value):
            raise usage(f"`{key}` cannot be used", *wrong)
    if contradiction := server_fault(values):
        raise usage(f"`{name}` cannot be added", *contradiction[1])


def _require_no_keys(values: Mapping[str, Value]) -> None:
    """Raise a usage error for a key in plain text, which would be written into a file.

    The value may be a variable that the shell has inserted already.
    """
    register_environment(os.environ)
    literal = next(iter(literal_keys(values)), None)
    if literal is None:
        texts = [(key, text) for key in ("env", "headers", "args", "url") for text in texts_in(values.get(key))]
        literal = next(((key, "") for key, text in texts if masked(text) != text), None)
    if literal is None:
        return
    key, name = literal
    what = f"`{name}` of `{key}`" if name else f"`{key}`"
    why = "it contains what looks like a key, and this file must not contain keys"
    fix = "name a variable in single quotes, as in --env 'TOKEN=$TOKEN'; `pass` or a keyring can fill the variable"
    raise usage(f"{what} cannot be written", why, fix)


def run_remove(name: str, *, scope: str, cwd: str | None) -> int:
    """Remove the table of one server, forget its approval, and return the exit code."""
    path, layer = _file(scope, cwd)
    new = without_table(_text(path, layer), ("mcp", name))
    if new is None:
        found = servers_here(folder(cwd), os.environ)
        known = {each.name: each.place for each in found.faults} | {each.name: each.place for each in found.servers}
        if name not in known:
            raise unknown_server(name, tuple(names_of(found)))
        fix = f"change {known[name]}, or switch it off: `agent config set mcp.{name}.enabled false`"
        raise usage(f"`{name}` cannot be removed", f"{path} does not contain it", fix)
    write(path, new, own=layer is ConfigLayer.USER)
    print(f"removed: mcp.{name} from {visible(str(path), lines=False)}")
    store = PinStore(places.state_dir(os.environ), workspace_at(str(folder(cwd)), os.environ))
    if store.forget(ServerConfig(name, Layer.USER if layer is ConfigLayer.USER else Layer.REPOSITORY)):
        print(f"the approval of `{name}` is forgotten")
    return Exit.DONE


def run_import(source: str | None, *, dry_run: bool, as_json: bool, cwd: str | None) -> int:
    """Print the tables of an import, write them unless `dry_run`, and return the exit code."""
    where = folder(cwd)
    home = os.path.realpath(places.home(os.environ))
    if source is None or source in CLIENTS:
        clients = CLIENTS if source is None else (source,)
        workspace = workspace_at(str(where), os.environ)
        sources = [each for client in clients for each in client_sources(client, os.environ, home, workspace)]
    else:
        sources = [file_source(os.path.join(where, source))]
    path, layer = _file("user", cwd)
    text = _text(path, layer)
    planned = plan_import(sources, {each[1] for each in _paths(text) if each[:1] == ("mcp",) and len(each) > 1})
    tables = [each for each in planned if each.literals]
    for each in planned:
        if as_json:
            row = {"name": each.name, "source": each.source, "imported": bool(each.literals), "notes": list(each.notes)}
            print(json_line({**row, "table": {key: masked(text) for key, text in each.literals.items()}}))
        else:
            _print_planned(each)
    if not planned and not as_json:
        print("no client has a tool server" if source is None else f"{visible(source, lines=False)} has no tool server")
    if dry_run or not tables:
        return Exit.DONE
    for each in tables:
        text = with_table(text, ("mcp", each.name), each.literals)
    _require_readable(text, path)
    if os.isatty(0) and os.isatty(2) and not _agreed(f"write {many(len(tables), 'table')} to {path}? [y/N] "):
        say("agent: nothing was changed")
        return Exit.DONE
    write(path, text, own=True)
    say(f"agent: {many(len(tables), 'table')} written to {visible(str(path), lines=False)}")
    return Exit.DONE


def _agreed(question: str) -> bool:
    from runner.config.trust.prompt import typed_line

    try:
        return typed_line(visible(question, lines=False)).strip().lower() in ("y", "yes")
    except EOFError:
        return False


def _print_planned(each: PlannedServer) -> None:
    print(f"# from {_line(each.source)}")
    for note in each.notes:
        print(f"# {_line(each.name)}: {masked(_line(note))}")
    if each.literals:
        _print_table(each.name, each.literals)
    print()


def _print_table(name: str, literals: Mapping[str, str]) -> None:
    print(f"[{dotted(('mcp', name))}]")
    for key, literal in literals.items():
        print(masked(_line(f"{key} = {literal}")))


def _file(scope: str, cwd: str | None) -> tuple[Path, ConfigLayer]:
    """Return the file of a scope. Raise a usage error for another scope."""
    if scope == "user":
        return places.config_dir(os.environ) / "config.toml", ConfigLayer.USER
    if scope != "project":
        raise usage(f"`{visible(scope, lines=False)}` is not a scope", "there are two", "write `user` or `project`")
    found = dict(files(folder(cwd), os.environ)).get(ConfigLayer.PROJECT)
    if found is None:
        raise usage("this folder has no project file", "your own configuration is stored in it", "omit the option")
    return found, ConfigLayer.PROJECT


def _text(path: Path, layer: ConfigLayer) -> str:
    data = settings_bytes(path, WHOSE[layer])
    return "" if data is None else as_text(data, path)


def _paths(text: str) -> Iterable[KeyPath]:
    """Return the paths of all keys and tables of a file. Raise ConfigError for a text that is no TOML."""
    try:
        document = parse(text, "the file")
    except TomlError as error:
        raise ConfigError.of(error) from None
    mcp = document.get("mcp")
    return [("mcp", str(name)) for name in mcp] if isinstance(mcp, dict) else []


def _require_readable(text: str, path: Path) -> None:
    """Raise the first fault that the new content of a file would have."""
    _, faults = read_all(text, str(path), most=1)
    if faults:
        raise ConfigError.of(faults[0])


def address_of(server: ServerConfig) -> str:
    """Return the complete command line of a server on this machine, or the address of a remote server."""
    return shlex.join(server.argv) if server.command else server.url


def _servers(config: str | None, cwd: str | None) -> ConfiguredServers:
    found = servers_here(folder(cwd), os.environ, config=Path(config) if config else None)
    for notice in found.notices:
        say_notice(notice)
    return found


def _as_json(server: ServerConfig, state: str) -> dict[str, object]:
    return {
        "name": server.name,
        "state": state,
        "layer": str(server.layer),
        "place": server.place,
        "transport": server.transport,
        "command": list(map(masked, server.argv)),
        "url": masked(server.url) or None,
        "fault": None,
    }


def _fault_json(name: str, place: str, why: str) -> dict[str, object]:
    blank: dict[str, object] = dict.fromkeys(("layer", "transport", "url"))
    return {"name": name, "state": "fault", **blank, "place": place, "command": [], "fault": masked(why)}


def _line(text: str) -> str:
    return visible(text, lines=False)
