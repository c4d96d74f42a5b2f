"""The files of one commit of a Git repository, read without a checkout.

THREAT T220: a repository that runs code when it is fetched or checked out. A repository on this machine is read without
Git. Of another one, Git fetches the objects of one commit into an empty repository, with none of the user's settings;
nothing is ever checked out, so that no hook, filter, submodule or LFS program runs.
"""

import os
import re
import resource
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from hashlib import sha256
from urllib.parse import urlsplit

from policy.model.frozen import dataclass
from runner.bundles.manifest import unusable
from runner.config.inventory import EntryKind, Inventory, InventoryEntry
from runner.facts.git.objects import Objects, Unreadable
from runner.text.phrases import os_reason
from runner.text.sanitize import one_line
from sandbox.linux.helper_process import starting_process

_COMMIT = re.compile(r"[0-9a-f]{40}")
_HOST = re.compile(r"(?:[A-Za-z0-9_][A-Za-z0-9._-]*@)?[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?(?::[0-9]{1,5})?")
_PATH = re.compile(r"/[A-Za-z0-9._~/+%-]*")
_SCHEMES = ("https", "ssh", "file")
_MOST = 2000  # files and folders
_LARGEST = 1 << 20  # bytes of one file
_ALL = 16 << 20  # bytes of all files
_DEEPEST = 8  # levels of folders
_FETCHED = 256 << 20  # bytes of one file that Git writes
_PATIENCE = 120.0  # seconds
# Variables of the user that a connection may need. Nothing else of the environment reaches Git.
_PASSED = (
    "PATH", "SSH_AUTH_SOCK", "HTTPS_PROXY", "https_proxy", "NO_PROXY", "no_proxy", "SSL_CERT_FILE", "SSL_CERT_DIR",
    "GIT_SSL_CAINFO",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class CommitSource:
    """One commit of a repository.

    Attributes:
        url: the address, with a scheme that `git_source` accepts.
        commit: the full id of the commit in lower case.
        folder: the folder in the repository, or empty for all of it.
    """

    url: str
    commit: str
    folder: str = ""

    @property
    def name(self) -> str:
        """Return the name of the folder, or of the repository."""
        return (self.folder or urlsplit(self.url).path.rstrip("/").removesuffix(".git")).rpartition("/")[2]


def is_address(text: str) -> bool:
    """Return True if the user means a repository, and not a folder."""
    return "://" in text


def git_source(text: str, folder: str = "") -> CommitSource:
    """Return the source that `URL@COMMIT` names. Raise BundleError."""
    url, _, commit = text.rpartition("@")
    if not _COMMIT.fullmatch(commit):
        why = "only the full id of a commit, 40 hexadecimal digits in lower case, names one content for ever"
        raise unusable(f"`{one_line(text, 200)}` names no commit: {why}", "write URL@COMMIT")
    scheme = url.partition("://")[0]
    if scheme not in _SCHEMES:
        raise unusable(f"the address begins with `{one_line(scheme, 20)}`", f"use one of {', '.join(_SCHEMES)}")
    host, slash, path = url.partition("://")[2].partition("/")
    fits = _PATH.fullmatch(slash + path) is not None and ".." not in path.split("/")
    if not fits or (host if scheme == "file" else not _HOST.fullmatch(host)) or (scheme == "https" and "@" in host):
        raise unusable(
            f"the address `{one_line(url, 200)}` has another form", "write SCHEME://HOST/PATH, without a password"
        )
    parts = folder.strip("/").split("/") if folder else []
    if any(part in ("", ".", "..", ".git") for part in parts):
        raise unusable(f"`{one_line(folder, 200)}` is no folder in a repository", "write a relative path")
    return CommitSource(url, commit, "/".join(parts))


def commit_content(source: CommitSource, environ: Mapping[str, str]) -> Inventory:
    """Return the files of a commit. Raise BundleError if it cannot be fetched or read."""
    try:
        if source.url.startswith("file://"):
            with Objects(_objects(source.url.removeprefix("file://"))) as objects:
                return _files(objects, source)
        with _fetched(source, environ) as folder, Objects(folder) as objects:
            return _files(objects, source)
    except Unreadable as error:
        raise unusable(f"the repository cannot be read: {one_line(str(error), 200)}", "fetch it again") from None
    except OSError as error:
        raise unusable(f"the repository cannot be read: {os_reason(error)}", "check the address") from None


def _objects(path: str) -> str:
    """Return the folder of the objects of a repository on this machine."""
    for below in (".git/objects", "objects"):
        folder = os.path.join(path, below)
        if os.path.isdir(folder):
            return folder
    raise unusable(f"`{one_line(path, 200)}` is no Git repository", "name the top folder of a repository")


@contextmanager
def _fetched(source: CommitSource, environ: Mapping[str, str]) -> Iterator[str]:
    """Fetch the commit into an empty repository, and yield the folder of its objects."""
    with tempfile.TemporaryDirectory(prefix="ringfence-bundle-") as folder:
        place = f"{folder}/objects-only"
        _git(("init", "--quiet", "--bare", "--template=", "--object-format=sha1", place), folder, environ)
        words = ("fetch", "--quiet", "--depth=1", "--no-tags", "--no-recurse-submodules", "--no-write-fetch-head")
        _git((f"--git-dir={place}", *words, "--", source.url, source.commit), folder, environ)
        yield f"{place}/objects"


_SETTINGS = {
    "core.hooksPath": "/dev/null",
    "core.fsmonitor": "false",
    "core.askPass": "",
    "credential.helper": "",
    "fetch.fsckObjects": "true",
    "fetch.recurseSubmodules": "false",
    "fetch.unpackLimit": "1",
    "gc.auto": "0",
    "maintenance.auto": "false",
    "http.followRedirects": "false",
    "protocol.allow": "never",
    "protocol.https.allow": "always",
    "protocol.ssh.allow": "always",
}


def _git(words: tuple[str, ...], folder: str, environ: Mapping[str, str]) -> None:
    """Run Git with no settings but ours. Raise BundleError if it fails."""
    settings = [word for name, value in _SETTINGS.items() for word in ("-c", f"{name}={value}")]
    environment = {name: environ[name] for name in _PASSED if name in environ} | {
        "HOME": folder,
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": "/dev/null",
        "GIT_CONFIG_SYSTEM": "/dev/null",
        "GIT_ATTR_NOSYSTEM": "1",
        "GIT_NO_LAZY_FETCH": "1",
        "GIT_NO_REPLACE_OBJECTS": "1",
        "GIT_LFS_SKIP_SMUDGE": "1",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_PROTOCOL_FROM_USER": "0",
        "GIT_SSH_COMMAND": "ssh -oBatchMode=yes -oPermitLocalCommand=no -oClearAllForwardings=yes",
        "LC_ALL": "C",
    }
    try:
        with starting_process():
            done = subprocess.run(
                ("git", *settings, *words),
                cwd=folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=_PATIENCE,
                preexec_fn=_bounded,  # `agent bundle` has one thread
                check=False,
            )
    except FileNotFoundError:
        raise unusable("Git is not on the PATH", "install it: apt install git") from None
    except subprocess.TimeoutExpired:
        raise unusable(f"Git did not finish in {_PATIENCE:g} seconds", "check the connection") from None
    if done.returncode:
        said = done.stderr.decode("utf-8", "replace").strip().splitlines()
        why = one_line(said[-1], 300) if said else f"Git ended with {done.returncode}"
        raise unusable(f"the commit cannot be fetched: {why}", "check the address and the commit")


def _bounded() -> None:
    """Limit the size of each file that Git writes. SAFETY: setrlimit(2) between fork and exec."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (_FETCHED, _FETCHED))


def _files(objects: Objects, source: CommitSource) -> Inventory:
    commit = objects.commit(bytes.fromhex(source.commit))
    if commit is None or commit.tree is None:
        raise unusable(f"the repository has no commit {source.commit}", "check the commit")
    tree = commit.tree
    for part in source.folder.split("/") if source.folder else ():
        below = {name: id for mode, name, id in objects.tree(tree) or () if int(mode, 8) == 0o40000}
        found = below.get(os.fsencode(part))
        if found is None:
            raise unusable(f"the commit has no folder `{one_line(source.folder, 200)}`", "check the folder")
        tree = found
    reader = _Tree(objects)
    reader.read(tree, "", 1)
    entries = tuple(reader.entries[path] for path in sorted(reader.entries))
    return Inventory(source.url, entries, reader.contents)


class _Tree:
    """The reader of the files of a tree. Everything but plain files and folders becomes a refused entry."""

    def __init__(self, objects: Objects) -> None:
        self._objects = objects
        self._seen = 0
        self._size = 0
        self.entries: dict[str, InventoryEntry] = {}
        self.contents: dict[str, bytes] = {}

    def read(self, tree: bytes, above: str, depth: int) -> None:
        """Add everything in a tree. Raise BundleError for an unreasonable amount, or a name that no file can have."""
        if depth > _DEEPEST:
            raise unusable(f"it has folders more than {_DEEPEST} deep", "name a folder without them")
        listed = self._objects.tree(tree)
        if listed is None:
            raise unusable("a folder of the commit is missing", "fetch it again")
        for mode, raw, id in listed:
            self._seen += 1
            if self._seen > _MOST:
                raise unusable(f"it holds more than {_MOST:,} things", "name a smaller folder")
            name = _checked(raw)
            path = f"{above}{name}"
            if path in self.entries:
                raise unusable(f"`{one_line(path, 200)}` is in the commit twice", "do not use it")
            kind = int(mode, 8)
            if kind == 0o40000:
                self.read(id, f"{path}/", depth + 1)
            elif kind in (0o100644, 0o100664, 0o100755):
                self._file(id, path, kind == 0o100755)
            else:
                why = {0o120000: "is a link and no plain file", 0o160000: "is a submodule, whose files are elsewhere"}
                refused = why.get(kind, "is no plain file")
                self.entries[path] = InventoryEntry(path, EntryKind.BUNDLE, refused=refused)

    def _file(self, id: bytes, path: str, executable: bool) -> None:
        try:
            data = self._objects.blob(id)
        except Unreadable:
            data = b"\0" * (_LARGEST + 1)  # the reader refuses what is even longer
        if data is None:
            raise unusable(f"the content of `{one_line(path, 200)}` is missing", "fetch it again")
        if len(data) > _LARGEST:
            refused = f"is longer than {_LARGEST >> 20} MiB"
            self.entries[path] = InventoryEntry(path, EntryKind.BUNDLE, refused=refused)
            return
        self._size += len(data)
        if self._size > _ALL:
            raise unusable(f"it holds more than {_ALL >> 20} MiB", "name a smaller folder")
        self.entries[path] = InventoryEntry(path, EntryKind.BUNDLE, executable, len(data), sha256(data).hexdigest())
        self.contents[path] = data


def _checked(raw: bytes) -> str:
    """Return the name of a tree's entry. Raise BundleError for one that is no name of a file, or cannot be shown.

    THREAT T219: Git stores any bytes as names, such as `..` or `a/b`.
    """
    try:
        name = raw.decode("utf-8")
    except UnicodeDecodeError:
        name = ""
    if not name.isprintable() or name.casefold() in ("", ".", "..", ".git") or "/" in name:
        raise unusable(f"it has a file with the name `{one_line(repr(raw), 200)}`", "do not use it")
    return name
