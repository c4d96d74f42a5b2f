"""Location of the audit log: a file of this user, or the database that `audit.url` names. Opens the log there."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from runner.state.paths import state_dir

if TYPE_CHECKING:
    from runner.audit.log import AuditLog
    from runner.audit.signing import Signer
    from runner.config import Settings


Place = Path | str  # a file, or the URL of a database

FILE = "audit.db"


def is_url(text: str) -> bool:
    return "://" in text


def of(settings: "Settings", environ: Mapping[str, str]) -> Place:
    """Return the location of the log for a session with these settings. Raises PlaceError."""
    url = settings.values.get(("audit", "url"))  # without the table of keys, which most starts need not load
    return str(url) if url else state_dir(environ) / FILE


def is_there(place: Place) -> bool:
    """Return True if there may be something to read. A database itself reports that it is empty."""
    return not isinstance(place, Path) or place.exists()


def own(environ: Mapping[str, str]) -> Place:
    """Return the location of this user's log, for commands that only read. Raises ConfigError and PlaceError."""
    from runner.config import load

    return of(load(Path.cwd(), environ, unattended=True), environ)


def open_log(
    settings: "Settings", environ: Mapping[str, str], *, redact: Callable[[str], str] | None = None
) -> "AuditLog":
    """Open the log of these settings for appending, with redaction and, if `audit.sign` is set, with signatures.

    `redact` replaces the default redaction: the session of a model knows more secrets. Raises AuditError or PlaceError;
    then no action may run.
    """
    from runner.audit.log import AuditLog
    from runner.secrets.redactor import Redactor

    signer: Callable[[], Signer] | None = None
    if settings.values.get(("audit", "sign")) is True:
        from runner.audit.signing import required_signer  # most logs are not signed

        signer = required_signer

    # The command line may contain a key, for example one that the caller's shell put in the place of a variable.
    redact = redact or Redactor(live=True, shapes=True).text
    return AuditLog.open(of(settings, environ), redact=redact, signer=signer)
