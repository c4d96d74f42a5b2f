"""Facts about the machine, gathered once for each decision and passed to the policy."""

import os
import stat
from collections.abc import Callable, Mapping
from functools import cache, partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from policy.model.assessment import Scope
from policy.model.facts import SERVICE_CLIENTS, Facts, GitSource, Kind, PathFact, Remotes, ShellText
from policy.model.profile import Profile
from policy.model.secret_paths import Secrets, folded, inside, name_patterns
from policy.terms import Floor, workspace_floor
from runner.facts import toolchains
from runner.facts.environment import EnvVariables, caching, certificate_files, reading, trusting
from runner.facts.git.drivers import drivers
from runner.facts.toolchains import within
from runner.state import paths
from runner.state.workspace import linked_repository, workspace_of, writable_repository
from sandbox.workspace import tool_cache
from sandbox.workspace.secret_files import login_at

if TYPE_CHECKING:
    from datetime import date

_USUAL_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_MOST_NAMES = 5000  # of a folder; more names would take too long
_LONGEST = 4096  # the kernel accepts no longer path


def gather(cwd: str, environ: Mapping[str, str], profile: Profile) -> Facts:
    """Gather facts from `cwd`. `look` and `which` cache their answers, so gather again for each decision.

    Raises PlaceError when a variable of ringfence names an impossible folder, and no other error.
    """
    home = _real(paths.home(environ))
    workspace = workspace_of(_real(cwd), home)
    private = _private(environ, home, profile)
    secrets = Secrets(profile, home, private)
    base = system_paths(profile, secrets)
    # The caller's PATH as real folders, without those that a project or another user can write to.
    searched = dict.fromkeys(_real(entry) for entry in environ.get("PATH", "").split(":") if entry.startswith("/"))
    wanted = [entry for entry in searched if not inside(entry, workspace) and paths.only_owners_write(entry)]
    known = frozenset(base)
    rustup = _real(environ["RUSTUP_HOME"]) if environ.get("RUSTUP_HOME", "").startswith("/") else ""
    tools = toolchains.roots([one for one in wanted if not within(one, known)], workspace, secrets, rustup)
    certificates = certificate_files(trusting(environ, profile.authority), workspace, secrets)
    skills = toolchains.exposable_folder(f"{home}/.agents/skills", secrets)  # see runner/agent/context_sources.py
    system = toolchains.outermost([*base, *tools, *linked_repository(workspace, secrets), *certificates, *skills])
    every = frozenset(system)
    path = tuple(one for one in wanted if within(one, every))
    usual = tuple(dict.fromkeys(_real(one) for one in _USUAL_PATH.split(":") if os.path.isdir(one)))
    # A PATH without any system folder is taken for a mistake.
    path = path if any(one in usual for one in path) else (*path, *usual)
    git = drivers(workspace, home)
    caches = "" if home == "/" else tool_cache.place(paths.caches(environ), workspace)
    keeps, fetches = caching(home, workspace, system, caches) if caches else ((), ())
    return Facts(
        workspace=workspace,
        home=home,
        path=path,
        system=system,
        private=private,
        repository=writable_repository(workspace, secrets),
        look=cache(look_at),
        which=cache(partial(_which, path=path)),
        reading=reading(git),
        beyond=git.beyond,
        today=_today() if any(rule.until for rule in profile.permissions) else None,
        names=_names,
        login=login_at,
        keeps_folder=_keeps_folder,
        shell_text=cache(_shell_text),
        remotes=cache(partial(_remotes, home=home)),
        registries=cache(partial(_registries, home=home, environ=environ, workspace=workspace)),
        telling=partial(_telling, home=home, environ=environ, workspace=workspace),
        tracked=_lazily_tracked(workspace, profile, home, environ),
        cache=caches,
        caching=keeps,
        fetching=fetches,
    )


def _today() -> "date":
    from datetime import date  # few rules have an end

    return date.today()


def unfit_folder(cwd: str, environ: Mapping[str, str], profile: Profile) -> Floor | None:
    """Return the Floor that forbids every action in the workspace around `cwd`, or None.

    The home folder is also recognized below another path, such as a bind mount, by its device and inode number. A
    folder with our own state is allowed here, because a run in a copy never sees that folder.
    Raises PlaceError when a variable of ringfence names an impossible folder.
    """
    home = _real(paths.home(environ))
    workspace = workspace_of(_real(cwd), home)
    return workspace_floor(_same_folder_above(home, workspace), Secrets(profile, home, ()))


def _same_folder_above(home: str, workspace: str) -> str:
    """Return `home`, or the folder above it, that is the same folder as `workspace`; else `workspace`."""
    try:
        own = os.stat(workspace)
        at = home
        while at != "/" and not os.path.samestat(os.stat(at), own):
            at = os.path.dirname(at)
    except OSError:
        return workspace
    return workspace if at == "/" else at


def _remotes(folder: str, home: str) -> Remotes:
    from runner.facts.git.remotes import remotes  # few commands connect to one

    return remotes(folder, home)


def _keeps_folder(path: str) -> bool:
    from runner.facts.sourced_file import keeps_folder  # few commands read shell text from a file

    return keeps_folder(path)


def _shell_text(path: str) -> ShellText | None:
    from runner.facts.sourced_file import shell_text  # few commands read shell text from a file

    return shell_text(path)


def _registries(
    program: str, folder: str, home: str, environ: Mapping[str, str], workspace: str
) -> tuple[tuple[str, Scope], ...]:
    if program.partition(" ")[0] in SERVICE_CLIENTS:
        from runner.facts.service_hosts import service_host  # few commands contact a service

        host = service_host(program, home, environ, workspace)
        return ((host, Scope.OUTSIDE),) if host else ()
    from runner.facts.package_registries import registries  # few commands contact a registry

    return registries(program, folder, home, environ, workspace)


def _telling(hosts: tuple[str, ...], home: str, environ: Mapping[str, str], workspace: str) -> EnvVariables:
    from runner.facts.package_registries import registry_variables

    return registry_variables(hosts, home, environ, workspace)


def _lazily_tracked(
    workspace: str, profile: Profile, home: str, environ: Mapping[str, str]
) -> Callable[[GitSource], tuple[str, ...] | None]:
    @cache
    def reader() -> Callable[[GitSource], tuple[str, ...] | None]:
        from runner.facts.git.tracked_secrets import tracked  # few commands show what Git keeps

        return tracked(workspace, profile, home, kept_in)

    def kept_in() -> Path | None:
        try:
            return paths.cache_dir(environ)
        except paths.PlaceError:  # a home that cannot be written to
            return None

    return lambda where: reader()(where)


def look_at(path: str) -> PathFact:
    """Return the kind and the real path of what an absolute path names now."""
    if not path.startswith("/") or "\0" in path or len(path) > _LONGEST:
        return PathFact(path, Kind.OTHER)
    try:
        real = os.path.realpath(path)
        mode = os.lstat(real).st_mode
    except (FileNotFoundError, NotADirectoryError):
        return PathFact(real, Kind.MISSING)
    except (OSError, ValueError):
        # ValueError: a name that cannot be encoded. OSError: not ours to see, or a name too long for the kernel.
        return PathFact(os.path.normpath(path), Kind.OTHER)
    if stat.S_ISREG(mode):
        return PathFact(real, Kind.FILE)
    return PathFact(real, Kind.FOLDER if stat.S_ISDIR(mode) else Kind.OTHER)


def _names(path: str) -> tuple[str, ...] | None:
    """Return the names in a folder. Not cached: few commands ask, and each asks once."""
    try:
        with os.scandir(path) as entries:
            names = tuple(entry.name for entry in islice(entries, _MOST_NAMES + 1))
    except (OSError, ValueError):
        return None
    return names if len(names) <= _MOST_NAMES else None


def _which(name: str, path: tuple[str, ...]) -> str | None:
    if not name or "/" in name or "\0" in name or name in (".", ".."):
        return None
    for folder in path:
        program = f"{folder}/{name}"
        try:
            if os.path.isfile(program) and os.access(program, os.X_OK):
                return program
        except ValueError:
            return None  # a name that cannot be encoded is no program
    return None


def system_paths(profile: Profile, secrets: Secrets) -> list[str]:
    """Return the folders and files of the system that every command may read, without those of toolchains."""
    base = [root for folder in profile.system for root in _carved(folder, secrets)]
    return base + _etc(profile, secrets, frozenset(base))


def _carved(root: str, secrets: Secrets, depth: int = 6) -> list[str]:
    """Return `root`, or, if a home or our state lies below it, the parts of `root` that contain none of them."""
    if not os.path.lexists(root) or secrets.holds_folder(root):
        return []
    if os.path.islink(root) and (secrets.exposed_by(_real(root)) or secrets.holds_folder(_real(root))):
        return []
    if not secrets.exposed_by(root):
        return [root]
    if depth == 0 or inside(root, secrets.home):
        return []  # inside a home nothing is a system folder
    try:
        names = sorted(os.listdir(root))
    except OSError:
        return []
    return [part for name in names for part in _carved(f"{root.rstrip('/')}/{name}", secrets, depth - 1)]


def _etc(profile: Profile, secrets: Secrets, folders: frozenset[str]) -> list[str]:
    """Return the existing entries of /etc, and the targets of their links that nothing else covers."""
    top, links = _real("/etc"), _links("/etc")
    wild = name_patterns(tuple(entry for entry in profile.etc if any(char in entry for char in "*?")))
    plain = [entry for entry in profile.etc if not any(char in entry for char in "*?")]
    missing, covered = _absent(list(links) if links is not None else None), {*folders}
    entries: list[str] = []
    for name in dict.fromkeys([*plain, *(name for name in sorted(links or ()) if wild.hold(name))]):
        path = f"/etc/{name}"
        if links is None or name not in links:  # a path, or a name in another case
            if missing(name) or not os.path.lexists(path):
                continue
            linked = "/" in name or os.path.islink(path)
        else:
            linked = links[name]
        real = _real(path) if linked else f"{top}/{name}"
        both = {path, real}  # most are not links: checked once
        if any(secrets.exposed_by(one) or secrets.holds_folder(one) for one in both):
            continue
        entries.append(path)
        covered.add(path)
        if not inside(real, "/proc") and not inside(real, "/dev") and not within(real, covered):
            entries.append(real)
            covered.add(real)
    return entries


def _links(folder: str) -> dict[str, bool] | None:
    """Return the names in `folder`, each with True for a link; None if it cannot be listed."""
    try:
        with os.scandir(folder) as found:
            return {entry.name: entry.is_symlink() for entry in found}
    except OSError:
        return None


def _listed(folder: str) -> list[str] | None:
    """Return the names in `folder`; None if it cannot be listed."""
    try:
        return os.listdir(folder)
    except OSError:
        return None


def _absent(names: list[str] | None) -> Callable[[str], bool]:
    """Return a function that is True for paths that cannot exist in a folder with these `names`, because their first
    name does not. One list costs less than a look-up of each of a hundred paths.
    """
    if names is None:  # a folder that cannot be listed may still be entered
        return lambda path: False
    known = frozenset(map(folded, names))
    return lambda path: folded(path.partition("/")[0]) not in known


def _private(environ: Mapping[str, str], home: str, profile: Profile) -> tuple[str, ...]:
    """Return our own folders, and the real paths of secret places of the home that are links."""
    private = list(paths.private(environ))
    missing = _absent(_listed(home))
    common = frozenset([*profile.system, "/dev", "/proc"])  # `~/.bash_history -> /dev/null` makes no secret of that
    for entry in profile.secret_home:
        path = f"{home}/{entry}"
        if "*" in entry or "?" in entry or missing(entry) or not os.path.lexists(path):
            continue
        real = _real(path)
        if real != path and os.path.exists(real) and not within(real, common) and not inside(home, real):
            private.append(real)
    return tuple(dict.fromkeys(private))


def _real(path: str) -> str:
    try:
        return os.path.realpath(path)
    except (OSError, ValueError):
        return os.path.normpath(path)
