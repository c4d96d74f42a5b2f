"""Report of `agent doctor`: what the machine offers, found by trying it, and remedies for what is missing."""

import asyncio
import ctypes
import errno
import os
import platform
import shutil
import socket
import sys
from collections.abc import Mapping
from enum import StrEnum

from policy.model.deadline import deadline
from policy.model.frozen import dataclass
from policy.model.verdict import Problem, Rights, Terms
from runner import VERSION
from runner.doctor.remedies import apparmor_remedy, landlock_remedy, package_command, release_fields
from runner.problems import Exit
from runner.text.sanitize import visible
from sandbox.backend import DIRECT, Backend, ContainerOptions, Enforcement, Level, NetworkOptions, SandboxUnavailable
from sandbox.inside.syscalls import is_admin
from sandbox.linux.cgroup_places import usable
from sandbox.linux.interpreter_paths import bubblewrap

_LANDLOCK_CREATE_RULESET = 444
_LANDLOCK_VERSION_FLAG = 1
_API = 3  # API level of libseccomp 2.4; seccomp_api_get(3) also depends on the kernel
# The remedy if the kernel's settings allow namespaces but none can be created: a surrounding container blocks them.
_OUTSIDE = "run `agent` outside of the container, or in a container that may make namespaces (`--privileged`)"


_PROXY_ANSWER = deadline(5.0)  # seconds for the upstream proxy to accept a connection
_NAMED = 4  # rights of other database roles that are named


class CheckState(StrEnum):
    OK = "ok"
    WEAK = "weak"
    MISSING = "missing"
    ABSENT = "absent"  # not requested and not needed


@dataclass(frozen=True, slots=True)
class CheckResult:
    """The result of one check.

    Attributes:
        name: The name of the check.
        state: The state.
        detail: The finding in words.
        fix: The remedy; empty if there is nothing to do.
        sandbox: True for a sandbox backend that is used without a request.
        missing: The guarantees that this sandbox does not enforce here.
        lines: Lines to type, if `fix` is more than one line.
    """

    name: str
    state: CheckState
    detail: str
    fix: str = ""
    sandbox: bool = False
    missing: tuple[str, ...] = ()
    lines: tuple[str, ...] = ()


def ok(name: str, detail: str) -> CheckResult:
    """Return the result of a check that found nothing to do."""
    return CheckResult(name, CheckState.OK, detail)


def of_problem(name: str, state: CheckState, problem: Problem) -> CheckResult:
    """Return the result of a check that failed with a problem."""
    return CheckResult(name, state, f"{problem.what}: {problem.why}", problem.fix)


def examine(
    container: ContainerOptions = ContainerOptions(),  # noqa: B008  # frozen
    credentials: tuple[str, ...] = (),
    network: NetworkOptions = DIRECT,
) -> tuple[CheckResult, ...]:
    """Run all checks and return their results. Each backend runs a canary. Missing folders of this program are created.

    `container` are the settings of the container backend, `credentials` the names of injected credentials, `network`
    the way of the proxy to the network.
    """
    spaces = namespaces(
        admin=sys.platform == "linux" and is_admin(),
        most=_read("/proc/sys/user/max_user_namespaces"),
        clone=_read("/proc/sys/kernel/unprivileged_userns_clone"),
        apparmor=_read("/proc/sys/kernel/apparmor_restrict_unprivileged_userns"),
    )
    return (
        ok("ringfence", f"{VERSION}, python {platform.python_version()}"),
        _kernel(),
        # The sandbox of macOS is part of the system: its canary checks everything.
        *(() if sys.platform == "darwin" else (_landlock(), spaces, *_environment_checks(), _libseccomp(), _cgroups())),
        *asyncio.run(_backends(spaces)),
        asyncio.run(_container(container)),
        *(_program(*row) for row in _PROGRAMS),
        *_places(),
        _keyring(),
        *_injected(credentials),
        *upstream_checks(network),
    )


_HUES = {
    CheckState.OK: "\x1b[32m",
    CheckState.WEAK: "\x1b[33m",
    CheckState.MISSING: "\x1b[31m",
    CheckState.ABSENT: "\x1b[2m",
}


def verdict(findings: tuple[CheckResult, ...], minimum: Level = Level.FULL) -> Exit:
    """Return DONE if a backend meets the configured minimum, else SANDBOX, since no command would run."""
    good = (CheckState.OK, CheckState.WEAK) if minimum is Level.PARTIAL else (CheckState.OK,)
    enough = any(finding.sandbox and finding.state in good for finding in findings)
    return Exit.DONE if enough else Exit.SANDBOX


def render(findings: tuple[CheckResult, ...], minimum: Level = Level.FULL, *, colour: bool) -> str:
    """Return the report as text for a terminal, with escape sequences if `colour`."""
    lines = []
    for finding in findings:
        texts = [f"{finding.name:<14} {finding.detail}"]
        texts += [f"{'':<15}not enforced: {item}" for item in finding.missing]
        texts += [f"{'':<15}fix: {finding.fix}"] if finding.fix else []
        texts += [f"{'':<19}{line}" for line in finding.lines]
        first, *rest = (visible(line, lines=False) for line in texts)
        start, end = (_HUES[finding.state], "\x1b[0m") if colour else ("", "")
        lines.append(f"{start}{finding.state.value:<8}{end} {first}")
        lines += [f"{'':<9}{line}" for line in rest]
    ready = verdict(findings, minimum) is Exit.DONE
    text = "commands run confined" if ready else "no sandbox meets the minimum, so no command can run (exit 4)"
    return "\n".join([*lines, "", f"{'ready' if ready else 'not ready'}: {text}"])


def upstream_checks(network: NetworkOptions) -> tuple[CheckResult, ...]:
    """Return the results about the upstream proxy and the translated ranges of the user's configuration."""
    found = []
    if network.proxy:
        from sandbox.egress.upstream import proxy_address

        try:
            socket.create_connection(proxy_address(network.proxy), _PROXY_ANSWER).close()
            found.append(ok("upstream proxy", f"{network.proxy} accepts connections"))
        except OSError as error:
            why = (os.strerror(error.errno) if error.errno else str(error)).lower()
            fix = "check `upstream_proxy` in `[sandbox.network]` of your configuration, and that the proxy runs"
            detail = f"{network.proxy} cannot be reached ({why}), so no command reaches a host"
            found.append(CheckResult("upstream proxy", CheckState.WEAK, detail, fix))
    if network.translated:
        found.append(ok("translated", f"names may lie in {', '.join(network.translated)}"))
    return tuple(found)


def _kernel() -> CheckResult:
    release = platform.release()
    if sys.platform == "darwin":
        return ok("kernel", f"macOS {platform.mac_ver()[0]} {platform.machine()}")
    if sys.platform != "linux":
        return CheckResult(
            "kernel", CheckState.MISSING, f"{platform.system()} {release}", "use Linux, WSL2, or a Linux container"
        )
    return ok("kernel", f"Linux {release} {platform.machine()}")


def _landlock() -> CheckResult:
    """Return the result about the Landlock ABI that the kernel reports.

    SAFETY: with a null ruleset and the version flag, the system call only returns the version.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    abi = libc.syscall(_LANDLOCK_CREATE_RULESET, None, 0, _LANDLOCK_VERSION_FLAG) if sys.platform == "linux" else -1
    if abi >= 1:
        return ok("landlock", f"ABI {abi}")
    known = "off" if ctypes.get_errno() == errno.EOPNOTSUPP else "none"
    why, fix = landlock_remedy(known, _read("/sys/kernel/security/lsm"))
    return CheckResult("landlock", CheckState.MISSING, why, fix)


def namespaces(*, admin: bool, most: str, clone: str, apparmor: str) -> CheckResult:
    """Return the result whether T1 can create user namespaces.

    `most`, `clone` and `apparmor` are the values of the settings of the kernel, empty if the kernel lacks a setting.
    With `admin`, the process is root.
    """
    if admin:
        return ok("namespaces", "root needs no user namespace")
    switches = (
        (most == "0", "max_user_namespaces is 0", "sudo sysctl -w user.max_user_namespaces=15000", False),
        (
            clone == "0",
            "they are off for unprivileged users",
            "sudo sysctl -w kernel.unprivileged_userns_clone=1",
            False,
        ),
        (
            apparmor == "1",
            "AppArmor restricts them for unprivileged users",
            "allow them for bubblewrap with these lines (then T2 works), or for all programs with `sudo sysctl -w "
            "kernel.apparmor_restrict_unprivileged_userns=0`",
            True,
        ),
    )
    for off, why, fix, has_lines in switches:
        if off:
            lines = apparmor_remedy(bubblewrap() or "/usr/bin/bwrap") if has_lines else ()
            return CheckResult("namespaces", CheckState.WEAK, why, fix, lines=lines)
    return ok("namespaces", f"unprivileged user namespaces, at most {most or 'the limit of the kernel'}")


def _install(wanted: str) -> str:
    return package_command(wanted, release_fields(_read("/etc/os-release") or _read("/usr/lib/os-release")))


def _environment_checks() -> list[CheckResult]:
    """Return the results that apply to some machines only: a surrounding container, and a missing /dev/shm."""
    found = []
    kind = container(
        os.environ.get("container", ""),  # noqa: SIM112  # the name that systemd's container interface defines
        (os.path.exists("/.dockerenv"), os.path.exists("/run/.containerenv")),
        _read("/proc/1/cgroup"),
        _read("/proc/self/mounts"),
    )
    if kind:
        found.append(ok("inside", f"{kind}: rights that it withholds are not available here"))
    memory = "/dev/shm"  # noqa: S108  # looked for, not written to
    if sys.platform == "linux" and not os.path.isdir(memory):
        found.append(ok(memory, "this machine has none; every sandbox except T3 has its own"))
    return found


def container(named: str, marks: tuple[bool, bool], groups: str, mounts: str) -> str:
    """Return the kind of container that this program runs in, in words; empty if none is recognized.

    `named` is the variable `container`; `marks` tells if the files of Docker and of Podman exist; `groups` and `mounts`
    are the contents of /proc/1/cgroup and /proc/self/mounts.
    """
    if marks[0] or "docker" in groups:
        return "a Docker container"
    if marks[1]:
        return "a Podman container"
    if named or any(word in groups for word in ("kubepods", "lxc", "containerd")):
        return f"a container ({named or 'by its control group'})"
    sealed = any(
        line.split()[1:2] == ["/proc/sys"] and "ro" in line.split()[3].split(",") for line in mounts.splitlines()
    )
    return "a read-only /proc/sys, as in containers" if sealed else ""


def _cgroups() -> CheckResult:
    if sys.platform != "linux":
        return ok("control groups", "not on this system")

    kept = [f"v{place.version} {', '.join(sorted(place.keeps))}" for place in usable()]
    if kept:
        return ok("control groups", "; ".join(kept))
    how = "run it in a session of your own: `systemd-run --user --scope -p Delegate=yes agent ...`"
    return CheckResult(
        "control groups", CheckState.WEAK, "not permitted, so the helper checks limits five times a second", how
    )


def _libseccomp() -> CheckResult:
    try:
        import pyseccomp
    except (ImportError, OSError, RuntimeError) as error:  # pyseccomp raises RuntimeError without the library
        return CheckResult("libseccomp", CheckState.MISSING, str(error).lower(), _install("libseccomp"))
    api = int(pyseccomp.get_api())
    if api < _API:
        old = f"API {api}: newer system calls are unknown, and programs that need them fail"
        return CheckResult("libseccomp", CheckState.WEAK, old, _install("libseccomp"))
    return ok("libseccomp", f"API {api}")


async def _backends(spaces: CheckResult) -> list[CheckResult]:
    from sandbox.backends import here, open_backend

    found: list[CheckResult] = []
    view: CheckResult | None = None
    for name in here():
        try:
            backend, enforcement = await open_backend(name, Level.PARTIAL)
        except SandboxUnavailable as error:
            found.append(_unavailable_result(name, error, spaces))
            continue
        view = view or await view_result(name, backend, os.getcwd(), os.environ)  # of the best backend
        await backend.close()
        found.append(_backend_result(name, enforcement, sandbox=True))
    return [*found, view] if view is not None else found


async def view_result(name: str, backend: Backend, workspace: str, environ: Mapping[str, str]) -> CheckResult:
    """Return the result whether the changes of a writing command in `workspace` can be kept apart until it has ended.

    `name` is that of the backend. Without it commands change the workspace itself, so this is no defect of the machine.
    """
    from runner.state import paths

    try:
        folder = str(paths.state_dir(environ))
        why = await backend.layered(Terms(Rights.WORKSPACE_WRITE, os.path.realpath(workspace), "/nonexistent"), folder)
    except paths.PlaceError as error:
        why = f"{error.problem.what}: {error.problem.why}"
    if why:
        return CheckResult("view", CheckState.ABSENT, f"commands change the files in {workspace} directly: {why}")
    return ok("view", f"an overlay (overlayfs, {name}) can keep the changes of a command in {workspace} apart")


def _backend_result(name: str, enforcement: Enforcement, *, sandbox: bool) -> CheckResult:
    held = sum(1 for _, good in enforcement.checks if good)
    detail = f"{enforcement.level.value}, canary held {held} of {len(enforcement.checks)} checks"
    detail += f"; limits of all processes enforced by {enforcement.limits}" if enforcement.limits else ""
    state = CheckState.OK if enforcement.level is Level.FULL else CheckState.WEAK
    fix = "" if state is CheckState.OK else "used only with --accept-partial"
    return CheckResult(f"sandbox {name}", state, detail, fix, sandbox=sandbox, missing=enforcement.missing)


async def _container(choice: ContainerOptions) -> CheckResult:
    """Return the result about the container backend, which never makes a machine ready: it is used only on request."""
    from sandbox.backends import open_backend
    from sandbox.container.daemon import NoDaemon

    try:
        backend, enforcement = await open_backend("container", Level.PARTIAL, container=choice)
    except SandboxUnavailable as error:
        wanted = bool(choice.image or choice.socket)
        state = CheckState.MISSING if wanted else CheckState.ABSENT if isinstance(error, NoDaemon) else CheckState.WEAK
        return of_problem("sandbox container", state, error.problem)
    await backend.close()
    return _backend_result("container", enforcement, sandbox=False)


def _unavailable_result(name: str, error: SandboxUnavailable, spaces: CheckResult) -> CheckResult:
    """Return the result about a sandbox that cannot be built, with a remedy. A remedy that sends the user to
    `agent doctor` is replaced by that of the check in this report.
    """
    problem, fix = error.problem, error.problem.fix
    if error.check == spaces.name:
        first = f"apply the fix of `{spaces.name}` above" if spaces.fix else _OUTSIDE
        fix = f"{first}; or use T3, which enforces less, with --accept-partial"
    elif error.check:
        fix = f"apply the fix of `{error.check}` in this report"
    return CheckResult(f"sandbox {name}", CheckState.MISSING, f"{problem.what}: {problem.why}", fix, sandbox=True)


# program, True if it is required, its purpose
_PROGRAMS = (
    ("bash", True, "every script runs in this shell"),
    ("git", False, "most tasks need it"),
    ("rg", False, "the grep tool is faster with it"),
    ("bwrap", False, "T2 needs it, in a system folder"),
)


def _program(name: str, needed: bool, why: str) -> CheckResult:
    found = bubblewrap() if name == "bwrap" else shutil.which(name)
    if found:
        return ok(name, found)
    return CheckResult(name, CheckState.MISSING if needed else CheckState.WEAK, f"not found; {why}", _install(name))


def _places() -> list[CheckResult]:
    from runner.state import paths

    found = []
    for label, find in (("state", paths.state_dir), ("config", paths.config_dir), ("cache", paths.cache_dir)):
        try:
            found.append(ok(label, str(find(os.environ))))
        except paths.PlaceError as error:
            found.append(of_problem(label, CheckState.MISSING, error.problem))
    return found


def _keyring() -> CheckResult:
    """Return the result whether `agent auth login` can store keys, without a request that could open a dialog."""
    from runner.secrets.keyring_store import KeyringFailed, KeyringStore

    try:
        return ok("keyring", f"{KeyringStore().name()}; `agent auth status` says which key is used")
    except KeyringFailed as error:
        fix = f"{error.fix}; or " if error.fix else ""
        fix += "set the variable of the provider, use a helper command, or pipe a key to --api-key-stdin"
        return CheckResult("keyring", CheckState.WEAK, error.why, fix)


def record(url: str) -> CheckResult:
    """Check that the audit log in the database `url` can be read, and name the roles that could block it for all."""
    from runner.audit.chain import AuditError
    from runner.audit.log import AuditLog

    try:
        with AuditLog.open_to_read(url) as log:
            name, cautions = log.store.name, log.store.cautions()
    except AuditError as error:
        return of_problem("record", CheckState.MISSING, error.problem)
    if not cautions:
        return ok("record", name)
    said = "; ".join(cautions[:_NAMED]) + ("; ..." if len(cautions) > _NAMED else "")
    fix = "revoke these rights (docs/guide/audit.md, rights); `agent audit verify` lists all"
    return CheckResult("record", CheckState.WEAK, f"{name}, which other roles could stop for all users: {said}", fix)


def _injected(names: tuple[str, ...]) -> list[CheckResult]:
    """Return the result about injected credentials, if there are any."""
    if not names:
        return []
    said = f"{', '.join(names)}: added to requests of commands, which never see {'it' if len(names) == 1 else 'them'}"
    return [ok("credentials", f"{said}; `agent auth status` lists the sources")]


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read().strip()
    except OSError:
        return ""
