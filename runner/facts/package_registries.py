"""Registries that a package manager contacts: those in the user's own settings, those in the project's files, or else
the default of the installed tool.

Only the host of an address is used further; for tools that read a variable, also an address without a login.
"""

import os
import re
from collections.abc import Iterator, Mapping
from configparser import ConfigParser, Error
from urllib.parse import urlsplit

from policy.model.assessment import Scope
from policy.model.host_words import endpoint
from policy.model.secret_paths import inside
from policy.permission.hosts import opens
from runner.facts.default_registries import default_registry, text_of
from runner.facts.service_hosts import service_variables
from sandbox.workspace.git_settings import UncertainSettingsError, read_file

_ADDRESS = re.compile(r"(?:sparse\+|git\+)?(https?://[^\s\"'|,;#<>]+)", 2)  # re.IGNORECASE
_LINES = {
    "npm": re.compile(r"^[^\S\n]*[\"']?(?:@[^:\s]+:)?registry[\"']?\s*=\s*(\S+)", 8),  # re.MULTILINE
    "yarn": re.compile(r"^[^\S\n]*(?:npmRegistryServer:|registry\s)\s*[\"']?([^\s\"']+)", 8),
    "cargo": re.compile(r"^[^\S\n]*(?:registry|index)\s*=\s*[\"']([^\"'\n]+)", 8),
    "uv": re.compile(r"^[^\S\n]*(?:url|index-url|extra-index-url|default-index)\s*=\s*(.+)", 8),
    "gem": re.compile(
        r"^[^\S\n]*(?:-\s+|source\s*\(?\s*[\"']|BUNDLE_MIRROR__\S*\s*:\s*[\"']?)(https?://[^\s\"')]+)", 8
    ),
    "composer": re.compile(r"\"url\"\s*:\s*\"(https?:[^\"]+)\"", 8),
}
# program: variables, files of the user, files of the project
# fmt: off
_TOOLS: dict[str, tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]] = {
    "pip":      (("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL"), (), ()),
    "uv":       (("UV_INDEX_URL", "UV_DEFAULT_INDEX", "UV_INDEX", "UV_EXTRA_INDEX_URL"), (".config/uv/uv.toml",),
                 ("uv.toml", "pyproject.toml")),
    "npm":      (("npm_config_registry", "NPM_CONFIG_REGISTRY"), (".npmrc",), (".npmrc",)),
    "yarn":     (("YARN_NPM_REGISTRY_SERVER", "YARN_REGISTRY"), (".yarnrc.yml", ".yarnrc"), (".yarnrc.yml", ".yarnrc")),
    "cargo":    ((), (".cargo/config.toml", ".cargo/config"), (".cargo/config.toml", ".cargo/config")),
    "go":       (("GOPROXY",), (".config/go/env",), ()),
    "gem":      ((), (".gemrc", ".bundle/config"), ("Gemfile", ".bundle/config")),
    "composer": ((), (".config/composer/config.json", ".composer/config.json"), ("composer.json",)),
}
# The variable that passes the registry to a tool in the sandbox, where the user's own files do not exist.
_PASSED_BY = {"pip": "PIP_INDEX_URL", "uv": "UV_DEFAULT_INDEX", "npm": "npm_config_registry", "go": "GOPROXY"}
# Lock files with the addresses of packages. Read only if no settings name a registry.
_LOCKS = {
    "npm":  ("package-lock.json", re.compile(r'"resolved":\s*"(https?://[^"\s]+)')),
    "yarn": ("yarn.lock",         re.compile(r'^\s+resolved "(https?://[^"\s]+)', 8)),
    "uv":   ("uv.lock",           re.compile(r'\b(?:registry|url) = "(https?://[^"\s]+)')),
    "gem":  ("Gemfile.lock",      re.compile(r"^\s+remote: (https?://\S+)", 8)),
}
_MOST_LOCKED = 4  # hosts of one lock file; for more, the proxy reports the requested host
_ALIKE = {"pnpm": "npm", "bun": "npm", "npx": "npm", "bundle": "gem"}
# fmt: on
_LONGEST = 1 << 20


def registries(
    program: str, folder: str, home: str, environ: Mapping[str, str], workspace: str
) -> tuple[tuple[str, Scope], ...]:
    """Return the hosts that the tool `program` contacts in the working folder `folder`. Never raises.

    The user's registries have the scope `outside`, those of the project the scope `workspace`. Where certainly no
    settings and no lock file name a registry, the result is the default of the installed tool, with the scope `system`,
    or `workspace` if the tool is installed in the workspace.
    """
    kind = _ALIKE.get(program, program)
    named = dict.fromkeys(_hosts(_own(kind, home, environ)), Scope.OUTSIDE)
    for host in _hosts(_projects(kind, folder, home)):
        named.setdefault(host, Scope.WORKSPACE)
    if named:
        return tuple(named.items())
    locked = _hosts(_locked(kind, folder, home))
    if locked:
        return tuple((host, Scope.WORKSPACE) for host in locked) if len(locked) <= _MOST_LOCKED else ()
    default = default_registry(kind, environ) if all(map(_readable, _settings(kind, folder, home, environ))) else None
    if default is None:
        return ()
    file, addresses = default
    scope = Scope.WORKSPACE if inside(os.path.realpath(file), workspace) else Scope.SYSTEM
    return tuple((host, scope) for host in _hosts(iter(addresses)))


def registry_variables(
    hosts: tuple[str, ...], home: str, environ: Mapping[str, str], workspace: str
) -> tuple[tuple[str, str], ...]:
    """Return the variables that pass the user's registries and services to tools whose terms name `hosts`.

    A variable is passed only for the first address that the user names for a tool, if it contains no login, its host is
    among the hosts, and the project names no registry, which would take precedence.
    """
    variables = []
    for kind, name in _PASSED_BY.items():
        first = next(iter(_own(kind, home, environ)), "")
        if first and "@" not in urlsplit(first).netloc and opens(hosts, endpoint(first) or ""):
            variables += [(name, first)] if next(_projects(kind, workspace, home), None) is None else []
    services = service_variables(home, environ, workspace)
    return (*variables, *dict.fromkeys((name, value) for host, name, value in services if host and opens(hosts, host)))


def _hosts(addresses: Iterator[str]) -> dict[str, None]:
    return dict.fromkeys(host for host in map(endpoint, addresses) if host)


def _own(kind: str, home: str, environ: Mapping[str, str]) -> Iterator[str]:
    variables, _, _ = _TOOLS.get(kind, ((), (), ()))
    for name in variables:
        yield from _ADDRESS.findall(environ.get(name, ""))
    for path in _own_files(kind, home, environ):
        yield from _pip(text_of(path)) if kind == "pip" else _found(kind, text_of(path))


def _own_files(kind: str, home: str, environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return the paths of the user's settings; the files may not exist."""
    if kind == "pip":
        given = environ.get("PIP_CONFIG_FILE")
        return (given,) if given else (f"{home}/.config/pip/pip.conf", f"{home}/.pip/pip.conf", "/etc/pip.conf")
    _, files, _ = _TOOLS.get(kind, ((), (), ()))
    if kind == "npm":
        files = (environ.get("NPM_CONFIG_USERCONFIG") or files[0],)
    return tuple(os.path.join(home, file) for file in files)


def _projects(kind: str, folder: str, home: str) -> Iterator[str]:
    """Yield the registries in the settings of the project."""
    for path in _project_files(kind, folder, home):
        yield from _found(kind, text_of(path))


def _project_files(kind: str, folder: str, home: str) -> Iterator[str]:
    """Yield the settings of `folder` and its parents, up to the home, where the user's own begin."""
    _, _, files = _TOOLS.get(kind, ((), (), ()))
    while files and folder not in ("/", home):
        yield from (f"{folder}/{file}" for file in files)
        folder = os.path.dirname(folder)


def _settings(kind: str, folder: str, home: str, environ: Mapping[str, str]) -> Iterator[str]:
    """Yield every path that may name a registry: settings, and the lock files of `folder` and its parents."""
    yield from _own_files(kind, home, environ)
    yield from _project_files(kind, folder, home)
    name, _ = _LOCKS.get(kind, ("", None))
    while name and folder not in ("/", home):
        yield f"{folder}/{name}"
        folder = os.path.dirname(folder)


def _locked(kind: str, folder: str, home: str) -> Iterator[str]:
    """Return the registries in the lock file of `folder`, or of the nearest parent that has one."""
    name, address = _LOCKS.get(kind, ("", None))
    while address is not None and folder not in ("/", home):
        if text := text_of(f"{folder}/{name}"):
            yield from address.findall(text)
            return
        folder = os.path.dirname(folder)


def _found(kind: str, text: str) -> Iterator[str]:
    if kind == "go":
        lines = [line for line in text.splitlines() if line.startswith("GOPROXY=")]
    else:
        lines = _LINES[kind].findall(text.replace("\r", "\n")) if kind in _LINES else []
    for line in lines:
        yield from _ADDRESS.findall(line)


def _pip(text: str) -> Iterator[str]:
    parser = ConfigParser(interpolation=None, strict=False)
    try:
        parser.read_string(text)
    except Error:
        return
    for section in parser.sections():
        for key in ("index-url", "extra-index-url", "index_url", "extra_index_url"):
            yield from _ADDRESS.findall(parser.get(section, key, fallback=""))


def _readable(path: str) -> bool:
    """Return False if something is at `path` whose content is unknown: a folder, a pipe, or a file that is too long."""
    try:
        return read_file(path) is not None or not os.path.lexists(path)
    except UncertainSettingsError:
        return False
