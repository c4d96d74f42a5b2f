"""One configuration file, read as text: never a link, a pipe or another user's file that somebody put in our way."""

import os
import stat
from pathlib import Path
from typing import Literal

from policy.verdict import Problem

Whose = Literal["user", "repository", "named"]
_LARGEST = 1 << 20  # bytes of one configuration file


class ConfigError(Exception):
    """Settings that cannot be used. `problem` names the file, line and key, or the variable."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(str(problem))
        self.problem = problem


def settings_text(path: Path, whose: Whose) -> str | None:
    """The file's text, or None when there is none. Raises ConfigError for what cannot be read as one.

    The user's file may be a link, but nobody else's; one named on the command line is taken as it is. The repository's
    may be neither a link nor lie behind one: it must not make us read, or wait for, something else.
    """
    repository = whose == "repository"

    def refused(why: str, fix: str) -> ConfigError:
        return ConfigError(Problem(f"`{path}` cannot be used", why, fix))

    if repository and os.path.realpath(path.parent) != str(path.parent):
        raise refused("it lies behind a link", "make its folder a real one, or remove it")
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | (os.O_NOFOLLOW if repository else 0)
    try:
        handle = os.open(path, flags)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError) as error:
        link = repository and path.is_symlink()
        why = "it is a link" if link else (getattr(error, "strerror", None) or "its name is not valid").lower()
        raise refused(why, "make it a plain file that you may read, or remove it") from None
    try:
        found = os.fstat(handle)
        if not stat.S_ISREG(found.st_mode):
            raise refused("it is not a plain file", "make it one, or remove it")
        if whose == "user" and found.st_mode & stat.S_IWOTH:
            raise refused("everybody may write to it", f"look at what it says, then run `chmod o-w {path}`")
        if whose == "user" and found.st_uid not in (0, os.geteuid()):
            raise refused(f"it belongs to another user (uid {found.st_uid})", "take it over, or remove it")
        with open(handle, "rb", closefd=False) as file:
            data = file.read(_LARGEST + 1)
    finally:
        os.close(handle)
    if len(data) > _LARGEST:
        raise refused("it is longer than 1 MiB", "shorten it")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise refused(f"line {line} is not UTF-8 text", "save it as UTF-8") from None
