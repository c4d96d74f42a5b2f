"""The check whether a file that Git created in a repository is harmless, that is, makes no program start.

Harmless files need not be set aside. A key that is not on the list, or a line that cannot be read with certainty, is
not harmless. Sources: git-config(1), gitrepository-layout(5), githooks(5).
"""

import os
import re
import stat

from policy.languages.git_config import GitConfigError, Setting, gitdir_target, read_settings, starts_nothing
from policy.model.secret_paths import inside
from sandbox.inside.regular_file import read_whole, real_path
from sandbox.workspace.git_settings import common

_MOST = 64 << 10  # bytes
_SUBSECTION = re.compile(r"[\w./@+ -]*")
_BOOLEAN = r"true|false|yes|no|on|off|0|1"
# An address has no scheme of an external program (gitremote-helpers(7)), and no part that ssh or Git could take for an
# option.
_ADDRESS = (
    r"(?:(?:https|http|git|ssh|file)://(?:\w[\w.@-]*(?::\d+)?)?)?/[\w./~@+-]*"
    r"|(?:\w[\w.-]*@)?\w[\w.-]*:[\w./~][\w./~@+-]*|(?:\.{1,2}/)*\w[\w./~@+-]*"
)
_BRANCH = r"[\w.][\w./-]*"
_SUBMODULE = r"(?!.*\.\.)\w[\w./@+-]*"  # the name and the path of a submodule
_OF_SUBMODULE = re.compile(r"/\.git/(?:worktrees/[^/]+/)?modules/")
# hgrc(5): the lines that `hg clone` and `sl clone` write.
_PATHS = re.compile(rf"\s*|[#;].*|\[paths\]|default(?:-push)? = (?:{_ADDRESS})")
# Omitted: settings that make Git fetch by itself (`extensions.partialClone`, `remote.x.promisor`), and `core.worktree`.
# fmt: off
_KEYS: dict[str, dict[str, str]] = {
    "core": dict.fromkeys(
        (
            *("repositoryformatversion", "filemode", "bare", "logallrefupdates", "symlinks", "ignorecase"),
            *("precomposeunicode", "sparsecheckout", "sparsecheckoutcone", "untrackedcache", "multipackindex"),
            *("sharedrepository", "compression", "loosecompression"),
        ),
        r"true|false|always|keep|group|all|umask|-?\d{1,9}",
    ),
    "extensions": {"objectformat": r"sha1|sha256", "refstorage": r"files|reftable", "worktreeconfig": _BOOLEAN},
    "user":   {"name": r".*", "email": r".*", "useconfigonly": _BOOLEAN},
    "remote": {
        "url": _ADDRESS,
        "pushurl": _ADDRESS,
        "fetch": r"\^?\+?refs/[\w./*-]*(?::refs/[\w./*-]*)?",
        "push": r"\+?(?:HEAD|refs/[\w./*-]*)?(?::refs/[\w./*-]*)?",
        "tagopt": r"--no-tags|--tags",
        **dict.fromkeys(("mirror", "prune", "prunetags", "skipdefaultupdate", "skipfetchall"), _BOOLEAN),
        "pushdefault": r"\w[\w.-]*",
    },
    "branch": {
        "remote": r"\.|\w[\w.-]*",
        "pushremote": r"\.|\w[\w.-]*",
        "merge": r"refs/[\w./-]*",
        "rebase": rf"{_BOOLEAN}|merges|interactive",
        "description": r".*",
        "vscode-merge-base": _BRANCH,  # written by VS Code
        "gh-merge-base": _BRANCH,      # written by GitHub's command line
        "autosetupmerge": rf"{_BOOLEAN}|always|inherit|simple",
        "autosetuprebase": r"never|local|remote|always",
    },
    "receive": dict.fromkeys(
        ("denycurrentbranch", "denydeletecurrent", "denydeletes", "denynonfastforwards", "autogc", "fsckobjects"),
        rf"{_BOOLEAN}|ignore|warn|refuse|updateinstead|updateInstead",
    ),
    "fetch": dict.fromkeys(("prunetags", "fsckobjects", "writecommitgraph", "all", "parallel"), rf"{_BOOLEAN}|\d\d?"),
    "transfer": {"fsckobjects": _BOOLEAN},
    "push": {"autosetupremote": _BOOLEAN, "followtags": _BOOLEAN},
    "gc": dict.fromkeys(("autodetach", "autopacklimit", "packrefs", "pruneexpire"), r"[\w.-]+"),
    "index": {"version": r"\d", "sparse": _BOOLEAN, "skiphash": _BOOLEAN},
    "feature": {"manyfiles": _BOOLEAN},
    "maintenance": {"auto": _BOOLEAN, "strategy": r"none|incremental"},
    "pack": dict.fromkeys(("window", "depth", "windowmemory", "packsizelimit"), r"\d+[kmgKMG]?"),
    "http": {"postbuffer": r"\d+[kmgKMG]?"},
    "submodule": {"active": r"[\w./*-]+", "recurse": _BOOLEAN},
    "lfs": {"repositoryformatversion": r"0"},
}
# Of `.gitmodules`, as `git submodule add` writes it: gitmodules(5). Omitted: `update`, which can name a program.
_MODULE_KEYS = {"path": _SUBMODULE, "url": _ADDRESS, "branch": rf"\.|{_BRANCH}", "shallow": _BOOLEAN}
# fmt: on


def harmless(path: str, *places: str) -> bool:
    """Return True if the file or folder at `path`, of a kind that Git obeys, has Git's own form and starts nothing.

    `places` are the workspace, and the repository outside of it that a linked worktree uses: folders whose settings are
    watched.

    A path that does not exist any more is harmless: a running command moved the file, and its new path is judged too.
    """
    try:
        status = os.lstat(path)
        name = os.path.basename(path)
        if stat.S_ISDIR(status.st_mode):
            with os.scandir(path) as entries:
                return name == "hooks" and all(
                    entry.name.endswith(".sample") and entry.is_file(follow_symlinks=False) for entry in entries
                )
        content = read_whole(path, _MOST, follow=False)
    except (FileNotFoundError, NotADirectoryError):
        return True
    except (OSError, ValueError):
        return False
    if name == "hgrc" or path.endswith("/.sl/config"):
        return all(_PATHS.fullmatch(line) for line in content.decode("utf-8", "surrogateescape").split("\n"))
    try:
        if name == ".gitmodules":
            return b"\\" not in content and all(map(_of_module, read_settings(content)))
        if name in ("config", "config.worktree"):  # harmless settings contain no backslash
            settings = [each for each in read_settings(content) if not _names_worktree(each, path, places)]
            return b"\\" not in content and all(map(_starts_nothing, settings))
        if name == "commondir":  # it names the folder with the settings, which is judged as a repository itself
            shared = common(os.path.dirname(path))
            parts = ("HEAD", "objects", "refs")
            return content == b"../..\n" and all(os.path.lexists(f"{shared}/{part}") for part in parts)
        if name != ".git":
            return False
        # The `.git` file of a worktree or submodule names a repository whose settings are watched.
        place = os.path.normpath(os.path.join(os.path.dirname(path), gitdir_target(content)))
    except GitConfigError:
        return False
    match = re.search(r"/\.git/(?:worktrees|modules)/", place)
    return match is not None and any(inside(place, each) for each in places) and real_path(place) == place


def _of_module(setting: Setting) -> bool:
    known, value, name = _MODULE_KEYS.get(setting.key), setting.value, setting.subsection or ""
    named = setting.section == "submodule" and re.fullmatch(_SUBMODULE, name) is not None
    return named and known is not None and value is not None and re.fullmatch(known, value) is not None


def _names_worktree(setting: Setting, path: str, places: tuple[str, ...]) -> bool:
    """Return True for `core.worktree` of a submodule if the named folder is in one of `places`, and in no folder of a
    repository.
    """
    if (setting.section, setting.subsection, setting.key) != ("core", None, "worktree") or not setting.value:
        return False
    target = os.path.normpath(os.path.join(os.path.dirname(path), setting.value))
    inner = any(inside(target, each) and target != each for each in places)
    return _OF_SUBMODULE.search(path) is not None and inner and "/.git/" not in f"{target}/"


def _starts_nothing(setting: Setting) -> bool:
    known, value = _KEYS.get(setting.section, {}).get(setting.key), setting.value
    name = ".".join(part for part in (setting.section, setting.subsection, setting.key) if part is not None)
    if known is None or value is None:
        return starts_nothing(name, value)
    plain = setting.subsection is None or _SUBSECTION.fullmatch(setting.subsection) is not None
    return plain and re.fullmatch(known, value) is not None
