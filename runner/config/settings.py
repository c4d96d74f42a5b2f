"""The settings of all layers together, and the origins of their values."""

import os
from collections.abc import Mapping
from enum import StrEnum
from typing import TYPE_CHECKING

from policy.model.frozen import dataclass, field
from policy.model.profile import Layer, Profile
from policy.model.tier import Mode
from policy.model.verdict import Problem, ProblemError
from policy.rules.rulebook import RuleBook
from sandbox.backend import DIRECT, ContainerOptions, Level, NetworkOptions

if TYPE_CHECKING:  # most starts read no file of settings, and its reader defines many classes
    from policy.toml.schema import KeyPath, TomlDocument, TomlEntry, TomlError, Value


class ConfigError(ProblemError):
    """An error for settings that cannot be used. `problem` names the file, line and key, or the variable.

    Attributes:
        source: the file or the variable; empty if there is no single one.
        line: the line from 1; 0 if the error belongs to no single line.
        what: the fault without the place.
    """

    def __init__(self, problem: Problem, *, source: str = "", line: int = 0, what: str = "") -> None:
        super().__init__(problem)
        self.source, self.line, self.what = source, line, what or problem.what

    @classmethod
    def of(cls, error: "TomlError") -> "ConfigError":
        """Return a ConfigError with the problem and the place of a TomlError."""
        return cls(error.problem, source=error.source, line=error.line, what=error.what)

    @classmethod
    def about(cls, source: object, why: str, fix: str, what: str = "cannot be used") -> "ConfigError":
        """Return an error about a whole file or variable."""
        return cls(Problem(f"`{source}` {what}", why, fix), source=str(source), what=what)


class ConfigLayer(StrEnum):
    """The layers, lowest first: a later layer overrides. `project` and `local` are files of the repository, which may
    only tighten until the user trusts them.
    """

    PACKAGED = "packaged"
    SYSTEM = "system"
    USER = "user"
    PROJECT = "project"
    LOCAL = "local"
    NAMED = "named"  # by `--config`
    ENVIRONMENT = "environment"
    FLAGS = "flags"

    @property
    def came_along(self) -> bool:
        """Return True if the layer is a file of the repository, which the user may not have written."""
        return self in (ConfigLayer.PROJECT, ConfigLayer.LOCAL)

    def of_rules(self, trusted: bool) -> Layer:
        """Return the layer of the `[[rule]]`s of this layer."""
        if self.came_along:
            return Layer.TRUSTED if trusted else Layer.REPOSITORY
        return _OF_RULES.get(self, Layer.NAMED)


_OF_RULES = {ConfigLayer.SYSTEM: Layer.SYSTEM, ConfigLayer.USER: Layer.USER}


@dataclass(frozen=True, slots=True)
class LayerValues:
    """Values from one file, variable or command line; every key is known and every value is well formed.

    Attributes:
        layer: the layer.
        document: the values with their places.
        sha256: SHA-256 of the bytes of the file; empty without a file.
        trusted: True if the user trusts the file; used only for files of the repository.
        flags: the option of each path, if the layer is the command line.
        left_out: keys that this layer may not set.
    """

    layer: ConfigLayer
    document: "TomlDocument"
    sha256: str = ""
    trusted: bool = False
    flags: "tuple[tuple[KeyPath, str], ...]" = ()
    left_out: "frozenset[KeyPath]" = frozenset()

    @property
    def bound(self) -> bool:
        """Return True if these values may only tighten."""
        return self.layer.came_along and not self.trusted

    def place(self, path: "KeyPath") -> tuple[str, int]:
        """Return the source and the line (from 1) of a key. The line of a variable or an option is 0."""
        if not self.document.text:
            return dict(self.flags).get(path, self.document.source), 0
        return self.document.source, self.document.line(path)


@dataclass(frozen=True, slots=True)
class SettingOrigin:
    """One place that sets a key.

    Attributes:
        layer: the layer.
        source: the file, variable or option.
        line: the line from 1; 0 for a variable, an option and a default of the code.
        value: the value.
        ignored: True if the layer may not set this value.
    """

    layer: ConfigLayer
    source: str
    line: int
    value: object
    ignored: bool = False

    def __str__(self) -> str:
        return f"{self.source}:{self.line}" if self.line else self.source


@dataclass(frozen=True, slots=True)
class IgnoredSetting:
    """A key or a `[[list]]` entry of a repository that has no effect.

    Attributes:
        values: the layer that sets it.
        path: path of the key; empty for an entry.
        entry: the entry, or None for a key.
        never: True if no repository may set the key, trusted or not.
    """

    values: LayerValues
    path: "KeyPath" = ()
    entry: "TomlEntry | None" = None
    never: bool = False

    @property
    def name(self) -> str:
        """Return the key, or the table in double brackets, as written in a file."""
        from policy.toml.schema import dotted

        return f"[[{self.entry.name}]]" if self.entry else dotted(self.path)


class SettingNotice(str):
    """A notice about one line of a configuration file, as text with the place in front.

    Attributes:
        source: the file.
        line: the line from 1.
        what: the text without the place.
        ignored: the setting without effect that the notice is about, or None.
    """

    source: str
    line: int
    what: str
    ignored: IgnoredSetting | None

    def __new__(cls, source: str, line: int, what: str, ignored: IgnoredSetting | None = None) -> "SettingNotice":
        """Return the notice."""
        notice = super().__new__(cls, f"{source}:{line}: {what}")
        notice.source, notice.line, notice.what, notice.ignored = source, line, what, ignored
        return notice


SettingOrigins = Mapping["KeyPath", tuple[SettingOrigin, ...]]


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of all layers together.

    Attributes:
        profile: the sandbox profile.
        rules: the rules for commands.
        mode: the mode; None if no layer sets it.
        model: the model; None if no layer sets it.
        base_urls: base URLs by provider.
        sandbox_minimum: least enforcement of the sandbox.
        container: choice of the container backend.
        network: the way of the proxy to the network.
        sources: the files and variables that were used, lowest layer first.
        models: models by provider.
        max_turns: largest number of requests to the model; None if no layer sets it.
        notices: notices for the user, for example about ignored settings of the repository.
        values: values in force by path.
        lists: entries of tables in force.
        layers: the values of each layer.
        original: folder of which the workspace is a copy; empty if the workspace is not a copy.
        apart: paths that are secret in this run only, in addition to the profile.
    """

    profile: Profile
    rules: RuleBook
    mode: Mode | None = None
    model: str | None = None
    base_urls: Mapping[str, str] = field(default_factory=dict)
    sandbox_minimum: Level = Level.FULL
    container: ContainerOptions = field(default_factory=ContainerOptions)
    network: NetworkOptions = DIRECT
    sources: tuple[str, ...] = ()
    models: Mapping[str, str] = field(default_factory=dict)
    max_turns: int | None = None
    notices: tuple[str, ...] = ()
    values: "Mapping[KeyPath, Value]" = field(default_factory=dict)
    lists: "tuple[TomlEntry, ...]" = ()
    layers: tuple[LayerValues, ...] = ()
    original: str = ""
    apart: tuple[str, ...] = ()

    def names(self, *path: str) -> tuple[str, ...]:
        """Return the list of texts that is the value of a key; empty if no layer sets the key."""
        found = self.value(*path)
        return tuple(each for each in found if isinstance(each, str)) if isinstance(found, tuple) else ()

    def value(self, *path: str) -> "Value | None":
        """Return the value of one key: that of the highest layer that may set the key, else the default in the table of
        keys.
        """
        found = self.values.get(path)
        if found is not None:
            return found
        from runner.config.schema import key_of  # a start without any file needs no table

        return key_of(path).default

    def entries(self, name: str) -> "tuple[TomlEntry, ...]":
        """Return every `[[name]]` entry in force, lowest layer first. Untrusted entries that would widen are not in
        force.
        """
        return tuple(entry for entry in self.lists if entry.name == name)

    def web_fault(self) -> tuple[str, str] | None:
        """Return why the search service cannot be used with its address, and how to correct it; None if it can be."""
        service = self.value("web", "search")
        if not service:
            return None
        from runner.config.validators import web_fault  # few configurations name one

        return web_fault(str(service), str(self.value("web", "url") or ""))

    def named(self, *above: str) -> "Mapping[str, Mapping[str, Value]]":
        """Return, for rows such as `above.*.key`, the configured values of each name."""
        found: dict[str, dict[str, Value]] = {}
        for path, value in self.values.items():
            if path[: len(above)] == above and len(path) > len(above) + 1:
                found.setdefault(path[len(above)], {})[".".join(path[len(above) + 1 :])] = value
        return found

    @property
    def hashes(self) -> tuple[tuple[str, str], ...]:
        """Return path and SHA-256 of every file that was read, lowest layer first. Packaged files belong to the
        version.
        """
        return tuple((os.path.abspath(given.document.source), given.sha256) for given in self.layers if given.sha256)
