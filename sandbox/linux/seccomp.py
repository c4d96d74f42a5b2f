"""The compilation of `profiles/seccomp/linux.toml` to two BPF programs by libseccomp, kept in the cache folder.

Sources: seccomp(2), seccomp_rule_add(3). With stacked filters, the strictest action of all applies.
"""

import contextlib
import errno
import functools
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import profiles
from policy.model.digest import sha256_hex
from policy.model.verdict import Rights
from sandbox.backend import SandboxUnavailable
from sandbox.workspace.folder_cache import read_sealed, write_sealed

TABLE = "linux.toml"
Comparison = tuple[int, str, tuple[int, ...]]  # number of the argument; comparison; mask and value, or value
_WORD = 0xFFFFFFFF
_FORMAT = 4  # bump when the way a program is built changes: it is part of the cache key


def programs(
    rights: Rights, *, unix: bool, trace: bool, cache: Path | None, noexec: bool = True
) -> tuple[bytes, bytes]:
    """Return the two programs for one right set: allow by name, refuse by argument. Raises SandboxUnavailable.

    `trace` allows the calls that trace other processes. `noexec` is True if the helper may set vm.memfd_noexec, which
    it does as root.
    """
    # Every kind of installation has the file next to the code; importlib.resources would take longer than reading it.
    text = (Path(str(profiles.__file__)).parent / "seccomp" / TABLE).read_bytes()
    # Root sets vm.memfd_noexec for its namespace (Linux 6.3); everyone else needs the stricter rule.
    root = noexec and os.geteuid() == 0 and os.path.exists("/proc/sys/vm/memfd_noexec")
    seed = f"{_FORMAT}:{os.uname().machine}:{os.uname().release}:{rights}:{unix}:{trace}:{root}".encode()
    key = sha256_hex(seed + bytes.fromhex(sha256_hex(text)))[:32]
    path = cache / f"seccomp-{key}" if cache else None
    body = read_sealed(path) if path else None
    if body is not None and len(body) >= 4:
        cut = 4 + int.from_bytes(body[:4], "little")
        return body[4:cut], body[cut:]
    built = _build(text.decode(), rights, unix, root, trace=trace)
    if path is not None:
        # Without a cache file the next start takes 60 ms longer.
        with contextlib.suppress(OSError):
            write_sealed(path, len(built[0]).to_bytes(4, "little") + built[0] + built[1])
    return built


@functools.lru_cache(maxsize=16)  # for a program with many sessions whose cache folder is new or cannot be written
def _build(
    text: str, rights: Rights, unix: bool, root: bool, machine: str | None = None, *, trace: bool = False
) -> tuple[bytes, bytes]:
    """Compile the programs. `machine` is another architecture, used only by tests."""
    import tomllib

    try:
        import pyseccomp
    except (ImportError, OSError, RuntimeError) as error:
        what, why = "the seccomp filter cannot be compiled", f"libseccomp did not load ({error})"
        raise SandboxUnavailable.of(what, why, "install it: `apt-get install libseccomp2`") from None
    table = tomllib.loads(text)
    numbers: dict[str, int] = {} if machine else table["numbers"]  # of calls that libseccomp may not know
    by_name = _Filter(pyseccomp, pyseccomp.ERRNO(errno.ENOSYS), machine, numbers)
    allowed, refused_names = names(table, trace=trace)
    for name in allowed:
        by_name.add(pyseccomp.ALLOW, name)
    for name, entry in table["only"].items():
        for value in entry["values"]:
            by_name.add(pyseccomp.ALLOW, name, [(entry["arg"], "MASKED_EQ", (_WORD, value))])
    for name in refused_names:
        by_name.add(pyseccomp.ERRNO(errno.EPERM), name)
    by_argument = _Filter(pyseccomp, pyseccomp.ALLOW, machine, numbers)
    for entry in argument_entries(table, rights, *table["stacked"], unix=unix):
        if "only_for" in entry and root:
            continue
        for name in entry["calls"]:
            for comparisons in refused(entry):
                by_argument.add(pyseccomp.ERRNO(getattr(errno, entry["errno"])), name, comparisons)
    return by_name.exported(), by_argument.exported()


def names(table: dict[str, Any], *, trace: bool) -> tuple[list[str], list[str]]:
    """Return the calls that are allowed and those that are refused by name. `trace` decides about those that trace."""
    tracing = table["tracing"]["calls"]
    if trace:
        return [*table["allow"], *tracing], table["refuse"]
    return table["allow"], [*table["refuse"], *tracing]


def argument_entries(
    table: dict[str, Any], rights: Rights, *others: dict[str, Any], unix: bool
) -> list[dict[str, Any]]:
    """Return the entries that refuse calls by argument: those of the table, `others`, and those for sockets."""
    sockets = table["sockets"]
    families = [*sockets[rights.value], *(sockets["unix"] if unix else ())]
    socket = {"calls": ["socket"], "arg": 0, "not_in": families, "errno": sockets["errno"]}
    return [*table["argument"], *others, socket, *(() if unix else (table["pairs"],))]


def refused(entry: dict[str, Any]) -> list[list[Comparison]]:
    """Return every set of argument comparisons under which an entry of the table refuses a call."""
    arg = entry["arg"]
    other = entry.get("only_with")
    extra: list[Comparison] = [(other["arg"], "MASKED_EQ", (other["mask"], other["value"]))] if other else []
    masked: list[tuple[int, int]] = []  # (mask, value)
    if "any_bit" in entry:
        masked = [(1 << n, 1 << n) for n in range(32) if entry["any_bit"] >> n & 1]
    elif "only_bits" in entry:
        # Refuse a forbidden bit without the top bit, and the top bit unless all other bits are set.
        top = 1 << 31
        masked = [(1 << n | top, 1 << n) for n in range(31) if not entry["only_bits"] >> n & 1]
        masked += [(1 << n | top, top) for n in range(31)]
    elif "from" in entry:
        values = range(entry["from"], entry["to"] + 1)
        masked = [(entry["mask"], value) for value in values if value not in entry["but"]]
    elif "mask" in entry:
        masked = [(entry["mask"], value) for value in entry["values"]]
    elif "greater" in entry:
        return [[(arg, "GT", (entry["greater"],)), *extra]]
    else:
        return [[(arg, how, (value,))] for how, value in _outside(entry["not_in"])] or [[]]
    return [[(arg, "MASKED_EQ", both), *extra] for both in masked]


def _outside(allowed: Sequence[int]) -> list[tuple[str, int]]:
    """Return comparisons that hold for every value not in `allowed`, including values with a garbage upper half.

    The result is empty if no value is allowed.
    """
    if not allowed:
        return []
    low, high = min(allowed), max(allowed)
    holes = [("EQ", value) for value in range(low, high) if value not in allowed]
    return [*([("LT", low)] if low else []), *holes, ("GT", high)]


class _Filter:
    """One BPF program under construction."""

    def __init__(self, lib: Any, default: int, machine: str | None, numbers: dict[str, int]) -> None:
        self._lib, self._numbers = lib, numbers
        self._program = lib.SyscallFilter(defaction=default)
        if machine is not None:
            self._program.add_arch(getattr(lib.Arch, machine))
            self._program.remove_arch(lib.system_arch())

    def add(self, action: int, name: str, comparisons: Sequence[Comparison] = ()) -> None:
        lib = self._lib
        try:
            number = lib.resolve_syscall(lib.system_arch(), name)
        except (ValueError, OSError):
            number = -1
        if number == -1:  # an unknown name; calls that this architecture does not have get other negative numbers
            number = self._numbers.get(name, -1)
        if number < 0:
            return  # this libseccomp or architecture has no such call: the default (ENOSYS) applies
        arguments = (lib.Arg(arg, getattr(lib, how), *values) for arg, how, values in comparisons)
        self._program.add_rule(action, number, *arguments)

    def exported(self) -> bytes:
        import tempfile  # loads `random` and `shutil`; the programs are usually in the cache

        with tempfile.TemporaryFile() as file:
            self._program.export_bpf(file)
            file.seek(0)
            return file.read()
