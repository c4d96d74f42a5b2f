"""Where a setting comes from: the layers, lowest first, and the place within one."""

from collections.abc import Mapping
from enum import StrEnum

from policy.model.frozen import dataclass
from policy.model.permission_rule import Layer as RuleLayer
from policy.toml.schema import Path, TomlDocument


class Layer(StrEnum):
    """Later ones win. What `project` and `local` say came with the folder, and may only tighten until it is trusted."""

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
        """Whether whoever made the folder wrote it, not the user."""
        return self in (Layer.PROJECT, Layer.LOCAL)

    def of_rules(self, trusted: bool) -> RuleLayer:
        """The layer of the `[[rule]]`s in it."""
        if self.came_along:
            return RuleLayer.TRUSTED if trusted else RuleLayer.REPOSITORY
        return _OF_RULES.get(self, RuleLayer.NAMED)


_OF_RULES = {Layer.SYSTEM: RuleLayer.SYSTEM, Layer.USER: RuleLayer.USER}


@dataclass(frozen=True, slots=True)
class Given:
    """What one file, variable or command line says; all of it known and well formed.

    `sha256` is that of the file's very bytes that were read; empty when it is no file. `trusted` is meaningful for a
    layer that came along. `flags` has the option of each path, where the layer is the command line. `left_out` are the
    keys that it may not say.
    """

    layer: Layer
    keyed: TomlDocument
    sha256: str = ""
    trusted: bool = False
    flags: tuple[tuple[Path, str], ...] = ()
    left_out: frozenset[Path] = frozenset()

    @property
    def bound(self) -> bool:
        """Whether it may only tighten."""
        return self.layer.came_along and not self.trusted

    def place(self, path: Path) -> tuple[str, int]:
        """The file and line of a key; the variable or the option, and 0."""
        if not self.keyed.text:
            return dict(self.flags).get(path, self.keyed.source), 0
        return self.keyed.source, self.keyed.line(path)


@dataclass(frozen=True, slots=True)
class Origin:
    """One place that says something about a key. `line` is 0 for a variable, an option and a default of the code.

    `ignored`: it may only tighten, and would have widened.
    """

    layer: Layer
    source: str
    line: int
    value: object
    ignored: bool = False

    def __str__(self) -> str:
        return f"{self.source}:{self.line}" if self.line else self.source


Origins = Mapping[Path, tuple[Origin, ...]]
