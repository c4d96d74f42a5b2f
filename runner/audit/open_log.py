"""The log, opened where the settings say: redacting and signing."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from runner.audit import location
from runner.audit.log import AuditLog
from runner.audit.signing_key import signing
from runner.secrets.redactor import Redactor

if TYPE_CHECKING:
    from runner.config import Settings


def open_log(
    settings: "Settings", environ: Mapping[str, str], *, redact: Callable[[str], str] | None = None
) -> AuditLog:
    """For appending. `redact`: of a session of a model, which knows more secrets. Raises AuditError or PlaceError; then
    nothing may be done."""
    # What was typed may hold a key, such as one that our caller's shell put in the place of a variable.
    redact = redact or Redactor(live=True, shapes=True).text
    return AuditLog.open(location.of(settings, environ), redact=redact, signer=signing(settings))
