"""A credential from a helper command of the user: `["pass", "show", "anthropic"]` prints it, on one line.

The command runs outside every sandbox, so only the user's own configuration can name one. It gets no input, few
variables and little time. Its output is never shown or stored.
"""

import contextlib
import os
import re
import select
import signal
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence

from policy.model.deadline import deadline
from policy.model.frozen import dataclass
from policy.model.secret_paths import inside
from runner.problems import ending_signals
from runner.secrets.secret import LONGEST, Secret, usable
from runner.state.paths import only_owners_write
from runner.text.phrases import os_reason

PATIENCE = deadline(10.0)  # default time limit in seconds
_PIECES = re.compile(r"[\s=:,;&|<>()'\"@]+")  # separates the paths in one word

# The variables that password managers need to find their store, their agent and a window. None contains a key.
_PASSED = (
    *("HOME", "USER", "LOGNAME", "LANG", "LC_ALL", "LC_CTYPE", "TMPDIR", "GNUPGHOME", "GPG_TTY", "PASSWORD_STORE_DIR"),
    *("XDG_RUNTIME_DIR", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "DBUS_SESSION_BUS_ADDRESS", "SSH_AUTH_SOCK"),
    *("DISPLAY", "WAYLAND_DISPLAY", "XAUTHORITY"),
)


@dataclass(frozen=True, slots=True)
class Helper:
    """A helper command: the words of a program, never interpreted by a shell, and its time limit in seconds."""

    argv: tuple[str, ...]
    seconds: float = PATIENCE


class HelperFailed(Exception):
    """An error for a helper command without a valid key. `why` and `fix` are for a Problem and contain no output of the
    command.
    """

    def __init__(self, why: str, fix: str) -> None:
        super().__init__(why)
        self.why = why
        self.fix = fix


def ask_helper(helper: Helper, environ: Mapping[str, str], workspace: str = "") -> Secret:
    """Return the key that the program prints. Raise HelperFailed, or SystemExit if a signal ends this process in the
    meantime.

    With a `workspace` (a real path), a program or file in the workspace is refused: commands of the agent can change
    the file, and the changed file would run outside the sandbox.
    """
    # The folders of PATH that neither the project nor other users can write programs to.
    entries = (entry for entry in environ.get("PATH", "").split(":") if entry.startswith("/"))
    path = [entry for entry in entries if not _within(entry, workspace) and only_owners_write(entry)]
    program = _program(helper.argv[0] if helper.argv else "", path, environ)
    _refuse_workspace((program, *helper.argv[1:]), _start_folder(environ), workspace)
    with _listening() as ended:
        answer = _run([program, *helper.argv[1:]], path, environ, helper, ended)
    if ended:
        raise SystemExit(128 + ended[0])
    if isinstance(answer, HelperFailed):
        raise answer  # here, because the frames of the callees contain the output, and some tools print frames
    return answer


@contextlib.contextmanager
def _listening() -> Iterator[list[int]]:
    """Collect the signals that would have ended this process. The helper is in a session of its own and would continue.

    Signals that are handled or ignored are left alone. Outside the main thread no signal is collected.
    """
    ended: list[int] = []
    main = threading.current_thread() is threading.main_thread()
    taken = [each for each in ending_signals() if main and signal.getsignal(each) is signal.SIG_DFL]
    for number in taken:
        signal.signal(number, lambda number, _: ended.append(number))
    try:
        yield ended
    finally:
        for number in taken:
            signal.signal(number, signal.SIG_DFL)


def _run(
    argv: list[str], path: list[str], environ: Mapping[str, str], helper: Helper, ended: list[int]
) -> Secret | HelperFailed:
    """Run the program and return its key or the failure. Its process group is killed afterwards. `ended` is checked
    while the program runs. Raise HelperFailed if the program cannot be started.
    """
    try:
        process = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={name: environ[name] for name in _PASSED if name in environ} | {"PATH": ":".join(path)},
            cwd=_start_folder(environ),
            start_new_session=True,  # a process group to kill as a whole, without a terminal
        )
    except (OSError, ValueError) as error:
        why = os_reason(error) if isinstance(error, OSError) else "its words contain a NUL"
        raise HelperFailed(f"it cannot be started: {why}", "correct the command") from None
    try:
        return _answer(process, time.monotonic() + helper.seconds, helper, ended)
    finally:
        # SAFETY: kill(2). The leader is not reaped yet, so no other group can have its number.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        if process.stdout is not None:
            process.stdout.close()
        process.wait()


def _answer(
    process: "subprocess.Popen[bytes]", deadline: float, helper: Helper, ended: list[int]
) -> Secret | HelperFailed:
    by_hand = "run it by hand to see what it prints"
    single_line = f"{by_hand}: exactly one line, the key"
    printed = _printed(process, deadline, ended)
    if printed is None:
        why = f"it did not end within {helper.seconds:g} seconds and was stopped"
        return HelperFailed(why, f"{by_hand}; it must not ask anything at the terminal")
    if len(printed) > LONGEST + 2:
        return HelperFailed(f"it printed more than {LONGEST:,} characters", single_line)
    ended_as = _ended(process)
    assert ended_as is not None
    if ended_as.si_status:
        exited = ended_as.si_code == os.CLD_EXITED
        why = f"it {'ended with exit code' if exited else 'was ended by signal'} {ended_as.si_status}"
        return HelperFailed(why, f"{by_hand}, and which errors")
    if not printed.strip():
        return HelperFailed("it printed nothing", single_line)
    if b"\n" in printed.removesuffix(b"\n"):
        return HelperFailed("it printed more than one line", single_line)
    if b"\0" in printed or not printed.isascii():
        return HelperFailed("its output is not text", single_line)
    key = usable(printed.decode("ascii"))
    return key or HelperFailed("it printed blanks or other characters that a key never has", single_line)


def _printed(process: "subprocess.Popen[bytes]", deadline: float, ended: list[int]) -> bytes | None:
    """Return the whole output, at most slightly longer than a key may be. Return None if the time is over or a signal
    came.
    """
    assert process.stdout is not None
    pipe = process.stdout.fileno()
    os.set_blocking(pipe, False)
    printed, open_ = b"", True
    while len(printed) <= LONGEST + 2:
        over = _ended(process) is not None  # checked before the pipe is read, so the pipe has all output of the program
        if open_:
            try:
                piece = os.read(pipe, LONGEST)
            except BlockingIOError:
                piece = None  # no output yet
            open_ = piece != b""
            printed += piece or b""
            if piece:
                continue
        if over:  # a process that the program left running may still hold the pipe open
            return printed
        left = deadline - time.monotonic()
        if left <= 0 or ended:
            return None
        select.select([pipe] if open_ else [], [], [], min(left, 0.01))
    return printed


def _ended(process: "subprocess.Popen[bytes]") -> os.waitid_result | None:
    """Return the state of an ended process, which stays unreaped, or None while it runs."""
    return os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)


def _program(name: str, path: Sequence[str], environ: Mapping[str, str]) -> str:
    """Return the file to run: a plain name is searched in PATH, else an absolute path or one below `~` is required."""
    if name.startswith("~/"):
        name = environ.get("HOME", "") + name[1:]
    if "/" in name:
        if not name.startswith("/"):
            why = f"`{name}` is a relative path, which names another program in every folder"
            raise HelperFailed(why, "write the full path, or a plain name that is on PATH")
        return name
    for folder in path:
        candidate = f"{folder}/{name}"
        if name and "\0" not in name and os.path.isfile(candidate) and os.access(candidate, os.X_OK):
            return candidate
    raise HelperFailed(f"there is no program `{name}` on PATH", "install it, or write the full path")


def _start_folder(environ: Mapping[str, str]) -> str:
    """Return the folder in which the program starts: the home folder if it exists."""
    home = environ.get("HOME", "")
    return home if os.path.isdir(home) else "/"


def _refuse_workspace(words: Sequence[str], folder: str, workspace: str) -> None:
    """Raise HelperFailed where a word names a path in the workspace: as a whole or as a part of an option or of a
    script (`--file=PATH`, `sh -c 'cat PATH'`). Relative paths count from `folder`."""
    for number, word in enumerate(words):
        paths = [piece for piece in (word, *_PIECES.split(word)) if "/" in piece]
        if any(_within(os.path.join(folder, re.sub(r"^~(?=/)", folder, path)), workspace) for path in paths):
            named = f"`{word}`" if number == 0 else "one of its files"
            why = f"{named} lies in the workspace, where commands of the agent could change it"
            raise HelperFailed(why, "keep it outside of every project, such as in ~/.local/bin")


def _within(path: str, workspace: str) -> bool:
    try:
        real = os.path.realpath(path)
    except (OSError, ValueError):
        return True  # the answer is unknown, so the path is refused
    return bool(workspace) and inside(real, workspace)
