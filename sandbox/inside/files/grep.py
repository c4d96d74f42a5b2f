"""Search of file contents without ripgrep, used if ripgrep is absent. Runs confined: standard library only."""

import os
import stat

from sandbox.inside.files.access import Refused, is_binary, read_capped, show
from sandbox.inside.files.match import SKIPPED, GlobPattern

LINE_CAP = 500  # characters of one line
TEXT_CAP = 1_000_000  # characters of one answer

TYPE_CHECKING = False  # the name is what type checkers know; typing itself would double the import
if TYPE_CHECKING:
    import re
    from collections.abc import Iterator
    from types import FrameType


class SearchQuery:
    """The parameters of a search. `glob` is a filter like gitignore: `*.py`, `src/**`, `!*.min.js`."""

    def __init__(
        self,
        pattern: str,
        root: str,
        glob: str | None = None,
        ignore_case: bool = False,
        files_only: bool = False,
        context: int = 0,
        limit: int = 200,
        seconds: float = 20.0,
    ) -> None:
        self.pattern, self.root, self.glob = pattern, root, glob
        self.ignore_case, self.files_only, self.context = ignore_case, files_only, context
        self.limit, self.seconds = limit, seconds


class SearchResult:
    """The matches, file by file, in the order of the search: [path, [[line number, is a match, text], ...]]."""

    def __init__(self) -> None:
        self.files: list[tuple[str, list[tuple[int, bool, str]]]] = []
        self.count = 0  # matching lines; files if only files were requested
        self.unread = 0  # files and folders that could not be read
        self.limited = False  # True if there are more matches than requested or than the answer holds
        self.late = False  # True if the time was up
        self._room = TEXT_CAP

    def line(self, path: str, number: int, matches: bool, text: str) -> bool:
        """Add one line. Return False if the answer is full."""
        if len(text) > LINE_CAP:
            text = f"{text[:LINE_CAP]} [...]"
        self._room -= len(text) + 8
        if self._room < 0:
            self.limited = True
            return False
        if not self.files or self.files[-1][0] != path:
            self.files.append((path, []))
        self.files[-1][1].append((number, matches, text))
        return True


class Late(Exception):
    """The error for a search whose time is up."""


class TimeLimit:
    """A time limit: `with TimeLimit(seconds):` raises Late at the limit, even inside an endless regular expression."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._set = False

    def __enter__(self) -> None:
        import signal

        try:
            self._before = signal.signal(signal.SIGALRM, _ring)
        except ValueError:
            return  # signals need the main thread; in other threads only the wall limit of the caller holds
        self._set = True
        signal.setitimer(signal.ITIMER_REAL, self._seconds)

    def __exit__(self, *_: object) -> None:
        import signal

        if self._set:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, self._before)


def _ring(number: int, frame: "FrameType | None") -> None:
    raise Late


def compiled(query: SearchQuery) -> "re.Pattern[str] | str":
    """Return the pattern compiled by Python, or the reason why it is invalid, in words."""
    import re
    import warnings

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a warning about future Python versions does not matter to a search
            return re.compile(query.pattern, re.IGNORECASE if query.ignore_case else 0)
    except (re.error, OverflowError, RecursionError) as error:
        where = getattr(error, "pos", None)
        words = str(getattr(error, "msg", None) or "it is too large")
        return words if where is None else f"{words} at character {where + 1}"


def search(query: SearchQuery, regex: "re.Pattern[str]", paths: list[str] | None = None) -> SearchResult:
    """Search with Python's regular expressions in `paths`, or in all files but binary ones and those below `.git`."""
    result = SearchResult()
    try:
        with TimeLimit(query.seconds):
            for path in _files(query, result) if paths is None else paths:
                if not _search_one(path, show(path), regex, query, result):
                    break
    except Late:
        result.late = True
    return result


def _files(query: SearchQuery, result: SearchResult) -> "Iterator[str]":
    """Return the files to search, in the order of their names."""
    if not os.path.isdir(query.root):
        yield query.root
        return
    negated = (query.glob or "").startswith("!")
    glob = filter_of((query.glob or "").removeprefix("!")) if query.glob else None
    todo = [""]
    while todo:
        relative = todo.pop()
        path = os.path.join(query.root, relative) if relative else query.root
        if not relative or relative.endswith("/"):
            try:
                with os.scandir(path) as entries:
                    listed = [entry for entry in entries if entry.name != SKIPPED]
                    below = [f"{relative}{entry.name}{'/' * entry.is_dir(follow_symlinks=False)}" for entry in listed]
            except OSError:
                result.unread += 1  # the folder is protected, or was removed
                continue
            if negated and glob:
                below = [name for name in below if not glob.matches(name.rstrip("/"))]
            todo += sorted(below, key=os.fsencode, reverse=True)
        elif glob is None or glob.matches(relative) != negated:
            yield path


def filter_of(glob: str) -> GlobPattern:
    """Return a filter like gitignore: without a slash it matches files at any depth, with a slash it starts at the
    root.
    """
    return GlobPattern(glob if "/" in glob.rstrip("/") else f"**/{glob}")


def _search_one(path: str, label: str, regex: "re.Pattern[str]", query: SearchQuery, result: SearchResult) -> bool:
    """Search one file. Return False if the answer is full."""
    try:
        if not stat.S_ISREG(os.stat(path, follow_symlinks=path == query.root).st_mode):
            return True
        content, _ = read_capped(path, "cannot search")
    except (Refused, OSError):
        result.unread += 1
        return True
    if is_binary(content):
        return True
    lines = content.decode("utf-8", "replace").split("\n")
    if lines[-1] == "":
        lines.pop()
    printed = 0  # number of the last line of this file that is in the answer already
    for index, line in enumerate(lines):
        if not regex.search(line.removesuffix("\r")):
            continue
        if result.count == query.limit:
            result.limited = True
            return False
        result.count += 1
        if query.files_only:
            result.files.append((label, []))
            return True
        for near in range(max(printed, index - query.context), min(len(lines), index + query.context + 1)):
            matches = near == index or (near > index and regex.search(lines[near].removesuffix("\r")) is not None)
            if matches and near > index:
                break  # the next match is counted and added in its own turn
            if not result.line(label, near + 1, matches, lines[near].removesuffix("\r")):
                return False
            printed = near + 1
    return True
