"""The registry of backends, best first, and the choice: what a canary proves, never what a version string says."""

import sys
from collections.abc import Callable
from pathlib import Path

from policy.verdict import Problem, Terms
from sandbox.backend import Backend, Enforcement, Level, SandboxUnavailable
from sandbox.launch import Ahead
from sandbox.linux import Linux


def _seatbelt(cache: Path | None, aside: Path | None, files: bool, ahead: Ahead | None) -> Backend:
    from sandbox.seatbelt import Seatbelt  # of no use elsewhere

    return Seatbelt(aside=aside)


Maker = Callable[[Path | None, Path | None, bool, Ahead | None], Backend]

BACKENDS: dict[str, Maker] = {
    "T1": lambda cache, aside, files, ahead: Linux("T1", cache=cache, aside=aside, files=files, ahead=ahead),
    "T3": lambda cache, aside, files, ahead: Linux("T3", cache=cache, aside=aside, files=files, ahead=ahead),
    "seatbelt": _seatbelt,
}

_ONLY = {"T1": "linux", "T2": "linux", "T3": "linux", "seatbelt": "darwin"}  # as sys.platform says it


def here() -> list[str]:
    """The backends that are for this platform, best first. The others say so when they are asked for by name."""
    return [name for name in BACKENDS if _ONLY.get(name, sys.platform) == sys.platform]


async def open_backend(
    name: str | None,
    minimum: Level,
    *,
    terms: Terms | None = None,
    cache: Path | None = None,
    aside: Path | None = None,
    files: bool = True,
    ahead: Ahead | None = None,
) -> tuple[Backend, Enforcement]:
    """The best backend whose canary holds. Raises SandboxUnavailable below `minimum` (FULL or PARTIAL).

    `name` asks for one backend and no other. `terms` are what the first helper is started for, so that it can be used.
    `cache` keeps compiled filters, `aside` takes auto-run files that commands made. `files`: whether file actions will
    be asked for. `ahead`: a helper that was launched for `terms`, without file actions, before this was called.
    """
    names = [name] if name is not None else here()
    first: SandboxUnavailable | None = None
    for candidate in names:
        if candidate not in BACKENDS:
            raise SandboxUnavailable(
                Problem(
                    f"there is no backend called `{candidate}`",
                    f"this version has {', '.join(BACKENDS)}",
                    "leave --backend out to get the best one",
                )
            )
        backend = BACKENDS[candidate](cache, aside, files, ahead)
        try:
            enforcement = await backend.probe(terms)
        except SandboxUnavailable as error:
            await backend.close()
            first = first or error
            continue
        if enforcement.level is Level.FULL or minimum is Level.PARTIAL:
            return backend, enforcement
        await backend.close()
        first = SandboxUnavailable(_partial(first.problem, enforcement) if first else _too_weak(candidate))
    raise first or SandboxUnavailable(_too_weak("none"))


def _too_weak(name: str) -> Problem:
    return Problem(
        f"the {name} sandbox enforces only a part",
        "you asked for that backend, and did not accept that",
        "add --accept-partial to run under it (`agent doctor` lists what it misses)",
    )


def _partial(problem: Problem, enforcement: Enforcement) -> Problem:
    return Problem(
        problem.what,
        f"{problem.why}; the weaker {enforcement.backend} sandbox would work but enforces only a part",
        f"{problem.fix}; or accept the weaker one with --accept-partial (`agent doctor` lists what it misses)",
    )
