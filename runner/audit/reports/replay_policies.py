"""Policies for a replay: the current policy of a recorded workspace, or a policy to try out."""

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from policy.flow.state import FlowMode
from policy.model.frozen import dataclass
from policy.model.tier import MATRIX, Matrix, Mode
from runner.audit.decisions import DecisionTrail
from runner.audit.fields import mapping, texts
from runner.audit.reports.replay import NotRecorded, Policy
from runner.changes.transaction.settings import transaction_settings
from runner.config import Settings, load
from runner.problems import usage
from runner.state.paths import LOCAL_FILE, PROJECT_FILE, SYSTEM_FILE, config_file, setting_variables

_TRUST = "trust:"  # prefix of a recorded source: the hash by which the repository's configuration was trusted


@dataclass(frozen=True, slots=True)
class _Origin:
    """Origin of a session's settings.

    Attributes:
        folder: folder with the configuration
        copy: folder that the session worked in if it was a copy of `folder`, or empty
        apart: paths that were secret in addition to those of the configuration
        unattended: True if there was no user
        repository: True if the configuration of the repository applies
        pinned: hash of the repository's configuration that was trusted, or empty
        config: file of `--config`, or empty
    """

    folder: str
    copy: str = ""
    apart: tuple[str, ...] = ()
    unattended: bool = True
    repository: bool = True
    pinned: str = ""
    config: str = ""


class Policies:
    """Source of the policy for each recorded action: the current policy of its workspace, or a policy to try out.

    The file `own` replaces the settings of the system, the user and the environment; the configuration of a workspace
    still overrides them. The methods raise ConfigError for a file that cannot be read.
    """

    def __init__(
        self,
        environ: Mapping[str, str],
        own: Path | None,
        mode: Mode | None = None,
        matrix: Matrix = MATRIX,
        flow: FlowMode | None = None,
    ) -> None:
        self._environ = environ
        self._own = own
        if own is not None:
            kept = {name: environ[name] for name in environ.keys() - setting_variables(environ)}
            self._environ = kept
        self._mode = mode
        self._matrix = matrix
        self._flow = flow
        self._known: dict[_Origin, tuple[Settings, Policy]] = {}
        self._other: set[_Origin] = set()  # those whose trusted configuration (`pinned`) was changed or removed
        self._usual = frozenset([str(SYSTEM_FILE), str(config_file(environ))])

    def of(self, deed: DecisionTrail) -> Policy | NotRecorded:
        """Return the policy for this decision.

        Return NotRecorded if its workspace or a configuration no longer exists, or if a configuration that was trusted
        by its hash has changed.
        """
        session = deed.start
        origin = self._origin(session)
        try:
            os.fsencode(f"{origin.folder}{origin.copy}")
        except UnicodeEncodeError:
            return NotRecorded("a workspace that does not exist", "its name is not a path")
        if origin.config and not Path(origin.config).is_file():
            return NotRecorded("a configuration that is missing", f"`{origin.config}` was given with --config")
        if origin not in self._known:
            found = self._load(origin)
            limits = transaction_settings(found)
            most = limits.most_deleted if limits.enabled else 0  # without transactions nothing is held back
            self._known[origin] = (
                found,
                Policy(found.profile, found.rules, self._matrix, self._mode, flow=self._flow, most_deleted=most),
            )
            if origin.pinned and self._trusted(origin) is None:
                self._other.add(origin)
        settings, policy = self._known[origin]
        then = {source for source in texts(session.get("sources")) if source in _repository_files(origin.folder)}
        if then - set(settings.sources) and not Path(origin.folder).is_dir():
            return NotRecorded("a workspace that does not exist", "its own configuration was used")
        if origin in self._other:
            return NotRecorded("a configuration that was trusted by its hash", "the folder has another content now")
        return policy

    def here(self, cwd: Path) -> Settings:
        """Return the settings of a folder for unattended use. Used for the fingerprint, and to find errors early."""
        return self._load(_Origin(str(cwd)))

    def _origin(self, session: Mapping[str, object]) -> _Origin:
        workspace, original = session.get("workspace"), session.get("original")
        argv, sources = texts(session.get("argv")), texts(session.get("sources"))
        folder = str(original or workspace or "/")
        pinned = next((each.removeprefix(_TRUST) for each in sources if each.startswith(_TRUST)), "")
        usual = {*self._usual, *_repository_files(folder)}
        named = [name for name in mapping(session.get("hashes")) if name not in usual]
        return _Origin(
            folder=folder,
            copy=str(workspace) if original else "",
            apart=texts(session.get("apart")),
            unattended=session.get("unattended") is True,
            repository=argv[1:2] != ("ci",) or bool(pinned),  # `agent ci` uses only a trusted one
            pinned=pinned,
            config=named[-1] if named and self._own is None else "",
        )

    def _load(self, origin: _Origin) -> Settings:
        settings = load(
            Path(origin.folder),
            self._environ,
            config=Path(origin.config) if origin.config else None,
            unattended=origin.unattended,
            trusted=self._trusted(origin),
            repository=origin.repository,
            own=self._own,
        )
        if origin.apart:
            secret = (*settings.profile.secret_paths, *origin.apart)
            settings = replace(settings, profile=replace(settings.profile, secret_paths=secret))
        if not origin.copy:
            return settings
        from runner.config.path_mapping import map_settings
        from runner.state.paths import home

        return map_settings(settings, origin.folder, origin.copy, str(Path(home(self._environ)).resolve()))

    def _trusted(self, origin: _Origin) -> Mapping[str, str] | None:
        """Return the trusted hashes of the repository's files: of the recorded trust, else of the user's trust today.
        None if there are none."""
        if origin.pinned:
            from runner.config.inventory import EntryKind
            from runner.config.trust.session_check import look_at

            inventory = look_at(origin.folder, origin.folder, self._environ) if Path(origin.folder).is_dir() else None
            same = inventory is not None and inventory.sha256 == origin.pinned
            return inventory.hashes(EntryKind.CONFIGURATION) if inventory is not None and same else None
        if origin.unattended:
            return None
        from runner.config.trust.cached import remembered

        return remembered(origin.folder, self._environ)


def configuration(path: Path) -> Path:
    """Return `path` if it is a file, or the file `config.toml` in the folder `path`.

    Raises a usage error if there is no such file.
    """
    if path.is_dir():
        if (path / "config.toml").is_file():
            return path / "config.toml"
        why = "there is no `config.toml` in it"
        raise usage(f"`{path}` is not a configuration folder", why, "give the file")
    if not path.is_file():
        raise usage(f"there is no policy `{path}`", "no such file", "check the path after --policy")
    return path


def _repository_files(folder: str) -> tuple[str, str]:
    return f"{folder}/{PROJECT_FILE}", f"{folder}/{LOCAL_FILE}"
