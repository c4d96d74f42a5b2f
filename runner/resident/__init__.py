"""The resident process of a user, as its clients see it: its sockets, requests, and the check of the other side.

May import `problems` and `policy.model`, and in this module and `client.py` only parts of the standard library that are
compiled or loaded already: a warm command takes a few milliseconds. Start reading at `client.py`.
"""

import os

TYPE_CHECKING = False  # the name that type checkers know, without the import of `typing`
if TYPE_CHECKING:
    from _socket import socket as Socket
    from collections.abc import Mapping

WARM = "warm"  # commands: `client.py`
CONTROL = "control"  # requests to the process itself, as lines of JSON: `control.py`
LOCK = "lock"
inside = False  # True in the resident process and in its workers
_LONGEST = 107  # bytes of the path of a socket, unix(7)
_PEER = 17  # SO_PEERCRED of Linux, socket(7)


def resident_folder(environ: "Mapping[str, str]") -> str:
    """Return the path of the folder of the resident process. Raise OSError if there can be no socket in it.

    `runner.state.paths` returns the same path and checks it as well, but its imports take longer than a warm command. A
    wrong path only means that no resident process is found.
    """
    state, base = environ.get("RINGFENCE_STATE_DIR", ""), environ.get("XDG_STATE_HOME", "")
    base = base if base.startswith("/") else f"{environ.get('HOME', '')}/.local/state"
    path = f"{state or f'{base}/ringfence'}/resident"
    if not path.startswith("/") or "\0" in path or len(os.fsencode(path)) > _LONGEST - len(CONTROL) - 1:
        raise OSError("the path of the socket cannot be used")
    return path


def listens(environ: "Mapping[str, str]") -> bool:
    """Return True if there is a socket for commands, whether or not a process listens at it."""
    try:
        return os.path.exists(f"{resident_folder(environ)}/{WARM}")
    except OSError:
        return False


def peer_of(connection: "Socket") -> tuple[int, int]:
    """Return the process id and the effective user id of the other side, as they were when it connected or listened.

    SOURCE: unix(7), SO_PEERCRED.
    """
    import _socket

    found = connection.getsockopt(_socket.SOL_SOCKET, _PEER, 12)  # struct ucred: pid, uid, gid
    assert isinstance(found, bytes)
    pid, uid = (int.from_bytes(found[at : at + 4], "little") for at in (0, 4))
    return pid, uid
