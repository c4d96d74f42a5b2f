"""The compilation of Terms to a Plan: all mounts, rules and limits of a confined helper, as plain data."""

import os
import resource
import stat
from collections.abc import Callable, Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Literal

from policy.model.frozen import replace
from policy.model.secret_paths import inside
from policy.model.verdict import READ_ONLY_TMP, Limits, Problem, Rights, Terms
from sandbox.backend import ChangeLayer, SandboxUnavailable
from sandbox.inside.plan import Plan
from sandbox.linux import landlock
from sandbox.linux.cgroup_places import CPU, MEMORY, PIDS
from sandbox.workspace.protected_paths import Scan

READ_ONLY_TMP_SIZE = 512 << 20  # bytes of memory

# The names in `/proc` that are shown, besides the folders of processes: ordinary programs read them (`free`, `ps`,
# `df`, a JVM), and they contain nothing secret. All others describe the whole machine, in every namespace: keys of
# other users, the kernel's command line (which may hold credentials), its configuration, addresses and devices.
# SOURCE: proc(5); `systemd.set_credential=` in kernel-command-line(7).
_SHOWN_FACTS = frozenset((
    "cgroups", "cpuinfo", "crypto", "devices", "filesystems", "loadavg", "locks", "meminfo", "misc", "mounts", "net",
    "partitions", "pressure", "self", "stat", "swaps", "sys", "sysinfo", "sysvipc", "thread-self", "tty", "uptime",
    "version", "version_signature", "vmstat",
))  # fmt: skip
DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
_BEHIND = 64  # processes by which the coarser limits are larger than the exact one
_RESERVED = 300  # the lowest numbers, which a PID namespace assigns only once (kernel/pid.c, RESERVED_PIDS)
MSGQUEUE = 400 << 10  # bytes of POSIX message queues: half of the kernel's default (RLIMIT_MSGQUEUE, getrlimit(2))
SIGPENDING = 4096  # queued signals and POSIX timers: half of the default of a machine with 2 GB (RLIMIT_SIGPENDING)
# "layer": an overlay of the workspace; "part": a folder of that overlay, mounted at its own place.
MountStep = tuple[Literal["ro", "rw", "tmpfs", "link", "mask", "folder", "layer", "part"], str, str]
PathLookup = Callable[[str], str | None]  # path -> "dir", "file", "-> TARGET" for a link, None for a missing path


@lru_cache(maxsize=256)
def helper_key(terms: Terms) -> str:
    """Return the key of a helper. Terms that differ only in limits of the runner (wall time, output) share a helper."""
    return replace(terms, limits=replace(terms.limits, wall=0.0, output=0)).digest


@lru_cache(maxsize=256)  # called for every command
def network_key(terms: Terms) -> str:
    """Return the key of a shared network. Helpers and containers whose Terms differ only in limits may share one."""
    return replace(terms, limits=Limits()).digest


def compile_plan(
    terms: Terms,
    protected: Scan,
    programs: tuple[bytes, bytes],
    *,
    tier: str,
    abi: int,
    warm: bool = True,
    scratch: str = "",
    instead: Mapping[str, str] = MappingProxyType({}),
    own: tuple[MountStep, ...] = (),
    look: PathLookup = lambda path: kind(path),
    joined: bool = False,
    port: int = 0,
    layers: tuple[ChangeLayer, ...] = (),
) -> Plan:
    """Compile the plan. Raises SandboxUnavailable if the Terms cannot be granted exactly; then nothing runs.

    Args:
        programs: The two seccomp programs.
        abi: The Landlock ABI of the kernel.
        warm: True if file actions will be requested.
        scratch: The session's own /tmp, a folder that `read-only` may read and `workspace-write` may write.
        instead: Files of the host that replace system files inside, by path inside.
        own: Mounts that the helper itself needs if it starts inside the private root.
        look: Returns the kind of a path of the host.
        joined: True if the helper enters the network namespace of another helper.
        port: The port of the proxy's listener; 0 for the usual one.
        layers: The folders that receive the changes of the workspace, for one command each; empty if commands change
            the workspace itself.
    """
    if tier == "T3" and not terms.open_hosts:  # T3 has no proxy that could name requested hosts: the network is closed
        terms = replace(terms, hosts=())
    refuse_impossible(terms, protected, look)
    refuse_hosts(terms, tier)
    work = terms.rights is Rights.WORKSPACE_WRITE
    known = landlock.known(abi)
    limits = terms.limits
    rooted = tier != "T3"
    root = mounts(terms, protected, look, scratch, instead, own) if rooted else ()
    if layers:
        root = _on_layer(root, layers[0].workspace)
    rules = _rules(terms, work, look) if rooted else _bare_rules(terms, work, look)
    loopback = work or bool(terms.hosts)
    net = known.net if not loopback or not rooted else 0  # a separate loopback needs no port rules
    environment = dict(terms.env)
    if terms.hosts:
        from sandbox.egress.variables import PORT, variables  # only for the few commands that reach a host

        port = port or PORT
        environment |= variables(environment, terms.hosts, port)
    fitted = tuple((path, access & known.fs & _fit(path, look, tier)) for path, access in rules)
    return Plan(
        tier=tier,
        mounts=root,
        layers=tuple((os.path.realpath(layer.upper), os.path.realpath(layer.work)) for layer in layers),
        marks=_marked(root, protected) if tier == "T1" else (),
        real=_real(terms, scratch),
        landlock=fitted,
        handled=(known.fs, net, known.scoped, known.size, known.flags),
        programs=programs,
        rlimits=(
            (resource.RLIMIT_CORE, 0),
            (resource.RLIMIT_CPU, limits.cpu),
            (resource.RLIMIT_DATA, limits.memory),
            (resource.RLIMIT_FSIZE, limits.largest),
            (resource.RLIMIT_NOFILE, limits.open_files),
            (resource.RLIMIT_NPROC, limits.pids),
            (resource.RLIMIT_MEMLOCK, 64 << 20),
            # The kernel counts these for the user as a whole: the low limits leave a part for other programs.
            (resource.RLIMIT_MSGQUEUE, MSGQUEUE),
            (resource.RLIMIT_SIGPENDING, SIGPENDING),
            (resource.RLIMIT_RTPRIO, 0),
        ),
        loopback=loopback,
        joined=joined,
        egress=port if terms.hosts else 0,
        pid_max=limits.pids + _BEHIND + _RESERVED,
        pids=limits.pids,
        memory=limits.memory,
        cpu=limits.cpu,
        disk=limits.disk,
        writable=_filled(terms, tier),
        private=() if not rooted else _private(terms) if work else (READ_ONLY_TMP,),
        tmpfs=min(limits.memory // 2, limits.file),
        vanishing=READ_ONLY_TMP if rooted and not work else "",
        environment=tuple(f"{name}={value}" for name, value in environment.items()),
        warm=warm,
    )


def _real(terms: Terms, scratch: str) -> tuple[str, ...]:
    """Return the paths below which no link is followed."""
    own = () if terms.rights is Rights.ISOLATED else (terms.workspace, scratch, cache_place(terms))
    return tuple(filter(None, (*own, "/tmp", *terms.read, *terms.writable)))


def leave_to_group(plan: Plan, held: frozenset[str]) -> None:
    """Remove from the plan the limits that a control group enforces exactly, so that the helper does not count them."""
    if MEMORY in held:
        # RLIMIT_DATA also counts address space that is reserved and never used (by a sanitizer, or for a heap).
        plan.memory = 0
        plan.rlimits = tuple(rlimit for rlimit in plan.rlimits if rlimit[0] != resource.RLIMIT_DATA)
    if PIDS in held:
        # RLIMIT_NPROC stays, but larger, so that the group refuses first: its refusals are counted and can be reported.
        plan.pids = 0
        nproc = resource.RLIMIT_NPROC
        plan.rlimits = tuple((name, value + _BEHIND if name == nproc else value) for name, value in plan.rlimits)
    if CPU in held:
        plan.cpu = 0


def refuse_impossible(terms: Terms, protected: Scan, look: PathLookup) -> None:
    """Raise SandboxUnavailable if a path of `terms` cannot be granted, or `protected` has too many paths."""

    def refuse(what: str, why: str, fix: str) -> None:
        raise SandboxUnavailable.of(what, why, fix)

    for path in (terms.workspace, *terms.read, *terms.writable):
        if not path.startswith("/") or "\0" in path or os.path.normpath(path) != path:
            printable = path.replace("\0", "\\0")
            why = "a path must be absolute, without `..` and without a NUL byte"
            refuse(f"`{printable}` is not a valid path for a sandbox", why, "write the whole path, from `/` on")
    if look(terms.workspace) != "dir":
        what = f"the workspace `{terms.workspace}` is not a folder"
        refuse(what, "the path is missing, or is no folder", "use --cwd FOLDER")
    if terms.workspace == "/" or (terms.home + "/").startswith(terms.workspace + "/"):
        why = "it is your home folder or contains it, so every key and setting in it would be inside the sandbox"
        fix = "start in a project folder, or use --cwd FOLDER"
        refuse(f"`{terms.workspace}` cannot be a workspace", why, fix)
    for base in ("/proc", "/sys", "/dev"):
        if (terms.workspace + "/").startswith(base + "/"):
            refuse(f"`{terms.workspace}` cannot be a workspace", f"{base} belongs to the kernel", "use --cwd FOLDER")
    if protected.truncated:
        what = "the workspace contains too many secret or auto-run files to protect one by one"
        refuse(what, "protecting only some of them would leave a gap", "use --cwd with a smaller folder")
    if protected.crowded and terms.rights is Rights.WORKSPACE_WRITE:
        what = "the workspace contains too many files with hard links elsewhere to protect one by one"
        why = "a change of such a file also changes a file outside, and protecting only some would leave a gap"
        fix = "run `git repack -a -d` in a clone that shares its objects, or use --cwd with a smaller folder"
        refuse(what, why, fix)
    for path in terms.read + terms.writable:
        shape = look(path)
        if shape is None:
            refuse(f"`{path}` does not exist", "a sandbox can only be given paths that exist", "create it first")
        elif shape.startswith("-> "):
            refuse(f"`{path}` is a link", "a sandbox is given real paths only", "name the target of the link")
        if path in ("/", "/run"):
            why = "it contains everything else" if path == "/" else "it contains the sockets of the machine's services"
            refuse(f"`{path}` cannot be given to a sandbox", why, "name a narrower path")
        for base in ("/proc", "/sys", "/dev"):
            device = path.startswith("/dev/") and path[5:] in DEVICES
            if (path + "/").startswith(base + "/") and not device and not path.startswith("/dev/shm/"):
                why = f"{base} belongs to the kernel: the sandbox has its own, with harmless content only"
                refuse(f"`{path}` cannot be given to a sandbox", why, "copy the needed files into the workspace")


def refuse_hosts(terms: Terms, tier: str) -> None:
    """Raise SandboxUnavailable for named hosts without a network namespace: a command could bypass the proxy."""
    if not terms.hosts:
        return
    from policy.model.host_rule import host_rule

    if tier == "T3":
        what = f"the {tier} sandbox cannot open the network to {', '.join(terms.hosts)}"
        why = "it has no separate network, and this program never opens the whole network for one host"
        fix = "run `agent doctor` for what the T1 sandbox needs here, or run the command yourself"
        raise SandboxUnavailable.of(what, why, fix)
    for text in terms.hosts:
        if isinstance(rule := host_rule(text), Problem):
            raise SandboxUnavailable(rule)


def mounts(
    terms: Terms,
    protected: Scan,
    look: PathLookup,
    scratch: str,
    instead: Mapping[str, str] = MappingProxyType({}),
    own: tuple[MountStep, ...] = (),
) -> tuple[MountStep, ...]:
    """Return the private root, in the order in which it is built: parents first, masks over what they mask."""
    work = terms.rights is Rights.WORKSPACE_WRITE
    steps: list[MountStep] = list(own)
    for path in terms.system:
        shape = look(path)
        if shape is None:
            continue
        if shape.startswith("-> "):
            # In these folders the link exists already, or commands write there.
            granted = ("/tmp", cache_place(terms), *terms.read, *terms.writable)
            if not any(inside(path, place) for place in granted if place):
                steps.append(("link", shape[3:], path))
        elif path not in terms.repository:  # mounted writable below
            steps.append(("ro", instead.get(path, path), path))
    steps += [("rw", f"/dev/{name}", f"/dev/{name}") for name in DEVICES if look(f"/dev/{name}")]
    steps += [("tmpfs", "", path) if work else ("folder", "", path) for path in _private(terms)]
    apart = terms.rights is Rights.ISOLATED
    steps.append(("folder", "", "/tmp") if apart else ("rw" if work else "ro", scratch, "/tmp"))
    if not work:
        steps.append(("tmpfs", str(min(READ_ONLY_TMP_SIZE, terms.limits.memory // 2)), READ_ONLY_TMP))
    if place := cache_place(terms):
        steps.append(("rw", terms.cache, place))
    if not apart:
        steps.append(("rw" if work else "ro", terms.workspace, terms.workspace))
    steps += [("ro", path, path) for path in terms.read]
    steps += [("rw", path, path) for path in terms.writable if not _replaceable(path, terms, protected, look)]
    steps.sort(key=lambda step: step[2].count("/"))
    if work:
        read_only = {*protected.locked, *protected.shared, *terms.read}
        over: list[MountStep] = [("rw", path, path) for path in protected.pinned if not _lies_in(path, read_only)]
        over += [("ro", path, path) for path in (*protected.locked, *protected.shared) if path not in terms.write]
        # A path in `terms.write` stays writable in a locked folder.
        locked = {*protected.locked}
        over += [("rw", path, path) for path in terms.write if _lies_in(os.path.dirname(path), locked)]
        steps += sorted(over, key=lambda step: step[2].count("/"))
    if work and terms.unix:
        # THREAT T63: the path of a socket leads to its program, from every network namespace.
        steps += [("mask", "file", path) for path in protected.sockets if path not in protected.masked]
    steps += [("mask", shape, path) for path in _machine_facts() if (shape := look(path)) in ("file", "dir")]
    return (*steps, *(("mask", look(path) or "file", path) for path in protected.masked if path not in terms.read))


def _on_layer(root: tuple[MountStep, ...], workspace: str) -> tuple[MountStep, ...]:
    """Return the steps with an overlay at `workspace`, and with the parts of it that stay writable from the overlay."""
    steps: list[MountStep] = []
    for kind, source, target in root:
        if kind == "rw" and source == target and inside(target, workspace):
            kind = "layer" if target == workspace else "part"
        steps.append((kind, source, target))
    return tuple(steps)


def _machine_facts() -> tuple[str, ...]:
    """Return the paths in `/proc` that are hidden: neither processes nor in the list of harmless files."""
    try:
        names = os.listdir("/proc")
    except OSError:
        return ()
    return tuple(f"/proc/{name}" for name in sorted(names) if not name.isdecimal() and name not in _SHOWN_FACTS)


def _marked(root: tuple[MountStep, ...], protected: Scan) -> tuple[tuple[str, int], ...]:
    """Return (path, inode) of the files of the scan that the mounts `root` cover. A file never changes its device."""
    known = {path: inode for path, _, inode, _ in protected.marks}
    return tuple((target, known[target]) for target in {step[2] for step in root} if target in known)


def _replaceable(path: str, terms: Terms, protected: Scan, look: PathLookup) -> bool:
    """Return True for a file in a writable folder, which needs no mount. Programs such as `git config` replace such a
    file by renaming another one, and a file that is mounted cannot be replaced (EBUSY, rename(2)).
    """
    roots = (*((terms.workspace,) if terms.rights is Rights.WORKSPACE_WRITE else ()), *terms.writable)
    above = any(inside(path, root) and path != root for root in roots)
    return above and look(path) == "file" and not _lies_in(os.path.dirname(path), {*protected.locked, *terms.read})


def _lies_in(path: str, places: set[str]) -> bool:
    while path != "/" and path not in places:
        path = os.path.dirname(path)
    return path in places


def cache_place(terms: Terms) -> str:
    """Return the path of the sandbox's own cache inside; empty if there is none."""
    place = f"{terms.home}/.cache"
    taken = terms.home == "/" or place in (terms.workspace, *terms.system, *terms.read, *terms.writable)
    return place if terms.cache and terms.rights is Rights.WORKSPACE_WRITE and not taken else ""


def _private(terms: Terms) -> tuple[str, ...]:
    """Return the sandbox's own folders: empty at the start, removed at the end. A home of `/` is not among them."""
    return ("/dev/shm", *((terms.home,) if terms.home != "/" else ()))


def _filled(terms: Terms, tier: str) -> tuple[str, ...]:
    """Return the folders on a disk that a command may fill, by their paths inside."""
    cache = cache_place(terms) if tier != "T3" else ""
    scratch = terms.home if tier == "T3" else "/tmp"
    own = (terms.workspace, scratch, cache) if terms.rights is Rights.WORKSPACE_WRITE else ()
    return tuple(filter(None, (*own, *terms.writable)))


def _rules(terms: Terms, work: bool, look: PathLookup) -> list[tuple[str, int]]:
    """Return the Landlock rules inside the private root: everything there is readable, little is writable."""
    rules = [("/", landlock.READ)]
    rules += [(f"/dev/{name}", landlock.DEVICE) for name in DEVICES if look(f"/dev/{name}")]
    rules.append(("/dev/pts", landlock.DEVICE))  # an instance of the sandbox's own (devpts)
    rules += [(path, landlock.WRITE) for path in terms.writable]
    if work:
        rules += [(path, landlock.WRITE) for path in (terms.workspace, "/tmp", *_private(terms))]
    else:
        rules.append((READ_ONLY_TMP, landlock.WRITE))
    return rules


def _bare_rules(terms: Terms, work: bool, look: PathLookup) -> list[tuple[str, int]]:
    """Return the Landlock rules for a helper without a private root: every path by name, without `/proc`, which shows
    other processes.
    """
    real = {os.path.realpath(path) for path in (*terms.system, *terms.read)}
    rules = [(path, landlock.READ) for path in sorted(real) if look(path)]
    seen = () if terms.rights is Rights.ISOLATED else (terms.workspace, terms.home)
    rules += [(path, landlock.WRITE if work else landlock.READ) for path in seen]
    rules += [(path, landlock.WRITE) for path in (*terms.write, *((terms.cache,) if terms.cache and work else ()))]
    rules += [(f"/dev/{name}", landlock.DEVICE) for name in DEVICES if look(f"/dev/{name}")]
    return rules


def _fit(path: str, look: PathLookup, tier: str) -> int:
    """Return the mask of rights for a rule on `path`: a rule on a file must not have rights of folders (EINVAL)."""
    shape = look(path)
    made = shape is None and tier != "T3"  # a folder that exists only inside the private root
    return ~0 if made or shape == "dir" else landlock.FILE_ONLY


def kind(path: str) -> str | None:
    """Return the kind of `path` on the real disk, as defined by `PathLookup`."""
    try:
        mode = os.lstat(path).st_mode
        if stat.S_ISLNK(mode):
            return f"-> {os.readlink(path)}"
    except OSError:
        return None
    return "dir" if stat.S_ISDIR(mode) else "file"
