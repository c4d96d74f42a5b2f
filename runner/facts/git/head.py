"""The Git commit a workspace stands at, read from a few small files: no program of the workspace's choosing is run."""

import contextlib
import os
import stat

_LARGEST = 4 << 20  # packed-refs of a big repository


def head_commit(workspace: str) -> str | None:
    """The commit hash of HEAD, or None when there is none or it cannot be read cheaply and safely."""
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
    """The text of a file of a repository, None when it cannot be had.

    THREAT: the workspace is not ours. No symlink is followed, and a fifo, device or huge file is not read."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError):
        return None
    try:
        with contextlib.suppress(OSError):
            found = os.fstat(descriptor)
            if stat.S_ISREG(found.st_mode) and found.st_size <= _LARGEST:
                return os.read(descriptor, _LARGEST).decode("utf-8", "replace")
    finally:
        os.close(descriptor)
    return None
