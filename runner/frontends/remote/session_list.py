"""The hosted sessions that a token shows, from the files that their processes write."""

import os
from pathlib import Path

from policy.model.frozen import dataclass
from runner.frontends.hosted.address import description
from runner.frontends.remote.shown import shown
from runner.frontends.remote.tokens import Token
from runner.state.session_id import is_session_id

FOLDER = "sessions"  # below the folder of the resident process
_MOST = 64  # sessions that are listed


@dataclass(frozen=True, slots=True)
class ListedSession:
    """One hosted session.

    Attributes:
        id: Its name.
        folder: Its working folder.
        active: The time of its last event, in seconds since 1970.
        facts: What its process says about it, for the page.
    """

    id: str
    folder: str
    active: float
    facts: dict[str, object]


def listed_sessions(folder: Path, token: Token) -> tuple[ListedSession, ...]:
    """Return the sessions in `folder` that the token shows, the one with the latest activity first.

    A file of a session that is about to begin or to end may be incomplete; such a session is left out.
    """
    try:
        names = sorted(os.listdir(folder))
    except FileNotFoundError:
        return ()
    ids = [name.removesuffix(".json") for name in names if name.endswith(".json")]
    found = [each for id in ids if (each := listed_session(folder, id, token)) is not None]
    found.sort(key=lambda each: each.active, reverse=True)
    return tuple(found[:_MOST])


def listed_session(folder: Path, id: str, token: Token) -> ListedSession | None:
    """Return the session with that name if its process runs and the token shows it, or None.

    THREAT T283: for a token with a folder, sessions elsewhere do not exist.
    """
    if not is_session_id(id):
        return None
    found = description(folder, id)
    if found is None or not token.shows(os.path.realpath(found.folder)) or not _runs(found.pid):
        return None
    fields = {name: value for name, value in found.as_json().items() if name != "pid"}
    described = shown(fields)
    assert isinstance(described, dict)
    return ListedSession(id, found.folder, found.active, described)


def _runs(pid: int) -> bool:
    """Return True if the process of a session has not ended. A killed one leaves its description behind."""
    try:
        os.kill(pid, 0)
    except OSError:
        return False
    return True
