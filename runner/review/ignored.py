"""Which files Git would not take up by itself: gitignore(5), read without Git.

No program runs. What Git keeps already is never ignored, whatever a pattern says.
"""

import os
import re
from collections.abc import Callable
from functools import lru_cache

from policy.record import dataclass

_LONGEST = 1 << 20  # bytes of one list
_INDEX = 256 << 20


@dataclass(frozen=True, slots=True)
class _Pattern:
    """One line. `parts`: of a path below its folder, name by name, None for any number of names. `back`: it takes back
    what an earlier line said; `folders`: it is about folders alone."""

    parts: "tuple[re.Pattern[str] | None, ...]"
    back: bool
    folders: bool

    def fits(self, names: list[str]) -> bool:
        """By a table, so that no pattern takes long."""
        ends = {0}  # how many names the parts so far may have taken
        for number, part in enumerate(self.parts):
            if part is None:
                last = number == len(self.parts) - 1  # at the end: something must be in it
                ends = set(range(min(ends) + last, len(names) + 1)) if ends else ends
            else:
                ends = {end + 1 for end in ends if end < len(names) and part.match(names[end])}
        return len(names) in ends


@lru_cache(maxsize=4096)
def _pattern(line: str) -> _Pattern | None:
    """What one line means; None when it is none."""
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
    if words is None:
        return None
    parts: list[re.Pattern[str] | None] = [] if "/" in line else [None]
    for word in words:
        if word == "**" and len(words) > 1:
            if not parts or parts[-1] is not None:
                parts.append(None)
            continue
        found = _regex(word)
        if found is None:
            return None
        parts.append(found)
    return _Pattern(tuple(parts), back, folders)


def _words(line: str) -> list[str] | None:
    """The names of a pattern: a slash ends one, escaped or not, but in a set of characters. None: it fits nothing."""
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


def _regex(word: str) -> "re.Pattern[str] | None":
    """A pattern of one name as a regular expression; None when it matches nothing."""
    pieces: list[str] = [""]  # between stars
    at = 0
    while at < len(word):
        char = word[at]
        if char == "*":
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
    # The first place that fits is as good as any while another star follows: never tried twice, so it takes no time.
    middle = "".join(f"(?>.*?{piece})" for piece in pieces[1:-1])
    last = f".*{pieces[-1]}" if len(pieces) > 1 else ""
    return re.compile(pieces[0] + middle + last + r"\Z", re.DOTALL)


_CLASSES = {
    "alnum": "0-9A-Za-z", "alpha": "A-Za-z", "blank": r" \t", "cntrl": r"\x00-\x1f\x7f", "digit": "0-9",
    "graph": "!-~", "lower": "a-z", "print": " -~", "punct": r"!-/:-@\[-`{-~", "space": r"\s", "upper": "A-Z",
    "xdigit": "0-9A-Fa-f",
}  # fmt: skip


def _bracket(line: str, at: int) -> tuple[str | None, int]:
    """A set of characters as a regular expression, and where it ends."""
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


class Ignored:
    """`read(path)`: the bytes of a file below the top, None when there is none. `kept`: what Git keeps already.
    `first`: further lists for the whole tree, those that count least first."""

    def __init__(
        self, read: Callable[[str], bytes | None], kept: frozenset[str] = frozenset(), first: tuple[bytes, ...] = ()
    ) -> None:
        self._read = read
        self._kept = kept
        self._above = frozenset(os.path.dirname(path) for path in kept)
        self._first = tuple(_lines(each) for each in first)
        self._lists: dict[str, tuple[str, ...]] = {}
        self._folders: dict[str, bool] = {"": False}

    def __call__(self, path: str) -> bool:
        """Whether the file or link at `path` is one; a folder with a `/` at its end."""
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
        """By the last pattern that fits, of the nearest list that has one."""
        above = os.path.dirname(path)
        while True:
            below = path[len(above) + 1 :] if above else path
            names = _names(below)
            if (found := _told(self._list(above), names, folder)) is not None:
                return found
            if not above:
                break
            above = os.path.dirname(above)
        told = (_told(lines, _names(path), folder) for lines in reversed(self._first))
        return next((found for found in told if found is not None), False)

    def _list(self, folder: str) -> tuple[str, ...]:
        if folder not in self._lists:
            data = self._read(f"{folder}/.gitignore" if folder else ".gitignore")
            self._lists[folder] = _lines(data) if data else ()
        return self._lists[folder]


def _told(lines: tuple[str, ...], names: list[str], folder: bool) -> bool | None:
    """What a list says about a path below it; None when it says nothing."""
    for line in reversed(lines):
        pattern = _pattern(line)
        if pattern is not None and (folder or not pattern.folders) and pattern.fits(names):
            return not pattern.back
    return None


def _names(path: str) -> list[str]:
    """A character for each byte, as Git looks at them."""
    return os.fsencode(path).decode("latin-1").split("/")


def _lines(data: bytes) -> tuple[str, ...]:
    text = data[:_LONGEST].removeprefix(b"\xef\xbb\xbf").decode("latin-1")
    return tuple(line.removesuffix("\r") for line in text.split("\n"))


def kept_by_git(index: bytes | None) -> frozenset[str]:
    """The paths in Git's index (gitformat-index(5), versions 2 to 4); none when it cannot be read with certainty."""
    if not index or index[:4] != b"DIRC" or len(index) > _INDEX:
        return frozenset()
    version, count = (int.from_bytes(index[at : at + 4], "big") for at in (4, 8))
    for hash_size in (20, 32):
        found = _entries(index, version, count, hash_size) if 2 <= version <= 4 else None
        if found is not None:
            return frozenset(os.fsdecode(path) for path in found)
    return frozenset()


def _entries(index: bytes, version: int, count: int, hash_size: int) -> list[bytes] | None:
    found: list[bytes] = []
    at, before = 12, b""
    for _ in range(count):
        start = at
        at += 40 + hash_size
        if at + 2 > len(index):
            return None
        flags = int.from_bytes(index[at : at + 2], "big")
        at += 4 if version >= 3 and flags & 0x4000 else 2
        if version == 4:
            drop, at = _varint(index, at)
            if drop > len(before):
                return None
        end = index.find(b"\0", at)
        if end < 0:
            return None
        name = index[at:end]
        if version == 4:
            name = before[: len(before) - drop] + name
            at = end + 1
        else:
            at = start + (end - start + 8) // 8 * 8
        if flags & 0xFFF not in (len(name), 0xFFF) or not name:
            return None  # not this size of hashes
        found.append(name)
        before = name
    return found


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """As in the offsets of pack files (gitformat-pack(5))."""
    byte = data[at] if at < len(data) else 0
    value = byte & 0x7F
    while byte & 0x80:
        at += 1
        byte = data[at] if at < len(data) else 0
        value = ((value + 1) << 7) | (byte & 0x7F)
    return value, at + 1
