"""`agent audit seal`: what has to be kept elsewhere to prove later what the log was."""

from pathlib import Path
from typing import Annotated

import typer

from runner.cli.audit_filters import FILE, log_path
from runner.problems import Exit


def seal(
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="Write it there instead of to standard output.")
    ] = None,
    file: FILE = None,
) -> int:
    """Write a seal of the log as it is now: its name, count, head and Merkle root, checkpoints and versions, as JSON.

    Keep it where the writer of the log cannot reach (an artifact of the CI job, another machine): `verify --seal` then
    proves that the log still begins with the same records. It is signed where `agent audit key new` left a key.

    **Examples**

        agent audit seal --out audit.seal
        agent audit verify --seal audit.seal
        agent audit verify --seal audit.seal --public-key KEY --file audit.db
    """
    from json import dumps

    from runner.audit.export.out import write
    from runner.audit.log import AuditLog
    from runner.audit.seal import sealed
    from runner.audit.signing_key import kept

    with AuditLog.open_to_read(log_path(file)) as log:
        text = dumps(sealed(log.store, kept), indent=1)
    write([text], out)
    return Exit.DONE
