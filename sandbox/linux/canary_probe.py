"""The runner's half of the canary: it creates decoys, lets a helper attack them, and checks them from outside."""

import contextlib
import os
import socket
from collections.abc import Iterator

from policy.model.frozen import dataclass
from policy.model.secret_paths import inside
from policy.model.verdict import Rights, Terms
from sandbox.backend import SandboxUnavailable, helper_failed
from sandbox.inside import safe_rmtree
from sandbox.linux.session_tmp import DECOYS, held, temporary_folder

_UNTOUCHED = b"untouched"


@dataclass(frozen=True, slots=True)
class Decoys:
    """Files and sockets that the Terms of a helper do not grant, which its canary tries to reach.

    Attributes:
        folder: Name of the folder that holds the files.
        secret: File to read.
        target: File to write.
        port: Port of a listener on the loopback of this machine.
        abstract: Name of a listening abstract socket, without its NUL.
        listener: The listener on `port`.
        named: The abstract socket.
        lock: Descriptor of the folder, which is locked.
    """

    folder: str
    secret: str
    target: str
    port: int
    abstract: str
    listener: socket.socket
    named: socket.socket
    lock: int

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
        with open(self.target, "rb") as file:
            return file.read(len(_UNTOUCHED) + 1) != _UNTOUCHED

    def remove(self) -> None:
        """Close the sockets and remove the files."""
        self.listener.close()
        self.named.close()
        safe_rmtree.remove(os.path.dirname(self.secret))
        os.close(self.lock)


def make_decoys(terms: Terms, *, everybody: bool = False) -> Decoys:
    """Create decoys that a command under `terms` does not see. The caller removes them.

    Raises SandboxUnavailable if every folder for them is granted, missing or read-only.

    With `everybody`, the modes give every user access to the files, for a canary that runs as another user: the
    boundary has to stop the canary, not the modes.
    """
    with contextlib.ExitStack() as stack:
        folder, lock = held(DECOYS, _place_for_decoys(terms))
        stack.callback(os.close, lock)
        stack.callback(safe_rmtree.remove, folder)
        secret, target = os.path.join(folder, "secret"), os.path.join(folder, "target")
        for path in (secret, target):
            with open(path, "xb", buffering=0) as file:
                file.write(_UNTOUCHED)
            if everybody:
                os.chmod(folder, 0o755)  # noqa: S103  # the sandbox must stop the canary, not the mode
                os.chmod(path, 0o666)  # noqa: S103  # the sandbox must stop the canary, not the mode
        listener = stack.enter_context(socket.socket())
        listener.bind(("127.0.0.1", 0))
        listener.listen(1)
        named = stack.enter_context(socket.socket(socket.AF_UNIX))
        mark = os.path.basename(folder)
        name = f"ringfence-{os.getpid()}-{mark}"
        named.bind("\0" + name)
        named.listen(1)  # otherwise connecting would fail even without a sandbox
        stack.pop_all()
    return Decoys(mark, secret, target, listener.getsockname()[1], name, listener, named, lock)


@contextlib.contextmanager
def decoys_for(terms: Terms, *, everybody: bool = False) -> Iterator[Decoys]:
    """Create and yield decoys as `make_decoys` does, and remove them at the end."""
    decoys = make_decoys(terms, everybody=everybody)
    try:
        yield decoys
    finally:
        decoys.remove()


def canary_request(terms: Terms, decoys: Decoys) -> dict[str, object]:
    """Return the request that makes a new helper attack `decoys`. The helper answers it with `ready`."""
    return {
        "op": "canary",
        "pid": os.getpid(),
        "workspace": terms.workspace,
        "secret": decoys.secret,
        "target": decoys.target,
        "port": decoys.port,
        "abstract": decoys.abstract,
        "read_only": terms.rights is not Rights.WORKSPACE_WRITE,
    }


def judge_canary(text: str, decoys: Decoys | None, tier: str, *, shared: bool) -> dict[str, bool]:
    """Return each check by name, True if the boundary held. Raises SandboxUnavailable if the canary did not run.

    Args:
        text: What the helper said after `ready`: `NAME=1` for a check that held, else `NAME=0`.
        shared: True if other commands use the same network, where one of them may listen on the port of the decoy.
    """
    if decoys is None or not text:
        raise helper_failed(tier, "failed 0 run the canary")
    checks = {name: held == "1" for name, _, held in (word.partition("=") for word in text.split())}
    if decoys.touched:
        checks["outside"] = False
    reached = decoys.reached
    if "network" in checks and (reached or shared):
        checks["network"] = not reached
    return checks


def _place_for_decoys(terms: Terms) -> str:
    """Return the best folder for decoys that a command under `terms` does not see.

    Raises SandboxUnavailable if there is none. A decoy in a folder that the command may see would prove nothing.
    """
    granted = (terms.workspace, *terms.system, *terms.read, *terms.writable)
    places = tuple(dict.fromkeys(map(os.path.realpath, (temporary_folder(), "/var/tmp", "/dev/shm"))))
    for place in places:
        if os.access(place, os.W_OK | os.X_OK) and not any(inside(place, root) for root in granted):
            return place
    why = "each folder for the files that the command must not reach is granted, missing or read-only: "
    fix = "grant a narrower path than one of these folders"
    raise SandboxUnavailable.of("the sandbox cannot be checked before the command", why + ", ".join(places), fix)
