"""The conversion of one document in the sandbox, in a new process that ends with it."""

import json
import os
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

from policy.decide import permit_conversion
from policy.model.action import ConvertDocument
from policy.model.frozen import dataclass
from policy.model.verdict import Permit, Problem
from runner.documents.document import Document, document_of
from runner.text.sanitize import one_line
from sandbox.backend import Backend, Outcome

# The modules that each kind needs, all of them in the extra `documents`.
KINDS: dict[str, tuple[str, ...]] = {
    "pdf": ("pypdfium2", "PIL"),
    "image": ("PIL",),
    "notebook": ("nbformat", "PIL"),
    "html": ("html_to_markdown",),
}
MOST = 32 << 20  # bytes of a document
_PROGRAM = Path(__file__).parent / "program"
# Folders with the libraries that an interpreter and its packages load. Those that are missing are left out.
_LIBRARIES = (
    "/lib", "/lib32", "/lib64", "/usr/lib", "/usr/lib32", "/usr/lib64", "/usr/local/lib", "/nix/store", "/gnu/store",
)  # fmt: skip
_SHARED = ("/", "/usr", "/usr/local", "/opt")  # prefixes with more than the interpreter


@dataclass(frozen=True, slots=True)
class _Place:
    """The files of the converter.

    Attributes:
        python: the interpreter.
        packages: folders from which packages are imported.
        paths: all files and folders that the converter reads, apart from system libraries.
    """

    python: str
    packages: tuple[str, ...]
    paths: tuple[str, ...]


async def converted(
    data: bytes,
    kind: str,
    permit: Permit,
    sandbox: Backend,
    options: Mapping[str, object] | None = None,
    *,
    program: Path = _PROGRAM,
) -> Document | Problem:
    """Return the content of a document, or the Problem: it is damaged, too large, or the converter failed.

    Raises SandboxUnavailable if the boundary cannot be built; then nothing ran.

    Args:
        kind: a key of KINDS.
        permit: the permit of the action that read the document. The converter gets no right beyond it.
        options: `first` and `last` (parts, from 1; 0 for all), and `images` (False for no images).
        program: the folder of the converter.
    """
    what = f"the {kind} document was not converted"
    if len(data) > MOST:
        return Problem(what, f"it has {len(data):,} bytes, and at most {MOST:,} are read", "split it, or read a part")
    if missing := missing_extra(kind):
        return missing
    place = _place(kind, program)
    argv = (place.python, "-I", "-S", "-B", f"{os.path.realpath(program)}/start.py", *place.packages)
    libraries = tuple(path for path in _LIBRARIES if os.path.isdir(path))
    try:
        own = permit_conversion(permit, ConvertDocument(argv, libraries, place.paths, kind))
    except ValueError as error:
        fix = "install ringfence into an environment of its own (`pipx install`, `uv tool install`)"
        return Problem(what, f"the converter cannot be confined: {error}", fix)
    head = json.dumps({"kind": kind, "options": dict(options or {})}).encode()
    outcome = await sandbox.run(own, stdin=head + b"\n" + data)
    if (problem := _failure(what, outcome)) is not None:
        return problem
    return document_of(kind, outcome.stdout)


def missing_extra(kind: str) -> Problem | None:
    """Return the Problem of a library that is not installed; None if all that `kind` needs are."""
    for module in KINDS[kind]:
        if find_spec(module) is None:
            why = f"the library `{module}` is not installed"
            fix = "install the extra: `pip install 'ringfence[documents]'`"
            return Problem(f"{kind} documents cannot be read", why, fix)
    return None


def _failure(what: str, outcome: Outcome) -> Problem | None:
    """Return the Problem of a converter that did not answer; None if it did."""
    fix = "the document may be damaged or hostile; read a part of it, or convert it with another program"
    if outcome.ended_by is not None:
        return Problem(what, f"the converter reached the {one_line(outcome.ended_by, 40)} limit", fix)
    if outcome.problem is not None:
        return outcome.problem
    if outcome.status:
        said = outcome.stderr.decode("utf-8", "replace").strip().rpartition("\n")[2]
        last = f": {one_line(said, 200)}" if said else ""
        return Problem(what, f"the converter ended with status {outcome.status}{last}", fix)
    return None


def _place(kind: str, program: Path) -> _Place:
    """Return the files of the converter: the interpreter of this program, and the folders of the packages."""
    python = os.path.realpath(getattr(sys, "_base_executable", "") or sys.executable)
    packages = []
    for module in KINDS[kind]:
        spec = find_spec(module)
        if spec is not None and spec.origin is not None:
            packages.append(os.path.dirname(os.path.dirname(os.path.realpath(spec.origin))))
    library = os.path.dirname(os.path.realpath(os.__file__))
    compiled = os.path.join(sys.base_exec_prefix, sys.platlibdir, os.path.basename(library), "lib-dynload")
    prefix = os.path.realpath(sys.base_prefix)
    paths = [python, library, *packages, os.path.realpath(program)]
    paths += [prefix] if prefix not in _SHARED else []
    paths += [os.path.realpath(compiled)] if os.path.isdir(compiled) else []
    outer = [path for path in dict.fromkeys(paths) if not any(_below(path, other) for other in paths)]
    return _Place(python, tuple(dict.fromkeys(packages)), tuple(sorted(outer)))


def _below(path: str, folder: str) -> bool:
    return path.startswith(f"{folder}/")
