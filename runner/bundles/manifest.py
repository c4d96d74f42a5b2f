"""The manifest of a bundle: `bundle.toml`, or `.claude-plugin/plugin.json` of a plug-in of Claude Code."""

import json
import re
import tomllib
from collections.abc import Mapping
from dataclasses import field
from pathlib import PurePosixPath

from policy.model.frozen import dataclass
from policy.model.verdict import Problem, ProblemError
from runner.text.sanitize import one_line
from runner.text.strict_json import DuplicateNameError, parse_strictly

OURS, CLAUDES = "bundle.toml", ".claude-plugin/plugin.json"
NAME = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")
LONGEST_NAME = 32
RESERVED = ("skill", "ringfence")  # `/skill:NAME` is the command of a skill
_OWN_KEYS = ("name", "version", "description")
_DESCRIBING = (
    "name", "version", "description", "author", "homepage", "repository", "license", "keywords", "$schema",
    "displayName",
)  # fmt: skip
_PARTS = ("commands", "agents", "skills", "hooks", "mcpServers")


class BundleError(ProblemError):
    """The error for a bundle that cannot be read, stored or used. `problem` has the details."""


@dataclass(frozen=True, slots=True)
class BundleManifest:
    """The manifest of a bundle. All texts are untrusted.

    Attributes:
        name: the name of the bundle.
        version: its version, on one line; may be empty.
        description: its description, on one line; may be empty.
        places: further files and folders by the kind of what they contain, relative to the bundle.
        inline: objects in the manifest itself by the kind of what they contain: `hooks` and `mcpServers`.
        unused: the keys without an effect.
    """

    name: str
    version: str = ""
    description: str = ""
    places: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    inline: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    unused: tuple[str, ...] = ()


def read_manifest(files: Mapping[str, bytes], folder_name: str) -> BundleManifest:
    """Return the manifest among `files`, by path. Raise BundleError.

    Claude Code accepts a plug-in without a manifest: it has the name of its folder, `folder_name`.
    """
    if OURS in files:
        return _ours(files[OURS])
    if CLAUDES in files:
        return _claudes(files[CLAUDES], folder_name)
    usual = ("commands/", "agents/", "skills/", "hooks/")
    if not any(path == ".mcp.json" or path.startswith(usual) for path in files):
        why = f"it has neither `{OURS}` nor `{CLAUDES}`, and no folder of commands, agents, skills or hooks"
        raise unusable(why, "name the folder that contains one of them")
    return BundleManifest(_name(folder_name))


def unusable(why: str, fix: str) -> BundleError:
    """Return the error for a bundle that cannot be used."""
    return BundleError(Problem("the bundle cannot be used", why, fix))


def _name(name: object) -> str:
    if isinstance(name, str) and NAME.fullmatch(name) and len(name) <= LONGEST_NAME and name not in RESERVED:
        return name
    shown = one_line(name, 80) if isinstance(name, str) else "no text"
    why = f"its name is `{shown}`; a name has at most {LONGEST_NAME} characters a-z, 0-9 and single hyphens"
    raise unusable(f"{why}, and is not {' or '.join(RESERVED)}", "correct the name in its manifest")


def _ours(data: bytes) -> BundleManifest:
    try:
        values = tomllib.loads(data.decode("utf-8"))
    except (ValueError, RecursionError):
        raise unusable(f"`{OURS}` is not valid TOML", "correct the file") from None
    if wrong := [key for key in values if key not in _OWN_KEYS]:
        why = f"`{OURS}` has the unknown key `{one_line(wrong[0], 80)}`"
        raise unusable(why, f"remove it; the keys are {', '.join(_OWN_KEYS)}")
    return BundleManifest(
        _name(values.get("name")),
        _words(values.get("version"), "version"),
        _words(values.get("description"), "description"),
    )


def _words(value: object, key: str) -> str:
    if value is None:
        return ""
    if not isinstance(value, str):
        raise unusable(f"`{key}` of its manifest is not a text", "correct the manifest")
    return one_line(value, 500)


def json_object(data: bytes, path: str) -> Mapping[str, object]:
    """Return the object of a JSON file of a bundle. Raise BundleError."""
    try:
        content = parse_strictly(data.decode("utf-8-sig"))
    except DuplicateNameError as error:
        raise unusable(f"`{path}` is not valid: {error}", "correct the file") from None
    except (ValueError, RecursionError):
        raise unusable(f"`{path}` is not valid JSON", "correct the file") from None
    if not isinstance(content, dict):
        raise unusable(f"`{path}` is not a JSON object", "correct the file")
    return content


def _claudes(data: bytes, folder_name: str) -> BundleManifest:
    values = json_object(data, CLAUDES)
    places: dict[str, tuple[str, ...]] = {}
    inline: dict[str, Mapping[str, object]] = {}
    for key in _PARTS:
        value = values.get(key)
        if isinstance(value, dict) and key in ("hooks", "mcpServers"):
            inline[key] = value
        elif value is not None:
            places[key] = tuple(_inner(each, key) for each in (value if isinstance(value, list) else [value]))
    return BundleManifest(
        _name(values.get("name", folder_name)),
        _words(values.get("version"), "version"),
        _words(values.get("description"), "description"),
        places,
        inline,
        tuple(one_line(key, 80) for key in values if key not in (*_DESCRIBING, *_PARTS)),
    )


def _inner(value: object, key: str) -> str:
    """Return a path of the manifest, relative to the bundle. Raise BundleError for one that leads out of it."""
    if isinstance(value, str) and not value.startswith("/") and "\0" not in value:
        path = PurePosixPath(value)
        if ".." not in path.parts:
            return str(path)
    shown = one_line(json.dumps(value), 80)
    raise unusable(f"`{key}` of its manifest names {shown}, which is no path below it", "correct the manifest")
