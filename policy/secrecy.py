"""Which paths hold secrets, and which folders would show one: the profile's lists, applied to resolved paths."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from policy.profile import Profile


@dataclass(frozen=True, slots=True)
class Secrets:
    """The floor under every mode. Paths given to it are absolute and real.

    `home` is the real home folder, `private` our own state and configuration. In the profile's patterns `*` and `?`
    match within one name; all else is literal.
    """

    profile: Profile
    home: str
    private: tuple[str, ...]

    def holds(self, path: str) -> bool:
        """`path` is a secret, or lies inside a secret place."""
        return self.holds_folder(path) or self.named(path)

    def holds_folder(self, path: str) -> bool:
        """`path` is one of the secret places, or lies inside one; its own name is not looked at."""
        words, index = _words(path), self._index
        if any("/".join(words[:count]) in index.places for count in range(1, len(words) + 1)):
            return True
        return any(_match(part[: len(place)], place) for part, place in self._patterns(path, words))

    def named(self, path: str) -> bool:
        """The name alone makes it a secret wherever it lies: `.env`, `*.pem`."""
        name = path.rstrip("/").rpartition("/")[2]
        return _among(name, self.profile.secret_names) and not _among(name, self.profile.public_names)

    def exposed_by(self, path: str) -> bool:
        """All of `path` would show a secret place: it is `/`, the home, or a folder above one of them."""
        words, index = _words(path), self._index
        if not words or inside(self.home, path) or "/".join(words) in index.above:
            return True
        return any(_match(part, place[: len(part)]) for part, place in self._patterns(path, words))

    def locked_in(self, path: str, workspace: str) -> bool:
        """`path` in `workspace` is, or lies in, what other programs run by themselves (in a nested repository too)."""
        if not inside(path, workspace):
            return False
        words, locked = _words(path)[len(_words(workspace)) :], self._index.locked
        return any(
            _match(words[start : start + len(pattern)], pattern)
            for start, word in enumerate(words)
            for pattern in (*locked.get(word, ()), *locked.get("", ()))
        )

    def _patterns(self, path: str, words: list[str]) -> Iterator[tuple[list[str], list[str]]]:
        """Every place that holds a `*`, beside the part of the path that it is about."""
        yield from ((words, place) for place in self._index.patterns)
        if inside(path, self.home):
            below = words[len(_words(self.home)) :]
            yield from ((below, place) for place in self._index.home_patterns)

    @property
    def _index(self) -> "_Index":
        return _sort(self.profile, self.home, self.private)


def inside(path: str, root: str) -> bool:
    """`path` is `root` or lies below it. Both are absolute."""
    return path == root or path.startswith(root.rstrip("/") + "/")


@dataclass(frozen=True, slots=True)
class _Index:
    """The lists, sorted for looking up: most entries are literal, and those cost one look into a set.

    `places` and `above` (the folders over them, and they themselves) are without the leading `/`. `patterns` and
    `home_patterns` (from the home on) are the places with `*` or `?`, as names. `locked` is by first name; those that
    start with a pattern are under "".
    """

    places: frozenset[str]
    above: frozenset[str]
    patterns: tuple[list[str], ...]
    home_patterns: tuple[list[str], ...]
    locked: dict[str, list[list[str]]]


@lru_cache(maxsize=8)
def _sort(profile: Profile, home: str, private: tuple[str, ...]) -> _Index:
    listed = [*(f"{home}/{entry}" for entry in profile.secret_home if not _wild(entry)), *private]
    places = [_words(path) for path in (*listed, *(path for path in profile.secret_paths if not _wild(path)))]
    locked: dict[str, list[list[str]]] = {}
    for entry in profile.locked:
        words = _words(entry)
        locked.setdefault("" if _wild(words[0]) else words[0], []).append(words)
    return _Index(
        places=frozenset("/".join(words) for words in places),
        above=frozenset("/".join(words[:count]) for words in places for count in range(1, len(words) + 1)),
        patterns=tuple(_words(path) for path in profile.secret_paths if _wild(path)),
        home_patterns=tuple(_words(entry) for entry in profile.secret_home if _wild(entry)),
        locked=locked,
    )


def _match(words: list[str], pattern: list[str]) -> bool:
    return len(words) == len(pattern) and all(map(_fits, words, pattern))


def _among(name: str, patterns: tuple[str, ...]) -> bool:
    return any(_fits(name, pattern) for pattern in patterns)


def _fits(name: str, pattern: str) -> bool:
    """Nearly every pattern has no `*` or a single one, and is answered without a regular expression: compiling the
    packaged lists would take longer than all decisions of a short run together."""
    if not _wild(pattern):
        return name == pattern
    before, _, after = pattern.partition("*")
    if _wild(before) or _wild(after):
        return _compiled(pattern).fullmatch(name) is not None
    return name.startswith(before) and name.endswith(after) and len(name) >= len(before) + len(after)


@lru_cache(maxsize=256)
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile("".join({"*": ".*", "?": "."}.get(char) or re.escape(char) for char in pattern), re.DOTALL)


def _wild(text: str) -> bool:
    return "*" in text or "?" in text


def _words(path: str) -> list[str]:
    return [word for word in path.split("/") if word]
