"""Policies for a replay: that of a recorded workspace as it is now, or one to try out."""

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from policy.model.frozen import dataclass
from policy.model.tier import MATRIX, Matrix, Mode
from runner.audit.decisions import DecisionTrail
from runner.audit.fields import mapping, texts
from runner.audit.reports.replay import NotRecorded, Policy
from runner.config import Settings, load
from runner.config.load import LOCAL_FILE, PROJECT_FILE, SYSTEM_FILE, setting_variables
from runner.problems import usage
from runner.state.paths import config_file

_TRUST = "trust:"  # how a session says that it believed the repository's configuration by its hash


@dataclass(frozen=True, slots=True)
class _Way:
    """Origin of a session's settings.

    Attributes:
        folder: folder with the configuration
        copy: folder that the session worked in instead, or empty
        repository: whether the configuration of the repository applies
        pinned: hash of the repository's configuration that was trusted
        config: file of `--config`
    """

    folder: str
    copy: str = ""
    apart: tuple[str, ...] = ()
    unattended: bool = True
    repository: bool = True
    pinned: str = ""
    config: str = ""


class Policies:
    """Source of the policy for each recorded action: that of its workspace as it is now, or one to try out.

    `own` replaces the settings of the system, the user and the environment; the configuration of a workspace still
    applies over it. Raises ConfigError for a file that cannot be read.
    """

    def __init__(
        self, environ: Mapping[str, str], own: Path | None, mode: Mode | None = None, matrix: Matrix = MATRIX
    ) -> None:
        self._environ = environ
        self._own = own
        if own is not None:
            kept = {name: environ[name] for name in environ.keys() - setting_variables(environ)}
            self._environ = kept
        self._mode = mode
        self._matrix = matrix
        self._known: dict[_Way, tuple[Settings, Policy]] = {}
        self._other: set[_Way] = set()  # what they trusted by its hash is not there any more
        self._usual = frozenset([str(SYSTEM_FILE), str(config_file(environ))])

    def of(self, deed: DecisionTrail) -> Policy | NotRecorded:
        """Return the policy for this decision, or NotRecorded if its folder had a configuration and is gone."""
        session = deed.start
        way = self._way(session)
        try:
            os.fsencode(f"{way.folder}{way.copy}")
        except UnicodeEncodeError:
            return NotRecorded("a workspace that is not here", "its name is no path")
        if way.config and not Path(way.config).is_file():
            return NotRecorded("a configuration that is gone", f"`{way.config}` was named with --config")
        if way not in self._known:
            found = self._load(way)
            self._known[way] = found, Policy(found.profile, found.rules, self._matrix, self._mode)
            if way.pinned and self._trusted(way) is None:
                self._other.add(way)
        settings, policy = self._known[way]
        then = {source for source in texts(session.get("sources")) if source in _came_along(way.folder)}
        if then - set(settings.sources) and not Path(way.folder).is_dir():
            return NotRecorded("a workspace that is not here", "its own configuration had a say")
        if way in self._other:
            return NotRecorded("a configuration that was trusted by its hash", "it is not what the folder contains now")
        return policy

    def here(self, cwd: Path) -> Settings:
        """Return the policy of a folder without a user: used for its name, and to find mistakes early."""
        return self._load(_Way(str(cwd)))

    def _way(self, session: Mapping[str, object]) -> _Way:
        workspace, original = session.get("workspace"), session.get("original")
        argv, sources = texts(session.get("argv")), texts(session.get("sources"))
        folder = str(original or workspace or "/")
        pinned = next((each.removeprefix(_TRUST) for each in sources if each.startswith(_TRUST)), "")
        usual = {*self._usual, *_came_along(folder)}
        named = [name for name in mapping(session.get("hashes")) if name not in usual]
        return _Way(
            folder=folder,
            copy=str(workspace) if original else "",
            apart=texts(session.get("apart")),
            unattended=session.get("unattended") is True,
            repository=argv[1:2] != ("ci",) or bool(pinned),  # a pipeline reads none that it was not told to trust
            pinned=pinned,
            config=named[-1] if named and self._own is None else "",
        )

    def _load(self, way: _Way) -> Settings:
        settings = load(
            Path(way.folder),
            self._environ,
            config=Path(way.config) if way.config else None,
            unattended=way.unattended,
            trusted=self._trusted(way),
            repository=way.repository,
            own=self._own,
        )
        if way.apart:
            secret = (*settings.profile.secret_paths, *way.apart)
            settings = replace(settings, profile=replace(settings.profile, secret_paths=secret))
        if not way.copy:
            return settings
        from runner.config.path_mapping import map_settings
        from runner.state.paths import home

        return map_settings(settings, way.folder, way.copy, str(Path(home(self._environ)).resolve()))

    def _trusted(self, way: _Way) -> Mapping[str, str] | None:
        """Return the trusted hashes of the repository's files: those recorded then, else those trusted since."""
        if way.pinned:
            from runner.config.trust.inventory import EntryKind
            from runner.config.trust.session_check import look_at

            inventory = look_at(way.folder, way.folder, self._environ) if Path(way.folder).is_dir() else None
            same = inventory is not None and inventory.sha256 == way.pinned
            return inventory.hashes(EntryKind.CONFIGURATION) if inventory is not None and same else None
        if way.unattended:
            return None
        from runner.config.trust.cached import remembered

        return remembered(way.folder, self._environ)


def configuration(path: Path) -> Path:
    """Return the configuration file that `given` names: itself, or the one in a folder laid out like the user's.

    Raises a usage error if there is none.
    """
    if path.is_dir():
        if (path / "config.toml").is_file():
            return path / "config.toml"
        why = "there is no `config.toml` in it"
        raise usage(f"`{path}` is no folder of a configuration", why, "name the file itself")
    if not path.is_file():
        raise usage(f"there is no policy `{path}`", "no such file", "check the path after --policy")
    return path


def _came_along(folder: str) -> tuple[str, str]:
    return f"{folder}/{PROJECT_FILE}", f"{folder}/{LOCAL_FILE}"
