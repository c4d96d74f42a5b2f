"""Secret paths: matches resolved paths against the lists of the profile, and finds folders that would show a secret
path.
"""

import unicodedata
from collections.abc import Iterable
from functools import lru_cache
from itertools import accumulate
from typing import Any

from policy.model.frozen import dataclass, field, replace
from policy.model.glob import glob
from policy.model.profile import Profile
from policy.model.secret_names import originals

# Folders that mostly contain other files: creating or removing them is ordinary work, and the sandbox protects the
# locked files in them.
_MIXED = (".config", ".github")

_MOST_KEPT = 1 << 11  # paths for each question, each path of at most PATH_MAX bytes


@dataclass(frozen=True, slots=True)
class Secrets:
    """The secret paths, which no mode allows. Paths passed to the methods are absolute and real.

    `home` is the real home folder, `private` is this program's own state and configuration. In the patterns of the
    profile, `*` and `?` match within one name; all other characters are literal. Matching ignores case on every system,
    because some file systems do, and the cost of a false match is small.
    """

    profile: Profile
    home: str
    private: tuple[str, ...]
    _index: "_Index" = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        of = (self.home, self.private)
        index = next((each for each in _latest if each.of[1:] == of and _same_lists(each.of[0], self.profile)), None)
        if index is None:
            index = _sort(self.profile, self.home, self.private)
            _latest[:] = [index, *_latest[: _MOST_INDEXES - 1]]
        object.__setattr__(self, "_index", index)

    def __hash__(self) -> int:
        return hash((self.home, self.private))  # the profile is slow to hash, and nearly always the same

    def holds(self, path: str) -> bool:
        """Return True if `path` is secret, or is inside a secret folder."""
        return self.holds_folder(path) or self.named(path)

    def holds_folder(self, path: str) -> bool:
        """Return True if `path` is one of the listed secret paths, or is inside one. The patterns of file names
        (`secret_names`) are not examined.
        """
        return _in_listed_path(self._index, path)

    def named(self, path: str) -> bool:
        """Return True if the last name of `path`, alone or with the name of its folder, makes the path secret anywhere.

        The copy that an editor makes of such a file (`.env~`, `.server.key.swp`) is secret too, and the copy of a file
        that is not secret (`.env.example.bak`) is not.
        """
        return _named(self._index, path)

    def names_secret(self, path: str) -> bool:
        """Return True if `named` is true of `path` or of a folder on it. The path may be relative."""
        return _names_secret(self._index, path)

    def exposed_by(self, path: str) -> bool:
        """Return True if access to all of `path` would show a secret path: `path` is `/`, the home folder or a folder
        above the home folder, or `path` is or contains a listed secret path.
        """
        return _exposes(self._index, path)

    def locked_in(self, path: str, workspace: str) -> bool:
        """Return True if `path` is or is inside a locked path of `workspace` or of any folder in it, which may be a
        nested repository. Other programs run the files at locked paths without being asked.
        """
        if not inside(path, workspace):
            return False
        return _in_locked_path(self._index, path[len(workspace.rstrip("/")) :])

    def above_locked_in(self, path: str, workspace: str) -> bool:
        """Return True if `path` may be a folder that contains a locked path of `workspace`, so that removing the folder
        removes the locked path.
        """
        return path.startswith(f"{workspace}/") and _above_locked_path(self._index, path[len(workspace) + 1 :])

    def runs_from_home(self, path: str) -> bool:
        """Return True if `path` is at a place of the home folder where a locked path would be in a workspace: programs
        of the user run such files, among them the settings, hooks and skills of other agents.
        """
        index = self._index
        below = _below_home(index, _words(path)) if index.home else []
        return bool(below) and _locked_at(index, below, 0)


def paired(patterns: tuple[str, ...]) -> dict[str, tuple[str, ...]]:
    """Return the NAMEs of all `patterns` of the form `FOLDER/NAME`, by their FOLDER."""
    found: dict[str, tuple[str, ...]] = {}
    for folder, name in (pattern.split("/") for pattern in patterns if "/" in pattern.strip("/")):
        found[folder] = (*found.get(folder, ()), name)
    return found


def inside(path: str, root: str) -> bool:
    """Return True if `path` is `root` or is below it. Both paths are absolute."""
    return path == root or path.startswith(root.rstrip("/") + "/")


def normal(path: str) -> str:
    """Return `path` as an absolute path in which `..` has removed the name before it, even if that is a link."""
    parts: list[str] = []
    for part in path.split("/"):
        if part == "..":
            del parts[-1:]
        elif part not in ("", "."):
            parts.append(part)
    return "/" + "/".join(parts)


def folded(text: str) -> str:
    """Return one spelling for all names that a case-insensitive file system treats as the same name.

    THREAT: `.git` with an invisible character in it, or with a Kelvin sign for a k, is the same name on such a
    file system.
    """
    if text.isascii():
        return text.lower()
    return "".join(char for char in text if unicodedata.category(char) != "Cf").casefold()


@dataclass(frozen=True, slots=True)
class NamePatterns:
    """Patterns of file names, indexed so that nearly every name costs four look-ups.

    Attributes:
        exact: the names without a wildcard.
        ends: the ends of the patterns like `*.pem`.
        starts: the beginnings of the patterns like `id_rsa*`.
        others: the other patterns.
        pieces: the longest literal piece of each of `others`, without which none of them matches.
    """

    exact: frozenset[str]
    ends: tuple[str, ...]
    starts: tuple[str, ...]
    others: tuple[str, ...]
    pieces: tuple[str, ...]

    def hold(self, name: str) -> bool:
        if name in self.exact or name.endswith(self.ends) or name.startswith(self.starts):
            return True
        return any(
            piece in name and glob(name, pattern) for piece, pattern in zip(self.pieces, self.others, strict=True)
        )


def name_patterns(patterns: tuple[str, ...]) -> NamePatterns:
    """Return the index of `patterns`, in which `*` and `?` match within a name."""
    wild = [pattern for pattern in patterns if _wild(pattern)]
    ends = [pattern for pattern in wild if pattern[0] == "*" and not _wild(pattern[1:])]
    starts = [pattern for pattern in wild if pattern[-1] == "*" and not _wild(pattern[:-1])]
    others = tuple(pattern for pattern in wild if pattern not in ends and pattern not in starts)
    return NamePatterns(
        exact=frozenset(pattern for pattern in patterns if not _wild(pattern)),
        ends=tuple(pattern[1:] for pattern in ends),
        starts=tuple(pattern[:-1] for pattern in starts),
        others=others,
        pieces=tuple(max(pattern.replace("?", "*").split("*"), key=len) for pattern in others),
    )


@dataclass(frozen=True, slots=True, eq=False)
class _Index:
    """The path lists, indexed for look-up: most entries are literal and cost one look-up in a set. Two indexes are
    equal only if they are one object, so that answers can be kept by index and path.

    Attributes:
        places: literal secret paths without the leading `/`.
        above: the folders above `places`, and `places` themselves.
        tops: the first names of `places`.
        patterns: secret paths with `*` or `?`, as names, by first name; "" for those that start with a pattern.
        home: the names on the path of the home folder, folded.
        home_patterns: the same as `patterns` below the home folder.
        locked: the locked paths, by first name in the same way.
        above_locked: the folders above the locked paths, but not those of `_MIXED`, spelled as in the profile.
        locked_wild: the first names of those that start with a pattern.
    """

    of: tuple[Profile, str, tuple[str, ...]]
    places: frozenset[str]
    tops: frozenset[str]
    above: frozenset[str]
    patterns: dict[str, list[list[str]]]
    home: list[str]
    home_patterns: dict[str, list[list[str]]]
    locked: dict[str, list[list[str]]]
    locked_wild: NamePatterns
    above_locked: frozenset[str]
    secret: NamePatterns
    pairs: dict[str, NamePatterns]  # by the name of their folder
    public: NamePatterns


# A cache of the last indexes, since hashing a profile takes longer than most look-ups. A decision needs two of them,
# with and without the folders of this program.
_latest: list[_Index] = []
_MOST_INDEXES = 3
_LISTS = ("secret_home", "secret_paths", "secret_names", "public_names", "locked", "personal")


def _same_lists(one: Profile, other: Profile) -> bool:
    """Return True if both profiles have the same lists of paths. A copy of a profile with another rule has them (the
    near misses of a grant are evaluated with ten such copies), and so have settings that were read again, mostly.
    """
    return one is other or all(
        getattr(one, name) is getattr(other, name) or getattr(one, name) == getattr(other, name) for name in _LISTS
    )


def _sort(profile: Profile, home: str, private: tuple[str, ...]) -> _Index:
    listed = [*(f"{home}/{entry}" for entry in profile.secret_home if not _wild(entry)), *private]
    places = [_words(path) for path in (*listed, *(path for path in profile.secret_paths if not _wild(path)))]
    where: dict[str, Any] = {
        "of": (profile, home, private),
        "places": frozenset("/".join(words) for words in places),
        "tops": frozenset(words[0] for words in places if words),
        "above": frozenset(_folders("/".join(words) for words in places)),
        "home": _words(home),
    }
    for known in _latest:
        if _same_lists(known.of[0], profile):  # the other lists depend on the profile alone
            return replace(known, **where)
    locked = _by_first((*profile.locked, *profile.personal))
    return _Index(
        **where,
        patterns=_by_first(path for path in profile.secret_paths if _wild(path)),
        home_patterns=_by_first(entry for entry in profile.secret_home if _wild(entry)),
        locked=locked,
        locked_wild=name_patterns(tuple(words[0] for words in locked.get("", ()))),
        above_locked=frozenset(
            "/".join(parts[:count])
            for parts in (entry.strip("/").split("/") for entry in profile.locked)
            for count in range(1, len(parts))
            if parts[0] not in _MIXED
        ),
        secret=name_patterns(tuple(folded(name) for name in profile.secret_names if "/" not in name)),
        pairs={
            folder: name_patterns(names) for folder, names in paired(tuple(map(folded, profile.secret_names))).items()
        },
        public=name_patterns(tuple(map(folded, profile.public_names))),
    )


# A session names the same paths again and again, so the answers of the next six functions are kept.


@lru_cache(maxsize=_MOST_KEPT)
def _exposes(index: _Index, path: str) -> bool:
    words = _words(path)
    if words == index.home[: len(words)] or "/".join(words) in index.above:
        return True
    return any(len(part) <= len(place) and _begin(part, place) for part, place in _patterns(index, words))


@lru_cache(maxsize=_MOST_KEPT)
def _in_listed_path(index: _Index, path: str) -> bool:
    words = _words(path)
    if words and words[0] in index.tops:
        folders = accumulate(words, lambda folder, name: f"{folder}/{name}")
        if any(folder in index.places for folder in folders):
            return True
    return any(len(place) <= len(part) and _begin(part, place) for part, place in _patterns(index, words))


@lru_cache(maxsize=_MOST_KEPT)
def _named(index: _Index, path: str) -> bool:
    folder, _, name = folded(path.rstrip("/")).rpartition("/")
    names, below = index.secret, index.pairs.get(folder.rpartition("/")[2])
    every = (name, *originals(name))
    held = any(names.hold(each) or (below is not None and below.hold(each)) for each in every)
    return held and not any(map(index.public.hold, every))


@lru_cache(maxsize=_MOST_KEPT)
def _names_secret(index: _Index, path: str) -> bool:
    parts = [part for part in path.split("/") if part]
    return any(_named(index, f"{above}/{part}") for above, part in zip(("", *parts), parts, strict=False))


@lru_cache(maxsize=_MOST_KEPT)
def _in_locked_path(index: _Index, below: str) -> bool:
    """Return True if the path `below` a workspace is or is inside a locked path of any folder on it."""
    words = _words(below)
    return any(_locked_at(index, words, start) for start in range(len(words)))


@lru_cache(maxsize=_MOST_KEPT)
def _above_locked_path(index: _Index, below: str) -> bool:
    names = below.split("/")
    return any("/".join(names[start:]) in index.above_locked for start in range(len(names)))


def _locked_at(index: _Index, words: list[str], start: int) -> bool:
    """Return True if a locked path begins at `words[start]`."""
    patterns = index.locked.get(words[start], [])
    if index.locked_wild.hold(words[start]):
        patterns = [*patterns, *index.locked.get("", ())]
    below = words[start:]
    return any(len(pattern) <= len(below) and _begin(below, pattern) for pattern in patterns)


def _below_home(index: _Index, words: list[str]) -> list[str]:
    """Return the names of the path `words` below the home folder; empty for a path elsewhere."""
    depth = len(index.home)
    return words[depth:] if words[:depth] == index.home else []


def _patterns(index: _Index, words: list[str]) -> list[tuple[list[str], list[str]]]:
    """Return every pattern with a wildcard that may match, with the part of the path `words` that the pattern is
    compared with.
    """
    found = []
    if words:
        found = [(words, place) for place in (*index.patterns.get(words[0], ()), *index.patterns.get("", ()))]
    if below := _below_home(index, words):
        places = index.home_patterns
        found += [(below, place) for place in (*places.get(below[0], ()), *places.get("", ()))]
    return found


def _folders(places: Iterable[str]) -> set[str]:
    """Return the places and all folders above them, without the top one."""
    found: set[str] = set()
    for place in places:
        at = place
        while at and at not in found:
            found.add(at)
            at = at.rpartition("/")[0]
    return found


def _by_first(paths: Iterable[str]) -> dict[str, list[list[str]]]:
    found: dict[str, list[list[str]]] = {}
    for words in map(_words, paths):
        found.setdefault("" if _wild(words[0]) else words[0], []).append(words)
    return found


def _begin(words: list[str], pattern: list[str]) -> bool:
    """Return True if the first names of both match, as many as the shorter one has."""
    return all(map(_fits, words, pattern))


def _fits(name: str, pattern: str) -> bool:
    return name == pattern or (_wild(pattern) and glob(name, pattern))


def _wild(text: str) -> bool:
    return "*" in text or "?" in text


def _words(path: str) -> list[str]:
    """Return the names on a path, folded for comparison."""
    return [word for word in folded(path).split("/") if word]
