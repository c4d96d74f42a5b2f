"""Git repositories for tests: settings that are the same on every machine, folders that are made once and copied for each
test, and objects from one process for each repository.
"""

import contextlib
import os
import shutil
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

_SETTINGS = {
    "advice.detachedHead": "false",
    "gc.auto": "0",
    "init.defaultBranch": "main",
    "init.templateDir": "",  # no samples of hooks, and no folder `info`
    "maintenance.auto": "false",  # one more process for each commit
    "protocol.file.allow": "always",  # for submodules
}
_PEOPLE = {f"GIT_{role}_{what}": "a@b" for role in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
_DATES = {f"GIT_{role}_DATE": "2026-01-02T03:04:05Z" for role in ("AUTHOR", "COMMITTER")}

# The environment of Git: nothing of the caller's settings, the same identity and the same dates in every run.
ENVIRON: Mapping[str, str] = {
    "PATH": os.environ["PATH"],
    "LC_ALL": "C.UTF-8",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_COUNT": str(len(_SETTINGS)),
    **{f"GIT_CONFIG_KEY_{number}": name for number, name in enumerate(_SETTINGS)},
    **{f"GIT_CONFIG_VALUE_{number}": value for number, value in enumerate(_SETTINGS.values())},
    **_PEOPLE,
    **_DATES,
}


class Template:
    """A folder that `build` makes once, at the first use, and that each test gets a copy of.

    A copy has the contents, modes and times of the folder, but other inodes. So Git compares the contents of its files
    once before it says that they are unchanged, as in a repository that was moved.
    """

    def __init__(self, folder: Path, build: Callable[[Path], object]) -> None:
        self._folder, self._build = folder, build
        self._built = False

    def copy(self, into: Path) -> Path:
        """Copy the contents of the folder into another one, which may exist, and return that one."""
        if not self._built:
            self._build(self._folder)
            self._built = True
        return Path(shutil.copytree(self._folder, into, symlinks=True, dirs_exist_ok=True))


class ObjectReader:
    """The objects of one repository, read by one `git cat-file --batch` from the first question to `close`.

    The process sees what other processes write to the repository in the meantime.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None

    def id(self, name: str) -> str | None:
        """Return the id of the object that a name such as `HEAD~1:src/a.py` means, or None if there is none."""
        return found[0] if (found := self._ask(name)) is not None else None

    def content(self, name: str) -> bytes | None:
        """Return the content of the object that a name means, or None if there is none."""
        return found[1] if (found := self._ask(name)) is not None else None

    def close(self) -> None:
        if self._process is not None:
            with contextlib.suppress(BrokenPipeError), self._process as process:
                assert process.stdin is not None
                process.stdin.close()
            self._process = None

    def _ask(self, name: str) -> tuple[str, bytes] | None:
        assert "\n" not in name, "one name a line"
        if self._process is None:
            self._process = subprocess.Popen(
                ["git", "cat-file", "--batch"],
                cwd=self._folder,
                env=ENVIRON,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
            )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(os.fsencode(name) + b"\n")
        self._process.stdin.flush()
        head = self._process.stdout.readline()
        assert head, "`git cat-file` has ended"
        if head.endswith((b" missing\n", b" ambiguous\n")):
            return None
        id, _kind, size = head.split()
        content = self._process.stdout.read(int(size) + 1)[:-1]
        return id.decode(), content
