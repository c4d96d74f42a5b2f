"""The registry of backends, best first, and the choice: what a canary proves, never what a version string says."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from policy.model.frozen import dataclass
from policy.model.verdict import Problem, Terms
from sandbox.backend import Backend, ContainerOptions, Enforcement, Level, SandboxUnavailable
from sandbox.linux.backend import Linux
from sandbox.linux.launch import PrelaunchedHelper

if TYPE_CHECKING:
    from sandbox.egress.credential_injection import InjectorFactory


@dataclass(frozen=True, slots=True)
class BackendArguments:
    """The arguments with which a backend is made; see `open_backend`."""

    cache: Path | None
    aside: Path | None
    files: bool
    ahead: PrelaunchedHelper | None
    container: ContainerOptions
    lend: "InjectorFactory | None" = None


def _linux(tier: str) -> "Maker":
    return lambda told: Linux(
        tier, cache=told.cache, aside=told.aside, files=told.files, ahead=told.ahead, lend=told.lend
    )


def _seatbelt(told: BackendArguments) -> Backend:
    from sandbox.macos.backend import Seatbelt  # of no use elsewhere

    return Seatbelt(aside=told.aside)


def _container(told: BackendArguments) -> Backend:
    from sandbox.container.backend import Container  # most sessions need none

    return Container(told.container, cache=told.cache, aside=told.aside, lend=told.lend)


Maker = Callable[[BackendArguments], Backend]
_NOT_SAID = ContainerOptions()

BACKENDS: dict[str, Maker] = {
    "T1": _linux("T1"),
    "T2": _linux("T2"),
    "T3": _linux("T3"),
    "seatbelt": _seatbelt,
    "container": _container,
}

_ONLY = {"T1": "linux", "T2": "linux", "T3": "linux", "seatbelt": "darwin"}  # as sys.platform says it
_ASKED = ("container",)  # only when a person says so: it runs other programs than the machine's


def here() -> list[str]:
    """Return the backends for this platform, best first, without those that a user must request by name."""
    return [name for name in BACKENDS if _ONLY.get(name, sys.platform) == sys.platform and name not in _ASKED]


async def open_backend(
    name: str | None,
    minimum: Level,
    *,
    terms: Terms | None = None,
    cache: Path | None = None,
    aside: Path | None = None,
    files: bool = True,
    ahead: PrelaunchedHelper | None = None,
    container: ContainerOptions = _NOT_SAID,
    lend: "InjectorFactory | None" = None,
    insisted: bool = False,
) -> tuple[Backend, Enforcement]:
    """Return the best backend whose canary holds. Raises SandboxUnavailable below `minimum` (FULL or PARTIAL).

    Args:
        name: Request this backend and no other.
        terms: The terms for which the first helper is started, so that the helper can be used for them.
        cache: Folder for compiled filters.
        aside: Folder for auto-run files that commands created.
        files: True if file actions will be requested.
        ahead: A helper that was launched for `terms`, without file actions, before this call.
        container: The configuration of the container backend.
        lend: Factory of the credential injector, if there are credentials.
        insisted: True if the user requested `minimum` explicitly, so that no weaker backend is suggested.
    """
    names = [name] if name is not None else here()
    first: SandboxUnavailable | None = None
    for candidate in names:
        if candidate not in BACKENDS:
            raise SandboxUnavailable.of(
                f"there is no backend called `{candidate}`",
                f"this version has {', '.join(BACKENDS)}",
                "leave --backend out to get the best one",
            )
        backend = BACKENDS[candidate](BackendArguments(cache, aside, files, ahead, container, lend))
        try:
            enforcement = await backend.probe(terms)
        except SandboxUnavailable as error:
            await backend.close()
            first = first or error
            continue
        if enforcement.level is Level.FULL or minimum is Level.PARTIAL:
            return backend, enforcement
        await backend.close()
        if first is None:
            first = SandboxUnavailable(_too_weak(candidate, insisted))
        elif not insisted:
            first = SandboxUnavailable(_partial(first.problem, enforcement))
    raise first or SandboxUnavailable(_too_weak("none", insisted))


def _too_weak(name: str, insisted: bool) -> Problem:
    what = f"the {name} sandbox enforces only a part"
    if insisted:
        fix = "leave --backend out, or name one that holds in full (`agent doctor`)"
        return Problem(what, "that backend was asked for, and one that holds in full", fix)
    return Problem(
        what,
        "you asked for that backend, and did not accept that",
        "add --accept-partial to run under it (`agent doctor` lists what it misses)",
    )


def _partial(problem: Problem, enforcement: Enforcement) -> Problem:
    return Problem(
        problem.what,
        f"{problem.why}; the weaker {enforcement.backend} sandbox would work but enforces only a part",
        f"{problem.fix}; or accept the weaker one with --accept-partial (`agent doctor` lists what it misses)",
    )
