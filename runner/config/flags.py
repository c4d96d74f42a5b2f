"""The highest layer: the options of one command line, as settings with their places."""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from policy.model.tier import Mode
from policy.model.verdict import Limits
from policy.toml.schema import Path as KeyPath
from policy.toml.schema import TomlDocument, Value
from runner.config.layer import Given, Layer
from runner.config.settings import Settings

Said = Mapping[KeyPath, tuple[str, Value]]  # by path: the option, and what it says


def said(
    *,
    mode: Mode | None = None,
    model: str | None = None,
    fallback: str | None = None,
    max_turns: int | None = None,
    budget: Iterable[tuple[str, str, Value]] = (),
    least: str | None = None,
    unix: bool = False,
    no_instructions: bool = False,
    limits: Iterable[str] = (),
    timeout: str | None = None,
    total: Limits | None = None,
) -> Said:
    """What options say. `limits` are those of `--limit NAME=VALUE`, `total` is what they come to, with the others;
    `budget` is name, option and value."""
    found: dict[KeyPath, tuple[str, Value]] = {}
    if mode is not None:
        found[("mode",)] = ("--mode", mode.value)
    if model is not None:
        found[("model",)] = ("--model", model)
    if fallback is not None:
        found[("fallback_model",)] = ("--fallback-model", _named(fallback))
    if max_turns is not None:
        found[("max_turns",)] = ("--max-turns", max_turns)
    for name, option, value in budget:
        found[("budget", name)] = (option, value)
    if least is not None:
        found[("sandbox", "minimum")] = ("--require" if least == "full" else "--accept-partial", least)
    if unix:
        found[("sandbox", "unix_sockets")] = ("--unix", True)
    if no_instructions:
        found[("instructions",)] = ("--no-instructions", False)
    names = [(each.partition("=")[0].strip().replace("-", "_"), "--limit") for each in limits]
    if timeout is not None:
        names.append(("wall", "--timeout"))
    for name, option in names if total else ():
        found[("limits", name)] = (option, getattr(total, name))
    return found


def _named(model: str) -> str:
    """Raises Stopped where it names no provider: later would be when it is needed."""
    from runner.config.schema import PROVIDERS
    from runner.config.validators import model_of
    from runner.problems import usage

    if (fault := model_of(PROVIDERS)(model)) is not None:
        raise usage(f"`{model}` is no fallback model", *fault)
    return model


def with_flags(settings: Settings, flags: Said) -> Settings:
    """`settings` with the options as their last layer: for `value` and `origins`. Who has an option applies it."""
    if not flags:
        return settings
    values = {path: value for path, (_, value) in flags.items()}
    options = tuple((path, option) for path, (option, _) in flags.items())
    given = Given(Layer.FLAGS, TomlDocument("options", "", values), flags=options)
    return replace(settings, values={**settings.values, **values}, layers=(*settings.layers, given))
