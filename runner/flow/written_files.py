"""The files of a workspace that were written while untrusted text was in view, by path and hash of their content.

They stay untrusted in later sessions, until the user commits or endorses them. The same path with another content is
another text. The list is in the private state folder, where no command can read or change it.
"""

import hashlib
import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from policy.model.frozen import dataclass
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


class WrittenFiles:
    """The list for one workspace. `state` is the state folder, `workspace` the real path of the workspace."""

    def __init__(self, state: Path, workspace: str) -> None:
        folder = state / "flow"
        self._folder = folder
        self._file: StateFile[Mapping[str, UntrustedFile]] = StateFile(
            folder / f"{workspace_key(workspace)}.json", "the list of untrusted files", 1, dict, _parsed, _dump
        )

    def note(self, paths: Iterable[str], source: str) -> None:
        """Add the present contents of `paths`, with the source of the untrusted text. Raise StateError or OSError."""
        added = {path: UntrustedFile(digest, source[:_LONGEST]) for path in paths if (digest := content_hash(path))}
        if not added:
            return

        def edit(known: Mapping[str, UntrustedFile]) -> tuple[Mapping[str, UntrustedFile], None]:
            kept = {path: each for path, each in known.items() if path not in added}
            return dict([*kept.items(), *added.items()][-_MOST:]), None

        self._folder.mkdir(mode=0o700, exist_ok=True)
        self._file.change(edit)

    def forget(self, paths: Iterable[str]) -> None:
        """Remove `paths`, whose content the user endorsed. Raise StateError or OSError."""
        gone = set(paths)
        if not gone & self._file.read().value.keys():
            return
        self._file.change(lambda known: ({path: each for path, each in known.items() if path not in gone}, None))

    def source(self, path: str) -> str:
        """Return the source of the untrusted text in the file at `path`, or an empty text. Raise StateError."""
        found = self._file.read().value.get(path)
        if found is None:
            return ""
        return found.source if found.sha256 in (_LARGE, content_hash(path)) else ""

    def below(self, folder: str) -> tuple[str, ...]:
        """Return the files at or below `folder` whose content is untrusted. Raise StateError."""
        inner = folder.rstrip("/") + "/"
        known = self._file.read().value
        return tuple(path for path in known if (path == folder or path.startswith(inner)) and self.source(path))


def content_hash(path: str) -> str:
    """Return the SHA-256 of the content of the regular file at `path`; `large` for a large one, empty without one."""
    try:
        return hashlib.sha256(read_whole(path, _LARGEST, follow=True)).hexdigest()
    except FileTooLongError:
        return _LARGE
    except (OSError, ValueError):
        return ""


def _parsed(body: dict[str, object], version: int) -> Mapping[str, UntrustedFile]:
    found: dict[str, UntrustedFile] = {}
    files = body.get("files")
    if not isinstance(files, dict):
        raise ValueError("`files` is not a table")
    for path, each in files.items():
        if not isinstance(each, dict) or not all(isinstance(each.get(name), str) for name in ("sha256", "source")):
            raise ValueError(f"the entry of `{os.fspath(path)[:80]}` is not valid")
        found[path] = UntrustedFile(each["sha256"], each["source"])
    return found


def _dump(value: Mapping[str, UntrustedFile]) -> dict[str, object]:
    return {"files": {path: {"sha256": each.sha256, "source": each.source} for path, each in value.items()}}
