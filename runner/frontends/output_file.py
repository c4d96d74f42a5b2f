"""Output files of a run: named by the user, written completely or not at all, never through a link in the workspace.

THREAT: commands of the model must not redirect the writes of this process. A file is named by an open folder and one
name in it. No link in the workspace is followed, and no output file of `agent ci` is in the workspace without an option
that allows it.
"""

import contextlib
import os
import stat
from collections.abc import Mapping

from policy.model.secret_paths import inside
from policy.model.verdict import Problem
from runner.problems import Exit, Stopped, usage
from runner.text.phrases import os_reason

_WRITE = os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW
_NEW = _WRITE | os.O_CREAT | os.O_EXCL
_EARLIER = 1 << 20  # bytes of an existing job summary that are kept; SOURCE: GitHub accepts no more of one step


class Outlet:
    """One open output file, of the command-line option `option`, with the final path `path`.

    `handle` is None for a file that `write` writes under a temporary name and then renames. That temporary file exists
    only while `write` runs, so that no command of the model finds it. Otherwise the file is written in place.
    """

    def __init__(
        self, option: str, path: str, folder: int, name: str, handle: int | None, mode: int, keep: bytes
    ) -> None:
        self.option = option
        self.path = path
        self._folder = folder
        self._name = name
        self._handle = handle
        self._mode = mode  # of a file that is renamed
        self._keep = keep

    def write(self, data: bytes) -> None:
        """Write the whole content to the file. Raise Stopped if the content cannot be written.

        Unless the file is written in place, the content is on the disk before this method returns.
        """
        try:
            if self._handle is not None:
                _append(self._handle, self._keep + data)
            else:
                self._write_whole(self._keep + data)
        except OSError as error:
            what, why = f"`{self.path}` ({self.option}) could not be written", os_reason(error)
            raise Stopped(Problem(what, why, "check the disk and the folder"), Exit.FAILED) from None

    def add(self, data: bytes) -> None:
        """Append to a file that is written in place. Raise OSError if it cannot be written."""
        assert self._handle is not None
        _append(self._handle, data)

    def _write_whole(self, data: bytes) -> None:
        """Write a temporary file and give it the final name. Raise OSError; the temporary file is then removed."""
        temporary = _temporary(self._name)
        handle = os.open(temporary, _NEW, self._mode, dir_fd=self._folder)
        try:
            _append(handle, data)
            os.fsync(handle)
            there = os.stat(temporary, dir_fd=self._folder, follow_symlinks=False)
            if not os.path.samestat(os.fstat(handle), there):
                raise OSError("another process replaced the file")
            os.replace(temporary, self._name, src_dir_fd=self._folder, dst_dir_fd=self._folder)
            if not os.path.lexists(self.path) or not os.path.samestat(os.fstat(handle), os.lstat(self.path)):
                raise OSError("another process moved the folder of the file")
        except OSError:
            with contextlib.suppress(OSError):
                os.unlink(temporary, dir_fd=self._folder)
            raise
        finally:
            os.close(handle)

    def close(self) -> None:
        """Close the file. If nothing was written, an older file of that name stays, unless it is written in place."""
        if self._handle is not None:
            os.close(self._handle)
        os.close(self._folder)


class Outlets:
    """Every requested output file, by its option. Leaving the context closes the files."""

    def __init__(self) -> None:
        self._open: dict[str, Outlet] = {}

    @classmethod
    def opened(
        cls, asked: Mapping[str, str | None], workspace: str, environ: Mapping[str, str], *, inside_too: bool
    ) -> "Outlets":
        """Open the files of `asked`, which maps options to paths.

        Raise a usage error if a file cannot be opened, or if two options name the same file.

        `inside_too` is True if the files may be in the workspace. `--events` is written in place as events arrive, so
        that a killed run leaves the events so far.
        """
        made = cls()
        with contextlib.ExitStack() as undo:
            undo.callback(made.close)
            taken: dict[str, str] = {}
            for option, path in asked.items():
                if path is None:
                    continue
                outlet = _opened(option, path, workspace, environ, inside_too, grows=option == "--events")
                made._open[option] = outlet
                if outlet.path in taken:
                    why = "one file would overwrite the other"
                    raise usage(f"`{taken[outlet.path]}` and `{option}` name the same file", why, "name two files")
                taken[outlet.path] = option
            undo.pop_all()
        return made

    def get(self, option: str) -> Outlet | None:
        return self._open.get(option)

    def close(self) -> None:
        for outlet in self._open.values():
            outlet.close()
        self._open.clear()

    def __enter__(self) -> "Outlets":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _opened(
    option: str, text: str, workspace: str, environ: Mapping[str, str], inside_too: bool, *, grows: bool
) -> Outlet:
    path = os.path.abspath(text) if text else ""
    if not path or text.endswith("/") or "\0" in text:
        raise usage(f"`{option} {text}` names no file", "a file needs a name", "give the path of a file")
    no_link(option, path, workspace)
    real = os.path.realpath(path)
    if inside(real, workspace) and not inside_too:
        raise usage(
            f"`{option} {text}` is in the workspace",
            "commands of the model may write there, so its content could come from them",
            "give a path elsewhere (such as one below $RUNNER_TEMP), or add --files-in-workspace",
        )
    above, name = os.path.split(real)
    try:
        with contextlib.ExitStack() as undo:
            folder = os.open(above, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            undo.callback(os.close, folder)
            handle, mode, keep = _handle(folder, name, real, environ, grows)
            undo.pop_all()
    except OSError as error:
        why, fix = os_reason(error), "give a path in an existing folder that you may write to"
        raise usage(f"`{option} {text}` cannot be written", why, fix) from None
    return Outlet(option, real, folder, name, handle, mode, keep)


def _handle(
    folder: int, name: str, path: str, environ: Mapping[str, str], grows: bool
) -> tuple[int | None, int, bytes]:
    """Return the arguments `handle`, `mode` and `keep` of an Outlet. Raise OSError if it cannot be written."""
    try:
        there: os.stat_result | None = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        there = None
    if there is not None and stat.S_ISDIR(there.st_mode):
        raise IsADirectoryError(21, "Is a directory")
    if there is not None and not stat.S_ISREG(there.st_mode):
        return os.open(name, _WRITE, dir_fd=folder), 0, b""  # a pipe, /dev/null
    mode = 0o666 if there is None else stat.S_IMODE(there.st_mode)
    if grows:
        if there is not None:  # a new file replaces it, since it may have another hard link
            os.unlink(name, dir_fd=folder)
        return os.open(name, _NEW, mode, dir_fd=folder), mode, b""
    keep = b""
    summary = environ.get("GITHUB_STEP_SUMMARY")
    if there is not None and summary and os.path.realpath(summary) == path:  # has text of earlier commands
        with open(os.open(name, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW, dir_fd=folder), "rb") as file:
            keep = file.read(_EARLIER)
        keep += b"\n" if keep and not keep.endswith(b"\n") else b""
    temporary = _temporary(name)
    os.close(os.open(temporary, _NEW, mode, dir_fd=folder))  # find out now whether a file can be created in the folder
    os.unlink(temporary, dir_fd=folder)
    return None, mode, keep


def _temporary(name: str) -> str:
    return f".{name[:100]}.{os.urandom(6).hex()}.part"


def _append(handle: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(handle, view) :]


def no_link(option: str, path: str, workspace: str) -> None:
    """Raise a usage error if `path`, which is absolute, leads through a symbolic link in the workspace.

    THREAT: this process may access files that no command may. A branch could replace the prompt file by a link to a
    secret of the job.
    """
    at = ""
    for part in path.split("/")[1:]:
        at = f"{os.path.realpath(at or '/').rstrip('/')}/{part}"
        if at != workspace and inside(at, workspace) and os.path.islink(at):
            raise usage(
                f"`{option}` leads through the link `{at}`",
                "the link is in the workspace, and its author would choose which file is read or written",
                "give a path without the link",
            )
