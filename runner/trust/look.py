"""One look at what a repository brings. Nothing outside of it is read, nothing is waited for, and there is an end."""

import os
import stat
from hashlib import sha256

from policy.record import dataclass
from policy.verdict import Problem
from runner.problems import Exit, Stopped
from runner.trust.inventory import Entry, Inventory, Kind

OURS = ".ringfence"
CONFIGURATION = (f"{OURS}/config.toml", f"{OURS}/config.local.toml")
INSTRUCTIONS = ("AGENTS.md", "CLAUDE.md", "GEMINI.md")
SERVERS = ".mcp.json"
_FOLDERS = ((f"{OURS}/hooks", Kind.HOOK), (f"{OURS}/skills", Kind.SKILL))

LARGEST = 1 << 20  # bytes of one file
_MOST = 500  # files and folders below hooks, and below skills
_ALL = 16 << 20  # bytes of all of them
_DEEPEST = 8

# SAFETY: open(2). No link is followed, no pipe is waited for, no terminal becomes ours.
_PLAIN = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


class _TooMuch(Exception):
    """More than anybody reads before saying yes."""


def look(workspace: str) -> Inventory:
    """What `workspace`, a real path, brings. Raises Stopped when it cannot be looked into at all."""
    found = _Found({}, {})
    try:
        top = os.open(workspace, _PLAIN | os.O_DIRECTORY)
    except OSError as error:
        why = (error.strerror or "it cannot be opened").lower()
        raise Stopped(Problem(f"`{workspace}` cannot be looked into", why, "check the path"), Exit.USAGE) from None
    try:
        for name in INSTRUCTIONS:
            found.file(top, name, name, Kind.INSTRUCTIONS)
        found.file(top, SERVERS, SERVERS, Kind.SERVERS)
        ours = found.folder(top, OURS, OURS, Kind.CONFIGURATION)
        if ours is not None:
            try:
                _ours(found, ours)
            finally:
                os.close(ours)
    finally:
        os.close(top)
    entries = tuple(found.entries[path] for path in sorted(found.entries))
    return Inventory(workspace, entries, found.contents)


def _ours(found: "_Found", ours: int) -> None:
    for path in CONFIGURATION:
        found.file(ours, os.path.basename(path), path, Kind.CONFIGURATION)
    for path, kind in _FOLDERS:
        below = _Found({}, {})
        handle = below.folder(ours, os.path.basename(path), path, kind)
        if handle is not None:
            try:
                below.everything(handle, path, kind, depth=1)
            except _TooMuch as error:
                below = _Found({path: Entry(path, kind, refused=str(error))}, {})
            finally:
                os.close(handle)
        found.entries.update(below.entries)
        found.contents.update(below.contents)


@dataclass(frozen=True, slots=True)
class _Found:
    """What is collected; every path in it was opened step by step from the workspace's own folder."""

    entries: dict[str, Entry]
    contents: dict[str, bytes]

    def file(self, at: int, name: str, path: str, kind: Kind) -> None:
        """Take the file `name` of the folder `at`, if there is anything of that name."""
        try:
            entry, data = _read(at, name, path, kind)
        except (FileNotFoundError, NotADirectoryError):
            return
        except OSError as error:
            entry, data = Entry(path, kind, refused=_unreadable(error)), None
        self.entries[path] = entry
        if data is not None:
            self.contents[path] = data

    def folder(self, at: int, name: str, path: str, kind: Kind) -> int | None:
        """Open the folder `name` of the folder `at`; None when there is none, and an entry if it is no real folder."""
        try:
            mode = os.stat(name, dir_fd=at, follow_symlinks=False).st_mode
            if stat.S_ISDIR(mode):
                return os.open(name, _PLAIN | os.O_DIRECTORY, dir_fd=at)
            self.entries[path] = Entry(path, kind, refused=_nature(mode, "folder"))
        except FileNotFoundError:
            return None
        except OSError as error:
            self.entries[path] = Entry(path, kind, refused=_unreadable(error))
        return None

    def everything(self, at: int, path: str, kind: Kind, depth: int) -> None:
        """All that is below the open folder `at`. Raises _TooMuch where that has no sensible end."""
        if depth > _DEEPEST:
            raise _TooMuch(f"has folders more than {_DEEPEST} deep, so nothing below it was looked at")
        for name in _names(at, most=_MOST - len(self.entries)):
            below = f"{path}/{name}"
            if not name.isprintable():
                self.entries[below] = Entry(below, kind, refused="has a name that cannot be shown as it is")
            elif (handle := self._inner(at, name, below, kind)) is not None:
                try:
                    self.everything(handle, below, kind, depth + 1)
                finally:
                    os.close(handle)
            if sum(map(len, self.contents.values())) > _ALL:
                raise _TooMuch(f"holds more than {_ALL >> 20} MiB, so none of it was looked at")

    def _inner(self, at: int, name: str, path: str, kind: Kind) -> int | None:
        """Open what is a folder; take everything else as a file."""
        try:
            if stat.S_ISDIR(os.stat(name, dir_fd=at, follow_symlinks=False).st_mode):
                return self.folder(at, name, path, kind)
        except OSError as error:
            self.entries[path] = Entry(path, kind, refused=_unreadable(error))
        else:
            self.file(at, name, path, kind)
        return None


def _names(folder: int, most: int) -> list[str]:
    """Raises _TooMuch before a folder without end is read to its end."""
    names = []
    with os.scandir(folder) as inside:
        for each in inside:
            names.append(each.name)
            if len(names) > most:
                raise _TooMuch(f"holds more than {_MOST:,} things, so none of them was looked at")
    return sorted(names)


def _read(at: int, name: str, path: str, kind: Kind) -> tuple[Entry, bytes | None]:
    """The entry of one file, and its bytes unless it is refused. Raises OSError."""
    # Looked at before it is opened: to open a device can be an action of its own.
    mode = os.stat(name, dir_fd=at, follow_symlinks=False).st_mode
    if not stat.S_ISREG(mode):
        return Entry(path, kind, refused=_nature(mode, "plain file")), None
    handle = os.open(name, _PLAIN, dir_fd=at)
    try:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode):
            return Entry(path, kind, refused=_nature(status.st_mode, "plain file")), None
        if status.st_nlink > 1:  # somebody who may not read a file can often link it; its text must not become ours
            return Entry(path, kind, refused="has another name elsewhere (a hard link)"), None
        with open(handle, "rb", closefd=False) as file:
            data = file.read(LARGEST + 1)
    finally:
        os.close(handle)
    executable = bool(status.st_mode & 0o111)
    if len(data) > LARGEST:
        return Entry(path, kind, executable, refused=f"is longer than {LARGEST >> 20} MiB"), None
    if kind is Kind.INSTRUCTIONS and not _is_text(data):
        return Entry(path, kind, executable, len(data), refused="is not UTF-8 text"), None
    return Entry(path, kind, executable, len(data), sha256(data).hexdigest()), data


def _is_text(data: bytes) -> bool:
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def _nature(mode: int, wanted: str) -> str:
    kinds = (
        (stat.S_ISREG, "a file"),
        (stat.S_ISLNK, "a link"),
        (stat.S_ISDIR, "a folder"),
        (stat.S_ISFIFO, "a pipe"),
        (stat.S_ISSOCK, "a socket"),
    )
    return f"is {next((words for check, words in kinds if check(mode)), 'a device')} and no {wanted}"


def _unreadable(error: OSError) -> str:
    return f"cannot be read: {(error.strerror or 'the system refused it').lower()}"
