"""Paths of the state, configuration and cache folders, which are private and refused if everybody may write to them."""

import os
import stat
from collections.abc import Mapping
from pathlib import Path

from policy.model.frozen import dataclass
from policy.model.verdict import Problem, ProblemError


class PlaceError(ProblemError):
    """An error for a folder of the program that cannot be used safely. `problem` has the details."""


@dataclass(frozen=True, slots=True)
class _Place:
    purpose: str  # noun for error messages
    own: str  # variable of ringfence with the folder itself
    xdg: str  # variable of the desktop (XDG) with the parent folder
    usual: str  # parent folder below the home if neither variable is set


BATCH = "RINGFENCE_BATCH_DIR"  # set by `agent batch` for each task; it can only make a folder private

_STATE = _Place("state", "RINGFENCE_STATE_DIR", "XDG_STATE_HOME", ".local/state")
_CONFIG = _Place("configuration", "RINGFENCE_CONFIG_DIR", "XDG_CONFIG_HOME", ".config")
_CACHE = _Place("cache", "RINGFENCE_CACHE_DIR", "XDG_CACHE_HOME", ".cache")
# The copies of bundles. Sandboxes may read single folders in it, so it is not in the state folder, which none sees.
_DATA = _Place("data", "RINGFENCE_DATA_DIR", "XDG_DATA_HOME", ".local/share")

SYSTEM_FILE = Path("/etc/ringfence/config.toml")
PROJECT_FILE = ".ringfence/config.toml"  # in the top folder of a workspace, as the next one
LOCAL_FILE = ".ringfence/config.local.toml"
_CREDENTIALS = "RINGFENCE_MCP_"  # credentials of a machine for a tool server (runner/mcp/machine_sign_in.py)
ELSEWHERE = (
    "RINGFENCE_STATE_DIR", "RINGFENCE_CONFIG_DIR", "RINGFENCE_CACHE_DIR", "RINGFENCE_DATA_DIR", "RINGFENCE_BATCH_DIR",
)  # fmt: skip


def state_dir(environ: Mapping[str, str]) -> Path:
    """Return the folder of the audit log and the sessions, created with mode 0700. Raise PlaceError."""
    return _ready(_STATE, environ)


def config_dir(environ: Mapping[str, str]) -> Path:
    """Return the folder of the user's settings, created with mode 0700. Raise PlaceError."""
    return _ready(_CONFIG, environ)


def cache_dir(environ: Mapping[str, str]) -> Path:
    """Return the folder of files that may be deleted at any time, created with mode 0700. Raise PlaceError."""
    return _ready(_CACHE, environ)


def data_dir(environ: Mapping[str, str]) -> Path:
    """Return the folder of the copies of bundles, created with mode 0700. Raise PlaceError."""
    return _ready(_DATA, environ)


def data_place(environ: Mapping[str, str]) -> Path:
    """Return the path of the data folder, whether or not it exists. Raise PlaceError if the path is invalid."""
    return _named(_DATA, environ)


def config_file(environ: Mapping[str, str]) -> Path:
    """Return the path of the user's settings, whether or not the file exists. Nothing is created. Raise PlaceError if
    the path is invalid.
    """
    return _named(_CONFIG, environ) / "config.toml"


def setting_variables(environ: Mapping[str, str]) -> list[str]:
    """Return the sorted names of the environment variables that set a key."""
    names = (name for name in environ if name.startswith("RINGFENCE_") and not name.startswith(_CREDENTIALS))
    return sorted(name for name in names if name not in ELSEWHERE)


def is_configured(workspace: str, environ: Mapping[str, str]) -> bool:
    """Return False if no file and no variable of anybody sets a key in `workspace`: only the packaged settings apply.

    A file that cannot be looked at counts as a setting: reading it reports the reason. Raise paths.PlaceError.
    """
    if setting_variables(environ):
        return True
    for path in (SYSTEM_FILE, config_file(environ), f"{workspace}/{PROJECT_FILE}", f"{workspace}/{LOCAL_FILE}"):
        try:
            os.lstat(path)
        except (FileNotFoundError, NotADirectoryError):
            continue
        except (OSError, ValueError):
            return True
        return True
    return False


def private(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return the real paths that no command may see: the three folders, existing or not, and the results of the current
    batch.

    Raise PlaceError.
    """
    ours = tuple(os.path.realpath(_named(place, environ)) for place in (_STATE, _CONFIG, _CACHE))
    results = environ.get(BATCH, "")
    return (*ours, os.path.realpath(results)) if results.startswith("/") and "\0" not in results else ours


def caches(environ: Mapping[str, str]) -> str:
    """Return the real path of the cache folder, whether or not it exists. Raise PlaceError if the path is invalid."""
    return os.path.realpath(_named(_CACHE, environ))


def home(environ: Mapping[str, str]) -> str:
    """Return the home folder: `HOME` if it is absolute, else that of the user database. Links are not resolved."""
    value = environ.get("HOME", "")
    if value.startswith("/") and "\0" not in value:
        return value
    import pwd  # an entry of /etc/passwd is needed only when HOME is missing

    try:
        return pwd.getpwuid(os.geteuid()).pw_dir or "/nonexistent"
    except KeyError:
        return "/nonexistent"


def login_name(otherwise: str) -> str:
    """Return the login name of the user of this process, or `otherwise` if the user database has none."""
    import pwd  # few commands need it

    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return otherwise


def only_owners_write(folder: str) -> bool:
    """Return True if `folder` is an existing folder that not everybody may write to. Its group may have the right."""
    try:
        mode = os.stat(folder).st_mode
    except (OSError, ValueError):
        return False
    return stat.S_ISDIR(mode) and not mode & stat.S_IWOTH


def _named(place: _Place, environ: Mapping[str, str]) -> Path:
    own = environ.get(place.own, "")
    if own:
        if not own.startswith("/") or "\0" in own:
            why = "it is not an absolute path, so its meaning depends on the working folder"
            fix = f"set {place.own} to a path that starts with `/`"
            raise PlaceError(Problem(f"`{place.own}={own}` cannot be used", why, fix))
        return Path(own)
    base = environ.get(place.xdg, "")
    # SOURCE: XDG Base Directory Specification: a relative path is ignored.
    return Path(base if base.startswith("/") and "\0" not in base else f"{home(environ)}/{place.usual}") / "ringfence"


def _ready(place: _Place, environ: Mapping[str, str]) -> Path:
    path = _named(place, environ)
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        path.mkdir(mode=0o700, exist_ok=True)
        _check(path, place)
    except FileExistsError as error:
        raise _refused(path, place, f"`{error.filename}` is not a folder", "rename it") from None
    except (OSError, ValueError) as error:
        from runner.text.phrases import os_reason

        reason = os_reason(error)
        raise _refused(path, place, reason, "check who owns the folders above it") from None
    return path


def _check(path: Path, place: _Place) -> None:
    """Check the folder through one descriptor, so that it cannot be swapped between two checks."""
    if path.is_symlink():
        raise _refused(path, place, "it is a symbolic link, whose target could be changed", "make it a real folder")
    above = path.parent.stat()
    if above.st_mode & stat.S_IWOTH and not above.st_mode & stat.S_ISVTX:
        fix = f"run `chmod o-w {path.parent}`"
        raise _refused(path, place, "every user may rename files in the folder above it", fix)
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        found = os.fstat(handle)
        if found.st_uid != os.geteuid():
            why = f"it belongs to another user (uid {found.st_uid})"
            raise _refused(path, place, why, f"run `ls -ld {path}` and restore the owner")
        if found.st_mode & stat.S_IWOTH:
            fix = f"check its content, then run `chmod 700 {path}`"
            raise _refused(path, place, "every user may write to it, so its content cannot be trusted", fix)
        if stat.S_IMODE(found.st_mode) & 0o077:
            os.fchmod(handle, 0o700)
    finally:
        os.close(handle)


def _refused(path: Path, place: _Place, why: str, fix: str) -> PlaceError:
    what = f"the {place.purpose} folder `{path}` cannot be used"
    return PlaceError(Problem(what, why, f"{fix}, or set {place.own} to another folder"))
