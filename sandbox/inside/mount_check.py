"""Checks of a root that another program builds: the files that mounts must show, noted before and compared after.

THREAT T61: a builder that resolves names can be misled by a command that swaps a folder for a link meanwhile. So the
runner notes which file each mount must show, and the helper, which is inside and starts nothing before, compares all.
Standard library only.
"""

import os
from collections.abc import Mapping

from sandbox.inside import syscalls
from sandbox.inside.plan import Plan
from sandbox.inside.safe_rmtree import closing

ExpectedMount = tuple[str, int, int, bool]  # target, device, inode, read-only


def expect(plan: Plan, empty: dict[str, str]) -> tuple[ExpectedMount, ...]:
    """Return the file that each bind of `plan` must show.

    Raises OSError for a link that is not allowed, and for a mount point that would have to be created in a folder of
    the host, which is never changed.
    """
    steps: dict[str, tuple[str, str]] = {}
    put: dict[str, tuple[str, str]] = {}
    for kind, source, target in plan.mounts:
        below = nearest(target, put)
        if put.get(below, ("", ""))[0] in ("ro", "rw"):
            os.close(_open(put[below][1] + target[len(below) :], plan.real))
        put[target] = (kind, source)
        if kind in ("ro", "rw", "mask"):
            steps[target] = (kind, source)  # the last mount at a target is visible
    masked = tuple(target + "/" for target, (kind, source) in steps.items() if kind == "mask" and source == "dir")
    expected = []
    for target, (kind, source) in steps.items():
        if target.startswith(("/dev/", *masked)):
            continue  # made by the builder itself, or covered and so unreachable
        if kind == "mask":
            status = os.stat(empty["dir" if source == "dir" else "file"])
        else:
            with closing(_open(source, plan.real)) as place:
                status = os.fstat(place)
        expected.append((target, status.st_dev, status.st_ino, kind != "rw"))
    return tuple(expected)


def check(expected: tuple[ExpectedMount, ...], real: tuple[str, ...]) -> None:
    """Raise KernelError with the target unless each target is a separate mount that shows the expected file."""
    mounts: set[str] = set()
    for target, device, inode, read_only in expected:
        step = f"mount {target}: another program replaced the file meanwhile"
        with closing(_open(target, real)) as place:
            status = os.fstat(place)
            writable = not os.fstatvfs(place).f_flag & os.ST_RDONLY
            with open(f"/proc/self/fdinfo/{place}", encoding="ascii") as file:
                mount = next(line for line in file if line.startswith("mnt_id:"))
        if (status.st_dev, status.st_ino) != (device, inode) or (read_only and writable) or mount in mounts:
            raise syscalls.KernelError(step, 16)  # EBUSY
        mounts.add(mount)


def nearest(path: str, put: Mapping[str, object]) -> str:
    """Return the innermost folder in `put` that contains `path`; "/" if there is none."""
    while path != "/":
        path = path.rpartition("/")[0] or "/"
        if path in put:
            return path
    return "/"


def _open(path: str, real: tuple[str, ...]) -> int:
    """Return a handle on `path`. Raises OSError for a link on the way to a path below one of `real`."""
    return syscalls.open_path(path, syscalls.RESOLVE_NO_SYMLINKS if syscalls.within(path, real) else 0)
