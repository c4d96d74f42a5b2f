"""One-time tokens: each binds one rewritten command to the call of the agent that it was made for.

A token is a file in the state folder, which no command in the sandbox can read. THREAT T192: a token counts once, for
exactly its script and folder. It is taken by a rename, so that only one of two processes can have it.
"""

import errno
import hashlib
import os
import time

from policy.model.frozen import dataclass
from policy.model.verdict import Problem

TYPE_CHECKING = False  # the name that type checkers know, without the import of `typing`
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_LIFE = 600.0  # seconds from the answer of the hook to the start of the command
_ASKED_LIFE = 86_400.0  # seconds if the user of the agent is asked first
_KEPT = 7 * 86_400.0  # seconds that the records of used and lapsed tokens are kept, for `--status`
_LARGEST = 64 << 20  # bytes of one record
PREFIX_TOOL = "Bash, by the shell prefix"  # the tool of a token that the shell prefix made, and in the record
PREFIX_REFUSED = "Bash, refused by the shell prefix"
SERVER_TOOL = "bash, by the server of ringfence"  # of a call that the server judges
_FIX = "let the agent call its shell tool again"


@dataclass(frozen=True, slots=True)
class GuardToken:
    """The record of one rewritten command.

    Attributes:
        script: The script, as the agent wrote it.
        cwd: The real path of the working folder.
        mode: The mode of the verdict, as its label.
        agent: The name of the agent.
        session: The id of the agent's session.
        call: The id of the call.
        tool: The name that the agent gives its shell tool.
        asked: A digest of the question that the user of the agent is asked; empty if the command was allowed.
        config: The configuration file of the hook, or empty.
        made: The time of the answer, in seconds since 1970.
        expires: The time from which on the token is refused.
    """

    script: str
    cwd: str
    mode: str
    agent: str
    session: str
    call: str
    tool: str
    asked: str = ""
    config: str = ""
    made: float = 0.0
    expires: float = 0.0

    @property
    def audit_session(self) -> str:
        """Return the id in the record for the session of the agent."""
        return audit_session(self.agent, self.session)


def issue(token: GuardToken, environ: "Mapping[str, str]", state: str = "open") -> str:
    """Store the record of `token` and return the word that stands for it. Raise OSError or PlaceError.

    A token in the state `used` counts for nothing: its record shows that a call was handled.
    """
    from json import dumps

    now = time.time()
    word = os.urandom(16).hex()
    values = {name: getattr(token, name) for name in GuardToken.__slots__}
    values |= {"made": now, "expires": now + (_ASKED_LIFE if token.asked else _LIFE)}
    folder = _folder(state, environ)
    _drop_old(environ, now)
    data = dumps(values).encode()
    fresh = f"{folder}/.{_name(word)}.new"
    handle = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with open(handle, "wb") as file:
        file.write(data)
    os.rename(fresh, f"{folder}/{_name(word)}")
    return word


def redeem(word: str, script: str, cwd: str, environ: "Mapping[str, str]") -> GuardToken | Problem:
    """Take the token `word` for good and return its record.

    Return a Problem if it is unknown, used, too old, or made for another script or folder. Such a try uses it up.
    """
    what = "the token of this command is not valid"
    if len(word) != 32 or set(word) - set("0123456789abcdef"):
        return Problem(what, "no hook of ringfence made it", _FIX)
    opened, used = _folder("open", environ), _folder("used", environ)
    try:
        os.rename(f"{opened}/{_name(word)}", f"{used}/{_name(word)}")
    except OSError as error:
        if error.errno != errno.ENOENT:
            raise
        if os.path.lexists(f"{used}/{_name(word)}"):
            return Problem("the token of this command was used before", "each token counts for one run", _FIX)
        return Problem(what, "it was never made, or it is more than a week old", _FIX)
    found = _read(f"{used}/{_name(word)}")
    if found is None:
        return Problem(what, "its record is damaged", _FIX)
    if time.time() > found.expires:
        return Problem("the token of this command is too old", "the command starts long after its verdict", _FIX)
    if found.script != script:
        return Problem("the token belongs to another command", "a token counts for exactly one script", _FIX)
    if found.cwd != cwd:
        why = f"it was made for the folder `{found.cwd}`, and this is `{cwd}`"
        return Problem("the token belongs to another folder", why, _FIX)
    return found


def open_token(command: str, agent: str, cwd: str, environ: "Mapping[str, str]") -> GuardToken | None:
    """Return the record of the token in a rewritten command of this agent in this folder, if the token still counts."""
    parts = token_of(command)
    found = _read(f"{_folder('open', environ)}/{_name(parts[0])}") if parts is not None else None
    if parts is None or found is None or (found.script, found.agent, found.cwd) != (parts[1], agent, cwd):
        return None
    return found if time.time() <= found.expires else None


def rewritten(word: str, script: str) -> str:
    """Return the command that runs `script` in the sandbox with the token `word`."""
    import shlex

    return shlex.join([_program(), "exec", "--guard-token", word, script])


def token_of(command: str) -> tuple[str, str] | None:
    """Return the token and the script of a command that `rewritten` made; None for any other command.

    THREAT T192: the command is compared with the one that this program would write, so that a shell reads nothing else
    in it: neither another program, nor a substitution, nor a second command.
    """
    import shlex

    try:
        words = shlex.split(command)
    except ValueError:
        return None
    if len(words) != 5 or command != rewritten(words[3], words[4]):
        return None
    return words[3], words[4]


def _program() -> str:
    import sys

    return os.path.abspath(sys.argv[0])


def tokens(state: str, environ: "Mapping[str, str]") -> "Iterator[tuple[str, GuardToken]]":
    """Yield the path and the record of each token in the state `open` or `used`."""
    folder = _folder(state, environ)
    for name in sorted(os.listdir(folder)):
        if not name.startswith(".") and (found := _read(f"{folder}/{name}")) is not None:
            yield f"{folder}/{name}", found


def audit_session(agent: str, session: str) -> str:
    """Return the id in the record for a session of a guarded agent; empty if the agent gives its session no id."""
    if not session:
        return ""
    return hashlib.sha256(f"{agent}\0{session}".encode("utf-8", "surrogatepass")).hexdigest()[:16]


def guard_folder(environ: "Mapping[str, str]") -> str:
    """Return the private folder of the guard in the state folder. It is created if it is missing."""
    from runner.state.paths import state_dir

    path = f"{state_dir(environ)}/guard"
    os.makedirs(path, mode=0o700, exist_ok=True)
    return path


def _folder(state: str, environ: "Mapping[str, str]") -> str:
    path = f"{guard_folder(environ)}/{state}"
    os.makedirs(path, mode=0o700, exist_ok=True)
    return path


def _name(word: str) -> str:
    """Return the file name of a token: a digest, so that a list of the files reveals no token."""
    return hashlib.sha256(word.encode()).hexdigest()[:32]


def _read(path: str) -> GuardToken | None:
    """Return the record in a file, or None if it is gone or damaged."""
    from json import loads

    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    with open(handle, "rb") as file:
        data = file.read(_LARGEST + 1)
    try:
        values = loads(data)
        kinds = {"made": float, "expires": float}
        if set(values) == set(GuardToken.__slots__) and all(
            isinstance(value, kinds.get(name, str)) for name, value in values.items()
        ):
            return GuardToken(**values)
    except (ValueError, TypeError, RecursionError):
        pass  # the record is damaged, which the caller reports
    return None


def _drop_old(environ: "Mapping[str, str]", now: float) -> None:
    """Delete records that are older than a week. A file that another process deletes meanwhile is skipped."""
    for state in ("open", "used"):
        with os.scandir(_folder(state, environ)) as entries:
            for entry in entries:
                try:
                    if now - entry.stat(follow_symlinks=False).st_mtime > _KEPT:
                        os.unlink(entry.path)
                except FileNotFoundError:
                    continue
