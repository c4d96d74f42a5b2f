"""The part of the private root that the Terms of nearly all commands contain, which a waiting helper builds early.

THREAT T297: a root that was built before the Terms were known could show a file that they do not grant, or a file as it
was before it was replaced. It is used only if every mount of it is one of the plan's, none would be hidden by
another one, and each source is the same file, with the same mounts below it, as when the root was built. Otherwise the
helper builds the whole root from the plan.
"""

import os
import select
from collections.abc import Iterable

from policy.model.secret_paths import inside
from policy.model.verdict import Rights, Terms
from sandbox.inside.plan import Plan
from sandbox.linux.plan_builder import MountStep, kind, mounts
from sandbox.workspace.protected_paths import Scan

_MOUNTS = "/proc/self/mountinfo"
_PERSONAL = ("/etc/passwd", "/etc/group")  # a copy with an entry for the user may be shown instead (`etc_files.py`)


class PreparedRoot:
    """The mounts of a root that is built early, and the state of their sources at that time. Linux only.

    Attributes:
        steps: The mounts, in build order.
    """

    def __init__(self, system: Iterable[str]) -> None:
        """Choose the mounts of the files `system`, the devices and the masks of /proc. Raises OSError without /proc."""
        shown = tuple(path for path in system if path not in _PERSONAL)
        terms = Terms(Rights.ISOLATED, "/nonexistent", "/", system=shown)
        found = mounts(terms, Scan(), kind, "")
        self.steps: tuple[MountStep, ...] = tuple(step for step in found if step[0] not in ("folder", "tmpfs"))
        self._built = frozenset(self.steps)
        self._sources = tuple(step[1] for step in self.steps if step[0] in ("ro", "rw"))
        self._targets = frozenset(step[2] for step in self.steps)
        self._under = self._targets.union(*map(_above, self._targets))
        # The mount table is opened first: a change after this moment is noticed (proc_pid_mounts(5)).
        self._table = os.open(_MOUNTS, os.O_RDONLY | os.O_CLOEXEC)
        self._below, self._files = self._mounts_below(), self._identities()

    def close(self) -> None:
        """Close the mount table. Calling this again has no effect."""
        if self._table >= 0:
            os.close(self._table)
            self._table = -1

    def fits(self, plan: Plan) -> bool:
        """Return True if a root with these mounts, and then the other mounts of `plan`, is the root of `plan`."""
        if not self._built.issubset(plan.mounts):
            return False
        if any(step[2] in self._under for step in plan.mounts if step not in self._built):
            return False  # such a mount would hide one that is above it in the plan
        if any(target in self._targets for target, _ in plan.marks):
            return False
        if any(inside(path, root) for path in (*self._sources, *self._targets) for root in plan.real):
            return False  # no link may be on the way to such a path, and these were resolved through links
        return not self._changed()

    def _changed(self) -> bool:
        poll = select.poll()
        poll.register(self._table, select.POLLPRI)
        try:
            return self._files != self._identities() or (bool(poll.poll(0)) and self._below != self._mounts_below())
        except OSError:
            return True  # a source is gone

    def _identities(self) -> tuple[tuple[int, int], ...]:
        found = map(os.stat, self._sources)
        return tuple((status.st_dev, status.st_ino) for status in found)

    def _mounts_below(self) -> tuple[bytes, ...]:
        """Return the lines of the mount table for mounts at or below the sources (proc_pid_mountinfo(5))."""
        with open(_MOUNTS, "rb") as file:
            lines = file.read().splitlines()
        roots = frozenset(map(_escaped, self._sources))
        above = tuple(root + b"/" for root in roots)
        return tuple(line for line in lines if (at := line.split(b" ")[4]) in roots or at.startswith(above))


def _escaped(path: str) -> bytes:
    """Return `path` as the mount table has it (fs/seq_file.c, mangle_path)."""
    name = os.fsencode(path)
    for character in (b"\\", b" ", b"\t", b"\n"):
        name = name.replace(character, b"\\%03o" % ord(character))
    return name


def _above(path: str) -> list[str]:
    """Return the folders above `path`, without the root."""
    found = []
    while (path := os.path.dirname(path)) != "/":
        found.append(path)
    return found
