"""The files of a workspace that were written while untrusted text was in view, by path and hash of their content.

They stay untrusted in later sessions, until the user commits or endorses them. The same path with another content is
another text, and the same content under another path is the same text. The list is in the private state folder, where
no command can read or change it.

THREAT T269: a list that forgets would make a text trusted. Of too many files, those of the folder with the most of them
are replaced by the folder, in which every file counts.
"""

import hashlib
import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import field
from pathlib import Path

from policy.model.frozen import dataclass, replace
from runner.state.json_file import StateFile
from runner.state.workspace import workspace_key
from sandbox.inside.regular_file import FileTooLongError, read_whole

_MOST = 2_000  # files of one workspace
_MOST_COMMITS = 10_000
_LARGEST = 16 << 20  # bytes of a file whose content is compared
_LARGE = "large"  # in place of a hash: a file that is too large to compare stays untrusted
_LONGEST = 300  # characters of one source
_NOTHING = hashlib.sha256(b"").hexdigest()  # an empty file is no text
_EVERY = "*"  # in place of a commit: an agent made more commits than can be listed, so that none endorses anything


@dataclass(frozen=True, slots=True)
class UntrustedFile:
    """One file: the SHA-256 of its untrusted content, and the source of the untrusted text in words. An empty source is
    that of a content which the user endorsed.
    """

    sha256: str
    source: str


@dataclass(frozen=True, slots=True)
class UntrustedFiles:
    """The list.

    Attributes:
        files: The files by their paths.
        commits: The commits that an agent made.
        folders: The folders in which every file is untrusted, each with the source of the text.
    """

    files: Mapping[str, UntrustedFile] = field(default_factory=dict)
    commits: tuple[str, ...] = ()
    folders: Mapping[str, str] = field(default_factory=dict)


class WrittenFiles:
    """The list for one workspace.

    `state` is the state folder, `workspace` the real path of the workspace. `introduced` returns the commit that
    brought the present content of a file into the history, or an empty text. `since` returns the commits between two
    states of HEAD, and True if these are all of them.
    """

    def __init__(
        self,
        state: Path,
        workspace: str,
        introduced: Callable[[str], str] = lambda path: "",
        since: Callable[[str | None, str], tuple[tuple[str, ...], bool]] = lambda before, now: ((now,), True),
    ) -> None:
        self._introduced = introduced
        self._since = since
        self._workspace = workspace
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
            return self._bounded(replace(known, files={**kept, **added})), None

        self._folder.mkdir(mode=0o700, exist_ok=True)
        self._file.change(edit)

    def note_commits(self, before: str | None, now: str) -> None:
        """Note the commits of an action, which endorse nothing. `before` and `now` are HEAD before and after it;
        `before` is None without a commit. Raise StateError or OSError.
        """
        commits, complete = self._since(before, now)
        more = commits if complete else (_EVERY,)

        def edit(known: UntrustedFiles) -> tuple[UntrustedFiles, None]:
            found = (*known.commits, *more)
            return replace(known, commits=found if len(found) <= _MOST_COMMITS else (_EVERY,)), None

        self._folder.mkdir(mode=0o700, exist_ok=True)
        self._file.change(edit)

    def forget(self, paths: Iterable[str]) -> None:
        """Take `paths` as trusted with their present content, which the user endorsed. Raise StateError or OSError."""
        known = self._file.read().value
        endorsed = {
            path: UntrustedFile(digest, "")
            for path in paths
            if (path in known.files or _marked(known, path)) and (digest := content_hash(path)) not in ("", _LARGE)
        }
        gone = {path for path in paths if path in known.files}
        if not endorsed and not gone:
            return

        def edit(known: UntrustedFiles) -> tuple[UntrustedFiles, None]:
            kept = {path: each for path, each in known.files.items() if path not in gone}
            return self._bounded(replace(known, files={**kept, **endorsed})), None

        self._file.change(edit)

    def any(self) -> bool:
        """Return True if a file of the workspace may be untrusted. Raise StateError."""
        known = self._file.read().value
        return bool(known.files or known.folders)

    def source(self, path: str) -> str:
        """Return the source of the untrusted text in the file at `path`, or an empty text: for another content, and
        for one that the user committed. Raise StateError.
        """
        known = self._file.read().value
        if not known.files and not known.folders:
            return ""
        digest = content_hash(path)
        found = known.files.get(path)
        if found is not None and found.sha256 in (_LARGE, digest):
            source = found.source
        else:
            source = _marked(known, path) or self._same_text(known, digest)
        if not source or not digest:
            return ""
        commit = self._introduced(path)
        return "" if commit and commit not in known.commits and _EVERY not in known.commits else source

    def below(self, place: str) -> tuple[tuple[str, str], ...]:
        """Return the files at or below `place` whose content is untrusted, and the folders there in which every file
        is, each with its source. Raise StateError.
        """
        inner = place.rstrip("/") + "/"
        known = self._file.read().value
        if not known.files and not known.folders:
            return ()
        found = {path: self.source(path) for path in (place, *known.files) if path == place or path.startswith(inner)}
        if os.path.isdir(place):
            found |= {folder: source for folder, source in known.folders.items() if f"{folder}/".startswith(inner)}
            found[place] = _marked(known, f"{place}/")
        return tuple((path, source) for path, source in found.items() if source)

    def _same_text(self, known: UntrustedFiles, digest: str) -> str:
        """Return the source of a file with the same content under another name."""
        if digest in ("", _LARGE, _NOTHING):
            return ""
        return next((each.source for each in known.files.values() if each.sha256 == digest and each.source), "")

    def _bounded(self, known: UntrustedFiles) -> UntrustedFiles:
        """Replace files by their folder, until the list is short enough. Endorsed contents are forgotten first."""
        files, folders = dict(known.files), dict(known.folders)
        endorsed = [path for path, each in files.items() if not each.source]
        for path in endorsed[: max(0, len(files) - _MOST)]:
            del files[path]
        while len(files) > _MOST:
            counts = Counter(self._group(path) for path, each in files.items() if each.source)
            group = counts.most_common(1)[0][0]
            gone = [path for path, each in files.items() if each.source and self._group(path) == group]
            folders[group] = files[gone[-1]].source
            for path in gone:
                del files[path]
        return replace(known, files=files, folders=folders)

    def _group(self, path: str) -> str:
        """Return the folder of the first level that contains `path`, or the workspace for a file directly in it."""
        inner = self._workspace.rstrip("/") + "/"
        if not path.startswith(inner):
            return os.path.dirname(path)
        first, slash, _ = path[len(inner) :].partition("/")
        return f"{inner}{first}" if slash else self._workspace


def _marked(known: UntrustedFiles, path: str) -> str:
    """Return the source of the folder of the list that contains `path`, or an empty text."""
    return next((source for folder, source in known.folders.items() if path.startswith(folder.rstrip("/") + "/")), "")


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
    files, commits, folders = body.get("files"), body.get("commits", []), body.get("folders", {})
    if not isinstance(files, dict):
        raise ValueError("`files` is not a table")
    if not isinstance(commits, list) or not all(isinstance(each, str) for each in commits):
        raise ValueError("`commits` is not a list of texts")
    if not isinstance(folders, dict) or not all(isinstance(each, str) and each for each in folders.values()):
        raise ValueError("`folders` is not a table of texts")
    for path, each in files.items():
        if not isinstance(each, dict) or not all(isinstance(each.get(name), str) for name in ("sha256", "source")):
            raise ValueError(f"the entry of `{os.fspath(path)[:80]}` is not valid")
        found[path] = UntrustedFile(each["sha256"], each["source"])
    return UntrustedFiles(found, tuple(commits), folders)


def _dump(value: UntrustedFiles) -> dict[str, object]:
    files = {path: {"sha256": each.sha256, "source": each.source} for path, each in value.files.items()}
    return {"files": files, "commits": list(value.commits), "folders": dict(value.folders)}
