"""`agent audit verify`, `key`, `seal`, `prune` and `merge`: commands about the integrity and the extent of the log."""

import os
import re
import sys
from contextlib import ExitStack
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from policy.model.verdict import Problem
from runner.audit.chain import AuditError
from runner.audit.log import AuditLog
from runner.cli.audit_filters import FILE
from runner.cli.audit_query import log_path, moment
from runner.cli.gate import JSON, argument, state_alone, switch, valued
from runner.problems import Exit, Stopped, usage
from runner.stderr import say_notice
from runner.text.json_line import json_line
from runner.text.phrases import many, os_reason
from runner.text.sanitize import visible

if TYPE_CHECKING:
    from runner.audit.log import Place
    from runner.audit.verify import Chain, ExpectedRecord


def verify(
    expect: Annotated[
        str | None, valued("--expect", "COUNT:HASH", "A head that was printed earlier and must still be in the log.")
    ] = None,
    seal: Annotated[Path | None, valued("--seal", "FILE", "A seal file of `agent audit seal` that must match.")] = None,
    public_key: Annotated[
        list[str] | None, valued("--public-key", "KEY", "The public key of the signer (see `agent audit key show`).")
    ] = None,
    json: JSON = False,
    file: FILE = None,
) -> int:
    """Verify the hash chain of the log and its checkpoints. Exit 1 and name the first record that is not intact.

    Prints the head of the log. With a head or a seal of an earlier time (--expect, --seal), the command also finds
    records that were removed or rewritten since then. Store heads and seals where a writer of the log cannot change
    them, for example in the log of the CI job.

    **Examples**

        agent audit verify
        agent audit verify --expect 12:56a0164898f859af...
        agent audit verify --seal audit.seal --json --file audit.db
        agent audit verify --public-key "$(cat the-key)"
    """
    from runner.audit.verify import Expected, ExpectedRecord, VerifiedLog
    from runner.audit.verify import verify as verified

    if expect is not None and not re.fullmatch("[0-9]{1,18}:[0-9a-f]{64}", expect):
        fix = "copy a head that `agent audit verify` printed"
        raise usage(f"`{expect}` is not the head of a log", "a head is COUNT:HASH", fix)
    keys = tuple(key.strip().lower() for key in public_key or ())
    for key in keys:
        if not re.fullmatch("[0-9a-f]{64}", key):
            why = "a key is 64 hexadecimal digits"
            raise usage(f"`{key}` is not a public key", why, "copy the output of `agent audit key show`")
    noted = [ExpectedRecord.head(expect)] if expect else []
    noted += [_read_seal(seal, keys)] if seal is not None else []
    path = log_path(file)
    with AuditLog.open_to_read(path, any_schema=True) as log:
        wanted = Expected(tuple(noted), keys, vouched=seal is not None)
        result = verified(log.store, wanted, progress if sys.stderr.isatty() else None)
        cautions = log.store.cautions()
    for caution in cautions:
        print(f"note: {caution}, enough to stop the log for all users (docs/guide/audit.md, rights)", file=sys.stderr)
    if isinstance(result, VerifiedLog):
        chains = result.chains
        if json:
            rows = [{**asdict(chain), "head": chain.head} for chain in chains]
            hash = result.head.partition(":")[2]
            print(json_line({"sealed": True, "count": result.count, "hash": hash, "chains": rows}))
            return Exit.DONE
        print(f"all {result.count} records are intact")
        for chain in chains:
            _print_chain(chain, named=len(chains) > 1)
        if not chains:
            print(f"head {result.head}")
        if seal is not None:
            print(f"the seal matches the first {noted[-1].number} records")
        return Exit.DONE
    if json:
        print(json_line({"sealed": False, **asdict(result)}))
        return Exit.FAILED
    what = f"the audit log is not intact{f' from record {result.id} on' if result.id else ''}"
    elsewhere = "by moving it away" if isinstance(path, Path) else "in another database or schema"
    fix = f"keep `{path}` as evidence, and start a new log {elsewhere}"
    raise Stopped(Problem(what, result.why, fix), Exit.FAILED)


def _read_seal(seal: Path, keys: tuple[str, ...]) -> "ExpectedRecord":
    from runner.audit.seal import MOST, read_seal

    try:
        with seal.open("rb") as file:
            text = file.read(MOST)
    except OSError as error:
        why = os_reason(error)
        raise usage(f"the seal `{seal}` cannot be read", why, "give the file of `agent audit seal --out`") from None
    return read_seal(text, keys)


def _print_chain(chain: "Chain", *, named: bool) -> None:
    if named:
        print(visible(f"log {chain.log}: {chain.count} records", lines=False))
    if chain.pruned:
        print(f"the first {chain.pruned} records were removed by `agent audit prune` (see the tombstone)")
    if chain.checkpoints:
        signed = f", signed up to record {chain.signed}" if chain.signed else ", none is signed"
        print(f"{many(chain.checkpoints, 'checkpoint')}{signed}")
    for key in chain.keys:
        print(visible(f"key {key}", lines=False))
    print(f"head {chain.head}")


def progress(done: int, total: int) -> None:
    """Show progress in records on a terminal. The line is erased when `done` reaches `total`."""
    text = f"verifying {done:,} of {total:,}" if done < total else ""
    sys.stderr.write(f"\r\x1b[K{text}")
    sys.stderr.flush()


HELP = """Make or show the key that signs the checkpoints of the log: an Ed25519 key, stored only in the OS keyring.

Checkpoints are signed only if your configuration has `sign = true` under `[audit]`.

**Examples**

    agent audit key new
    agent audit key show
"""
key_app = typer.Typer(help=HELP, invoke_without_command=True, rich_markup_mode="markdown")


@key_app.command("new")
def new(
    replace: Annotated[bool, switch("--replace", help="Replace the existing key. Its signatures stay valid.")] = False,
) -> int:
    """Make an Ed25519 key, keep it in the OS keyring, and print its public half.

    The key signs the checkpoints of the log if your configuration has `sign = true` under `[audit]`. Store the public
    half where a writer of the log cannot change it, and give it to `agent audit verify --public-key`.

    **Examples**

        agent audit key new
        agent audit key new --replace
    """
    from runner.audit.signing import new_signer, stored_signer
    from runner.secrets.keyring_store import KeyringFailed

    try:
        before = None if replace else stored_signer()
    except AuditError as error:
        raise Stopped(error.problem, Exit.FAILED) from None
    if before is not None:
        why = f"the public half of the existing key is {before.public}"
        raise usage("there is a key already", why, "add --replace to make a new key")
    try:
        print(new_signer().public)
    except KeyringFailed as error:
        fix = error.fix or "in CI, store the output of `agent audit seal` beside the log instead"
        raise Stopped(Problem("the key cannot be stored", f"the keyring: {error.why}", fix), Exit.FAILED) from None
    return Exit.DONE


@key_app.command("show")
def show(json: JSON = False) -> int:
    """Print the public half of the key, for `agent audit verify --public-key`.

    The private half is read from the keyring only to sign. Exit 1 if there is no key.

    **Examples**

        agent audit key show
        agent audit verify --public-key "$(agent audit key show)"
    """
    from runner.audit.signing import required_signer

    public = required_signer().public
    print(json_line({"key": public, "algorithm": "Ed25519"}) if json else public)
    return Exit.DONE


state_alone(key_app, "audit key", lambda json: show(json=json))


def seal(
    out: Annotated[Path | None, valued("--out", "FILE", "Write to this file (default: standard output).")] = None,
    file: FILE = None,
) -> int:
    """Write a seal of the log, as JSON: its name, count of records, head, Merkle root, checkpoints and versions.

    Store the seal where a writer of the log cannot change it (an artifact of the CI job, another machine). With it,
    `agent audit verify --seal` proves later that the log still begins with the same records. The seal is signed if
    there is a key of `agent audit key new`.

    **Examples**

        agent audit seal --out audit.seal
        agent audit verify --seal audit.seal
        agent audit verify --seal audit.seal --public-key KEY --file audit.db
    """
    from runner.audit.export.out import write
    from runner.audit.seal import create_seal
    from runner.audit.signing import stored_signer

    with AuditLog.open_to_read(log_path(file)) as log:
        text = json_line(create_seal(log.store, stored_signer))
    write([text], out)
    return Exit.DONE


SILENT = timedelta(days=7)  # a session without a record for this time counts as ended


def prune(
    older_than: Annotated[str, valued("--older-than", "TIME", "Remove older records: 90d, 2w, or a date (UTC).")],
    yes: Annotated[bool, switch("--yes", help="Remove without a question.")] = False,
    dry_run: Annotated[bool, switch("--dry-run", help="Only print how many records would be removed.")] = False,
    json: JSON = False,
    file: FILE = None,
) -> int:
    """Remove the oldest records permanently, and add a tombstone: a record about the removed ones.

    Only whole sessions that have ended are removed, oldest first. If a session still runs or has newer records, it is
    kept with all records after its start. A session without a recorded end counts as ended after a week without
    records. The tombstone contains the number, last hash and Merkle root of the removed records, the user and the
    time, and is signed if there is a key. `agent audit verify` still works, but heads and seals of removed records
    cannot be checked any more.

    **Examples**

        agent audit prune --older-than 90d --dry-run
        agent audit prune --older-than 90d --yes
    """
    from runner.audit.prune import plan
    from runner.audit.prune import prune as pruned
    from runner.audit.signing import stored_signer

    clock = datetime.now(UTC)
    before, path = moment(older_than, "--older-than", clock), log_path(file)
    silent = moment((clock - SILENT).isoformat(), "--older-than", clock)
    with AuditLog.open_to_read(path) as log:
        planned = plan(log.store, before, silent)
    report: dict[str, object] = {"records": planned.count, "sessions": planned.sessions, "before": before}
    count, sessions = planned.count, planned.sessions
    extent = f"{count:,} record{'s' * (count != 1)} of {sessions:,} session{'s' * (sessions != 1)}"
    if count == 0 or dry_run:
        text = f"{extent} would be removed" if count else "there is nothing to remove"
        print(json_line(report) if json else text)
        return Exit.DONE
    if not yes and not _confirm(f"remove {extent} permanently?"):
        print("nothing was removed")
        return Exit.FAILED
    size, notice, signs = _size(path), "", stored_signer()
    with AuditLog.open(path) as log:
        report["tombstone"] = pruned(log, planned, lambda: signs)
        try:
            log.store.shrink()
        except AuditError as error:
            notice = f"{error.problem.what}: {error.problem.why}"
    report["signed"] = signs is not None
    report["bytes"] = max(size - _size(path), 0)
    text = f"{extent} were removed; their tombstone is record {report['tombstone']}"
    text += "" if signs else ", not signed because there is no key (`agent audit key new` makes one)"
    print(json_line(report) if json else text)
    if notice:
        say_notice(notice)
    return Exit.DONE


def _size(place: "Place") -> int:
    """Return the size of a file in bytes. The size of a database is not requested."""
    return place.stat().st_size if isinstance(place, Path) else 0


def _confirm(question: str) -> bool:
    if not (sys.stdin.isatty() and os.isatty(2)):
        why = "removed records cannot be restored"
        raise usage("no user can confirm the removal", why, "add --yes, or --dry-run to remove nothing")
    print(f"{question} [y/N] ", end="", flush=True, file=sys.stderr)
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def merge(
    logs: Annotated[list[str], argument("LOG", "The logs to merge: files, or URLs of databases.")],
    into: Annotated[Path, valued("--into", "FILE", "The new file with all records.")],
    json: JSON = False,
) -> int:
    """Merge several logs into one new file, to list, count and verify them together.

    Each log keeps its own hash chain, and `agent audit verify` checks all of them. Records are ordered by time and get
    new numbers. Of two copies of one log, the longer one is used; copies with different records at the same place are
    refused. No records can be added to the new file, but the file can be merged again.

    **Examples**

        agent audit merge a.db b.db --into all.db
        agent audit list --denied --file all.db
        agent audit verify --file all.db
    """

    from runner.audit.merge import merge as merged

    with ExitStack() as stack:
        opened = [stack.enter_context(AuditLog.open_to_read(log_path(each))) for each in logs]
        done = merged([log.store for log in opened], into, progress if sys.stderr.isatty() else None)
    if json:
        chains = [
            {"log": head.log, "count": head.number, "hash": head.hash, "from": name} for head, name in done.chains
        ]
        print(json_line({"into": str(into), "chains": chains, "left_out": list(done.left_out)}))
        return Exit.DONE
    lines = [f"left out: {text}" for text in done.left_out]
    lines += [f"log {head.log}: {head.number:,} records, from {name}" for head, name in done.chains]
    for line in (*lines, f"{many(len(done.chains), 'log')} in {into}"):
        print(visible(line, lines=False))
    return Exit.DONE
