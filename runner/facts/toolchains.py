"""Toolchain folders that must be readable for the programs on PATH to work, without exposing the rest of the home."""

import os
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from fnmatch import fnmatchcase
from itertools import islice

from policy.model.frozen import dataclass
from policy.model.secret_paths import Secrets, inside
from sandbox.inside.regular_file import read_start

# The general rule: programs in `X/bin` belong to the installation X if X looks like one.
_PROGRAMS = frozenset({"bin", "sbin", "condabin", ".bin"})
_MARKS = ("lib", "lib64", "libexec", "pyvenv.cfg", "conda-meta", "Cellar", "installs")

# Installations that are larger or smaller than the folder above their programs: a folder of programs below the home,
# and the folders below the home that become readable.
# fmt: off
_KNOWN: Mapping[str, tuple[str, ...]] = {
    ".cargo/bin":        (".cargo/bin", ".cargo/registry", ".cargo/git", ".rustup"),  # never .cargo: credentials
    "go/bin":            ("go/bin", "go/pkg"),                                        # never go/src: other projects
    ".local/bin":        (".local/bin", ".local/lib"),                                # pip --user
    ".volta/bin":        (".volta",),
    ".ghcup/bin":        (".ghcup",),
    ".dotnet/tools":     (".dotnet",),
    ".pub-cache/bin":    (".pub-cache/bin", ".pub-cache/hosted", ".pub-cache/global_packages"),
    ".asdf/shims":       (".asdf", ".tool-versions"),
    ".local/share/mise/shims": (".local/share/mise", ".config/mise"),
}

# Interpreters that a virtual environment inside the project may use. Its links came with the project, so only
# these places count: a link cannot open a folder of its own choice.
_INTERPRETERS = (
    ".pyenv/versions/*", ".local/share/uv/python/*", ".local/share/mise/installs/python/*", ".asdf/installs/python/*",
    ".rye/py/*", ".conda/envs/*", "miniconda3", "miniforge3", "mambaforge", "anaconda3", ".linuxbrew",
)
# fmt: on
_MOST_ENTRIES = 400  # of one folder of programs
_MOST_SCRIPTS = 64  # whose first line is read
_MOST_HOPS = 4  # of one chain of links


@dataclass(frozen=True, slots=True)
class _Search:
    secrets: Secrets
    rustup: str

    def roots(self, folder: str) -> Iterator[str]:
        """Return the folders that must be readable for the programs in `folder`, a real path."""
        known = _KNOWN.get(os.path.relpath(folder, self.secrets.home)) if inside(folder, self.secrets.home) else None
        if known:
            yield from filter(self.fits, (f"{self.secrets.home}/{place}" for place in known))
        elif whole := self._installation(folder):
            yield whole
            yield from self._interpreter(whole)
            return
        elif self.fits(folder):
            yield folder
        if self.rustup and os.path.lexists(f"{folder}/rustup") and self.fits(self.rustup):
            yield self.rustup
        yield from self._leaving(folder)

    def fits(self, root: str) -> bool:
        """Return True if `root` may be readable: it exists, is no socket and no secret, and contains no secret, home
        folder or state of this program.
        """
        try:
            if stat.S_ISSOCK(os.lstat(root).st_mode):
                return False
        except (OSError, ValueError):
            return False
        # The link itself is harmless, but a rule of the kernel for the link would apply to its target.
        both = (root, os.path.realpath(root))
        return not any(self.secrets.exposed_by(path) or self.secrets.holds_folder(path) for path in both)

    def _installation(self, folder: str) -> str | None:
        above, name = os.path.split(folder)
        whole = name == "shims" or (name in _PROGRAMS and any(os.path.lexists(f"{above}/{mark}") for mark in _MARKS))
        return above if whole and self.fits(above) else None

    def _leaving(self, folder: str) -> Iterator[str]:
        """Yield links and scripts in `folder` to an installation elsewhere: uv tools, pipx, npm, pip --user."""
        scripts = 0
        for entry in _entries(folder):
            if entry.is_symlink():
                for hop in _hops(entry.path):
                    if not inside(hop, folder):
                        yield from self._around(hop)
            elif scripts < _MOST_SCRIPTS and entry.is_file(follow_symlinks=False):
                scripts += 1
                interpreter = _shebang(entry.path)
                if interpreter and not inside(interpreter, folder):
                    for hop in (interpreter, *_hops(interpreter)):
                        yield from self._around(hop)

    def _around(self, program: str) -> Iterator[str]:
        folder = os.path.dirname(program)
        above, mark, _ = program.partition("/node_modules/")
        if mark and self.fits(f"{above}/node_modules"):
            yield f"{above}/node_modules"  # a package's program needs the rest of it, and the packages beside it
        elif whole := self._installation(folder):
            yield whole
            yield from self._interpreter(whole)
        elif self.fits(program) and not self.secrets.named(os.path.realpath(program)):
            yield program

    def _interpreter(self, installation: str) -> Iterator[str]:
        """Return the folders of the Python that a virtual environment was created from."""
        if not os.path.lexists(f"{installation}/pyvenv.cfg"):
            return
        for hop in _hops(f"{installation}/bin/python"):
            if not inside(hop, installation) and (whole := self._installation(os.path.dirname(hop))):
                yield whole


def exposable_folder(folder: str, secrets: Secrets) -> tuple[str, ...]:
    """Return `folder` if it may be exposed: a real folder of root or this user that is not writable for everyone. Else
    return nothing.
    """
    try:
        status = os.lstat(folder)
        fits = stat.S_ISDIR(status.st_mode) and status.st_uid in (0, os.geteuid()) and not status.st_mode & stat.S_IWOTH
    except OSError:
        return ()
    fits = fits and os.path.realpath(folder) == folder and _Search(secrets, "").fits(folder)
    return (folder,) if fits else ()


def roots(folders: Iterable[str], workspace: str, secrets: Secrets, rustup: str = "") -> tuple[str, ...]:
    """Return the readable folders for the programs in `folders` (real paths), and for virtual environments in
    `workspace`.

    `rustup` is the folder of Rust toolchains if it is not the usual one, because the programs there do not name it.

    The result never contains the home, a secret place, or a parent of these or of our own state. Folders inside the
    workspace are left out, since they are readable anyway. Only single folders are examined, never whole trees.
    """
    search = _Search(secrets, rustup)
    every = [root for folder in folders for root in search.roots(folder)]
    every += _borrowed(workspace, search)
    return tuple(dict.fromkeys(root for root in every if not inside(root, workspace)))


def outermost(roots: Sequence[str]) -> tuple[str, ...]:
    """Return `roots` without those that lie inside another, in the order given."""
    every = frozenset(roots)
    return tuple(dict.fromkeys(root for root in roots if not within(os.path.dirname(root), every)))


def within(path: str, roots: Set[str]) -> bool:
    """Return True if `path` is one of `roots`, or lies below one."""
    while path not in roots and path != (above := os.path.dirname(path)):
        path = above
    return path in roots


def _borrowed(workspace: str, search: _Search) -> Iterator[str]:
    for name in (".venv", "venv", "env"):
        for hop in _hops(f"{workspace}/{name}/bin/python"):
            if not inside(hop, search.secrets.home):
                continue
            relative = hop.removeprefix(search.secrets.home + "/").split("/")
            for place in _INTERPRETERS:
                top = "/".join(relative[: place.count("/") + 1])
                if fnmatchcase(top, place) and search.fits(f"{search.secrets.home}/{top}"):
                    yield os.path.realpath(f"{search.secrets.home}/{top}")


def _hops(path: str) -> list[str]:
    """Return each existing target of a chain of links, the last one fully resolved; empty if `path` is not a link."""
    hops: list[str] = []
    at = path
    for _ in range(_MOST_HOPS):
        try:
            target = os.readlink(at)
        except (OSError, ValueError):
            break
        at = os.path.normpath(os.path.join(os.path.dirname(at), target))
        hops.append(at)
    if hops and os.path.lexists(hops[-1]):
        hops.append(os.path.realpath(hops[-1]))
    return list(dict.fromkeys(hop for hop in hops if os.path.lexists(hop)))


def _shebang(path: str) -> str | None:
    """Return the absolute path of the interpreter that the first line of a script names."""
    start = read_start(path, 256, follow=False)
    if not start.startswith(b"#!"):
        return None
    words = start[2:].split(b"\n")[0].split()
    return os.fsdecode(words[0]) if words and words[0].startswith(b"/") and b"\0" not in words[0] else None


def _entries(folder: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return list(islice(entries, _MOST_ENTRIES))
    except OSError:
        return []
