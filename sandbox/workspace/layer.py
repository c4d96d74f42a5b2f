"""The layer of a command: the folder that receives its changes of the workspace, and the list of these changes.

The workspace is the lower folder of an overlay and is only read. SOURCE: the kernel's Documentation/filesystems/
overlayfs.rst, with the mount option `userxattr`, so that root and other users read a layer in the same way.
"""

from enum import StrEnum

from policy.model.frozen import dataclass


class LayerKind(StrEnum):
    """The kind of a file system entry."""

    FILE = "file"
    FOLDER = "folder"
    LINK = "link"
    SPECIAL = "special"  # a device, a pipe or a socket


@dataclass(frozen=True, slots=True)
class ChangeLayer:
    """The folders of one overlay.

    Attributes:
        workspace: The lower folder, as a real path.
        upper: An empty folder of the private state, on the file system of the workspace where that is possible.
        work: An empty folder beside `upper`, which the kernel needs.
    """

    workspace: str
    upper: str
    work: str


@dataclass(frozen=True, slots=True)
class LayerChange:
    """One entry that differs between the workspace and the view of the command.

    Attributes:
        path: Relative to the workspace; bytes that are no UTF-8 are escaped as by `os.fsdecode`.
        kind: The kind of the new entry; None if it was deleted.
        mode: The mode of the new entry with its type, as of lstat(2); 0 if it was deleted.
        size: Bytes of the new entry; 0 for a folder.
        whole: True for a folder whose complete content is in the layer: a new one, or one that replaces another entry.
        within: True if an entry above it is `whole`, so that moving that one moves this entry too.
        target: The target of a link; empty for other kinds.
    """

    path: str
    kind: LayerKind | None
    mode: int = 0
    size: int = 0
    whole: bool = False
    within: bool = False
    target: str = ""
