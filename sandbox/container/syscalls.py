"""The Docker seccomp profile from `profiles/seccomp/linux.toml`: one profile with the effect of the two programs of T1.

T1 stacks a filter by name and a filter by argument. A profile is one filter in which every rule of a call must be
told apart by its arguments (seccomp_rule_add(3)), so calls that are refused by argument are allowed here by the exact
complement: sets of (mask, value), of which every argument that is not refused matches one.

Sources: the OCI runtime specification (config-linux, "Seccomp"), seccomp(2).
"""

import errno
import json
import tomllib
from collections.abc import Iterable, Iterator
from itertools import product
from pathlib import Path
from typing import Any

import profiles
from policy.model.verdict import Rights
from sandbox.linux.seccomp import argument_entries, names, refused

Cube = tuple[int, int]  # (mask, value): every x with x & mask == value
Set = tuple[Cube, ...]  # any of them
SyscallRule = dict[str, Any]

_ALL, _INT = 0xFFFFFFFFFFFFFFFF, 0xFFFFFFFF
# fmt: off
MACHINES = {
    "x86_64":  "SCMP_ARCH_X86_64",   # and neither SCMP_ARCH_X86 nor _X32: another architecture kills the thread
    "aarch64": "SCMP_ARCH_AARCH64",
}
# The flags of these calls are in memory, where no filter can read them. Both are refused by name as well, for daemons
# that do not know `defaultErrnoRet`: libc then uses the older calls instead of failing.
_UNSEEN = ("clone3", "openat2")
# fmt: on


def profile(rights: Rights, *, unix: bool, trace: bool, machine: str) -> str:
    """Return the profile as JSON, equal for equal arguments. Raises KeyError for a machine without a table."""
    table = tomllib.loads((Path(str(profiles.__file__)).parent / "seccomp" / "linux.toml").read_text("utf-8"))
    entries = argument_entries(table, rights, unix=unix)
    checked = {name for entry in entries for name in entry["calls"]}
    permitted, never = names(table, trace=trace)
    rules = [_rule(sorted(set(permitted) - checked), "SCMP_ACT_ALLOW")]
    rules.append(_rule(sorted(never), "SCMP_ACT_ERRNO", errno.EPERM))
    rules.append(_rule(list(_UNSEEN), "SCMP_ACT_ERRNO", errno.ENOSYS))
    for name, only in table["only"].items():
        compared = [_masked(only["arg"], (_INT, value)) for value in only["values"]]
        rules += [_rule([name], "SCMP_ACT_ALLOW", args=[each]) for each in compared]
    for name in sorted(checked & set(permitted)):
        mine = [entry for entry in entries if name in entry["calls"]]
        rules += [_rule([name], "SCMP_ACT_ALLOW", args=args) for args in allowed(mine)]
        for entry in mine:
            number = getattr(errno, entry["errno"])
            for comparisons in refused(entry):
                args = [_compared(arg, how, *values) for arg, how, values in comparisons]
                rules.append(_rule([name], "SCMP_ACT_ERRNO", number, args))
    usual = {"defaultAction": "SCMP_ACT_ERRNO", "defaultErrnoRet": errno.ENOSYS}
    whole = {**usual, "architectures": [MACHINES[machine]], "syscalls": rules}
    return json.dumps(whole, separators=(",", ":"))


def allowed(entries: Iterable[SyscallRule]) -> Iterator[list[SyscallRule]]:
    """Return the argument comparisons, one list for each rule, under which no entry of `entries` (all of one call)
    refuses.
    """
    whole: list[dict[int, Cube]] = [{}]
    for entry in entries:
        ways = [{entry["arg"]: cube} for cube in _kept(entry)]
        if other := entry.get("only_with"):  # if that condition does not hold, the entry refuses nothing
            held = (other["mask"], other["value"])
            ways = [{**way, other["arg"]: held} for way in ways]
            ways += [{other["arg"]: cube} for cube in _outside((held,))]
        whole = [both for one, way in product(whole, ways) if (both := _meet(one, way)) is not None]
    for cubes in whole:
        yield [_masked(arg, cube) for arg, cube in sorted(cubes.items()) if cube[0]]


def _meet(one: dict[int, Cube], other: dict[int, Cube]) -> dict[int, Cube] | None:
    """Return the intersection of two cubes; None if it is empty."""
    met = dict(one)
    for arg, (mask, value) in other.items():
        old_mask, old_value = met.get(arg, (0, 0))
        if (old_value ^ value) & old_mask & mask:
            return None
        met[arg] = (old_mask | mask, old_value | value)
    return met


def _kept(entry: SyscallRule) -> Set:
    """Return the set of argument values that `entry` allows."""
    if "any_bit" in entry:
        return ((entry["any_bit"], 0),)
    if "mask" in entry:
        return _outside(tuple((entry["mask"], value) for value in entry["values"]))
    if "greater" in entry:
        if entry["greater"]:
            raise ValueError("only `greater = 0` has a complement that is one value")
        return ((_ALL, 0),)
    # The whole word is compared: as in T1, a value with a garbage upper half is not allowed.
    return tuple((_ALL, value) for value in entry["not_in"])


def _outside(refused: Set) -> Set:
    """Return every word that is in none of `refused`, as disjoint sets: the branches of a binary tree that bypass
    them.
    """
    mask = 0
    for each, _ in refused:
        mask |= each
    bits = [1 << n for n in reversed(range(64)) if mask >> n & 1]
    cubes: list[Cube] = []
    pending: list[tuple[int, int, int]] = [(0, 0, 0)]  # how many bits are settled, the mask of those, their value
    while pending:
        depth, settled, value = pending.pop()
        touching = [cube for cube in refused if not (cube[1] ^ value) & cube[0] & settled]
        if not touching:
            cubes.append((settled, value))
        elif not any(cube[0] & ~settled == 0 for cube in touching):
            bit = bits[depth]
            pending += [(depth + 1, settled | bit, value | bit), (depth + 1, settled | bit, value)]
    return tuple(sorted(cubes))


def _rule(
    names: list[str], action: str, number: int | None = None, args: list[SyscallRule] | None = None
) -> SyscallRule:
    rule: SyscallRule = {"names": names, "action": action}
    if number is not None:
        rule["errnoRet"] = number
    return {**rule, "args": args} if args else rule


def _masked(arg: int, cube: Cube) -> SyscallRule:
    mask, value = cube
    return _compared(arg, "EQ", value) if mask == _ALL else _compared(arg, "MASKED_EQ", mask, value)


def _compared(arg: int, how: str, value: int, second: int | None = None) -> SyscallRule:
    both = {"value": value} if second is None else {"value": value, "valueTwo": second}
    return {"index": arg, **both, "op": f"SCMP_CMP_{how}"}
