"""The folders in which control groups can be made, at or above the runner's own group, and their preparation.

Version 1 has a tree of groups per controller, version 2 one tree for all (cgroups(7); the kernel's
`admin-guide/cgroup-v1/` and `admin-guide/cgroup-v2.rst`). Groups are created inside the runner's own group if possible,
so that limits on the runner hold for them too. Groups of killed sessions are removed.
"""

import contextlib
import os
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

from policy.model.frozen import dataclass

MEMORY, PIDS, CPU = "memory", "pids", "cpu"  # resources that a group can limit or count
_PREFIX = "ringfence-"
_OF_V1 = {"memory": MEMORY, "pids": PIDS, "cpuacct": CPU}
_ABOUT = ("/proc/self/mountinfo", "/proc/self/cgroup")
_moved: list[tuple[str, str, list[str]]] = []  # the runner's own group, its new leaf group, the enabled controllers


@dataclass(frozen=True, slots=True)
class CgroupPlace:
    """A folder of the kernel in which the runner may make groups.

    Attributes:
        version: Version of the control groups, 1 or 2.
        keeps: Resources that groups in this folder can limit or count.
        most: Limits of groups below this folder that hold for the runner and must be copied to new groups.
    """

    version: int
    folder: str
    keeps: frozenset[str]
    most: tuple[tuple[str, int], ...] = ()


@lru_cache(maxsize=1)
def usable() -> tuple[CgroupPlace, ...]:
    """Return the places in which this process may create groups. Removes groups of killed sessions."""
    try:
        mounts, own = (Path(path).read_text("utf-8", "surrogateescape") for path in _ABOUT)
    except OSError:
        return ()
    folders = tuple(places(mounts, own))
    for place in folders:
        sweep(place.folder)
    return folders


def places(mounts: str, own: str) -> Iterator[CgroupPlace]:
    """Yield each place for a group. `mounts` is the text of /proc/self/mountinfo, `own` that of /proc/self/cgroup."""
    paths = {part[1]: part[2] for line in own.splitlines() if len(part := line.split(":", 2)) == 3}
    by_controller = {name: path for names, path in paths.items() for name in names.split(",") if name}
    left = {MEMORY, PIDS, CPU}
    second: tuple[str, str] | None = None
    for line in mounts.splitlines():
        before, _, after = line.partition(" - ")
        fields, kind = before.split(), after.split()
        if len(fields) < 5 or not kind or kind[0] not in ("cgroup", "cgroup2"):
            continue
        root, point = (field.replace("\\040", " ") for field in fields[3:5])
        if kind[0] == "cgroup2":
            second = (root, point)
            continue
        names = [name for name in kind[-1].split(",") if name in _OF_V1 and name in by_controller]
        keeps = frozenset(_OF_V1[name] for name in names) & left
        folder = _beneath(point, root, by_controller[names[0]]) if names else None
        if keeps and folder and os.access(folder, os.W_OK):
            left -= keeps
            yield CgroupPlace(1, folder, keeps)
    if second and left & {MEMORY, PIDS} and (folder := _beneath(second[1], second[0], paths.get("", ""))):
        place = _of_v2(folder, second[1], frozenset(left))
        if place is not None:
            yield place


def _beneath(point: str, root: str, path: str) -> str | None:
    """Return the folder of the group `path` under the mount `point` of the subtree `root`; None if it is not there."""
    inner = path if root == "/" else path.removeprefix(root) if (path + "/").startswith(root + "/") else None
    if inner is None or not path.startswith("/") or ".." in inner.split("/"):
        return None
    folder = (point + inner).rstrip("/")
    return folder if os.path.isdir(folder) else None


def _of_v2(folder: str, point: str, wanted: frozenset[str]) -> CgroupPlace | None:
    """Return the nearest group, from the runner's own up, with limitable children and write access for the runner.

    A group with processes can have no limited children (cgroup-v2.rst, "No Internal Process Constraint"). So unless the
    runner is alone in its group, a parent group is used, and the limits of the groups below it are copied.
    """
    most: dict[str, int] = {}
    current, limited = folder, {MEMORY, PIDS} & wanted
    while (current + "/").startswith(point.rstrip("/") + "/"):
        # Moving a process needs write access to the nearest group above both its groups (cgroup-v2.rst, "Delegation").
        if os.access(current, os.W_OK) and os.access(f"{current}/cgroup.procs", os.W_OK):
            there = read_words(current, "cgroup.subtree_control")
            if current == folder and not limited <= there and make_room(current, frozenset(limited)):
                there = read_words(current, "cgroup.subtree_control")
            if there & limited:
                return CgroupPlace(2, current, frozenset(there & wanted | {CPU} & wanted), tuple(sorted(most.items())))
        if current == point or _tied(current):
            return None
        for what, names in ((MEMORY, ("memory.max", "memory.high")), (PIDS, ("pids.max",))):
            for name in names:
                for word in read_words(current, name) - {"max"}:
                    most[what] = min(most.get(what, int(word)), int(word))
        current = os.path.dirname(current)
    return None


def _tied(folder: str) -> bool:
    """Return True if a group has limits that cannot be copied to a group of a parent: a share of the processors,
    certain processors or memory nodes, a rate of a disk (cgroup-v2.rst, "Controllers")."""
    return read_line(folder, "cpu.max")[:1] not in ([], ["max"]) or any(
        read_words(folder, name) for name in ("cpuset.cpus", "cpuset.mems", "io.max")
    )


def make_room(folder: str, names: frozenset[str]) -> bool:
    """Enable controllers for children of the runner's group `folder`, and move the runner into a leaf group of it.
    Return False if other programs use the group, or the kernel refuses."""
    asked = sorted(names & read_words(folder, "cgroup.controllers"))
    inside = {int(word) for word in read_words(folder, "cgroup.procs")}
    leaf = f"{folder}/{mark(os.getpid())}self"
    if not asked or any(pid != os.getpid() and _stat(pid)[1:2] != [str(os.getpid())] for pid in inside):
        return False
    try:
        if inside:
            os.mkdir(leaf, 0o755)
            _moved.append((folder, leaf, asked))
            for pid in inside:
                write(leaf, "cgroup.procs", str(pid))
        write(folder, "cgroup.subtree_control", " ".join(f"+{name}" for name in asked))
    except OSError:
        move_back()
        return False
    return True


def move_back() -> None:
    """Restore the runner's own group to its state before `make_room`, so that new processes can enter the group."""
    while _moved:
        folder, leaf, names = _moved.pop()
        with contextlib.suppress(OSError):
            write(folder, "cgroup.subtree_control", " ".join(f"-{name}" for name in names))
        for word in read_words(leaf, "cgroup.procs"):
            with contextlib.suppress(OSError):  # it ended meanwhile
                write(folder, "cgroup.procs", word)
        removed(leaf)
        usable.cache_clear()


def sweep(folder: str) -> None:
    """Remove groups whose creators have ended. A group with a process stays, because rmdir(2) refuses."""
    with contextlib.suppress(OSError):
        for name in os.listdir(folder):
            parts = name.removeprefix(_PREFIX).split("-")
            if not name.startswith(_PREFIX) or len(parts) != 3 or not parts[0].isdigit():
                continue
            if mark(int(parts[0])) != f"{_PREFIX}{parts[0]}-{parts[1]}-":
                with contextlib.suppress(OSError):
                    os.rmdir(f"{folder}/{name}")


def mark(pid: int) -> str:
    """Return the beginning of the names of a process' groups. It has the start time, because numbers are reused."""
    birth = next(iter(_stat(pid)[19:20]), "gone")
    return f"{_PREFIX}{pid}-{birth}-"


def _stat(pid: int) -> list[str]:
    """Return the fields of proc_pid_stat(5) after the name, which may contain spaces and brackets."""
    with contextlib.suppress(OSError), open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
        return file.read().rpartition(")")[2].split()
    return []


def read_line(folder: str, name: str) -> list[str]:
    """Return the words of a file in order; empty if there is no such file."""
    with contextlib.suppress(OSError), open(f"{folder}/{name}", encoding="utf-8") as file:
        return file.read().split()
    return []


def read_words(folder: str, name: str) -> set[str]:
    """Return the words of a file whose order has no meaning."""
    return set(read_line(folder, name))


def write(folder: str, name: str, text: str, *, optional: bool = False) -> None:
    """Write `text` in one call, because the kernel takes each write as one command. Raises OSError, except for an
    `optional` file."""
    try:
        handle = os.open(f"{folder}/{name}", os.O_WRONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        if optional:
            return
        raise
    try:
        os.write(handle, text.encode())
    except OSError:
        if not optional:
            raise
    finally:
        os.close(handle)


def read(handle: int) -> bytes:
    return os.pread(handle, 4096, 0)


def field(content: bytes, name: bytes) -> int:
    """Return the number after `name` in lines of `NAME NUMBER`; 0 if there is none."""
    return next((int(line.split()[1]) for line in content.splitlines() if line.startswith(name + b" ")), 0)


def removed(path: str) -> bool:
    """Remove the group. Return False while it contains processes."""
    try:
        os.rmdir(path)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True
