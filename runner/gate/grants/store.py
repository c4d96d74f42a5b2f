"""Store of grants: those of this session in memory, the others in one file outside every sandbox."""

import os
import secrets
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from policy.grants.grant import EVERYWHERE, Grant, GrantHolder, GrantScope, GrantSubject
from policy.model.frozen import dataclass
from policy.model.tier import Ruling
from runner.gate.grants.codec import from_json, to_json
from runner.state.json_file import Held, StateError, StateFile
from runner.state.paths import login_name

NAME = "grants.json"
USUAL_LIFE = 30 * 86_400.0  # seconds that an approval of scope project or user holds, if the user named no duration
_VERSION = 1
_Grants = tuple[Grant, ...]
_Result = TypeVar("_Result")


@dataclass(frozen=True, slots=True)
class RememberedAnswer:
    """Answer to remember.

    Attributes:
        whats: subjects of the answer
        span: scope of the grant
        life: validity in seconds; None for the default
        uses: number of uses; None for no limit
        reason: reason that the person gave
    """

    whats: tuple[GrantSubject, ...]
    ruling: Ruling
    span: GrantScope
    life: float | None = None
    uses: int | None = None
    reason: str = ""

    @property
    def of_session(self) -> bool:
        """Return True if the answer ends with the session."""
        return self.span in (GrantScope.SESSION, GrantScope.AGENTS)


def grant_file(folder: Path) -> StateFile[_Grants]:
    """Return the file with the list of grants in the state folder."""
    return StateFile(folder / NAME, "the list of grants", _VERSION, tuple, _parse, _dump)


class GrantStore:
    """Grants that `key` may use. `folder` is our state folder; None keeps everything in memory.

    `tell` receives each notice for the user once. `journal` receives every change of a grant of scope session, as the
    new grant. `redact` removes secrets from a text. Only `keep` and `revoke` raise: an unreadable file grants nothing.
    """

    def __init__(
        self,
        folder: Path | None,
        key: GrantHolder,
        tell: Callable[[str], None],
        *,
        journal: Callable[[Grant], None] = lambda grant: None,
        redact: Callable[[str], str] = lambda text: text,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.key = key
        self.redact = redact
        self._file = grant_file(folder) if folder is not None else None
        self._tell = tell
        self._told: set[str] = set()
        self._journal = journal
        self._clock = clock
        self._latest = 0.0
        self._session: dict[str, Grant] = {}

    def of_agent(self, key: GrantHolder) -> "GrantStore":
        """Return a store for another agent of the same session, which shares all grants and holds those of `key`."""
        other = GrantStore(None, key, self._tell, journal=self._journal, redact=self.redact, clock=self._clock)
        other._file, other._session, other._told = self._file, self._session, self._told
        return other

    def live(self) -> _Grants:
        """Return the grants that `key` may use now. An unchanged file costs one stat call."""
        now = self._now()
        stored = self._stored()
        if self._file is not None and any(grant.ended(now) and not grant.over for grant in stored):
            try:  # so that they stay expired if the clock is set back
                self._change(self._file, lambda stored: (_over(stored, now), None))
            except StateError as error:
                self._say(f"{error.problem.what}: {error.problem.why}")
        known = (*self._session.values(), *stored)
        valid = [grant for grant in known if self.key.holds(grant) and not grant.ended(now)]
        early = [grant for grant in valid if grant.early(self._clock())]
        for grant in early:
            self._say(
                f"grant {grant.id} has a creation time in the future: the clock was set back; "
                "it allows nothing until that time"
            )
        # A refusal also applies before its creation time.
        return tuple(grant for grant in valid if grant not in early or grant.ruling is Ruling.DENY)

    def spend(self, grants: Sequence[Grant]) -> bool:
        """Consume one use of each grant before the action runs. Return False, and consume none, if one is not valid any
        more.

        INVARIANT: two processes cannot consume the same use, since it is consumed under the lock of the file.
        """
        counted = {grant.id for grant in grants if grant.uses is not None}
        stored_ids = {grant.id for grant in grants if not grant.of_session}
        live = {grant.id for grant in self.live()}
        if not live >= {grant.id for grant in grants}:
            return False
        if counted & stored_ids and self._file is not None:
            now = self._now()

            def take(stored: _Grants) -> tuple[_Grants, bool]:
                there = {grant.id for grant in stored if not grant.ended(now)}
                return (_less(stored, counted), True) if there >= stored_ids else (stored, False)

            try:
                if not self._change(self._file, take):
                    return False
            except StateError as error:
                self._say(str(error.problem))
                return False
        for grant in _less(tuple(self._session.values()), counted):
            if grant != self._session[grant.id]:
                self._session[grant.id] = grant
                self._journal(grant)
        return True

    def keep(self, wanted: RememberedAnswer, script: str) -> _Grants:
        """Remember an answer to the action `script`. Raises StateError when it cannot be written; then the answer
        applies once.

        No error is raised for scope session, which needs no file.
        """
        now = self._clock()
        life = wanted.life
        if life is None and wanted.ruling is Ruling.ALLOW and not wanted.of_session:
            life = USUAL_LIFE
        made = tuple(
            Grant(
                id=f"g{secrets.token_hex(4)}",
                what=what,
                ruling=wanted.ruling,
                span=wanted.span,
                workspace=EVERYWHERE if wanted.span is GrantScope.USER else self.key.workspace,
                agent=self.key.agent,
                session=self.key.session if wanted.of_session else "",
                created=now,
                expires=None if life is None else now + life,
                uses=wanted.uses,
                who=login_name(f"uid {os.geteuid()}"),
                reason=self.redact(wanted.reason),
                script=self.redact(script)[:1000],
            )
            for what in wanted.whats
        )
        if wanted.of_session or self._file is None:
            for grant in made:
                self._session[grant.id] = grant
                self._journal(grant)
            return made
        self._change(self._file, lambda stored: ((*_over(stored, now), *made), None))
        return made

    def revoke(self, name: str) -> Grant | None:
        """Revoke the grant `name` of this session or of the file; None if there is none. Raises StateError."""
        grant = self._session.pop(name, None)
        if grant is not None:
            self._journal(replace(grant, over=True))
            return grant

        def without(stored: _Grants) -> tuple[_Grants, Grant | None]:
            revoked = next((each for each in stored if each.id == name), None)
            return tuple(each for each in stored if each.id != name) if revoked else stored, revoked

        return self._change(self._file, without) if self._file is not None else None

    def restore(self, entries: Iterable[object], *, fork: bool = False) -> _Grants:
        """Restore the grants of a continued session from `to_json` objects in the order of its journal.

        The last object with a name counts. Return the valid grants; an object that is not a grant is ignored, with a
        notice. With `fork`, approvals are dropped, and refusals are written to the new journal.
        """
        for entry in entries:
            try:
                grant = from_json(entry)
            except ValueError as error:
                self._say(f"a grant of this session cannot be read: {error}; the grant is ignored")
                continue
            if grant.of_session and grant.workspace == self.key.workspace:
                self._session[grant.id] = replace(grant, session=self.key.session)
        now = self._now()
        self._session = {
            name: grant
            for name, grant in self._session.items()
            if not grant.ended(now) and not (fork and grant.ruling is Ruling.ALLOW)
        }
        if fork:
            for grant in self._session.values():
                self._journal(grant)
        return tuple(self._session.values())

    def holds_secret(self, what: GrantSubject) -> bool:
        """Return True if the subject contains a live secret, so that it must not be stored."""
        given = (text for pair in (*what.arguments, *what.values, *what.below) for text in pair)
        texts = (*what.shape.words, *what.read, *what.write, *what.host, *given)
        return any(self.redact(text) != text for text in (*texts, " ".join(what.shape.words)))

    def _now(self) -> float:
        """Return the current time, or the latest time seen: expired grants stay expired when the clock is set back."""
        self._latest = max(self._latest, self._clock())
        return self._latest

    def _stored(self) -> _Grants:
        if self._file is None:
            return ()
        try:
            held: Held[_Grants] = self._file.read()
        except StateError as error:
            self._say(f"{error.problem.what}: {error.problem.why}; it grants nothing")
            return ()
        self._say(*held.notices)
        return held.value

    def _change(self, file: StateFile[_Grants], change: Callable[[_Grants], tuple[_Grants, _Result]]) -> _Result:
        """Change the file under its lock. Raises StateError."""
        result, notices = file.change(change)
        self._say(*notices)
        return result

    def _say(self, *texts: str) -> None:
        for text in texts:
            if text not in self._told:
                self._told.add(text)
                self._tell(text)


def pruned(stored: _Grants, now: float, *, gone: Callable[[str], bool]) -> tuple[_Grants, _Grants]:
    """Return `stored` without the grants that are over or whose workspace is missing according to `gone`, and the
    dropped grants.
    """
    dropped = tuple(grant for grant in stored if grant.ended(now) or (grant.workspace and gone(grant.workspace)))
    return (tuple(grant for grant in stored if grant not in dropped) if dropped else stored), dropped


def _less(grants: _Grants, names: set[str]) -> _Grants:
    return tuple(
        replace(grant, uses=grant.uses - 1, over=grant.over or grant.uses <= 1)
        if grant.id in names and grant.uses is not None
        else grant
        for grant in grants
    )


def _over(grants: _Grants, now: float) -> _Grants:
    if not any(grant.ended(now) and not grant.over for grant in grants):
        return grants
    return tuple(replace(grant, over=True) if grant.ended(now) else grant for grant in grants)


def _parse(body: dict[str, object], version: int) -> _Grants:
    listed = body.pop("grants", None)
    if body or not isinstance(listed, list):
        raise ValueError("it is not a list of grants")
    grants = tuple(map(from_json, listed))
    if len({grant.id for grant in grants}) != len(grants):
        raise ValueError("two grants have the same id")
    if any(grant.of_session for grant in grants):
        raise ValueError("it contains a grant of scope session, which belongs in the journal of that session")
    return grants


def _dump(grants: _Grants) -> dict[str, object]:
    return {"grants": [to_json(grant) for grant in grants]}
