"""Where the log is: in a file of this user, or in the database that `audit.url` names."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from runner.state.paths import state_dir

if TYPE_CHECKING:
    from runner.config import Settings

Place = Path | str  # a file, or the URL of a database

FILE = "audit.db"


def is_url(text: str) -> bool:
    return "://" in text


def of(settings: "Settings", environ: Mapping[str, str]) -> Place:
    """Where a session with these settings is recorded. Raises PlaceError."""
    url = settings.values.get(("audit", "url"))  # without the table of keys, which most starts need not load
    return str(url) if url else state_dir(environ) / FILE


def is_there(place: Place) -> bool:
    """Whether there is anything to read; a database says so itself."""
    return not isinstance(place, Path) or place.exists()


def own(environ: Mapping[str, str]) -> Place:
    """Where this user's sessions are recorded: for commands that only read. Raises ConfigError, PlaceError."""
    from runner.config import load

    return of(load(Path.cwd(), environ, unattended=True), environ)
