"""`agent audit verify`, `key`, `seal`, `prune` and `merge`: commands about the integrity and the extent of the log."""

import os
import re
import sys
from contextlib import ExitStack
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from json import dumps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from policy.model.verdict import Problem
from runner.audit.chain import AuditError
from runner.audit.log import AuditLog
from runner.cli.audit_filters import FILE, log_path, moment
from runner.cli.gate import JSON, argument, switch, valued
from runner.problems import Exit, Stopped, usage
from runner.stderr import say
from runner.text.phrases import many
from runner.text.sanitize import visible

if TYPE_CHECKING:
    from runner.audit.log import Place
    from runner.audit.verify import Chain, ExpectedRecord


def verify(
    expect: Annotated[
        str | None, valued("--expect", "COUNT:HASH", "A head printed earlier, which must still be part of the log.")
    ] = None,
    seal: Annotated[Path | None, valued("--seal", "FILE", "What `agent audit seal` wrote: it must still hold.")] = None,
    public_key: Annotated[
        list[str] | None, valued("--public-key", "KEY", "Who must have signed, as `agent audit key show` prints it.")
    ] = None,
    json: JSON = False,
    file: FILE = None,
) -> int:
    """Recompute the hash chain and its checkpoints; exit 1 and name the first record that does not hold.

    The head that it prints proves later, with --expect, that nothing up to there was cut off or written anew, and so
    does a seal. Keep them where the writer of the log cannot reach: in the CI log, for example.

    **Examples**

        agent audit verify
        agent audit verify --expect 12:56a0164898f859af...
        agent audit verify --seal audit.seal --json --file audit.db
        agent audit verify --public-key "$(cat the-key)"
    """
    from runner.audit.verify import Expected, ExpectedRecord, VerifiedLog
    from runner.audit.verify import verify as verified

    if expect is not None and not re.fullmatch("[0-9]{1,18}:[0-9a-f]{64}", expect):
        fix = "copy one that `agent audit verify` printed"
        raise usage(f"`{expect}` is no head of a log", "a head is COUNT:HASH", fix)
    keys = tuple(key.strip().lower() for key in public_key or ())
    for key in keys:
        if not re.fullmatch("[0-9a-f]{64}", key):
            why = "a key is 64 hexadecimal digits"
            raise usage(f"`{key}` is no public key", why, "copy what `agent audit key show` printed")
    noted = [ExpectedRecord.head(expect)] if expect else []
    noted += [_read_seal(seal, keys)] if seal is not None else []
    path = log_path(file)
    with AuditLog.open_to_read(path, any_schema=True) as log:
        wanted = Expected(tuple(noted), keys, vouched=seal is not None)
        result = verified(log.store, wanted, progress if sys.stderr.isatty() else None)
        cautions = log.store.cautions()
    for caution in cautions:
        print(f"note: {caution}: it could end the record of all (docs/guide/audit.md, rights)", file=sys.stderr)
    if isinstance(result, VerifiedLog):
        chains = result.chains
        if json:
            rows = [{**asdict(chain), "head": chain.head} for chain in chains]
            hash = result.head.partition(":")[2]
            print(dumps({"sealed": True, "count": result.count, "hash": hash, "chains": rows}))
            return Exit.DONE
        print(f"all {result.count} records hold")
        for chain in chains:
            _print_chain(chain, named=len(chains) > 1)
        if not chains:
            print(f"head {result.head}")
        if seal is not None:
            print(f"the seal holds: it is of the first {noted[-1].number} records")
        return Exit.DONE
    if json:
        print(dumps({"sealed": False, **asdict(result)}))
        return Exit.FAILED
    what = f"the audit log does not hold{f' from record {result.id} on' if result.id else ''}"
    elsewhere = "by moving it away" if isinstance(path, Path) else "in another database or schema"
    fix = f"keep `{path}` as evidence, and start a new log {elsewhere}"
    raise Stopped(Problem(what, result.why, fix), Exit.FAILED)


def _read_seal(seal: Path, keys: tuple[str, ...]) -> "ExpectedRecord":
    from runner.audit.seal import MOST, read_seal

    try:
        with seal.open("rb") as file:
            text = file.read(MOST)
    except OSError as error:
        why = str(error.strerror).lower()
        raise usage(f"the seal `{seal}` cannot be read", why, "name what `agent audit seal --out` wrote") from None
    return read_seal(text, keys)


def _print_chain(chain: "Chain", *, named: bool) -> None:
    if named:
        print(visible(f"log {chain.log}: {chain.count} records", lines=False))
    if chain.pruned:
        print(f"the first {chain.pruned} were pruned; a tombstone stands for them")
    if chain.checkpoints:
        signed = f", signed up to record {chain.signed}" if chain.signed else ", none of them signed"
        print(f"{many(chain.checkpoints, 'checkpoint')}{signed}")
    for key in chain.keys:
        print(visible(f"key {key}", lines=False))
    print(f"head {chain.head}")


def progress(done: int, total: int) -> None:
    """Show progress in records on a terminal. The line is erased when `done` reaches `total`."""
    text = f"verifying {done:,} of {total:,}" if done < total else ""
    sys.stderr.write(f"\r\x1b[K{text}")
    sys.stderr.flush()


HELP = """The key that signs the checkpoints of the log: an Ed25519 key in the OS keyring, and nowhere else.

Nothing is signed before `sign = true` stands under `[audit]` in your own settings.

**Examples**

    agent audit key new
    agent audit key show
"""
key_app = typer.Typer(help=HELP, no_args_is_help=True, rich_markup_mode="markdown")


@key_app.command("new")
def new(
    replace: Annotated[
        bool, switch("--replace", help="Also when there is a key: what it signed stays signed.")
    ] = False,
) -> int:
    """Make an Ed25519 key, keep it in the OS keyring, and print its public half.

    It signs the checkpoints of the log once `sign = true` stands under `[audit]` in your own settings. Keep the public
    half where the writer of the log cannot reach: `agent audit verify --public-key` wants it.

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
        why = f"its public half is {before.public}"
        raise usage("there is a key already", why, "add --replace to sign with another one from now on")
    try:
        print(new_signer().public)
    except KeyringFailed as error:
        fix = error.fix or "in CI, keep what `agent audit seal` prints beside the log instead"
        raise Stopped(Problem("the key cannot be stored", f"the keyring: {error.why}", fix), Exit.FAILED) from None
    return Exit.DONE


@key_app.command("show")
def show(json: JSON = False) -> int:
    """Print the public half of the key, as `agent audit verify --public-key` wants it.

    The other half never leaves the keyring but to sign. Exit 1 when there is none.

    **Examples**

        agent audit key show
        agent audit verify --public-key "$(agent audit key show)"
    """
    from runner.audit.signing import required_signer

    public = required_signer().public
    print(dumps({"key": public, "algorithm": "Ed25519"}) if json else public)
    return Exit.DONE


def seal(
    out: Annotated[Path | None, valued("--out", "FILE", "Write it there instead of to standard output.")] = None,
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
    from runner.audit.export.out import write
    from runner.audit.seal import create_seal
    from runner.audit.signing import stored_signer

    with AuditLog.open_to_read(log_path(file)) as log:
        text = dumps(create_seal(log.store, stored_signer), indent=1)
    write([text], out)
    return Exit.DONE


SILENT = timedelta(days=7)  # a session without a record for this time counts as ended


def prune(
    older_than: Annotated[str, valued("--older-than", "TIME", "What is older: 90d, 2w, or a date (UTC).")],
    yes: Annotated[bool, switch("--yes", help="Without asking.")] = False,
    dry_run: Annotated[bool, switch("--dry-run", help="Only say what would go.")] = False,
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
        text = f"{extent} would go" if count else "nothing is to go"
        print(dumps(report) if json else text)
        return Exit.DONE
    if not yes and not _confirm(f"remove {extent} for good?"):
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
    text = f"{extent} were removed; record {report['tombstone']} stands for them"
    text += "" if signs else ", unsigned: there is no key (`agent audit key new` makes one)"
    print(dumps(report) if json else text)
    if notice:
        say(f"notice: {notice}")
    return Exit.DONE


def _size(place: "Place") -> int:
    """Return the size of a file in bytes. The size of a database is not requested."""
    return place.stat().st_size if isinstance(place, Path) else 0


def _confirm(question: str) -> bool:
    if not (sys.stdin.isatty() and os.isatty(2)):
        why = "what is removed is gone for good"
        raise usage("there is no user to agree", why, "add --yes, or look with --dry-run")
    print(f"{question} [y/N] ", end="", flush=True, file=sys.stderr)
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def merge(
    logs: Annotated[list[str], argument("LOG...", "Files, or addresses of databases.")],
    into: Annotated[Path, valued("--into", "FILE", "The new file.")],
    json: JSON = False,
) -> int:
    """Put several logs into one new file, to list, count and verify them together.

    Each log keeps its own chain, and `verify` names the first record that does not hold in any of them. Records are
    listed in the order of their times, under new numbers. Of two copies of one log the longer counts; copies that went
    on differently are refused. Nothing can be added to the new file, but it can be merged again.

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
        print(dumps({"into": str(into), "chains": chains, "left_out": list(done.left_out)}))
        return Exit.DONE
    lines = [f"left out: {text}" for text in done.left_out]
    lines += [f"log {head.log}: {head.number:,} records, from {name}" for head, name in done.chains]
    for line in (*lines, f"{many(len(done.chains), 'log')} in {into}"):
        print(visible(line, lines=False))
    return Exit.DONE
