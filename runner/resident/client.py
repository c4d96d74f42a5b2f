"""A command that the resident process runs in place of this process.

The resident process keeps workers: processes that have loaded the program and wait. The client sends its words, its
environment and its standard streams to one of them. The worker takes over everything else that a process has from the
system itself, and runs the same `main` as this process would. The client passes signals on, and ends as the worker
ends.

THREAT T273: two processes must never run the same command. The worker starts only after the client said so (`go`), and
a client that said so runs nothing itself. Before that, whatever is missing or wrong, the command runs cold.

THREAT T274: another user, or a process in a sandbox, could wait at the socket. Both sides ask the kernel for the user
of the other one, and the folder of the socket is in the state folder, which no sandbox has.
"""

import os
import sys

from runner.resident import WARM, peer_of, resident_folder

TYPE_CHECKING = False  # the name that type checkers know, without the import of `typing`
if TYPE_CHECKING:
    from _socket import socket as Socket
    from io import TextIOWrapper

MAGIC = b"ringfence warm 1"
READY, GO, COLD, CODE = b"ready ", b"go\n", b"cold\n", b"code "  # what is said after the request
# No `deadline`: nothing of `policy` is imported before the check that no other package has that name (T22).
PATIENCE = 2.0  # seconds until a worker must be ready; the command runs cold then
_HARMLESS = {"PYTHONDONTWRITEBYTECODE", "PYTHONUNBUFFERED"}  # variables of the interpreter that a worker can follow
_OWN_FILES = {"fd", "proc"}  # folders in paths that lead each process to files of its own, however they are spelled
_STOPPING = ("SIGTSTP", "SIGTTIN", "SIGTTOU")
_KEPT = ("SIGKILL", "SIGSTOP", "SIGCHLD", "SIGCONT", "SIGPIPE", "SIGXFSZ", "SIGURG", "SIGSEGV", "SIGBUS", "SIGFPE",
         "SIGILL", "SIGTRAP", "SIGSYS")  # fmt: skip


def run_warm(words: list[str]) -> int | None:
    """Let a worker run `agent WORDS`. Return its exit code, or None if the command has to run cold.

    A worker that is killed by a signal makes this process end by the same signal.
    """
    if sys.platform != "linux" or not _may_be_warm(words):
        return None
    found = _connected(sys.argv, (0, 1, 2))
    if found is None:
        return None
    client, worker = found
    signals = PassedSignals(worker)
    try:
        client.sendall(GO)
    except OSError:  # the worker is gone: it did not get `go`, so it ran nothing
        signals.restore()
        return None
    return _ended(client, signals)


def ask_worker(argv: list[str], streams: tuple[int, int, int], patience: float) -> int | None:
    """Let a worker run a command without effects on `streams`. Return its exit code, or None if there is no answer.

    A worker that takes longer than `patience` seconds is killed.
    """
    if sys.platform != "linux" or _changes_interpreter() or _names_own_files():
        return None
    found = _connected(argv, streams)
    if found is None:
        return None
    client, _ = found
    try:
        client.settimeout(patience)
        client.sendall(GO)
        said = _line(client)
    except OSError:
        return None
    finally:
        client.close()
    return int(said[len(CODE) :]) if said.startswith(CODE) else None


def _connected(argv: list[str], streams: tuple[int, int, int]) -> "tuple[Socket, int] | None":
    """Return the connection to a worker that is ready, and a descriptor of its process; None if there is none."""
    import _socket  # the module `socket` takes three times as long to import

    client = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM | _socket.SOCK_CLOEXEC)
    try:
        client.settimeout(PATIENCE)
        client.connect(f"{resident_folder(os.environ)}/{WARM}")
        if peer_of(client)[1] == os.geteuid():
            data = _request(argv)
            numbers = b"".join(number.to_bytes(4, sys.byteorder) for number in streams)
            sent = client.sendmsg([data], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, numbers)])
            if sent < len(data):
                client.sendall(data[sent:])
            said = _line(client)
            if said.startswith(READY):
                worker = os.pidfd_open(int(said[len(READY) :]))
                client.settimeout(None)
                return client, worker
    except (OSError, ValueError, OverflowError):
        pass  # no resident process, or one that cannot be used: the command runs cold
    client.close()
    return None


def _may_be_warm(words: list[str]) -> bool:
    """Return True for the commands that a worker runs exactly as this process would."""
    own = words[: words.index("--")] if "--" in words else words
    if words[:1] not in (["exec"], ["why"]) and words[:2] != ["policy", "judge"]:
        return False
    if "--background" in own or "--help" in own or "-h" in own:
        return False  # a process that stays belongs to its caller; help pages need other modules
    if any("/fd" in word or "/proc" in word for word in own if word.startswith(("-", "/"))):
        return False  # a path that names a descriptor or a process: it is another one there
    if _changes_interpreter() or _names_own_files():
        return False
    try:
        # A job in the background must stop when it reads from its terminal, which only its own process can.
        return not os.isatty(0) or os.tcgetpgrp(0) == os.getpgrp()
    except OSError:
        return False


def _changes_interpreter() -> bool:
    """Return True if there is a variable that an interpreter reads at its start, and that a worker cannot follow."""
    return any(name.startswith("PYTHON") and name not in _HARMLESS for name in os.environ)


def _names_own_files() -> bool:
    """Return True if a variable has a path that is another one in a worker: that of a descriptor, for example.

    THREAT T276: a folder with settings that is not there in the worker would be no settings at all.
    """
    return any(_OWN_FILES.intersection(value.replace(":", "/").split("/")) for value in os.environ.values())


def _request(argv: list[str]) -> bytes:
    """Return the request: its length, and its parts with NUL between them, which occurs in none of them."""
    streams: tuple[TextIOWrapper, ...] = (sys.stdin, sys.stdout, sys.stderr)  # type: ignore[assignment]
    parts = [
        MAGIC,
        os.fsencode(__file__),
        os.fsencode(sys.executable),
        sys.version.encode(),
        sys.getfilesystemencoding().encode(),
        *(f"{each.encoding}:{each.errors}:{'' if each.write_through else 'buffered'}".encode() for each in streams),
        b"%d" % len(argv),
        *(os.fsencode(word) for word in argv),
        *(name + b"=" + value for name, value in os.environb.items()),
    ]
    data = b"\0".join(parts)
    return len(data).to_bytes(8, "little") + data


def _line(client: "Socket") -> bytes:
    """Return the next line without its end; the rest if the other side is gone."""
    found = b""
    while not found.endswith(b"\n") and (more := client.recv(1)):
        found += more
    return found.rstrip(b"\n")


class PassedSignals:
    """The passing of every signal that this process gets to the worker.

    What this process ignores stays ignored, here and in the worker. `last` is the last signal that ends a process by
    default; 0 before the first one.
    """

    def __init__(self, worker: int) -> None:
        import _signal  # type: ignore[import-not-found]  # `signal` makes enumerations, which takes a millisecond

        self.last = 0
        self._worker = worker
        self._before: list[tuple[int, object]] = []
        kept = {getattr(_signal, name) for name in _KEPT}
        stopping = {getattr(_signal, name) for name in _STOPPING}
        for number in sorted(_signal.valid_signals()):
            before = _signal.getsignal(number)
            if number not in kept and before not in (_signal.SIG_IGN, None):
                self._before.append((number, before))
                _signal.signal(number, self._stop if number in stopping else self._pass)

    def restore(self) -> None:
        """Handle every signal as before."""
        import _signal

        for number, before in self._before:
            _signal.signal(number, before)

    def _pass(self, number: int, frame: object) -> None:
        if number != 28:  # SIGWINCH, which ends nothing
            self.last = number
        self._send(number)

    def _stop(self, number: int, frame: object) -> None:
        self._send(19)  # SIGSTOP: the worker cannot stop by itself, because its parent process is another one
        os.kill(os.getpid(), 19)
        self._send(18)  # SIGCONT

    def _send(self, number: int) -> None:
        import _signal

        try:
            _signal.pidfd_send_signal(self._worker, number)
        except ProcessLookupError:
            return  # the worker has ended, and `_ended` reads how


def _ended(client: "Socket", signals: PassedSignals) -> int:
    """Wait for the end of the worker, and return its exit code, or end as it did."""
    said = _line(client)
    if said.startswith(CODE):
        return int(said[len(CODE) :])
    if signals.last:
        import _signal

        _signal.signal(signals.last, _signal.SIG_DFL)
        os.kill(os.getpid(), signals.last)
    sys.stderr.write(
        "agent: the command was ended\n"
        "  why: the resident process, which ran it, was killed\n"
        "  fix: run the command again; `agent audit list` shows how far it came\n"
    )
    return 137  # as after SIGKILL
