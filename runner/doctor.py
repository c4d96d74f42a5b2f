"""`agent doctor`: what the machine offers, found by trying it, and what to do where something is missing."""

import asyncio
import ctypes
import os
import platform
import shutil
import sys
from enum import StrEnum

from policy.record import dataclass
from policy.verdict import Problem
from runner.problems import Exit
from runner.version import VERSION
from sandbox.backend import Enforcement, Level
from sandbox.container.choice import Choice

_LANDLOCK_CREATE_RULESET = 444
_LANDLOCK_VERSION_FLAG = 1
_CAP_SYS_ADMIN = 21
# The kernel's switches allow namespaces and it refuses all the same: a container around us does that.
_OUTSIDE = "run it outside of the container, or in one that may make namespaces (`--privileged`)"


class State(StrEnum):
    OK = "ok"
    WEAK = "weak"
    MISSING = "missing"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing looked at. `sandbox` marks a backend; `fix` is empty when there is nothing to do."""

    name: str
    state: State
    detail: str
    fix: str = ""
    sandbox: bool = False
    missing: tuple[str, ...] = ()  # what this sandbox does not enforce here


def examine(container: Choice = Choice()) -> tuple[Finding, ...]:  # noqa: B008  # frozen
    """Look at everything. Runs a canary in every backend; changes nothing."""
    spaces = namespaces(
        admin=_is_admin(),
        most=_read("/proc/sys/user/max_user_namespaces"),
        clone=_read("/proc/sys/kernel/unprivileged_userns_clone"),
        apparmor=_read("/proc/sys/kernel/apparmor_restrict_unprivileged_userns"),
    )
    return (
        Finding("ringfence", State.OK, f"{VERSION}, python {platform.python_version()}"),
        _kernel(),
        _landlock(),
        spaces,
        _libseccomp(),
        *asyncio.run(_backends(spaces)),
        asyncio.run(_container(container)),
        *(_program(*row) for row in _PROGRAMS),
        *_places(),
    )


def verdict(findings: tuple[Finding, ...], minimum: Level = Level.FULL) -> Exit:
    """DONE when a backend meets the configured minimum, else SANDBOX: nothing would run."""
    good = (State.OK, State.WEAK) if minimum is Level.PARTIAL else (State.OK,)
    enough = any(finding.sandbox and finding.state in good for finding in findings)
    return Exit.DONE if enough else Exit.SANDBOX


def render(findings: tuple[Finding, ...], minimum: Level = Level.FULL, *, colour: bool) -> str:
    hues = {State.OK: "\x1b[32m", State.WEAK: "\x1b[33m", State.MISSING: "\x1b[31m"} if colour else {}
    end = "\x1b[0m" if colour else ""
    lines = []
    for finding in findings:
        lines.append(f"{hues.get(finding.state, '')}{finding.state.value:<8}{end} {finding.name:<14} {finding.detail}")
        lines += [f"{'':<24}not enforced: {item}" for item in finding.missing]
        if finding.fix:
            lines.append(f"{'':<24}fix: {finding.fix}")
    ready = verdict(findings, minimum) is Exit.DONE
    lines.append("")
    lines.append(
        "ready: commands run confined"
        if ready
        else "not ready: no sandbox meets the minimum, so nothing would run (exit 4)"
    )
    return "\n".join(lines)


def _kernel() -> Finding:
    release = platform.release()
    if sys.platform != "linux":
        return Finding(
            "kernel", State.MISSING, f"{platform.system()} {release}", "use Linux, WSL2, or a Linux container"
        )
    return Finding("kernel", State.OK, f"Linux {release} {platform.machine()}")


def _landlock() -> Finding:
    """The ABI, asked of the kernel itself. SAFETY: with a null ruleset and the version flag the call only answers."""
    libc = ctypes.CDLL(None, use_errno=True)
    abi = libc.syscall(_LANDLOCK_CREATE_RULESET, None, 0, _LANDLOCK_VERSION_FLAG) if sys.platform == "linux" else -1
    if abi >= 1:
        return Finding("landlock", State.OK, f"ABI {abi}")
    why = os.strerror(ctypes.get_errno()).lower()
    return Finding("landlock", State.MISSING, why, "use a kernel from 5.13 on that is booted with lsm=landlock,...")


def namespaces(*, admin: bool, most: str, clone: str, apparmor: str) -> Finding:
    """Whether T1 may make namespaces, from what the kernel's switches say. An empty text: there is no such switch."""
    if admin:
        return Finding("namespaces", State.OK, "root, who needs no user namespace")
    ways = (
        (most == "0", "max_user_namespaces is 0", "sudo sysctl -w user.max_user_namespaces=15000"),
        (clone == "0", "unprivileged ones are off", "sudo sysctl -w kernel.unprivileged_userns_clone=1"),
        (
            apparmor == "1",
            "AppArmor restricts unprivileged ones",
            "sudo sysctl -w kernel.apparmor_restrict_unprivileged_userns=0",
        ),
    )
    for off, why, fix in ways:
        if off:
            return Finding("namespaces", State.WEAK, why, fix)
    return Finding(
        "namespaces", State.OK, f"unprivileged user namespaces, at most {most or 'as many as the kernel likes'}"
    )


def _is_admin() -> bool:
    """Root with its powers. Root of a container or of a user namespace may lack the one that makes namespaces."""
    status = _read("/proc/self/status")
    powers = status.partition("CapEff:")[2].split()[:1]
    return os.geteuid() == 0 and bool(powers) and bool(int(powers[0], 16) >> _CAP_SYS_ADMIN & 1)


def _libseccomp() -> Finding:
    try:
        import pyseccomp
    except (ImportError, OSError, RuntimeError) as error:  # pyseccomp raises RuntimeError without the library
        return Finding("libseccomp", State.MISSING, str(error).lower(), "sudo apt-get install libseccomp2")
    version = getattr(pyseccomp, "version", None)
    return Finding("libseccomp", State.OK, f"API {pyseccomp.get_api()}" if version is None else str(version))


async def _backends(spaces: Finding) -> list[Finding]:
    from sandbox.backend import SandboxUnavailable
    from sandbox.choose import here, open_backend

    found = []
    for name in here():
        try:
            backend, enforcement = await open_backend(name, Level.PARTIAL)
        except SandboxUnavailable as error:
            found.append(_refused(name, error.problem, spaces))
            continue
        await backend.close()
        found.append(_stands(name, enforcement, sandbox=True))
    return found


def _stands(name: str, enforcement: Enforcement, *, sandbox: bool) -> Finding:
    held = sum(1 for _, good in enforcement.checks if good)
    detail = f"{enforcement.level.value}, canary held {held} of {len(enforcement.checks)} checks"
    detail += f"; limits of the whole tree kept by {enforcement.limits}" if enforcement.limits else ""
    state = State.OK if enforcement.level is Level.FULL else State.WEAK
    fix = "" if state is State.OK else "used only when you accept it with --accept-partial"
    return Finding(f"sandbox {name}", state, detail, fix, sandbox=sandbox, missing=enforcement.missing)


async def _container(choice: Choice) -> Finding:
    """Only for who asks for it, so it never makes a machine ready."""
    from sandbox.backend import SandboxUnavailable
    from sandbox.choose import open_backend

    try:
        backend, enforcement = await open_backend("container", Level.PARTIAL, container=choice)
    except SandboxUnavailable as error:
        state = State.MISSING if choice.image else State.WEAK
        return Finding("sandbox container", state, f"{error.problem.what}: {error.problem.why}", error.problem.fix)
    await backend.close()
    return _stands("container", enforcement, sandbox=False)


def _refused(name: str, problem: Problem, spaces: Finding) -> Finding:
    """A sandbox that cannot be built. Elsewhere its problem sends people here, so here stands what to do."""
    fix = problem.fix
    if "agent doctor" in fix:
        first = "do what `namespaces` says above" if spaces.fix else _OUTSIDE
        fix = f"{first}; or accept T3, which enforces less, with --accept-partial"
    return Finding(f"sandbox {name}", State.MISSING, f"{problem.what}: {problem.why}", fix, sandbox=True)


# program, whether the product needs it, what for
_PROGRAMS = (
    ("bash", True, "every script runs in it"),
    ("git", False, "most work needs it"),
    ("rg", False, "the grep tool is quicker with it"),
)


def _program(name: str, needed: bool, why: str) -> Finding:
    found = shutil.which(name)
    if found:
        return Finding(name, State.OK, found)
    package = {"rg": "ripgrep"}.get(name, name)
    return Finding(
        name, State.MISSING if needed else State.WEAK, f"not found; {why}", f"sudo apt-get install {package}"
    )


def _places() -> list[Finding]:
    from runner import places

    found = []
    for label, find in (("state", places.state_dir), ("config", places.config_dir), ("cache", places.cache_dir)):
        try:
            found.append(Finding(label, State.OK, str(find(os.environ))))
        except places.PlaceError as error:
            problem = error.problem
            found.append(Finding(label, State.MISSING, f"{problem.what}: {problem.why}", problem.fix))
    return found


def _read(path: str) -> str:
    try:
        with open(path, encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return ""
