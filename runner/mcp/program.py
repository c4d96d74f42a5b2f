"""The program of a tool server: where it is found, and the folders of its installation that it has to read."""

import os
import shutil
from collections.abc import Iterable, Mapping

from policy.model.secret_paths import inside
from policy.model.verdict import Problem, ProblemError

_HIGHEST = 8  # folders between a program and the folder of its installation
_LONGEST_LINE = 256  # bytes of `#!`


class ProgramMissing(ProblemError):
    """The error for a command of a server that is no program of this machine."""


def find_program(command: str, environ: Mapping[str, str], cwd: str) -> str:
    """Return the absolute path of the program `command`. Raise ProgramMissing."""
    found = shutil.which(command if "/" not in command else os.path.join(cwd, command), path=environ.get("PATH"))
    if found is None:
        why = "no folder on PATH has it" if "/" not in command else "it does not exist, or is not executable"
        raise ProgramMissing(Problem(f"the program `{command}` was not found", why, "install it, or name its path"))
    return os.path.abspath(found)


def installation(program: str, visible: Iterable[str], home: str) -> tuple[str, ...]:
    """Return the folders outside of `visible` that the program needs to start: that of its virtual environment or its
    package, and that of its interpreter.

    The home itself and the folders above it are never among them: they hold keys.
    """
    roots = tuple(visible)
    needed: list[str] = []
    for each in _programs(program):
        for path in dict.fromkeys((each, os.path.realpath(each))):
            if any(inside(path, root) for root in (*roots, *needed)):
                continue
            root = _root(path)
            needed.append(path if root in ("/", home) or inside(home, root) else root)
    return tuple(dict.fromkeys(needed))


def _programs(program: str) -> tuple[str, ...]:
    """Return the program and the interpreter that its first line names."""
    try:
        with open(program, "rb") as file:
            first = file.readline(_LONGEST_LINE)
    except OSError:
        return (program,)
    words = first[2:].decode("utf-8", "replace").split() if first.startswith(b"#!") else []
    if words and os.path.basename(words[0]) == "env" and len(words) > 1:
        words = [found] if (found := shutil.which(words[-1])) else []
    return (program, words[0]) if words and words[0].startswith("/") else (program,)


def _root(path: str) -> str:
    """Return the folder of the installation that contains the program at `path`."""
    folder = os.path.dirname(path)
    found = folder
    for _ in range(_HIGHEST):
        if os.path.basename(folder) == "node_modules" or os.path.exists(f"{folder}/pyvenv.cfg"):
            return folder  # a package needs those beside it
        if found == os.path.dirname(path) and os.path.exists(f"{folder}/package.json"):
            found = folder
        folder = os.path.dirname(folder)
    above = os.path.dirname(found)
    plain = found == os.path.dirname(path)  # no package was found
    installed = any(os.path.isdir(f"{above}/{each}") for each in ("lib", "lib64", "libexec"))
    return above if plain and os.path.basename(found) == "bin" and above != "/" and installed else found
