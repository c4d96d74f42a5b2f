"""The completion of `@`: the names of files below the working folder, without secrets and without files Git ignores.

A name is only a word of the prompt. The gate decides whether the model may read the file.
"""

import os
import re
import threading
import time
from collections.abc import Callable

from policy.model.deadline import deadline
from runner.frontends.tui.menu import MenuEntry, Proposals, best
from sandbox.inside.regular_file import read_start

_TOKEN = re.compile(r'(?:^|(?<=\s))@(?:"([^"\n]*)|([^\s"]*))$')
_FRESH = 10.0  # seconds until a list is read again
_MOST, _DEEPEST = 20_000, 12  # names of a list, and levels of folders
_SHOWN = 50  # proposals
_LONGEST = deadline(4.0)  # seconds to read a list: files that are not found in this time are not proposed
_LIST, _LINES = 1 << 16, 1000  # bytes and lines that are read of one ignore list of Git
_HEAVY = frozenset({"node_modules", "__pycache__", "venv", "target", "dist", "build"})  # many generated files


class FileProposals:
    """A ProposalSource of file names.

    The list is read in a thread, which calls `ready` after each reading. Nothing is proposed while `root` is empty.
    `secret` is a function that returns True for the path of a secret file.
    """

    def __init__(self, ready: Callable[[], object]) -> None:
        self.root = ""
        self.secret: Callable[[str], bool] = lambda path: False
        self._ready = ready
        self._names: list[str] = []
        self._read = 0.0
        self._reading = False

    def __call__(self, before: str) -> Proposals | None:
        token = _TOKEN.search(before)
        if token is None or not self.root:
            return None
        if time.monotonic() - self._read > _FRESH and not self._reading:
            self._reading = True
            threading.Thread(target=self._look, name="names of files", daemon=True).start()
        typed = token[1] if token[1] is not None else token[2]
        names = best(typed, self._names, str, _SHOWN)
        return Proposals(token.start(), [MenuEntry(f'@"{name}"' if " " in name else f"@{name}") for name in names])

    def _look(self) -> None:
        self._names = listed(self.root, self.secret)
        self._read, self._reading = time.monotonic(), False
        self._ready()


def listed(root: str, secret: Callable[[str], bool]) -> list[str]:
    """Return files and folders (with a final `/`) below `root`, the nearest first.

    Hidden files, secrets, links, files that Git ignores, folders of generated files (`_HEAVY`) and names that cannot be
    typed are left out.
    """
    names: list[str] = []
    level = [""]
    ignored = ignored_below(root)
    end = time.monotonic() + _LONGEST
    for _ in range(_DEEPEST):
        below: list[str] = []
        for folder in level:
            try:
                with os.scandir(os.path.join(root, folder)) as entries:
                    rows = sorted(entries, key=lambda entry: entry.name)
            except OSError:
                continue  # not readable, or removed
            for entry in rows:
                path = f"{folder}{entry.name}"
                if entry.name.startswith(".") or not path.isprintable() or '"' in path or entry.is_symlink():
                    continue
                if secret(os.path.join(root, path)):
                    continue
                if len(names) >= _MOST or time.monotonic() > end:
                    return names
                if not entry.is_dir():
                    if not ignored(path):
                        names.append(path)
                elif entry.name not in _HEAVY and not ignored(f"{path}/"):
                    names.append(f"{path}/")
                    below.append(f"{path}/")
        level = below
    return names


def ignored_below(root: str) -> Callable[[str], bool]:
    """Return a function that tells if Git ignores a file, or a folder (with a final `/`), at a path below `root`.

    The ignore lists of the whole enclosing repository are read; no program is run.
    """
    from runner.changes.review.gitignore import Ignored

    top = root
    while not os.path.lexists(os.path.join(top, ".git")):
        above = os.path.dirname(top)
        if above == top:
            return lambda path: False  # no repository
        top = above

    def read(path: str) -> bytes | None:
        data = read_start(os.path.join(top, path), _LIST, follow=False)
        return b"\n".join(data.split(b"\n")[:_LINES])

    ignored = Ignored(read, first=(read(".git/info/exclude") or b"",))
    prefix = "" if top == root else f"{os.path.relpath(root, top)}/"
    return lambda path: ignored(prefix + path)
