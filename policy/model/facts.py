"""What the disk looked like when an action was judged. The shell of the program gathers it; the policy reads it."""

from collections.abc import Callable
from datetime import date
from enum import StrEnum

from policy.model.assessment import Scope
from policy.model.frozen import dataclass
from policy.model.git_remotes import Remotes


class Kind(StrEnum):
    FILE = "file"
    FOLDER = "folder"
    MISSING = "missing"
    OTHER = "other"  # device, socket, fifo, or not readable


@dataclass(frozen=True, slots=True)
class PathFact:
    """`real` is the absolute path with every symlink resolved (a missing tail is kept as it stands)."""

    real: str
    kind: Kind


@dataclass(frozen=True, slots=True)
class Facts:
    """Everything `classify` may know about the machine.

    `workspace`, `home`: real absolute paths. `path`: the sandbox's PATH. `system`: roots that every permit may read
    (system folders, toolchains). `private`: our own state and configuration, never shown to anyone.
    `look` answers for one absolute path; the caller memoises it, so that one decision sees one state of the disk.
    `which` finds a program by name on `path`, as an absolute path, or None. `today` is the day, where rules end.
    `reading`: variables that a command which only reads gets over its environment, so that Git starts no program that
    the workspace's repository names. `beyond`: why those do not do for this repository, or empty.
    `cache` is the folder on this machine that keeps what tools in this workspace fetched and built (there or not), and
    `caching` the variables by which they use it; `fetching`, further ones for those that may talk to a host.
    `remotes` says what the settings of the repository that holds a folder name; `registries`, for a package manager and
    a folder, which hosts it asks, each with the scope of whoever names it; `telling` which variables tell it, of those
    among given hosts. All three look when they are asked.
    `tracked` answers which files in a part of the workspace's repository are secret by their names (relative to the
    workspace; a folder ends with a slash), or None when that is not known. The parts: `index`; `assumed index`, the
    entries of the index that are assumed to be unchanged; `history`; `tree of REVISION`; and `change of REVISION` (the
    trees of that commit and of its parents).
    `login` tells whether a file of settings, such as `.npmrc`, holds a login now (policy/model/login_files.py has the
    names). `names` lists a folder, or answers None when it cannot say all that is in it.
    """

    workspace: str
    home: str
    path: tuple[str, ...]
    system: tuple[str, ...]
    private: tuple[str, ...]
    look: Callable[[str], PathFact]
    which: Callable[[str], str | None]
    reading: tuple[tuple[str, str], ...] = ()
    beyond: str = ""
    today: date | None = None
    cache: str = ""
    caching: tuple[tuple[str, str], ...] = ()
    fetching: tuple[tuple[str, str], ...] = ()
    names: Callable[[str], tuple[str, ...] | None] = lambda path: None
    remotes: Callable[[str], Remotes] = lambda folder: Remotes()
    registries: Callable[[str, str], tuple[tuple[str, Scope], ...]] = lambda program, folder: ()
    tracked: Callable[[str], tuple[str, ...] | None] = lambda where: ()
    login: Callable[[str], bool] = lambda path: False
    telling: Callable[[tuple[str, ...]], tuple[tuple[str, str], ...]] = lambda hosts: ()
