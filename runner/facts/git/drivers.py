"""Drivers: programs that a repository's own Git settings name for reading files, and settings that override them.

Git has no option that disables all drivers and filters: each has its own name, so each is overridden by its name.
"""

import os
from collections.abc import Iterator
from functools import lru_cache

from policy.model.frozen import dataclass
from sandbox.workspace.git_settings import (
    GitFolder,
    UncertainSettingsError,
    git_folders,
    is_repository,
    read_file,
    real_path,
    stamp_of,
    with_includes,
)

# More names than this would not fit into an environment, and no known project uses as many.
_MOST_NAMES = 60
_MOST_REPOSITORIES = 200
_LONGEST_INDEX = 1 << 28
_LONGEST_POINTER = 4096

# Harmless replacements of drivers. Git treats an empty filter command as a filter that failed; with `required=false`,
# Git then uses the content unchanged.
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

# Settings that another value does not override.
_LASTING = frozenset((
    "gc.recentobjectshook",  # every value counts; since Git 2.42, by `prune -n` too
    "tar.zip.command",       # a format of this name comes before Git's own, whatever the command is
))  # fmt: skip
_GITLINK = b"\x00\x00\xe0\x00"  # the mode of an index entry that is another repository


@dataclass(frozen=True, slots=True)
class Drivers:
    """Drivers of a repository.

    Attributes:
        settings: settings that override every program that the repository's settings name for reading files
        beyond: reason why some programs cannot be overridden, for the user; empty if all are
        bare: the workspace is itself the inside of a repository
    """

    settings: tuple[tuple[str, str], ...] = ()
    beyond: str = ""
    bare: bool = False


def drivers(workspace: str, home: str) -> Drivers:
    """Return the drivers of the repository at `workspace`. Never raises.

    The search covers the files that the settings of the repository include, and the repositories that its index
    records, because Git enters these by itself.
    """
    names: set[tuple[str, str]] = set()
    settings: list[tuple[str, str]] = []
    bare = is_repository(workspace) and not os.path.lexists(f"{workspace}/.git")
    try:
        for root, git in _repositories(workspace):
            for located in with_includes(git.files, home):
                setting = located.setting
                if setting.section in _INSTEAD and setting.subsection is not None:
                    names.add((setting.section, setting.subsection))
                elif setting.name == "diff.external":
                    settings = [("diff.external", _DIFF)]
                elif setting.name in _LASTING:
                    raise UncertainSettingsError(f"name a program that no other setting overrides (`{setting.name}`)")
                elif setting.name == "core.worktree":
                    for place in setting.values or ("",):
                        # The setting may be in an included file, but a relative path starts at the Git folder.
                        if real_path(os.path.join(git.path, place)) != root:
                            raise UncertainSettingsError("place the files elsewhere (`core.worktree`)")
            if len(names) > _MOST_NAMES:
                raise UncertainSettingsError("name very many programs")
        settings[:0] = _settings(names)
    except UncertainSettingsError as why:
        return Drivers((), str(why), bare)
    return Drivers(tuple(settings), "", bare)


def _settings(names: set[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    for section, name in sorted(names):
        if "\0" in name or len(name) > _LONGEST_POINTER or name.encode("utf-8", "replace").decode("utf-8") != name:
            raise UncertainSettingsError("name a program in bytes that are not UTF-8")
        for key, value in _INSTEAD[section]:
            yield f"{section}.{name}.{key}", value


def _repositories(workspace: str) -> Iterator[tuple[str, GitFolder]]:
    """Yield each working tree, the workspace first, with each folder that Git may use as its repository."""
    pending, seen = [workspace], set[str]()
    while pending:
        root = real_path(pending.pop())
        if root in seen:
            continue
        seen.add(root)
        if len(seen) > _MOST_REPOSITORIES:
            raise UncertainSettingsError("contain very many other repositories")
        for git in git_folders(root):
            yield root, git
            pending += [f"{root}/{inner}" for inner in _inner(git.path)]


def _inner(folder: str) -> Iterator[str]:
    """Return the folders that the index at `folder` records as separate repositories."""
    stamp = stamp_of(f"{folder}/index")
    if stamp is None:
        return
    found, split = _gitlinks(f"{folder}/index", stamp)
    yield from found
    if split:
        try:
            names = os.listdir(folder)
        except OSError:
            raise UncertainSettingsError("are in a folder that cannot be listed") from None
        for name in names:
            shared = stamp_of(f"{folder}/{name}") if name.startswith("sharedindex.") else None
            if shared is not None:
                yield from _gitlinks(f"{folder}/{name}", shared)[0]


@lru_cache(maxsize=256)
def _gitlinks(path: str, stamp: tuple[int, ...]) -> tuple[tuple[str, ...], bool]:
    """Return the paths of entries that are repositories, and True if a part of the index may be in another file."""
    data = read_file(path, _LONGEST_INDEX) or b""
    paths, at = set(), data.find(_GITLINK)
    if at >= 0 and data[4:8] not in (b"\0\0\0\2", b"\0\0\0\3"):
        raise UncertainSettingsError("contain other repositories in an index of a newer version")
    while at >= 0:
        # Mode, owner, group and size (16 bytes), the id (20 or 32 bytes), flags with the length of the name (2 bytes),
        # perhaps further flags (2 bytes).
        for start in (at + 16 + 20, at + 16 + 32):
            length = int.from_bytes(data[start : start + 2], "big") & 0xFFF
            for begin in (start + 2, start + 4):
                end = data.find(b"\0", begin)
                if end > begin and (end - begin == length or length == 0xFFF):
                    paths.add(os.fsdecode(data[begin:end]))
        at = data.find(_GITLINK, at + 1)
    return tuple(sorted(paths)), b"link" in data
