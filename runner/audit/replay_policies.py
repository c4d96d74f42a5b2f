"""Which policy judges which recorded action: that of its workspace as it is now, or one that somebody tries out."""

from collections.abc import Mapping
from pathlib import Path

from policy.matrix import MATRIX, Matrix
from policy.tier import Mode
from runner.audit.deeds import Deed
from runner.audit.replay import NotRecorded, Policy
from runner.config import Settings, load
from runner.config.load import ELSEWHERE, LOCAL_FILE, PREFIX, PROJECT_FILE
from runner.problems import usage


class Policies:
    """`own`: a file in place of what the system, the user and the environment say; the configuration that came with a
    workspace counts over it, as ever. Raises ConfigError for one that cannot be read."""

    def __init__(
        self, environ: Mapping[str, str], own: Path | None, mode: Mode | None = None, matrix: Matrix = MATRIX
    ) -> None:
        self._environ = environ
        self._own = own
        if own is not None:
            kept = {name: value for name, value in environ.items() if not name.startswith(PREFIX) or name in ELSEWHERE}
            self._environ = kept
        self._mode = mode
        self._matrix = matrix
        self._known: dict[tuple[str, bool, bool], tuple[Settings, Policy]] = {}

    def of(self, deed: Deed) -> Policy | NotRecorded:
        """What judges this one; for a folder that is not here, and had its own configuration, nobody knows."""
        session = deed.session.body if deed.session is not None else {}
        workspace, unattended = str(session.get("workspace", "/")), session.get("unattended") is True
        argv = session.get("argv")
        key = workspace, unattended, isinstance(argv, list) and argv[1:2] == ["ci"]  # which reads no repository's
        if key not in self._known:
            found = self._load(*key)
            self._known[key] = found, Policy(found.profile, found.rules, self._matrix, self._mode)
        settings, policy = self._known[key]
        sources = session.get("sources")
        came_along = {f"{workspace}/{name}" for name in (PROJECT_FILE, LOCAL_FILE)}
        then = {str(each) for each in sources} & came_along if isinstance(sources, list) else set()
        if then - set(settings.sources) and not Path(workspace).is_dir():
            return NotRecorded("a workspace that is not here", "its own configuration had a say")
        return policy

    def here(self, cwd: Path) -> Settings:
        """What holds in a folder when nobody is there: for its name, and to find mistakes before anything is read."""
        return self._load(str(cwd), True, False)

    def _load(self, workspace: str, unattended: bool, alone: bool) -> Settings:
        trusted = None
        if not unattended:
            from runner.trust.remembered import remembered

            trusted = remembered(workspace, self._environ)
        return load(
            Path(workspace),
            self._environ,
            unattended=unattended,
            trusted=trusted,
            repository=not alone,
            own=self._own,
        )


def configuration(path: Path) -> Path:
    """The configuration file that is meant: itself, or the one in a folder like that of your own. Raises a usage error
    where there is none."""
    if path.is_dir():
        if (path / "config.toml").is_file():
            return path / "config.toml"
        why = "there is no `config.toml` in it"
        raise usage(f"`{path}` is no folder of a configuration", why, "name the file itself")
    if not path.is_file():
        raise usage(f"there is no policy `{path}`", "no such file", "check the path after --policy")
    return path
