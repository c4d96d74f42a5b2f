"""The layers of one helper: overlays of the workspace that exist before their commands, one for each command.

THREAT T315: overlayfs does not define what a mounted overlay shows of a workspace that changes. An overlay in which
nothing was looked up holds only the workspace itself and the entries that other mounts cover, with the folders above
them. The next overlay is used only if these are still the same files with the same modes and owners. Everything else is
looked up by the command itself.
"""

import contextlib
import errno
import fcntl
import os
import select
import signal
import socket
import stat
import tempfile
import threading
from collections import deque
from collections.abc import Iterable

from policy.model.deadline import deadline
from policy.model.secret_paths import inside
from sandbox.backend import ChangeLayer
from sandbox.inside import safe_rmtree
from sandbox.inside.layer_switch import DONE, NEXT
from sandbox.workspace.layer import prepare

COMMANDS = 8  # layers of a helper that serves more than one command
LAST = deadline(10.0)  # seconds until killed processes must have ended; only a file system that hangs takes longer
_SWITCHED = deadline(1.0)  # seconds until the next overlay must be attached
_ACCESS = ("system.posix_acl_access", "system.posix_acl_default")  # acl(5)

Identity = tuple[object, ...]
_removals: list[threading.Thread] = []  # of folders, in progress or finished


class HelperLayers:
    """The layers of one helper. The caller calls `end` when the helper is not used any more, and `close` after its end.

    Attributes:
        lingers: Set by `end`: processes of the last command may still run.
    """

    def __init__(self, layers: Iterable[ChangeLayer], folder: "_Folder | None" = None) -> None:
        """Prepare the layers. `folder` contains them; None if they belong to the caller. Raises OSError."""
        self.layers = deque(layers)
        self.several = len(self.layers) > 1
        self.lingers = False
        self._folder = folder
        self._known: dict[str, Identity] = {}
        self._first = self._children = -1  # process 1 (pidfd_open(2)), and the list of its children
        self._switch: socket.socket | None = None
        self._switching = self._due = False  # a switch is needed, and was not requested yet
        self._place: tuple[str, str] | None = None
        for layer in self.layers:
            prepare(layer)

    def remember(self, covered: Iterable[str]) -> None:
        """Remember the present identities of what the overlays will hold: the workspace, the paths `covered` by mounts
        over it, and the folders above them. Call this before the overlays are made.
        """
        workspace = self.layers[0].workspace
        paths = {workspace}
        for path in covered:
            while inside(path, workspace) and path not in paths:
                paths.add(path)
                path = os.path.dirname(path)
        self._known = {path: _identity(path) for path in paths}
        self._known[""] = _access(workspace)

    def receive(self, handles: list[int]) -> list[int]:
        """Take the descriptors that the helper passed for its layers from the end of `handles`. Return the others."""
        if self.several and len(handles) > 1:
            self._switch = socket.socket(fileno=handles.pop())
            self._switch.settimeout(_SWITCHED)
        if handles:
            self._first = handles.pop()
            self._children = _children_of(self._first)
        return handles

    def fits(self) -> bool:
        """Return True if the next overlay is attached and shows the present workspace."""
        if not self.layers or (self._switching and not self._switched()):
            return False
        workspace = self.layers[0].workspace
        try:
            return all(
                known == (_identity(path) if path else _access(workspace)) for path, known in self._known.items()
            )
        except OSError:
            return False

    def use(self, layer: ChangeLayer) -> None:
        """Choose the folders for the next command. Raises OSError if the upper folder of `layer` is not empty."""
        own = self.layers.popleft()
        if own != layer:
            if os.listdir(layer.upper):
                raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), layer.upper)
            self._place = own.upper, layer.upper

    def settle(self) -> None:
        """Move the upper folder of the command to its place, unless nothing is in it. No process uses it any more.
        Calling this again has no effect. After a failure there is no folder at its place, so that nothing takes the
        layer for an empty one.

        The work folder, which only the kernel uses, stays where it is until `close`.
        """
        if self._place is None:
            return
        (own, place), self._place = self._place, None
        try:
            mode = stat.S_IMODE(os.stat(own).st_mode)
            if mode & 0o700 != 0o700:  # the owner needs these rights to list and to move a folder (rename(2))
                os.chmod(own, mode | 0o700)
            # Many commands change nothing, and a busy file system takes longer for a rename than for their start.
            if os.listdir(own):
                os.rename(own, place)
            os.chmod(place, mode)
        except OSError:
            with contextlib.suppress(OSError):
                os.rmdir(place)

    def alone(self) -> bool:
        """Return True if no process of a command is left, by the word of the kernel and not of the helper.

        A process whose parent ends becomes a child of process 1, so its children are all others or their ancestors.
        """
        # THREAT T300: a process that is left could change the layer while it is read.
        try:
            return self._children >= 0 and not os.pread(self._children, 1, 0)
        except OSError:
            return False

    def leave(self) -> bool:
        """Give up the overlay of a command, after `alone`. Return False if there is none for another command."""
        self._switching = self._due = self._switch is not None and bool(self.layers)
        return self._switching

    def advance(self) -> None:
        """Begin to attach the next overlay, after `leave`, unless that has begun. `fits` waits for it, and begins it if
        this was not called.
        """
        if self._switch is not None and self._due:
            self._due = False
            with contextlib.suppress(OSError):  # the process that switches has ended, as `_switched` finds
                self._switch.send(NEXT)

    def _switched(self) -> bool:
        assert self._switch is not None  # `leave` checked it
        self.advance()
        try:
            self._switching = self._switch.recv(len(DONE)) != DONE
        except OSError:
            return False
        return not self._switching

    def end(self) -> None:
        """End all processes that may use the layers, and set `lingers` unless they end in `LAST` seconds. Calling this
        again has no effect. The helper must then be killed.
        """
        if self._first < 0:
            return
        # THREAT T300: process 1 ends only after all others of its namespace (pid_namespaces(7)).
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._first, signal.SIGKILL)
        waiting = select.poll()
        waiting.register(self._first, select.POLLIN)
        self.lingers = not waiting.poll(LAST * 1000)
        os.close(self._first)
        self._first = -1

    def close(self) -> None:
        """Remove the layers that no command used, in the background. Calling this again has no effect."""
        self.settle()
        if self._switch is not None:
            self._switch.close()
            self._switch = None
        if self._children >= 0:
            os.close(self._children)
            self._children = -1
        if self._folder is not None:
            # On a busy disk this takes a tenth of a second, for which no command should wait.
            removal = threading.Thread(target=self._folder.remove)
            _removals.append(removal)
            removal.start()
            self._folder = None
        self.layers.clear()


def finish_removals() -> None:
    """Wait until the folders of all layers that were closed are removed."""
    while _removals:
        _removals.pop().join()


class _Folder:
    """A new folder in the private state, which `layers` share. Its lock tells other processes that it is in use."""

    def __init__(self, above: str) -> None:
        top = os.open(above, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(top, fcntl.LOCK_EX)  # so that nobody takes the folder for abandoned before it is locked
            self.path = tempfile.mkdtemp(prefix="layers-", dir=os.path.realpath(above))
            self._handle = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        finally:
            os.close(top)

    def remove(self) -> None:
        safe_rmtree.remove(self.path)
        os.close(self._handle)
        with contextlib.suppress(OSError):  # other layers are in the folder above
            os.rmdir(os.path.dirname(self.path))


def several_layers(workspace: str, above: str) -> HelperLayers:
    """Return the layers of a helper for `COMMANDS` commands, in a new folder in `above`. Raises OSError."""
    folder = _Folder(above)
    try:
        layers = []
        for number in range(COMMANDS):
            names = [os.path.join(folder.path, f"{kind}{number}") for kind in ("upper", "work")]
            for name in names:
                os.mkdir(name, 0o700)
            layers.append(ChangeLayer(workspace, names[0], names[1]))
        return HelperLayers(layers, folder)
    except BaseException:
        folder.remove()
        raise


def _identity(path: str) -> Identity:
    try:
        state = os.lstat(path)
    except OSError as error:
        if error.errno not in (errno.ENOENT, errno.ENOTDIR):
            raise
        return ()
    return state.st_dev, state.st_ino, state.st_mode, state.st_uid, state.st_gid


def _access(path: str) -> Identity:
    """Return the access lists of a folder, which its layer has as well."""
    try:
        names = os.listxattr(path)
        return tuple(os.getxattr(path, name) if name in names else b"" for name in _ACCESS)
    except OSError:
        return ()  # a file system without extended attributes


def _children_of(first: int) -> int:
    """Return a descriptor of the list of children of the process `first`; -1 if the kernel shows none.

    While it is open, its number is not given to another process (proc(5)).
    """
    try:
        with open(f"/proc/self/fdinfo/{first}", encoding="ascii") as file:
            pid = next(int(line.split()[1]) for line in file if line.startswith("Pid:"))
        return os.open(f"/proc/{pid}/task/{pid}/children", os.O_RDONLY | os.O_CLOEXEC) if pid > 0 else -1
    except (OSError, StopIteration):
        return -1
