"""`agent audit prune`: remove the oldest records for good."""

import os
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from runner.cli.audit_filters import FILE, log_path
from runner.cli.gate import FLAG, JSON
from runner.problems import Exit, usage
from runner.stderr import say

if TYPE_CHECKING:
    from runner.audit.location import Place

SILENT = timedelta(days=7)  # a session that wrote nothing for as long has ended, whatever became of its program


def prune(
    older_than: Annotated[
        str, typer.Option("--older-than", metavar="TIME", help="What is older: 90d, 2w, or a date (UTC).")
    ],
    yes: Annotated[bool, typer.Option("--yes", metavar=FLAG, help="Without asking.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", metavar=FLAG, help="Only say what would go.")] = False,
    json: JSON = False,
    file: FILE = None,
) -> int:
    """Remove the oldest records for good, and leave a tombstone that stands for them.

    Whole sessions that ended go, from the beginning on; one that did not end, or wrote later, stays, and so does all
    that came after it began. A session without an end counts as ended after a week of silence. The tombstone holds how
    many went, their last hash and Merkle root, who removed them and when, signed where there is a key. The chain still
    verifies; a head or a seal that was noted before cannot be compared any more.

    **Examples**

        agent audit prune --older-than 90d --dry-run
        agent audit prune --older-than 90d --yes
    """
    from runner.audit.log import AuditLog
    from runner.audit.prune import plan
    from runner.audit.prune import prune as pruned
    from runner.audit.signing_key import kept
    from runner.audit.stores.store import AuditError
    from runner.audit.time_input import moment

    clock = datetime.now(UTC)
    before, path = moment(older_than, "--older-than", clock), log_path(file)
    silent = moment((clock - SILENT).isoformat(), "--older-than", clock)
    with AuditLog.open_to_read(path) as log:
        planned = plan(log.store, before, silent)
    told: dict[str, object] = {"records": planned.count, "sessions": planned.sessions, "before": before}
    if planned.count == 0 or dry_run:
        _say(json, told, f"{_what(planned.count, planned.sessions)} would go" if planned.count else "nothing is to go")
        return Exit.DONE
    if not yes and not _agreed(f"remove {_what(planned.count, planned.sessions)} for good?"):
        print("nothing was removed")
        return Exit.FAILED
    size, notice, signs = _size(path), "", kept()
    with AuditLog.open(path) as log:
        told["tombstone"] = pruned(log, planned, lambda: signs)
        try:
            log.store.shrink()
        except AuditError as error:
            notice = f"{error.problem.what}: {error.problem.why}"
    told["signed"] = signs is not None
    told["bytes"] = max(size - _size(path), 0)
    gone = f"{_what(planned.count, planned.sessions)} were removed; record {told['tombstone']} stands for them"
    gone += "" if signs else ", unsigned: there is no key (`agent audit key new` makes one)"
    _say(json, told, gone)
    if notice:
        say(f"notice: {notice}")
    return Exit.DONE


def _size(place: "Place") -> int:
    """Bytes of a file; nobody is asked for those of a database."""
    return place.stat().st_size if isinstance(place, Path) else 0


def _what(count: int, sessions: int) -> str:
    return f"{count:,} record{'s' * (count != 1)} of {sessions:,} session{'s' * (sessions != 1)}"


def _say(json: bool, told: dict[str, object], text: str) -> None:
    if json:
        from json import dumps

        text = dumps(told)
    from runner.text.sanitize import visible

    print(visible(text))


def _agreed(question: str) -> bool:
    if not (sys.stdin.isatty() and os.isatty(2)):
        raise usage("nobody is there to agree", "what is removed is gone for good", "add --yes, or look with --dry-run")
    print(f"{question} [y/N] ", end="", flush=True, file=sys.stderr)
    return sys.stdin.readline().strip().lower() in ("y", "yes")
