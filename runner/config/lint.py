"""Check of the configuration for `agent config check`: all faults of all layers at once."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import date
from pathlib import Path

from policy.model.frozen import dataclass
from policy.permission.dead_rules import faults as rule_faults
from policy.permission.file import permissions
from policy.toml.schema import TomlDocument, TomlError
from runner.config.load import WHOSE, files, packaged, settings_bytes
from runner.config.merge import add_layer
from runner.config.read_layer import as_text, layer_values, read_all, read_variable
from runner.config.settings import ConfigError, ConfigLayer, LayerValues, Settings
from runner.config.show import origins
from runner.state.paths import ELSEWHERE, SYSTEM_FILE, setting_variables

MOST = 100  # faults of one file that are reported


@dataclass(frozen=True, slots=True)
class ConfigFault:
    """A fault to correct. `line` counts from 1; it is 0 if the fault is about no single line."""

    file: str
    line: int
    text: str
    fix: str

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}" if self.line else self.file
        return f"{place}: {self.text}" + (f" ({self.fix})" if self.fix else "")


@dataclass(frozen=True, slots=True)
class Checked:
    """The result of a check: the sources that were read, the faults, notices about entries without effect, and warnings
    about values that can be used.
    """

    sources: tuple[str, ...]
    faults: tuple[ConfigFault, ...]
    notices: tuple[str, ...]
    warnings: tuple[str, ...] = ()


def check_file(path: Path) -> Checked:
    """Check one file as a layer above the packaged settings.

    A file in a folder `.ringfence` is checked as a trusted file of a repository: it may widen, and settings that no
    repository may change have no effect.
    """
    came_along = path.absolute().parent.name == ".ringfence"
    return _check_layers([(ConfigLayer.NAMED, path)], {}, {}, came_along=came_along)


def check_here(
    cwd: Path,
    environ: Mapping[str, str],
    *,
    config: Path | None = None,
    trusted: Mapping[str, str] | None = None,
    system: Path = SYSTEM_FILE,
) -> Checked:
    """Check every layer of a session in `cwd`. The parameters are those of `load`. Raise PlaceError."""
    return _check_layers(files(cwd, environ, config=config, system=system), environ, trusted or {})


def _check_layers(
    layers: list[tuple[ConfigLayer, Path]],
    environ: Mapping[str, str],
    trusted: Mapping[str, str],
    *,
    came_along: bool = False,
) -> Checked:
    settings, found, sources = packaged(), [], []
    for layer, path in layers:
        try:
            data = settings_bytes(path, WHOSE.get(layer, "named"))
            if data is None and layer is ConfigLayer.NAMED:
                found.append(ConfigFault(str(path), 0, "there is no such file", "check the path"))
            if data is None:
                continue
            sources.append(str(path))
            text = as_text(data, path)
        except ConfigError as error:
            found.append(_fault_of(error))
            continue
        document, wrong = read_all(text, str(path), most=MOST + 1)
        faults = [_fault_of(error) for error in wrong]
        said = layer_values(document, data, path, layer, trusted)
        settings, more = _add(settings, replace(said, layer=ConfigLayer.PROJECT, trusted=True) if came_along else said)
        faults = sorted([*faults, *more], key=lambda fault: fault.line)
        if len(faults) > MOST:
            faults = [*faults[:MOST], ConfigFault(str(path), 0, f"only the first {MOST} faults are listed", "")]
        found += faults
    for name in setting_variables(environ):
        try:
            settings = add_layer(settings, read_variable(name, environ[name], ELSEWHERE))
            sources.append(name)
        except ConfigError as error:
            found.append(ConfigFault(name, 0, f"{error.problem.what}: {error.problem.why}", error.problem.fix))
    found += _level_faults(settings)
    found += _server_faults(settings)
    found += _web_faults(settings)
    return Checked(tuple(sources), tuple(found), settings.notices, tuple(_literal_keys(settings)))


def _web_faults(settings: Settings) -> Iterator[ConfigFault]:
    """Yield the fault of a search service that does not fit its address. The keys may be in several files."""
    if (wrong := settings.web_fault()) is None:
        return
    place = origins(settings)["web", "search"][-1]
    yield ConfigFault(
        place.source, place.line, f"`{settings.value('web', 'search')}` cannot be used: {wrong[0]}", wrong[1]
    )


def _server_faults(settings: Settings) -> Iterator[ConfigFault]:
    """Yield the faults of tool servers whose keys contradict each other. The keys may be in several files."""
    servers = settings.named("mcp")
    if not servers:
        return
    from runner.config.server_values import NARROWING, server_fault

    places = origins(settings)
    for name, values in servers.items():
        if values.keys() <= NARROWING or values.get("enabled") is False or not (wrong := server_fault(values)):
            continue
        key, (why, fix) = wrong
        place = places["mcp", name, key or next(iter(values))][-1]
        yield ConfigFault(
            place.source, place.line, f"`mcp.{name}{f'.{key}' if key else ''}` cannot be used: {why}", fix
        )


def _literal_keys(settings: Settings) -> Iterator[str]:
    """Yield a warning about each value of a tool server that looks like a key in plain text."""
    servers = settings.named("mcp")
    if not servers:
        return
    from runner.config.server_values import literal_keys

    places = origins(settings)
    for name, values in servers.items():
        for key, entry in literal_keys(values):
            what = f"`{entry}` of `mcp.{name}.{key}`" if entry else f"`mcp.{name}.{key}`"
            fix = "insert a variable of yours, as in `$TOKEN`" if entry else "move the key into `env` or `headers`"
            yield f"{places['mcp', name, key][-1]}: {what} looks like a key in plain text; {fix}"


def _level_faults(settings: Settings) -> list[ConfigFault]:
    """Return the fault of compaction levels that are never reached. The fault may concern several lines and files."""
    from runner.config.compaction_levels import Disorder, levels_of

    if not isinstance(found := levels_of(settings), Disorder):
        return []
    place, problem = origins(settings)["compaction", found.level][-1], found.problem
    return [ConfigFault(place.source, place.line, f"{problem.what}: {problem.why}", problem.fix)]


def _add(settings: Settings, given: LayerValues) -> tuple[Settings, list[ConfigFault]]:
    """Return the settings with the layer, without entries that cannot take effect, and the faults of these entries."""
    found, good = [], []
    for entry in given.document.entries:
        # `add_layer` decides whether a bound layer may contain the rule.
        document = TomlDocument(entry.source, "", {}, (entry,))
        wrong = [
            ConfigFault(entry.source, rule.ref.line, f"`[[rule]]` can never take effect: {fault.text}", fault.fix)
            for rule in permissions(document, ConfigLayer.NAMED.of_rules(trusted=True))
            if not rule.expired(date.today())
            for fault in rule_faults(rule, settings.rules, settings.profile)
        ]
        found += wrong
        if not wrong:
            good.append(entry)
    return add_layer(settings, replace(given, document=replace(given.document, entries=tuple(good)))), found


def _fault_of(error: ConfigError | TomlError) -> ConfigFault:
    return ConfigFault(error.source, error.line, f"{error.what}: {error.problem.why}", error.problem.fix)
