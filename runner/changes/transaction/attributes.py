"""Removal of the extended attributes with which an overlay marks the entries of a layer.

THREAT T306: an entry that keeps them (`user.overlay.opaque`, `user.overlay.whiteout`, `user.overlay.redirect`) would
hide or replace entries when its folder becomes the layer of another overlay.
"""

import errno
import os
import stat

from runner.changes import safe_open
from runner.changes.transaction.plan import FolderCursor
from sandbox.inside import safe_rmtree
from sandbox.workspace.layer import LayerChange, LayerKind

_PREFIX = "user.overlay."


def strip(upper: str, changes: "tuple[LayerChange, ...]") -> None:
    """Remove the attributes of overlayfs from the entries of `changes` in the folder `upper`. Raise OSError.

    Another user than root gets write access to the folders of the layer around them, so that they can be moved.
    """
    closed = _opened_up(upper, changes) if os.geteuid() else []
    cursor = FolderCursor(upper)
    try:
        for change in changes:
            if change.kind is LayerKind.FILE or (change.kind is LayerKind.FOLDER and change.whole):
                above, name = cursor.above(change.path)
                place = f"/proc/self/fd/{above}/{name}"  # shorter than the path, which the system may refuse
                for attribute in _named(place):
                    _remove(place, attribute)
        for path, mode in reversed(closed):
            above, name = cursor.above(path)
            safe_open.change_mode(above, name, mode)
    finally:
        cursor.close()


def _opened_up(upper: str, changes: "tuple[LayerChange, ...]") -> list[tuple[str, int]]:
    """Give this user all rights to every folder around `changes`. Return the folders that are moved, with the modes
    that they had; the others stay in the layer.
    """
    folders, moved = {""}, dict[str, int]()
    for change in changes:
        above = change.path
        while above := safe_open.split(above)[0]:
            folders.add(above)
        if change.kind is LayerKind.FOLDER and change.whole:
            moved[change.path] = stat.S_IMODE(change.mode)
    os.chmod(upper, 0o700)
    cursor = FolderCursor(upper)
    try:
        for path in sorted(folders | moved.keys(), key=lambda each: each.split("/")):
            if path and path != ".":
                above_it, name = cursor.above(path)
                safe_rmtree.regain(name, above_it)
    finally:
        cursor.close()
    return [
        (path, mode)
        for path, mode in sorted(moved.items(), key=lambda item: item[0].split("/"))
        if mode & 0o700 != 0o700
    ]


def _named(place: str) -> list[str]:
    try:
        return [name for name in os.listxattr(place, follow_symlinks=False) if name.startswith(_PREFIX)]
    except OSError as error:
        if error.errno == errno.ENOTSUP:
            return []
        raise


def _remove(place: str, attribute: str) -> None:
    try:
        os.removexattr(place, attribute, follow_symlinks=False)
    except PermissionError:  # xattr(7): attributes of users need write access to the file
        mode = stat.S_IMODE(os.stat(place, follow_symlinks=False).st_mode)
        os.chmod(place, mode | 0o200)
        os.removexattr(place, attribute, follow_symlinks=False)
        os.chmod(place, mode)
