"""The compilation of `profiles/seccomp/linux.toml` to two BPF programs by libseccomp, kept in the cache folder.

Sources: seccomp(2), seccomp_rule_add(3). With stacked filters, the strictest action of all applies.
"""

import contextlib
import errno
import hashlib
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import profiles
from policy.model.verdict import Rights
from sandbox.backend import SandboxUnavailable

TABLE = "linux.toml"
_WORD = 0xFFFFFFFF
_FORMAT = 3  # bump when the way a program is built changes: it is part of the cache key


def programs(rights: Rights, *, unix: bool, cache: Path | None, noexec: bool = True) -> tuple[bytes, bytes]:
    """Return the two programs for one right set: allow by name, refuse by argument. Raises SandboxUnavailable.

    `noexec` is True if the helper may set vm.memfd_noexec, which it does as root.
    """
    # It lies beside our code in every kind of installation; asking importlib.resources costs more than reading it.
    text = (Path(str(profiles.__file__)).parent / "seccomp" / TABLE).read_bytes()
    # Root sets vm.memfd_noexec for its namespace (Linux 6.3); everyone else needs the stricter rule.
    root = noexec and os.geteuid() == 0 and os.path.exists("/proc/sys/vm/memfd_noexec")
    seed = f"{_FORMAT}:{os.uname().machine}:{os.uname().release}:{rights}:{unix}:{root}".encode()
    key = hashlib.sha256(seed + hashlib.sha256(text).digest()).hexdigest()[:32]
    kept = cache / f"seccomp-{key}" if cache else None
    if kept is not None:
        found = _kept(kept)
        if found is not None:
            return found
    built = _build(text.decode(), rights, unix, root)
    if kept is not None:
        _keep(kept, built)
    return built


def _kept(path: Path) -> tuple[bytes, bytes] | None:
    """Return the programs that an earlier run compiled; None if there are none, or they are incomplete."""
    try:
        blob = path.read_bytes()
    except OSError:
        return None
    digest, body = blob[:32], blob[32:]
    if len(body) < 4 or hashlib.sha256(body).digest() != digest:
        return None
    cut = 4 + int.from_bytes(body[:4], "little")
    return body[4:cut], body[cut:]


def _keep(path: Path, built: tuple[bytes, bytes]) -> None:
    body = len(built[0]).to_bytes(4, "little") + built[0] + built[1]
    # A cache that cannot be written costs 60 ms at the next start and nothing else.
    with contextlib.suppress(OSError):
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=".seccomp-")
        with os.fdopen(handle, "wb") as file:
            file.write(hashlib.sha256(body).digest() + body)
        os.replace(name, path)


def _build(text: str, rights: Rights, unix: bool, root: bool, machine: str | None = None) -> tuple[bytes, bytes]:
    """Compile the programs. Another `machine` than this one is used by tests only."""
    import tomllib

    try:
        import pyseccomp
    except (ImportError, OSError, RuntimeError) as error:
        raise SandboxUnavailable.of(
            "the seccomp filter cannot be compiled",
            f"libseccomp did not load ({error})",
            "install it: `apt-get install libseccomp2`",
        ) from None
    table = tomllib.loads(text)
    by_name = _empty(pyseccomp, pyseccomp.ERRNO(errno.ENOSYS), machine)
    numbers: dict[str, int] = {} if machine else table["numbers"]  # libseccomp translates names alone
    for name in table["allow"]:
        _rule(pyseccomp, by_name, pyseccomp.ALLOW, name, (), numbers)
    for name, entry in table["only"].items():
        for value in entry["values"]:
            only = (pyseccomp.Arg(entry["arg"], pyseccomp.MASKED_EQ, _WORD, value),)
            _rule(pyseccomp, by_name, pyseccomp.ALLOW, name, only, numbers)
    for name in table["refuse"]:
        _rule(pyseccomp, by_name, pyseccomp.ERRNO(errno.EPERM), name, (), numbers)
    by_argument = _empty(pyseccomp, pyseccomp.ALLOW, machine)
    for entry in (*table["argument"], *table["stacked"]):
        if "only_for" in entry and root:
            continue
        action = pyseccomp.ERRNO(getattr(errno, entry["errno"]))
        for name in entry["calls"]:
            for comparison in _comparisons(pyseccomp, entry):
                _rule(pyseccomp, by_argument, action, name, comparison, numbers)
    sockets = table["sockets"]
    families = list(sockets[rights.value]) + (list(sockets["unix"]) if unix else [])
    refused = pyseccomp.ERRNO(getattr(errno, sockets["errno"]))
    for comparison in _outside(pyseccomp, 0, families):
        _rule(pyseccomp, by_argument, refused, "socket", comparison, numbers)
    return _export(by_name), _export(by_argument)


def _empty(lib: Any, default: int, machine: str | None) -> Any:
    program = lib.SyscallFilter(defaction=default)
    if machine is not None:
        program.add_arch(getattr(lib.Arch, machine))
        program.remove_arch(lib.system_arch())
    return program


def _comparisons(lib: Any, entry: dict[str, Any]) -> list[tuple[Any, ...]]:
    """Return every set of argument comparisons under which `entry` refuses."""
    arg = entry["arg"]
    extra: tuple[Any, ...] = ()
    if "only_with" in entry:
        other = entry["only_with"]
        extra = (lib.Arg(other["arg"], lib.MASKED_EQ, other["mask"], other["value"]),)
    if "any_bit" in entry:
        bits = [1 << n for n in range(32) if entry["any_bit"] >> n & 1]
        return [(lib.Arg(arg, lib.MASKED_EQ, bit, bit), *extra) for bit in bits]
    if "only_bits" in entry:
        top, rest = 1 << 31, [1 << n for n in range(31) if not entry["only_bits"] >> n & 1]
        # A bit that is not allowed, while not all are set; and the top one, while another one is not set.
        some = [(lib.Arg(arg, lib.MASKED_EQ, bit | top, bit),) for bit in rest]
        return some + [(lib.Arg(arg, lib.MASKED_EQ, 1 << n | top, top),) for n in range(31)]
    if "from" in entry:
        values = [value for value in range(entry["from"], entry["to"] + 1) if value not in entry["but"]]
        return [(lib.Arg(arg, lib.MASKED_EQ, entry["mask"], value), *extra) for value in values]
    if "mask" in entry:
        return [(lib.Arg(arg, lib.MASKED_EQ, entry["mask"], value), *extra) for value in entry["values"]]
    if "greater" in entry:
        return [(lib.Arg(arg, lib.GT, entry["greater"]), *extra)]
    return _outside(lib, arg, entry["not_in"])


def _outside(lib: Any, arg: int, allowed: Sequence[int]) -> list[tuple[Any, ...]]:
    """Return comparisons that hold for every value not in `allowed`, including values with a garbage upper half."""
    if not allowed:
        return [()]
    low, high = min(allowed), max(allowed)
    holes = [(lib.Arg(arg, lib.EQ, value),) for value in range(low, high) if value not in allowed]
    below = [(lib.Arg(arg, lib.LT, low),)] if low else []
    return [*below, *holes, (lib.Arg(arg, lib.GT, high),)]


def _rule(lib: Any, program: Any, action: int, name: str, comparison: tuple[Any, ...], numbers: dict[str, int]) -> None:
    try:
        number = lib.resolve_syscall(lib.system_arch(), name)
    except (ValueError, OSError):
        number = -1
    if number == -1:  # a name that it does not know; a call that this architecture has not is another negative number
        number = numbers.get(name, -1)
    if number < 0:
        return  # this libseccomp or architecture has no such call: the default (ENOSYS) holds for it
    program.add_rule(action, number, *comparison)


def _export(program: Any) -> bytes:
    with tempfile.TemporaryFile() as file:
        program.export_bpf(file)
        file.seek(0)
        return file.read()
