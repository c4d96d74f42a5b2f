"""The compilation of Terms to the body of `POST /containers/create`: every mount, limit and namespace, as plain data.

The mounts are those of T1 (`sandbox.linux.plan_builder`), except the programs, which come from the image. Source: the
Docker Engine API, version 1.41.
"""

from dataclasses import replace

from policy.model.frozen import dataclass
from policy.model.verdict import Terms
from sandbox.linux.plan_builder import MSGQUEUE, SIGPENDING, PathLookup, mounts
from sandbox.workspace.protected_paths import Scan

CreateBody = dict[str, object]

READY = "ready"
# The first process waits for the end of its input. The daemon closes it when the runner ends (`StdinOnce`).
_KEEP = ("/bin/bash", "--norc", "--noprofile", "-c", f"echo {READY}; read -r _")
_NOBODYS = (65532, 65531)  # unused user numbers
_EXTRA = 8  # processes that belong to no command: the one that keeps the container, and those of the runtime

# Docker's own list, repeated here so that no configuration of a daemon can shorten it, and the other paths that T1 does
# not show (`sandbox.linux.plan_builder`). The list is fixed, because the daemon's machine may have another kernel;
# missing paths are skipped.
MASKED = (
    *("/proc/acpi", "/proc/asound", "/proc/bootconfig", "/proc/buddyinfo", "/proc/bus", "/proc/cmdline"),
    *("/proc/config.gz", "/proc/consoles", "/proc/diskstats", "/proc/dma", "/proc/driver"),
    *("/proc/dynamic_debug", "/proc/execdomains", "/proc/fb", "/proc/fs", "/proc/interrupts", "/proc/iomem"),
    *("/proc/ioports", "/proc/irq", "/proc/kallsyms", "/proc/kcore", "/proc/key-users", "/proc/keys", "/proc/kmsg"),
    *("/proc/kpagecgroup", "/proc/kpagecount", "/proc/kpageflags", "/proc/latency_stats", "/proc/lockdep"),
    *("/proc/lockdep_chains", "/proc/lockdep_stats", "/proc/lock_stat", "/proc/mdstat", "/proc/modules", "/proc/mtrr"),
    *("/proc/pagetypeinfo", "/proc/sched_debug", "/proc/schedstat", "/proc/scsi", "/proc/slabinfo", "/proc/softirqs"),
    *("/proc/spl", "/proc/sysrq-trigger", "/proc/timer_list", "/proc/timer_stats", "/proc/vmallocinfo"),
    "/proc/zoneinfo",
    *("/sys/firmware", "/sys/devices/virtual/powercap", "/sys/kernel/debug"),
)
READ_ONLY = ("/proc/sys",)


@dataclass(frozen=True, slots=True)
class ContainerSettings:
    """The properties of the machine, the daemon and the session that are added to the Terms. Paths are paths of the
    host.

    Attributes:
        user: UID:GID of commands.
        keeper: UID:GID of the process that keeps the container; never `user`, so that no command can reach that
            process.
        scratch: The session's /tmp.
        empty_file: File that is mounted over secret files.
        empty_folder: Folder that is mounted over secret folders.
        profile: The seccomp profile: as JSON, or (Podman) as the path of a file.
        unset: Variables of the image that commands must not see.
        volumes: Folders for which the image requests a volume. They become empty and read-only.
        neighbour: Name of the container whose network is shared; empty for a network with nothing but a loopback.
        hosts: File for /etc/hosts if a network is shared; the daemon would use that of a container that may be removed.
    """

    image: str
    user: str
    keeper: str
    scratch: str
    empty_file: str
    empty_folder: str
    profile: str
    runtime: str = ""
    labels: tuple[tuple[str, str], ...] = ()
    unset: tuple[str, ...] = ()
    volumes: tuple[str, ...] = ()
    neighbour: str = ""
    hosts: str = ""
    owned: bool = True  # True if the daemon sets the owner of file systems in memory (Podman does not)


def keeper(user: str) -> str:
    """Return UID:GID of the process that keeps a container whose commands run as `user`: an unused number."""
    mine = _NOBODYS[user.partition(":")[0] == str(_NOBODYS[0])]
    return f"{mine}:{mine}"


def body(terms: Terms, protected: Scan, place: ContainerSettings, look: PathLookup) -> CreateBody:
    """Return the body that creates the container for `terms`, whose workspace has the `protected` paths."""
    limits = terms.limits
    binds, filesystems = _mounted(terms, protected, place, look)
    # fmt: off
    ulimits = {"core": 0, "cpu": limits.cpu, "fsize": limits.largest, "nofile": limits.open_files,
               "memlock": 8 << 20, "msgqueue": MSGQUEUE, "sigpending": SIGPENDING}
    # fmt: on
    host: CreateBody = {
        "AutoRemove": True,
        "CapAdd": [],
        "CapDrop": ["ALL"],
        "CgroupnsMode": "private",
        "Init": True,
        "IpcMode": "private",
        "LogConfig": {"Type": "none"},  # otherwise the daemon would store the output of every command
        "MaskedPaths": list(MASKED),
        "Memory": limits.memory,
        "MemorySwap": limits.memory,
        "Mounts": binds,
        "NetworkMode": f"container:{place.neighbour}" if place.neighbour else "none",
        "OomScoreAdj": 500,
        "PidMode": "",
        "PidsLimit": limits.pids + _EXTRA,
        "Privileged": False,
        "PublishAllPorts": False,
        "ReadonlyPaths": list(READ_ONLY),
        "ReadonlyRootfs": True,
        "RestartPolicy": {"Name": "no"},
        "SecurityOpt": ["no-new-privileges:true", f"seccomp={place.profile}"],
        "Tmpfs": filesystems,
        "UTSMode": "",
        "Ulimits": [{"Name": name, "Soft": value, "Hard": value} for name, value in ulimits.items()],
        "UsernsMode": "host",
    }
    if place.runtime:
        host["Runtime"] = place.runtime
    return {
        "AttachStdin": True,
        "AttachStdout": True,
        "AttachStderr": False,
        "Cmd": [],
        "Entrypoint": list(_KEEP),
        "Env": sorted(place.unset),  # a name without a value removes the variable
        "Healthcheck": {"Test": ["NONE"]},  # the image's health check would run at the same time as commands
        "HostConfig": host,
        # A container that shares a network has the name of the other one, and the daemon refuses to be given one.
        "Hostname": "" if place.neighbour else "sandbox",
        "Image": place.image,
        "Labels": dict(place.labels),
        "OpenStdin": True,
        "StdinOnce": True,
        "Tty": False,
        "User": place.keeper,
        "WorkingDir": "/",
    }


def writable(made: CreateBody) -> tuple[str, ...]:
    """Return the folders of the host to which commands in that container may write, without folders in one of them."""
    host = made["HostConfig"]
    assert isinstance(host, dict)
    sources = sorted(str(each["Source"]) for each in host["Mounts"] if not each["ReadOnly"])
    return tuple(path for path in sources if not any(path.startswith(f"{other}/") for other in sources))


def _mounted(
    terms: Terms, protected: Scan, place: ContainerSettings, look: PathLookup
) -> tuple[list[CreateBody], dict[str, str]]:
    """Return binds, in the order in which they must be made, and file systems in memory."""
    uid, _, gid = place.user.partition(":")
    size = min(terms.limits.memory // 2, terms.limits.file)
    binds: list[CreateBody] = []
    if place.neighbour:
        binds.append(_bind(place.hosts, "/etc/hosts"))
    filesystems = dict.fromkeys(place.volumes, "ro,nosuid,nodev,noexec,size=4k,mode=0755")
    for kind, source, target in mounts(replace(terms, system=()), protected, look, place.scratch):
        if target.startswith("/proc/"):
            continue  # the runtime masks paths there itself (`MaskedPaths`)
        if target.startswith("/dev/") and kind in ("ro", "rw"):
            continue  # the runtime makes a separate /dev with the same devices
        if kind in ("ro", "rw", "mask"):
            if kind == "mask":
                source = place.empty_folder if source == "dir" else place.empty_file
            binds.append(_bind(source, target, read_only=kind != "rw"))
        else:  # an own folder of the sandbox: empty, and under `read-only` not writable
            mode = "1777" if target == "/dev/shm" or not place.owned else "0700"
            owner = f",uid={uid},gid={gid}" if place.owned else ""
            writable = "rw,exec" if kind == "tmpfs" else "ro,noexec"
            most = source if source.isdigit() else size
            filesystems[target] = f"{writable},nosuid,nodev,size={most},mode={mode}{owner}"
    return binds, dict(sorted(filesystems.items()))


def _bind(source: str, target: str, *, read_only: bool = True) -> CreateBody:
    """Return a mount that is not recursive: mounts below `source` would stay writable in older daemons."""
    options = {"Propagation": "rprivate", "NonRecursive": True}
    return {"Type": "bind", "Source": source, "Target": target, "ReadOnly": read_only, "BindOptions": options}
