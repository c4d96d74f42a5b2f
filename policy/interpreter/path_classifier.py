"""The classification of paths: the real path, and whether it is in the workspace, in the system, outside or secret."""

from enum import StrEnum
from functools import lru_cache

from policy.model.assessment import Scope
from policy.model.facts import Facts, GitSource, GitSourceKind, Kind
from policy.model.frozen import dataclass
from policy.model.glob import late
from policy.model.host_words import endpoint
from policy.model.profile import Profile
from policy.model.secret_names import sometimes
from policy.model.secret_paths import Secrets, inside, normal

HARMLESS = frozenset((
    "/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/stdin", "/dev/stdout", "/dev/stderr",
    "/dev/tty", "/dev/fd/0", "/dev/fd/1", "/dev/fd/2", "/proc/self/fd/0", "/proc/self/fd/1", "/proc/self/fd/2",
))  # fmt: skip
LONGEST = 4096  # characters of a path: PATH_MAX of Linux, more than that of macOS
LOOK = 15  # steps of the budget for one look at the disk
_CONTENT = ("objects", "lfs", "rebase-merge", "rebase-apply", "rr-cache")  # gitrepository-layout(5)
SCRATCH = "/tmp"  # noqa: S108  # in the sandbox its own folder, which exists as long as the session
_SOCKET = late(r"(?:/dev/(?:tcp|udp)|/inet[46]?/(?:tcp|udp)/[^/]*)/([^/]*)(?:/([^/]*))?")  # of bash, and of gawk
_SOCKETS = ("/dev/tcp/", "/dev/udp/", "/inet")


MOST_WORK = 25_000  # steps of one decision, about one microsecond each
WORK_PER_CHARACTER = 8  # further steps for each character of the script; ordinary scripts need 1 to 10 in all
MOST_WORK_AFTER = 5_000  # steps of the search for secrets in a script that exhausted the budget


class TooMuchError(Exception):
    """The error for an exhausted budget. Only `classify` catches it, and returns a question."""


class WorkBudget:
    """The bound on the work of one decision: a count of steps, not of time, so that a script always gets the same
    verdict. The bound grows with the length of the script, which is limited itself. Ordinary scripts stay far below it;
    a script that exhausts the budget is written to delay the gate.

    INVARIANT: every loop of a decision whose length a script can choose spends budget before each round, or iterates
    over data that the parser has counted.
    """

    def __init__(self) -> None:
        self.left = MOST_WORK

    def allow_script(self, length: int) -> None:
        """Allow the further steps that a script of `length` characters may need."""
        self.left += WORK_PER_CHARACTER * length

    def spend(self, steps: int) -> None:
        """Subtract `steps`. Raises TooMuchError if fewer are left."""
        self.left -= steps
        if self.left < 0:
            raise TooMuchError


class Device(StrEnum):
    """The kind of a path that is not a file. Writing to `HARMLESS` has no effect; `SOCKET` is bash's /dev/tcp."""

    NONE = "none"
    HARMLESS = "harmless"
    SOCKET = "socket"
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class ResolvedPath:
    """One resolved path.

    Attributes:
        bound: the word names some path below `path`, not `path` itself.
        shown: the path as shown to people.
        above: the workspace, the home folder or a system folder is below the path, so a listing of the path inside the
            sandbox differs from the one outside.
    """

    path: str
    scope: Scope
    kind: Kind
    shown: str
    bound: bool = False
    device: Device = Device.NONE
    above: bool = False
    locked: bool = False


class PathClassifier:
    """The resolver of paths for one decision, with one set of facts. Looking at a new path spends budget."""

    def __init__(self, facts: Facts, profile: Profile) -> None:
        self.facts, self.profile = facts, profile
        self.secrets = Secrets(profile, facts.home, facts.private)
        self._roots = _index_roots(facts.system)
        self._places: dict[tuple[str, bool], ResolvedPath] = {}
        self._repositories: dict[str, str | None] = {}
        self.budget = WorkBudget()

    def absolute(self, text: str, cwd: str) -> str:
        """Return `text` resolved as the kernel does from `cwd`: `..` leads to the real parent of a link's target."""
        self.budget.spend(2 + text.count("/"))
        current = "/" if text.startswith("/") else self.facts.look(cwd).real
        for part in text.split("/"):
            if part in ("", "."):
                continue
            if part == "..":
                self.budget.spend(LOOK + current.count("/"))
                current = self.facts.look(current).real.rsplit("/", 1)[0] or "/"
            else:
                current = f"{current}/{part}" if current != "/" else f"/{part}"
        return current

    def logical(self, text: str, cwd: str) -> str:
        """Return `text` resolved as bash's `cd` does: `..` removes the last name, even if it is a link."""
        return normal(text if text.startswith("/") else f"{cwd}/{text}")

    def place(self, text: str, cwd: str, *, bound: bool = False) -> ResolvedPath:
        """Classify `text`. With `bound`, the word names some path below the folder `text`."""
        if "\0" in text or len(text) > LONGEST:
            # No kernel opens such a path, and a look at each of its folders would take long.
            return ResolvedPath(text[:LONGEST], Scope.OUTSIDE, Kind.OTHER, repr(text[:LONGEST]), bound)
        path = self.absolute(text, cwd)
        known = self._places.get((path, bound))
        if known is None:
            known = self._places[path, bound] = self._judge(path, bound)
        return known

    def _judge(self, path: str, bound: bool) -> ResolvedPath:
        if path.startswith(_PROCESS_LINK_STARTS) and _PROCESS_LINK.match(path) and path not in HARMLESS:
            return self._place_process_link(path, bound)
        self.budget.spend(LOOK + 6 * path.count("/"))
        fact = self.facts.look(path)
        real, device = fact.real, _device(path)
        if device is Device.NONE and real != path:
            device = _device(real)
        spelled = (path,) if real == path else (path, real)
        if any(map(self.secret, spelled)) or any(map(self._login, spelled)):
            scope = Scope.SECRET
        elif device is not Device.NONE:
            scope = Scope.NONE if device is Device.HARMLESS else Scope.OUTSIDE
        else:
            scope = self.scope(real)
        if scope is Scope.OUTSIDE:
            locked = any(map(self.secrets.runs_from_home, spelled))
        else:
            locked = scope is Scope.WORKSPACE and any(map(self.locked, spelled))
        above = real in self._roots.above or real == "/" or self.facts.workspace.startswith(f"{real}/")
        return ResolvedPath(real, scope, fact.kind, self.shown(real), bound, device, above, locked)

    def _login(self, path: str) -> bool:
        """Return True if the file at `path` in the workspace, or among another agent's settings in the home folder, is
        secret because it contains a login.
        """
        if not sometimes(path.rpartition("/")[2]):
            return False
        return (inside(path, self.facts.workspace) or self.secrets.runs_from_home(path)) and self.facts.login(path)

    def _place_process_link(self, path: str, bound: bool) -> ResolvedPath:
        """Return the place of a kernel link whose target is unknown, because it differs for every process."""
        below = _PROCESS_LINK.sub("/", path).replace("//", "/")
        scope = Scope.SECRET if self.secret(path) or self.secret(below) else Scope.OUTSIDE
        return ResolvedPath(path, scope, Kind.OTHER, path, bound, _device(path))

    def finds_secrets(self, head: str, tail: str, cwd: str) -> bool:
        """Return True if a pattern with this beginning and end is meant to find secrets: `.env*`, `*.pem`, `*/.env`."""
        return any(self.secret(self.absolute(f"{head}{middle}{tail}", cwd)) for middle in ("", "x"))

    def scope(self, real: str) -> Scope:
        """Return the area that contains the real path `real`, secret or not."""
        if inside(real, self.facts.workspace):
            return Scope.WORKSPACE
        if self._roots.hold(real) or _SAFE_PROC.match(real):
            return Scope.SYSTEM
        return Scope.SCRATCH if self._scratch(real) else Scope.OUTSIDE

    def _scratch(self, real: str) -> bool:
        """Return True if `real` is in the session's own /tmp, and the machine has no file with that name."""
        if not inside(real, SCRATCH):
            return False
        top = real.split("/")[2:3]
        return not top or self.facts.look(f"{SCRATCH}/{top[0]}").kind is Kind.MISSING

    def secret(self, path: str) -> bool:
        """Return True if `path` is in a credential store, or a name on it is that of a key or password file."""
        if self.secrets.holds_folder(path):
            return True
        workspace = self.facts.workspace
        if inside(path, workspace):
            return self.secret_parts(path[len(workspace) :])
        return not self._roots.hold(path) and self.secret_parts(path)  # no certificate of the system is secret

    def secret_parts(self, path: str) -> bool:
        """Return True if a name on `path`, alone or with the name of its folder, is that of a key or password file."""
        return self.secrets.names_secret(path)

    def named_secret(self, path: str) -> bool:
        """Return True if `path` in the workspace is secret only by its name: the name may be shown, the content may
        not.
        """
        return inside(path, self.facts.workspace) and not self.secrets.holds_folder(path)

    def locked(self, path: str) -> bool:
        """Return True if `path` is locked (other programs automatically run or read the file: hooks, editor tasks), or
        if it is a folder that contains a locked path.
        """
        workspace = self.facts.workspace
        return self.secrets.locked_in(path, workspace) or self.secrets.above_locked_in(path, workspace)

    def locked_names(self, start: str, end: str) -> list[str]:
        """Return the locked entries of a folder whose names have this beginning and end. A pattern without a dot finds
        none.
        """
        tops = dict.fromkeys(entry.strip("/").split("/")[0] for entry in self.profile.locked)
        return [name for name in tops if start[:1] == "." and name.startswith(start) and name.endswith(end)]

    def history(self, path: str) -> bool:
        """Return True if `path` is in the folder in which Git keeps all versions, except for the lock files."""
        below = path[len(self.facts.workspace) :].split("/") if inside(path, self.facts.workspace) else []
        return ".git" in below and not path.endswith(".lock")

    def stored_objects(self, path: str) -> bool:
        """Return True if `path` is in a folder of Git's objects, which undo does not store."""
        return self.history(path) and "/objects/" in f"/{path.partition('/.git/')[2]}/"

    def git_secrets(self, path: str) -> tuple[str, ...] | None:
        """Return the secret files whose content Git may have in `path`, a file or folder of the workspace's `.git`.

        None if that is unknown. Git packs content, but any program can unpack it.
        """
        git = f"{self.facts.workspace}/.git"
        if not inside(path, git):
            return ()
        if path != git and not any(inside(path, f"{git}/{name}") for name in _CONTENT):
            return ()
        self.budget.spend(LOOK)
        found = [self.facts.tracked(GitSource(kind)) for kind in (GitSourceKind.INDEX, GitSourceKind.HISTORY)]
        names = {name for each in found for name in each or ()}
        return tuple(sorted(names)) if names or None not in found else None

    def shown(self, path: str) -> str:
        """Return `path` as shown to people: relative to the workspace, or with `~`."""
        workspace, home = self.facts.workspace, self.facts.home
        if path == workspace:
            return "the workspace"
        if path.startswith(f"{workspace}/"):
            return path[len(workspace) + 1 :]
        if path == home or path.startswith(f"{home}/"):
            return "~" + path[len(home) :]
        return path

    def surely_folder(self, path: str) -> bool:
        """Return True if `path` is a folder of the workspace or the system that exists now, inside the sandbox too."""
        place = self.place(path, "/")
        return place.kind is Kind.FOLDER and place.scope in (Scope.WORKSPACE, Scope.SYSTEM)

    def foreign_repository(self, cwd: str) -> str | None:
        """Return the folder of another Git repository than the workspace's that governs `cwd`, or None.

        The settings of such a repository may name programs. Source: `is_git_directory` in Git's setup.c.
        """
        if cwd not in self._repositories:
            self._repositories[cwd] = self._foreign_repository(cwd)
        return self._repositories[cwd]

    def _foreign_repository(self, cwd: str) -> str | None:
        workspace, current = self.facts.workspace, self.facts.look(cwd).real
        if not inside(current, workspace):
            # A folder that does not exist is missing in the sandbox, too, so no command can run in it.
            return current if self.facts.look(current).kind is not Kind.MISSING else None
        while current != workspace:
            # A dangling link `HEAD` is a branch without commits; `commondir` says where `objects` are.
            has_objects = self._exists(f"{current}/objects") or self._exists(f"{current}/commondir")
            if self._exists(f"{current}/.git") or (has_objects and self._exists(f"{current}/HEAD")):
                return current
            current = current.rpartition("/")[0] or "/"
        return None

    def _exists(self, path: str) -> bool:
        """Return True if `path` exists. A dangling link exists. The path of the parent folder must contain no links."""
        fact = self.facts.look(path)
        return fact.kind is not Kind.MISSING or fact.real != path


@dataclass(frozen=True, slots=True)
class _Roots:
    """The system folders, indexed for look-up. `above`: the folders that contain one of them."""

    exact: frozenset[str]
    starts: tuple[str, ...]
    above: frozenset[str]

    def hold(self, path: str) -> bool:
        return path in self.exact or path.startswith(self.starts)


@lru_cache(maxsize=8)
def _index_roots(roots: tuple[str, ...]) -> _Roots:
    parts = [root.split("/") for root in roots]
    return _Roots(
        exact=frozenset(roots),
        starts=tuple("/" if root == "/" else f"{root}/" for root in roots),
        above=frozenset("/".join(each[:count]) for each in parts for count in range(2, len(each))),
    )


def socket_host(text: str) -> str | None:
    """Return the host of bash's `/dev/tcp/HOST/PORT` and gawk's `/inet/tcp/0/HOST/PORT`, with its port, or None.

    Empty if the name or the port is not certain.
    """
    match = _SOCKET.match(text) if text.startswith(_SOCKETS) else None
    return (endpoint(f"tcp://{match[1]}:{match[2] or ''}") or "") if match else None


def _device(path: str) -> Device:
    if path in HARMLESS:
        return Device.HARMLESS
    if path.startswith(_SOCKETS) and _SOCKET.match(path):
        return Device.SOCKET
    shared = path.startswith("/dev/disk/") or path == "/dev/shm" or path.startswith("/dev/shm/")  # noqa: S108  # named, not used
    return Device.OTHER if path.startswith("/dev/") and not shared else Device.NONE


# These links have another target for each process that follows them.
_PROCESS_LINK = late(
    r"/proc/(?:self|thread-self|[0-9]+)(?:/task/[0-9]+)?/(?:cwd|root|exe|fd|map_files|ns)(?:/|\Z)|/dev/fd/(?![012]\Z)"
)
_PROCESS_LINK_STARTS = ("/proc/", "/dev/fd/")
# Facts about the machine without data of users; the memory, environment and files of a process are not among them.
_SAFE_PROC = late(
    r"/proc(/(cpuinfo|meminfo|loadavg|uptime|version|stat|filesystems|mounts|swaps|partitions|diskstats|vmstat|cmdline"
    r"|modules|devices|interrupts|net(/.*)?|sys(/.*)?|self/(status|stat|limits|cgroup|mounts|mountinfo|comm)))?\Z"
    r"|/sys(/.*)?\Z|/dev(/disk(/.*)?)?\Z"
)
