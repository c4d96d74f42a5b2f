"""Containers of sessions that were killed: found by their labels at the next start, and removed.

Most of them end without this: a container's first process waits for the end of its input, which comes when its runner
has ended.
"""

import contextlib
import fcntl
import os
from operator import methodcaller

from sandbox.backend import SandboxUnavailable
from sandbox.container.daemon import Daemon, Refused

LABEL = "io.ringfence.session"
_PLACE, _LOCK = "io.ringfence.place", "io.ringfence.lock"


def labels(session: str, lock: str) -> tuple[tuple[str, str], ...]:
    """Return the labels of a container. `lock` is a folder on which the session holds a flock(2) while it lives."""
    return ((LABEL, session), (_PLACE, place()), (_LOCK, lock))


def place() -> str:
    """Return an identifier of the boot, the mount namespace and the user in which our paths are valid.

    A daemon may be shared with other machines, containers and users, whose sessions are not visible here.
    """
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        boot = file.read().strip()
    return f"{boot} {os.readlink('/proc/self/ns/mnt')} {os.geteuid()}"


async def sweep(daemon: Daemon) -> tuple[str, ...]:
    """Remove what nobody holds any more, and answer the names. A container that cannot be removed is left there."""
    ours = {"label": [f"{_PLACE}={place()}"]}
    removed = []
    for found in await daemon.call(lambda client: client.containers(all=True, filters=ours)):
        if _held(str(found["Labels"].get(_LOCK, ""))):
            continue
        number = str(found["Id"])
        with contextlib.suppress(Refused, SandboxUnavailable):
            await daemon.call(methodcaller("remove_container", number, force=True, v=True))
            removed.append(number)
    return tuple(removed)


def _held(lock: str) -> bool:
    """Return True if the session of that folder lives. A session removes its folder at its end."""
    try:
        handle = os.open(lock, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    except OSError:
        return True
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(handle)
    return False
