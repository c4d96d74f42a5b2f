"""The plan as both sides see it: the runner fills it in, the helper obeys it. No imports: a helper starts fast."""


class Plan:
    """What a helper is told before anything else.

    `tier`: "T1" (namespaces and a private root), "T2" (the same, built by bubblewrap before the helper starts) or "T3"
    (Landlock and seccomp alone).
    `mounts`: (kind, source, target), in the order to build; a tmpfs has its size in bytes as its source, or nothing.
    `real`: folders and files to which no link may lead, nor anything in them: commands may write there.
    `landlock`: (path, access bits). `handled`: fs, net, scoped, attribute size, flags.
    `rlimits`: (resource, value). `tmpfs`: bytes of each private file system. `pid_max`: process numbers there may be.
    `pids`, `memory`, `cpu`: processes, bytes and seconds of the whole tree that the helper has to watch; 0 where a
    control group does. `disk`: bytes that a command may add below `writable`. `private`: file systems in memory.
    `vanishing`: a folder that is emptied after every command; empty for none.
    `egress`: the port of the namespace's own loopback to listen on for the runner's proxy, 0 for none.
    `environment`: NAME=VALUE. `warm`: whether file actions will be asked for.
    `expected`: what each mount must show, when somebody else built them (mounted.py).
    `outside`: a process that must be out of reach, filled in by the helper.
    """

    __slots__ = (
        "cpu",
        "disk",
        "egress",
        "environment",
        "expected",
        "handled",
        "landlock",
        "loopback",
        "memory",
        "mounts",
        "outside",
        "pid_max",
        "pids",
        "private",
        "programs",
        "real",
        "rlimits",
        "tier",
        "tmpfs",
        "vanishing",
        "warm",
        "writable",
    )

    tier: str
    mounts: tuple[tuple[str, str, str], ...]
    real: tuple[str, ...]
    landlock: tuple[tuple[str, int], ...]
    handled: tuple[int, int, int, int, int]
    programs: tuple[bytes, ...]
    rlimits: tuple[tuple[int, int], ...]
    expected: tuple[tuple[str, int, int, bool], ...]
    loopback: bool
    pid_max: int
    pids: int
    memory: int
    cpu: int
    disk: int
    writable: tuple[str, ...]
    private: tuple[str, ...]
    tmpfs: int
    vanishing: str
    egress: int
    environment: tuple[str, ...]
    warm: bool
    outside: int

    def __init__(self, **values: object) -> None:
        for name in self.__slots__:
            setattr(self, name, values.get(name, 0))

    def dump(self) -> dict[str, object]:
        """Builtins only: what crosses the socket."""
        return {name: getattr(self, name) for name in self.__slots__}
