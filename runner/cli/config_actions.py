"""The actions of `agent config` and `agent init` after their arguments were parsed."""

import os
import sys
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

from policy.toml.lines import lines_of
from policy.toml.schema import KeyPath, dotted, value_type_of
from runner.agent.startup import RunArgs, with_options
from runner.config import Settings, load
from runner.config.edit import migrate_text, value_literal, with_value, without_key, write
from runner.config.lint import check_file, check_here
from runner.config.load import WHOSE, files, settings_bytes
from runner.config.read_layer import as_text
from runner.config.schema import SHAPES, Key, key_of
from runner.config.settings import ConfigError, ConfigLayer
from runner.config.show import as_json as plain
from runner.config.show import entries, list_keys, listing, near, no_key, origins, packaged_values, split, value_json
from runner.config.toml_value import toml
from runner.config.trust.widening import condense_notices
from runner.gate.gate import folder
from runner.problems import Exit, usage
from runner.secrets.redactor import masked
from runner.secrets.secret import register_environment
from runner.state import paths as places
from runner.state.workspace import workspace_at
from runner.stderr import say
from runner.text.json_line import json_line
from runner.text.phrases import many
from runner.text.sanitize import visible


def run_show(key: str | None, args: RunArgs, *, effective: bool, as_json: bool) -> int:
    """Print the settings in force with the options of a session, and return the exit code."""
    where = folder(args.cwd)
    settings = with_options(_load(where, args.config, unattended=args.unattended), args)
    found, lists = list_keys(settings, key), entries(settings, key)
    alone = key is not None and len(found) == 1 and ".".join(found[0].path) == key.replace('"', "") and not lists
    if as_json:
        _print(json_line(plain(settings, found, lists)))
    elif alone and not effective:
        value = found[0].value
        if value is None:
            return Exit.FAILED

        _print(visible(value) if isinstance(value, str) else toml(value))  # type: ignore[arg-type]  # as TOML reads it
    else:
        shown = listing(found, lists, effective=effective, written=_near(where), cut=os.isatty(1))
        _print(shown or visible(f"# {key} has no entries", lines=False))
    sys.stdout.flush()
    for notice in condense_notices(settings):
        say(f"agent: {visible(notice, lines=False)}")
    return Exit.FAILED if alone and found[0].value is None else Exit.DONE


def run_get(name: str, *, as_json: bool, config: str | None, cwd: str | None) -> int:
    """Print the value of one key and return the exit code, which is FAILED if the key is not set."""
    settings = _load(folder(cwd), config)
    found = [each for each in list_keys(settings, name) if each.path == split(name)]
    if not found:  # the name of a table or of a list
        fix = f"name one key, or see `agent config show {name}`"
        raise usage(f"`{name}` is not one key", "it is a table of keys, or a list of entries", fix)
    (key,) = found
    if as_json:
        _print(json_line({"key": dotted(key.path), **value_json(key)}))
    elif key.value is None:
        say(f"agent: `{dotted(key.path)}` is not set")
    else:
        _print(visible(key.value) if isinstance(key.value, str) else toml(key.value))  # type: ignore[arg-type]  # as TOML reads it
    return Exit.FAILED if key.value is None else Exit.DONE


def run_check(file: str | None, *, as_json: bool, config: str | None, cwd: str | None) -> int:
    """Print every fault of one file, or of all layers for None, and return the exit code."""

    if file is not None:
        found = check_file(Path(file))
    else:
        where = folder(cwd)
        found = check_here(where, os.environ, config=Path(config) if config else None, trusted=_trusted(where))
    if as_json:
        faults = [asdict(fault) for fault in found.faults]
        _print(
            json_line(
                {
                    "sources": list(found.sources),
                    "faults": faults,
                    "warnings": list(found.warnings),
                    "notices": list(found.notices),
                }
            )
        )
    else:
        warned = (f"warning: {each}" for each in found.warnings)
        for line in (*map(str, found.faults), *warned, *(f"notice: {notice}" for notice in found.notices)):
            _print(visible(line, lines=False))
        count, idle = len(found.faults), len(found.notices)
        summary = many(count, "fault") if count else "no faults"
        if idle and not count:
            summary = f"no faults, but {idle} {'entry has' if idle == 1 else 'entries have'} no effect"
        _print(visible(f"{', '.join(found.sources) or 'no configuration file'}: {summary}", lines=False))
    return Exit.USAGE if found.faults else Exit.DONE


def run_path(*, as_json: bool, config: str | None, cwd: str | None) -> int:
    """Print the paths of the files and return the exit code."""
    layers = files(folder(cwd), os.environ, config=Path(config) if config else None)
    if as_json:
        _print(json_line({str(layer): {"path": str(path), "there": os.path.lexists(path)} for layer, path in layers}))
        return Exit.DONE
    for layer, path in layers:
        there = "" if os.path.lexists(path) else "  (does not exist)"
        _print(f"{layer:<8} {visible(str(path), lines=False)}{there}")
    return Exit.DONE


def run_set(name: str, words: list[str], *, project: bool, local: bool, cwd: str | None) -> int:
    """Set one key in one file and return the exit code."""

    key, path = _key(name)
    literal = value_literal(key, words)
    file, layer = _file(project, local, cwd)
    text = _text(file, layer)
    new = with_value(text, path, literal)
    write(file, new, own=not layer.came_along)
    if layer is ConfigLayer.LOCAL:
        _ignore(file.parent)
    print(visible(f"{_near_path(file, cwd)}:{lines_of(new).get(path, 1)}: {dotted(path)} = {literal}", lines=False))
    try:
        settings = _load(folder(cwd), None)
    except ConfigError as error:  # the key was written, but the configuration has another fault
        say(f"agent: {visible(error.problem.what)}: {visible(error.problem.why)}; `agent config check` lists all")
        return Exit.DONE
    places = origins(settings)[path]
    winner = next(origin for origin in reversed(places) if not origin.ignored)
    if any(origin.ignored and origin.source == str(file) for origin in places):
        say("agent: the value is ignored until you trust the project, because it allows more (see `agent trust`)")
    elif winner.source != str(file) and not key.adds:
        say(f"agent: {winner} overrides this value here")
    return Exit.DONE


def run_unset(name: str, *, project: bool, local: bool, cwd: str | None) -> int:
    """Remove one key from one file and return the exit code."""

    _, path = _key(name)
    file, layer = _file(project, local, cwd)
    new = without_key(_text(file, layer), path)
    if new is None:
        raise usage(f"`{name}` is not set", f"`{file}` has no such key", f"see `agent config show {name} --effective`")
    write(file, new, own=not layer.came_along)
    print(visible(f"{_near_path(file, cwd)}: {dotted(path)} removed", lines=False))
    return Exit.DONE


def run_migrate(file: str | None, *, dry: bool, cwd: str | None) -> int:
    """Rewrite one file, or all files for None, in the current format and return the exit code."""

    wanted = [(ConfigLayer.NAMED, Path(file))] if file is not None else files(folder(cwd), os.environ)
    for layer, path in wanted:
        if layer is ConfigLayer.SYSTEM and os.geteuid() != 0:
            continue
        text = _text(path, layer, there=file is not None)
        if not text:
            continue
        new = migrate_text(text)
        if new == text:
            print(visible(f"{_near_path(path, cwd)}: already in the current format", lines=False))
        elif dry:
            print(visible(new), end="")
        else:
            write(path, new, own=not layer.came_along)
            print(visible(f"{_near_path(path, cwd)}: rewritten", lines=False))
    return Exit.DONE


def run_init(*, user: bool, force: bool, cwd: str | None) -> int:
    """Write a first configuration file and return the exit code."""
    from runner.config.json_schema import FILE, shipped_schema
    from runner.config.template import starter

    where = folder(cwd)
    path = places.config_dir(os.environ) / "config.toml" if user else _workspace(where) / ".ringfence" / "config.toml"
    write(path, starter(packaged_values(), user=user), own=user, new=not force)
    write(path.parent / FILE, shipped_schema(), own=user)
    advice = "written; edit it, then run `agent config check`"
    print(visible(f"{_near_path(path, cwd)}: {advice}", lines=False))
    if not user:
        _ignore(path.parent)
    return Exit.DONE


def _print(text: str) -> None:
    """Print `text` with secrets masked: the caller's shell may have replaced a variable by a secret."""
    register_environment(os.environ)
    print(masked(text))


def _ignore(folder: Path) -> None:
    """Add config.local.toml to the `.gitignore` in `folder`."""

    path = folder / ".gitignore"
    text = _text(path, ConfigLayer.PROJECT)
    if "config.local.toml" not in text.split("\n"):
        end = "" if not text or text.endswith("\n") else "\n"
        write(path, f"{text}{end}config.local.toml\n", own=False)


def _near(where: Path) -> dict[str, str]:
    """Return the beginnings of paths that are shortened for display, with their short forms."""
    return {f"{_workspace(where)}/": "", f"{places.home(os.environ)}/": "~/"}


def _near_path(path: Path, cwd: str | None) -> str:

    return near(str(path), _near(folder(cwd)))


def _workspace(where: Path) -> Path:
    return Path(workspace_at(os.path.realpath(where), os.environ))


def _load(where: Path, config: str | None, *, unattended: bool = False) -> Settings:
    named = Path(config) if config else None
    return load(where, os.environ, config=named, unattended=unattended, trusted=None if unattended else _trusted(where))


def _trusted(where: Path) -> Mapping[str, str]:
    from runner.config.trust.cached import remembered

    return remembered(str(where), os.environ)


def _key(name: str) -> tuple[Key, KeyPath]:

    path = split(name)
    if value_type_of(path, SHAPES) is None:
        raise no_key(name)
    return key_of(path), path


def _file(project: bool, local: bool, cwd: str | None) -> tuple[Path, ConfigLayer]:
    if project and local:
        raise usage("--project and --local exclude each other", "one file is changed at a time", "omit one")
    wanted = ConfigLayer.PROJECT if project else ConfigLayer.LOCAL if local else ConfigLayer.USER
    if wanted is ConfigLayer.USER:
        return places.config_dir(os.environ) / "config.toml", wanted
    found = dict(files(folder(cwd), os.environ)).get(wanted)
    if found is None:
        why = "your own configuration is stored in it"
        raise usage("this folder has no project file", why, "omit the option")
    return found, wanted


def _text(path: Path, layer: ConfigLayer, *, there: bool = False) -> str:
    data = settings_bytes(path, WHOSE.get(layer, "named"))
    if data is None and there:
        raise usage(f"`{path}` cannot be read", "there is no such file", "check the path")
    return "" if data is None else as_text(data, path)
