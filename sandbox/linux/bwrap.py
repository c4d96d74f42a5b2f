"""A Plan as a bubblewrap command line: the namespaces and the private root that T1's helper builds itself. Pure.

Only what bubblewrap 0.8 knows (bwrap(1)). It resolves every path by name, through links: `mounted.py` tells whether
what lies at each place afterwards is what the plan meant.
"""

from sandbox.inside.plan import Plan
from sandbox.linux.plan_builder import DEVICES, Step

# It reads the whole table of mounts after each one: a thousand take three seconds. It refuses 9,000 words (MAX_ARGS).
MOST = 1000
_BROUGHT = frozenset(f"/dev/{name}" for name in DEVICES)  # by its `--dev`, which alone can make ptys

# fmt: off
_ALONE = ("--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try",
          "--hostname", "sandbox", "--die-with-parent", "--as-pid-1", "--chdir", "/",
          # THREAT T11: root would keep every capability that it is not told to drop. Of the two that are left one
          # empties the bounding set, which bubblewrap does not do for root, and one makes devices read-only, which it
          # cannot without closing them. The helper drops both before anything starts.
          "--cap-drop", "ALL", "--cap-add", "CAP_SETPCAP", "--cap-add", "CAP_SYS_ADMIN")
_KERNELS = ("--dev", "/dev", "--proc", "/proc",
            # THREAT T61: for root, bubblewrap takes /proc/sys for read-only and leaves its files writable.
            "--ro-bind", "/proc/sys", "/proc/sys")
_SEALED = ("--remount-ro", "/dev", "--remount-ro", "/proc", "--remount-ro", "/")
# fmt: on


def options(plan: Plan, empty: dict[str, str], *, admin: bool) -> list[str]:
    """Return the options with which bubblewrap builds the plan's private root.

    Args:
        empty: The paths that are mounted over a secret `file` or `dir`.
        admin: True for root with its capabilities, who needs no user namespace.
    """
    words = [*(() if admin else ("--unshare-user",)), *_ALONE, *_KERNELS]
    for step in plan.mounts:
        words += _words(step, plan, empty)
    return [*words, *_SEALED]


def _words(step: Step | tuple[str, str, str], plan: Plan, empty: dict[str, str]) -> tuple[str, ...]:
    kind, source, target = step
    match kind:
        case "ro":
            # Bound by itself a device would be closed (`nodev`); what `--dev` brings along is sealed by the helper.
            return () if target in _BROUGHT else ("--ro-bind", source, target)
        case "rw":
            return () if target in _BROUGHT else ("--bind", source, target)
        case "tmpfs":
            mode = "1777" if target == "/dev/shm" else "0700"
            return ("--perms", mode, "--size", source or str(plan.tmpfs), "--tmpfs", target)
        case "folder":
            return ("--dir", target)
        case "link":
            return ("--symlink", source, target)
        case "mask":
            return ("--ro-bind", empty["dir" if source == "dir" else "file"], target)
        case _:
            raise ValueError(f"no such step: {kind}")
