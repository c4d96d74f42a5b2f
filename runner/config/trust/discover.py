"""Discovery of a repository's files that configure or instruct the agent.

Outside of the repository, only instruction files in the folders above it, up to the home, are read. No read blocks, and
the amount is bounded.
"""

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from hashlib import sha256

from policy.model.frozen import dataclass
from policy.model.secret_paths import inside
from policy.model.verdict import Problem
from runner.config.inventory import EntryKind, Inventory, InventoryEntry
from runner.problems import Exit, Stopped
from runner.text.phrases import os_reason
from sandbox.inside.regular_file import NotRegularError, open_regular, read_descriptor

OURS = ".ringfence"
CONFIGURATION = (f"{OURS}/config.toml", f"{OURS}/config.local.toml")
INSTRUCTIONS = ("AGENTS.md", "CLAUDE.md", "GEMINI.md")
PROMPTS = (f"{OURS}/SYSTEM.md", f"{OURS}/APPEND_SYSTEM.md")
SKILLS = (f"{OURS}/skills", ".agents/skills", ".claude/skills")  # of two skills with one name, the first is used
COMMANDS = f"{OURS}/commands"
# Of two agents with one name, that of the first folder is used.
AGENTS = (
    f"{OURS}/agents", ".claude/agents", ".codex/agents", ".gemini/agents", ".opencode/agent", ".opencode/agents",
)  # fmt: skip
# Of two servers with one name, that of the first file is used.
SERVER_FILES = (".mcp.json", ".cursor/mcp.json", ".vscode/mcp.json", ".gemini/settings.json", ".codex/config.toml")
# Files of other programs that may configure hooks. Some of them configure tool servers as well.
FILES_WITH_HOOKS = (
    ".claude/settings.json", ".claude/settings.local.json", ".codex/hooks.json", ".codex/config.toml",
    ".gemini/settings.json",
)  # fmt: skip
_TEXTS = (EntryKind.INSTRUCTIONS, EntryKind.PROMPT)

LARGEST = 1 << 20  # bytes of one file
LARGEST_PROMPT = 64 << 10  # bytes of a file for the system prompt
_MOST_OWN = 2000  # entries directly in the user's own folder of skills
_MOST = 500  # files and folders below each of hooks, commands and skills
_MOST_BUNDLED = 2000  # files and folders of a bundle
_ALL = 16 << 20  # bytes of all files below one of these folders
_DEEPEST = 8  # levels of folders

_HIGHEST = 32  # folders above, or between the workspace and the folder of the session

# SAFETY: open(2). No link is followed, no pipe blocks, and no terminal becomes the controlling terminal.
_ONLY_PASSED = getattr(os, "O_PATH", os.O_RDONLY)  # a folder on the way need not be readable
_PLAIN = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


class _ScanLimit(Exception):
    """The error for more files than a user would read before an approval."""


def look(workspace: str, *, cwd: str = "", home: str = "") -> Inventory:
    """Return the inventory of `workspace` for a session in `cwd`.

    The inventory includes the instruction files between `workspace` and `cwd`, and those in the folders above
    `workspace` up to `home`. All three are real paths. Raises Stopped if the workspace cannot be read.
    """
    found = _Found({}, {})
    try:
        top = os.open(workspace, _PLAIN | os.O_DIRECTORY)
    except OSError as error:
        why = os_reason(error)
        raise Stopped(Problem(f"`{workspace}` cannot be looked into", why, "check the path"), Exit.USAGE) from None
    with _closing(top):
        for name in INSTRUCTIONS:
            found.file(top, name, name, EntryKind.INSTRUCTIONS)
        _servers(found, top)
        with _closing(found.folder(top, OURS, OURS, EntryKind.CONFIGURATION)) as ours:
            if ours is not None:
                for path in CONFIGURATION:
                    found.file(ours, os.path.basename(path), path, EntryKind.CONFIGURATION)
                for path in PROMPTS:
                    found.file(ours, os.path.basename(path), path, EntryKind.PROMPT)
                _all(found, ours, f"{OURS}/hooks", EntryKind.HOOK)
                _all(found, ours, COMMANDS, EntryKind.COMMAND)
        _hooks(found, top, workspace)
        for path in SKILLS:
            _apart(found, top, path, EntryKind.SKILL)
        for path in AGENTS:
            _apart(found, top, path, EntryKind.AGENT)
        if cwd != workspace and inside(cwd, workspace):
            _between(found, top, os.path.relpath(cwd, workspace).split("/"))
    _above(found, workspace, home)
    return found.inventory(workspace)


def look_below(folder: str, name: str) -> Inventory:
    """Return the file `name` of each folder directly in `folder`, a real path. Nothing else is read.

    Paths are relative to `folder`. The inventory is empty if `folder` does not exist.
    """
    found = _Found({}, {})
    try:
        top = os.open(folder, _PLAIN | os.O_DIRECTORY)
    except OSError:
        return Inventory(folder)
    try:
        with _closing(top):
            for each in _names(top, most=_MOST_OWN):
                if not _is_folder(top, each):
                    continue
                with _closing(found.folder(top, each, each, EntryKind.SKILL)) as handle:
                    if handle is not None:
                        found.file(handle, name, f"{each}/{name}", EntryKind.SKILL)
    except _ScanLimit as error:
        return Inventory(folder, (InventoryEntry("", EntryKind.SKILL, refused=str(error)),))
    return found.inventory(folder)


def look_whole(folder: str) -> Inventory:
    """Return everything in `folder`, a real path, for a bundle. A `.git` directly in it is left out.

    Paths are relative to `folder`. If there is too much, the only entry has the reason. Raises OSError.
    """
    found = _Found({}, {}, _MOST_BUNDLED)
    with _closing(os.open(folder, _PLAIN | os.O_DIRECTORY)) as top:
        assert top is not None, "a descriptor was opened"
        try:
            found.everything(top, "", EntryKind.BUNDLE, depth=1)
        except _ScanLimit as error:
            return Inventory(folder, (InventoryEntry("", EntryKind.BUNDLE, refused=str(error)),))
    return found.inventory(folder)


@contextmanager
def _closing(handle: int | None) -> Iterator[int | None]:
    """Close the descriptor at the end of the block, if there is one."""
    try:
        yield handle
    finally:
        if handle is not None:
            os.close(handle)


def _is_folder(at: int, name: str) -> bool:
    """Return True for a folder or a link to one. A plain file beside folders is not an error."""
    try:
        return name.isprintable() and stat.S_ISDIR(os.stat(name, dir_fd=at).st_mode)
    except OSError:
        return False


def _all(found: "_Found", at: int, path: str, kind: EntryKind) -> None:
    """Add everything below the folder named by the last part of `path`, in the open folder `at`. If there is too much,
    add one entry with the reason.
    """
    below = _Found({}, {})
    with _closing(below.folder(at, os.path.basename(path), path, kind)) as handle:
        try:
            if handle is not None:
                below.everything(handle, path, kind, depth=1)
        except _ScanLimit as error:
            below = _Found({path: InventoryEntry(path, kind, refused=str(error))}, {})
    found.entries.update(below.entries)
    found.contents.update(below.contents)


def _apart(found: "_Found", top: int, path: str, kind: EntryKind) -> None:
    """Add everything below the folder `path`, whose parent folder may belong to another program."""
    above = os.path.dirname(path)
    if above in found.entries:
        return
    with _closing(found.folder(top, above, above, kind)) as handle:
        if handle is not None:
            _all(found, handle, path, kind)


def _servers(found: "_Found", top: int) -> None:
    """Add the files that configure tool servers, without settings of other clients that configure none."""
    for path in SERVER_FILES:
        above, _, name = path.rpartition("/")
        if above in found.entries:
            continue
        with _closing(found.folder(top, above, above, EntryKind.SERVERS) if above else os.dup(top)) as handle:
            if handle is None:
                continue
            found.file(handle, name, path, EntryKind.SERVERS)
        if above and path in found.contents:
            from runner.config.serverfiles.read_servers import contains_servers  # few repositories have such a file

            if not contains_servers(path, found.contents[path]):
                del found.entries[path], found.contents[path]


def _hooks(found: "_Found", top: int, workspace: str) -> None:
    """Add the files that configure hooks, and the scripts that these hooks name.

    THREAT T209: the content of a script is part of what the user trusts, like the line that names it.
    """
    named: list[str] = []
    for path in FILES_WITH_HOOKS:
        above, _, name = path.rpartition("/")
        known = path in found.entries
        if not known and above not in found.entries:
            with _closing(found.folder(top, above, above, EntryKind.HOOK)) as handle:
                if handle is not None:
                    found.file(handle, name, path, EntryKind.HOOK)
        data = found.contents.get(path)
        if data is None:
            continue
        from runner.config.hookfiles.read_hooks import contains_hooks, scripts_of  # few repositories have such a file

        if b"hooks" in data and contains_hooks(path, data):
            named += [f"{above}/hooks/", *scripts_of(path, data, workspace)]
        elif not known:
            del found.entries[path], found.contents[path]
    for path in CONFIGURATION:
        if b"[[hook]]" in found.contents.get(path, b""):
            from runner.config.hookfiles.read_hooks import scripts_of_table

            named += scripts_of_table(found.contents[path], workspace)
    for path in dict.fromkeys(named):
        _script(found, top, path)


def _script(found: "_Found", top: int, path: str) -> None:
    """Add the file `path` of the workspace, or everything below it if `path` ends with a slash. No link is followed."""
    *above, name = path.rstrip("/").split("/")
    at, below = os.dup(top), ""
    try:
        for each in above:
            below = f"{below}{each}/"
            try:
                inner = os.open(each, _PLAIN | os.O_DIRECTORY, dir_fd=at)
            except OSError:
                return
            os.close(at)
            at = inner
        if path.endswith("/"):
            _all(found, at, f"{below}{name}", EntryKind.HOOK)
        elif path not in found.entries and not _is_folder(at, name):
            found.file(at, name, path, EntryKind.HOOK)
    finally:
        os.close(at)


def _between(found: "_Found", top: int, names: list[str]) -> None:
    """Add the instruction files of each folder between the workspace and the folder of the session."""
    at, path = os.dup(top), ""
    try:
        for name in names[:_HIGHEST]:
            if not name.isprintable():
                return  # the user could not see the name that is approved
            path = f"{path}{name}/"
            try:
                below = os.open(name, _PLAIN | os.O_DIRECTORY, dir_fd=at)
            except OSError:
                return
            os.close(at)
            at = below
            for each in INSTRUCTIONS:
                found.file(at, each, f"{path}{each}", EntryKind.INSTRUCTIONS)
    finally:
        os.close(at)


def _above(found: "_Found", workspace: str, home: str) -> None:
    """Add the instruction files of each folder above the workspace, up to the home.

    These files are not from the repository, but possibly from an archive that contains the workspace.
    """
    at, path = workspace, ""
    for _ in range(_HIGHEST):
        if not home or at == home or not inside(at, home):
            return
        at, path = os.path.dirname(at), f"{path}../"
        try:
            handle = os.open(at, _ONLY_PASSED | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:
            return
        with _closing(handle):
            for each in INSTRUCTIONS:
                found.file(handle, each, f"{path}{each}", EntryKind.INSTRUCTIONS)


@dataclass(frozen=True, slots=True)
class _Found:
    """The collected entries. Every path was opened step by step from the workspace's own folder."""

    entries: dict[str, InventoryEntry]
    contents: dict[str, bytes]
    most: int = _MOST

    def inventory(self, workspace: str) -> Inventory:
        """Return the entries in the order of their paths."""
        return Inventory(workspace, tuple(self.entries[path] for path in sorted(self.entries)), self.contents)

    def file(self, at: int, name: str, path: str, kind: EntryKind) -> None:
        """Add the file `name` of the folder `at`, if it exists."""
        try:
            entry, data = _read(at, name, path, kind)
        except (FileNotFoundError, NotADirectoryError):
            return
        except OSError as error:
            entry, data = InventoryEntry(path, kind, refused=_unreadable(error)), None
        self.entries[path] = entry
        if data is not None:
            self.contents[path] = data

    def folder(self, at: int, name: str, path: str, kind: EntryKind) -> int | None:
        """Open the folder `name` of the folder `at`. Return None if it is missing, or, after adding an entry, no real
        folder.
        """
        try:
            mode = os.stat(name, dir_fd=at, follow_symlinks=False).st_mode
            if stat.S_ISDIR(mode):
                return os.open(name, _PLAIN | os.O_DIRECTORY, dir_fd=at)
            self.entries[path] = InventoryEntry(path, kind, refused=_nature(mode, "folder"))
        except FileNotFoundError:
            return None
        except OSError as error:
            self.entries[path] = InventoryEntry(path, kind, refused=_unreadable(error))
        return None

    def everything(self, at: int, path: str, kind: EntryKind, depth: int) -> None:
        """Add everything below the open folder `at`. Raise _ScanLimit for an unreasonable amount."""
        if depth > _DEEPEST:
            raise _ScanLimit(f"has folders more than {_DEEPEST} deep, so nothing below it was looked at")
        for name in _names(at, most=self.most - len(self.entries)):
            below = f"{path}/{name}" if path else name
            if below == ".git" and kind is EntryKind.BUNDLE:
                continue
            if not name.isprintable():
                self.entries[below] = InventoryEntry(below, kind, refused="has a name that cannot be shown as it is")
            else:
                with _closing(self._inner(at, name, below, kind)) as handle:
                    if handle is not None:
                        self.everything(handle, below, kind, depth + 1)
            if sum(map(len, self.contents.values())) > _ALL:
                raise _ScanLimit(f"holds more than {_ALL >> 20} MiB, so none of it was looked at")

    def _inner(self, at: int, name: str, path: str, kind: EntryKind) -> int | None:
        """Open a folder and return its descriptor; add everything else as a file and return None."""
        try:
            if stat.S_ISDIR(os.stat(name, dir_fd=at, follow_symlinks=False).st_mode):
                return self.folder(at, name, path, kind)
        except OSError as error:
            self.entries[path] = InventoryEntry(path, kind, refused=_unreadable(error))
        else:
            self.file(at, name, path, kind)
        return None


def _names(folder: int, most: int) -> list[str]:
    """Return the sorted names in a folder. Raise _ScanLimit if there are more than `most`."""
    names = []
    with os.scandir(folder) as inside:
        for each in inside:
            names.append(each.name)
            if len(names) > most:
                raise _ScanLimit(f"holds more than {max(_MOST, most):,} things, so none of them was looked at")
    return sorted(names)


def _read(at: int, name: str, path: str, kind: EntryKind) -> tuple[InventoryEntry, bytes | None]:
    """Return the entry of one file, and its bytes unless the file is refused. Raises OSError."""
    mode = os.stat(name, dir_fd=at, follow_symlinks=False).st_mode
    if stat.S_ISLNK(mode):
        return InventoryEntry(path, kind, refused=_nature(mode, "plain file")), None
    try:
        handle, status = open_regular(name, follow=False, dir_fd=at)
    except NotRegularError as error:
        return InventoryEntry(path, kind, refused=_nature(error.mode, "plain file")), None
    with _closing(handle):
        if status.st_nlink > 1:  # a user can link a file that the user may not read; the model must not get its text
            return InventoryEntry(path, kind, refused="has another name elsewhere (a hard link)"), None
        data = read_descriptor(handle, LARGEST + 1)
    entry = InventoryEntry(path, kind, bool(status.st_mode & 0o111))
    if len(data) > LARGEST:
        return replace(entry, refused=f"is longer than {LARGEST >> 20} MiB"), None
    if kind is EntryKind.PROMPT and len(data) > LARGEST_PROMPT:
        return replace(entry, refused=f"is longer than {LARGEST_PROMPT >> 10} KiB"), None
    if kind in _TEXTS and not _is_text(data):
        return replace(entry, size=len(data), refused="is not UTF-8 text"), None
    return replace(entry, size=len(data), sha256=sha256(data).hexdigest()), data


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
    return f"cannot be read: {os_reason(error)}"
