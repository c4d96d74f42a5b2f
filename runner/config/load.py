"""The loader of all layers: packaged < system < user < project < local < `--config` < environment (< flags).

No file may be a pipe. Files of the system and the user must not be writable by every user, and files of a repository
must not be symbolic links.

Values are checked without a schema library, whose import would take longer than the whole of `agent exec`.
"""

import errno
import os
import stat
from collections.abc import Iterable, Mapping
from json import loads
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from zlib import adler32, crc32

import policy
import profiles
from policy.model.frozen import fields, replace
from policy.model.profile import Profile
from policy.model.tier import Mode
from policy.model.verdict import Limits, Problem, ProblemError
from policy.rules.rulebook import RuleBook
from runner.config.personal_settings import personal_patterns
from runner.config.settings import ConfigError, ConfigLayer, LayerValues, Settings
from runner.state import paths
from runner.state.paths import ELSEWHERE, LOCAL_FILE, PROJECT_FILE, SYSTEM_FILE, setting_variables
from runner.state.workspace import workspace_at, workspace_of
from sandbox.inside.regular_file import NotRegularError, open_regular, read_descriptor

if TYPE_CHECKING:  # most starts read no file of settings
    from policy.toml.schema import KeyPath, Value

Whose = Literal["system", "user", "repository", "named"]
_LARGEST = 1 << 20  # bytes of one configuration file
WHOSE: Mapping[ConfigLayer, Whose] = {
    ConfigLayer.SYSTEM: "system",
    ConfigLayer.USER: "user",
    ConfigLayer.PROJECT: "repository",
    ConfigLayer.LOCAL: "repository",
}


_OWN = (ConfigLayer.SYSTEM, ConfigLayer.USER)


def load(
    cwd: Path,
    environ: Mapping[str, str],
    *,
    config: Path | None = None,
    unattended: bool = False,
    trusted: Mapping[str, str] | None = None,
    repository: bool = True,
    system: Path = SYSTEM_FILE,
    own: Path | None = None,
) -> Settings:
    """Return all settings for a session in `cwd`. No folder is created. Raise ConfigError or paths.PlaceError.

    `config` is the file of `--config`. `system` is the file of the system. `own`, if not None, replaces the files of
    the system and the user.

    `trusted` maps files of the folder, by their path in the folder, to the SHA-256 in hex of the content that the user
    trusts. A file with exactly that content may set every key that a repository may set; any other file of the
    repository may only tighten.

    A repository's file that cannot be read is an error if a user is present to correct the file. If `unattended`, the
    error becomes a notice: the file could only have tightened, and a repository must not be able to prevent its check.
    Without `repository`, no file of the repository is read.
    """
    settings = packaged()
    try:
        for layer, path in files(cwd, environ, config=config, system=system):
            if layer.came_along and not repository:
                continue
            if own is not None and layer in _OWN:
                if layer is ConfigLayer.USER:
                    settings = _with_file(settings, layer, own, unattended, {}, named=True)
                continue
            settings = _with_file(settings, layer, path, unattended, trusted or {})
        for name in setting_variables(environ):
            from runner.config.merge import add_layer  # only if there is a variable
            from runner.config.read_layer import read_variable

            settings = add_layer(settings, read_variable(name, environ[name], ELSEWHERE))
    except ProblemError as error:
        raise _as_config_error(error) from None
    # THREAT T115: paths in the workspace that programs of the user run because of the user's own settings are locked.
    home = os.path.realpath(paths.home(environ))
    found = personal_patterns(workspace_of(os.path.realpath(cwd), home), home, environ)
    return replace(settings, profile=replace(settings.profile, personal=found)) if found else settings


def files(
    cwd: Path, environ: Mapping[str, str], *, config: Path | None = None, system: Path = SYSTEM_FILE
) -> list[tuple[ConfigLayer, Path]]:
    """Return the paths of the configuration files, existing or not, lowest layer first. Raise paths.PlaceError."""
    user = paths.config_file(environ)
    top = Path(workspace_at(os.path.realpath(cwd), environ))
    layers = [(ConfigLayer.SYSTEM, system), (ConfigLayer.USER, user)]
    if top / PROJECT_FILE != user:
        layers += [(ConfigLayer.PROJECT, top / PROJECT_FILE), (ConfigLayer.LOCAL, top / LOCAL_FILE)]
    return layers if config is None else [*layers, (ConfigLayer.NAMED, config)]


def shipped(config: Path | None = None) -> Settings:
    """Return the packaged settings with `config` as the only other layer, as on every machine. Raise ConfigError."""
    try:
        return packaged() if config is None else _with_file(packaged(), ConfigLayer.NAMED, config, False, {})
    except ProblemError as error:
        raise _as_config_error(error) from None


def _as_config_error(error: ProblemError) -> ProblemError:
    """Return the ConfigError for an error of a TOML text; another error as it is."""
    from policy.toml.schema import TomlError  # only for errors

    return ConfigError.of(error) if isinstance(error, TomlError) else error


def _with_file(
    settings: Settings,
    layer: ConfigLayer,
    path: Path,
    unattended: bool,
    trusted: Mapping[str, str],
    *,
    named: bool = False,
) -> Settings:
    """Add the settings of a file. A `named` file, whose path the user typed, must exist and may belong to any user."""
    named = named or layer is ConfigLayer.NAMED
    try:
        data = settings_bytes(path, "named" if named else WHOSE[layer])
        if data is None:
            if named:
                raise ConfigError.about(path, "there is no such file", "check the path", "cannot be read")
            return settings
        from runner.config.merge import add_layer  # only if there is a file
        from runner.config.read_layer import read_layer

        return add_layer(settings, read_layer(data, path, layer, trusted))
    except ProblemError as error:
        if not (layer.came_along and unattended and isinstance(_as_config_error(error), ConfigError)):
            raise
        notice = f"{error.problem.what}: {error.problem.why}; the configuration of the repository is ignored"
        return replace(settings, notices=(*settings.notices, notice))


def settings_bytes(path: Path, whose: Whose) -> bytes | None:
    """Return the content of a configuration file; None if the file does not exist. Raises ConfigError.

    Files of the system and the user may be links, but must pass `_require_owner`. A file named on the command line may
    have any owner. A repository's file must not be a link or be reached through a link, which
    could make the program read, or wait for, another file. The `path` of a repository's file is `REAL
    FOLDER/.ringfence/NAME`.
    """
    try:
        handle, found = _open_below(path) if whose == "repository" else open_regular(path, follow=True)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except NotRegularError:
        raise ConfigError.about(path, "it is not a plain file", "make it one, or remove it") from None
    except (OSError, ValueError) as error:
        link = whose == "repository" and os.path.islink(path)  # false where its folder cannot be entered
        why = "it is a link" if link else _reason(error)
        raise ConfigError.about(path, why, "make it a plain file that you may read, or remove it") from None
    try:
        if whose in ("system", "user"):
            _require_owner(path, found, whose)
        data = read_descriptor(handle, _LARGEST + 1)
    except OSError as error:
        raise ConfigError.about(path, _reason(error), "check its disk") from None
    finally:
        os.close(handle)
    if len(data) > _LARGEST:
        raise ConfigError.about(path, "it is longer than 1 MiB", "shorten it")
    return data


def _open_below(path: Path) -> tuple[int, os.stat_result]:
    """Open a file of the repository below the descriptor of its folder, so that no process can replace the folder."""
    try:
        folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENOTDIR) and path.parent.is_symlink():
            raise ConfigError.about(path, "its folder is a link", "make its folder a real one, or remove it") from None
        raise
    try:
        return open_regular(path.name, follow=False, dir_fd=folder)
    finally:
        os.close(folder)


def _require_owner(path: Path, found: os.stat_result, whose: Whose) -> None:
    """Raise ConfigError for a file of another owner, or one that every user may change or replace. The system's file
    must also not be writable by a group other than root's.
    """
    if found.st_mode & stat.S_IWOTH:
        raise ConfigError.about(path, "every user may write to it", f"check its content, then run `chmod o-w {path}`")
    if found.st_uid not in ((0,) if whose == "system" else (0, os.geteuid())):
        why = f"it belongs to another user (uid {found.st_uid})"
        raise ConfigError.about(
            path, why, f"run `chown root {path}`" if whose == "system" else "make yourself its owner, or remove it"
        )
    if whose == "system" and found.st_mode & stat.S_IWGRP and found.st_gid != 0:
        why = f"a group may write to it (gid {found.st_gid})"
        raise ConfigError.about(path, why, f"check its content, then run `chmod g-w {path}`")
    above = os.stat(path.parent)
    if above.st_mode & stat.S_IWOTH and not above.st_mode & stat.S_ISVTX:
        why = "every user may replace it, because its folder is writable"
        raise ConfigError.about(path, why, f"check its content, then run `chmod o-w {path.parent}`")


PACKAGED = "profiles/default.toml"


_kept: list[Settings] = []


def keep_packaged() -> None:
    """Let `packaged` return the same object from now on, for a process that stays and watches the files itself."""
    _kept[:] = [packaged()]


def packaged() -> Settings:
    """Return the packaged settings. Raise ConfigError if a file of the installation is missing or invalid."""
    if _kept:
        return _kept[0]
    try:
        text, files = packaged_files()
        prepared = _prepared(text, files)
        if prepared is None:
            from policy.toml.profile import parse_profile  # only if the prepared file is not that of these texts

            profile, rules = parse_profile(text, PACKAGED), RuleBook(files)
        else:
            profile, rules = _profile_of(prepared["profile"]), RuleBook(files, prepared["rules"])
    except ProblemError as error:  # of the profile or of a rule file
        raise ConfigError(error.problem) from None
    except OSError as error:
        why = f"`{error.filename}` cannot be read: {_reason(error)}"
        raise ConfigError(Problem("this installation is incomplete", why, "install ringfence again")) from None
    return Settings(profile=profile, rules=rules, sources=(PACKAGED,))


# The profile as JSON, and the places of the tables in the rule files, for exactly the packaged files. Parsing the files
# would take a seventh of a short command.
PREPARED = os.path.join(os.path.dirname(__file__), "packaged.json")


def packaged_files() -> tuple[str, dict[str, str]]:
    """Return the text of the packaged profile, and those of the rule files by name."""
    folder = os.path.join(os.path.dirname(str(policy.__file__)), "commands")
    names = sorted(name for name in os.listdir(folder) if name.endswith(".toml"))
    return packaged_text(), {name: _shipped(policy.__file__, f"commands/{name}") for name in names}


def prepare_packaged() -> dict[str, Any]:
    """Parse the packaged files and return the content of `packaged.json`. Raise ProfileError or RuleError."""
    from policy.toml.profile import parse_profile

    text, files = packaged_files()
    profile = parse_profile(text, PACKAGED)
    given = {each.name: getattr(profile, each.name) for each in fields(profile) if each.name in _PREPARED_FIELDS}
    limits = {each.name: getattr(profile.limits, each.name) for each in fields(profile.limits)}
    return {"digest": _digest(text, files), "profile": {**given, "limits": limits}, "rules": RuleBook(files).index()}


_PREPARED_FIELDS = (
    *("secret_home", "secret_paths", "secret_names", "public_names", "locked", "system", "etc", "environment"),
    "denied",
)


def _digest(text: str, files: Mapping[str, str]) -> str:
    parts = (text, *(part for each in files.items() for part in each))
    data = "\0".join(parts).encode("utf-8")
    # The files belong to this program: the sums tell which ones were edited, and need not resist anybody.
    return f"{len(data)}-{crc32(data):08x}{adler32(data):08x}"


def _prepared(text: str, files: Mapping[str, str]) -> dict[str, Any] | None:
    """Return the content of `packaged.json` if it was made from exactly these texts, else None."""
    try:
        with open(PREPARED, encoding="ascii") as file:
            found: dict[str, Any] = loads(file.read())
    except (OSError, ValueError):
        return None
    return found if found.get("digest") == _digest(text, files) else None


def _profile_of(given: dict[str, Any]) -> Profile:
    lists: dict[str, Any] = {name: tuple(given[name]) for name in _PREPARED_FIELDS}
    return Profile(**{**lists, "denied": tuple(map(tuple, given["denied"]))}, limits=Limits(**given["limits"]))


def _reason(error: Exception) -> str:
    from runner.text.phrases import os_reason  # only for errors

    return os_reason(error)


def packaged_text() -> str:
    """Return the text of the packaged profile."""
    return _shipped(profiles.__file__, "default.toml")


def _shipped(package: str | None, name: str) -> str:
    with open(os.path.join(os.path.dirname(str(package)), name), "rb", buffering=0) as file:
        return file.readall().decode("utf-8")


FlagSettings = Mapping["KeyPath", tuple[str, "Value"]]  # by path: the option and its value


def flag_settings(
    *,
    mode: Mode | None = None,
    model: str | None = None,
    fallback: str | None = None,
    max_turns: int | None = None,
    budget: "Iterable[tuple[str, str, Value]]" = (),
    least: str | None = None,
    unix: bool = False,
    no_instructions: bool = False,
    tools: tuple[str, ...] = (),
    no_tools: tuple[str, ...] = (),
    limits: Iterable[str] = (),
    timeout: str | None = None,
    total: Limits | None = None,
) -> FlagSettings:
    """Return the settings that the options of a command line set. Raise a usage error for an invalid fallback model.

    `limits` are the values of `--limit NAME=VALUE`, and `total` are all limits in force with them. `budget` has name,
    option and value of each limit of a run.
    """
    rows: list[tuple[KeyPath, str, Value | None]] = [
        (("mode",), "--mode", mode and mode.value),
        (("model",), "--model", model),
        (("fallback_model",), "--fallback-model", None if fallback is None else _fallback_model(fallback)),
        (("max_turns",), "--max-turns", max_turns),
        *((("budget", name), option, value) for name, option, value in budget),
        (("sandbox", "minimum"), "--require" if least == "full" else "--accept-partial", least),
        (("sandbox", "unix_sockets"), "--unix", unix or None),
        (("instructions",), "--no-instructions", False if no_instructions else None),
        (("tools", "only"), "--tools", tools or None),
        (("tools", "except"), "--no-tools", no_tools or None),
    ]
    found = {path: (option, value) for path, option, value in rows if value is not None}
    names = [(each.partition("=")[0].strip().replace("-", "_"), "--limit") for each in limits]
    if timeout is not None:
        names.append(("wall", "--timeout"))
    for name, option in names if total else ():
        found[("limits", name)] = (option, getattr(total, name))
    return found


def _fallback_model(model: str) -> str:
    """Return the fallback model. Raises Stopped now, rather than when the model is needed, if the text names no
    known provider.
    """
    from runner.config.schema import PROVIDERS
    from runner.config.validators import model_of
    from runner.problems import usage

    if (fault := model_of(PROVIDERS)(model)) is not None:
        raise usage(f"`{model}` cannot be the fallback model", *fault)
    return model


def with_flags(settings: Settings, flags: FlagSettings) -> Settings:
    """Return `settings` with the options as the last layer, for `Settings.value` and `origins`. Typed fields such as
    `mode` are not changed.
    """
    if not flags:
        return settings
    values = {path: value for path, (_, value) in flags.items()}
    options = tuple((path, option) for path, (option, _) in flags.items())
    from policy.toml.schema import TomlDocument

    given = LayerValues(ConfigLayer.FLAGS, TomlDocument("options", "", values), flags=options)
    return replace(settings, values={**settings.values, **values}, layers=(*settings.layers, given))
