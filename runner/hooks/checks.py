"""The rows of `agent doctor` about hooks: how often each ran, and which never did."""

import os
from collections.abc import Mapping

from runner.audit.log import AuditLog, log_exists, log_place
from runner.config import Settings
from runner.doctor.report import CheckResult, CheckState
from runner.hooks.configured import hooks_here
from runner.hooks.listing import event_words, hook_counts
from runner.text.phrases import many
from runner.text.sanitize import visible


def hook_checks(settings: Settings, environ: Mapping[str, str]) -> tuple[CheckResult, ...]:
    """Return one row for each hook of the current folder. Raise AuditError, StateError or PlaceError."""
    found = hooks_here(os.path.realpath(os.curdir), settings, environ)
    if not found.any:
        return ()
    place = log_place(settings, environ)
    log = AuditLog.open_to_read(place) if log_exists(place) else None
    try:
        counts = hook_counts(log)
    finally:
        if log is not None:
            log.close()
    rows: list[CheckResult] = []
    for hook in found.hooks:
        key = hook.event, hook.place
        ran, failed = counts.runs[key], counts.failures[key]
        said = visible(f"{event_words(hook)}, {hook.place}", lines=False)
        try_it = f"`agent hooks test {hook.event}` runs it once"
        if not ran:
            rows.append(CheckResult("hook", CheckState.ABSENT, f"{said}: never ran", try_it))
        elif failed == ran:
            rows.append(CheckResult("hook", CheckState.WEAK, f"{said}: failed each of {many(ran, 'time')}", try_it))
        else:
            more = f", failed {many(failed, 'time')}" if failed else ""
            rows.append(CheckResult("hook", CheckState.OK, f"{said}: ran {many(ran, 'time')}{more}"))
    rows += [
        CheckResult("hook", CheckState.WEAK, visible(str(each), lines=False), "correct it") for each in found.faults
    ]
    return tuple(rows)
