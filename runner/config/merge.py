"""The merge of one layer into the settings. A layer of the repository may only tighten until its content is trusted."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import date

from policy.model.profile import PermissionRule, Profile, narrow
from policy.model.tier import Mode
from policy.model.verdict import Problem
from policy.permission.dead_rules import faults
from policy.permission.file import permissions
from policy.toml.profile import limits, patterns, texts
from policy.toml.schema import KeyPath, TomlDocument, TomlEntry, Value
from runner.config.credential_table import credentials
from runner.config.schema import Key, Widens, key_of, list_of
from runner.config.settings import ConfigError, IgnoredSetting, LayerValues, SettingNotice, Settings
from sandbox.backend import Level, NetworkOptions


def add_layer(settings: Settings, given: LayerValues) -> Settings:
    """Return `settings` with one more layer. Raise TomlError, or ConfigError for a rule that can never take effect."""
    document = given.document
    if not given.layer.came_along:
        settings = _without_servers_of_repository(settings, servers_in(document.values))
    owned = _own_servers(settings) if given.layer.came_along else frozenset()
    values, notices, left_out = dict(settings.values), [], []
    for path, value in document.values.items():
        key = key_of(path)
        if path[0] == "mcp" and path[1] in owned and not key.tightens(value, current_value(settings, path, key)):
            notices.append(_ignored(given, path, never=True, owned=True))
            left_out.append(path)
            continue
        yours = key.widens is Widens.YOURS and given.layer.came_along
        if yours or (given.bound and not key.tightens(value, current_value(settings, path, key))):
            notices.append(_ignored(given, path, never=key.widens is Widens.YOURS))
            left_out.append(path)
            continue
        values[path] = _added(values.get(path), value) if key.adds else value
    lists = []
    for entry in document.entries:
        if given.bound and not list_of(entry.name).stays(entry):
            notices.append(_ignored(given, entry=entry))
        else:
            lists.append(entry)
    rules, expired = _rules(replace(document, entries=tuple(lists)), given, settings)
    profile = _profile(settings.profile, document.values, values, rules)
    lent = [entry for entry in (*settings.lists, *lists) if entry.name == "credential"]
    if lent:
        profile = replace(profile, credentials=credentials(lent))
    if given.bound:
        profile = narrow(settings.profile, profile)  # a second check, in case the table of keys is wrong
    return replace(
        _typed(settings, values),
        profile=profile,
        values=values,
        lists=(*settings.lists, *lists),
        layers=(*settings.layers, replace(given, left_out=frozenset(left_out)) if left_out else given),
        sources=(*settings.sources, document.source),
        notices=(*settings.notices, *expired, *notices),
    )


def current_value(settings: Settings, path: KeyPath, key: Key) -> Value | None:
    """Return the value of a key in force: the configured value, the packaged value, or the default; None without
    any.
    """
    if path in settings.values:
        return settings.values[path]
    if path[0] == "limits":
        found: float = getattr(settings.profile.limits, path[1])
        return found
    return key.default


def servers_in(paths: Iterable[KeyPath]) -> frozenset[str]:
    """Return the names of the tool servers that these keys are about."""
    return frozenset(path[1] for path in paths if path[0] == "mcp")


def _own_servers(settings: Settings) -> frozenset[str]:
    """Return the names of the tool servers that files of the user or the system configure.

    THREAT T180: a repository cannot combine its command with the variables and rights of the user's server, even if it
    is trusted. It can only switch such a server off, or leave out tools.
    """
    own = (given.document.values for given in settings.layers if not given.layer.came_along)
    return frozenset(name for values in own for name in servers_in(values))


def _without_servers_of_repository(settings: Settings, names: frozenset[str]) -> Settings:
    """Return `settings` without what the repository sets for the servers `names`, which a later file configures."""
    values, notices, layers = dict(settings.values), [], []
    for given in settings.layers if names else ():
        lost = [
            path
            for path in given.document.values
            if given.layer.came_along and path[0] == "mcp" and path[1] in names and path not in given.left_out
            if key_of(path).widens is not Widens.TIGHTEN
        ]
        for path in lost:
            values.pop(path, None)
            notices.append(_ignored(given, path, never=True, owned=True))
        layers.append(replace(given, left_out=given.left_out | frozenset(lost)) if lost else given)
    if not notices:
        return settings
    return replace(settings, values=values, notices=(*settings.notices, *notices), layers=tuple(layers))


def _ignored(
    given: LayerValues,
    path: KeyPath = (),
    *,
    entry: TomlEntry | None = None,
    never: bool = False,
    owned: bool = False,
) -> SettingNotice:
    """Return the notice about a key or an entry of a repository that has no effect."""
    if entry is None:
        why = "settings of the repository may only tighten yours"
        why = "no repository may set it, even if it is trusted" if never else why
        why = f"a file of yours configures the server `{path[1]}`" if owned else why
    elif entry.name == "rule":
        why = "a rule of the repository may ask and deny, but not allow"
    else:
        why = "the repository may not set it"
    document, setting = given.document, IgnoredSetting(given, path, entry, never)
    line = document.line(path) if entry is None else entry.line
    return SettingNotice(document.source, line, f"`{setting.name}` is ignored: {why}", setting)


def _added(before: Value | None, value: Value) -> Value:
    """Return the entries of both lists without duplicates; `value` alone if one of them is no list."""
    if isinstance(before, tuple) and isinstance(value, tuple):
        return tuple(dict.fromkeys((*before, *value)))
    return value


def _rules(
    document: TomlDocument, given: LayerValues, settings: Settings
) -> tuple[tuple[PermissionRule, ...], list[SettingNotice]]:
    """Return the rules of one layer, and notices about expired rules.

    A rule that can never take effect is an error, because its author relies on the rule.
    """
    if not document.entries:
        return (), []
    today, gone = date.today(), []
    found = permissions(document, given.layer.of_rules(given.trusted))
    for rule in found:
        if rule.expired(today):
            gone.append(SettingNotice(rule.ref.id, rule.ref.line, f"the rule expired: its last day was {rule.until}"))
        elif fault := next(faults(rule, settings.rules, settings.profile), None):
            what = "`[[rule]]` can never take effect"
            problem = Problem(f"{rule.ref}: {what}", fault.text, fault.fix)
            raise ConfigError(problem, source=rule.ref.id, line=rule.ref.line, what=what)
    return found, gone


def _profile(
    base: Profile, said: Mapping[KeyPath, Value], values: Mapping[KeyPath, Value], rules: tuple[PermissionRule, ...]
) -> Profile:
    names, denied = texts(values.get(("secret", "names"), ())), patterns(values.get(("deny", "commands"), ()))
    return replace(
        base,
        unix_sockets=bool(values.get(("sandbox", "unix_sockets"), base.unix_sockets)),
        authority=str(values.get(("sandbox", "network", "certificate_authority"), base.authority)),
        secret_names=tuple(dict.fromkeys((*base.secret_names, *names))),
        denied=tuple(dict.fromkeys((*base.denied, *denied))),
        limits=limits({path: value for path, value in values.items() if path in said}, base.limits),
        permissions=(*base.permissions, *rules),
    )


def _typed(settings: Settings, values: Mapping[KeyPath, Value]) -> Settings:
    """Return `settings` with the typed fields set from `values`."""
    said = {".".join(path): value for path, value in values.items()}
    of_provider = [(path, str(value)) for path, value in values.items() if path[0] == "provider"]
    container = {path[2]: str(value) for path, value in values.items() if path[:2] == ("sandbox", "container")}
    proxy, translated = said.get("sandbox.network.upstream_proxy"), said.get("sandbox.network.translated_ranges", ())
    network = NetworkOptions(str(proxy or ""), texts(translated)) if proxy or translated else settings.network
    turns, model = said.get("max_turns"), said.get("model")
    return replace(
        settings,
        mode=Mode(str(said["mode"])) if "mode" in said else None,
        model=str(model) if model is not None else None,
        max_turns=turns if isinstance(turns, int) else None,
        base_urls={path[1]: value.rstrip("/") for path, value in of_provider if path[2] == "base_url"},
        models={path[1]: value for path, value in of_provider if path[2] == "model"},
        sandbox_minimum=Level(str(said["sandbox.minimum"]).upper()) if "sandbox.minimum" in said else Level.FULL,
        container=replace(settings.container, **container),
        network=network,
    )
