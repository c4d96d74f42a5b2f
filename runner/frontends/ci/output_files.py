"""The output files of a run in a pipeline: opened before the run, and written after it, completely or not at all.

Only `--events` is written during the run. Pipes and devices are written in place.

THREAT: commands of the model must not redirect the writes of this process. A file is named by an open folder and one
name in it. No link in the workspace is followed, and no output file is in the workspace without an option that allows
it.
"""

import contextlib
import json
import os
import stat
from collections.abc import Callable, Mapping
from dataclasses import replace

from policy.model.secret_paths import inside
from policy.model.verdict import Problem
from runner.audit.chain import AuditError
from runner.audit.log import AuditLog, own_log_place
from runner.frontends.ci.result import CiResult, OutputContent
from runner.frontends.ci.summary import Page
from runner.problems import Exit, Stopped, usage
from runner.text.phrases import os_reason

_EARLIER = 1 << 20  # bytes of an existing job summary that are kept; SOURCE: GitHub accepts no more of one step


class Outlet:
    """One open output file, of the command-line option `option`, with the final path `path`.

    Unless the file is written in place, its content is in a temporary file until `write` has written it completely.
    """

    def __init__(
        self, option: str, path: str, folder: int, name: str, handle: int, temporary: str, keep: bytes
    ) -> None:
        self.option = option
        self.path = path
        self._folder = folder
        self._name = name
        self._handle = handle
        self._temporary = temporary  # the name of the temporary file; empty if the file is written in place
        self._keep = keep

    def write(self, data: bytes) -> None:
        """Write the whole content to the file. Raise Stopped if the content cannot be written.

        Unless the file is written in place, the content is on the disk before this method returns.
        """
        try:
            if self._temporary:  # with --files-in-workspace, a command may have written to it
                os.ftruncate(self._handle, 0)
            self.add(self._keep + data)
            if self._temporary:
                os.fsync(self._handle)
                there = os.stat(self._temporary, dir_fd=self._folder, follow_symlinks=False)
                if not os.path.samestat(os.fstat(self._handle), there):
                    raise OSError("another process replaced the file")
                os.replace(self._temporary, self._name, src_dir_fd=self._folder, dst_dir_fd=self._folder)
                self._temporary = ""
        except OSError as error:
            what, why = f"`{self.path}` ({self.option}) could not be written", os_reason(error)
            raise Stopped(Problem(what, why, "check the disk and the folder"), Exit.FAILED) from None

    def add(self, data: bytes) -> None:
        """Append to the file. Raise OSError if it cannot be written."""
        view = memoryview(data)
        while view:
            view = view[os.write(self._handle, view) :]

    def close(self) -> None:
        """Close the file. If nothing was written, remove the temporary file; an older file of that name stays."""
        if self._temporary:
            with contextlib.suppress(OSError):
                os.unlink(self._temporary, dir_fd=self._folder)
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
            handle, temporary, keep = _handle(folder, name, real, environ, grows)
            undo.pop_all()
    except OSError as error:
        why, fix = os_reason(error), "give a path in an existing folder that you may write to"
        raise usage(f"`{option} {text}` cannot be written", why, fix) from None
    return Outlet(option, real, folder, name, handle, temporary, keep)


def _handle(folder: int, name: str, path: str, environ: Mapping[str, str], grows: bool) -> tuple[int, str, bytes]:
    flags = os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        there: os.stat_result | None = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        there = None
    if there is not None and stat.S_ISDIR(there.st_mode):
        raise IsADirectoryError(21, "Is a directory")
    if there is not None and not stat.S_ISREG(there.st_mode):
        return os.open(name, flags, dir_fd=folder), "", b""  # a pipe, /dev/null
    mode = 0o666 if there is None else stat.S_IMODE(there.st_mode)
    if grows:
        if there is not None:  # a new file replaces it, since it may have another hard link
            os.unlink(name, dir_fd=folder)
        return os.open(name, flags | os.O_CREAT | os.O_EXCL, mode, dir_fd=folder), "", b""
    keep = b""
    summary = environ.get("GITHUB_STEP_SUMMARY")
    if there is not None and summary and os.path.realpath(summary) == path:  # has text of earlier commands
        with open(os.open(name, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW, dir_fd=folder), "rb") as file:
            keep = file.read(_EARLIER)
        keep += b"\n" if keep and not keep.endswith(b"\n") else b""
    temporary = f".{name[:100]}.{os.urandom(6).hex()}.part"
    return os.open(temporary, flags | os.O_CREAT | os.O_EXCL, mode, dir_fd=folder), temporary, keep


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


def write_outputs(
    result: CiResult, content: OutputContent, outlets: Outlets, shown: Callable[[Problem], None]
) -> CiResult:
    """Write every requested file. Call `shown` with the Problem of each failure, and return the updated result."""

    failed: list[Problem] = []

    def write(option: str, data: Callable[[], bytes]) -> bool:
        outlet = outlets.get(option)
        if outlet is None:
            return False
        try:
            outlet.write(data())
        except (Stopped, AuditError) as error:
            failed.append(error.problem)
            return False
        return True

    patch = outlets.get("--patch")
    done = content.patch
    if done is not None and patch is not None and write("--patch", lambda: done):
        result = replace(result, patch=patch.path)
    write("--sarif", lambda: f"{json.dumps(_sarif(result, content), indent=1)}\n".encode())
    if result.head is not None:
        write("--seal", lambda: f"{json.dumps(_seal(content), indent=1)}\n".encode())
    write("--summary", lambda: Page(result, content).text().encode("utf-8", "backslashreplace"))
    result = _failed(result, failed, shown)
    events = outlets.get("--events")
    if events is not None:
        with contextlib.suppress(OSError):  # earlier events are in the file already
            events.add(f"{result.line()}\n".encode())
    failed.clear()
    write("--result", lambda: f"{result.line()}\n".encode())
    return _failed(result, failed, shown)


def _failed(result: CiResult, failed: list[Problem], shown: Callable[[Problem], None]) -> CiResult:
    """Show the files that could not be written, and return the result, as failed if the run was successful so far."""
    for each in failed:
        shown(each)
    if failed and result.exit in (Exit.DONE, Exit.DENIED):
        return replace(result, exit=int(Exit.FAILED), reason=failed[0].what)
    return result


def _seal(content: OutputContent) -> dict[str, object]:
    """Return the seal of the log as it is now. Raise AuditError if the log cannot be read."""
    from runner.audit.seal import create_seal
    from runner.audit.signing import stored_signer

    with AuditLog.open_to_read(content.place or own_log_place(os.environ)) as log:
        return create_seal(log.store, stored_signer)


def _sarif(result: CiResult, content: OutputContent) -> dict[str, object]:
    """Return the denials as SARIF."""
    from runner.audit.export.sarif import document

    exits = {result.session: result.exit} if result.session else {}
    workspace = content.started.workspace if content.started else content.workspace
    # The file of the job, for a denial that names no file of the workspace; None if it is unknown.
    # SOURCE: docs.github.com, "Variables": GITHUB_WORKFLOW_REF is `owner/repository/PATH@REF`.
    path = "/".join(os.environ.get("GITHUB_WORKFLOW_REF", "").rpartition("@")[0].split("/")[2:])
    job = path if path.startswith(".github/workflows/") and ".." not in path else None
    return document(content.story.deeds, workspace, exits=exits, fallback=job)
