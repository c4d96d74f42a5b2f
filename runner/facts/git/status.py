"""State of a Git repository, read from a few of its files: no program runs, so none of its filters and hooks does."""

import os
import stat
from itertools import islice

from runner.facts.git.index import index_entries, index_header
from runner.facts.git.objects import Unreadable, whole
from runner.state.workspace import git_folder, head_commit, small_file
from runner.text.sanitize import one_line
from sandbox.inside.regular_file import open_regular, read_descriptor

_MOST_FILES = 20_000  # of an index that is compared with the disk
_MOST_BYTES = 8 << 20
_RECENT = 5
_TAIL = 16 << 10  # bytes of the log of HEAD
_WIDE = 120  # characters of a name or a subject

# SOURCE: gitrepository-layout(5): files that exist during an operation.
_UNDER_WAY = {
    "MERGE_HEAD": "a merge",
    "rebase-merge": "a rebase",
    "rebase-apply": "a rebase",
    "CHERRY_PICK_HEAD": "a cherry-pick",
    "REVERT_HEAD": "a revert",
    "BISECT_LOG": "a bisection",
}


def git_state(workspace: str) -> str:
    """Return a few lines that are safe to print; empty without a repository. Names and subjects are untrusted text."""
    folder = git_folder(workspace)
    head = (small_file(f"{folder}/HEAD") or "").strip() if folder else ""
    if not folder or not head:
        return ""
    branch = head.removeprefix("ref: ").removeprefix("refs/heads/") if head.startswith("ref: ") else ""
    commit = head_commit(workspace)
    lines = [f"branch: {one_line(branch, _WIDE)}" if branch else "branch: none (HEAD is detached)"]
    lines += [f"commit: {commit[:12]}"] if commit else []
    doing = dict.fromkeys(what for name, what in _UNDER_WAY.items() if os.path.lexists(f"{folder}/{name}"))
    lines += [f"in progress: {what}" for what in doing]
    tree = compared(workspace, folder)
    if tree is not None:
        rows = zip(tree, ("changed", "missing", "in conflict"), strict=True)
        words = ", ".join(f"{count} {what}" for count, what in rows if count) or "none changed"
        lines.append(f"tracked files: {words} (by size and time; `git status` is exact)")
    if recent := _recent(folder):
        lines += ["recent changes of HEAD, newest first:", *(f"  {each}" for each in recent)]
    return "\n".join(lines)


def _recent(folder: str) -> list[str]:
    """Return the last entries of HEAD's log: the operation and the subject. SOURCE: git-update-ref(1), LOGGING
    UPDATES.
    """
    path = f"{folder}/logs/HEAD"
    if os.path.realpath(path) != path:  # THREAT: a link in the path would show another repository
        return []
    try:
        handle, state = open_regular(path, follow=False)
        try:
            os.lseek(handle, max(state.st_size - _TAIL, 0), os.SEEK_SET)
            text = read_descriptor(handle, _TAIL).decode("utf-8", "replace")
        finally:
            os.close(handle)
    except (OSError, ValueError):
        return []
    subjects = (line.partition("\t")[2] for line in reversed(text.splitlines()))
    return [one_line(subject, _WIDE) for subject in islice(filter(str.strip, subjects), _RECENT)]


def compared(workspace: str, folder: str) -> tuple[int, int, int] | None:
    """Compare the index with the disk. Return the numbers of files that differ by size or time, that are missing, and
    that are in conflict, or None if that would take long, or for an index format that is not supported.
    """
    top = os.fsencode(f"{workspace}/")
    other = gone = 0
    conflicts = set()
    try:
        data = whole(f"{folder}/index", _MOST_BYTES) or b""
        version, count = index_header(data)
        if version == 4 or count > _MOST_FILES:
            return None
        for entry in index_entries(data):
            if entry.stage:
                conflicts.add(entry.name)
                continue
            kind = stat.S_IFMT(entry.mode)
            if entry.assumed or entry.sparse or kind == 0o160000:  # a submodule is a repository of its own
                continue
            now = _status(top, entry.name)
            if now is None:
                gone += 1
                continue
            same = (now.st_size & 0xFFFFFFFF, int(now.st_mtime), stat.S_IFMT(now.st_mode))
            other += same != (entry.size, entry.seconds, kind)
    except Unreadable:
        return None
    return other, gone, len(conflicts)


def _status(top: bytes, name: bytes) -> os.stat_result | None:
    """Return the file status of an entry. THREAT: an index can name any path: a name with `..` is skipped, and no
    file is opened.
    """
    if b".." in name and b".." in name.split(b"/"):
        return None
    try:
        return os.lstat(top + name)
    except (OSError, ValueError):
        return None
