"""The runner's half of the canary: it creates decoys, lets a helper attack them, and checks them from outside."""

import contextlib
import os
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path

from policy.model.frozen import dataclass
from policy.model.secret_paths import inside
from policy.model.verdict import Rights, Terms
from sandbox.backend import SandboxUnavailable, helper_failed
from sandbox.linux.helper_handle import HelperHandle

_UNTOUCHED = "untouched"


@dataclass(frozen=True, slots=True)
class Decoys:
    """Files and sockets that the Terms of a helper do not grant, which its canary tries to reach.

    Attributes:
        secret: File to read.
        target: File to write.
        port: Port of a listener on the loopback of this machine.
        abstract: Name of a listening abstract socket, without its NUL.
        listener: The listener on `port`.
        folder: Name of the folder that holds the files.
    """

    folder: str
    secret: str
    target: str
    port: int
    abstract: str
    listener: socket.socket

    @property
    def reached(self) -> bool:
        """Return True if something connected to the listener, as seen from outside."""
        self.listener.setblocking(False)
        try:
            self.listener.accept()[0].close()
        except BlockingIOError:
            return False
        return True

    @property
    def touched(self) -> bool:
        """Return True if the target was written, as seen from outside."""
        return Path(self.target).read_text(encoding="utf-8") != _UNTOUCHED


@contextlib.contextmanager
def decoys_for(terms: Terms, *, everybody: bool = False) -> Iterator[Decoys]:
    """Create and yield decoys that a command under `terms` does not see, and remove them at the end.

    Raises SandboxUnavailable if every folder for them is granted, missing or read-only.

    With `everybody`, the modes give every user access to the files, for a canary that runs as another user: the
    boundary has to stop the canary, not the modes.
    """
    with contextlib.ExitStack() as stack:
        place = _place_for_decoys(terms)
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="ringfence-canary-", dir=place))
        secret, target = os.path.join(folder, "secret"), os.path.join(folder, "target")
        for path in (secret, target):
            Path(path).write_text(_UNTOUCHED, encoding="utf-8")
            if everybody:
                os.chmod(folder, 0o755)  # noqa: S103  # the sandbox must stop the canary, not the mode
                os.chmod(path, 0o666)  # noqa: S103  # the sandbox must stop the canary, not the mode
        listener = stack.enter_context(socket.socket())
        listener.bind(("127.0.0.1", 0))
        listener.listen(1)
        abstract = stack.enter_context(socket.socket(socket.AF_UNIX))
        mark = os.path.basename(folder)
        name = f"ringfence-{os.getpid()}-{mark}"
        abstract.bind("\0" + name)
        abstract.listen(1)  # otherwise connecting would fail even without a sandbox
        yield Decoys(mark, secret, target, listener.getsockname()[1], name, listener)


async def run_canary(helper: HelperHandle, tier: str, terms: Terms) -> dict[str, bool]:
    """Return each check by name, True if the boundary held. Raises SandboxUnavailable if the canary cannot run."""
    with decoys_for(terms) as decoys:
        request: dict[str, object] = {"op": "canary", "pid": os.getpid(), "workspace": terms.workspace}
        request |= {"secret": decoys.secret, "target": decoys.target, "port": decoys.port, "abstract": decoys.abstract}
        request["read_only"] = terms.rights is not Rights.WORKSPACE_WRITE
        exchange, _ = await helper.ask(request, None, None, 5.0, 1 << 16)
        text = exchange.streams[0].decode("utf-8", "replace")
        if decoys.touched:
            text += "outside 0\n"
        reached = decoys.reached
    checks = {name: held == "1" for name, _, held in (line.partition(" ") for line in text.splitlines())}
    if "network" in checks and (reached or helper.entered is not None):
        checks["network"] = not reached  # in a shared network, another command may listen on the port of the decoy
    if text.startswith("!") or not checks:
        number = (exchange.line or "").removeprefix("failed ").split(" ")[0]  # `exit STATUS ...` if the canary started
        said = f": {text[:200]}" if text else ""
        raise helper_failed(tier, f"failed {number if number.isdigit() else 0} run the canary{said}")
    return checks


def _place_for_decoys(terms: Terms) -> str:
    """Return the best folder for decoys that a command under `terms` does not see.

    Raises SandboxUnavailable if there is none. A decoy in a folder that the command may see would prove nothing.
    """
    granted = (terms.workspace, *terms.system, *terms.read, *terms.writable)
    places = tuple(dict.fromkeys(map(os.path.realpath, (tempfile.gettempdir(), "/var/tmp", "/dev/shm"))))
    for place in places:
        if os.access(place, os.W_OK | os.X_OK) and not any(inside(place, root) for root in granted):
            return place
    why = "each folder for the files that the command must not reach is granted, missing or read-only: "
    fix = "grant a narrower path than one of these folders"
    raise SandboxUnavailable.of("the sandbox cannot be checked before the command", why + ", ".join(places), fix)
