"""A JSON state file: private, replaced as a whole under a lock, and set aside when it is damaged."""

import contextlib
import errno
import fcntl
import json
import os
import stat
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Generic, TypeVar

from policy.model.deadline import deadline
from policy.model.frozen import dataclass
from policy.model.verdict import Problem, ProblemError
from runner.text.phrases import os_reason
from runner.text.strict_json import DuplicateNameError, parse_strictly
from sandbox.inside.regular_file import NotRegularError, open_regular, read_descriptor

_LARGEST = 16 << 20  # bytes
_PATIENCE = deadline(5.0)  # seconds that another process may keep the lock
_RACY = 100_000_000  # nanoseconds: two changes within this time may have the same modification time
_MOST_KEPT = 1000  # number of broken files that are kept for one state file

_Value = TypeVar("_Value")
_Answer = TypeVar("_Answer")
_Stamp = tuple[int, int, int, int]


class StateError(ProblemError):
    """An error for a state file that cannot be used or written. `problem` has the path, the reason and the remedy."""


@dataclass(frozen=True, slots=True)
class Held(Generic[_Value]):
    """The value of a state file, with notices for the user."""

    value: _Value
    notices: tuple[str, ...] = ()


class StateFile(Generic[_Value]):
    """The file at `path`: a JSON object with its `version` and the fields that `dump` returns for a value.

    `parse` receives the object without `version`, and its version (1 to `version`), and raises ValueError for invalid
    content. Such a file is renamed to `NAME.corrupt-N` and the value of `empty()` is used. `path` is in a folder that
    `paths` has checked. `purpose` names the file in error messages: "the list of grants".
    """

    def __init__(
        self,
        path: Path,
        purpose: str,
        version: int,
        empty: Callable[[], _Value],
        parse: Callable[[dict[str, object], int], _Value],
        dump: Callable[[_Value], dict[str, object]],
    ) -> None:
        self.path = path
        self._purpose = purpose
        self._version = version
        self._empty = empty
        self._parse = parse
        self._dump = dump
        self._known: tuple[_Stamp | None, _Value] | None = None

    def read(self) -> Held[_Value]:
        """Return the value, or `empty()` if the file is missing. Costs one stat if the file has not changed since the
        last call.

        The notices report a damaged file once, when it is renamed. Raise StateError for a file that other users could
        have written, for a file of a later version, and for a file that the system does not allow to be read.
        """
        try:
            now = _stamp_of(os.lstat(self.path))
        except (FileNotFoundError, NotADirectoryError):
            now = None
        except OSError as error:
            raise self._refused(os_reason(error), "check who owns the folders above it") from None
        if self._known is not None and self._known[0] == now:
            return Held(self._known[1])
        try:
            held, found = self._load()
        except ValueError:
            with self._locked():
                held, found = self._load_or_set_aside()
        # SAFETY: stat(2). Two contents may have the same recent time, so an equal time does not prove equal contents.
        settled = found is None or time.time_ns() - found[2] > _RACY
        self._known = (found, held.value) if settled else None
        return held

    def change(self, edit: Callable[[_Value], tuple[_Value, _Answer]]) -> tuple[_Answer, tuple[str, ...]]:
        """Replace the value by the first result of `edit`, and return the second one with the notices.

        No other process changes the file in the meantime; readers see the old content or the new one. The change is
        durable when this returns. If `edit` returns the same object, nothing is written. Raise StateError, as `read`
        does, and if the disk refuses, another process keeps the lock, or a reader would reject the new content: then
        the old content stays.
        """
        with self._locked():
            held, _ = self._load_or_set_aside()
            value, answer = edit(held.value)
            if value is not held.value:
                self._known = None
                text = json.dumps({"version": self._version, **self._dump(value)}, indent=1) + "\n"
                data = text.encode("utf-8", "surrogatepass")
                try:
                    # SAFETY: if the next reader refused one entry, it would discard all entries, including denials.
                    self._parsed(data)
                except ValueError as error:
                    raise self._unwritten(f"the new content is not valid: {_plain(error)}", "shorten it") from None
                self._write(data)
        return answer, held.notices

    # Reading

    def _load(self) -> tuple[Held[_Value], _Stamp | None]:
        """Read the file. Raise ValueError if its content is invalid."""
        try:
            handle, status = open_regular(self.path, follow=False)
        except (FileNotFoundError, NotADirectoryError):
            return Held(self._empty()), None
        except NotRegularError:
            raise self._refused("it is not a regular file", "inspect it, then remove it") from None
        except OSError as error:
            why = "it is a symbolic link" if error.errno == errno.ELOOP else os_reason(error)
            raise self._refused(why, "inspect it, then remove it") from None
        try:
            if status.st_uid != os.geteuid():
                raise self._refused(f"it belongs to another user (uid {status.st_uid})", "change its owner")
            if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
                fix = f"check its content, then run `chmod 600 {self.path}`"
                raise self._refused("other users may write to it", fix)
            data = read_descriptor(handle, _LARGEST + 1)
        except OSError as error:
            raise self._refused(os_reason(error), "check the disk that it is on") from None
        finally:
            os.close(handle)
        return Held(self._parsed(data)), _stamp_of(status)

    def _parsed(self, data: bytes) -> _Value:
        """Parse the content. Raise ValueError if it is invalid."""
        if len(data) > _LARGEST:
            raise ValueError("it is too long")
        try:
            content = parse_strictly(data.decode("utf-8"))
        except DuplicateNameError:
            raise ValueError("it has a key twice") from None
        except RecursionError:
            raise ValueError("it is nested too deeply") from None
        if not isinstance(content, dict):
            raise ValueError("it is not a JSON object")
        version = content.pop("version", None)
        if type(version) is not int or version < 1:
            raise ValueError("it has no version")
        if version > self._version:
            why = f"a later version of ringfence wrote it (its format is {version}, this one reads {self._version})"
            raise self._refused(why, "use that version, or rename the file")
        return self._parse(content, version)

    def _load_or_set_aside(self) -> tuple[Held[_Value], _Stamp | None]:
        """Read the file, or rename a damaged one so that its content is not used. Call only with the lock held."""
        try:
            return self._load()
        except ValueError as error:
            why = "it is not valid JSON" if isinstance(error, json.JSONDecodeError) else _plain(error)
        for number in range(1, _MOST_KEPT):
            aside = self.path.with_name(f"{self.path.name}.corrupt-{number}")
            try:
                # SAFETY: link(2) overwrites nothing, as rename(2) would
                os.link(self.path, aside, follow_symlinks=False)
                os.unlink(self.path)
            except FileExistsError:
                continue
            except OSError as error:
                why = f"it is damaged and cannot be renamed: {os_reason(error)}"
                raise self._refused(why, "rename it") from None
            text = f"cannot be read: {why}; it is now `{aside.name}`, and is not used"
            return Held(self._empty(), (f"{self._purpose}, `{self.path}`, {text}",)), None
        raise self._refused("it is damaged, like many before it", f"remove the `{self.path.name}.corrupt-*` files")

    # Writing

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        lock = self.path.with_name(f"{self.path.name}.lock")
        try:
            handle = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise self._unwritten(f"its lock `{lock.name}` cannot be opened: {os_reason(error)}") from None
        until = time.monotonic() + _PATIENCE
        locked = False
        try:
            while not locked:
                try:
                    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    locked = True
                except BlockingIOError:
                    if time.monotonic() > until:
                        why = f"another process has held its lock for {_PATIENCE:g} s"
                        raise self._unwritten(why, "end the other `agent`, or wait for it") from None
                    time.sleep(0.01)
                except OSError as error:
                    raise self._unwritten(f"it cannot be locked: {os_reason(error)}") from None
            yield
        finally:
            os.close(handle)  # also releases the lock, flock(2)

    def _write(self, data: bytes) -> None:
        fresh = self.path.with_name(f".{self.path.name}.{os.getpid()}.new")
        try:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(fresh)  # left by a killed process with the same id
            handle = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
            with open(handle, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(handle)
            os.rename(fresh, self.path)
            folder = os.open(self.path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)
        except OSError as error:
            with contextlib.suppress(OSError):
                os.unlink(fresh)
            raise self._unwritten(os_reason(error)) from None

    # Complaints

    def _refused(self, why: str, fix: str) -> StateError:
        return StateError(Problem(f"{self._purpose}, `{self.path}`, cannot be used", why, fix))

    def _unwritten(self, why: str, fix: str = "check the disk and who owns the folder") -> StateError:
        return StateError(Problem(f"{self._purpose}, `{self.path}`, could not be changed", why, fix))


def _stamp_of(found: os.stat_result) -> _Stamp:
    return found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def _plain(error: ValueError) -> str:
    if isinstance(error, UnicodeDecodeError):
        return "it is not UTF-8 text"
    return str(error) or "its content was not written by ringfence"
