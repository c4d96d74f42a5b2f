"""The digest of the package that the command line of a tool server runs.

The digest covers the program and the files of its own package, not the packages that it depends on and no compiled
copies of Python modules. A command that downloads its package is covered by the name and the version that it states.
"""

import json
import os
import re
import stat
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import StrEnum
from hashlib import file_digest, sha256
from itertools import pairwise
from shutil import which
from urllib.parse import unquote, urlsplit

from policy.model.frozen import dataclass
from policy.model.secret_paths import inside
from runner.mcp.server_config import ServerConfig
from runner.text.sanitize import one_line
from sandbox.inside.regular_file import NotRegularError, open_regular, read_start

MOST_FILES = 20_000
MOST_BYTES = 200 << 20
_LONGEST_LIST = 16 << 20  # bytes of a list of files, or of the versions of packages
_LONGEST_LINE = 256  # bytes of `#!`
_HIGHEST = 8  # folders between a script and its `package.json`
_MOST_PACKAGES = 5000  # installed Python packages that are searched for a script
_LEFT_OUT = frozenset(["node_modules", ".git", "__pycache__", ".venv"])

_PYTHON = re.compile(r"(?:python|pypy)[0-9.]*")
# Programs that run a script: its path is their first word that is no flag.
_OF_NODE = frozenset(["node", "nodejs", "bun", "deno", "tsx"])
_INTERPRETERS = _OF_NODE | {"bash", "sh", "dash", "zsh", "ruby", "perl", "php"}
_PRELOADS = ("-r", "--require", "--import", "--loader")  # flags of node whose value is run before the script
_LARGE_INTERPRETER = 16 << 20  # bytes; a larger one counts by its size, because the system's own file is not the server
_DOWNLOADERS: dict[str, tuple[str, ...]] = {  # the words before the name of a package
    "npx": (), "bunx": (), "uvx": (), "pnpx": (),
    "npm": ("exec",), "pnpm": ("dlx",), "yarn": ("dlx",), "pipx": ("run",), "uv": ("tool", "run"),
    "docker": ("run",), "podman": ("run",),
}  # fmt: skip
_CONTAINERS = ("docker", "podman")
_PACKAGE_FLAGS = ("-p", "--package", "--from", "--spec")  # flags whose value is the package
_EXACT = re.compile(r".+(?:@\d+\.\d+\.\d+[0-9A-Za-z.+-]*|==\d[0-9A-Za-z.+!-]*|@sha256:[0-9a-f]{64})")

Digested = tuple[int, ...]  # times of modification and change, size, number (inode) and device of a file
_known: dict[str, tuple[Digested, str]] = {}  # SHA-256 of files by path
_SETTLED = 2_000_000_000  # nanoseconds after which a further change of a file certainly has another time


class PackageState(StrEnum):
    """The part of a package that its digest covers."""

    CONTENT = "content"  # every file
    SIZES = "sizes"  # the names and sizes of the files, because they are too many or too large
    VERSION = "version"  # the exact version that the command line states
    UNVERSIONED = "unversioned"  # a name without an exact version
    REMOTE = "remote"  # nothing: the server is not on this machine
    MISSING = "missing"  # nothing: the program was not found or cannot be read


@dataclass(frozen=True, slots=True)
class PackageDigest:
    """The digest of a package.

    Attributes:
        name: The package or the path of the program, for the user.
        sha256: The digest; empty if nothing is covered.
        warning: The reason why changes of the package can go unnoticed, or an empty string.
    """

    state: PackageState
    name: str = ""
    sha256: str = ""
    warning: str = ""

    @property
    def text(self) -> str:
        """Return the state and the digest as one word for a pin."""
        return f"{self.state.value}:{self.sha256}"


REMOTE = PackageDigest(PackageState.REMOTE)


def package_of(config: ServerConfig, search: str | None) -> PackageDigest:
    """Return the digest of what `config` runs. `search` is the PATH on which its command is looked up.

    Reads files, and follows the links of the command only. In a copy of a workspace, the files of the copy are read and
    named as those of the workspace. Never raises for content of the disk.
    """
    if not config.command:
        return REMOTE
    program = os.path.basename(config.command)
    before = _DOWNLOADERS.get(program)
    if before is not None and config.args[: len(before)] == before:
        return _downloaded(program, config.args[len(before) :])
    path = which(os.path.join(config.cwd, config.command) if "/" in config.command else config.command, path=search)
    if path is None:
        why = f"the program `{one_line(config.command, 80)}` was not found, so that nothing of it is covered"
        return PackageDigest(PackageState.MISSING, config.command, "", why)
    digester = _Digester(search, config.copied.named if config.copied is not None else str)
    try:
        name = digester.program(os.path.abspath(path), config.args, config.cwd)
        return digester.result(name)
    except (OSError, ValueError) as error:
        why = f"its files cannot be read ({error.strerror if isinstance(error, OSError) else error})"
        return PackageDigest(PackageState.MISSING, path, "", why)


def _downloaded(program: str, words: Sequence[str]) -> PackageDigest:
    """Return the digest of the package that a command downloads: only its name and version are known."""
    package = ""
    left = iter(words)
    for word in left:
        flag, equals, value = word.partition("=")
        if flag in _PACKAGE_FLAGS and program not in _CONTAINERS:
            package = value if equals else next(left, "")
            break
        if program in _CONTAINERS and re.fullmatch("-[^it]", word):
            next(left, "")  # the value of a flag such as `-e`
        elif not word.startswith("-"):
            package = word
            break
    digest = sha256("\0".join((program, package)).encode("utf-8", "surrogatepass")).hexdigest()
    if _EXACT.fullmatch(package):
        return PackageDigest(PackageState.VERSION, package, digest)
    why = f"`{one_line(package or program, 80)}` has no exact version: each start may run another program"
    return PackageDigest(PackageState.UNVERSIONED, package or program, digest, why)


class _Digester:
    """The files of one package, with their digests or their sizes."""

    def __init__(self, search: str | None, named: Callable[[str], str]) -> None:
        """`named` returns the path by which the digest names a file."""
        self._search, self._named = search, named
        self._files: dict[str, str] = {}  # by path
        self._extra: list[str] = []  # texts that belong to the package
        self._bytes = 0
        self._large = False
        self._warning = ""

    def result(self, name: str) -> PackageDigest:
        """Return the digest of everything that was added."""
        if self._large:
            self._files = {path: _size(path) for path in self._files}
            self._warning = "the package is too large to be read: a change of the same size goes unnoticed"
        total = sha256()
        for path, digest in sorted((self._named(path), digest) for path, digest in self._files.items()):
            total.update(f"{path}\0{digest}\n".encode("utf-8", "surrogatepass"))
        for text in self._extra:
            total.update(f"+{text}\n".encode("utf-8", "surrogatepass"))
        state = PackageState.SIZES if self._large else PackageState.CONTENT
        return PackageDigest(state, self._named(name), total.hexdigest(), self._warning)

    def program(self, path: str, args: Sequence[str], cwd: str) -> str:
        """Add a program and what it runs. Return the name of the package, or the path of the program."""
        name = os.path.basename(path)
        interprets = name in _INTERPRETERS or _PYTHON.fullmatch(name) is not None
        if interprets and os.stat(path).st_size > _LARGE_INTERPRETER:
            self._files[path] = _size(path)
        else:
            self.add(path)
        if _PYTHON.fullmatch(name):
            return self._by_python(path, args, cwd)
        if name in _INTERPRETERS:
            return self._interpreted(path, args, cwd)
        return self._script(path)

    def _interpreted(self, path: str, args: Sequence[str], cwd: str) -> str:
        """Add the script that an interpreter runs: its first word that names a file, and the files loaded before it."""
        preloaded = [after for word, after in pairwise(args) if word in _PRELOADS]
        for word in preloaded:
            self.add(os.path.realpath(os.path.join(cwd or "/", word)))
        script = _script([word for word in args if word not in preloaded], cwd)
        if script and _PYTHON.fullmatch(os.path.basename(path)):
            self._beside(os.path.dirname(os.path.realpath(script)))
        return self._script(script) if script else self._unread(path)

    def _unread(self, path: str) -> str:
        self._warning = "what the program runs cannot be told from its command line, so that only itself is covered"
        return path

    def _by_python(self, path: str, args: Sequence[str], cwd: str) -> str:
        for at, word in enumerate(args):
            if word == "-m" and at + 1 < len(args):
                found = _installed(os.path.dirname(os.path.dirname(path)), module=args[at + 1].partition(".")[0])
                return self._distribution(*found) if found else self._unread(path)
            if word == "-c":
                return self._unread(path)  # the command line itself is pinned
            if not word.startswith("-"):
                break
        return self._interpreted(path, args, cwd)

    def _script(self, path: str) -> str:
        """Add a script or a program, and the package that it belongs to."""
        real = os.path.realpath(path)
        self.add(real)
        interpreter = _interpreter(real, self._search)
        if _PYTHON.fullmatch(os.path.basename(interpreter)):
            found = _installed(os.path.dirname(os.path.dirname(interpreter)), script=os.path.basename(path))
            if found:
                return self._distribution(*found)
            self._beside(os.path.dirname(real))
            return path
        folder = _package_folder(real)
        if not folder or (interpreter and os.path.basename(interpreter) not in _OF_NODE):
            return path
        self._folder(folder)
        try:
            named = json.loads(read_start(f"{folder}/package.json", 1 << 20, follow=True))
        except (ValueError, RecursionError):
            named = {}
        named = named if isinstance(named, dict) else {}
        name, version = str(named.get("name", "")), str(named.get("version", ""))
        self._extra += _lock_entry(folder, name)
        return f"{name} {version}".strip() or folder

    def _beside(self, folder: str, start: str = "") -> None:
        """Add the modules of a folder whose names begin with `start`: a script imports those beside it."""
        for name in sorted(os.listdir(folder)):
            if name.startswith(start) and name.endswith((".py", ".so")) and len(self._files) < MOST_FILES:
                self.add(f"{folder}/{name}")

    def _distribution(self, site: str, info: str) -> str:
        """Add the files of an installed Python package: those of its list, and all others beside its modules.

        SAFETY: an extension module that is not in the list takes precedence over a listed module of the same name.
        """
        tops: dict[str, None] = {}
        for line in _lines(f"{site}/{info}/RECORD"):
            file = line.rpartition(",")[0].rpartition(",")[0].strip('"')
            if file and not file.endswith((".pyc", "/RECORD", "/INSTALLER", "/REQUESTED")):
                self.add(os.path.normpath(os.path.join(site, file)))
                tops.setdefault(file.partition("/")[0], None)
        for top in tops:
            if os.path.isdir(f"{site}/{top}") and top not in (".", "..", "bin"):
                self._folder(f"{site}/{top}")
            elif top.endswith(".py"):
                self._beside(site, top.removesuffix("py"))
        try:
            origin = json.loads("\n".join(_lines(f"{site}/{info}/direct_url.json")) or "{}")
            editable = origin.get("dir_info", {}).get("editable") is True
            source = unquote(urlsplit(origin["url"]).path) if editable else ""
        except (ValueError, AttributeError, KeyError, TypeError, RecursionError):
            source = ""
        if source:
            self._folder(source)
        return info.removesuffix(".dist-info").replace("-", " ")

    def _folder(self, folder: str) -> None:
        pending = [folder]
        while pending:
            with os.scandir(pending.pop()) as entries:
                for entry in sorted(entries, key=lambda each: each.name):
                    if entry.is_dir(follow_symlinks=False):
                        if entry.name not in _LEFT_OUT:
                            pending.append(entry.path)
                    elif not entry.name.endswith(".pyc"):
                        self.add(entry.path)
                        if entry.is_symlink():
                            self._linked(entry.path, folder)
                    if len(self._files) > MOST_FILES:
                        self._large = True
                        return

    def _linked(self, path: str, folder: str) -> None:
        """Add the target of a link in a package."""
        target = os.path.realpath(path)
        if os.path.isfile(target):
            self.add(target)
        elif os.path.isdir(target) and not inside(target, os.path.realpath(folder)):
            self._warning = f"the link `{one_line(path, 200)}` leads to a folder that is not covered"

    def add(self, path: str) -> None:
        """Add one file. A link is its target as text; a missing file and one that is no regular file are a fact."""
        if path in self._files:
            return
        now = time.time_ns()
        try:
            found = os.lstat(path)
        except OSError:
            self._files[path] = "missing"
            return
        if stat.S_ISLNK(found.st_mode):
            self._files[path] = f"link {self._named(os.readlink(path))}"
            return
        if not stat.S_ISREG(found.st_mode):
            self._files[path] = "special"
            return
        self._bytes += found.st_size
        self._large = self._large or self._bytes > MOST_BYTES or len(self._files) >= MOST_FILES
        self._files[path] = "" if self._large else _digest(path, found, settled=now - found.st_ctime_ns > _SETTLED)


def _digest(path: str, found: os.stat_result, *, settled: bool) -> str:
    """Return the SHA-256 of a regular file. A file that was `settled` is not read again while its times, size and
    number are the same.

    THREAT T183: programs can restore the time of modification, but not that of the last change (inode(7)). Two changes
    that follow each other quickly may have the same time.
    """
    stamp = (found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_ino, found.st_dev)
    known = _known.get(path)
    if known is not None and known[0] == stamp:
        return known[1]
    try:
        handle, _ = open_regular(path, follow=False)
    except NotRegularError:
        return "special"
    with open(handle, "rb") as file:
        digest = file_digest(file, "sha256").hexdigest()
    if settled:
        _known[path] = (stamp, digest)
    return digest


def _size(path: str) -> str:
    try:
        return str(os.lstat(path).st_size)
    except OSError:
        return "missing"


def _script(args: Iterable[str], cwd: str) -> str:
    """Return the path of the first word that names an existing file, or an empty string."""
    for word in args:
        path = os.path.join(cwd or "/", word)
        if not word.startswith("-") and "\0" not in word and os.path.isfile(path):
            return os.path.abspath(path)
    return ""


def _interpreter(path: str, search: str | None) -> str:
    """Return the program of the first line (`#!`), or an empty string. `env NAME` is NAME."""
    line = read_start(path, _LONGEST_LINE, follow=True).partition(b"\n")[0]
    words = line[2:].decode("utf-8", "replace").split() if line.startswith(b"#!") else []
    named = [word for word in words[1:] if not word.startswith("-")]
    if words and os.path.basename(words[0]) == "env" and named:
        return which(named[0], path=search) or named[0]
    return words[0] if words else ""


def _package_folder(path: str) -> str:
    """Return the nearest folder above `path` with a `package.json`, or an empty string."""
    folder = os.path.dirname(path)
    for _ in range(_HIGHEST):
        if folder == "/" or os.path.basename(folder) == "node_modules":
            return ""
        if os.path.isfile(f"{folder}/package.json"):
            return folder
        folder = os.path.dirname(folder)
    return ""


def _lock_entry(folder: str, name: str) -> list[str]:
    """Return the entry of a package in the list of installed versions, which states the hash of its archive."""
    above, found, _ = folder.rpartition("/node_modules/")
    if not found or not name:
        return []
    text = read_start(f"{above}/node_modules/.package-lock.json", _LONGEST_LIST, follow=True)
    try:
        packages = json.loads(text or b"{}").get("packages", {})
        entry = packages.get(f"node_modules/{name}")
    except (ValueError, AttributeError, RecursionError):
        return []
    return [json.dumps(entry, sort_keys=True)] if entry else []


def _installed(prefix: str, *, script: str = "", module: str = "") -> tuple[str, str] | None:
    """Return the folder of the packages below `prefix` and the name of the `.dist-info` with this script or module."""
    for site in _sites(prefix):
        try:
            infos = sorted(name for name in os.listdir(site) if name.endswith(".dist-info"))[:_MOST_PACKAGES]
        except OSError:
            continue
        for info in infos:
            if script:
                lines = _lines(f"{site}/{info}/entry_points.txt")
                if any(line.partition("=")[0].strip() == script for line in lines):
                    return site, info
            elif any(line.startswith((f"{module}/", f"{module}.py,")) for line in _lines(f"{site}/{info}/RECORD")):
                return site, info
    return None


def _sites(prefix: str) -> Iterator[str]:
    try:
        names = sorted(os.listdir(f"{prefix}/lib"))
    except OSError:
        return
    yield from (f"{prefix}/lib/{name}/site-packages" for name in names if _PYTHON.fullmatch(name))


def _lines(path: str) -> list[str]:
    return read_start(path, _LONGEST_LIST, follow=True).decode("utf-8", "replace").splitlines()
