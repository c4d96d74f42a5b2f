"""Which programs a repository's own Git settings name for looking at files, and the settings that outrank them.

Git knows no switch for drivers and filters: each has a name of its own, so each is outranked by its name. Read
generously: a name too many costs one more harmless setting.
"""

import os
import re
import stat
from collections.abc import Iterator
from functools import lru_cache

from policy.pattern import pattern
from policy.record import dataclass

# More names than this would not fit into an environment, and nobody uses as many.
_MOST_NAMES = 60
_MOST_FILES = 60
_MOST_REPOSITORIES = 200
_LONGEST_CONFIG = 1 << 20
_LONGEST_INDEX = 1 << 28
_LONGEST_POINTER = 4096

# What stands in for a driver. Git treats an empty command of these kinds as one that failed. Without a place for
# temporary files, which a command that only reads has not, Git reports that and stops before it starts any of them.
_TEXT = 'f() { if [ ! -s "$1" ] || grep -qI "" "$1"; then cat "$1"; else cksum < "$1"; fi; }; f'
_DIFF = (
    'f() { if [ $# -lt 5 ]; then echo "* Unmerged path $1"; '
    'else diff -u --label "a/$1" --label "b/$1" -- "$2" "$5" || :; fi; }; f'
)
# fmt: off
_INSTEAD = {
    "diff":   (("command", _DIFF), ("textconv", _TEXT), ("cachetextconv", "false")),
    "filter": (("process", ""), ("clean", ""), ("smudge", ""), ("required", "false")),
    "merge":  (("driver", "git merge-file -q --marker-size=%L %A %O %B"),),
    "hook":   (("enabled", "false"), ("command", "true")),
}
# fmt: on

# Every place where a header could stand, in comments and values too.
_QUOTED = pattern(r'\[(diff|filter|merge|hook)\s+"((?:[^"\\\n]|\\[^\n])*)"\s*\]', re.IGNORECASE)
_DOTTED = pattern(r"\[(diff|filter|merge|hook)\.([A-Za-z0-9.-]*)\s*\]", re.IGNORECASE)
_INCLUDES = pattern(r"\[include", re.IGNORECASE)
_VALUE = r"[^\S\n]*=((?:[^\n\\]|\\\r?\n|\\.)*)"
_PATH = pattern(rf"(?:^|\])\s*path{_VALUE}", re.IGNORECASE | re.MULTILINE)
_WORKTREE = pattern(rf"(?:^|\])\s*worktree{_VALUE}", re.IGNORECASE | re.MULTILINE)
_ESCAPED = pattern(r"\\(.)", re.DOTALL)
_GITLINK = b"\x00\x00\xe0\x00"  # the mode of an index entry that is another repository


@dataclass(frozen=True, slots=True)
class Drivers:
    """`settings` outrank every program that the repository's settings name for reading files.

    `beyond`: why some of those cannot be outranked, in a user's words; empty when all are.
    """

    settings: tuple[tuple[str, str], ...] = ()
    beyond: str = ""


@dataclass(frozen=True, slots=True)
class _Config:
    names: frozenset[tuple[str, str]] = frozenset()
    external: bool = False
    includes: tuple[str, ...] = ()
    worktrees: tuple[str, ...] = ()


class Beyond(Exception):
    """Some of it cannot be read for certain: why."""


def drivers(workspace: str, home: str) -> Drivers:
    """Look through the settings of the repository at `workspace`, the files they include, and the repositories that its
    index holds, into which Git looks by itself. Never raises."""
    names: set[tuple[str, str]] = set()
    external = False
    try:
        for config in _configs(workspace, home):
            names |= config.names
            external = external or config.external
            if len(names) > _MOST_NAMES:
                raise Beyond("name very many programs")
        settings = [*_settings(names), *([("diff.external", _DIFF)] if external else [])]
    except Beyond as why:
        return Drivers((), str(why))
    return Drivers(tuple(settings))


def _settings(names: set[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    for section, name in sorted(names):
        try:
            name.encode()
        except UnicodeEncodeError:
            raise Beyond("name a program by bytes that are no text") from None
        if "\0" in name or len(name) > _LONGEST_POINTER:
            raise Beyond("name a program by bytes that are no text")
        for key, value in _INSTEAD[section]:
            yield f"{section}.{name}.{key}", value


def _configs(workspace: str, home: str) -> Iterator[_Config]:
    pending, seen = [workspace], set[str]()
    while pending:
        root = _real(pending.pop())
        if root in seen:
            continue
        seen.add(root)
        if len(seen) > _MOST_REPOSITORIES:
            raise Beyond("hold very many other repositories")
        for folder in git_folders(root):
            common = pointed(f"{folder}/commondir", "", folder) or folder
            paths = [f"{common}/config", f"{common}/config.worktree", f"{folder}/config.worktree"]
            for path, config in with_includes(paths, home):
                for place in config.worktrees:
                    # `path` may be an included file, but a relative one counts from the Git folder.
                    if _real(os.path.join(folder, place)) != root:
                        raise Beyond(f"keep the files elsewhere (`worktree` in {os.path.basename(path)})")
                yield config
            pending += [f"{root}/{inner}" for inner in _inner(folder)]


def git_folders(root: str) -> Iterator[str]:
    """Where Git would look for the settings of `root`: `.git`, what it points at, or `root` itself when bare."""
    dot = f"{root}/.git"
    if os.path.isdir(dot):
        yield dot
    elif os.path.lexists(dot):
        named = pointed(dot, "gitdir:", root)
        if named is not None:
            yield named
    if os.path.isfile(f"{root}/HEAD") and os.path.isdir(f"{root}/objects"):
        yield root


def text_of(path: str) -> str:
    """The content of a file of settings; empty when there is none. Raises Beyond where it is no plain file."""
    return (_read(path, _LONGEST_CONFIG) or b"").decode("utf-8", "surrogateescape")


def pointed(path: str, prefix: str, base: str) -> str | None:
    """The path that a one-line file names, relative to `base`."""
    data = _read(path, _LONGEST_POINTER)
    if data is None or not data.startswith(prefix.encode()):
        return None
    target = os.fsdecode(data[len(prefix) :]).strip()
    return _real(os.path.join(base, target)) if target and "\0" not in target else None


def _real(path: str) -> str:
    """`path` without links. Raises Beyond for one that no kernel takes, where nothing of a repository can lie."""
    try:
        return os.path.realpath(path)
    except (OSError, ValueError):
        raise Beyond("lie at a path that cannot be read") from None


def with_includes(paths: list[str], home: str) -> Iterator[tuple[str, _Config]]:
    pending, seen = list(paths), set[str]()
    while pending:
        path = pending.pop()
        if path in seen:
            continue
        seen.add(path)
        if len(seen) > _MOST_FILES:
            raise Beyond("include very many files")
        stamp = _stamp(path)
        if stamp is None:
            continue
        config = _config(path, stamp)
        yield path, config
        for include in config.includes:
            place = f"{home}/{include[2:]}" if include.startswith("~/") else os.path.expanduser(include)
            pending.append(os.path.join(os.path.dirname(path), place))


def _stamp(path: str) -> tuple[int, ...] | None:
    """What tells one content of a file from another; None when there is no such file."""
    try:
        status = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError):
        raise Beyond("lie in a file that cannot be read") from None
    if not stat.S_ISREG(status.st_mode):
        raise Beyond("lie in something that is no plain file")
    return (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)


def _read(path: str, most: int) -> bytes | None:
    """The content of a regular file, or None when there is none. Raises Beyond when it is longer than `most`."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError):
        raise Beyond("lie in a file that cannot be read") from None
    if not stat.S_ISREG(os.fstat(handle).st_mode):  # `open` does not take a folder, not even to close it
        os.close(handle)
        raise Beyond("lie in something that is no plain file")
    with open(handle, "rb") as file:
        data = file.read(most + 1)
    if len(data) > most:
        raise Beyond("lie in a very long file")
    return data


@lru_cache(maxsize=256)
def _config(path: str, stamp: tuple[int, ...]) -> _Config:
    """The names in one file. `stamp` keeps an answer from outliving the content it was about."""
    text = text_of(path)
    # An attribute finds a quoted name as it is written, and an unquoted one in lower case.
    names = {(section.lower(), _ESCAPED.sub(r"\1", name)) for section, name in _QUOTED.findall(text)}
    names |= {(section.lower(), name.lower()) for section, name in _DOTTED.findall(text)}
    return _Config(
        names=frozenset(names),
        external="external" in text.lower(),
        includes=tuple(map(value_of, _PATH.findall(text))) if _INCLUDES.search(text) else (),
        worktrees=tuple(map(value_of, _WORKTREE.findall(text))),
    )


def value_of(text: str) -> str:
    """The text of a setting without its quotes, escapes and comment."""
    found, quoted, escaped = "", False, False
    for char in text.strip():
        if escaped:
            found += {"n": "\n", "t": "\t", "b": "\b", "\n": "", "\r": ""}.get(char, char)
            escaped = False
        elif char == "\\":
            escaped = True
        elif char == '"':
            quoted = not quoted
        elif char in "#;" and not quoted:
            break
        else:
            found += char
    return found.rstrip()


def _inner(folder: str) -> Iterator[str]:
    """The folders that the index at `folder` records as repositories of their own."""
    stamp = _stamp(f"{folder}/index")
    if stamp is None:
        return
    found, split = _gitlinks(f"{folder}/index", stamp)
    yield from found
    if split:
        try:
            names = os.listdir(folder)
        except OSError:
            raise Beyond("lie in a folder that cannot be listed") from None
        for name in names:
            shared = _stamp(f"{folder}/{name}") if name.startswith("sharedindex.") else None
            if shared is not None:
                yield from _gitlinks(f"{folder}/{name}", shared)[0]


@lru_cache(maxsize=256)
def _gitlinks(path: str, stamp: tuple[int, ...]) -> tuple[tuple[str, ...], bool]:
    """The paths of such entries, and whether the rest of the index may be in another file."""
    data = _read(path, _LONGEST_INDEX) or b""
    found, at = set(), data.find(_GITLINK)
    if at >= 0 and data[4:8] not in (b"\0\0\0\2", b"\0\0\0\3"):
        raise Beyond("hold other repositories in an index of a newer kind")
    while at >= 0:
        # owner, size, the id in one of two lengths, two bytes of which the low bits are the length, perhaps two more
        for start in (at + 16 + 20, at + 16 + 32):
            length = int.from_bytes(data[start : start + 2], "big") & 0xFFF
            for begin in (start + 2, start + 4):
                end = data.find(b"\0", begin)
                if end > begin and (end - begin == length or length == 0xFFF):
                    found.add(os.fsdecode(data[begin:end]))
        at = data.find(_GITLINK, at + 1)
    return tuple(sorted(found)), b"link" in data
