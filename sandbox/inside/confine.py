"""The steps that confine a process, in the only order that works. Runs inside the helper, standard library only.

Order (user_namespaces(7), pid_namespaces(7), pivot_root(2), landlock(7)): user namespace and its maps, the other
namespaces, fork to become PID 1, mount namespace, private mounts, private root, /proc, limits, no_new_privs, Landlock,
capabilities, not dumpable, seccomp. For root, the user namespace follows after the private root. Each step needs
something that a later one takes away.

A helper that waits for its plan can build the part of the private root that nearly all plans contain: `prepare_base`.
"""

import errno
import fcntl
import os
import resource
import signal
import socket
import stat
import struct

from sandbox.inside import join_network, mount_check, syscalls
from sandbox.inside.plan import Plan
from sandbox.inside.safe_rmtree import closing

# Kernel objects that are counted by user and that no rlimit bounds: the setting of a user namespace (namespaces(7),
# /proc/sys/user), and that of the whole machine. Each object also counts in all user namespaces above.
SHARED = (("max_inotify_instances", "max_user_instances"), ("max_inotify_watches", "max_user_watches"))
SHARE = 4  # a command may use one fourth of its user's limit
TERMINALS = 1_024  # pseudo-terminals of a command; the machine has 4,096 (/proc/sys/kernel/pty/max)
_SETID = (6, 7, 31)  # CAP_SETGID, CAP_SETUID, CAP_SETFCAP, which allow to map all ids (user_namespaces(7))
ROOT_SIZE = 16 << 20  # bytes for the mount points of a root, which commands cannot write to
_GUARDED = syscalls.ATTR_NOSUID | syscalls.ATTR_NODEV
_EMPTY_FILE, _EMPTY_FOLDER = "/run/.empty", "/run/.none"  # mounted over what is masked
STAGES = ("/tmp", "/mnt", "/srv", "/media", "/var", "/usr")  # candidates for the folder on which the root is built


def enter_namespaces(network: list[int]) -> None:
    """Enter new namespaces with this process and, for PIDs, its next child. Other users than root get a user namespace
    first. The mount namespace follows in `build_root`.

    `network`: the descriptors of the network namespace to enter instead of a new one (`join_network.join`).

    Root enters a user namespace at the end (`bound_watches`), because mounting until then needs capabilities outside of
    it.
    """
    uid, gid = os.geteuid(), os.getegid()
    shares = watch_shares() if uid != 0 else ()
    if network:
        join_network.join(network)
    if uid != 0:
        syscalls.unshare(syscalls.CLONE_NEWUSER)
        # One id maps to itself, so that files look as they are; setgroups must go first (user_namespaces(7)).
        for name, text in (("setgroups", "deny"), ("uid_map", f"{uid} {uid} 1"), ("gid_map", f"{gid} {gid} 1")):
            with open(f"/proc/self/{name}", "w", encoding="utf-8") as file:
                file.write(text)
        for name, share in shares:
            _set(f"/proc/sys/user/{name}", share)
    namespaces = syscalls.CLONE_NEWPID | syscalls.CLONE_NEWIPC | (0 if network else syscalls.CLONE_NEWNET)
    syscalls.unshare(namespaces | syscalls.CLONE_NEWUTS | syscalls.CLONE_NEWCGROUP)


def watch_shares() -> tuple[tuple[str, int], ...]:
    """Return (name, limit of a command) for each of `SHARED` whose limit the kernel shows."""
    shares = []
    for name, machine in SHARED:
        values = [_told(f"/proc/sys/user/{name}"), _told(f"/proc/sys/fs/inotify/{machine}")]
        if known := [value for value in values if value is not None]:
            shares.append((name, max(min(known) // SHARE, 1)))
    return tuple(shares)


def _told(path: str) -> int | None:
    try:
        return int(_read(os.open(path, os.O_RDONLY | os.O_CLOEXEC)))
    except (OSError, ValueError):
        return None


def may_map_all() -> bool:
    """Return True if this process may map all its ids into a user namespace, and /proc shows its own number."""
    if os.geteuid() != 0 or not os.path.isdir("/proc/sys/user"):
        return False
    return os.readlink("/proc/self") == str(os.getpid()) and all(syscalls.capable(capability) for capability in _SETID)


def _read(handle: int) -> bytes:
    with open(handle, "rb", buffering=0) as file:
        return file.read()


def _write(handle: int, data: bytes) -> None:
    with open(handle, "wb", buffering=0) as file:
        file.write(data)


def map_ids(asked: socket.socket, child: int) -> None:
    """Map every existing id to itself in the user namespace that `child` creates, so that files keep their owners.

    The maps are written when the child requests them; a child without a user namespace closes its end. Raises OSError.
    """
    with asked:
        if not asked.recv(3):
            return
        for name in ("uid_map", "gid_map"):
            own = _read(os.open(f"/proc/self/{name}", os.O_RDONLY | os.O_CLOEXEC))
            rows = (line.split() for line in own.splitlines())
            text = b"".join(b"%b %b %b\n" % (inside, inside, count) for inside, _, count in rows)
            _write(os.open(f"/proc/{child}/{name}", os.O_WRONLY | os.O_CLOEXEC), text)
        asked.send(b"y")


def bound_watches(settings: int, shares: tuple[tuple[str, int], ...], mapper: socket.socket) -> None:
    """Enter, as root, a user namespace in which all ids stay the same, in order to apply its limits.

    Without permission for user namespaces the process continues, and watches are not limited. Raises OSError if the
    maps could not be written, because no command may run as the user `nobody`.

    Args:
        settings: Folder that is a writable /proc/sys.
        mapper: Socket whose other end writes the maps on request, and answers.
    """
    try:
        syscalls.unshare(syscalls.CLONE_NEWUSER)
    except OSError:
        return
    mapper.send(b"map")
    if mapper.recv(1) != b"y":
        raise syscalls.KernelError("map the ids of a user namespace", errno.EPERM)
    for name, share in shares:
        _set(f"user/{name}", share, settings)


class Base:
    """The part of a private root that was built before the plan was known.

    Attributes:
        steps: The mounts that it contains, of the kinds `ro`, `rw`, `link` and `mask`.
        tree: Descriptor of the whole tree, which is attached nowhere.
        settings: Descriptor of its writable /proc/sys, which is attached nowhere; -1 if the kernel has none.
    """

    def __init__(self, steps: tuple[tuple[str, str, str], ...], tree: int, settings: int) -> None:
        self.steps, self.tree, self.settings = steps, tree, settings

    def drop(self) -> None:
        os.close(self.tree)
        if self.settings >= 0:
            os.close(self.settings)


def prepare_base(steps: tuple[tuple[str, str, str], ...]) -> Base | None:
    """Build a root with the mounts `steps`. Return None if that fails: the plan is then built whole, and tells why.

    A child process builds it in a mount namespace of its own, so that this process later enters one that shows the
    mounts of that moment, and so that no mount of the host is kept busy by a process that waits.
    """
    ours, theirs = socket.socketpair()
    with ours:
        with theirs:
            try:
                child = os.fork()
            except OSError:
                return None
            if child == 0:
                try:
                    follow_parent()
                    handles = [handle for handle in _build_base(steps) if handle >= 0]
                    socket.send_fds(theirs, [b"built"], handles)
                    os._exit(0)
                finally:
                    os._exit(1)
        _, handles, _, _ = socket.recv_fds(ours, 5, 2, socket.MSG_CMSG_CLOEXEC)
    os.waitpid(child, 0)
    if not handles:
        return None
    base = Base(steps, handles[0], handles[1] if len(handles) == 2 else -1)
    _set("kernel/ns_last_pid", 1, base.settings)  # the next process gets the number that it has without this child
    return base


def _build_base(steps: tuple[tuple[str, str, str], ...]) -> tuple[int, int]:
    """Return the descriptors of a new tree with these mounts and of its /proc/sys. Raises OSError."""
    enter_mounts()
    mounts = _Mounts(Plan(real=(), marks=()), steps)
    stage = _stage()
    settings = _new_root(stage)
    mounts.attach(stage, {})
    tree, trial = syscalls.clone_tree(stage, 0), syscalls.clone_tree(stage, 0)
    # A kernel that cannot attach such a tree in another namespace shows it here, where nothing depends on it.
    enter_mounts()
    syscalls.attach_tree(trial, syscalls.AT_FDCWD, stage)
    return tree, settings


def build_root(plan: Plan, base: Base | None = None) -> tuple[int, list[int]]:
    """Mount all files of the plan in a staging folder, make it the root, and detach the host's tree. Raises OSError.

    `base` is a root that already has some of the mounts of the plan. Return a descriptor of a writable /proc/sys, which
    is -1 if the kernel has none, and the descriptors of the overlays (`_Mounts.overlays`). The caller closes them.
    """
    enter_mounts()
    built = frozenset(base.steps) if base is not None else frozenset[tuple[str, str, str]]()
    # All sources are opened first, before any mount below can cover one of them.
    mounts = _Mounts(plan, tuple(step for step in plan.mounts if step not in built))
    stage = _stage()
    if base is None:
        settings = _new_root(stage)
    else:
        settings = base.settings
        syscalls.attach_tree(base.tree, syscalls.AT_FDCWD, stage)
    _bound_numbers(settings, plan)
    mounts.attach(stage, {target: kind for kind, _, target in built})
    os.chdir(stage)
    syscalls.detach_root()
    _set_attributes("/", syscalls.ATTR_RDONLY | syscalls.ATTR_NOSUID | syscalls.ATTR_NODEV)
    return settings, mounts.overlays


def enter_mounts() -> None:
    """Enter a new mount namespace, whose mounts no other one sees, with room for a descriptor of each mount."""
    syscalls.unshare(syscalls.CLONE_NEWNS)
    syscalls.mount("none", "/", None, syscalls.MS_REC | syscalls.MS_PRIVATE)
    # Every mount is held open until it is attached; the command's own limit is set later.
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def _stage() -> str:
    return next(folder for folder in STAGES if os.path.isdir(folder))


def _new_root(stage: str) -> int:
    """Mount a new root with /dev and /proc on the folder `stage`. Return what `build_root` returns."""
    limit = f"mode=0755,size={ROOT_SIZE},nr_inodes=200000"
    syscalls.mount("tmpfs", stage, "tmpfs", syscalls.MS_NOSUID | syscalls.MS_NODEV, limit)
    for folder in ("/proc", "/dev", "/dev/pts", "/run"):
        os.mkdir(stage + folder, 0o755)
    _fill_dev(stage)
    os.close(os.open(stage + _EMPTY_FILE, os.O_CREAT | os.O_WRONLY, 0))
    os.mkdir(stage + _EMPTY_FOLDER, 0)
    return _mount_proc(stage)


class _Mounts:
    """Mounts of one root: their sources, opened, until they are attached. Raises OSError.

    Attributes:
        overlays: After `attach`, if the plan has several layers: a descriptor of the folder on which the overlay of the
            workspace lies, one of that overlay, and one of each further overlay in the order of use. These are attached
            nowhere, each with all mounts that lie over the workspace.
    """

    def __init__(self, plan: Plan, steps: tuple[tuple[str, str, str], ...]) -> None:
        self.overlays: list[int] = []
        self._plan, self._steps = plan, steps
        # Mounts that are attached nowhere, by the index of their step: for each layer those over the workspace, and
        # with the first one all others.
        self._trees: tuple[dict[int, int], ...] = tuple({} for _ in plan.layers or ((),))
        self._lower, self._layered = -1, ""  # the workspace below an overlay: its descriptor and its path
        self._over: list[int] = []  # the steps of the overlay and of what lies over the workspace
        for index, (kind, source, target) in enumerate(steps):
            if kind == "layer":
                self._layered, self._lower = source, syscalls.open_path(source, syscalls.RESOLVE_NO_SYMLINKS)
                for trees, folders in zip(self._trees, plan.layers, strict=True):
                    trees[index] = _overlay(folders, self._lower)
            if over := bool(self._layered) and syscalls.within(target, (self._layered,)):
                self._over.append(index)
            if kind in ("ro", "rw"):
                device = source.startswith("/dev/")
                attributes = syscalls.ATTR_NOSUID | syscalls.ATTR_NOEXEC if device else _GUARDED
                # A read-only mount of a device allows writing to it, but not changing its mode, owner or times.
                attributes |= syscalls.ATTR_RDONLY if kind == "ro" or device else 0
                # THREAT T18: another command may replace the source by a link to the host at the same time.
                links = not syscalls.within(source, plan.real)
                for trees in self._trees if over else self._trees[:1]:
                    trees[index] = syscalls.clone_tree(source, attributes, links=links)

    def attach(self, stage: str, put: dict[str, str]) -> None:
        """Attach the mounts to the root on `stage`. `put`: target -> kind of the mounts that are there."""
        root = os.open(stage, os.O_PATH | os.O_CLOEXEC)
        # THREAT T163: a process may move a file to a name that no mount covers, and leave another file in its place.
        self._marks = dict(self._plan.marks)
        further = len(self._trees) > 1
        for index, (kind, _, target) in enumerate(self._steps):
            if kind == "layer" and further:
                self._prepare_further(stage, root, put)
            self._attach(index, self._trees[0], stage, root, put)
            if kind == "layer" and further:  # before any mount covers it
                self.overlays.insert(1, self._open(target, root))
        if self._lower >= 0:
            os.close(self._lower)
        os.close(root)

    def _prepare_further(self, stage: str, root: int, put: dict[str, str]) -> None:
        """Build the overlays after the first one at their place, and detach each with all mounts over it."""
        place, workspace = -1, self._layered
        for trees in self._trees[1:]:
            done = dict(put)
            for index in self._over:
                if place < 0:
                    if self._ours(self._steps[index][2], done):
                        self._make_place(index, trees, stage)
                    place = self._open(workspace, root)
                self._attach(index, trees, stage, root, done)
            whole = self._open(workspace, root)
            self.overlays.append(syscalls.clone_tree(workspace, 0, links=False, root=root))
            os.fchdir(whole)
            os.close(whole)
            syscalls.detach_here()
        self.overlays.insert(0, place)

    def _open(self, path: str, root: int) -> int:
        return syscalls.open_path(path, syscalls.RESOLVE_IN_ROOT | syscalls.RESOLVE_NO_SYMLINKS, root)

    def _attach(self, index: int, trees: dict[int, int], stage: str, root: int, put: dict[str, str]) -> None:
        """Attach the mount of one step, which is in `trees` unless it is made here."""
        plan, layered = self._plan, self._layered
        kind, source, target = self._steps[index]
        links = not syscalls.within(target, plan.real)
        # THREAT T18: folders of the host are never changed, because a command may change them at the same time: their
        # mount points must exist, or this step fails. Mount points are made only in the new, private file systems.
        ours = self._ours(target, put)
        covered = self._marks.get(target) if not ours else None  # a new mount point covers no file
        over = bool(layered) and kind != "layer" and syscalls.within(target, (layered,))
        if kind == "link":
            if not ours:
                raise syscalls.KernelError(f"make the link {target}", errno.EEXIST)
            os.makedirs(os.path.dirname(stage + target), exist_ok=True)
            os.symlink(source, stage + target)
        elif kind == "mask":
            empty = stage + (_EMPTY_FOLDER if source == "dir" else _EMPTY_FILE)
            tree = syscalls.clone_tree(empty, _GUARDED | syscalls.ATTR_RDONLY)
            syscalls.attach_tree(tree, root, target, links=links, covered=None if over else covered)
        else:
            if ours:
                self._make_place(index, trees, stage)
            if kind == "tmpfs":
                size = int(source) if source else plan.tmpfs
                trees[index] = syscalls.fresh_tmpfs("1777" if target == "/dev/shm" else "0700", size)
            if kind != "folder":
                syscalls.attach_tree(trees[index], root, target, links=links, covered=None if over else covered)
            if kind == "layer":
                # THREAT T299: a folder of the workspace that stays writable below another mount is one of the overlay.
                # It is opened before any mount covers it.
                for part, (other, path, _) in enumerate(self._steps):
                    if other == "part":
                        trees[part] = syscalls.clone_tree(path, _GUARDED, links=False, root=root)
        put[target] = kind
        if over and covered is not None:
            # An overlay on another file system has inodes of its own, so the file is compared in the workspace.
            syscalls.require_inode(os.path.relpath(target, layered), covered, self._lower)

    def _ours(self, target: str, put: dict[str, str]) -> bool:
        """Return True if `target` lies in a new, private file system."""
        return put.get(mount_check.nearest(target, put)) not in ("ro", "rw", "layer", "part")

    def _make_place(self, index: int, trees: dict[int, int], stage: str) -> None:
        """Create the mount point of a step, which lies in a new, private file system, unless it exists."""
        kind, _, target = self._steps[index]
        folder = kind not in ("ro", "rw") or stat.S_ISDIR(os.fstat(trees[index]).st_mode)
        _make_place(stage + target, folder=folder)


def layered(plan: Plan) -> str:
    """Return the path of the workspace of a plan with layers."""
    return next(target for kind, _, target in plan.mounts if kind == "layer")


def _overlay(folders: tuple[str, str], lower: int) -> int:
    """Return an overlay of the open workspace `lower`, attached nowhere. Raises OSError.

    `folders` are its upper and its work folder.
    """
    upper, work = (syscalls.open_path(path, syscalls.RESOLVE_NO_SYMLINKS) for path in folders)
    try:
        return syscalls.fresh_overlay(lower, upper, work)
    finally:
        os.close(upper)
        os.close(work)


def _set_attributes(path: str, attributes: int) -> None:
    with closing(os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)) as place:
        syscalls.set_attributes(place, attributes, recursive=False)


def _make_place(place: str, *, folder: bool) -> None:
    """Create a mount point if it does not exist."""
    try:
        if folder:
            os.mkdir(place)
        else:
            os.close(os.open(place, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o444))
    except FileExistsError:
        return
    except FileNotFoundError:  # true for few places
        os.makedirs(os.path.dirname(place))
        _make_place(place, folder=folder)


def _fill_dev(stage: str) -> None:
    flags = syscalls.MS_NOSUID | syscalls.MS_NOEXEC
    syscalls.mount("devpts", stage + "/dev/pts", "devpts", flags, f"newinstance,ptmxmode=0666,mode=620,max={TERMINALS}")
    os.symlink("pts/ptmx", f"{stage}/dev/ptmx")
    for name, target in (("fd", "fd"), ("stdin", "fd/0"), ("stdout", "fd/1"), ("stderr", "fd/2")):
        os.symlink(f"/proc/self/{target}", f"{stage}/dev/{name}")


def _mount_proc(stage: str) -> int:
    """Mount /proc of the new PID namespace, read-only as a whole: uid 0 could otherwise write /proc/sys and sysrq.

    Return its `sys`, by a writable mount that is attached nowhere; -1 if the kernel has none.
    """
    flags = syscalls.MS_NOSUID | syscalls.MS_NODEV | syscalls.MS_NOEXEC
    syscalls.mount("proc", stage + "/proc", "proc", flags)
    # Memory files are not executable unless requested (since Linux 6.3); seccomp refuses the request.
    _set(stage + "/proc/sys/vm/memfd_noexec", 1)
    settings = syscalls.clone_tree(stage + "/proc/sys", 0) if os.path.isdir(stage + "/proc/sys") else -1
    _set_attributes(stage + "/proc", syscalls.ATTR_RDONLY)
    return settings


def bound_numbers(plan: Plan) -> None:
    """Limit process numbers under T2, as `build_root` does for T1: bubblewrap's /proc is read-only, and may not be
    opened.

    RLIMIT_NPROC does not hold for root (setrlimit(2)): between two checks of the watchdog a fork bomb starts thousands.
    A user who may not mount /proc is not root of the machine, so RLIMIT_NPROC holds for that user.
    """
    try:
        syscalls.mount("proc", "/dev/shm", "proc", syscalls.MS_NOSUID | syscalls.MS_NODEV | syscalls.MS_NOEXEC)
    except syscalls.KernelError:
        if os.geteuid() == 0:
            raise
        return
    if os.path.isdir("/dev/shm/sys"):
        with closing(os.open("/dev/shm/sys", os.O_PATH | os.O_CLOEXEC)) as settings:
            _bound_numbers(settings, plan)
    syscalls.unmount("/dev/shm")


def _bound_numbers(settings: int, plan: Plan) -> None:
    # pid_max belongs to the PID namespace since Linux 6.14. Before, it holds for the whole machine and is not changed.
    if tuple(int(part) for part in os.uname().release.split("-")[0].split(".")[:2]) >= (6, 14):
        _set("kernel/pid_max", plan.pid_max, settings)  # a coarse limit; other limits are exact


def _set(path: str, value: int, folder: int | None = None) -> None:
    """Write a setting of this namespace. Errors are ignored, because older kernels lack or withhold the setting.

    `folder` is the parent of a relative `path`; -1 if there is none.
    """
    if folder == -1:
        return
    try:
        _write(os.open(path, os.O_WRONLY | os.O_CLOEXEC, dir_fd=folder), str(value).encode())
    except OSError:
        return


def loopback_up() -> None:
    """Set IFF_UP on the namespace's own `lo` (netdevice(7))."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        fcntl.ioctl(probe, 0x8914, struct.pack("16sh14x", b"lo", 1))  # SIOCSIFFLAGS


def listen(port: int) -> socket.socket:
    """Return a listening socket of this network namespace, for a process outside of it (network_namespaces(7))."""
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.bind(("127.0.0.1", port))
    listener.listen(128)
    return listener


def seal_devices() -> None:
    """Make the devices of bubblewrap's root read-only under T2. Raises OSError if that is required and fails.

    THREAT T05: the owner of the devices could change their modes for the whole machine. Other users need no such guard,
    and often have no capability to set it (AppArmor's profile for bubblewrap).
    """
    for entry in os.scandir("/dev"):
        status = entry.stat(follow_symlinks=False)
        if not stat.S_ISCHR(status.st_mode):
            continue
        try:
            _set_attributes(entry.path, syscalls.ATTR_RDONLY)
        except syscalls.KernelError as error:
            if error.errno != errno.EPERM or _may_change(entry.path, status.st_mode):
                raise


def _may_change(path: str, mode: int) -> bool:
    """Return True if the mode can be changed, tried by setting the current mode. An owner number may stand for all
    unmapped ids, so comparing numbers does not tell.
    """
    try:
        os.chmod(path, stat.S_IMODE(mode))
    except PermissionError:
        return False
    return True


def own_input() -> None:
    """Make /dev/null of the private root the standard input, which commands without input inherit.

    THREAT T05: through a descriptor of the host's mount, uid 0 could change the mode of the machine's /dev/null.
    """
    with closing(os.open("/dev/null", os.O_RDONLY)) as null:
        os.dup2(null, 0)


def lock_in(plan: Plan, overlays: list[int]) -> None:
    """Apply all remaining restrictions, from limits to seccomp. Then this process and its children can only use the
    Terms.

    `overlays` are descriptors of overlays of the workspace that are attached later. They are closed.
    """
    for number, value in plan.rlimits:
        _, hard = resource.getrlimit(number)
        ceiling = value if hard == resource.RLIM_INFINITY else min(value, hard)
        # At the soft limit a process gets SIGXCPU, which identifies the limit; at the hard one SIGKILL (getrlimit(2)).
        above = ceiling + 1 if number == resource.RLIMIT_CPU else ceiling
        resource.setrlimit(number, (ceiling, above if hard == resource.RLIM_INFINITY else min(above, hard)))
    syscalls.prctl(syscalls.PR_SET_NO_NEW_PRIVS, 1, "no new privileges")
    fs, net, scoped, size, flags = plan.handled
    rules: list[tuple[str | int, int]] = list(plan.landlock)
    if overlays:
        workspace = layered(plan)
        # A rule belongs to an inode, wherever it is mounted, and each overlay has a root of its own (landlock(7)).
        rules += [(overlay, access) for path, access in plan.landlock if path == workspace for overlay in overlays[2:]]
    syscalls.landlock(fs, net, scoped, rules, size, flags)
    for overlay in overlays:
        os.close(overlay)
    syscalls.drop_capabilities()
    syscalls.prctl(syscalls.PR_SET_DUMPABLE, 0, "become non-dumpable")
    for program in plan.programs:
        syscalls.seccomp(program)


def follow_parent() -> None:
    """End this process when its parent ends, for any reason (prctl(2), PR_SET_PDEATHSIG)."""
    syscalls.prctl(syscalls.PR_SET_PDEATHSIG, signal.SIGKILL, "follow the parent")
