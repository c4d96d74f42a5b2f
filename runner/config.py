"""Settings from all their layers: packaged < user < project (may only tighten) < `--config` < environment.

The keys are few and checked by hand: a schema library would cost more start-up time than the whole of `agent exec`.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from pathlib import Path

import policy
import profiles
from policy.keyed import Keyed, KeyedError, Shape, read, value_of
from policy.keyed import Path as KeyPath
from policy.matrix import Ruling
from policy.narrow import lower, narrow, no_looser
from policy.permission.rule import Layer, PermissionRule
from policy.profile import Profile
from policy.profile_file import LIMITS, ProfileError, check_list, denied, limits, parse_profile
from policy.record import dataclass
from policy.rules import RuleBook, RuleError
from policy.tier import Mode
from policy.verdict import Problem
from runner import places
from runner.settings_file import ConfigError as ConfigError
from runner.settings_file import settings_text
from runner.workspace import workspace_of
from sandbox.backend import Level
from sandbox.container.choice import Choice

PROJECT_FILE = ".ringfence/config.toml"

# As in runner/providers, whose import would cost more than reading all settings.
REMOTE = ("anthropic", "openai")  # those that have an address
_PROVIDERS = (*REMOTE, "scripted")

# fmt: off
_SHAPES: dict[KeyPath, Shape] = {
    ("mode",):                      Shape.TEXT,
    ("model",):                     Shape.TEXT,
    ("max_turns",):                 Shape.WHOLE,
    **{("provider", name, key): Shape.TEXT for name in REMOTE for key in ("base_url", "model")},
    ("sandbox", "minimum"):         Shape.TEXT,
    ("sandbox", "unix_sockets"):    Shape.SWITCH,
    **{("sandbox", "container", key): Shape.TEXT for key in ("image", "runtime", "socket")},
    ("secret", "names"):            Shape.TEXTS,
    ("deny", "commands"):           Shape.PATTERNS,
    **{("limits", name): shape for name, shape in LIMITS.items()},
}
_VARIABLES: dict[str, KeyPath] = {
    "RINGFENCE_MODE":             ("mode",),
    "RINGFENCE_MODEL":            ("model",),
    "RINGFENCE_MAX_TURNS":        ("max_turns",),
    "RINGFENCE_SANDBOX_MINIMUM":  ("sandbox", "minimum"),
    **{f"RINGFENCE_LIMIT_{name.upper().replace('-', '_')}": ("limits", name) for name in LIMITS},
}
# fmt: on
_ELSEWHERE = ("RINGFENCE_STATE_DIR", "RINGFENCE_CONFIG_DIR", "RINGFENCE_CACHE_DIR")
_LEVELS = {"full": Level.FULL, "partial": Level.PARTIAL}


@dataclass(frozen=True, slots=True)
class Settings:
    """What all layers together say. `mode`, `model` and `max_turns` are None when nobody chose.

    `base_urls` and `models` are by provider. `sources` are the files and variables that were used, lowest first;
    `notices` say what the repository asked for and did not get.
    """

    profile: Profile
    rules: RuleBook
    mode: Mode | None = None
    model: str | None = None
    base_urls: dict[str, str] = field(default_factory=dict)
    sandbox_minimum: Level = Level.FULL
    container: Choice = field(default_factory=Choice)
    sources: tuple[str, ...] = ()
    models: dict[str, str] = field(default_factory=dict)
    max_turns: int | None = None
    notices: tuple[str, ...] = ()


def load(cwd: Path, environ: Mapping[str, str], *, config: Path | None = None, unattended: bool = False) -> Settings:
    """All settings for a session in `cwd`. Makes no folder. Raises ConfigError, or places.PlaceError.

    A repository's file that cannot be read is an error for whoever can mend it. When nobody is there it becomes a
    notice: it could only have tightened, and a repository must not be able to stop its own check.
    """
    try:
        settings = _packaged()
        user = places.config_file(environ)
        if (text := settings_text(user, "user")) is not None:
            settings = _widened(settings, _keyed(text, user), Layer.USER)
        home = os.path.realpath(places.home(environ))
        project = Path(workspace_of(os.path.realpath(cwd), home)) / PROJECT_FILE
        if project != user:
            settings = _with_repository(settings, project, unattended)
        if config is not None:
            settings = _named(settings, config)
        return _environment(settings, environ)
    except KeyedError as error:
        raise ConfigError(error.problem) from None


def shipped(config: Path | None = None) -> Settings:
    """What we ship, with `config` over it: the same on every machine. Raises ConfigError."""
    try:
        return _packaged() if config is None else _named(_packaged(), config)
    except KeyedError as error:
        raise ConfigError(error.problem) from None


def _named(settings: Settings, config: Path) -> Settings:
    text = settings_text(config, "named")
    if text is None:
        raise ConfigError(
            Problem(f"`{config}` cannot be read", "there is no such file", "check the path after --config")
        )
    return _widened(settings, _keyed(text, config), Layer.NAMED)


def _with_repository(settings: Settings, project: Path, unattended: bool) -> Settings:
    try:
        if (text := settings_text(project, "repository")) is None:
            return settings
        return _tightened(settings, _keyed(text, project))
    except (KeyedError, ConfigError) as error:
        if not unattended:
            raise
        notice = f"{error.problem.what}: {error.problem.why}; the repository's configuration is ignored"
        return replace(settings, notices=(*settings.notices, notice))


def _packaged() -> Settings:
    """What we ship. It lies beside our code in every kind of installation; reading it must not cost an import."""
    source = "profiles/default.toml"
    try:
        profile = parse_profile(_shipped(profiles.__file__, "default.toml"), source)
        folder = os.path.join(os.path.dirname(str(policy.__file__)), "commands")
        names = sorted(name for name in os.listdir(folder) if name.endswith(".toml"))
        files = {name: _shipped(policy.__file__, f"commands/{name}") for name in names}
        rules = RuleBook.from_files(files)
    except (ProfileError, RuleError) as error:
        raise ConfigError(error.problem) from None
    except OSError as error:
        raise ConfigError(
            Problem(
                "this installation is incomplete",
                f"`{error.filename}` cannot be read: {(error.strerror or 'unknown reason').lower()}",
                "install ringfence again",
            )
        ) from None
    return Settings(profile=profile, rules=rules, sources=(source,))


def _shipped(package: str | None, name: str) -> str:
    with open(os.path.join(os.path.dirname(str(package)), name), encoding="utf-8") as file:
        return file.read()


def _keyed(text: str, path: Path) -> Keyed:
    from policy.permission.file import LISTS  # only where somebody has a file

    return read(text, str(path), _SHAPES, LISTS)


def _widened(settings: Settings, keyed: Keyed, layer: Layer) -> Settings:
    """A layer of the user: it may say anything."""
    profile = settings.profile
    if keyed.entries:
        found, over = _rules(keyed, layer, settings)
        profile = replace(profile, permissions=(*profile.permissions, *found))
        settings = replace(settings, notices=(*settings.notices, *over))
    names = check_list(keyed, ("secret", "names")) if ("secret", "names") in keyed.values else ()
    unix = keyed.values.get(("sandbox", "unix_sockets"), profile.unix_sockets)
    profile = replace(
        profile,
        unix_sockets=bool(unix),
        secret_names=tuple(dict.fromkeys((*profile.secret_names, *names))),
        denied=tuple(dict.fromkeys((*profile.denied, *denied(keyed)))),
        limits=limits(keyed, profile.limits),
    )
    urls, models = dict(settings.base_urls), dict(settings.models)
    for path, value in keyed.values.items():
        if path[0] == "provider" and isinstance(value, str):
            if path[2] == "base_url":
                urls[path[1]] = _url(keyed, path, value)
            else:
                models[path[1]] = value
    turns = keyed.values.get(("max_turns",))
    said = {path[2]: str(value) for path, value in keyed.values.items() if path[:2] == ("sandbox", "container")}
    return replace(
        settings,
        profile=profile,
        mode=_mode(keyed) or settings.mode,
        model=_model(keyed) or settings.model,
        base_urls=urls,
        models=models,
        sandbox_minimum=_minimum(keyed) or settings.sandbox_minimum,
        container=replace(settings.container, **said),
        max_turns=turns if isinstance(turns, int) else settings.max_turns,
        sources=(*settings.sources, keyed.source),
    )


def _rules(keyed: Keyed, layer: Layer, settings: Settings) -> tuple[tuple[PermissionRule, ...], tuple[str, ...]]:
    """The rules of one file, and what is to be told about those that are over. One that can never take effect is an
    error: whoever wrote it counts on it."""
    from datetime import date

    from policy.permission.faults import faults  # only where somebody has rules
    from policy.permission.file import permissions

    today, over = date.today(), []
    found = permissions(keyed, layer)
    for rule in found:
        if rule.expired(today):
            over.append(f"{rule.ref}: the rule is over: its last day was {rule.until}")
        elif layer is Layer.REPOSITORY and rule.verdict is Ruling.ALLOW:
            continue  # dropped, and said, by whoever asked
        elif fault := next(faults(rule, settings.rules, settings.profile), None):
            raise ConfigError(Problem(f"{rule.ref}: `[[rule]]` can never take effect", fault.text, fault.fix))
    return found, tuple(over)


def _tightened(settings: Settings, keyed: Keyed) -> Settings:
    """A layer that came with the repository: what would widen is left out, and said."""
    wish = _widened(settings, keyed, Layer.REPOSITORY)
    notices = [
        f"{rule.ref}: `[[rule]]` is ignored: a rule that came with the repository may ask and deny, never allow"
        for rule in wish.profile.permissions
        if rule.layer is Layer.REPOSITORY and rule.verdict is Ruling.ALLOW
    ]
    mode, turns, minimum = settings.mode, settings.max_turns, settings.sandbox_minimum
    for path in keyed.values:
        granted = True
        if path == ("mode",) and wish.mode:
            granted = no_looser(wish.mode, settings.mode or Mode.DEFAULT)
            mode = wish.mode if granted else mode
        elif path == ("max_turns",) and wish.max_turns:
            granted = settings.max_turns is None or wish.max_turns <= settings.max_turns
            turns = wish.max_turns if granted else turns
        elif path == ("sandbox", "minimum"):
            granted = wish.sandbox_minimum is Level.FULL or settings.sandbox_minimum is wish.sandbox_minimum
            minimum = wish.sandbox_minimum if granted else minimum
        elif path == ("sandbox", "unix_sockets"):
            granted = settings.profile.unix_sockets or not wish.profile.unix_sockets
        elif path[0] == "limits":
            name = path[1].replace("-", "_")
            granted = getattr(wish.profile.limits, name) <= getattr(settings.profile.limits, name)
        elif path[0] in ("model", "provider") or path[:2] == ("sandbox", "container"):
            granted = False  # where your prompts and your key go, and whose programs run, is for you to say
        if not granted:
            notices.append(
                f"{keyed.source}:{keyed.line(path)}: `{'.'.join(path)}` is ignored: "
                "settings that came with the repository may only tighten yours"
            )
    by = replace(wish.profile, limits=lower(settings.profile.limits, wish.profile.limits))
    return replace(
        settings,
        profile=narrow(settings.profile, by),
        mode=mode,
        max_turns=turns,
        sandbox_minimum=minimum,
        sources=(*settings.sources, keyed.source),
        notices=(*wish.notices, *notices),
    )


def _environment(settings: Settings, environ: Mapping[str, str]) -> Settings:
    """`RINGFENCE_*` says the same things as a file; each is checked as if it stood in one."""
    given = sorted(name for name in environ if name.startswith("RINGFENCE_") and name not in _ELSEWHERE)
    for name in given:
        path, value = _VARIABLES.get(name), environ[name]
        if path is None:
            raise _no_variable(name)
        what, shape = f"`{name}={value}` cannot be used", _SHAPES[path]
        checked = value_of(value if shape is Shape.TEXT else _number(value), shape)
        if checked is None:
            raise ConfigError(Problem(what, f"it must be {shape.value}", f"correct or unset {name}"))
        try:
            settings = _widened(settings, Keyed(name, "", {path: checked}), Layer.NAMED)
        except KeyedError as error:
            raise ConfigError(Problem(what, error.problem.why, error.problem.fix)) from None
    return settings


def _number(text: str) -> int | float | str:
    """The number that `text` writes; `text` itself (a size such as `2 GiB`, or a mistake) when it writes none."""
    try:
        return int(text) if len(text) < 19 and text.isdecimal() else float(text)
    except ValueError:
        return text


def _no_variable(name: str) -> ConfigError:
    from difflib import get_close_matches

    known = [*_VARIABLES, *_ELSEWHERE]
    # Without the part that all of them share, which would make any two of them look alike.
    short = [each.removeprefix("RINGFENCE_") for each in known]
    near = get_close_matches(name.removeprefix("RINGFENCE_"), short, n=1)
    fix = f"did you mean `RINGFENCE_{near[0]}`?" if near else f"unset it; the names are {', '.join(known)}"
    return ConfigError(Problem(f"the variable `{name}` cannot be used", "there is no such setting", fix))


def _mode(keyed: Keyed) -> Mode | None:
    value = keyed.values.get(("mode",))
    if value is None:
        return None
    if value not in set(Mode):
        names = ", ".join(f"`{mode.value}`" for mode in Mode)
        raise keyed.complain(
            ("mode",), f"there is no mode `{value}`", f"choose one of {names}{_near(str(value), list(Mode))}"
        )
    return Mode(str(value))


def _model(keyed: Keyed) -> str | None:
    value = keyed.values.get(("model",))
    if value is None:
        return None
    name = str(value).partition(":")[0]
    if name not in _PROVIDERS:
        fix = f'write it as `provider:model`, such as "anthropic:claude-sonnet-5-5"{_near(name, _PROVIDERS)}'
        raise keyed.complain(("model",), f"there is no provider `{name}`", fix)
    return str(value)


def _minimum(keyed: Keyed) -> Level | None:
    path = ("sandbox", "minimum")
    value = keyed.values.get(path)
    if value is None:
        return None
    if value not in _LEVELS:
        raise keyed.complain(path, f"there is no level `{value}`", "write `full` or `partial`")
    return _LEVELS[str(value)]


def _near(value: str, known: Sequence[str]) -> str:
    from difflib import get_close_matches

    near = get_close_matches(value, known, n=1)
    return f"; did you mean `{near[0]}`?" if near else ""


def _url(keyed: Keyed, path: tuple[str, ...], value: str) -> str:
    scheme, mark, rest = value.partition("://")
    host = rest.partition("/")[0]
    if scheme not in ("http", "https") or not mark or not host or not value.isprintable() or " " in value:
        raise keyed.complain(path, "it is not the address of a provider", 'write it like "https://host/v1"')
    if "@" in host:
        raise keyed.complain(
            path, "it holds a login, and secrets never stand in a file", "store the key with the keyring"
        )
    return value.rstrip("/")
