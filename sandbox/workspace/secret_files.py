"""The names and the content by which a file of the workspace is secret."""

import fnmatch
import re
from collections.abc import Callable
from functools import lru_cache

from policy.model.secret_names import MOST, holds_login, originals, sometimes
from policy.model.secret_paths import paired
from sandbox.inside.regular_file import NotRegularError, open_regular, read_descriptor


@lru_cache(maxsize=16)
def plain_names(hidden: tuple[str, ...]) -> tuple[str, ...]:
    """Return the patterns of `hidden` that are names, or `FOLDER/NAME`, at any place."""
    return tuple(name for name in hidden if name[:1] != "/")


@lru_cache(maxsize=16)
def secret_names(names: tuple[str, ...], shown: tuple[str, ...]) -> Callable[[str], bool]:
    """Return a predicate that is True for paths that end in the name of a secret file or of an editor's copy of one.

    A pattern `FOLDER/NAME` counts in folders of that name. Results are cached, because most names of a large tree occur
    many times.
    """
    secret, public = matcher(tuple(name for name in names if "/" not in name)), matcher(shown)
    below = {folder: matcher(patterns) for folder, patterns in paired(tuple(map(str.lower, names))).items()}

    def fits(name: str, hidden: Callable[[str], bool]) -> bool:
        every = (name, *originals(name))
        return any(map(hidden, every)) and not any(map(public, every))

    @lru_cache(maxsize=1 << 16)
    def anywhere(name: str) -> bool:
        return fits(name, secret)

    def matches(path: str) -> bool:
        folder, _, name = path.rpartition("/")
        here = below.get(folder.rpartition("/")[2].lower())
        return anywhere(name) or (here is not None and fits(name, here))

    return matches


def matcher(patterns: tuple[str, ...]) -> Callable[[str], bool]:
    """Return one predicate for all name patterns, ignoring case.

    The policy ignores case too: `grep -r` must not show what `cat .ENV` may not. A regular expression of a hundred
    names takes longer to compile than most commands run, so it is used only for names that need it.
    """
    if not patterns:
        return lambda name: False
    whole, begins, ends, others = set[str](), [], [], []
    for pattern in map(str.lower, patterns):
        plain = pattern.strip("*")
        if not pattern.isascii() or any(c in plain for c in "*?["):
            others.append(pattern)
        elif plain == pattern:
            whole.add(plain)
        elif pattern == f"*{plain}":
            ends.append(plain)
        elif pattern == f"{plain}*":
            begins.append(plain)
        else:
            others.append(pattern)
    first, last = tuple(begins), tuple(ends)
    middle = [_sequence(pattern) for pattern in others if pattern.isascii() and not any(c in pattern for c in "?[")]
    rest = tuple(pattern for pattern in others if not pattern.isascii() or any(c in pattern for c in "?["))

    def matches(name: str) -> bool:
        if not name.isascii():  # some other letters are equal to ASCII letters (`re.IGNORECASE`)
            return expression(patterns)(name)
        name = name.lower()
        if name in whole or name.endswith(last) or name.startswith(first):
            return True
        return any(each(name) for each in middle) or (bool(rest) and expression(rest)(name))

    return matches


def _sequence(pattern: str) -> Callable[[str], bool]:
    """Return a predicate for a pattern whose only wildcard is `*`."""
    first, *inner, last = pattern.split("*")

    def matches(name: str) -> bool:
        if len(name) < len(first) + len(last) or not (name.startswith(first) and name.endswith(last)):
            return False
        at, end = len(first), len(name) - len(last)
        for part in inner:
            at = name.find(part, at, end)
            if at < 0:
                return False
            at += len(part)
        return True

    return matches


@lru_cache(maxsize=16)
def expression(patterns: tuple[str, ...]) -> Callable[[str], bool]:
    matches = re.compile("|".join(fnmatch.translate(pattern) for pattern in patterns), re.IGNORECASE).match
    return lambda name: matches(name) is not None


def login_at(path: str) -> bool:
    """Return True if `path` is a settings file of a kind that may hold a login, and does or cannot be read."""
    name = path.rpartition("/")[2]
    if not sometimes(name):
        return False
    try:
        with open(open_regular(path, follow=True)[0], "rb", buffering=0) as file:
            return holds_login(name, read_descriptor(file.fileno(), MOST + 1))
    except (FileNotFoundError, NotADirectoryError, NotRegularError, ValueError):
        return False
    except OSError:
        return True
