"""Current Git commit of a workspace, read from a few small files without running a program that the workspace names."""

import os

from sandbox.inside.regular_file import read_whole

_LARGEST = 4 << 20  # packed-refs of a big repository


def head_commit(workspace: str) -> str | None:
    """Return the commit hash of HEAD; None when there is none, or it cannot be read cheaply and safely."""
    folder = os.path.join(workspace, ".git")
    head = small_file(os.path.join(folder, "HEAD"))
    if head is None:
        return None
    if not head.startswith("ref: "):
        return _hash(head)
    name = head[5:].strip()
    if not name.startswith("refs/") or ".." in name:
        return None
    loose = small_file(os.path.join(folder, name))
    if loose is not None:
        return _hash(loose)
    for line in (small_file(os.path.join(folder, "packed-refs")) or "").splitlines():
        if line.endswith(f" {name}"):
            return _hash(line.split(" ", 1)[0])
    return None


def _hash(text: str) -> str | None:
    text = text.strip()
    return text if len(text) in (40, 64) and not set(text) - set("0123456789abcdef") else None


def small_file(path: str) -> str | None:
    """Return the text of a file of a repository; None if it cannot be read.

    THREAT: the repository may be hostile. No symbolic link is followed, and no pipe, device or long file is read.
    """
    try:
        return read_whole(path, _LARGEST, follow=False).decode("utf-8", "replace")
    except (OSError, ValueError):
        return None
