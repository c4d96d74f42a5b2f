"""Secret files that Git keeps for a workspace: names in the index, in a commit, and in the history.

THREAT T117: a sandbox masks `.env`, and not the objects in which Git has it. The names are read without Git, which
would obey the repository's settings. A history is read once: the commits that were looked at are kept in a file of our
own cache, and later only new ones are read. No time is measured; a look reads a bounded number of objects, and a
history that is longer is "not known" until further looks have read the rest.

Not chosen: Git itself in our sandbox (it starts 100 ms later, obeys settings, and its own walk of a long history has no
bound but time); the Bloom filters of a commit-graph (they are in few repositories, and know whole paths only).
"""

import contextlib
import hashlib
import json
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path

from policy.model.facts import GitSource, GitSourceKind
from policy.model.profile import Profile
from policy.model.secret_names import MOST, holds_login, sometimes
from policy.model.secret_paths import Secrets
from runner.facts.git.index import index_entries
from runner.facts.git.objects import ID, Objects, TreeEntry, Unreadable, whole
from runner.facts.git.revision import Revisions
from runner.state.workspace import git_folder

_MOST_OBJECTS = 60_000  # commits and trees that one search reads
_MOST_ENTRIES = 1_000_000  # entries of trees that one search reads
_MOST_STASHED = 1000  # commits
_MOST_NAMES = 200  # secret names that are reported
_MOST_KEPT = 4_000_000  # commits in the file of the cache
_LARGEST_FILE = 16 << 20  # bytes of a list of references or a log
_LARGEST_INDEX = 256 << 20
_MOST_FILES = 50_000  # below `refs` and `logs`
_HEX = re.compile(rb"\b[0-9a-f]{40}\b")
_LOGINS_READ = 1  # the version of the search in settings files
_MODULE, _FOLDER = 0o160000, 0o40000

_HISTORY = GitSource(GitSourceKind.HISTORY)

SecretNames = tuple[str, ...] | None


def tracked(
    workspace: str, profile: Profile, home: str, cache: Callable[[], Path | None]
) -> Callable[[GitSource], SecretNames]:
    """Return a function from a part of the repository to its secret files, relative to `workspace`, or None if they are
    not known. The function reads the disk when it is called, and caches its results.

    For a revision whose commit is uncertain, the result is that of the history.

    `cache` returns the folder for results that are kept between searches, or None if none can be kept. `cache` is
    called only for a repository with a history.
    """
    secrets = Secrets(profile, home, ())
    known: dict[GitSource, SecretNames] = {}

    def found(source: GitSource) -> SecretNames:
        if source not in known:
            try:
                is_deleted = source.kind is GitSourceKind.DELETED
                known[source] = deleted() if is_deleted else _found(source, workspace, secrets, cache)
            except (Unreadable, OSError, ValueError):
                known[source] = found(_HISTORY) if source.revision else None
        return known[source]

    def deleted() -> SecretNames:
        history, head = found(_HISTORY), None
        with contextlib.suppress(Unreadable, OSError, ValueError):
            head = _found(GitSource(GitSourceKind.TREE, "HEAD"), workspace, secrets, cache)
        return history if history is None or head is None else tuple(sorted(set(history) - set(head)))

    return found


def _found(source: GitSource, workspace: str, secrets: Secrets, cache: Callable[[], Path | None]) -> SecretNames:
    own = _git_folder(workspace)
    if own is None:
        return ()
    data = whole(f"{own}/commondir", 4096)  # the folder that linked worktrees share, as gitrepository-layout(5) has it
    common = own if data is None else os.path.realpath(os.path.join(own, os.fsdecode(data.rstrip(b"\r\n"))))
    if _other_format(common):
        return None
    secret = _Secret(workspace, secrets)
    match source.kind:
        case GitSourceKind.INDEX | GitSourceKind.ASSUMED:
            _index(own, common, secret, assumed=source.kind is GitSourceKind.ASSUMED)
            return _told(secret.names)
        case GitSourceKind.TREE | GitSourceKind.CHANGE:
            _commit(source.revision, own, common, secret, parents=source.kind is GitSourceKind.CHANGE)
            return _told(secret.names)
        case GitSourceKind.CONTENT:
            _commit(source.revision, own, common, secret, parents=False)
            return ()  # for a name that may be that of a file, `_commit` has raised Unreadable
        case GitSourceKind.DASHED:
            return _dashed(common)
        case GitSourceKind.STASH:
            return _stashed(common, secret)
        case GitSourceKind.HISTORY | GitSourceKind.DELETED:
            roots = _roots(own, common)
            return _history(common, roots, secret, cache) if roots else ()


def _told(names: set[str]) -> SecretNames:
    """Return the names in order; None for too many names, because a shortened list would hide the others."""
    return tuple(sorted(names)) if len(names) <= _MOST_NAMES else None


def _git_folder(workspace: str) -> str | None:
    """Return the Git folder; None if there is none. Raises Unreadable for one whose owner is not trusted."""
    if not os.path.lexists(f"{workspace}/.git"):
        bare = os.path.lexists(f"{workspace}/HEAD") and os.path.lexists(f"{workspace}/objects")
        return workspace if bare else None
    found = git_folder(workspace)
    if found is None:
        raise Unreadable(workspace)
    return found


def _other_format(common: str) -> bool:
    """Return True if the repository stores ids or references in a way that this reader does not support."""
    config = (whole(f"{common}/config", 1 << 20) or b"").lower()
    links = any(os.path.islink(f"{common}/{name}") for name in ("objects", "refs", "logs", "packed-refs"))
    return links or b"objectformat" in config or b"refstorage" in config or os.path.lexists(f"{common}/reftable")


class _Secret:
    """Filter for names of secret files that reports each path once."""

    def __init__(self, workspace: str, secrets: Secrets) -> None:
        self._workspace, self._secrets = workspace, secrets
        self.names: set[str] = set()
        self._seen: dict[str, bool] = {}

    def is_one(self, path: str, *, folder: bool = False) -> bool:
        """Return True if `path` is secret, and add it to `names`, a folder with a final slash."""
        noted = f"{path}/" if folder else path
        found = self._seen.get(noted)
        if found is None:
            found = self._seen[noted] = self._secrets.holds(f"{self._workspace}/{path}")
            if found:
                self.names.add(noted)
        return found

    def holds_login(self, path: str, id: bytes, objects: Objects) -> None:
        """Add `path` to `names` if its version `id` contains a login or is unreadable."""
        if path in self.names:
            return
        try:
            content = objects.blob(id)
            login = content is not None and holds_login(path.rpartition("/")[2], content[: MOST + 1])
        except Unreadable:
            login = True
        if login:
            self.names.add(path)

    @property
    def fingerprint(self) -> str:
        """Return an identifier of these rules about names, for the cache."""
        profile = self._secrets.profile
        lists = (profile.secret_names, profile.public_names, profile.secret_home, profile.secret_paths)
        text = repr((lists, self._secrets.home, self._workspace, _LOGINS_READ))
        return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


class _Trees:
    """Walker of trees that reads a tree only once for each place.

    Attributes:
        budget: number of objects that this search may still read.
    """

    def __init__(self, objects: Objects, secret: _Secret) -> None:
        self._objects, self._secret = objects, secret
        self.budget, self._left = _MOST_OBJECTS, _MOST_ENTRIES
        self._done: set[tuple[bytes, str]] = set()
        self._entries: dict[str, set[TreeEntry]] = {}

    @property
    def spent(self) -> bool:
        """Return True if this search may read nothing more."""
        return self.budget <= 0 or self._left <= 0

    def walk(self, id: bytes, place: str = "") -> bool:
        """Examine everything below the tree `id`. Return False when the budget was not sufficient."""
        pending = [(id, place)]
        while pending:
            each = pending.pop()
            if each in self._done:
                continue
            if self.spent:
                return False
            self.budget -= 1
            self._done.add(each)
            entries = self._objects.tree(each[0])
            if entries is None:
                continue  # a shallow or partial copy: Git cannot show missing objects
            seen = self._entries.setdefault(each[1], set())
            fresh = set(entries) - seen
            seen |= fresh
            self._left -= len(fresh)
            for mode, name, below in fresh:
                path, kind = f"{each[1]}{os.fsdecode(name)}", int(mode, 8)
                folder = kind == _FOLDER
                if kind == _MODULE or self._secret.is_one(path, folder=folder):
                    continue
                if folder:
                    pending.append((below, f"{path}/"))
                elif sometimes(path.rpartition("/")[2]):
                    self.budget -= 1
                    self._secret.holds_login(path, below, self._objects)
        return True


# ---- the index


def _index(own: str, common: str, secret: _Secret, *, assumed: bool) -> None:
    folders, settings = [], []
    files = list(_index_files(own))
    if assumed and len(files) > 1:  # an entry that replaces a shared one has no name, so all are used
        if not any(entry.assumed for data in files for entry in index_entries(data)):
            return
        assumed = False
    for data in files:
        for entry in index_entries(data):
            path = os.fsdecode(entry.name)
            if entry.mode == _FOLDER and not assumed:  # of a sparse index
                folders.append((entry.id, path))
            elif entry.mode not in (_MODULE, _FOLDER) and (entry.assumed or not assumed):
                if not secret.is_one(path) and sometimes(path.rpartition("/")[2]):
                    settings.append((path, entry.id))
                for place in range(path.count("/")):
                    secret.is_one("/".join(path.split("/")[: place + 1]), folder=True)
    if folders or settings:
        with Objects(f"{common}/objects") as objects:
            for path, id in settings:
                secret.holds_login(path, id, objects)
            trees = _Trees(objects, secret)
            if not all(trees.walk(id, path) for id, path in folders):
                raise Unreadable("a sparse index")


def _index_files(own: str) -> Iterator[bytes]:
    """Yield the index and the shared one of a split index; the names of both together are too many, never too few."""
    data = whole(f"{own}/index", _LARGEST_INDEX)
    if data is None:
        return
    yield data
    if b"link" in data:
        for name in sorted(os.listdir(own)):
            if name.startswith("sharedindex.") and (shared := whole(f"{own}/{name}", _LARGEST_INDEX)) is not None:
                yield shared


# ---- a commit


def _commit(revision: str, own: str, common: str, secret: _Secret, *, parents: bool) -> None:
    with Objects(f"{common}/objects") as objects:
        revisions = Revisions(own, common, objects)
        commit = revisions.commit(revision)
        if commit is None:
            return
        commits = [commit, *(map(objects.commit, commit.others) if parents else ())]
        trees = _Trees(objects, secret)
        if not all(each is not None and each.tree is not None and trees.walk(each.tree) for each in commits):
            raise Unreadable(revision)


def _dashed(common: str) -> SecretNames:
    """Return the references whose names below `refs/tags/` and so on begin with a dash.

    Git makes no such branch or tag itself, but a clone may contain one.
    """
    packed = whole(f"{common}/packed-refs", _LARGEST_FILE) or b""
    found = {os.fsdecode(name) for name in re.findall(rb"^[0-9a-f]+ (refs/[a-z]+/-.*)$", packed, re.MULTILINE)}
    for place in ("tags", "heads", "remotes"):
        folder = f"{common}/refs/{place}"
        if os.path.isdir(folder):
            found |= {f"refs/{place}/{name}" for name in os.listdir(folder) if name[:1] == "-"}
    return tuple(sorted(found))


def _stashed(common: str, secret: _Secret) -> SecretNames:
    """Return the names in all stashed changes: each is a commit whose parents hold the index and new files."""
    texts = [whole(f"{common}/{name}", _LARGEST_FILE) or b"" for name in ("refs/stash", "logs/refs/stash")]
    packed = whole(f"{common}/packed-refs", _LARGEST_FILE) or b""
    texts += re.findall(rb"^[0-9a-f]{40} refs/stash$", packed, re.MULTILINE)
    with Objects(f"{common}/objects") as objects:
        trees = _Trees(objects, secret)
        pending = [bytes.fromhex(text.decode()) for text in set(_HEX.findall(b"\n".join(texts)))]
        for id in pending[:_MOST_STASHED]:
            commit = objects.commit(id)
            commits = [commit, *map(objects.commit, commit.others)] if commit is not None else []
            if not all(each is None or each.tree is None or trees.walk(each.tree) for each in commits):
                return None
    return _told(secret.names) if len(pending) <= _MOST_STASHED else None


# ---- the history


def _roots(own: str, common: str) -> frozenset[bytes]:
    """Return every id that a reference, a log of references or a file such as ORIG_HEAD names."""
    paths = (f"{common}/packed-refs", *_files(own, common))
    texts = (text for path in paths for text in _HEX.findall(whole(path, _LARGEST_FILE) or b""))
    return frozenset(bytes.fromhex(text.decode()) for text in texts) - {bytes(ID)}


def _files(own: str, common: str) -> Iterator[str]:
    count = 0
    try:
        worktrees = [f"{common}/worktrees/{name}" for name in sorted(os.listdir(f"{common}/worktrees"))]
    except (FileNotFoundError, NotADirectoryError):
        worktrees = []
    for base in dict.fromkeys((own, common, *worktrees)):
        yield from (f"{base}/{name}" for name in os.listdir(base) if name.endswith("HEAD"))
        for top in ("refs", "logs"):
            for folder, _, names in os.walk(f"{base}/{top}"):
                count += len(names) + 1
                if count > _MOST_FILES:
                    raise Unreadable(base)
                yield from (f"{folder}/{name}" for name in names if not os.path.islink(f"{folder}/{name}"))


# Results of earlier searches: commits of which every tree was searched, commits that are still to be searched, and the
# names of the secrets found.
_State = tuple[set[bytes], list[bytes], list[str]]

_latest: dict[str, tuple[frozenset[bytes], SecretNames]] = {}  # of this process: the roots, and what was found


def _history(common: str, roots: frozenset[bytes], secret: _Secret, cache: Callable[[], Path | None]) -> SecretNames:
    name = hashlib.sha256(f"{common}\0{secret.fingerprint}".encode("utf-8", "surrogateescape")).hexdigest()
    if name in _latest and _latest[name][0] == roots:
        return _latest[name][1]
    folder = cache()
    file = folder / "tracked" / name if folder is not None else None
    done, pending, names = _read(file) if file is not None else (set(), [], [])
    secret.names.update(names)
    pending += roots
    before = len(done)
    with Objects(f"{common}/objects") as objects:
        trees = _Trees(objects, secret)
        while pending:
            id = pending.pop()
            if id in done:
                continue
            trees.budget -= 1
            commit = objects.commit(id)
            tree = id if commit is None else commit.tree  # a reference may lead to a tree
            if trees.spent or (tree is not None and not trees.walk(tree)):
                pending.append(id)
                break
            done.add(id)
            pending += [each for each in (commit.others if commit is not None else ()) if each not in done]
    if file is not None and (len(done) > before or pending):
        _write(file, (done, pending, sorted(secret.names)))
    if pending:  # the history is longer than one search reads
        return None
    if len(_latest) > 16:
        _latest.clear()
    _latest[name] = roots, _told(secret.names)
    return _latest[name][1]


def _read(file: Path) -> _State:
    """Return the kept results; empty ones for an invalid file."""
    try:
        data = whole(str(file), (_MOST_KEPT + 100_000) * ID)
        head, line, ids = (data or b"").partition(b"\n")
        known = json.loads(head) if line else {}
        if line and known.get("version") == 2 and len(ids) == known["done"] * ID:
            done = {ids[at : at + ID] for at in range(0, len(ids), ID)}
            return done, list(map(bytes.fromhex, known["pending"])), list(map(str, known["names"]))
    except (Unreadable, ValueError, KeyError, TypeError, AttributeError):
        pass  # the repository is read again, and the file replaced
    return set(), [], []


def _write(file: Path, state: _State) -> None:
    """Keep the results for the next search. Without them, the repository is read again."""
    done, pending, names = state
    if len(done) > _MOST_KEPT or len(pending) > 100_000:
        return
    head = {"version": 2, "done": len(done), "pending": [each.hex() for each in pending], "names": names}
    own = file.with_name(f"{file.name}.{os.getpid()}")
    try:
        file.parent.mkdir(mode=0o700, exist_ok=True)
        handle = os.open(own, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        with open(handle, "wb") as out:
            out.write(json.dumps(head).encode() + b"\n" + b"".join(done))
        os.replace(own, file)
    except OSError:
        own.unlink(missing_ok=True)
