"""The content of a folder, and the files below it that match a pattern. Runs confined: standard library only."""

import os
import stat
import time

from sandbox.inside.files.access import Refused, kind, missing, refusal, show
from sandbox.inside.files.match import SKIPPED, GlobPattern

LIST_CAP = 1000  # entries of one answer
TYPE_CHECKING = False  # the name is what type checkers know; typing itself would double the import
if TYPE_CHECKING:
    from collections.abc import Iterable

_NAMES_CAP = 200_000  # names of one folder that are read and sorted


def list_folder(path: str) -> dict[str, object]:
    """Return the entries of a folder by name: [name, kind, size, target of a link]. For a file, return the file
    itself.
    """
    what = f"cannot list `{show(path)}`"
    try:
        state = os.stat(path)
        if not stat.S_ISDIR(state.st_mode):
            return {"entries": [_entry(path, os.path.basename(path))], "total": 1, "unsorted": False}
        with os.scandir(path) as entries:
            names = [entry.name for entry, _ in zip(entries, range(_NAMES_CAP + 1), strict=False)]
    except (FileNotFoundError, NotADirectoryError):
        raise missing(path, what) from None
    except OSError as error:
        raise refusal(error, what) from None
    more = len(names) > _NAMES_CAP
    names.sort()
    listed = [_entry(os.path.join(path, name), name) for name in names[:LIST_CAP]]
    return {"entries": listed, "total": None if more else len(names), "unsorted": more}


def _entry(path: str, name: str) -> list[object]:
    try:
        state = os.lstat(path)
        target = show(os.readlink(path)) if stat.S_ISLNK(state.st_mode) else None
    except OSError:  # the file was removed since its folder was read, or is not readable: only its name is known
        return [show(name), "unknown", None, None]
    return [show(name), kind(state.st_mode), state.st_size if stat.S_ISREG(state.st_mode) else None, target]


def glob_files(pattern: str, root: str, seconds: float, *, ignored: bool = False) -> dict[str, object]:
    """Return files below `root` whose relative path matches, newest first. Links are not followed, and `.git` is
    skipped, and so are files that Git ignores unless `ignored`.

    `ignored` of the answer is `skipped` if such files were left out, `none` if there was nothing to leave out, and
    `unknown` if ripgrep, which reads the ignore rules, could not list the files, so that all files are returned.
    """
    what = f"cannot search `{show(root)}`"
    if not os.path.lexists(root):
        raise missing(root, what)
    if not os.path.isdir(root):
        raise Refused(what, "it is not a folder", "give the folder as `path` and the rest as `pattern`")
    ends = time.monotonic() + seconds
    glob = GlobPattern(pattern)
    matches: list[tuple[int, str]] = []
    total = unread = met = 0
    late = False
    listed = None if ignored else _Listed.below(root, seconds)
    skipped = False
    todo = [("", glob.start)]
    while todo and not late:
        folder, places = todo.pop()
        try:
            with os.scandir(os.path.join(root, folder)) as scanned:
                entries: Iterable[os.DirEntry[str]] = scanned
                if listed is not None and folder not in listed.folders:
                    links = _links(scanned)
                    skipped = skipped or links is None
                    entries = links or ()
                for entry in entries:
                    met += 1
                    if met % 256 == 0 and time.monotonic() > ends:
                        late = True
                        break
                    after = glob.step(places, entry.name)
                    if not after or entry.name == SKIPPED:
                        continue
                    relative = f"{folder}/{entry.name}" if folder else entry.name
                    if entry.is_dir(follow_symlinks=False):
                        todo.append((relative, after))
                    elif glob.complete(after):
                        if listed is not None and relative not in listed.files and entry.is_file(follow_symlinks=False):
                            skipped = True
                            continue
                        total += 1
                        matches.append((-_changed(entry), relative))
        except OSError as error:
            if not folder:
                raise refusal(error, what) from None
            unread += 1  # the folder is protected, or was removed
        if len(matches) > 20 * LIST_CAP:
            matches = sorted(matches)[:LIST_CAP]
    names = [show(name) for _, name in sorted(matches)[:LIST_CAP]]
    unknown = listed is None and not ignored
    left_out = "unknown" if unknown else "skipped" if skipped else "none"
    return {"names": names, "total": total, "unread": unread, "late": late, "ignored": left_out}


class _Listed:
    """The regular files below a folder that ripgrep would search, and the folders that contain any of them."""

    def __init__(self, files: list[str]) -> None:
        self.files = frozenset(files)
        self.folders = {""}
        for name in files:
            while (name := name.rpartition("/")[0]) not in self.folders:
                self.folders.add(name)

    @classmethod
    def below(cls, root: str, seconds: float) -> "_Listed | None":
        """Return the files below `root`; None if ripgrep is missing or cannot list them in time."""
        from sandbox.inside.files import ripgrep
        from sandbox.inside.files.grep import SearchQuery

        program = ripgrep.program()
        found = ripgrep.relative_files(SearchQuery("", root, seconds=seconds), program) if program else None
        return None if found is None else cls(found)


def _links(scanned: "Iterable[os.DirEntry[str]]") -> list[os.DirEntry[str]] | None:
    """Return the entries of a folder in which ripgrep lists no file, or None if it contains files or folders: then Git
    ignores them. Ripgrep lists no links.
    """
    entries = [entry for entry in scanned if entry.name != SKIPPED]
    others = (entry.is_dir(follow_symlinks=False) or entry.is_file(follow_symlinks=False) for entry in entries)
    return None if any(others) else entries


def _changed(entry: os.DirEntry[str]) -> int:
    try:
        return entry.stat(follow_symlinks=False).st_mtime_ns
    except OSError:  # the file was removed, and is sorted last
        return 0
