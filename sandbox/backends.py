"""The registry of backends, best first, and the choice by the result of a canary, never by a version string."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from policy.model.verdict import Problem, Terms
from sandbox.backend import DIRECT, Backend, ContainerOptions, Enforcement, Level, NetworkOptions, SandboxUnavailable
from sandbox.linux.backend import Linux
from sandbox.linux.helper_request import PollWait
from sandbox.linux.launch import PrelaunchedHelper

if TYPE_CHECKING:
    from sandbox.egress.credential_injection import InjectorFactory


BACKENDS = ("T1", "T2", "T3", "seatbelt", "container")
_BY_PLATFORM = {"linux": ("T1", "T2", "T3"), "darwin": ("seatbelt",)}  # names of sys.platform
_NO_OPTIONS = ContainerOptions()
_ACCEPT = '`--accept-partial`, or with `minimum = "partial"` in `[sandbox]` of your configuration'
_LISTED = "`agent doctor` lists what it does not enforce"


def here() -> list[str]:
    """Return the backends for this platform, best first.

    The container is not among them: it runs other programs than those of the machine, so a user must request it.
    """
    return list(_BY_PLATFORM.get(sys.platform, ()))


async def open_backend(
    name: str | None,
    minimum: Level,
    *,
    terms: Terms | None = None,
    cache: Path | None = None,
    aside: Path | None = None,
    files: bool = True,
    ahead: PrelaunchedHelper | None = None,
    container: ContainerOptions = _NO_OPTIONS,
    lend: "InjectorFactory | None" = None,
    network: NetworkOptions = DIRECT,
    insisted: bool = False,
    waits: PollWait | None = None,
) -> tuple[Backend, Enforcement]:
    """Return the best backend whose canary holds, and what it enforces. Raises SandboxUnavailable if no backend reaches
    `minimum` (FULL or PARTIAL).

    Args:
        name: Request this backend and no other.
        terms: The terms for which the first helper is started, so that the helper can be used for them.
        cache: Folder for compiled filters.
        aside: Folder for auto-run files that commands created.
        files: True if file actions will be requested.
        ahead: A helper that was launched for `terms`, without file actions, before this call.
        container: The configuration of the container backend.
        lend: Factory of the credential injector, if there are credentials.
        network: The way of the proxy to the network.
        insisted: True if the user requested `minimum` explicitly, so that no weaker backend is suggested.
        waits: The waits of a program without an event loop; for the tiers of Linux only.
    """
    names = [name] if name is not None else here()
    first: SandboxUnavailable | None = None
    for candidate in names:
        if candidate not in BACKENDS:
            what, why = f"there is no backend called `{candidate}`", f"this version has {', '.join(BACKENDS)}"
            raise SandboxUnavailable.of(what, why, "leave --backend out to get the best one")
        backend: Backend
        if candidate == "container":
            from sandbox.container.backend import Container  # rarely needed, so not imported at the start

            backend = Container(container, cache=cache, aside=aside, lend=lend, network=network)
        elif candidate == "seatbelt":
            from sandbox.macos.backend import Seatbelt  # needed on macOS only

            backend = Seatbelt(aside=aside, network=network)
        else:
            backend = Linux(
                candidate,
                cache=cache,
                aside=aside,
                files=files,
                ahead=ahead,
                lend=lend,
                network=network,
                waits=waits,
            )
        try:
            enforcement = await backend.probe(terms)
        except BaseException as error:  # a cancellation too must not leave the backend's folders and descriptors
            await backend.close()
            if not isinstance(error, SandboxUnavailable):
                raise
            first = first or error
            continue
        if enforcement.level is Level.FULL or minimum is Level.PARTIAL:
            return backend, enforcement
        await backend.close()
        if first is None:
            first = SandboxUnavailable(_too_weak(candidate, insisted))
        elif not insisted:
            problem = first.problem
            why = f"{problem.why}; the weaker {enforcement.backend} sandbox would work, but enforces less"
            fix = f"{problem.fix}; or accept the weaker sandbox with {_ACCEPT} ({_LISTED})"
            first = SandboxUnavailable.of(problem.what, why, fix, check=first.check)
    raise first or SandboxUnavailable(_too_weak("none", insisted))


def _too_weak(name: str, insisted: bool) -> Problem:
    why = "partial enforcement must be accepted explicitly"
    fix = f"accept it with {_ACCEPT} ({_LISTED})"
    if insisted:
        why = "this backend and full enforcement were both requested"
        fix = "leave --backend out, or name a backend with full enforcement (`agent doctor` lists them)"
    return Problem(f"the {name} sandbox enforces only a part of the restrictions", why, fix)
