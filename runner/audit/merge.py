"""Merging of several logs into one file, to be read and verified together. The chains are not changed.

The records are sorted by time, but the records of one chain keep their order. They get new ids and keep their numbers.
No record is appended to a merged file. Of two copies of one log, only the longer copy is taken; the
shorter copy must be its beginning.
"""

import contextlib
import heapq
import os
import secrets
from collections.abc import Iterator, Sequence
from pathlib import Path

from policy.model.frozen import dataclass
from policy.model.verdict import Problem
from runner.audit.chain import AuditError, Head, LogStore, RecordRow, Walk
from runner.audit.checkpoint import tree_of
from runner.audit.stores.sqlite import write_merged
from runner.audit.verify import BrokenChain, Expected, VerifyProgress, verify
from runner.text.phrases import os_reason


@dataclass(frozen=True, slots=True)
class Merged:
    """Result of a merge: the chains with the name of the source of each, and a sentence for each chain left out."""

    chains: tuple[tuple[Head, str], ...]
    left_out: tuple[str, ...]


def merge(sources: Sequence[LogStore], into: Path, progress: VerifyProgress | None = None) -> Merged:
    """Write the file `into`, which appears complete or not at all.

    Raises AuditError if `into` exists or cannot be written, for a log that does not verify, and for two copies of one
    log of which neither is provably the beginning of the other.
    """
    if os.path.lexists(into):
        raise _exists_error(into)
    if not into.parent.is_dir():
        why = f"`{into.parent}` is not a folder"
        raise AuditError(Problem("the logs were not merged", why, "name a file in an existing folder"))
    for source in sources:
        result = verify(source, Expected(), progress)
        if isinstance(result, BrokenChain):
            place = f" from record {result.id} on" if result.id else ""
            what, why = f"`{source.name}` is not intact{place}", result.why
            raise AuditError(Problem(what, why, "check it with `agent audit verify --file`, and omit it"))
    beside = into.with_name(f".{into.name}.{secrets.token_hex(4)}.part")
    with contextlib.ExitStack() as stack:
        walks = [stack.enter_context(source.walking()) for source in sources]
        owners, left_out = _owners(sources, walks)
        heads = [head for head, _ in owners.values()]
        chosen = [{log for log, (_, owner) in owners.items() if owner == place} for place in range(len(sources))]
        rows = heapq.merge(
            *(_by_time(walk, logs, place) for place, (walk, logs) in enumerate(zip(walks, chosen, strict=True)) if logs)
        )
        try:
            write_merged(beside, heads, (row for _, _, _, row in rows))
            os.link(beside, into)  # link(2) never replaces a file, also not one that was created meanwhile
        except FileExistsError:
            raise _exists_error(into) from None
        except OSError as error:
            why = f"`{into}`: {os_reason(error)}"
            fix = "name a file on a file system with hard links"
            raise AuditError(Problem("the logs were not merged", why, fix)) from None
        finally:
            beside.unlink(missing_ok=True)
    return Merged(tuple((head, sources[place].name) for head, place in owners.values()), tuple(left_out))


def _exists_error(into: Path) -> AuditError:
    fix = "name a new file; to add a log, merge it and this file into another file"
    return AuditError(Problem("the logs were not merged", f"`{into}` already exists", fix))


def _owners(sources: Sequence[LogStore], walks: Sequence[Walk]) -> tuple[dict[str, tuple[Head, int]], list[str]]:
    """Return the head and the index of the source of each chain, by its name, and a sentence for each chain left
    out."""
    owners: dict[str, tuple[Head, int]] = {}
    left_out = []
    for place, walk in enumerate(walks):
        for head in walk.heads:
            if not head.number:
                continue
            before = owners.setdefault(head.log, (head, place))
            if before == (head, place):
                continue
            longer, shorter = sorted((before, (head, place)), key=lambda each: -each[0].number)
            _require_beginning(sources, longer, shorter)
            owners[head.log] = longer
            relation = "the beginning of" if longer[0].number > shorter[0].number else "the same log as"
            left_out.append(f"`{sources[shorter[1]].name}` is {relation} `{sources[longer[1]].name}`")
    return owners, left_out


def _require_beginning(sources: Sequence[LogStore], longer: tuple[Head, int], shorter: tuple[Head, int]) -> None:
    """Raise AuditError unless the shorter chain is the beginning of the longer one."""
    log, last = shorter[0].log, shorter[0].number
    names = [sources[each[1]].name for each in (longer, shorter)]
    if longer[0] == shorter[0] or [shorter[0].hash] == list(sources[longer[1]].hashes(last, last, log)):
        return
    tombstones = (sources[each[1]].latest("tombstone", log) for each in (longer, shorter))
    begin = max(tree_of(row).count if row is not None else 0 for row in tombstones) + 1
    alike = zip(*(sources[each[1]].hashes(begin, last, log) for each in (longer, shorter)), strict=False)
    first = next((number for number, (one, other) in enumerate(alike, begin) if one != other), None)
    what = f"`{names[0]}` and `{names[1]}` cannot be in one file"
    if first is None:
        why = "they are copies of one log, and their common records were pruned from one copy, so this cannot be proved"
        raise AuditError(Problem(what, why, "omit the older copy"))
    why = f"they share their first {first - 1} records and differ after that: two programs wrote to copies of one log"
    raise AuditError(Problem(what, why, "keep both files: one of them does not match the heads that were printed"))


def _by_time(walk: Walk, logs: set[str], place: int) -> Iterator[tuple[str, int, int, RecordRow]]:
    """Yield the rows of the chains `logs` with their sort keys. A clock that was set back does not reorder a chain."""
    from json import loads

    latest = ""
    for row in walk.rows():
        if row.log in logs:
            try:
                body = loads(row.body)
            except (ValueError, RecursionError):
                body = None
            if not isinstance(body, dict):  # although its hash is valid: another program wrote the log
                why = f"record {row.number} of log {row.log} was not written by this program"
                raise AuditError(Problem("the logs were not merged", why, "omit that log"))
            latest = max(latest, str(body.get("time", "")))
            yield latest, place, row.id, row
