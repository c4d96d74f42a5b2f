"""The files of a workspace that were written while untrusted text was in view, by path and hash of their content.

They stay untrusted in later sessions, until the user commits or endorses them. The same path with another content is
another text. The list is in the private state folder, where no command can read or change it.
"""

import hashlib
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import field
from pathlib import Path

from policy.model.frozen import dataclass, replace
from runner.state.json_file import StateFile
from runner.state.workspace import workspace_key
from sandbox.inside.regular_file import FileTooLongError, read_whole

_MOST = 2_000  # files of one workspace; the oldest are forgotten
_LARGEST = 16 << 20  # bytes of a file whose content is compared
_LARGE = "large"  # in place of a hash: a file that is too large to compare stays untrusted
_LONGEST = 300  # characters of one source


@dataclass(frozen=True, slots=True)
class UntrustedFile:
    """One file: the SHA-256 of its untrusted content, and the source of the untrusted text in words."""

    sha256: str
    source: str


@dataclass(frozen=True, slots=True)
class UntrustedFiles:
    """The list: the files by their paths, and the commits that an agent made while untrusted text was in view."""

    files: Mapping[str, UntrustedFile] = field(default_factory=dict)
    commits: tuple[str, ...] = ()


class WrittenFiles:
    """The list for one workspace.

    `state` is the state folder, `workspace` the real path of the workspace. `introduced` returns the commit that
    brought the present content of a file into the history, or an empty text.
    """

    def __init__(self, state: Path, workspace: str, introduced: Callable[[str], str] = lambda path: "") -> None:
        self._introduced = introduced
        folder = state / "flow"
        self._folder = folder
        self._file: StateFile[UntrustedFiles] = StateFile(
            folder / f"{workspace_key(workspace)}.json",
            "the list of untrusted files",
            1,
            UntrustedFiles,
            _parsed,
            _dump,
        )

    def note(self, paths: Iterable[str], source: str) -> None:
        """Add the present contents of `paths`, with the source of the untrusted text. Raise StateError or OSError."""
        added = {path: UntrustedFile(digest, source[:_LONGEST]) for path in paths if (digest := content_hash(path))}
        if not added:
            return

        def edit(known: UntrustedFiles) -> tuple[UntrustedFiles, None]:
            kept = {path: each for path, each in known.files.items() if path not in added}
            return replace(known, files=dict([*kept.items(), *added.items()][-_MOST:])), None

        self._folder.mkdir(mode=0o700, exist_ok=True)
        self._file.change(edit)

    def note_commit(self, commit: str) -> None:
        """Note a commit that an agent made while untrusted text was in view: it endorses nothing. Raise StateError or
        OSError.
        """
        self._folder.mkdir(mode=0o700, exist_ok=True)
        self._file.change(lambda known: (replace(known, commits=(*known.commits, commit)[-_MOST:]), None))

    def forget(self, paths: Iterable[str]) -> None:
        """Remove `paths`, whose content the user endorsed. Raise StateError or OSError."""
        gone = set(paths)
        if not gone & self._file.read().value.files.keys():
            return

        def edit(known: UntrustedFiles) -> tuple[UntrustedFiles, None]:
            return replace(known, files={path: each for path, each in known.files.items() if path not in gone}), None

        self._file.change(edit)

    def source(self, path: str) -> str:
        """Return the source of the untrusted text in the file at `path`, or an empty text: for another content, and
        for one that the user committed. Raise StateError.
        """
        known = self._file.read().value
        found = known.files.get(path)
        if found is None or found.sha256 not in (_LARGE, content_hash(path)):
            return ""
        commit = self._introduced(path)
        return "" if commit and commit not in known.commits else found.source

    def below(self, folder: str) -> tuple[str, ...]:
        """Return the files at or below `folder` whose content is untrusted. Raise StateError."""
        inner = folder.rstrip("/") + "/"
        known = self._file.read().value.files
        return tuple(path for path in known if (path == folder or path.startswith(inner)) and self.source(path))


def content_hash(path: str) -> str:
    """Return the SHA-256 of the content of the regular file at `path`; `large` for a large one, empty without one."""
    try:
        return hashlib.sha256(read_whole(path, _LARGEST, follow=True)).hexdigest()
    except FileTooLongError:
        return _LARGE
    except (OSError, ValueError):
        return ""


def _parsed(body: dict[str, object], version: int) -> UntrustedFiles:
    found: dict[str, UntrustedFile] = {}
    files, commits = body.get("files"), body.get("commits", [])
    if not isinstance(files, dict):
        raise ValueError("`files` is not a table")
    if not isinstance(commits, list) or not all(isinstance(each, str) for each in commits):
        raise ValueError("`commits` is not a list of texts")
    for path, each in files.items():
        if not isinstance(each, dict) or not all(isinstance(each.get(name), str) for name in ("sha256", "source")):
            raise ValueError(f"the entry of `{os.fspath(path)[:80]}` is not valid")
        found[path] = UntrustedFile(each["sha256"], each["source"])
    return UntrustedFiles(found, tuple(commits))


def _dump(value: UntrustedFiles) -> dict[str, object]:
    files = {path: {"sha256": each.sha256, "source": each.source} for path, each in value.files.items()}
    return {"files": files, "commits": list(value.commits)}
