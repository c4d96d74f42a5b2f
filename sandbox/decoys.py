"""The runner's half of the canary: lays out decoys, lets a helper try them, and looks again from outside."""

import contextlib
import os
import socket
import tempfile
from pathlib import Path

from policy.secrecy import inside
from policy.verdict import Rights, Terms
from sandbox.failure import unavailable
from sandbox.slot import Slot


async def try_out(slot: Slot, tier: str, terms: Terms) -> dict[str, bool]:
    """Each check by name, True when the boundary held. Raises SandboxUnavailable when the helper cannot try."""
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="ringfence-canary-", dir=hiding_place(terms)))
        secret, target = os.path.join(folder, "secret"), os.path.join(folder, "target")
        for path in (secret, target):
            Path(path).write_text("untouched", encoding="utf-8")
        listener = stack.enter_context(socket.socket())
        listener.bind(("127.0.0.1", 0))
        listener.listen(1)
        abstract = stack.enter_context(socket.socket(socket.AF_UNIX))
        name = f"ringfence-{os.getpid()}-{os.path.basename(folder)}"
        abstract.bind("\0" + name)
        abstract.listen(1)
        request: dict[str, object] = {
            "op": "canary",
            "secret": secret,
            "target": target,
            "port": listener.getsockname()[1],
            "abstract": name,
            "pid": os.getpid(),
            "look": terms.rights is Rights.LOOK,
            "workspace": terms.workspace,
        }
        exchange, _ = await slot.ask(request, None, None, 5.0, 1 << 16)
        text = exchange.streams[0].decode("utf-8", "replace")
        if Path(target).read_text(encoding="utf-8") != "untouched":
            text += "outside 0\n"
    checks = {name: held == "1" for name, _, held in (line.partition(" ") for line in text.splitlines())}
    if text.startswith("!") or not checks:
        raise unavailable(tier, f"failed 0 canary {text[:200]}")
    return checks


def hiding_place(terms: Terms) -> str | None:
    """A folder that a command under `terms` does not see; None: there is none."""
    return next((place for place in _places() if not _shown(place, terms)), None)


def _places() -> tuple[str, ...]:
    """Where decoys may lie, best first."""
    return tuple(map(os.path.realpath, (tempfile.gettempdir(), "/var/tmp", "/dev/shm")))


def _shown(place: str, terms: Terms) -> bool:
    """Whether a command under `terms` may see `place`: a decoy there would prove nothing."""
    granted = (terms.workspace, *terms.system, *terms.read, *terms.write)
    return any(inside(place, root) for root in granted)
