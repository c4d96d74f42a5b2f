"""The name under which our state keeps what belongs to one workspace: sessions, snapshots, trust."""

import hashlib
import os
from pathlib import Path

_LONGEST = 40  # of the readable part; what tells two workspaces apart is the hash
_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyz0123456789")


def workspace_key(workspace: str | Path) -> str:
    """A folder name for `workspace`: the last part of its real path in plain letters, `-`, 16 hex digits of its hash.

    Two spellings of one folder have one key. It holds `a-z`, `0-9` and `-` only, does not start with `-`, and is at
    most 57 long. Two workspaces with one key would need a collision of 64 bits of SHA-256.
    """
    real = os.path.realpath(workspace)
    digest = hashlib.sha256(os.fsencode(real)).hexdigest()[:16]
    words = "".join(char if char in _PLAIN else " " for char in os.path.basename(real).lower()).split()
    return f"{'-'.join(words)[:_LONGEST].rstrip('-') or 'folder'}-{digest}"
