"""The paths of the helper's interpreter and code, for a private root that is built before the helper starts."""

import os
import shutil
import struct
import sys
from functools import lru_cache

from policy.model.secret_paths import inside
from sandbox.linux.plan_builder import MountStep

OURS = "/run/ringfence"  # the folder inside for the code of the helper
_PACKAGE = f"{OURS}/{__name__.rpartition('.linux.')[0].replace('.', '/')}"  # the package `sandbox` inside
HELPER = (f"{_PACKAGE}/inside/helper.py", OURS)  # the script, and the folder from which it imports
# THREAT T32: PATH is never used, because it may contain a folder of a workspace.
_FOLDERS = ("/usr/bin", "/bin", "/usr/local/bin", "/run/current-system/sw/bin")


def bubblewrap() -> str | None:
    """Return the path of bubblewrap in a system folder; None if there is none."""
    return shutil.which("bwrap", path=":".join(_FOLDERS))


def steps(visible: tuple[str, ...]) -> tuple[MountStep, ...]:
    """Return read-only mounts of all paths that the helper needs and that are not below one of `visible`."""
    ours: MountStep = ("ro", os.path.dirname(os.path.dirname(os.path.realpath(__file__))), _PACKAGE)
    lacking = [path for path in _needed() if not any(inside(path, root) for root in visible)]
    return (ours, *(("ro", path, name) for path in lacking for name in _names(path)))


@lru_cache(maxsize=1)
def _needed() -> tuple[str, ...]:
    """Return the interpreter, its standard library, and every shared library and loader that this process has
    mapped.
    """
    library = os.path.dirname(os.path.realpath(os.__file__))
    compiled = os.path.join(sys.base_exec_prefix, sys.platlibdir, os.path.basename(library), "lib-dynload")
    with open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as file:
        mapped = {line.split(maxsplit=5)[5].rstrip("\n") for line in file if line.count("/") and ".so" in line}
    # Extension modules are omitted here: the folders of the standard library have all that the helper uses.
    elsewhere = ("/site-packages/", "/lib-dynload/")
    paths = {path for path in mapped if not any(part in path for part in elsewhere) and os.path.isfile(path)}
    paths |= {os.path.realpath(sys.executable), library, *_loader(os.path.realpath(sys.executable))}
    if os.path.isdir(compiled) and not inside(os.path.realpath(compiled), library):
        paths.add(os.path.realpath(compiled))
    return tuple(sorted(path for path in paths if not path.startswith(library + "/")))


def _names(path: str) -> tuple[str, ...]:
    """Return all names of a library: programs request it by the short name of a link in its folder."""
    if ".so" not in path:
        return (path,)
    folder = os.path.dirname(path)
    links = (entry.path for entry in os.scandir(folder) if entry.is_symlink())
    return (path, *(link for link in links if os.path.realpath(link) == path))


def _loader(program: str) -> set[str]:
    """Return the path of the loader that the program names (PT_INTERP, elf(5)); empty if there is none."""
    with open(program, "rb") as file:
        head = file.read(64)
        if head[:5] != b"\x7fELF\x02":
            return set()
        at, size, count = struct.unpack_from("<Q", head, 32)[0], *struct.unpack_from("<HH", head, 54)
        file.seek(at)
        table = file.read(size * count)
        for n in range(count):
            kind, _, offset, _, _, length = struct.unpack_from("<IIQQQQ", table, n * size)
            if kind == 3:
                file.seek(offset)
                return {os.fsdecode(file.read(length).rstrip(b"\0"))}
    return set()
