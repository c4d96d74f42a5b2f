"""The files that Git ignores by gitignore(5), determined without running Git. Files that Git tracks are never ignored.

THREAT T120: a command may have written these lists to keep the runner busy. Each list is compiled once, lines without
wildcards are looked up in a table, and the lists, their lines and all comparisons together are limited. Beyond a limit
nothing is ignored: showing a file that Git ignores is better than hiding one that Git does not ignore.
"""

import contextlib
import os
import re
from collections.abc import Callable, Iterator
from functools import lru_cache

from policy.model.frozen import dataclass
from runner.changes.review.tree_diff import never
from runner.facts.git.index import index_entries
from runner.facts.git.objects import Unreadable
from runner.text.sanitize import visible

_LONGEST = 1 << 20  # bytes of one list
_LONGEST_LINE = 4096  # bytes: the longest path, path_resolution(7)
_MOST_LINES = 10_000  # of one list
_MOST_WILD = 200_000  # bytes of lines with wildcards, of all lists together: each line is compiled and stays in memory
_SPECIAL = re.compile(r"[*?\[\\]")
_INDEX = 128 << 20  # bytes of an index
_NAMES = 256 << 20  # bytes of all paths in an index: version 4 stores a long path in a few bytes
_MOST_TRIES = 5_000_000  # comparisons of a name of a path with a name of a pattern, for all paths together


@dataclass(frozen=True, slots=True)
class _Pattern:
    """One line of a list.

    Attributes:
        words: The names of a path below the folder of the list, as patterns.
        anywhere: True if the pattern matches at any depth.
        back: True if the line starts with `!` and reverts an earlier one.
        folders: True if the line matches folders only.
    """

    words: tuple[str, ...]
    anywhere: bool
    back: bool
    folders: bool

    @property
    def literal(self) -> str | None:
        """Return the only name or path that the pattern matches, or None if it has wildcards."""
        return None if any(_SPECIAL.search(word) for word in self.words) else "/".join(self.words)


@dataclass(frozen=True, slots=True)
class _Wild:
    """A pattern with wildcards.

    Attributes:
        line: The number of its line.
        parts: The compiled patterns of the names of a path; None matches any number of names.
        pattern: The line itself.
    """

    line: int
    parts: "tuple[re.Pattern[str] | None, ...]"
    pattern: _Pattern

    @property
    def simple(self) -> "re.Pattern[str] | None":
        """Return the pattern of the name if it matches at any depth, else None."""
        return self.parts[1] if len(self.parts) == 2 and self.parts[0] is None else None

    def fits(self, names: list[str]) -> bool:
        """Return True if the pattern matches. Uses a table, so that no pattern takes exponential time."""
        if self.simple is not None:
            return self.simple.match(names[-1]) is not None
        ends = {0}  # the possible numbers of names that the parts so far match
        for number, part in enumerate(self.parts):
            if part is None:
                last = number == len(self.parts) - 1  # at the end, `**` matches at least one name
                ends = set(range(min(ends) + last, len(names) + 1)) if ends else ends
            else:
                ends = {end + 1 for end in ends if end < len(names) and part.match(names[end])}
        return len(names) in ends


def _pattern(line: str) -> _Pattern | None:
    """Parse one line. Return None for a line without a pattern."""
    if not line.strip() or line.startswith("#"):
        return None
    # Blanks at the end do not count unless a backslash stands before them.
    stripped = line.rstrip(" ")
    slashes = len(stripped) - len(stripped.rstrip("\\"))
    line = stripped + (" " if slashes % 2 and len(stripped) < len(line) else "")
    back = line.startswith("!")
    line = line[1:] if back else line
    folders = line.endswith("/")
    line = line[:-1] if folders else line
    if not line:
        return None
    words = _words(line.removeprefix("/"))
    return None if words is None else _Pattern(tuple(words), "/" not in line, back, folders)


def _parts(pattern: _Pattern) -> "tuple[re.Pattern[str] | None, ...] | None":
    """Compile the names of a pattern. Return None if it matches nothing."""
    parts: list[re.Pattern[str] | None] = [None] if pattern.anywhere else []
    for word in pattern.words:
        if word == "**" and len(pattern.words) > 1:
            if not parts or parts[-1] is not None:
                parts.append(None)
            continue
        found = _regex(word)
        if found is None:
            return None
        parts.append(found)
    return tuple(parts)


def _words(line: str) -> list[str] | None:
    """Split a pattern into names. A slash ends a name, escaped or not, except in a character set. Return None if it
    matches nothing.
    """
    words, at = [""], 0
    while at < len(line):
        end = at + 1
        if line[at] == "[":
            part, end = _bracket(line, at)
            if part is None:
                return None
        elif line[at] == "\\":
            at += line[at + 1 : at + 2] == "/"
            end = at + 1 if line[at] == "/" else at + 2
        if line[at] == "/":
            words.append("")
        else:
            words[-1] += line[at:end]
        at = end
    return words


@lru_cache(maxsize=4096)
def _regex(word: str) -> "re.Pattern[str] | None":
    """Compile the pattern of one name to a regular expression. Return None if it matches nothing."""
    pieces: list[str] = [""]  # between stars
    at = 0
    while at < len(word):
        char = word[at]
        if char == "*":
            if pieces[-1] or len(pieces) == 1:  # several stars in a row are equal to one
                pieces.append("")
            at += 1
            continue
        if char == "[":
            part, at = _bracket(word, at)
            if part is None:
                return None
            pieces[-1] += part
            continue
        if char == "\\":
            at += 1
            if at >= len(word):
                return None
        pieces[-1] += "." if char == "?" else re.escape(word[at])
        at += 1
    # While another star follows, the first match of a piece is sufficient. Atomic groups prevent backtracking.
    middle = "".join(f"(?>.*?{piece})" for piece in pieces[1:-1])
    last = f".*{pieces[-1]}" if len(pieces) > 1 else ""
    return re.compile(pieces[0] + middle + last + r"\Z", re.DOTALL)


_CLASSES = {
    "alnum": "0-9A-Za-z", "alpha": "A-Za-z", "blank": r" \t", "cntrl": r"\x00-\x1f\x7f", "digit": "0-9",
    "graph": "!-~", "lower": "a-z", "print": " -~", "punct": r"!-/:-@\[-`{-~", "space": r"\s", "upper": "A-Z",
    "xdigit": "0-9A-Fa-f",
}  # fmt: skip


def _bracket(line: str, at: int) -> tuple[str | None, int]:
    """Return the regular expression of a character set, and the position of its end."""
    end = at + 1
    negated = line[end : end + 1] in ("!", "^")
    end += negated
    parts: list[str] = []
    first = True
    while end < len(line) and (first or line[end] != "]"):
        first = False
        if line.startswith("[:", end) and (close := line.find(":]", end)) > 0:
            name = line[end + 2 : close]
            if name not in _CLASSES:
                return None, end
            parts.append(_CLASSES[name])
            end = close + 2
            continue
        low, end = _one(line, end)
        if low is None:
            return None, end
        if line[end : end + 1] == "-" and line[end + 1 : end + 2] not in ("", "]"):
            high, end = _one(line, end + 1)
            if high is None:
                return None, end
            if low <= high:
                parts.append(f"{re.escape(low)}-{re.escape(high)}")
            continue
        parts.append(re.escape(low))
    if end >= len(line):
        return None, end
    inner = "".join(parts)
    if negated:
        return (f"[^{inner}]" if inner else "."), end + 1
    return (f"[{inner}]" if inner else "(?!)"), end + 1


def _one(line: str, at: int) -> tuple[str | None, int]:
    if line[at] == "\\":
        at += 1
        if at >= len(line):
            return None, at
    return line[at], at + 1


class _List:
    """The compiled lines of one list. A line without wildcards is stored in a table, the last one for each name or
    path.
    """

    __slots__ = ("paths", "size", "wild")

    def __init__(self, lines: list[str], most: int) -> None:
        """Compile `lines`. Raise _TooMuch if the lines with wildcards have more than `most` bytes."""
        # By (at any depth, for a folder) and the name or path: the number of its line, and True if it starts with `!`.
        self.paths: dict[tuple[bool, bool], dict[str, tuple[int, bool]]] = {
            (anywhere, folder): {} for anywhere in (False, True) for folder in (False, True)
        }
        self.wild: list[_Wild] = []  # the last line first
        left = most
        for number, line in enumerate(lines):
            pattern = _pattern(line)
            if pattern is None:
                continue
            if (literal := pattern.literal) is not None:
                self.paths[pattern.anywhere, True][literal] = number, pattern.back
                if not pattern.folders:
                    self.paths[pattern.anywhere, False][literal] = number, pattern.back
                continue
            left -= len(line)
            if left < 0:
                raise _TooMuch("there are too many lines with wildcards in all lists")
            if (parts := _parts(pattern)) is not None:
                self.wild.append(_Wild(number, parts, pattern))
        self.wild.reverse()
        self.size = most - left

    def verdict(self, path: str, folder: bool) -> tuple[bool | None, int]:
        """Return the verdict of the last line that matches a path below this list, and the number of comparisons made.

        The verdict is True for an ignored path, False if the line starts with `!`, None if no line matches.
        """
        names = path.split("/")
        last, back = max(
            self.paths[False, folder].get(path, (-1, False)), self.paths[True, folder].get(names[-1], (-1, False))
        )
        tried = 0
        for wild in self.wild:
            if wild.line < last:
                break
            tried += len(wild.parts) * (1 if wild.simple else len(names))
            if (folder or not wild.pattern.folders) and wild.fits(names):
                return not wild.pattern.back, tried
        return (None if last < 0 else not back), tried


class _TooMuch(Exception):
    """An error for a list beyond a limit. The text names the limit."""


class Ignored:
    """A function that returns True for ignored paths of a tree.

    Attributes:
        unread: Lists beyond a limit, with the reason. Below the folder of such a list, only lists in deeper folders
            apply, unless the folder itself is ignored.
        gave_up: The reason why nothing was ignored from some path on, or an empty string.
    """

    def __init__(
        self,
        read: Callable[[str], bytes | None],
        kept: frozenset[str] = frozenset(),
        first: tuple[bytes, ...] = (),
        over: Callable[[], bool] = never,
    ) -> None:
        """`read(path)` returns the content of a file below the top, or None if there is none. `kept` are the paths that
        Git tracks. `first` are further lists for the whole tree, those with the lowest priority first. `over()` returns
        True when the time is up.
        """
        self.unread: dict[str, str] = {}
        self.gave_up = ""
        self._read = read
        self._kept = kept
        self._over = over
        self._wild = _MOST_WILD
        self._tries = _MOST_TRIES
        self._first = [self._compiled("a list for the whole tree", each) for each in first]
        self._lists: dict[str, _List | None] = {}
        self._folders: dict[str, bool] = {"": False}

    @property
    def bounds(self) -> Iterator[str]:
        """Yield a sentence for each limit that was reached."""
        if self.unread:
            path, why = next(iter(self.unread.items()))
            more = f" (and {len(self.unread) - 1:,} more lists)" if len(self.unread) > 1 else ""
            yield f"files that Git ignores by `{visible(path, lines=False)}`{more} are not excluded: {why}"
        if self.gave_up:
            yield f"not all files that Git ignores are excluded: {self.gave_up}"

    def __call__(self, path: str) -> bool:
        """Return True if the file, link, or folder (with a `/` at its end) at `path` is ignored."""
        if path in self._kept:
            return False
        if path.endswith("/"):
            return self._folder(path[:-1])
        return self._folder(os.path.dirname(path)) or self._matched(path, False)

    def _folder(self, path: str) -> bool:
        if path not in self._folders:
            self._folders[path] = self._folder(os.path.dirname(path)) or self._matched(path, True)
        return self._folders[path]

    def _matched(self, path: str, folder: bool) -> bool:
        """Return the verdict of the last matching pattern in the nearest list that has one."""
        if self._over():
            self.gave_up = "the time limit was reached"
        above = path
        while above and not self.gave_up:
            above = os.path.dirname(above)
            below = path[len(above) + 1 :] if above else path
            if above not in self._lists:
                place = f"{above}/.gitignore" if above else ".gitignore"
                self._lists[above] = self._compiled(place, self._read(place) or b"")
            if (found := self._checked_verdict(self._lists[above], below, folder)) is not None:
                return found
        for each in reversed(self._first):
            if self.gave_up:
                break
            if (found := self._checked_verdict(each, path, folder)) is not None:
                return found
        return False

    def _checked_verdict(self, rules: _List | None, path: str, folder: bool) -> bool | None:
        if rules is None:
            return False
        # One character for each byte, since Git compares bytes.
        found, tried = rules.verdict(os.fsencode(path).decode("latin-1"), folder)
        self._tries -= tried
        if self._tries < 0:
            self.gave_up = "the lists take too long to read"
        return found

    def _compiled(self, path: str, data: bytes) -> _List | None:
        try:
            found = _List(_lines(data), self._wild)
        except _TooMuch as error:
            self.unread[path] = str(error)
            return None
        self._wild -= found.size
        return found


def _lines(data: bytes) -> list[str]:
    """Return the lines of a list. Raise _TooMuch."""
    if len(data) > _LONGEST:
        raise _TooMuch(f"it has more than {_LONGEST:,} bytes")
    if data.count(b"\n") >= _MOST_LINES:
        raise _TooMuch(f"it has more than {_MOST_LINES:,} lines")
    lines = data.removeprefix(b"\xef\xbb\xbf").decode("latin-1").split("\n")
    if any(len(line) > _LONGEST_LINE for line in lines):
        raise _TooMuch(f"it has a line of more than {_LONGEST_LINE:,} bytes")
    return [line.removesuffix("\r") for line in lines]


def kept_by_git(index: bytes | None) -> frozenset[str]:
    """Return the paths in Git's index, or an empty set if it cannot be read with certainty."""
    if not index or len(index) > _INDEX:
        return frozenset()
    for id_bytes in (20, 32):
        names: list[bytes] = []
        room = _NAMES
        with contextlib.suppress(Unreadable):
            for entry in index_entries(index, id_bytes=id_bytes):
                room -= len(entry.name)
                if room < 0 or not entry.name:
                    break
                names.append(entry.name)
            else:
                return frozenset(map(os.fsdecode, names))
    return frozenset()
