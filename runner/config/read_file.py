"""Reading of configuration files, which must not be symbolic links, pipes or files of another user."""

import errno
import os
import stat
from pathlib import Path
from typing import Literal

from policy.model.verdict import Problem, ProblemError
from sandbox.inside.regular_file import NotRegularError, open_regular, read_descriptor

Whose = Literal["system", "user", "repository", "named"]
_LARGEST = 1 << 20  # bytes of one configuration file


class ConfigError(ProblemError):
    """Settings that cannot be used. `problem` names the file, line and key, or the variable."""


def settings_bytes(path: Path, whose: Whose) -> bytes | None:
    """Return the content of a configuration file; None if the file does not exist. Raises ConfigError.

    Files of the system and the user may be links, but no other user may be able to write or replace them. A file named
    on the command line may have any owner. A repository's file must not be a link or be reached through one, because it
    could make the program read, or wait for, something else. The `path` of a repository's file is `REAL
    FOLDER/.ringfence/NAME`.
    """
    try:
        handle, found = _open_below(path) if whose == "repository" else open_regular(path, follow=True)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except NotRegularError:
        raise _refused(path, "it is not a plain file", "make it one, or remove it") from None
    except (OSError, ValueError) as error:
        link = whose == "repository" and os.path.islink(path)  # false where its folder cannot be entered
        why = "it is a link" if link else (getattr(error, "strerror", None) or "its name is not valid").lower()
        raise _refused(path, why, "make it a plain file that you may read, or remove it") from None
    try:
        if whose in ("system", "user"):
            _owned(path, found, whose)
        data = read_descriptor(handle, _LARGEST + 1)
    except OSError as error:
        raise _refused(path, (error.strerror or "it cannot be read").lower(), "check the disk it lies on") from None
    finally:
        os.close(handle)
    if len(data) > _LARGEST:
        raise _refused(path, "it is longer than 1 MiB", "shorten it")
    return data


def as_text(data: bytes, path: Path) -> str:
    """Return the bytes of a file as text without a UTF-8 byte order mark. Raises ConfigError."""
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise _refused(path, f"line {line} is not UTF-8 text", "save it as UTF-8") from None


def _open_below(path: Path) -> tuple[int, os.stat_result]:
    """Open a file of the repository below the descriptor of its folder, so that nobody can exchange the folder."""
    try:
        folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENOTDIR) and path.parent.is_symlink():
            raise _refused(path, "it lies behind a link", "make its folder a real one, or remove it") from None
        raise
    try:
        return open_regular(path.name, follow=False, dir_fd=folder)
    finally:
        os.close(folder)


def _owned(path: Path, found: os.stat_result, whose: Whose) -> None:
    """Check the owner of a file, and that no other user can change or replace the file. Raises ConfigError."""
    if found.st_mode & stat.S_IWOTH:
        raise _refused(path, "everybody may write to it", f"look at what it says, then run `chmod o-w {path}`")
    if found.st_uid not in ((0,) if whose == "system" else (0, os.geteuid())):
        why = f"it belongs to another user (uid {found.st_uid})"
        raise _refused(path, why, f"run `chown root {path}`" if whose == "system" else "take it over, or remove it")
    if whose == "system" and found.st_mode & stat.S_IWGRP and found.st_gid != 0:
        why = f"a group may write to it (gid {found.st_gid})"
        raise _refused(path, why, f"look at what it says, then run `chmod g-w {path}`")
    above = os.stat(path.parent)
    if above.st_mode & stat.S_IWOTH and not above.st_mode & stat.S_ISVTX:
        why = "everybody may put another in its place"
        raise _refused(path, why, f"look at what it says, then run `chmod o-w {path.parent}`")


def _refused(path: Path, why: str, fix: str) -> ConfigError:
    return ConfigError(Problem(f"`{path}` cannot be used", why, fix))
