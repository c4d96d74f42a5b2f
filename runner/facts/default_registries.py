"""Registries that package managers use where no settings name one, read from the files of the installed tools.

The addresses are not part of this program: a distribution may change them in its packages. A tool whose default cannot
be read has none, and the proxy then reports the host that the tool requests.
"""

import os
import re
from collections.abc import Iterator, Mapping
from glob import escape, glob
from pathlib import Path

from sandbox.workspace.git_settings import UncertainSettingsError, read_file

_ADDRESS = re.compile(r"https?://[^\s\"'`|,;#<>]+")
# SOURCE: npm's definition of the setting `registry`; pip's `PackageIndex`, which names the index and the host of its
# files (PyPI is the first); `go help environment`: $GOROOT/go.env has the defaults of GOPROXY and GOSUMDB.
_NPM = re.compile(r"\(\s*['\"]registry['\"]\s*,\s*\{\s*default:\s*['\"`](https?://[^\s'\"`]+)")
_PIP = re.compile(
    r"PackageIndex\(\s*['\"](https?://[^\s'\"]+)['\"]\s*,\s*file_storage_domain\s*=\s*['\"]([\w.-]+)['\"]"
)
_GO_SUMS = re.compile(r"^GOSUMDB=([\w.-]+)", re.MULTILINE)
_PROGRAMS = {"npm": ("npm",), "pip": ("pip", "pip3", "python3", "python"), "go": ("go",)}
_ALIKE = {"uv": "pip"}


def default_registry(kind: str, environ: Mapping[str, str]) -> tuple[str, tuple[str, ...]] | None:
    """Return the file that names the default registry of the tool `kind`, and the addresses in it.

    The first tool on the PATH that has such a file counts. Return None if there is none. Never raises.
    """
    kind = _ALIKE.get(kind, kind)
    for program in _PROGRAMS.get(kind, ()):
        for folder in environ.get("PATH", "").split(":"):
            place = f"{folder}/{program}"
            if not folder.startswith("/") or not os.access(place, os.X_OK):
                continue
            for file in _files(kind, place):
                if addresses := tuple(_addresses(kind, text_of(file))):
                    return file, addresses
    return None


def _files(kind: str, program: str) -> list[str]:
    """Return the files that may contain the default registry of `program`. A file need not exist."""
    root = Path(os.path.realpath(program)).parent.parent
    match kind:
        case "npm":
            definitions = "@npmcli/config/lib/definitions/definitions.js"
            return [
                str(root / "node_modules" / definitions),
                str(root.parent / definitions),
                str(root / "lib/utils/config/definitions.js"),
            ]
        case "pip":  # the script of an environment is in the environment, but its interpreter is a link to another one
            prefix = escape(os.path.dirname(os.path.dirname(program)))
            return sorted(glob(f"{prefix}/lib/python3*/*-packages/pip/_internal/models/index.py"), reverse=True)
        case _:
            return [str(root / "go.env")]


def _addresses(kind: str, text: str) -> Iterator[str]:
    match kind:
        case "npm":
            yield from _NPM.findall(text)[:1]
        case "pip":
            for index, host in _PIP.findall(text)[:1]:
                yield from (index, f"https://{host}")
        case _:
            for line in text.splitlines():
                if line.startswith("GOPROXY="):
                    yield from _ADDRESS.findall(line)
            yield from (f"https://{host}" for host in _GO_SUMS.findall(text) if host != "off")


def text_of(path: str) -> str:
    """Return the text of a regular file, or an empty text if there is none or it is too long. Never raises."""
    try:
        return (read_file(path) or b"").decode("utf-8", "surrogateescape")
    except UncertainSettingsError:
        return ""
