"""The classification of paths: the real path, and whether it is in the workspace, in the system, outside or secret."""

import re
from enum import StrEnum
from fnmatch import fnmatchcase
from functools import lru_cache

from policy.interpreter.work_budget import Budget
from policy.model.assessment import Scope
from policy.model.facts import Facts, Kind
from policy.model.frozen import dataclass
from policy.model.host_words import endpoint
from policy.model.profile import Profile
from policy.model.secret_names import sometimes
from policy.model.secret_paths import Secrets, inside

HARMLESS = frozenset(
    [
        "/dev/null",
        "/dev/zero",
        "/dev/full",
        "/dev/random",
        "/dev/urandom",
        "/dev/stdin",
        "/dev/stdout",
        "/dev/stderr",
        "/dev/tty",
    ]
    + [f"/dev/fd/{number}" for number in range(3)]
    + [f"/proc/self/fd/{number}" for number in range(3)]
)
_SIGNS = re.compile(r"[*?]|\[.*?\]")
LONGEST = 4096  # characters of a path: PATH_MAX of Linux, more than that of macOS
_LOOK = 15  # what a look at the disk costs
_CONTENT = ("objects", "lfs", "rebase-merge", "rebase-apply", "rr-cache")  # gitrepository-layout(5)
SCRATCH = "/tmp"  # noqa: S108  # the sandbox's own, made for a session and gone with it
_SOCKET = re.compile(r"(?:/dev/(?:tcp|udp)|/inet[46]?/(?:tcp|udp)/[^/]*)/([^/]*)(?:/([^/]*))?")  # of bash, and of gawk
_SOCKETS = ("/dev/tcp/", "/dev/udp/", "/inet")


class Device(StrEnum):
    """The kind of a path that is not a file. Writing to `HARMLESS` changes nothing; `SOCKET` is bash's /dev/tcp."""

    NONE = "none"
    HARMLESS = "harmless"
    SOCKET = "socket"
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class ResolvedPath:
    """One resolved path.

    Attributes:
        bound: the path meant is not `path` itself but some path below it.
        shown: the path as shown to people.
        above: the workspace, the home folder or a system folder is below the path, so reading it shows those of the
            sandbox.
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

    __slots__ = ("_facts", "_places", "_profile", "_roots", "_secrets", "budget")

    def __init__(self, facts: Facts, profile: Profile) -> None:
        self._facts, self._profile = facts, profile
        self._secrets = Secrets(profile, facts.home, facts.private)
        self._roots = _sorted(facts.system)
        self._places: dict[tuple[str, bool], ResolvedPath] = {}
        self.budget = Budget()

    def absolute(self, text: str, cwd: str) -> str:
        """Return `text` resolved as the kernel does from `cwd`: `..` leads to the real parent of a link's target."""
        self.budget.spend(2 + text.count("/"))
        if text.startswith("/"):
            current, rest = "/", text
        else:
            current, rest = self._facts.look(cwd).real, text
        for part in rest.split("/"):
            if part in ("", "."):
                continue
            if part == "..":
                self.budget.spend(_LOOK + current.count("/"))
                real = self._facts.look(current).real
                current = real.rsplit("/", 1)[0] or "/"
            else:
                current = f"{current}/{part}" if current != "/" else f"/{part}"
        return current

    def logical(self, text: str, cwd: str) -> str:
        """Return `text` resolved as bash's `cd` does: `..` removes the last name, even if it is a link."""
        parts: list[str] = []
        for part in (text if text.startswith("/") else f"{cwd}/{text}").split("/"):
            if part == "..":
                del parts[-1:]
            elif part not in ("", "."):
                parts.append(part)
        return "/" + "/".join(parts)

    def place(self, text: str, cwd: str, *, bound: bool = False) -> ResolvedPath:
        """Classify `text`. With `bound`, the path meant is some path below the folder `text`."""
        if "\0" in text or len(text) > LONGEST:
            # No kernel opens it. To look at every folder of it would take long.
            return ResolvedPath(text[:LONGEST], Scope.OUTSIDE, Kind.OTHER, repr(text[:LONGEST]), bound)
        path = self.absolute(text, cwd)
        known = self._places.get((path, bound))
        if known is None:
            known = self._places[path, bound] = self._judge(path, bound)
        return known

    def _judge(self, path: str, bound: bool) -> ResolvedPath:
        if path.startswith(_VEILS) and _VEILED.match(path) and path not in HARMLESS:
            return self._veiled(path, bound)
        self.budget.spend(_LOOK + 6 * path.count("/"))
        fact = self._facts.look(path)
        real = fact.real
        device = _device(path)
        if device is Device.NONE and real != path:
            device = _device(real)
        secret = self.secret(path) or (real != path and self.secret(real)) or self._login(path) or self._login(real)
        if secret:
            scope = Scope.SECRET
        elif device is not Device.NONE:
            scope = Scope.NONE if device is Device.HARMLESS else Scope.OUTSIDE
        else:
            scope = self._scope(real)
        locked = scope is Scope.WORKSPACE and (self.locked(path) or self.locked(real))
        return ResolvedPath(real, scope, fact.kind, self.shown(real), bound, device, self._above(real), locked)

    def _login(self, path: str) -> bool:
        """Return True if the file at `path` in the workspace is secret because it contains a login."""
        return sometimes(path.rpartition("/")[2]) and inside(path, self._facts.workspace) and self._facts.login(path)

    def _veiled(self, path: str, bound: bool) -> ResolvedPath:
        """Return the place of a kernel link whose target differs for every process, so that the target is unknown."""
        below = _VEILED.sub("/", path).replace("//", "/")
        scope = Scope.SECRET if self.secret(path) or self.secret(below) else Scope.OUTSIDE
        return ResolvedPath(path, scope, Kind.OTHER, path, bound, _device(path))

    def aimed(self, head: str, tail: str, cwd: str) -> bool:
        """Return True if a pattern with this beginning and end is meant to find secrets: `.env*`, `*.pem`, `*/.env`."""
        return any(self.secret(self.absolute(f"{head}{middle}{tail}", cwd)) for middle in ("", "x"))

    def store(self, head: str, cwd: str) -> str:
        """Return the credential store, as shown to people, that contains every path that starts with `head`, or an
        empty text.
        """
        if len(head) > LONGEST or "\0" in head:
            return ""  # no kernel opens it
        for start in dict.fromkeys((head.rpartition("/")[0] or "/", head) if "/" in head else (head,)):
            path = self.absolute(start, cwd)
            for each in (path, self._facts.look(path).real):
                if self._secrets.holds_folder(each):
                    return self.shown(each)
        return ""

    def shaped_store(self, shape: str) -> str:
        """Return the credential store that contains paths of this shape, as shown to people, or an empty text.

        `shape` is absolute, with `*` for each unknown part: `/home/*/.ssh/*`, `/proc/*/environ`. The unknown part may
        be the user, a process or a file; a name of which two characters are known may be a store that matches it.
        """
        if shape[:1] != "/" or "*" not in shape or len(shape) > LONGEST:
            return ""
        homes, _, user = self._facts.home.rpartition("/")
        parts = shape.split("/")
        for at, part in enumerate(parts):
            above = "/".join(parts[:at])
            if part and not part.strip("*"):
                parts[at] = user if above == homes else "1"
            elif _SIGNS.search(part):
                stores = self._profile.secret_home if above == self._facts.home and at + 1 < len(parts) else ()
                known = len(_SIGNS.sub("", part)) > 1
                found = next((each for each in stores if known and "/" not in each and fnmatchcase(each, part)), None)
                if found is None:
                    return ""
                parts[at] = found
        path = "/".join(parts)
        self.budget.spend(_LOOK)
        return self.shown(path) if self._secrets.holds_folder(path) else ""

    def secret_end(self, head: str, end: str) -> bool:
        """Return True if the names `end` make a path that starts with `head` a secret."""
        if head.startswith("/") and self._scope(self.absolute(head.rpartition("/")[0] or "/", "/")) is Scope.SYSTEM:
            return False
        return self.secret_parts(end)

    def only_secrets(self, pattern: str, cwd: str) -> tuple[str, ...]:
        """Return the matches of bash's `pattern` in the workspace if every one of them is secret by its name.

        Empty if the pattern also matches another file, or nothing. Patterns for everything (`*`, `.*`, `*.*`) never
        count: the secrets that they match are masked, and the other files are what they are meant for.
        """
        from policy.interpreter.glob_matches import everything, matched, spelled  # only where there is a pattern

        if everything(pattern):
            return ()
        self.budget.spend(_LOOK)
        found = spelled(pattern)
        if not found or not all(map(self.secret_parts, found)):
            workspace = self._facts.workspace
            start = workspace if pattern[:1] == "/" else self.absolute(cwd, "/")
            if pattern[:1] == "/" and not pattern.startswith(f"{workspace}/"):
                return ()
            found = matched(pattern.removeprefix(workspace), start, self._facts.names, workspace, self.budget)
        return found if found and all(map(self.secret_parts, found)) else ()

    def _scope(self, real: str) -> Scope:
        if inside(real, self._facts.workspace):
            return Scope.WORKSPACE
        if self._roots.hold(real):
            return Scope.SYSTEM
        if _SAFE_PROC.match(real):
            return Scope.SYSTEM
        return Scope.SCRATCH if self._scratch(real) else Scope.OUTSIDE

    def _scratch(self, real: str) -> bool:
        """Return True if `real` is in the session's own /tmp, and the machine has no file with that name."""
        if not inside(real, SCRATCH):
            return False
        top = real.split("/")[2:3]
        return not top or self._facts.look(f"{SCRATCH}/{top[0]}").kind is Kind.MISSING

    def _above(self, real: str) -> bool:
        return real in self._roots.above or real == "/" or self._facts.workspace.startswith(f"{real}/")

    def secret(self, path: str) -> bool:
        """Return True if `path` is in a credential store, or a name on it is that of a key or password file."""
        if self._secrets.holds_folder(path):
            return True
        workspace = self._facts.workspace
        if not inside(path, workspace) and self._roots.hold(path):
            return False  # certificates and templates of the system are not secret
        below = path[len(workspace) :] if inside(path, workspace) else path
        return self.secret_parts(below)

    def secret_parts(self, path: str) -> bool:
        """Return True if a name on `path`, alone or with the name of its folder, is that of a key or password file."""
        parts = [part for part in path.split("/") if part]
        return any(self._secrets.named(f"{above}/{part}") for above, part in zip(("", *parts), parts, strict=False))

    def named_secret(self, path: str) -> bool:
        """Return True if `path` in the workspace is secret only by its name: the name may be shown, the content may
        not.
        """
        return inside(path, self._facts.workspace) and not self._secrets.holds_folder(path)

    def written_secret(self, text: str, cwd: str) -> bool:
        """Return True if `text`, as written and without a look at the disk, is in a credential store."""
        path = self.logical(text, cwd)
        return self.secret(path) and not self.named_secret(path)

    def secret_name(self, name: str) -> bool:
        """Return True if a bare file name is that of a key or password file."""
        return self._secrets.named(name)

    def locked(self, path: str) -> bool:
        """Return True if other programs run the file at `path` by themselves (hooks, editor tasks, this program's
        folder), or a file above it.
        """
        workspace = self._facts.workspace
        if self._secrets.locked_in(path, workspace):
            return True
        return path.startswith(f"{workspace}/") and bool(
            _above_locked(self._profile.locked).search(path[len(workspace) :])
        )

    def locked_names(self, start: str, end: str) -> list[str]:
        """Return the locked entries of a folder whose names have this beginning and end. A pattern without a dot finds
        none.
        """
        tops = dict.fromkeys(entry.strip("/").split("/")[0] for entry in self._profile.locked)
        return [name for name in tops if start[:1] == "." and name.startswith(start) and name.endswith(end)]

    def locked_anywhere(self, path: str) -> bool:
        """Return True if `path`, in any folder of the workspace, is or contains a locked path."""
        return self.locked(f"{self._facts.workspace}/{path}")

    def history(self, path: str) -> bool:
        """Return True if `path` is in the folder in which Git keeps all versions, except for the lock files."""
        below = path[len(self._facts.workspace) :].split("/") if inside(path, self._facts.workspace) else []
        return ".git" in below and not path.endswith(".lock")

    def kept(self, path: str) -> tuple[str, ...] | None:
        """Return the secret files whose content Git may have in `path`, a file or folder of the workspace's `.git`.

        None if that is unknown. Git packs content, but any program can unpack it.
        """
        git = f"{self._facts.workspace}/.git"
        if path != git and not any(inside(path, f"{git}/{name}") for name in _CONTENT):
            return ()
        self.budget.spend(_LOOK)
        found = [self._facts.tracked(where) for where in ("index", "history")]
        names = {name for each in found for name in each or ()}
        return tuple(sorted(names)) if names or None not in found else None

    def shown(self, path: str) -> str:
        """Return `path` as shown to people: relative to the workspace, or with `~`."""
        workspace, home = self._facts.workspace, self._facts.home
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

    def within(self, path: str, root: str) -> bool:
        return inside(path, root)


@dataclass(frozen=True, slots=True)
class _Roots:
    """The system folders, indexed for look-up. `above`: the folders that contain one of them."""

    exact: frozenset[str]
    starts: tuple[str, ...]
    above: frozenset[str]

    def hold(self, path: str) -> bool:
        return path in self.exact or path.startswith(self.starts)


@lru_cache(maxsize=8)
def _sorted(roots: tuple[str, ...]) -> _Roots:
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
    found = _SOCKET.match(text) if text.startswith(_SOCKETS) else None
    return (endpoint(f"tcp://{found[1]}:{found[2] or ''}") or "") if found else None


def _device(path: str) -> Device:
    if path in HARMLESS:
        return Device.HARMLESS
    if path.startswith(_SOCKETS) and _SOCKET.match(path):
        return Device.SOCKET
    shared = path.startswith("/dev/disk/") or path == "/dev/shm" or path.startswith("/dev/shm/")  # noqa: S108  # named, not used
    return Device.OTHER if path.startswith("/dev/") and not shared else Device.NONE


# What it leads to is another folder, file or root for every process that asks.
_VEILED = re.compile(
    r"/proc/(?:self|thread-self|[0-9]+)(?:/task/[0-9]+)?/(?:cwd|root|exe|fd|map_files|ns)(?:/|\Z)|/dev/fd/(?![012]\Z)"
)
_VEILS = ("/proc/", "/dev/fd/")
# Facts about the machine that hold no one's data; a process's own memory, environment and files are not among them.
_SAFE_PROC = re.compile(
    r"/proc(/(cpuinfo|meminfo|loadavg|uptime|version|stat|filesystems|mounts|swaps|partitions|diskstats|vmstat|cmdline"
    r"|modules|devices|interrupts|net(/.*)?|sys(/.*)?|self/(status|stat|limits|cgroup|mounts|mountinfo|comm)))?\Z"
    r"|/sys(/.*)?\Z|/dev(/disk(/.*)?)?\Z"
)


# Folders that mostly hold other things: making or removing one is ordinary work, and the sandbox keeps
# what is locked in them.
_MIXED = (".config", ".github")


@lru_cache(maxsize=8)
def _above_locked(patterns: tuple[str, ...]) -> re.Pattern[str]:
    """Return a pattern for paths (from the workspace, with a leading slash) that contain a locked path: removing them
    removes it.
    """
    tops = []
    for locked in patterns:
        parts = locked.strip("/").split("/")
        if parts[0] in _MIXED:
            continue
        tops += ["/".join(re.escape(part) for part in parts[:count]) for count in range(1, len(parts))]
    return re.compile(f"/(?:{'|'.join(tops) or '(?!)'})\\Z", re.DOTALL)
