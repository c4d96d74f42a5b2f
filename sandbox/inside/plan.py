"""The plan that the runner sends to a helper. The module imports nothing, so that a helper starts fast."""


class Plan:
    """The parameters of a helper, sent before anything else.

    Attributes:
        tier: "T1" (namespaces and a private root), "T2" (the same, built by bubblewrap before the helper starts) or
            "T3" (Landlock and seccomp only).
        mounts: (kind, source, target), in build order. The source of a tmpfs is its size in bytes, or empty.
        layers: The folders `upper` and `work` of each overlay over the workspace, in the order of use, one for each
            command; empty for none.
        marks: (target, inode) of files that a mount must cover: a file was replaced if it has another inode now.
        real: Folders and files to which no link may lead, including their content, because commands may write there.
        landlock: (path, access bits).
        handled: fs, net, scoped, attribute size, flags.
        rlimits: (resource, value).
        tmpfs: Bytes of each private file system.
        pid_max: Largest process number in the PID namespace.
        pids: Processes of the whole tree that the helper has to limit; 0 if a control group does.
        memory: Bytes of the whole tree that the helper has to limit; 0 if a control group does.
        cpu: Seconds of the whole tree that the helper has to limit; 0 if a control group does.
        disk: Bytes that a command may add below `writable`.
        private: File systems in memory.
        vanishing: Folder that is emptied after every command; empty for none.
        egress: Port of the namespace's own loopback to listen on for the runner's proxy; 0 for none.
        joined: True if the helper enters the network namespace of an earlier helper with equal rights.
        environment: NAME=VALUE.
        warm: True if file actions will be requested.
        prepared: True if the root that the helper has built before contains only mounts of this plan.
        expected: The file that each mount must show, if another program built them (`mount_check.py`).
        outside: A process outside of the sandbox that commands must not be able to signal, set by the helper.
    """

    tier: str
    mounts: tuple[tuple[str, str, str], ...]
    layers: tuple[tuple[str, str], ...]
    marks: tuple[tuple[str, int], ...]
    real: tuple[str, ...]
    landlock: tuple[tuple[str, int], ...]
    handled: tuple[int, int, int, int, int]
    programs: tuple[bytes, ...]
    rlimits: tuple[tuple[int, int], ...]
    expected: tuple[tuple[str, int, int, bool], ...]
    loopback: bool
    joined: bool
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
    prepared: bool
    outside: int

    def __init__(self, **values: object) -> None:
        for name in Plan.__annotations__:
            setattr(self, name, values.get(name, 0))

    def dump(self) -> dict[str, object]:
        """Return the plan as values of builtin types, for the socket."""
        return {name: getattr(self, name) for name in Plan.__annotations__}
