"""The bearer token of `agent mcp serve --http`, and the private file that contains it.

THREAT T199: a program that has the token can use the tools with the mode of this session. The token has 256 random
bits. Its file is readable by this user only, is no link, and is not in the workspace, where commands of a client could
read it.
"""

import os
import re
import secrets
import stat
from collections.abc import Mapping
from pathlib import Path

from policy.model.secret_paths import inside
from policy.model.verdict import Problem
from runner.problems import Exit, Stopped, usage
from runner.secrets.secret import Secret
from runner.state.paths import state_dir
from runner.state.workspace import workspace_at
from runner.text.phrases import os_reason

_FOLDER = "serve"  # below the state folder
_WORDS = re.compile(rb"[A-Za-z0-9_-]{32,512}")
_OPEN = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK  # SAFETY: open(2). No link is followed, and no pipe blocks


class TokenFile:
    """The token of one server, and its file.

    Attributes:
        token: The token.
        path: The file.
        own: True if the file is in the state folder and is removed at the end.
    """

    def __init__(self, token: Secret, path: Path, *, own: bool) -> None:
        self.token, self.path, self.own = token, path, own

    @classmethod
    def opened(cls, named: str | None, cwd: str, environ: Mapping[str, str]) -> "TokenFile":
        """Return the token of the file `named`, which is created with a new token if it does not exist; without a name,
        a new token in a new file of the state folder. Raise Stopped if the file cannot be used.
        """
        if named is None:
            folder = state_dir(environ) / _FOLDER
            folder.mkdir(mode=0o700, exist_ok=True)
            path = folder / f"{os.getpid()}.token"
            path.unlink(missing_ok=True)  # of an earlier process with the same number
            return cls(_created(path), path, own=True)
        path = Path(os.path.realpath(os.path.dirname(os.path.abspath(named)))) / os.path.basename(named)
        if inside(str(path), workspace_at(cwd, environ)):
            why = "it is in the workspace, where commands of the client may read it"
            raise usage(f"`--token-file {named}` cannot be used", why, "name a file in a private folder")
        try:
            return cls(_read(path), path, own=False)
        except FileNotFoundError:
            return cls(_created(path), path, own=False)

    def close(self) -> None:
        """Remove the file if it belongs to this server alone."""
        if self.own:
            self.path.unlink(missing_ok=True)


def _created(path: Path) -> Secret:
    token = secrets.token_urlsafe(32)
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _OPEN, 0o600)
        with open(descriptor, "w", encoding="ascii") as file:
            file.write(f"{token}\n")
    except OSError as error:
        raise _unfit(path, os_reason(error)) from None
    return Secret(token)


def _read(path: Path) -> Secret:
    try:
        descriptor = os.open(path, os.O_RDONLY | _OPEN)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise _unfit(path, os_reason(error)) from None
    with open(descriptor, "rb") as file:
        state = os.fstat(descriptor)
        if not stat.S_ISREG(state.st_mode) or state.st_uid != os.geteuid() or stat.S_IMODE(state.st_mode) & 0o077:
            raise _unfit(path, "it is not a file of this user alone (`chmod 600`)")
        found = _WORDS.fullmatch(file.read(1024).strip())
    if found is None:
        raise _unfit(path, "it has no token of 32 or more letters, digits, `-` and `_`")
    return Secret(found[0].decode())


def _unfit(path: Path, why: str) -> Stopped:
    fix = "remove it, so that it is created again, or name another file with `--token-file`"
    return Stopped(Problem(f"the token file `{path}` cannot be used", why, fix), Exit.USAGE)
