"""The settings that govern a Git repository: the files in which Git looks for them, and their content.

The only reader of Git's configuration files in this program; `policy/languages/git_config.py` has the syntax. Results
include everything that Git reads, and possibly more: a condition of an include counts as met. Settings that cannot be
read with certainty raise UncertainSettingsError. Sources: git-config(1), gitrepository-layout(5), `is_git_directory`
and `setup_git_directory_gently_1` in Git's setup.c.
"""

import os
import re
import stat
from collections.abc import Callable, Container, Iterable, Iterator
from functools import lru_cache

from policy.languages.git_config import (
    LONGEST,
    GitConfigError,
    Setting,
    commondir_target,
    expand_home,
    gitdir_target,
    possible_settings,
    read_settings,
)
from policy.languages.settings_paths import GIT, HOOKS, SettingKind, full_path, setting_kind, setting_paths
from policy.model.frozen import dataclass
from policy.model.secret_paths import inside
from sandbox.inside import regular_file
from sandbox.inside.regular_file import FileTooLongError, NotRegularError, read_start, read_whole

# Folders that make the folder around them a repository of Mercurial, Sapling or Jujutsu: their prompts and editors obey
# the settings in them.
OTHERS = frozenset((".hg", ".sl", ".jj"))
# If one of these is a file, it names the folder with the settings: gitrepository-layout(5), `jj workspace add`.
POINTERS = (".git", ".jj/repo")
SHAPE = ("HEAD", "objects", "refs", "commondir")  # names by which Git knows the inside of a repository
_MOST_FILES = 60  # files that one configuration may include
_MOST_BYTES = 64 << 10  # bytes of one file in which `named` looks for places
_MOST_POSSIBLE = 100  # files that `possible_with_includes` reads
_DEEPEST = 10  # levels of includes; with more levels Git fails


class UncertainSettingsError(Exception):
    """The error for settings that cannot be read with certainty. The text is the reason, for use after "settings
    which".
    """


@dataclass(frozen=True, slots=True)
class FileSetting:
    """A setting and the file that holds it.

    Attributes:
        path: the file, as Git opens it: absolute, links not resolved.
        setting: the setting.
    """

    path: str
    setting: Setting


@dataclass(frozen=True, slots=True)
class GitFolder:
    """A folder that Git takes for the inside of a repository.

    Attributes:
        path: the folder itself (`$GIT_DIR`).
        common: the folder that several working trees share (`$GIT_COMMON_DIR`), often equal to `path`.
    """

    path: str
    common: str

    @property
    def files(self) -> tuple[str, ...]:
        """Return the settings files in Git's order. The first one decides which of the other two Git reads, if any."""
        return tuple(
            dict.fromkeys((f"{self.common}/config", f"{self.common}/config.worktree", f"{self.path}/config.worktree"))
        )


def git_folders(root: str) -> tuple[GitFolder, ...]:
    """Return the folders that Git may use as the repository of the working tree `root`: its `.git`, or the folder that
    a `.git` file names, and `root` itself if it looks like a repository. Raises UncertainSettingsError."""
    dot = f"{root}/.git"
    folders = []
    if os.path.isdir(dot):
        folders.append(_git_folder(dot))
    elif (content := read_file(dot)) is not None:
        folders.append(_git_folder(_place_in(root, ".git", content, gitdir_target)))
    if is_repository(root):
        folders.append(_git_folder(root))
    return tuple(folders)


def is_repository(folder: str) -> bool:
    """Return True if Git may take `folder` for the inside of a repository: it has a `HEAD`, which may be a dangling
    link, and `objects`, or `commondir`, which names the folder with `objects`."""
    there = os.path.lexists
    return there(f"{folder}/HEAD") and (there(f"{folder}/objects") or there(f"{folder}/commondir"))


def _git_folder(folder: str) -> GitFolder:
    return GitFolder(folder, common_folder(folder))


def common_folder(folder: str) -> str:
    """Return the folder with the settings and hooks of the repository whose inside is `folder`: the folder that
    `commondir` names, or `folder`. Raises UncertainSettingsError."""
    path = f"{folder}/commondir"
    content = read_file(path)
    if content is None:
        if os.path.lexists(path):
            raise UncertainSettingsError("are elsewhere: `commondir` names a missing folder")
        return folder
    return _place_in(folder, "commondir", content, commondir_target)


def _place_in(folder: str, name: str, content: bytes, target: Callable[[bytes], str]) -> str:
    """Return the real path of the place that the file `name` of `folder` names. Raises UncertainSettingsError."""
    try:
        return real_path(os.path.join(folder, target(content)))
    except GitConfigError as error:
        raise UncertainSettingsError(f"are elsewhere: `{name}` {error}") from None


def settings_of(path: str) -> tuple[Setting, ...]:
    """Return the settings of one file without its includes; empty if there is no file. Raises
    UncertainSettingsError."""
    stamp = stamp_of(path)
    return () if stamp is None else _parsed(path, stamp)


def with_includes(paths: Iterable[str], home: str) -> Iterator[FileSetting]:
    """Yield the settings of files and their includes, in the order in which Git reads them. Conditional includes are
    followed, whether or not the condition holds. Raises UncertainSettingsError."""
    opened = [0]
    for path in paths:
        yield from _included(path, home, 0, opened)


def possible_with_includes(paths: Iterable[str], home: str, most: int) -> Iterator[tuple[str, str, str | None]]:
    """Yield the name, the value and the included file of every setting that Git may obey in files and their includes.

    Unlike `with_includes`, this function never raises: text that cannot be read with certainty is read line by line.
    Files beyond the first 100, and bytes beyond the first `most` of a file, are ignored. The included file is the
    result of `included_place`.
    """
    pending, seen = list(paths), set[str]()
    while pending and len(seen) < _MOST_POSSIBLE:
        path = pending.pop()
        if path in seen:
            continue
        seen.add(path)
        for name, value in possible_settings(read_start(path, most, follow=True)):
            place = included_place(name, value, os.path.dirname(path), home)
            if place:
                pending.append(place)
            yield name, value, place


def included_place(name: str, value: str, folder: str, home: str) -> str | None:
    """Return the file that a setting includes; empty if the path leads nowhere, None if the setting is no include.

    A relative path is relative to `folder`. The condition of an include counts as met.
    """
    includes = name.startswith(("include.", "includeif.")) and name.endswith("path")
    return full_path(value, folder, home) if includes else None


def _included(path: str, home: str, depth: int, opened: list[int]) -> Iterator[FileSetting]:
    opened[0] += 1
    if depth > _DEEPEST or opened[0] > _MOST_FILES:
        raise UncertainSettingsError("include too many files")
    for setting in settings_of(path):
        yield FileSetting(path, setting)
        for place in included_by(path, setting, home):
            yield from _included(place, home, depth + 1, opened)


def included_by(path: str, setting: Setting, home: str) -> tuple[str, ...]:
    """Return the files that one setting of the file `path` includes: none, one, or two if versions of Git differ.
    Raises UncertainSettingsError."""
    if setting.key != "path" or (setting.section, setting.subsection is None) not in _INCLUDES:
        return ()
    if setting.value is None:
        raise UncertainSettingsError("include a file without a name")
    places = []
    for value in setting.values:
        if value.startswith("~") and value != "~" and not value.startswith("~/"):
            value = os.path.expanduser(value)
        try:
            places.append(os.path.join(os.path.dirname(path), expand_home(value, home)))
        except GitConfigError as error:
            raise UncertainSettingsError(str(error)) from None
    return tuple(sorted(places))


_INCLUDES = (("include", True), ("includeif", False))


def stamp_of(path: str) -> tuple[int, ...] | None:
    """Return a value that changes with the content of a file; None if there is no file. Raises UncertainSettingsError
    if `path` is no regular file."""
    try:
        status = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError):
        raise UncertainSettingsError("are in a file that cannot be read") from None
    if not stat.S_ISREG(status.st_mode):
        raise UncertainSettingsError("are not in a regular file")
    return (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)


def read_file(path: str, most: int = LONGEST) -> bytes | None:
    """Return the content of a regular file; None if there is no file. Raises UncertainSettingsError for a file that
    cannot be read, or that is longer than `most` bytes."""
    try:
        return read_whole(path, most, follow=True)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except NotRegularError:
        raise UncertainSettingsError("are not in a regular file") from None
    except FileTooLongError:
        raise UncertainSettingsError("are in a file that is too long") from None
    except (OSError, ValueError):
        raise UncertainSettingsError("are in a file that cannot be read") from None


@lru_cache(maxsize=256)
def _parsed(path: str, stamp: tuple[int, ...]) -> tuple[Setting, ...]:
    """Return the settings of one file. `stamp` invalidates a cached answer when the content changes."""
    try:
        return read_settings(read_file(path) or b"")
    except GitConfigError as error:
        place = f"line {error.line} of `{_shown(path)}`" if error.line else f"`{_shown(path)}`"
        raise UncertainSettingsError(f"cannot be read with certainty: {place} {error}") from None


def _shown(path: str) -> str:
    name = os.path.basename(path)
    return name if re.fullmatch(r"[\w.-]{1,60}", name, re.ASCII) else "an included file"


def real_path(path: str) -> str:
    """Return `path` with all links resolved. Raises UncertainSettingsError for a path that the kernel refuses."""
    try:
        return regular_file.real_path(path)
    except (OSError, ValueError):
        raise UncertainSettingsError("are at an invalid path") from None


def like_repository(names: Container[str]) -> bool:
    """Return True if Git may take a folder that holds `names` for the inside of a repository (gitrepository-layout(5)).

    HEAD may be a file or a dangling link. With `commondir` the objects and refs are in another folder.
    """
    return "HEAD" in names and (("objects" in names and "refs" in names) or "commondir" in names)


def inside_git(locked: tuple[str, ...]) -> tuple[str, ...]:
    """Return the locked patterns inside `.git`, which hold for each Git folder: bare, of a submodule or worktree."""
    inner = [pattern[5:] for pattern in locked if pattern.startswith(".git/")]
    return tuple(pattern for pattern in inner if not pattern.startswith(("modules/", "worktrees/")))


def common(folder: str) -> str:
    """Return `common_folder(folder)`, or `folder` itself if that is uncertain."""
    try:
        return common_folder(folder)
    except UncertainSettingsError:
        return folder


def named(folder: str, top: str) -> set[str]:
    """Return the folder of hooks, the programs, and further settings files that the settings in `folder` name.

    Relative paths are relative to `top`. The results are joined and not resolved: they may be outside of the workspace,
    and need not exist.
    """
    named_paths: set[str] = set()
    home = os.path.expanduser("~")
    for name, value, included in possible_with_includes(
        (f"{folder}/config", f"{folder}/config.worktree"), home, _MOST_BYTES
    ):
        kind = setting_kind(name, GIT)
        if kind is None:
            continue
        if included is not None:
            places = {included} - {""}
        else:
            places = {full_path(path, top, home) for path in setting_paths(kind, value, {"HOME": home})} - {""}
        if kind is SettingKind.HOOKS:  # if the hooks folder contains the worktree, only the hooks themselves are locked
            places |= {f"{place}/{hook}" for place in places if inside(top, place) for hook in HOOKS}
        named_paths |= places
    return named_paths
