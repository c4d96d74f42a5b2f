"""The launch of bubblewrap for T2: its options for a plan, and the helper that it starts.

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
from sandbox.linux.helper_process import import_folder, interpreter, spawn
from sandbox.linux.plan_builder import DEVICES
from sandbox.linux.session_tmp import Scratch

# The largest number of mounts. Bubblewrap reads the whole mount table after each mount, which takes three seconds for a
# thousand mounts, and refuses 9,000 words (MAX_ARGS).
MOST = 1000
_BROUGHT = frozenset(f"/dev/{name}" for name in DEVICES)  # made by its option `--dev`, which also makes ptys

# fmt: off
_ALONE = ("--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try",
          "--hostname", "sandbox", "--die-with-parent", "--as-pid-1", "--chdir", "/",
          # THREAT T11: root would keep every capability that is not dropped. The helper needs one of the two that are
          # left to empty the bounding set, which bubblewrap does not do for root, and one to make devices read-only,
          # which bubblewrap cannot do without making them unusable. The helper drops both before a command starts.
          "--cap-drop", "ALL", "--cap-add", "CAP_SETPCAP", "--cap-add", "CAP_SYS_ADMIN")
_KERNELS = ("--dev", "/dev", "--proc", "/proc",
            # THREAT T61: for root, bubblewrap assumes that /proc/sys is read-only and leaves its files writable.
            "--ro-bind", "/proc/sys", "/proc/sys")
_SEALED = ("--remount-ro", "/dev", "--remount-ro", "/proc", "--remount-ro", "/")
# fmt: on


def options(plan: Plan, empty: dict[str, str], *, admin: bool) -> list[str]:
    """Return the options with which bubblewrap builds the plan's private root.

    Args:
        empty: The paths that are mounted over a secret `file` or `dir`.
        admin: True for root with its capabilities, who needs no user namespace.
    """
    # A joined network belongs to a user namespace in which this user's number is 0, so the number is stated.
    who = ("--unshare-user", "--uid", str(os.geteuid()), "--gid", str(os.getegid()))
    words = [*(() if admin else who), *(() if plan.joined else ("--unshare-net",)), *_ALONE, *_KERNELS]
    for kind, source, target in plan.mounts:
        if kind in ("ro", "rw"):
            # A device in a bind mount would be unusable (`nodev`); the helper makes the devices of `--dev` read-only.
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


def _entering(network: tuple[int, ...]) -> tuple[str, ...]:
    """Return the words before a program that make it start in the network namespace of these descriptors."""
    if not network:
        return ()
    script = os.path.join(os.path.dirname(os.path.dirname(__file__)), "inside", "join_network.py")
    return (*interpreter(), script, import_folder(), ",".join(map(str, network)))


class Waiting:
    """A bubblewrap that waits for its options until `go`, and then starts a helper. The caller ends the helper.

    The constructor sets `plan.expected`. It raises SandboxUnavailable if bubblewrap cannot build the plan.
    """

    def __init__(self, plan: Plan, scratch: Scratch, network: tuple[int, ...] = ()) -> None:
        """Start bubblewrap, in the network namespace of the descriptors `network` if there are any."""
        program = interpreter_paths.bubblewrap()
        if program is None:
            why = "bubblewrap (`bwrap`) is not installed in a system folder"
            fix = "run `agent doctor` for the command that installs it; nothing was run"
            raise SandboxUnavailable.of("the T2 sandbox cannot be built here", why, fix, check="bwrap")
        if len(plan.mounts) > MOST:
            raise SandboxUnavailable.of(
                "the workspace contains too many secret, auto-run or hard-linked files for the T2 sandbox",
                f"bubblewrap takes too long for more than {MOST} of them, and protecting only some would leave a gap",
                "use --cwd with a smaller folder, or run `git repack -a -d` in a clone that shares its objects",
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
        # The real path of the interpreter is needed, because the link of a virtual environment does not exist inside.
        inner = (os.path.realpath(sys.executable), *interpreter()[1:], *interpreter_paths.HELPER)
        try:
            before = _entering(network)
            self.helper = spawn(
                lambda control: (*before, program, "--args", str(words), "--", *inner, str(control)), (words, *network)
            )
        except BaseException:
            self.drop()
            raise
        finally:
            os.close(words)

    def go(self) -> None:
        """Send bubblewrap its options, so that it builds the root and starts the helper."""
        with contextlib.suppress(BrokenPipeError), self._pipe:  # bubblewrap ended: the helper's socket is closed
            self._pipe.write(self._options)

    def drop(self) -> None:
        """Close the pipe without sending options. Calling this after `go` has no effect."""
        with contextlib.suppress(BrokenPipeError):
            self._pipe.close()
