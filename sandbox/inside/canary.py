"""The start-up checks of a confined process: a check holds if its attempt fails or the kernel states the
restriction. Standard library only.

The runner creates the decoys, the helper makes the attempts, and the runner inspects the decoys from outside
afterwards. A check proves more than a version string.
"""

import ctypes
import os
import socket
import struct
from collections.abc import Callable

# fmt: off
WORDS = {
    "hidden":       "a file outside the Terms can be read",
    "outside":      "a file outside the Terms can be written",
    "network":      "a listener on the host can be reached",
    "abstract":     "an abstract socket of the host can be reached",
    "processes":    "processes outside can be seen",
    "capabilities": "the process has capabilities",
    "privileges":   "new privileges can be gained",
    "seccomp":      "no seccomp filter is loaded",
    "namespaces":   "a new user namespace can be made",
    "mounts":       "file systems can be mounted",
    "sysctl":       "kernel settings can be written",
    "io_uring":     "io_uring is available",
    "workspace":    "the workspace can be written with read-only rights",
}
# fmt: on


def attempt(decoys: dict[str, object]) -> dict[str, bool]:
    """Run every check, and return the results by name; True means that the boundary held."""
    # fmt: off
    checks: dict[str, Callable[[], object]] = {
        "hidden":     lambda: open(str(decoys["secret"]), "rb").close(),
        "outside":    lambda: os.close(os.open(str(decoys["target"]), os.O_WRONLY)),
        "network":    lambda: _connect(socket.AF_INET, ("127.0.0.1", decoys["port"])),
        "abstract":   lambda: _connect(socket.AF_UNIX, "\0" + str(decoys["abstract"])),
        "processes":  lambda: _see_outside(int(str(decoys["pid"]))),
        "namespaces": lambda: _call("unshare", ctypes.c_int(0x10000000)),
        "mounts":     lambda: _call("mount", b"none", b"/tmp", b"tmpfs", ctypes.c_ulong(0), b""),
        "sysctl":     lambda: os.close(os.open("/proc/sys/kernel/core_pattern", os.O_WRONLY)),
        "io_uring":   lambda: _call("syscall", ctypes.c_long(425), ctypes.c_long(2), ctypes.create_string_buffer(120)),
    }
    # fmt: on
    if decoys["read_only"]:
        checks["workspace"] = lambda: _create(str(decoys["workspace"]))
    held = {}
    for name, check in checks.items():
        try:
            check()
            held[name] = False
        except (OSError, AssertionError):
            held[name] = True
    try:
        with open("/proc/self/status", encoding="utf-8", errors="replace") as file:
            pairs = (line.split(":", 1) for line in file)
            status = {name: value.strip() for name, value in pairs}
    except OSError:  # /proc is not readable (T3): the kernel is asked by system calls
        held["privileges"] = ctypes.CDLL(None).prctl(39, 0, 0, 0, 0) == 1  # PR_GET_NO_NEW_PRIVS
        held["seccomp"] = ctypes.CDLL(None).prctl(21, 0, 0, 0, 0) == 2  # PR_GET_SECCOMP
        held["capabilities"] = _no_capabilities()
        return held
    held["capabilities"] = all(int(status[name], 16) == 0 for name in ("CapEff", "CapPrm", "CapInh", "CapAmb"))
    held["privileges"] = status["NoNewPrivs"] == "1"
    held["seccomp"] = status["Seccomp"] == "2"
    return held


def _connect(family: int, address: object) -> None:
    with socket.socket(family) as probe:
        probe.settimeout(0.2)
        probe.connect(address)  # type: ignore[arg-type]  # an address of either family


def _see_outside(pid: int) -> None:
    """Send signal 0 to a process of the host, and count the visible processes. Raises OSError if none outside are
    visible.

    In a separate PID namespace the helper is process 1 and sees few processes.
    """
    os.kill(pid, 0)
    if os.path.exists("/proc/1/stat") and len([name for name in os.listdir("/proc") if name.isdigit()]) <= 4:
        raise OSError("only our own processes")


def _call(name: str, *arguments: object) -> None:
    if getattr(ctypes.CDLL(None, use_errno=True), name)(*arguments) < 0:
        raise OSError(ctypes.get_errno(), name)


def _create(workspace: str) -> None:
    path = os.path.join(workspace, f".ringfence-canary-{os.getpid()}")
    os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    os.unlink(path)


def _no_capabilities() -> bool:
    """Return True if the effective, permitted and inheritable sets of this process are empty (capget(2))."""
    number = {"x86_64": 125, "aarch64": 90}[os.uname().machine]
    header, sets = struct.pack("Ii", 0x20080522, 0), ctypes.create_string_buffer(24)
    return ctypes.CDLL(None).syscall(ctypes.c_long(number), header, sets) == 0 and not any(sets.raw)
