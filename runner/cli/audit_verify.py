"""`agent audit verify`: whether every record is what was written."""

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from runner.cli.audit_filters import FILE, log_path
from runner.cli.gate import JSON
from runner.problems import Exit, Stopped, usage
from runner.text.counts import many
from runner.text.sanitize import visible

if TYPE_CHECKING:
    from runner.audit.chain import Broken, Chain, Sealed
    from runner.audit.verify import Noted


def verify(
    expect: Annotated[
        str | None,
        typer.Option(metavar="COUNT:HASH", help="A head printed earlier, which must still be part of the log."),
    ] = None,
    seal: Annotated[
        Path | None, typer.Option("--seal", metavar="FILE", help="What `agent audit seal` wrote: it must still hold.")
    ] = None,
    public_key: Annotated[
        list[str] | None,
        typer.Option("--public-key", metavar="KEY", help="Who must have signed, as `agent audit key show` prints it."),
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
    from runner.audit.chain import Broken, Sealed
    from runner.audit.log import AuditLog
    from runner.audit.verify import Expected, Noted
    from runner.audit.verify import verify as verified

    if expect is not None and not re.fullmatch("[0-9]{1,18}:[0-9a-f]{64}", expect):
        raise usage(
            f"`{expect}` is no head of a log", "a head is COUNT:HASH", "copy one that `agent audit verify` printed"
        )
    keys = _keys(public_key)
    noted = [Noted.head(expect)] if expect else []
    noted += [_noted(seal, keys)] if seal is not None else []
    path = log_path(file)
    with AuditLog.open_to_read(path, whatever=True) as log:
        wanted = Expected(tuple(noted), keys, vouched=seal is not None)
        result = verified(log.store, wanted, progress if sys.stderr.isatty() else None)
        cautions = log.store.cautions()
    for caution in cautions:
        print(f"note: {caution}: it could end the record of all (docs/guide/audit.md, rights)", file=sys.stderr)
    if json:
        print(_json(result))
        return Exit.DONE if isinstance(result, Sealed) else Exit.FAILED
    match result:
        case Sealed(chains=chains):
            print(f"all {result.count} records hold")
            for chain in chains:
                _tell(chain, named=len(chains) > 1)
            if not chains:
                print(f"head {result.head}")
            if seal is not None:
                print(f"the seal holds: it is of the first {noted[-1].number} records")
            return Exit.DONE
        case Broken(id=number, why=why):
            from policy.model.verdict import Problem

            what = f"the audit log does not hold{f' from record {number} on' if number else ''}"
            elsewhere = "by moving it away" if isinstance(path, Path) else "in another database or schema"
            fix = f"keep `{path}` as evidence, and start a new log {elsewhere}"
            raise Stopped(Problem(what, why, fix), Exit.FAILED)


def _keys(given: list[str] | None) -> tuple[str, ...]:
    keys = tuple(key.strip().lower() for key in given or ())
    for key in keys:
        if not re.fullmatch("[0-9a-f]{64}", key):
            why = "a key is 64 hexadecimal digits"
            raise usage(f"`{key}` is no public key", why, "copy what `agent audit key show` printed")
    return keys


def _noted(seal: Path, keys: tuple[str, ...]) -> "Noted":
    from runner.audit.seal import MOST, read_seal

    try:
        with seal.open("rb") as file:
            text = file.read(MOST)
    except OSError as error:
        why = str(error.strerror).lower()
        raise usage(f"the seal `{seal}` cannot be read", why, "name what `agent audit seal --out` wrote") from None
    return read_seal(text, keys)


def _tell(chain: "Chain", *, named: bool) -> None:
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


def _json(result: "Sealed | Broken") -> str:
    from dataclasses import asdict
    from json import dumps

    from runner.audit.chain import Sealed

    if not isinstance(result, Sealed):
        return dumps({"sealed": False, **asdict(result)})
    chains = [{**asdict(chain), "head": chain.head} for chain in result.chains]
    return dumps({"sealed": True, "count": result.count, "hash": result.head.partition(":")[2], "chains": chains})


def progress(done: int, total: int) -> None:
    """On a terminal only; the line is gone before anything else is said."""
    text = f"verifying {done:,} of {total:,}" if done < total else ""
    sys.stderr.write(f"\r\x1b[K{text}")
    sys.stderr.flush()
