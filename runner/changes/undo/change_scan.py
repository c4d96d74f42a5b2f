"""The scan of a root for names that changed since the last scan. No content is read.

An unchanged file costs one stat. Every action that may write pays for two scans.

Folders whose content tools can create again are left out. Most are known by name. A name that could be anything also
needs a witness: a file that the tool puts there. A folder that was stored once stays stored, so that adding a witness
does not end its protection.
"""

import os
import stat
import threading
import time
from collections.abc import Callable

from policy.model.frozen import dataclass
from runner.changes import file_state, safe_open
from runner.changes.file_state import Entry, FileKind, clock_margin, entry_of

# fmt: off
# Name of the folder, its witnesses, which must be in the folder or beside it (`../`), and a description. Without
# witnesses, the name is sufficient.
TABLE: tuple[tuple[str, tuple[str, ...], str], ...] = (
    ("node_modules",  (),                                  "packages of npm, yarn and pnpm"),
    ("__pycache__",   (),                                  "compiled Python"),
    (".venv",         ("pyvenv.cfg",),                     "a virtual environment of Python"),
    ("venv",          ("pyvenv.cfg",),                     "a virtual environment of Python"),
    ("env",           ("pyvenv.cfg",),                     "a virtual environment of Python"),
    (".tox",          (),                                  "environments of tox"),
    (".nox",          (),                                  "environments of nox"),
    (".mypy_cache",   (),                                  "a cache of mypy"),
    (".pytest_cache", (),                                  "a cache of pytest"),
    (".ruff_cache",   (),                                  "a cache of ruff"),
    (".hypothesis",   (),                                  "a cache of hypothesis"),
    ("target",        ("CACHEDIR.TAG",),                   "build output of cargo"),
    ("target",        ("../pom.xml",),                     "build output of Maven"),
    (".gradle",       (),                                  "a cache of Gradle"),
    (".next",         ("../package.json",),                "build output of Next.js"),
    (".nuxt",         ("../package.json",),                "build output of Nuxt"),
    (".turbo",        ("../package.json",),                "a cache of Turborepo"),
    (".parcel-cache", (),                                  "a cache of Parcel"),
    (".terraform",    (),                                  "downloads of `terraform init`"),
    ("Pods",          ("Manifest.lock", "../Podfile"),     "downloads of CocoaPods"),
    ("bazel-out",     (),                                  "build output of Bazel"),
    (".direnv",       (),                                  "a cache of direnv"),
    # Git only adds objects, so those that refs and index name stay until `git gc` (gitrepository-layout(5))
    ("objects",       ("../HEAD", "../refs"),              "Git's objects"),
)
# fmt: on
_WITNESSES: dict[str, list[tuple[str, ...]]] = {}
for _name, _witnesses, _ in TABLE:
    _WITNESSES.setdefault(_name, []).append(_witnesses)


def left_out(name: str, above: int, more: frozenset[str] = frozenset()) -> bool:
    """Return True if the folder `name` in the open folder `above` is not stored. `more` are further names that the user
    configured.
    """
    if name in more:
        return True
    return any(all(_exists(name, each, above) for each in witnesses) for witnesses in _WITNESSES.get(name, ()))


def _exists(name: str, witness: str, above: int) -> bool:
    place = witness[3:] if witness.startswith("../") else f"{name}/{witness}"
    try:
        status = os.stat(place, dir_fd=above, follow_symlinks=False)
    except OSError:
        return False
    return stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode)


Names = dict[str, Entry]
Index = dict[str, Names]  # folder below the root ("" for the root) -> name -> entry


@dataclass(frozen=True, slots=True)
class Rules:
    """The paths that a scan does not read.

    Attributes:
        secret: A function that returns True for a path with a secret name.
        masked: Paths below the root that are secret because of their location or a link.
        more: Further names of folders that are left out.
        most: The largest number of files and folders to scan.
    """

    secret: Callable[[str], bool]
    masked: frozenset[str] = frozenset()
    more: frozenset[str] = frozenset()
    most: int = 300_000


class TooMany(Exception):
    """An error for a root with more files and folders than a scan may visit."""


class ScanStopped(Exception):
    """An error for a scan that its caller stopped."""


@dataclass(frozen=True, slots=True)
class ScanResult:
    """The result of a scan.

    Attributes:
        index: All existing names. Unchanged entries are the same objects as in the old index.
        fresh: The regular files whose content has to be read, by folder.
        gone: The folders of the old index that no longer exist.
    """

    index: Index
    fresh: dict[str, list[str]]
    gone: tuple[str, ...]


def scan(root: str, known: Index, rules: Rules, stop: threading.Event) -> ScanResult:
    """Scan everything below the real path `root` without following links. A folder that cannot be entered keeps its
    known entries.

    Raise OSError if `root` itself cannot be read, TooMany, or ScanStopped if `stop` is set.
    """
    index: Index = {}
    fresh: dict[str, list[str]] = {}
    _scan_below(root, "", known, rules, stop, index, fresh)
    return ScanResult(index, fresh, tuple(folder for folder in known if folder not in index))


def _scan_below(
    top: str | int,
    start: str,
    known: Index,
    rules: Rules,
    stop: threading.Event | None,
    index: Index,
    fresh: dict[str, list[str]],
) -> None:
    """Add everything below the folder `top`, whose path below the root is `start`, to `index` and `fresh`."""
    now = time.time_ns()
    count = 0

    def read(handle: int, path: str) -> list[str]:
        nonlocal count
        if stop is not None and stop.is_set():
            raise ScanStopped
        try:
            names, folders, fresh_here = _read(handle, path, known, rules, now)
        except OSError:
            if not path:
                raise
            _keep_known(index, known, path, file_state.CLOSED)
            return []
        index[path] = names
        count += len(names)
        if count > rules.most:
            raise TooMany
        if fresh_here:
            fresh[path] = fresh_here
        for name, entry in [*names.items()]:
            if entry.kind == FileKind.FOLDER and entry.unkept:
                _keep_known(index, known, f"{path}/{name}" if path else name, entry.unkept)
        return folders

    def enter(name: str, above: int, path: str, depth: int) -> int | None:
        if depth > safe_open.DEEPEST:
            _keep_known(index, known, path, file_state.TOO_DEEP)
            return None
        return safe_open.entered(name, above, lambda _: _keep_known(index, known, path, file_state.CLOSED))

    safe_open.walk(top, read, enter, start=start)


def _read(handle: int, path: str, known: Index, rules: Rules, now: int) -> tuple[Names, list[str], list[str]]:
    """Return the names in one folder, the folders among them to enter, and the files to read."""
    old, names = known.get(path, {}), Names()
    folders: list[str] = []
    fresh: list[str] = []
    with os.scandir(handle) as entries:
        for each in entries:
            name = each.name
            try:
                status = each.stat(follow_symlinks=False)
            except FileNotFoundError:
                continue
            before = old.get(name)
            mode = status.st_mode
            seen = (mode & 0o777, status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
            if before is not None and before.settled and before[1:7] == seen and not stat.S_ISDIR(mode):
                names[name] = before
                continue
            inner = f"{path}/{name}" if path else name
            try:
                entry = _entry(status, name, handle, inner, known, rules, now)
            except OSError:
                continue  # a link that was replaced meanwhile
            if entry.kind == FileKind.FOLDER and not entry.unkept:
                folders.append(name)
                if before is not None and before[:4] == entry[:4]:
                    entry = before
            elif entry.kind == FileKind.FILE and entry.unkept == file_state.CLOSED:
                fresh.append(name)
            names[name] = entry
    return names, folders, fresh


def _entry(status: os.stat_result, name: str, above: int, path: str, known: Index, rules: Rules, now: int) -> Entry:
    """Return the current entry of one name in the open folder `above`. A file to read has the reason CLOSED."""
    ctime = status.st_ctime_ns
    settled = ctime < now - clock_margin(ctime)
    secret = rules.secret(path) or path in rules.masked
    if stat.S_ISREG(status.st_mode):
        return entry_of(status, settled, b"", file_state.SECRET if secret else file_state.CLOSED)
    if stat.S_ISLNK(status.st_mode):
        return entry_of(status, settled, os.fsencode(os.readlink(name, dir_fd=above)))
    if not stat.S_ISDIR(status.st_mode):
        return entry_of(status, settled, b"", file_state.STRANGE)
    if secret:
        return entry_of(status, True, b"", file_state.SECRET)
    unkept = path not in known and left_out(name, above, rules.more)
    return entry_of(status, True, b"", file_state.LEFT_OUT if unkept else "")


def _keep_known(index: Index, known: Index, path: str, why: str) -> None:
    """Keep the known entries of a folder that is not entered."""
    above, name = safe_open.split(path)
    if above in index and name in index[above]:
        index[above][name] = index[above][name]._replace(unkept=why)
    if path in known:
        index |= {folder: names for folder, names in known.items() if f"{folder}/".startswith(f"{path}/")}


def scan_paths(root: str, known: Index, rules: Rules, paths: tuple[str, ...]) -> ScanResult:
    """Scan single `paths` below `root` and the folders above them, for an action that changes nothing else. A path with
    a `/` at its end stands for everything below it as well.

    The `index` of the result has only the folders on the way, each with its known entries and the current state of
    those paths, and the folders below paths with a `/`. Raise OSError, or TooMany for one of these.
    """
    now = time.time_ns()
    index: Index = {}
    fresh: dict[str, list[str]] = {}
    gone: set[str] = set()
    with safe_open.opened_root(root) as top:
        for path in paths:
            handle, folder = os.dup(top), ""
            try:
                for name in path.rstrip("/").split("/"):
                    names = index.setdefault(folder, dict(known.get(folder, {})))
                    found, read = _one(handle, name, folder, known, rules, now)
                    inner = f"{folder}/{name}" if folder else name
                    if found is None or found.kind != FileKind.FOLDER:
                        gone |= _below(known, inner) if inner in known else set()
                    if found is None:
                        names.pop(name, None)
                        break
                    names[name] = found
                    if read and name not in fresh.setdefault(folder, []):
                        fresh[folder].append(name)
                    if found.kind != FileKind.FOLDER or found.unkept:
                        break
                    entered = safe_open.open_folder(name, handle)
                    os.close(handle)
                    handle, folder = entered, inner
                else:
                    if path.endswith("/"):
                        before = _below(known, folder) if folder in known else set()
                        _scan_below(os.dup(handle), folder, known, rules, None, index, fresh)
                        gone |= before - index.keys()
            except OSError:
                continue  # the path was removed or replaced meanwhile
            finally:
                os.close(handle)
    return ScanResult(index, {folder: names for folder, names in fresh.items() if names}, tuple(gone))


def _below(known: Index, folder: str) -> set[str]:
    """Return the known folders at and below `folder`."""
    return {each for each in known if each == folder or each.startswith(f"{folder}/")}


def _one(above: int, name: str, folder: str, known: Index, rules: Rules, now: int) -> tuple[Entry | None, bool]:
    """Return the current entry of one name, and True if its content has to be read."""
    try:
        status = os.stat(name, dir_fd=above, follow_symlinks=False)
    except FileNotFoundError:
        return None, False
    before = known.get(folder, {}).get(name)
    entry = _entry(status, name, above, f"{folder}/{name}" if folder else name, known, rules, now)
    if entry.kind == FileKind.FILE and before is not None and before.settled and before[:7] == entry[:7]:
        return before, False
    return entry, entry.kind == FileKind.FILE and entry.unkept == file_state.CLOSED
