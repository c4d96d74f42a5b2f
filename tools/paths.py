"""Paths in calls: their resolution by text alone, and the model's knowledge of each file.

An edit must not change content that the model does not know.
"""

from posixpath import normpath

from policy.model.verdict import Problem
from tools.text import short

MASKED = "[secret]"  # replaces a secret in shown text


class SeenFiles:
    """A map of one session from a path to the SHA-256 (hexadecimal) of the content that the model last read or wrote.

    Two spellings of a path that differ only in `.`, `..` and doubled slashes are one entry. For a symbolic link the
    caller adds the entry under the link and under its target.
    """

    __slots__ = ("_digests", "_masked")

    def __init__(self) -> None:
        self._digests: dict[str, str] = {}
        self._masked: set[str] = set()

    def note(self, path: str, digest: str) -> None:
        """Record that the model knows the content of `path` with this digest."""
        self._digests[normpath(path)] = digest

    def digest(self, path: str) -> str | None:
        """Return the digest that the model last saw of `path`, or None."""
        return self._digests.get(normpath(path))

    def mask(self, path: str, masked: bool) -> None:
        """Record whether the model saw `path` with a masked secret, so that it does not know the whole content."""
        (self._masked.add if masked else self._masked.discard)(normpath(path))

    def masked(self, path: str) -> bool:
        """Return True if the model last saw `path` with a masked secret."""
        return normpath(path) in self._masked


def place(path: str, cwd: str) -> str | Problem:
    """Return `path` as an absolute path; a relative one starts at `cwd`. `..` stays, because a link may precede it.

    Returns a Problem for an empty path, for `~` and for `~/..`.
    """
    if not path:
        return Problem("the path is empty", "no file or folder is named", "give a path, or `.` for this folder")
    if path == "~" or path.startswith("~/"):
        why = "`~` is expanded only by a shell, not by this tool"
        fix = f"give the full path; the working folder is `{short(cwd, 200)}`"
        return Problem(f"cannot use the path `{short(path)}`", why, fix)
    whole = path if path.startswith("/") else f"{cwd}/{path}"
    return "/" + "/".join(part for part in whole.split("/") if part not in ("", "."))
