"""The profile of a running session, which follows changes of the configuration files."""

import os
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from policy.evaluation import fingerprint
from policy.model.assessment import RuleKind, RuleRef
from policy.model.credential import Credential
from policy.model.frozen import dataclass
from policy.model.profile import Layer, PermissionRule, Profile, lower
from policy.model.tier import Ruling
from policy.model.verdict import ProblemError
from policy.rules.rulebook import RuleBook
from policy.toml.profile import patterns, texts
from policy.toml.schema import Value
from runner.config.settings import Settings

_RACY = 2_000_000_000  # nanoseconds: two changes of a file within this time may have the same modification time
_NOWHERE = RuleRef(RuleKind.USER, "")
_BROUGHT = (Layer.REPOSITORY, Layer.TRUSTED)  # the layers of rules of the repository

_Stamp = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ConfigurationSource:
    """The files of the configuration of one session, and the way to read them again.

    Attributes:
        files: the paths whose change may change the configuration, existing or not. The answers about trust are one of
            them.
        load: a function that returns the settings in force now. It raises ProblemError for a file that cannot be used.
        seen: the state of each file before the settings of the session were read.
    """

    files: tuple[Path, ...]
    load: Callable[[], Settings]
    seen: tuple[_Stamp, ...]

    @classmethod
    def of(cls, files: tuple[Path, ...], load: Callable[[], Settings]) -> "ConfigurationSource":
        """Return the source for settings that will be read after this call."""
        return cls(files, load, tuple(map(_stamp, files)))

    def mapped(self, change: Callable[[Settings], Settings]) -> "ConfigurationSource":
        """Return a source whose settings `change` has changed."""
        load = self.load
        return replace(self, load=lambda: change(load()))


class LiveProfile:
    """The profile that decides about the next action of a session.

    `first` is the profile at the start, from `settings`. Without a `source` the profile never changes. `tell` receives
    the notices for the user about a change. `adapt` adds the options of the session to a profile that was read again.

    INVARIANT: while a file cannot be used, no rule allows anything, no credential is injected, and the denials and
    questions of the last usable state stay. Restrictions of a repository whose files the user does not trust are never
    removed by a change of these files.
    """

    def __init__(
        self,
        first: Profile,
        settings: Settings | None = None,
        source: ConfigurationSource | None = None,
        tell: Callable[[str], None] = lambda text: None,
        adapt: Callable[[Profile], Profile] = lambda profile: profile,
    ) -> None:
        self._source, self._tell, self._adapt = source, tell, adapt
        self._first = self._good = self._now = first
        self._brought = _Brought.of(settings)
        self._told = set(settings.notices if settings is not None else ())
        self._seen = source.seen if source is not None else ()
        self._racy = _recent(self._seen)
        self._broken = ""
        self._policy = ""

    def now(self) -> Profile:
        """Return the profile in force. Costs one stat for each file if none has changed."""
        if self._source is not None:
            stamps = tuple(map(_stamp, self._source.files))
            if stamps != self._seen or self._racy:
                self._seen, self._racy = stamps, _recent(stamps)
                self._read(self._source)
        return self._now

    def fingerprint(self, rules: RuleBook) -> str:
        """Return the fingerprint of the policy in force, for the record; empty if it is that of the start."""
        if not self._policy and self._now is not self._first:
            self._policy = fingerprint(self._now, rules)
        return self._policy

    def _read(self, source: ConfigurationSource) -> None:
        try:
            settings = source.load()
        except ProblemError as error:
            problem = error.problem
            text = (
                f"{problem.what}: {problem.why}. Until it is corrected, the denials and questions of the earlier "
                "configuration stay, and no rule allows anything"
            )
            if text != self._broken:
                self._broken = text
                self._tell(text)
            denying = tuple(rule for rule in self._good.permissions if rule.verdict is not Ruling.ALLOW)
            self._now, self._policy = replace(self._good, permissions=denying, credentials=()), ""
            return
        repaired, self._broken = bool(self._broken), ""
        brought = _Brought.of(settings)
        good = _followed(self._good, self._adapt(settings.profile))
        if not brought.trusted:
            good, brought = self._brought.kept(self._good, good), self._brought.joined(brought)
        self._brought = brought
        if repaired or not _alike(good, self._good):
            self._tell(_summary(self._good, good))
        if good != self._now:
            self._good, self._now, self._policy = good, good, ""
        for notice in settings.notices:
            if notice not in self._told:
                self._told.add(notice)
                self._tell(notice)


def _recent(stamps: tuple[_Stamp, ...]) -> bool:
    """Return True if a file was changed so recently that a further change may leave its stamp as it is."""
    # SAFETY: stat(2). Two contents may have the same recent time, so an equal stamp does not prove equal contents.
    return any(len(stamp) > 1 and abs(time.time_ns() - stamp[0]) < _RACY for stamp in stamps)


def _stamp(path: Path) -> _Stamp:
    """Return what stat(2) tells about the content of a file; the number of the error if it cannot tell."""
    try:
        found = os.stat(path)
    except OSError as error:
        return (error.errno or 0,)
    except ValueError:
        return (0,)  # no path has a null byte
    owner = (found.st_mode, found.st_uid)
    return (found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_ino, found.st_dev, *owner)


def _followed(before: Profile, found: Profile) -> Profile:
    """Return `before` with the settings of `found` that may change while a session runs.

    A credential that was removed or changed is not injected any more; a new one needs a new session, because the proxy
    reads its secret when the session starts. The file of certificates also stays.
    """
    wanted = [replace(each, ref=_NOWHERE) for each in found.credentials]
    still = tuple(each for each in before.credentials if replace(each, ref=_NOWHERE) in wanted)
    return replace(
        before,
        permissions=found.permissions,
        denied=found.denied,
        secret_names=found.secret_names,
        limits=found.limits,
        unix_sockets=found.unix_sockets,
        personal=tuple(dict.fromkeys((*before.personal, *found.personal))),
        credentials=still,
    )


@dataclass(frozen=True, slots=True)
class _Brought:
    """The restrictions that came with the repository.

    Attributes:
        trusted: True if the user trusts the files of the repository as they are now.
        denied: the commands that they deny.
        secret_names: the names of files that they make secret.
        narrows: True if they contain any setting.
    """

    trusted: bool = False
    denied: tuple[tuple[str, ...], ...] = ()
    secret_names: tuple[str, ...] = ()
    narrows: bool = False

    @classmethod
    def of(cls, settings: Settings | None) -> "_Brought":
        """Return the restrictions of the repository's files in `settings`."""
        layers = [each for each in settings.layers if each.layer.came_along] if settings is not None else []

        def values(*path: str) -> list[Value]:
            return [each.document.values[path] for each in layers if path in each.document.values]

        return cls(
            bool(layers) and all(each.trusted for each in layers),
            tuple(word for value in values("deny", "commands") for word in patterns(value)),
            tuple(name for value in values("secret", "names") for name in texts(value)),
            any(each.document.values for each in layers),
        )

    def joined(self, other: "_Brought") -> "_Brought":
        """Return the restrictions of both."""
        return _Brought(
            other.trusted,
            (*self.denied, *other.denied),
            (*self.secret_names, *other.secret_names),
            self.narrows or other.narrows,
        )

    def kept(self, before: Profile, found: Profile) -> Profile:
        """Return `found` with the restrictions in `before` that are those of the repository."""
        there = {_unplaced(rule) for rule in found.permissions}
        rules = tuple(
            rule
            for rule in before.permissions
            if rule.layer in _BROUGHT and rule.verdict is not Ruling.ALLOW and _unplaced(rule) not in there
        )
        return replace(
            found,
            permissions=(*found.permissions, *rules),
            denied=tuple(dict.fromkeys((*found.denied, *self.denied))),
            secret_names=tuple(dict.fromkeys((*found.secret_names, *self.secret_names))),
            limits=lower(before.limits, found.limits) if self.narrows else found.limits,
            unix_sockets=found.unix_sockets and (before.unix_sockets or not self.narrows),
        )


def _unplaced(rule: PermissionRule) -> PermissionRule:
    """Return `rule` without its line and the trust in its file."""
    return replace(rule, ref=_NOWHERE, layer=Layer.REPOSITORY if rule.layer in _BROUGHT else rule.layer)


def _alike(one: Profile, other: Profile) -> bool:
    """Return True if both profiles decide alike. The lines of rules may differ."""
    return one == other or _content(one) == _content(other)


def _content(profile: Profile) -> Profile:
    rules = tuple(replace(rule, ref=_NOWHERE) for rule in profile.permissions)
    credentials: tuple[Credential, ...] = tuple(replace(each, ref=_NOWHERE) for each in profile.credentials)
    return replace(profile, permissions=rules, credentials=credentials)


def _summary(before: Profile, after: Profile) -> str:
    """Return the notice about a change of the configuration."""
    old, new = (Counter(_content(each).permissions) for each in (before, after))
    parts = []
    for rules, done in ((new - old, "added"), (old - new, "removed")):
        if count := rules.total():
            parts.append(f"{count} rule{'s' * (count != 1)} {done}")
    return f"the configuration changed: {', '.join(parts) or 'other settings'}. It applies from this action on"
