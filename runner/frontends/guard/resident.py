"""The resident judge: a process with all modules loaded, which forks a child for each call of a hook.

Most of the time of a hook is the import of the gate. The resident judge has only imported it: it keeps no settings, no
facts and no answers. Each child reads everything anew, answers one call and ends, exactly like a hook without it.

THREAT T193: whatever is wrong with the resident judge, the hook judges by itself. Both sides check by SO_PEERCRED that
the other one is a process of the same user, and the judge answers only a client with the same files in the same
namespaces.
"""

import os
import sys

TYPE_CHECKING = False  # the name that type checkers know, without the import of `typing`
if TYPE_CHECKING:
    from _socket import socket as Socket

    from runner.frontends.guard.answering import Rendered

_PATIENCE = 12.0  # seconds until the answer; the hook judges by itself then
_IDLE = 600.0  # seconds without a call after which the judge ends
_LIFE = 8 * 3600.0  # seconds after which the judge ends in any case
_LOOK = 5.0  # seconds between two looks at the socket file
_CHILDREN = 32  # calls at the same time
_LONGEST_PATH = 100  # bytes of the path of a socket
_VARIABLES = ("HOME", "PATH", "LANG", "RINGFENCE_STATE_DIR", "XDG_STATE_HOME")  # each call sends its own variables
_PEER = 17  # SO_PEERCRED of Linux


def ask_resident(agent: str, options: dict[str, str], data: bytes) -> "Rendered | None":
    """Return the answer of the resident judge; None if there is none, or if it does not answer."""
    if sys.platform != "linux":
        return None
    import _socket  # the module `socket` takes three times as long to import
    from json import dumps, loads

    client = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    try:
        client.settimeout(_PATIENCE)
        client.connect(_address())
        if not _is_ours(client):
            return None
        request = {
            "who": _identity(),
            "agent": agent,
            "options": options,
            "data": data.decode("latin-1"),
            "environ": dict(os.environ),
            "cwd": os.getcwd(),
            "program": sys.argv[0],
        }
        client.sendall(dumps(request).encode())
        client.shutdown(_socket.SHUT_WR)
        parts = []
        while chunk := client.recv(1 << 16):
            parts.append(chunk)
        out, error, code = loads(b"".join(parts))
        return str(out), str(error), int(code)
    except (OSError, ValueError, TypeError):
        return None
    finally:
        client.close()


def start_resident() -> None:
    """Start the resident judge apart from this process. It ends at once if there is one already."""
    if sys.platform != "linux":
        return
    null = [(os.POSIX_SPAWN_OPEN, number, "/dev/null", os.O_RDWR, 0) for number in (0, 1, 2)]
    words = [sys.executable, "-I", os.path.abspath(sys.argv[0]), "guard", "judge"]
    environ = {name: value for name, value in os.environ.items() if name in _VARIABLES}
    try:
        os.posix_spawn(words[0], words, environ, file_actions=null, setsid=True)
    except OSError:
        return  # the next hook tries again; without the judge a hook only takes longer


def run_resident() -> int:
    """Answer calls until there are none for ten minutes. Return the exit code."""
    import fcntl
    import gc
    import signal
    import socket
    import time

    from runner.frontends.guard.tokens import guard_folder

    address = _address()
    folder = os.path.dirname(address)
    if not os.path.isdir(folder) or folder != guard_folder(os.environ):  # which checks the folder
        return 1
    os.chdir("/")
    handle = os.open(f"{address}.lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return 0
    os.truncate(handle, 0)
    os.write(handle, f"{os.getpid()}\n".encode())
    _load_everything()
    files = _loaded_files()
    gc.collect()
    gc.freeze()  # a child looks at none of these objects, so it copies none of their pages
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as server:
        if os.path.lexists(address):
            os.unlink(address)  # of a judge that was killed: the lock is free
        server.bind(address)
        os.chmod(address, 0o600)
        server.listen(_CHILDREN)
        server.settimeout(_LOOK)
        mine = os.stat(address).st_ino
        began = last = time.monotonic()
        children: set[int] = set()
        while True:
            children -= {child for child in children if os.waitpid(child, os.WNOHANG)[0]}
            now = time.monotonic()
            if now - last > _IDLE or now - began > _LIFE or not _is_same(address, mine):
                break
            try:
                client, _ = server.accept()
            except TimeoutError:
                continue
            with client:
                last = time.monotonic()
                if files != _stamps(files):
                    break  # the program was changed: its new version answers from now on
                if len(children) >= _CHILDREN or not _is_ours(client):
                    continue  # closed without an answer: the hook judges by itself
                child = os.fork()
                if child == 0:
                    code = 1
                    try:
                        server.close()
                        signal.alarm(int(_PATIENCE) + 1)
                        _serve(client)
                        code = 0
                    finally:
                        os._exit(code)
                children.add(child)
        if _is_same(address, mine):
            os.unlink(address)
    return 0


def _serve(client: "Socket") -> None:
    """Read one request, judge it as the hook would, and send the answer. Another program gets no answer."""
    import time
    from json import dumps, loads

    from runner.frontends.guard.answering import answer_bytes

    client.settimeout(_PATIENCE)
    parts = []
    while chunk := client.recv(1 << 20):
        parts.append(chunk)
    request = loads(b"".join(parts))
    if request["who"] != _identity():
        return
    os.environ.clear()
    os.environ.update(request["environ"])
    time.tzset()
    os.chdir(request["cwd"])
    sys.argv[0] = request["program"]
    answer = answer_bytes(request["agent"], request["options"], request["data"].encode("latin-1"))
    client.sendall(dumps(answer).encode())


def _address() -> str:
    """Return the path of the socket in the state folder. Raise OSError if it is too long for a socket, or unknown.

    `runner.state.paths` would say the same, but its imports take as long as the answer. A wrong path only means that
    there is no resident judge.
    """
    state, base = os.environ.get("RINGFENCE_STATE_DIR", ""), os.environ.get("XDG_STATE_HOME", "")
    base = base if base.startswith("/") else f"{os.environ.get('HOME', '')}/.local/state"
    path = f"{state or f'{base}/ringfence'}/guard/judge"
    if not path.startswith("/") or "\0" in path or len(os.fsencode(path)) > _LONGEST_PATH:
        raise OSError("the path of the socket cannot be used")
    return path


def _identity() -> list[str]:
    """Return what the hook and the judge must have in common: the program, the user and the namespaces."""
    kinds = ("mnt", "pid", "net", "user", "uts", "ipc")
    spaces = [os.readlink(f"/proc/self/ns/{kind}") for kind in kinds]
    root = os.stat("/")
    return [os.path.realpath(__file__), sys.executable, *spaces, f"{root.st_dev}:{root.st_ino}",
            f"{os.geteuid()}:{os.getegid()}:{sorted(os.getgroups())}"]  # fmt: skip


def _is_ours(peer: "Socket") -> bool:
    """Return True if the other side is a process of this user."""
    import _socket

    found = peer.getsockopt(_socket.SOL_SOCKET, _PEER, 12)  # struct ucred: pid, uid, gid
    return isinstance(found, bytes) and int.from_bytes(found[4:8], sys.byteorder) == os.geteuid()


def _is_same(path: str, inode: int) -> bool:
    try:
        return os.lstat(path).st_ino == inode
    except OSError:
        return False


def _load_everything() -> None:
    """Load the modules that a verdict needs, by a verdict for a user without settings."""
    from importlib import import_module
    from pkgutil import iter_modules

    from policy import handlers
    from policy.model.action import Action, RunScript, WriteFile
    from runner.config.load import keep_packaged
    from runner.frontends.guard import (  # noqa: F401  # loaded for the children
        claude,
        codex,
        cursor,
        gemini,
        hook_input,
        opencode,
        record,
        redemption,
        tokens,
        tool_actions,
        unconfined,
        verdicts,
    )
    from runner.gate.gate import GateArgs, open_gate

    for _, name, _ in iter_modules(handlers.__path__):
        import_module(f"{handlers.__name__}.{name}")
    keep_packaged()
    gate, _ = open_gate(GateArgs(script="true", argv=None, unattended=True, cwd="/usr"), {"HOME": "/nonexistent"})
    scripts = ("git status && ls -la | head -n 3", 'for f in *.py; do echo "$f" > b; done', "make test 2>&1; cd x")
    actions: list[Action] = [RunScript(script, "/usr") for script in scripts]
    for action in (*actions, WriteFile("/usr/a", "b")):
        gate.evaluate(action, unattended=False)


def _loaded_files() -> dict[str, tuple[int, int]]:
    """Return the files of the loaded modules of this program, with their times and sizes."""
    top = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__)))))
    found = (getattr(module, "__file__", None) for module in list(sys.modules.values()))
    tables = (f"{folder}/{name}" for folder in (f"{top}/policy/commands", f"{top}/profiles", f"{top}/policy/tables")
              if os.path.isdir(folder) for name in (*os.listdir(folder), "."))  # fmt: skip
    paths = (*(path for path in found if path and path.startswith(f"{top}/")), *tables)
    return _stamps(dict.fromkeys(paths, (0, 0)))


def _stamps(files: dict[str, tuple[int, int]]) -> dict[str, tuple[int, int]]:
    found = {}
    for path in files:
        try:
            status = os.stat(path)
            found[path] = (status.st_mtime_ns, status.st_size)
        except OSError:
            found[path] = (-1, -1)
    return found
