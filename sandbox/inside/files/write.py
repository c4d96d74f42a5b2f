"""Writing of files: in one step, or in place if the folder may not be changed. Runs confined: standard library only.

THREAT T304: an editor may save a file between the moment at which it was read here and the moment at which it is
replaced. The new file is exchanged with the old one, which is then compared with what was read; a new file never
replaces one that appeared meanwhile.
"""

import errno
import os
import stat

from sandbox.inside import renames
from sandbox.inside.files.access import Refused, digest, is_binary, read_capped, refusal, regular, show
from sandbox.inside.files.diff import unified

_NO_EXCHANGE = (errno.EINVAL, errno.ENOSYS)  # the file system has no such rename, renameat2(2)
_CHANGED, _AGAIN = "another program changed it meanwhile", "read it again, then change its current content"
# Errors for a new file in the folder of a single granted file (a bind mount, or a kernel rule on the file itself).
_FOLDER_LOCKED = (errno.EACCES, errno.EPERM, errno.EROFS, errno.EBUSY, errno.EXDEV)


def write_file(path: str, content: str) -> dict[str, object]:
    """Write `content` to `path`, and make missing parents. Links are followed, never replaced. Raises Refused."""
    what = f"cannot write `{show(path)}`"
    new = content.encode()
    real = os.path.realpath(path)
    written = {"real": show(real), "size": len(new), "sha256": digest(new), "lines": lines_of(new)}
    answer: dict[str, object] = {**written, "diff": [], "dropped": 0, "notes": []}
    if not os.path.lexists(real):
        answer |= {"changed": True, "created": True, "was": 0, "folders": make_parents(real, what)}
        return answer | {"notes": put(real, new, None, None, what)}
    state = regular(real, what)
    old, more = read_capped(real, what)
    changed = more or old != new
    answer |= {"changed": changed, "created": False, "was": None if more else lines_of(old), "folders": 0}
    if not changed:
        return answer
    if not more and not is_binary(old) and not is_binary(new):
        answer["diff"], answer["dropped"] = unified(old.decode("utf-8", "replace"), content, show(path))
    answer["notes"] = put(real, new, state, None if more else old, what)
    return answer


def put(real: str, new: bytes, state: os.stat_result | None, old: bytes | None, what: str) -> list[str]:
    """Replace the content of `real` by `new`, if possible in one step by a rename. Return notes for the user.

    `state` is the state of the replaced file, None for a new file; its mode is kept, and its owner if the kernel allows
    it. `old` is its content, which is restored if the file can only be written in place and that fails; None if it is
    too large. Raises Refused, also if another program has changed the file since; then its version stays.
    """
    if state is not None and not os.access(real, os.W_OK):
        if not os.path.lexists(real):
            raise Refused(what, _CHANGED, _AGAIN)
        # A rename would bypass the write protection of the file, so opening it here raises the error.
        os.close(_open_for_writing(real, what))
    beside = os.path.join(os.path.dirname(real), f".ringfence-{os.urandom(6).hex()}.tmp")
    made = False
    try:
        mode = 0o644 if state is None else 0o600
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with open(os.open(beside, flags, mode), "wb", buffering=0) as file:
            made = True
            write_all(file.fileno(), new)
            notes = [] if state is None else keep_owner_and_mode(file.fileno(), state)
            os.fsync(file.fileno())
        if not _replaced(beside, real, state, old, what):
            os.unlink(beside)
            raise Refused(what, _CHANGED, _AGAIN)
    except OSError as error:
        if made:
            os.unlink(beside)
        if state is None or error.errno not in _FOLDER_LOCKED:
            raise refusal(error, what) from None
        if not _unchanged(real, state, old):
            raise Refused(what, _CHANGED, _AGAIN) from None
        return put_in_place(real, new, old, what)
    return notes


def _replaced(beside: str, real: str, state: os.stat_result | None, old: bytes | None, what: str) -> bool:
    """Put the file `beside` at `real`. Return False if `real` is not what was read any more; then it stays, and so does
    `beside`. Raises OSError, and Refused if the version of another program could not be put back.
    """
    try:
        if not renames.available():
            raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
        if state is None:
            renames.rename_new(beside, -1, real, -1)
            return True
        renames.exchange(beside, -1, real, -1)
    except FileExistsError:
        return False
    except FileNotFoundError:
        if state is None:
            raise
        return False  # it was deleted
    except OSError as error:
        if error.errno not in _NO_EXCHANGE:
            raise
        if state is None and os.path.lexists(real):
            return False
        if state is not None and not _unchanged(real, state, old):
            return False
        os.rename(beside, real)  # this system has nothing better
        return True
    if _unchanged(beside, state, old):
        os.unlink(beside)
        return True
    try:
        renames.exchange(beside, -1, real, -1)
    except OSError:
        raise Refused(what, _CHANGED, f"its version is `{show(beside)}`") from None
    return False


def _unchanged(path: str, state: os.stat_result, old: bytes | None) -> bool:
    """Return True if the file is the one of `state`, with the same content. `old` is the content, if it is known."""
    now = os.lstat(path)
    if old is None:
        known = (state.st_dev, state.st_ino, state.st_size, state.st_mtime_ns)
        return (now.st_dev, now.st_ino, now.st_size, now.st_mtime_ns) == known
    if not stat.S_ISREG(now.st_mode):
        return False
    try:
        return read_capped(path, path) == (old, False)
    except (OSError, Refused):
        return False


def _open_for_writing(real: str, what: str) -> int:
    try:
        return os.open(real, os.O_WRONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NOCTTY)
    except OSError as error:
        raise refusal(error, what) from None


def put_in_place(real: str, new: bytes, old: bytes | None, what: str) -> list[str]:
    """Overwrite the file itself, because its folder is locked. Restore `old` if writing fails. Raises Refused."""
    with open(_open_for_writing(real, what), "wb", buffering=0) as file:
        try:
            overwrite(file.fileno(), new)
        except OSError as error:
            refused = refusal(error, what)
            words = "the file may be damaged now" if old is None else ""
            try:
                if old is not None:
                    overwrite(file.fileno(), old)
            except OSError:  # the first error is the cause, and this says what the second one means
                words = "the old content could not be restored"
            if words:
                refused.problem["fix"] = f"{words}; {refused.problem['fix']}"
            raise refused from None
    return ["written in place, because its folder may not be changed"]


def overwrite(descriptor: int, content: bytes) -> None:
    """Replace the content of an open file by `content`."""
    os.lseek(descriptor, 0, os.SEEK_SET)
    write_all(descriptor, content)
    os.ftruncate(descriptor, len(content))


def write_all(descriptor: int, content: bytes) -> None:
    rest = memoryview(content)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def keep_owner_and_mode(descriptor: int, state: os.stat_result) -> list[str]:
    """Give the new file the old one's owner and permission bits (never setuid). Return a note if the owner changed."""
    mine = os.fstat(descriptor)
    notes: list[str] = []
    if (mine.st_uid, mine.st_gid) != (state.st_uid, state.st_gid):
        try:
            os.fchown(descriptor, state.st_uid, state.st_gid)
        except OSError:  # only a privileged process may; the user is told instead
            notes.append("its owner or group changed, because the sandbox may not set them")
    os.fchmod(descriptor, stat.S_IMODE(state.st_mode) & 0o777)
    return notes


def make_parents(real: str, what: str) -> int:
    """Make the missing parent folders of `real`, and return their number. Raises Refused."""
    lacking: list[str] = []
    folder = os.path.dirname(real)
    while folder != "/" and not os.path.lexists(folder):
        lacking.append(folder)
        folder = os.path.dirname(folder)
    for one in reversed(lacking):
        try:
            os.mkdir(one, 0o755)
        except FileExistsError:
            continue  # another process made the folder meanwhile
        except OSError as error:
            raise refusal(error, what) from None
    return len(lacking)


def lines_of(content: bytes) -> int:
    """Return the number of lines of `content`; a last line without newline counts."""
    return content.count(b"\n") + (not content.endswith(b"\n") and bool(content))
