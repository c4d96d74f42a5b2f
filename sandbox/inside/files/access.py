"""Safe opening of files, and error texts for the kernel's refusals. Runs confined: standard library only."""

import errno
import os
import stat

from sandbox.inside import regular_file

CAP = 10 << 20  # bytes of one file that are read at most
SNIFF = 8192  # bytes at the start of a file; a NUL among them makes the file binary

TYPE_CHECKING = False  # the name is what type checkers know; typing itself would double the import
if TYPE_CHECKING:
    from collections.abc import Callable

_ASK = "leave it alone, or ask the user to allow it"

# fmt: off
_WORDS: dict[int, tuple[str, str]] = {
    errno.ENOENT:       ("it does not exist here", "check the path with `ls` or `glob`"),
    errno.ENOTDIR:      ("a part of the path is a file, not a folder", "check the path with `ls`"),
    errno.EISDIR:       ("it is a folder", "name a file in it"),
    errno.EACCES:       ("it is protected from this action", _ASK),
    errno.EPERM:        ("it is protected from this action", _ASK),
    errno.EROFS:        ("this action may not write there", "write inside the workspace, or ask the user to allow it"),
    errno.EBUSY:        ("the sandbox has mounted it, so it cannot be moved or removed", _ASK),
    errno.ETXTBSY:      ("it is a program that is running", "try again when the program has ended"),
    errno.ENOSPC:       ("the disk is full", "free some space, then try again"),
    errno.EDQUOT:       ("the disk quota is used up", "free some space, then try again"),
    errno.EFBIG:        ("the file would be larger than the limit", "write less, or in several files"),
    errno.ELOOP:        ("its symbolic links form a loop", "list the links with `ls`, and name the real file"),
    errno.ENAMETOOLONG: ("the name is too long for the file system", "use a shorter name"),
    errno.EMFILE:       ("too many files are open", "try again"),
    errno.ENFILE:       ("too many files are open on the machine", "try again"),
    errno.EIO:          ("the disk reports an error", "tell the user that the disk may be failing"),
    errno.ENXIO:        ("it is a socket or a device, not a file", "name a regular file"),
    errno.EAGAIN:       ("it has nothing to read now", "name a regular file"),
    errno.ENOTEMPTY:    ("the folder is not empty", "look at it with `ls`"),
    errno.ESTALE:       ("it was removed while it was used", "try again"),
}
_KINDS: tuple[tuple["Callable[[int], bool]", str], ...] = (
    (stat.S_ISREG,  "file"),
    (stat.S_ISDIR,  "folder"),
    (stat.S_ISLNK,  "link"),
    (stat.S_ISFIFO, "pipe"),
    (stat.S_ISSOCK, "socket"),
    (stat.S_ISCHR,  "device"),
    (stat.S_ISBLK,  "device"),
)
# fmt: on


class Refused(Exception):
    """The error that ends an operation with a Problem. `perform` turns it into an answer and never raises it."""

    def __init__(self, what: str, why: str, fix: str) -> None:
        super().__init__(what)
        self.problem: dict[str, object] = {"what": what, "why": why, "fix": fix}


def refusal(error: OSError, what: str) -> Refused:
    """Return the error for a refusal by the kernel. `what` names the attempt: "cannot read `/a/b`"."""
    number = error.errno or 0
    why, fix = _WORDS.get(number, (os.strerror(number).lower() if number else "the system refused", "try another way"))
    return Refused(what, why, fix)


def show(name: str) -> str:
    """Return a file name as valid, one-line text: bytes that are not UTF-8 and control characters are escaped."""
    if name.isascii() and name.isprintable():
        return name
    text = os.fsencode(name).decode("utf-8", "backslashreplace")
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


def kind(mode: int) -> str:
    """Return the word for the kind of file in `st_mode`."""
    return next((word for is_kind, word in _KINDS if is_kind(mode)), "unknown")


def regular(path: str, what: str) -> os.stat_result:
    """Return the state of the regular file at `path`, links followed, without opening it. Raises Refused for other
    kinds.
    """
    try:
        state = os.stat(path)
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ENOTDIR):
            raise missing(path, what) from None
        raise refusal(error, what) from None
    if not stat.S_ISREG(state.st_mode):
        word = kind(state.st_mode)
        fix = "use `ls` to see what is in it" if word == "folder" else "name a regular file"
        raise Refused(what, f"it is a {word}, not a file", fix)
    return state


def read_capped(path: str, what: str, cap: int = CAP) -> tuple[bytes, bool]:
    """Return the first `cap` bytes of a regular file, and whether there are more. Never blocks, and never opens a pipe
    or a device.
    """
    regular(path, what)
    try:
        with open(regular_file.open_regular(path, follow=True)[0], "rb", buffering=0) as file:
            content = regular_file.read_descriptor(file.fileno(), cap + 1)
    except regular_file.NotRegularError:
        raise Refused(what, "another kind of file replaced it while it was opened", "try again") from None
    except OSError as error:
        raise refusal(error, what) from None
    return content[:cap], len(content) > cap


def is_binary(content: bytes) -> bool:
    """Return True if the first bytes contain a NUL."""
    return 0 in content[:SNIFF]


def digest(content: bytes) -> str:
    """Return the SHA-256 in hexadecimal digits."""
    import hashlib

    return hashlib.sha256(content).hexdigest()


def missing(path: str, what: str) -> Refused:
    """Return the error for a missing path, with the most similar names in its folder."""
    folder, name = os.path.split(path)
    while not os.path.isdir(folder) and folder not in ("/", ""):
        folder, name = os.path.split(folder)
    why = f"there is no `{show(name)}` in `{show(folder)}`"
    near = " or ".join(f"`{show(item)}`" for item in nearest(folder, name))
    look = f"look at what is there: `ls` with path `{show(folder)}`, or `glob`"
    return Refused(what, why, f"did you mean {near}?" if near else look)


def nearest(folder: str, name: str) -> list[str]:
    """Return up to three paths in `folder` with names most like `name`, the same name in another case first."""
    import difflib

    try:
        with os.scandir(folder) as entries:
            names = [entry.name for entry, _ in zip(entries, range(1000), strict=False)]
    except OSError:
        return []  # the folder cannot be listed, so there is no hint
    by_fold = {item.casefold(): item for item in sorted(names, reverse=True)}
    close = difflib.get_close_matches(name.casefold()[:255], by_fold, n=3, cutoff=0.6)
    return [os.path.join(folder, by_fold[item]) for item in close]
