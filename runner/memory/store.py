"""The files of notes: `memory/user/NAME.md` and `memory/projects/KEY/NAME.md` in the state folder, each folder with an
index `MEMORY.md`.

The state folder exists in no sandbox, so that no command reads or writes notes. Every file is replaced as a whole under
one lock. A changed note is written only if its present text is the one that the user was shown.
"""

import contextlib
import errno
import fcntl
import os
import stat
import time
from collections.abc import Iterator
from pathlib import Path

from policy.model.deadline import deadline
from policy.model.frozen import dataclass, replace
from runner.memory.note import Note, NoteError, NoteScope, file_text, is_name, numbered, parsed_note, slug, wrong
from runner.state.workspace import workspace_key
from runner.text.phrases import os_reason
from runner.text.sanitize import one_line
from sandbox.inside.regular_file import NotRegularError, open_regular, read_descriptor

FOLDER = "memory"
INDEX = "MEMORY.md"
MOST = 500  # notes of one folder
_LARGEST = 16 << 10  # bytes of a file with its front matter
_LOCK = ".lock"
_PATIENCE = deadline(5.0)  # seconds that another process may keep the lock
# SAFETY: open(2). No link is followed, and opening a pipe does not wait.
_SAFE = os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK


@dataclass(frozen=True, slots=True)
class StoredNotes:
    """The notes of a workspace and of the user.

    Attributes:
        notes: Those of the project before those of the user; in each, the latest first.
        notices: One sentence about each file that is not used.
    """

    notes: tuple[Note, ...]
    notices: tuple[str, ...] = ()

    def named(self, name: str) -> Note | None:
        """Return the note `name`; of two, the one of the project."""
        return next((each for each in self.notes if each.name == name), None)


class NoteStore:
    """The notes that count in one workspace. Nothing is created before the first note."""

    def __init__(self, state: Path, workspace: str) -> None:
        self._state = state
        self._key = workspace_key(workspace)

    def folder(self, scope: NoteScope) -> Path:
        """Return the folder of the notes of `scope`, whether or not it exists."""
        return self._state.joinpath(*self._parts(scope))

    def read(self) -> StoredNotes:
        """Return all notes. A file that cannot be used is named in a notice, and never used in part. Raise NoteError if
        a folder could have been written by another user, or cannot be read.
        """
        notes: list[Note] = []
        notices: list[str] = []
        for scope in NoteScope:
            found: list[Note] = []
            with self._opened(scope) as folder:
                for name in sorted(os.listdir(folder)) if folder is not None else ():
                    if folder is None or not name.endswith(".md") or name == INDEX:
                        continue
                    try:
                        found.append(_load(folder, name, scope))
                    except ValueError as error:
                        path = one_line(str(self.folder(scope) / name), 300)
                        notices.append(f"the note `{path}` is not used: it {error}")
            notes += _latest_first(found)[:MOST]
            if len(found) > MOST:
                notices.append(f"{len(found) - MOST} notes in `{self.folder(scope)}` are not used: more than {MOST}")
        return StoredNotes(tuple(notes), tuple(notices))

    def add(self, note: Note) -> Note:
        """Store a new note, and return it with a name that is free. Raise NoteError."""
        with self._locked():
            taken = {each.name for each in self.read().notes} | self._files(note.scope)
            if len(self._files(note.scope)) >= MOST:
                raise wrong("the note was not stored", f"there are {MOST} notes already", "remove some of them")
            base = note.name or slug(note.title)
            name = next(each for number in range(1, MOST + 3) if (each := numbered(base, number)) not in taken)
            stored = replace(note, name=name)
            self._write(stored, make=True)
        return stored

    def replace(self, note: Note, before: str) -> None:
        """Replace the note of the same name and scope. Raise NoteError if its present text is not `before`: the user
        was shown a difference to that text.
        """
        with self._locked():
            present = next(
                (each for each in self.read().notes if (each.name, each.scope) == (note.name, note.scope)), None
            )
            if present is None or present.text != before:
                why = "there is no note of that name any more" if present is None else "its text has changed meanwhile"
                raise wrong(f"the note `{note.name}` was not changed", why, "look at it again, then change it")
            self._write(note)

    def remove(self, note: Note) -> None:
        """Remove a note. Raise NoteError if there is none."""
        with self._locked(), self._opened(note.scope) as folder:
            try:
                if folder is None:
                    raise FileNotFoundError
                os.unlink(f"{note.name}.md", dir_fd=folder)
            except OSError as error:
                raise self._failed(f"the note `{note.name}` was not removed", error) from None
            self._index(note.scope, folder)

    # Files

    def _parts(self, scope: NoteScope) -> tuple[str, ...]:
        return (FOLDER, "user") if scope is NoteScope.USER else (FOLDER, "projects", self._key)

    def _files(self, scope: NoteScope) -> set[str]:
        with self._opened(scope) as folder:
            names = os.listdir(folder) if folder is not None else ()
        return {name.removesuffix(".md") for name in names if name.endswith(".md") and name != INDEX}

    def _write(self, note: Note, *, make: bool = False) -> None:
        if not is_name(note.name):
            raise wrong("the note was not stored", f"`{one_line(note.name, 80)}` is not a name of a note", "rename it")
        with self._opened(note.scope, make=make) as folder:
            if folder is None:
                raise wrong("the note was not stored", "its folder is missing", "add it again")
            data = file_text(note).encode()
            try:
                parsed_note(note.name, note.scope, data)  # what a reader refuses must not be written
            except ValueError as error:
                raise wrong("the note was not stored", f"it {error}", "shorten or reword it") from None
            try:
                _replace(folder, f"{note.name}.md", data)
            except OSError as error:
                raise self._failed("the note was not stored", error) from None
            self._index(note.scope, folder)

    def _index(self, scope: NoteScope, folder: int) -> None:
        """Write the index of the notes in `folder` anew."""
        from runner.memory.index import index_text

        found = []
        for name in sorted(os.listdir(folder)):
            if name.endswith(".md") and name != INDEX:
                with contextlib.suppress(ValueError):  # `read` reports it
                    found.append(_load(folder, name, scope))
        try:
            _replace(folder, INDEX, (index_text(_latest_first(found)) + "\n").encode())
        except OSError as error:
            raise self._failed(f"the index `{self.folder(scope) / INDEX}` was not written", error) from None

    @contextlib.contextmanager
    def _opened(self, scope: NoteScope, *, make: bool = False) -> Iterator[int | None]:
        """Open the folder of `scope`; None if it does not exist. Raise NoteError for a link, and for a folder that
        other users could have written.
        """
        handle = None
        try:
            try:
                handle = _folder(self._state, self._parts(scope), make=make)
            except FileNotFoundError:
                handle = None
            except OSError as error:
                raise self._failed(f"the folder `{self.folder(scope)}` cannot be used", error) from None
            yield handle
        finally:
            if handle is not None:
                os.close(handle)

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        try:
            folder = _folder(self._state, (FOLDER,), make=True)
        except OSError as error:
            raise self._failed(f"the folder `{self._state / FOLDER}` cannot be used", error) from None
        try:
            handle = os.open(_LOCK, os.O_RDWR | os.O_CREAT | _SAFE, 0o600, dir_fd=folder)
        except OSError as error:
            raise self._failed("the notes cannot be locked", error) from None
        finally:
            os.close(folder)
        try:
            until = time.monotonic() + _PATIENCE
            while True:
                try:
                    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if time.monotonic() > until:
                        why = f"another process has held their lock for {_PATIENCE:g} s"
                        raise wrong("the notes cannot be changed", why, "end the other `agent`") from None
                    time.sleep(0.01)
            yield
        finally:
            os.close(handle)  # also releases the lock, flock(2)

    def _failed(self, what: str, error: OSError) -> NoteError:
        return wrong(what, os_reason(error), f"inspect `{self._state / FOLDER}`")


def _latest_first(notes: list[Note]) -> list[Note]:
    return sorted(notes, key=lambda each: (-each.changed, each.name))


def _folder(state: Path, parts: tuple[str, ...], *, make: bool) -> int:
    """Open a folder below the state folder, without following links. Raise OSError."""
    handle = os.open(state, os.O_RDONLY | os.O_DIRECTORY | _SAFE)
    try:
        for name in parts:
            if make:
                with contextlib.suppress(FileExistsError):
                    os.mkdir(name, 0o700, dir_fd=handle)
            inner = os.open(name, os.O_RDONLY | os.O_DIRECTORY | _SAFE, dir_fd=handle)
            os.close(handle)
            handle = inner
            seen = os.fstat(handle)
            if seen.st_uid != os.geteuid() or seen.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
                raise PermissionError(1, "other users could have written to it")
        return handle
    except BaseException:
        os.close(handle)
        raise


def _load(folder: int, name: str, scope: NoteScope) -> Note:
    """Read one note. Raise ValueError, whose text is a phrase about the file."""
    bare = name.removesuffix(".md")
    if not is_name(bare):
        raise ValueError("has a name that no note can have: a-z, 0-9 and single hyphens")
    try:
        handle, seen = open_regular(name, follow=False, dir_fd=folder)
    except NotRegularError:
        raise ValueError("is not a regular file") from None
    except OSError as error:
        why = "is a symbolic link" if error.errno == errno.ELOOP else f"cannot be read: {os_reason(error)}"
        raise ValueError(why) from None
    try:
        if seen.st_uid != os.geteuid() or seen.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise ValueError("could have been written by other users")
        if seen.st_nlink != 1:
            raise ValueError("has a second name (a hard link)")
        data = read_descriptor(handle, _LARGEST + 1)
    except OSError as error:
        raise ValueError(f"cannot be read: {os_reason(error)}") from None
    finally:
        os.close(handle)
    if len(data) > _LARGEST:
        raise ValueError(f"is longer than {_LARGEST >> 10} KiB")
    return parsed_note(bare, scope, data)


def _replace(folder: int, name: str, data: bytes) -> None:
    """Replace a file as a whole. Raise OSError; then the old content stays."""
    fresh = f".{name}.{os.getpid()}.new"
    with contextlib.suppress(FileNotFoundError):
        os.unlink(fresh, dir_fd=folder)  # left by a killed process with the same id
    handle = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _SAFE, 0o600, dir_fd=folder)
    try:
        with open(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.rename(fresh, name, src_dir_fd=folder, dst_dir_fd=folder)
        os.fsync(folder)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(fresh, dir_fd=folder)
        raise
