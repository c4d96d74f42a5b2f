"""The rule that adds rights to one command, as text, and its addition to a configuration file."""

import os
from collections.abc import Mapping
from pathlib import Path

from policy.model.frozen import dataclass
from policy.permission.dead_rules import faults
from policy.permission.file import permissions
from runner.config.edit import write
from runner.config.load import WHOSE, settings_bytes
from runner.config.read_layer import as_text, read_all
from runner.config.settings import ConfigError, ConfigLayer, Settings
from runner.config.toml_value import toml
from runner.state.paths import LOCAL_FILE, config_file


@dataclass(frozen=True, slots=True)
class LearnedRule:
    """A rule that allows the command `words`, with additional `rights` as flags of `agent exec`."""

    words: tuple[str, ...]
    rights: tuple[str, ...]

    def text(self) -> str:
        """Return the rule as TOML for a configuration file."""
        lines = ["[[rule]]", 'verdict = "allow"', f"run     = {toml(self.words)}", f"rights  = {toml(self.rights)}"]
        return "\n".join(lines)


def rule_file(target: str | None, workspace: str, environ: Mapping[str, str]) -> tuple[Path, bool]:
    """Return the file that gets the rule, and True if it is a file of the project: that of the user for `user`, the
    personal one of the project for None, else the file `target`.
    """
    local = Path(workspace) / LOCAL_FILE
    if target is None:
        return local, True
    path = config_file(environ) if target == "user" else Path(os.path.abspath(target))
    return path, path.parent == local.parent


def append_rule(path: Path, rule: LearnedRule, settings: Settings, *, own: bool) -> None:
    """Add the rule at the end of the file, which must be valid before and after. Raise ConfigError or TomlError."""
    layer = ConfigLayer.USER if own else ConfigLayer.LOCAL
    data = settings_bytes(path, WHOSE[layer]) or b""
    before = as_text(data, path)
    text = before if not before or before.endswith("\n") else f"{before}\n"
    text = f"{text}{chr(10) if text else ''}{rule.text()}\n"
    document, found = read_all(text, str(path), most=1)
    if found:
        raise found[0]
    for each in permissions(document, layer.of_rules(True)):
        if fault := next(faults(each, settings.rules, settings.profile), None):
            raise ConfigError.about(path, f"line {each.ref.line}: {fault.text}", fault.fix, "cannot get the rule")
    write(path, text, own=own)
