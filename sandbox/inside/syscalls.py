"""Thin wrappers of the system calls for confinement that raise KernelError. Standard library only.

Numbers and constants come from the kernel's headers (`asm/unistd.h`, `linux/mount.h`, `linux/landlock.h`,
`linux/prctl.h`); semantics from mount_setattr(2), open_tree(2), pivot_root(2), landlock(7), seccomp(2),
capabilities(7), user_namespaces(7).
"""

import ctypes
import errno
import os
import struct

from sandbox.inside.safe_rmtree import closing

TYPE_CHECKING = False  # a helper starts faster without the modules that only annotations need
if TYPE_CHECKING:
    from collections.abc import Callable

_libc = ctypes.CDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long
_libc.mount.argtypes = [ctypes.c_char_p, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_ulong, ctypes.c_char_p]

# fmt: off
NUMBERS: dict[str, dict[str, int]] = {
    "x86_64":  {"capset": 126, "pivot_root": 155, "rt_sigaction":  13, "rt_sigprocmask":  14, "seccomp": 317},
    "aarch64": {"capset":  91, "pivot_root":  41, "rt_sigaction": 134, "rt_sigprocmask": 135, "seccomp": 277},
}
# System calls that have one number on every architecture (asm-generic since Linux 5.x).
OPEN_TREE, MOVE_MOUNT, OPENAT2, MOUNT_SETATTR = 428, 429, 437, 442
FSOPEN, FSCONFIG, FSMOUNT = 430, 431, 432
LANDLOCK_CREATE_RULESET, LANDLOCK_ADD_RULE, LANDLOCK_RESTRICT_SELF = 444, 445, 446

CLONE_NEWNS, CLONE_NEWUTS, CLONE_NEWIPC = 0x00020000, 0x04000000, 0x08000000
CLONE_NEWUSER, CLONE_NEWPID, CLONE_NEWNET, CLONE_NEWCGROUP = 0x10000000, 0x20000000, 0x40000000, 0x02000000
MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_REC, MS_PRIVATE = 2, 4, 8, 0x4000, 0x40000
MNT_DETACH = 2
ATTR_RDONLY, ATTR_NOSUID, ATTR_NODEV, ATTR_NOEXEC = 1, 2, 4, 8
AT_FDCWD, AT_EMPTY_PATH, AT_RECURSIVE = -100, 0x1000, 0x8000
OPEN_TREE_CLONE, OPEN_TREE_CLOEXEC = 1, os.O_CLOEXEC
MOVE_MOUNT_F_EMPTY_PATH, MOVE_MOUNT_T_EMPTY_PATH = 4, 0x40
RESOLVE_NO_SYMLINKS, RESOLVE_BENEATH, RESOLVE_IN_ROOT = 4, 8, 0x10
FSOPEN_CLOEXEC, FSMOUNT_CLOEXEC, FSCONFIG_SET_FLAG, FSCONFIG_SET_STRING, FSCONFIG_CMD_CREATE = 1, 1, 0, 1, 6
PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_CAPBSET_DROP = 1, 4, 24
PR_SET_NO_NEW_PRIVS, PR_SET_CHILD_SUBREAPER, PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL = 38, 36, 47, 4
SECCOMP_SET_MODE_FILTER = 1
SIG_IGN, SIG_SETMASK = 1, 2
CAP_SYS_ADMIN = 21
LANDLOCK_CREATE_RULESET_VERSION = 1
LANDLOCK_RULE_PATH_BENEATH = 1
# fmt: on


class KernelError(OSError):
    """A confinement step that the kernel refused; `step` names it for the user."""

    def __init__(self, step: str, number: int) -> None:
        super().__init__(number, os.strerror(number))
        self.step = step


def _checked(step: str, result: int) -> int:
    if result < 0:
        raise KernelError(step, ctypes.get_errno())
    return result


def _syscall(step: str, number: int, *args: object) -> int:
    # SAFETY: every integer is passed as a full machine word, or the upper half would be garbage.
    words = [ctypes.c_long(arg) if isinstance(arg, int) else arg for arg in args]
    return _checked(step, int(_libc.syscall(ctypes.c_long(number), *words)))


def _typed(*kinds: "type[ctypes.c_long] | type[ctypes.c_char_p]") -> "Callable[..., int]":
    """Return syscall(2) for arguments of these types of ctypes, for the calls that a helper makes for each mount: it
    converts them in a third of the time of `_syscall`.
    """
    function = _libc["syscall"]
    function.restype, function.argtypes = ctypes.c_long, [ctypes.c_long, *kinds]
    return function


_openat2 = _typed(ctypes.c_long, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_long)
_open_tree = _typed(ctypes.c_long, ctypes.c_char_p, ctypes.c_long)
_set_attributes = _typed(ctypes.c_long, ctypes.c_char_p, ctypes.c_long, ctypes.c_char_p, ctypes.c_long)
_move_mount = _typed(ctypes.c_long, ctypes.c_char_p, ctypes.c_long, ctypes.c_char_p, ctypes.c_long)


def _number(name: str) -> int:
    machine = os.uname().machine
    if machine not in NUMBERS:
        raise KernelError(f"{name} on {machine}", errno.ENOSYS)  # no table for this architecture
    return NUMBERS[machine][name]


def within(path: str, roots: tuple[str, ...]) -> bool:
    """Return True if `path` is one of `roots` or lies below one."""
    return path in roots or path.startswith(tuple([root.rstrip("/") + "/" for root in roots]))


def is_admin() -> bool:
    """Return True for root with the capability to make namespaces, which root of a container may lack."""
    return os.geteuid() == 0 and capable(CAP_SYS_ADMIN)


def capable(capability: int) -> bool:
    """Return True if the effective set of this process has the capability (capabilities(7))."""
    with open("/proc/self/status", "rb") as file:  # the codec of a text file costs a millisecond at a helper's start
        powers = next((line.split()[1] for line in file if line.startswith(b"CapEff:")), b"0")
    return bool(int(powers, 16) >> capability & 1)


def unshare(flags: int) -> None:
    _checked("create namespaces", int(_libc.unshare(ctypes.c_int(flags))))


def setns(namespace: int, kind: int) -> None:
    _checked("enter a namespace", int(_libc.setns(ctypes.c_int(namespace), ctypes.c_int(kind))))


def mount(source: str, target: str, kind: str | None, flags: int, data: str = "") -> None:
    code = _libc.mount(
        os.fsencode(source), os.fsencode(target), os.fsencode(kind) if kind else None, flags, os.fsencode(data)
    )
    _checked(f"mount {kind or source} on {target}", int(code))


def unmount(target: str) -> None:
    _checked(f"unmount {target}", int(_libc.umount2(os.fsencode(target), MNT_DETACH)))


def detach_here() -> None:
    """Detach the mount whose root is the current folder, with all mounts below it, and make `/` the current folder."""
    _checked("detach the current folder", int(_libc.umount2(b".", MNT_DETACH)))
    os.chdir("/")


def detach_root() -> None:
    """Make the current folder the root and detach the old root (pivot_root(2), the `.` `.` form)."""
    _syscall("pivot_root", _number("pivot_root"), b".", b".")
    _checked("detach the old root", int(_libc.umount2(b".", MNT_DETACH)))
    os.chdir("/")


def open_path(path: str, resolve: int, root: int = AT_FDCWD) -> int:
    """Return a handle on `path`, resolved by `resolve` (RESOLVE_*, openat2(2)); with RESOLVE_IN_ROOT from `root`
    down.
    """
    how = struct.pack("QQQ", os.O_PATH | os.O_CLOEXEC, 0, resolve)
    return _checked(f"open {path}", _openat2(OPENAT2, root, os.fsencode(path), how, len(how)))


def clone_tree(path: str, attributes: int, *, links: bool = True, root: int = AT_FDCWD) -> int:
    """Return a descriptor of a detached copy of the mount at `path`, with `attributes` (ATTR_*) set recursively.

    Without `links`, no part of `path` may be a link. `path` is resolved inside the open folder `root` if that is given.
    Raises KernelError.
    """
    inside = 0 if root == AT_FDCWD else RESOLVE_IN_ROOT
    with closing(open_path(path, inside | (0 if links else RESOLVE_NO_SYMLINKS), root)) as place:
        flags = OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_RECURSIVE | AT_EMPTY_PATH
        tree = _checked(f"open {path}", _open_tree(OPEN_TREE, place, b"", flags))
    if attributes:
        set_attributes(tree, attributes, recursive=True)
    return tree


def fresh_tmpfs(mode: str, size: int) -> int:
    """Return an empty tmpfs of `size` bytes that is attached nowhere, without devices and setuid programs."""
    # An empty file uses memory but no bytes of the size, so the inodes are limited to the number of pages.
    return _fresh("tmpfs", {"mode": mode, "size": str(size), "nr_inodes": str(max(size >> 12, 1024))})


def fresh_overlay(lower: int, upper: int, work: int) -> int:
    """Return an overlay of the open folder `lower` that is attached nowhere, without devices and setuid programs.

    Changes go to the open folder `upper`, on the same file system as the open folder `work`; both are empty. No file
    of `lower` can name another one as its content or its place (`redirect_dir`, `metacopy`).
    SOURCE: Documentation/filesystems/overlayfs.rst of the kernel.
    """
    # THREAT T299: the folders are named by descriptor, so nothing can replace one between its check and the mount, and
    # no character of a path is read as a separator.
    folders = {"lowerdir": lower, "upperdir": upper, "workdir": work}
    settings = {key: f"/proc/self/fd/{handle}" for key, handle in folders.items()}
    settings |= {"redirect_dir": "nofollow", "metacopy": "off", "index": "off", "nfs_export": "off", "xino": "off"}
    # Without `volatile`, the end of each overlay writes all changes of the whole file system to the disk (sync(2)).
    return _fresh("overlay", settings, ("userxattr", "volatile"))


def _fresh(kind: str, settings: dict[str, str], flags: tuple[str, ...] = ()) -> int:
    """Return a new file system that is attached nowhere, without devices and setuid programs (fsmount(2))."""
    with closing(_syscall(f"make a file system ({kind})", FSOPEN, kind.encode(), FSOPEN_CLOEXEC)) as context:
        for flag in flags:
            _syscall(f"set {flag} ({kind})", FSCONFIG, context, FSCONFIG_SET_FLAG, flag.encode(), None, 0)
        for key, value in settings.items():
            _syscall(f"set {key} ({kind})", FSCONFIG, context, FSCONFIG_SET_STRING, key.encode(), value.encode(), 0)
        _syscall(f"make a file system ({kind})", FSCONFIG, context, FSCONFIG_CMD_CREATE, None, None, 0)
        return _syscall(f"mount a file system ({kind})", FSMOUNT, context, FSMOUNT_CLOEXEC, ATTR_NOSUID | ATTR_NODEV)


def set_attributes(tree: int, attributes: int, *, recursive: bool) -> None:
    value = struct.pack("QQQQ", attributes, 0, 0, 0)
    flags = AT_EMPTY_PATH | (AT_RECURSIVE if recursive else 0)
    _checked("set mount attributes", _set_attributes(MOUNT_SETATTR, tree, b"", flags, value, len(value)))


def attach_tree(tree: int, root: int, path: str, *, links: bool = True, covered: int | None = None) -> None:
    """Mount `tree` at `path` below the folder `root`, and close it. Links are resolved inside `root`; without `links`,
    no part of `path` may be a link. `covered`: the inode of the file there, if that must be a certain file.
    """
    with closing(open_path(path, RESOLVE_IN_ROOT | (0 if links else RESOLVE_NO_SYMLINKS), root)) as place:
        if covered is not None and os.fstat(place).st_ino != covered:
            raise replaced(path)
        attach_at(tree, place, path)
    os.close(tree)


def attach_at(tree: int, place: int, path: str) -> None:
    """Mount `tree` on the open file `place`, which an error calls `path`."""
    flags = MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH
    _checked(f"attach {path}", _move_mount(MOVE_MOUNT, tree, b"", place, b"", flags))


def require_inode(path: str, inode: int, root: int) -> None:
    """Raise KernelError unless `path`, relative to the open folder `root` and without a link, is the file `inode`."""
    with closing(open_path(path, RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS, root)) as place:
        if os.fstat(place).st_ino != inode:
            raise replaced(path)


def replaced(path: str) -> KernelError:
    """Return the error for a mount at `path` that would not cover the file that the runner examined."""
    return KernelError(f"mount {path}: another program replaced the file meanwhile", errno.EBUSY)


def prctl(option: int, value: int = 0, step: str = "prctl") -> None:
    _checked(step, int(_libc.prctl(ctypes.c_int(option), *(ctypes.c_ulong(word) for word in (value, 0, 0, 0)))))


def set_hostname(name: str) -> None:
    raw = name.encode()
    _checked("set the host name", int(_libc.sethostname(raw, ctypes.c_size_t(len(raw)))))


def drop_capabilities(kept: int | None = None) -> None:
    """Empty every capability set, so that exec restores none; the bounding set only with CAP_SETPCAP.

    `kept` is a capability that stays effective and permitted, and that no program gets by exec.
    """
    prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, "clear ambient capabilities")
    for capability in range(64):
        try:
            prctl(PR_CAPBSET_DROP, capability, "drop a bounding capability")
        except KernelError as error:
            if error.errno == errno.EINVAL:
                break  # past the last capability of this kernel
            if error.errno != errno.EPERM:  # without CAP_SETPCAP; no_new_privs still prevents new capabilities
                raise
    header = struct.pack("Ii", 0x20080522, 0)  # _LINUX_CAPABILITY_VERSION_3, this process
    held = 1 << kept if kept is not None else 0
    low, high = held & 0xFFFFFFFF, held >> 32
    _syscall("drop capabilities", _number("capset"), header, struct.pack("6I", low, low, 0, high, high, 0))


def landlock_abi() -> int:
    """Return the Landlock ABI of the running kernel; 0 if Landlock is missing or disabled at boot."""
    try:
        return _syscall("query the Landlock version", LANDLOCK_CREATE_RULESET, None, 0, LANDLOCK_CREATE_RULESET_VERSION)
    except KernelError:
        return 0


def landlock(
    handled_fs: int,
    handled_net: int,
    scoped: int,
    rules: list[tuple[str | int, int]],
    size: int,
    flags: int = 0,
) -> None:
    """Restrict this process and its children to `rules`: (path or descriptor, access bits). `size` is the ABI's
    attribute size. The descriptors stay open.
    """
    attributes = struct.pack("QQQ", handled_fs, handled_net, scoped)[:size]
    ruleset = _syscall("create a Landlock ruleset", LANDLOCK_CREATE_RULESET, attributes, size, 0)
    for path, access in rules:
        handle = os.dup(path) if isinstance(path, int) else os.open(path, os.O_PATH | os.O_CLOEXEC)
        with closing(handle) as folder:
            rule = struct.pack("=Qi", access, folder)
            _syscall(f"allow {path}", LANDLOCK_ADD_RULE, ruleset, LANDLOCK_RULE_PATH_BENEATH, rule, 0)
    _syscall("enter the Landlock domain", LANDLOCK_RESTRICT_SELF, ruleset, flags)
    os.close(ruleset)


def seccomp(program: bytes) -> None:
    """Load a classic BPF program (an array of struct sock_filter). Needs no_new_privs."""
    filters = ctypes.create_string_buffer(program, len(program))

    class Program(ctypes.Structure):
        _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_void_p))

    value = Program(len(program) // 8, ctypes.addressof(filters))
    _syscall("load the seccomp filter", _number("seccomp"), SECCOMP_SET_MODE_FILTER, 0, ctypes.byref(value))


def ignore_signal(number: int) -> None:
    """Ignore a signal. The C library refuses this for its own signals 32 and 33 (nptl(7)), the kernel does not.

    Its posix_spawn(3), which make(1) uses, starts every program with the two ignored. SOURCE: rt_sigaction(2).
    """
    action = struct.pack("4Q", SIG_IGN, 0, 0, 0)  # the handler, flags, restorer and mask of the kernel's structure
    _syscall(f"ignore signal {number}", _number("rt_sigaction"), number, action, None, 8)


def block_signals(mask: int) -> None:
    """Block exactly the signals whose bits are set in `mask` (bit 0 for signal 1). SOURCE: rt_sigprocmask(2)."""
    _syscall("block signals", _number("rt_sigprocmask"), SIG_SETMASK, struct.pack("Q", mask), None, 8)
