"""The settings of the language servers of a session: presets whose programs are installed, and `[language.NAME]`."""

import json
import os
import shutil
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Any

from policy.model.frozen import dataclass
from policy.toml.schema import Value
from runner.config.server_values import pairs_in, texts_in
from runner.config.settings import Settings
from runner.lsp.presets import PRESETS

_LOOKED_AT = 4_000  # entries of folders that are looked at for a file of a language
_DEPTH = 3  # folders below the workspace that are looked at
_SKIPPED = ("node_modules", "target", "dist", "build", "vendor", "__pycache__", "venv")


@dataclass(frozen=True, slots=True)
class LanguageConfig:
    """The settings of one language server.

    Attributes:
        name: The name of the preset, or the name that the user chose.
        argv: The program and its arguments.
        files: Patterns of names of files.
        place: The file and the line of the table `[language.NAME]`; empty for a preset.
        env: Pairs of the name and the value of a variable of the server.
        read: Absolute paths outside of the workspace that the server may read.
        settings: The values that the server may ask for (`workspace/configuration`).
        options: The options that the server gets at its start.
    """

    name: str
    argv: tuple[str, ...]
    files: tuple[str, ...]
    place: str = ""
    env: tuple[tuple[str, str], ...] = ()
    read: tuple[str, ...] = ()
    settings: str = "{}"
    options: str = ""

    def serves(self, path: str) -> bool:
        """Return True if the server is for the file `path`."""
        name = path.rpartition("/")[2]
        return any(fnmatchcase(name, pattern) for pattern in self.files)


@dataclass(frozen=True, slots=True)
class CodeOptions:
    """The settings of `[code]`.

    Attributes:
        diagnostics: True if new errors are added to the result of an edit.
        wait: The longest time that the result of an edit waits for them, in seconds.
        idle: The time without use after which a server is ended, in seconds.
    """

    diagnostics: bool = True
    wait: float = 2.0
    idle: float = 600.0


def code_options(settings: Settings) -> CodeOptions:
    """Return the settings of `[code]`."""
    wait, idle = settings.value("code", "wait"), settings.value("code", "idle")
    assert isinstance(wait, int | float)  # the table of keys has defaults
    assert isinstance(idle, int | float)
    return CodeOptions(bool(settings.value("code", "diagnostics")), float(wait), float(idle))


def find_language_servers(
    settings: Settings, environ: Mapping[str, str], workspace: str, home: str
) -> tuple[LanguageConfig, ...]:
    """Return the enabled servers whose programs exist: those of the user's tables first, then presets."""
    tables = settings.named("language")
    known = {preset.name: preset for preset in PRESETS}
    named, others = [], []
    for name, values in tables.items():
        preset = known.get(name)
        command = str(values.get("command", preset.argv[0] if preset else ""))
        args = texts_in(values.get("args")) if "args" in values else preset.argv[1:] if preset else ()
        files = texts_in(values.get("files")) or (preset.files if preset else ())
        if values.get("enabled") is False or not command or not files:
            continue
        named.append(
            LanguageConfig(
                name,
                (command, *args),
                files,
                _place(settings, name),
                pairs_in(values.get("env")),
                tuple(_absolute(path, workspace, home) for path in texts_in(values.get("read"))),
                _text(values.get("settings"), "{}"),
                _text(values.get("options"), ""),
            )
        )
    for preset in PRESETS:
        if preset.name not in tables:
            others.append(LanguageConfig(preset.name, preset.argv, preset.files))
    return tuple(each for each in (*named, *others) if _found(each.argv[0], environ, workspace))


def parsed_settings(text: str) -> dict[str, Any]:
    """Return the object of a setting that is JSON text; empty for any other text, which the schema refuses."""
    try:
        found = json.loads(text) if text else {}
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def has_files(workspace: str, config: LanguageConfig) -> bool:
    """Return True if one of the first few thousand entries of the workspace is a file for the server."""
    return any(config.serves(name) for name in _names(workspace))


def _names(workspace: str) -> Iterator[str]:
    folders, seen = [(workspace, 0)], 0
    while folders:
        folder, depth = folders.pop(0)
        try:
            entries = list(os.scandir(folder))
        except OSError:
            continue  # it is not readable, or it is gone
        for entry in sorted(entries, key=lambda each: each.name):
            seen += 1
            if seen > _LOOKED_AT:
                return
            if entry.is_dir(follow_symlinks=False):
                if depth < _DEPTH and not entry.name.startswith(".") and entry.name not in _SKIPPED:
                    folders.append((entry.path, depth + 1))
            else:
                yield entry.name


def _found(command: str, environ: Mapping[str, str], workspace: str) -> bool:
    return shutil.which(command if "/" not in command else os.path.join(workspace, os.path.expanduser(command)),
                        path=environ.get("PATH")) is not None  # fmt: skip


def _absolute(path: str, workspace: str, home: str) -> str:
    whole = f"{home}/{path[2:]}" if path.startswith("~/") else path
    return os.path.normpath(os.path.join(workspace, whole))


def _text(value: Value | None, default: str) -> str:
    return value if isinstance(value, str) else default


def _place(settings: Settings, name: str) -> str:
    """Return the file and the line of the table, those of the highest layer."""
    for given in reversed(settings.layers):
        for path in given.document.values:
            if path[:2] == ("language", name):
                return f"{given.document.source}:{given.document.line(path)}"
    return ""
