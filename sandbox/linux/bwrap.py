"""The launch of bubblewrap for T2: a plan as its command line, and a helper that waits behind it.

Bubblewrap builds the namespaces and the private root that T1's helper builds itself. Only options of bubblewrap 0.8 are
used (bwrap(1)). Bubblewrap resolves every path by name, through links: `mount_check.py` checks afterwards that each
mount shows the file that the plan meant.
"""

import contextlib
import os
import sys

from sandbox.backend import SandboxUnavailable, helper_failed
from sandbox.inside import mount_check, syscalls
from sandbox.inside.plan import Plan
from sandbox.linux import interpreter_paths
from sandbox.linux.helper_process import interpreter, spawn
from sandbox.linux.plan_builder import DEVICES
from sandbox.linux.session_tmp import Scratch

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
    for kind, source, target in plan.mounts:
        if kind in ("ro", "rw"):
            # Bound by itself a device would be closed (`nodev`); what `--dev` contains is sealed by the helper.
            if target not in _BROUGHT:
                words += ("--ro-bind" if kind == "ro" else "--bind", source, target)
        elif kind == "tmpfs":
            mode = "1777" if target == "/dev/shm" else "0700"
            words += ("--perms", mode, "--size", source or str(plan.tmpfs), "--tmpfs", target)
        elif kind == "folder":
            words += ("--dir", target)
        elif kind == "link":
            words += ("--symlink", source, target)
        elif kind == "mask":
            words += ("--ro-bind", empty["dir" if source == "dir" else "file"], target)
        else:
            raise ValueError(f"no such step: {kind}")
    return [*words, *_SEALED]


class Waiting:
    """A helper behind a bubblewrap that reads its options until `go`. The caller ends the helper.

    Raises SandboxUnavailable. Sets the mounts that `plan` expects.
    """

    def __init__(self, plan: Plan, scratch: Scratch) -> None:
        program = interpreter_paths.bubblewrap()
        if program is None:
            why = "bubblewrap (`bwrap`) is not installed in a system folder"
            fix = "run `agent doctor`: it says how to install it; nothing was run"
            raise SandboxUnavailable.of("the T2 sandbox cannot be built here", why, fix)
        if len(plan.mounts) > MOST:
            raise SandboxUnavailable.of(
                "the workspace holds too many secret, auto-run or hard-linked files for the T2 sandbox",
                f"bubblewrap takes too long over more than {MOST} of them, and protecting only some would be a gap",
                "use --cwd with a smaller folder; a clone that shares its objects stops doing so by `git repack -a -d`",
            )
        empty = scratch.empty()
        try:
            plan.expected = mount_check.expect(plan, empty)
        except OSError as error:
            step = getattr(error, "step", f"look at {error.filename}")
            raise helper_failed("T2", f"failed {error.errno} {step}") from None
        self._options = b"\0".join(map(os.fsencode, options(plan, empty, admin=syscalls.is_admin())))
        words, write = os.pipe2(os.O_CLOEXEC)
        self._pipe = os.fdopen(write, "wb")
        # The real path of the interpreter: a virtual environment's link is not inside.
        inner = (os.path.realpath(sys.executable), *interpreter()[1:], interpreter_paths.HELPER)
        try:
            self.helper = spawn(lambda control: (program, "--args", str(words), "--", *inner, str(control)), (words,))
        except BaseException:
            self.drop()
            raise
        finally:
            os.close(words)

    def go(self) -> None:
        """Let it build."""
        with contextlib.suppress(BrokenPipeError), self._pipe:  # it ended: its socket tells
            self._pipe.write(self._options)

    def drop(self) -> None:
        """Give up. After `go` too."""
        with contextlib.suppress(BrokenPipeError):
            self._pipe.close()
