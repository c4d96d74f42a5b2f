"""The state of the machine when an action is judged. The runner gathers it; the policy engine only reads it."""

from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from typing import TYPE_CHECKING

from policy.model.assessment import Scope
from policy.model.frozen import dataclass, field

if TYPE_CHECKING:
    from datetime import date

USUAL = "origin"  # git-fetch(1): the default remote
# Programs for which `Facts.registries` returns the host of a service that the user's settings name.
SERVICE_CLIENTS = frozenset(["kubectl", "oc", "helm", "docker", "aws"])


@dataclass(frozen=True, slots=True)
class Remotes:
    """The remotes of one repository.

    Attributes:
        fetch: fetch addresses by the name of the remote, as written.
        push: push addresses by the name of the remote, as written.
        groups: the remotes of each group (`remotes.NAME`), by the name of the group.
        usual: the remote of the current branch for fetching.
        usual_push: the remote of the current branch for pushing.
        modules: addresses of submodules.
        instead: pairs (prefix, replacement) of `url.*.insteadOf`.
        instead_push: pairs (prefix, replacement) of `url.*.pushInsteadOf`.
    """

    fetch: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    push: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    groups: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    usual: str = USUAL
    usual_push: str = USUAL
    modules: tuple[str, ...] = ()
    instead: tuple[tuple[str, str], ...] = ()
    instead_push: tuple[tuple[str, str], ...] = ()

    def addresses(self, names: Iterable[str], *, push: bool = False) -> tuple[str, ...]:
        """Return the addresses of `names` (remotes, or groups of remotes) as Git would use them; no address for any
        other name.
        """
        found: dict[str, None] = {}
        for name in names:
            for remote in self.groups.get(name, (name,)):
                own = self.push.get(remote, ()) if push else ()
                addresses = own or self.fetch.get(remote, ())
                found |= dict.fromkeys(self.rewritten(address, push=push and not own) for address in addresses)
        return tuple(found)

    def every(self, *, push: bool = False) -> tuple[str, ...]:
        """Return the addresses of all remotes."""
        return self.addresses(dict.fromkeys((*self.fetch, *self.push)), push=push)

    @property
    def written(self) -> frozenset[str]:
        """Return the addresses of all remotes as written, before `insteadOf`."""
        return frozenset(
            address for each in (self.fetch, self.push) for addresses in each.values() for address in addresses
        )

    def rewritten(self, address: str, *, push: bool = False) -> str:
        """Return `address` after `insteadOf`. The longest prefix applies; for a push, the prefixes for pushing apply
        first.
        """
        for pairs in (self.instead_push, self.instead) if push else (self.instead,):
            fits = [pair for pair in pairs if address.startswith(pair[0])]
            if fits:
                start, stands = max(fits, key=lambda pair: len(pair[0]))
                return stands + address[len(start) :]
        return address


class Kind(StrEnum):
    __hash__ = str.__hash__  # that of Enum is a Python function

    FILE = "file"
    FOLDER = "folder"
    MISSING = "missing"
    OTHER = "other"  # device, socket, fifo, or not readable


@dataclass(frozen=True, slots=True)
class PathFact:
    """The facts about one path. `real` is the absolute path with every symlink resolved; a missing tail is kept
    unchanged.
    """

    real: str
    kind: Kind


class GitSourceKind(StrEnum):
    """The kinds of parts of a repository."""

    INDEX = "index"
    ASSUMED = "index entries assumed unchanged"  # git-update-index(1)
    HISTORY = "history"  # all commits
    DELETED = "deleted files"  # files that are in the history and not in HEAD
    STASH = "stash"
    TREE = "tree"  # of a revision
    CHANGE = "change"  # the trees of the commit of a revision and of its parents
    DASHED = "references whose short names begin with a dash"  # the names of the references, and not of files
    CONTENT = "content"  # of the file that a name may name; empty if the name certainly names a commit


@dataclass(frozen=True, slots=True)
class GitSource:
    """One part of the repository of the workspace, from which Git takes the content of files.

    Attributes:
        kind: the kind of the part.
        revision: the revision or the name, as written; empty for kinds without one.
    """

    kind: GitSourceKind
    revision: str = ""

    def __str__(self) -> str:
        """Return the part in words, such as `tree of HEAD~1`. Recorded facts contain this text, so it must not
        change.
        """
        return f"{self.kind} of {self.revision}" if self.revision else str(self.kind)


@dataclass(frozen=True, slots=True)
class ShellText:
    """The text of a file of shell commands, with the SHA-256 (hex) of its bytes. No record contains the text."""

    text: str = field(repr=False)
    sha256: str


@dataclass(frozen=True, slots=True)
class Facts:
    """The state of the machine that `classify` may use.

    Attributes:
        workspace: real absolute path of the workspace.
        home: real absolute path of the user's home folder.
        path: the PATH of the sandbox.
        system: roots that every permit may read (system folders, toolchains).
        private: this program's own state and configuration, never shown to a command.
        repository: the Git folders outside of the workspace that commands may change, as in `Terms.repository`; empty
            unless the workspace is a linked worktree or a submodule.
        look: returns the facts about one absolute path. The caller caches them, so that one decision sees one state.
        which: returns the absolute path of a program on `path`, or None.
        today: the current day, for rules that expire.
        reading: variables added to the environment of commands that only read, so that Git starts no program that the
            repository of the workspace names.
        beyond: the reason why `reading` is insufficient for this repository, or empty.
        cache: the folder on this machine that keeps what tools in this workspace download and build; it may not exist.
        caching: the variables by which tools use `cache`.
        fetching: further variables for commands that may connect to a host.
        remotes: returns the remotes in the settings of the repository that contains a folder. Reads them when called.
        registries: returns the hosts that a package manager contacts in a folder, each with the scope of the settings
            that name it (`system`: no settings do, and the tool has a usual host). Reads them when called. For one of
            SERVICE_CLIENTS (`aws` is followed by the service and the region), the host that the user's settings name.
        telling: returns the variables that pass the given hosts to package managers and SERVICE_CLIENTS. Reads them
            when called.
        tracked: returns the files with secret names in one part of the repository of the workspace (relative to the
            workspace; a folder ends with a slash), or None if unknown.
        login: returns True if a file of settings, such as `.npmrc`, contains a login now (see `secret_names`).
        names: returns the entries of a folder, or None if the list would be incomplete.
        keeps_folder: returns True if a file of shell text contains no command that changes the folder of its shell now.
        shell_text: returns the text of a file of shell commands as it is now, or None if it is not such a file or too
            long. The caller caches it, so that one decision sees one text.
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
    today: "date | None" = None
    repository: tuple[str, ...] = ()
    cache: str = ""
    caching: tuple[tuple[str, str], ...] = ()
    fetching: tuple[tuple[str, str], ...] = ()
    names: Callable[[str], tuple[str, ...] | None] = lambda path: None
    remotes: Callable[[str], Remotes] = lambda folder: Remotes()
    registries: Callable[[str, str], tuple[tuple[str, Scope], ...]] = lambda program, folder: ()
    tracked: Callable[[GitSource], tuple[str, ...] | None] = lambda source: ()
    login: Callable[[str], bool] = lambda path: False
    telling: Callable[[tuple[str, ...]], tuple[tuple[str, str], ...]] = lambda hosts: ()
    keeps_folder: Callable[[str], bool] = lambda path: False
    shell_text: Callable[[str], ShellText | None] = lambda path: None
