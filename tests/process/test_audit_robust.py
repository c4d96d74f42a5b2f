"""Tests of the audit log on a failing machine: killed writers, full disks, deleted files.

No acknowledged record is lost, the chain stays intact, and an action whose record cannot be written does not run.
"""

import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from runner.audit.chain import ZERO, AuditError, seal
from runner.audit.decisions import deeds
from runner.audit.log import AuditLog
from runner.audit.prune import plan
from runner.audit.seal import create_seal
from runner.audit.verify import BrokenChain, Expected, ExpectedRecord, VerifiedLog, verify
from tests.support.audit_records import fence_down, fill, refusal, unfenced
from tests.support.forked_agent import Process
from tests.support.law import number_of_examples
from tests.support.places import ROOT
from tests.support.sandbox_bench import USERS
from tests.support.secret_service import KeyringHarness, harness

WRITER = """
    import os, sys
    from pathlib import Path
    from runner.audit import log as module
    from runner.audit.records import Refusal
    from policy.model.verdict import Problem
    from sandbox.backend import Outcome
    module.EVERY = 40  # so that some die while they write a checkpoint
    with module.AuditLog.open(Path(sys.argv[1])) as log:
        for number in range(1_000_000):
            text = f"{sys.argv[2]} {number}"
            kept = log.refused(sys.argv[2], Refusal("bash", text, Problem("a", "b", "c")))
            os.write(1, f"{kept} {text}\\n".encode())
            log.finished(kept, Outcome(0))
"""


@pytest.mark.thorough
@pytest.mark.threat("T24")
@pytest.mark.threat("T25")
def test_eight_writers_that_are_killed_at_random_lose_nothing_and_break_nothing(tmp_path: Path) -> None:
    path, chance = tmp_path / "audit.db", random.Random(6)
    begun, kills = 0, number_of_examples(8, many=16)

    def begin() -> subprocess.Popen[bytes]:
        nonlocal begun
        begun += 1
        command = [sys.executable, "-c", textwrap.dedent(WRITER), str(path), f"writer-{begun}"]
        return Process(command, stdout=subprocess.PIPE, cwd=ROOT)

    def end(writer: subprocess.Popen[bytes]) -> Iterator[str]:
        writer.send_signal(signal.SIGKILL)
        assert writer.stdout is not None
        yield from writer.stdout.read().decode().splitlines()
        writer.wait()
        writer.stdout.close()

    writers = [begin() for _ in range(8)]
    said: list[str] = []
    try:
        for _ in range(kills):
            time.sleep(chance.uniform(0.05, 0.4))
            said += end(writers.pop(chance.randrange(8)))
            writers.append(begin())
        for writer in writers:  # each of them gets to write: nobody is held up for good
            assert writer.stdout is not None
            said += [writer.stdout.readline().decode().strip() for _ in range(8)]
    finally:
        for writer in writers:
            said += end(writer)
    assert len(said) > 50
    with AuditLog.open(path) as log:
        result = verify(log.store)
        assert isinstance(result, VerifiedLog), result
        (chain,) = result.chains
        assert chain.checkpoints >= chain.count // 41 - kills, "a killed writer's checkpoint is written by the next"
        for line in said:
            number, _, text = line.partition(" ")
            record = log.get(int(number))
            assert record is not None
            assert record.body["arguments"] == text
        log.refused("s", refusal())


REMOVED: list[tuple[str, Callable[[Path], object]]] = [
    ("the write-ahead file removed", lambda path: path.with_name("audit.db-wal").unlink()),
    ("the write-ahead file replaced", lambda path: shutil.copy(path, path.with_name("x")) and path.with_name("x").rename(path.with_name("audit.db-wal"))),
    ("the log removed", lambda path: path.unlink()),
    ("the log moved away", lambda path: path.rename(path.with_name("old.db"))),
    ("the log replaced by a link", lambda path: (path.rename(path.with_name("old.db")), path.symlink_to("old.db"))),
    ("the log replaced by a copy", lambda path: (shutil.copy(path, path.with_name("x")), path.with_name("x").rename(path))),
    ("the folder moved away", lambda path: path.parent.rename(path.parent.with_name("other"))),
]  # fmt: skip


@pytest.mark.threat("T24")
@pytest.mark.parametrize(("name", "take"), REMOVED, ids=[row[0] for row in REMOVED])
def test_what_is_taken_away_while_it_is_open_is_noticed(
    tmp_path: Path, name: str, take: Callable[[Path], object]
) -> None:
    """SQLite goes on writing to a file that has no name any more; its records would be gone with the process."""
    path = tmp_path / "state" / "audit.db"
    path.parent.mkdir()
    with AuditLog.open(path) as log:
        log.refused("s", refusal())
        take(path)
        with pytest.raises(AuditError, match="removed or replaced"):
            log.refused("s", refusal())


@pytest.mark.threat("T25")
def test_a_write_ahead_file_that_is_removed_after_a_crash_is_an_end_cut_off(tmp_path: Path) -> None:
    """Only a head that was noted tells: the file that is left is the log of a moment ago."""
    path = tmp_path / "audit.db"
    fill(path, 3)
    script = f"""
        import os, signal
        from pathlib import Path
        from runner.audit.log import AuditLog
        from runner.audit.verify import verify
        from tests.support.audit_records import refusal
        log = AuditLog.open(Path({str(path)!r}))
        log.refused("s", refusal())
        print(verify(log.store).head, flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, cwd=ROOT)
    head = done.stdout.strip()
    assert head.startswith("8:")
    with AuditLog.open_to_read(path) as log:
        assert isinstance(verify(log.store, Expected((ExpectedRecord.head(head),))), VerifiedLog)
    for name in ("audit.db-wal", "audit.db-shm"):
        path.with_name(name).unlink(missing_ok=True)
    with AuditLog.open_to_read(path) as log:
        assert isinstance(verify(log.store), VerifiedLog)
        assert verify(log.store, Expected((ExpectedRecord.head(head),))) == BrokenChain(
            8, "the log ends before the expected record 8"
        )


@pytest.fixture(params=USERS)
def place(request: pytest.FixtureRequest) -> Iterator[KeyringHarness]:
    with harness(request.param) as made:
        yield made


def touched(place: KeyringHarness, *, code: int = 1) -> str:
    """Run `agent exec` with an action that creates a file, and return the messages.

    Assert that the exit code is `code`, and that the file exists only after exit code 0.
    """
    done = place.agent("exec", "--mode", "trust-project", "touch ran")
    assert done.returncode == code, done.stdout + done.stderr
    ran = place.work / "ran"
    assert ran.exists() == (code == 0)
    ran.unlink(missing_ok=True)
    return done.stderr


@pytest.mark.threat("T24")
def test_nothing_runs_when_its_record_cannot_be_written(place: KeyringHarness) -> None:
    """Check root and another user. The action runs before the log is damaged, and again after the log is restored."""
    touched(place, code=0)
    state = place.home / ".local/state/ringfence"
    path = state / "audit.db"
    kept = path.with_name("kept.db")

    path.rename(kept)
    path.symlink_to(kept)
    assert "the audit log cannot be opened" in touched(place)
    path.unlink()
    path.mkdir()
    assert "the audit log cannot be opened" in touched(place)
    path.rmdir()
    path.write_bytes(b"no database, whatever it is called" * 100)
    if place.who:
        shutil.chown(path, 65534, 65534)
    assert "not a database" in touched(place)
    path.unlink()
    kept.rename(path)
    if place.who or os.geteuid() != 0:  # root may write where nobody may
        path.chmod(0o400)
        state.chmod(0o500)
        assert "audit log" in touched(place)
        state.chmod(0o700)
        path.chmod(0o600)
    else:
        path.chmod(0o600)
        shutil.chown(path, 65534, 65534)
        assert "not a plain file that belongs to you" in touched(place)
        shutil.chown(path, 0, 0)
    touched(place, code=0)
    listed = [json.loads(line) for line in place.agent("audit", "list", "--json").stdout.splitlines()]
    assert [each["verdict"] for each in listed] == ["allow", "allow"]
    assert place.agent("audit", "verify").returncode == 0


@pytest.mark.threat("T24")
def test_nothing_runs_on_a_full_disk(place: KeyringHarness) -> None:
    """A file system without room, and a limit on the size of files, below `agent exec` and its sandbox."""
    touched(place, code=0)
    state = place.home / ".local/state/ringfence"
    inner = (
        f'mount -t tmpfs -o size=512k,mode=755 none "{state.parent}" && mkdir -m 700 "{state}" && '
        f'{{ head -c 600000 /dev/zero > "{state.parent}/ballast" || true; }} 2>/dev/null; cd "{place.work}" && exec "$@"'
    )
    command = [*place.command, "exec", "--mode", "trust-project", "touch ran"]
    if os.geteuid() == 0 and not place.who:
        full = ["unshare", "--mount", "sh", "-c", inner, "sh", *command]
        done = subprocess.run(full, env=place.environ, cwd=place.work, capture_output=True, text=True)
        assert done.returncode == 1, done.stdout + done.stderr
        assert "disk is full" in done.stderr
        assert "nothing was run" in done.stderr or "cannot be opened" in done.stderr
        assert not (place.work / "ran").exists()
    small = ["sh", "-c", 'ulimit -f 64 && exec "$@"', "sh", *command]  # blocks of 512 bytes
    done = subprocess.run(small, env=place.environ, cwd=place.work, capture_output=True, text=True, **place.who)
    assert done.returncode != 0
    assert not (place.work / "ran").exists()
    assert place.agent("audit", "verify").returncode == 0
    touched(place, code=0)


def test_a_card_that_says_something_else_than_its_record_is_named(tmp_path: Path) -> None:
    """Else a denial could be kept out of the lists, although its record is untouched."""
    path = tmp_path / "audit.db"
    for statement, first in (
        ("UPDATE cards SET verdict = 'deny' WHERE id = 2", 2),
        ("UPDATE cards SET kind = 'checkpoint' WHERE id = 4", 4),
        ("UPDATE cards SET rules = NULL WHERE id = 4", 4),
        ("UPDATE cards SET name = 'x' WHERE id = 1", 1),
        ("UPDATE cards SET decided = 4 WHERE id = 3", 3),
        ("DELETE FROM cards WHERE id = 6", 6),
        ("INSERT INTO cards (id, log, number, kind) VALUES (99, 1, 99, 'decided')", 99),
    ):
        for name in ("", "-wal", "-shm"):
            path.with_name(f"audit.db{name}").unlink(missing_ok=True)
        fill(path, 3)
        unfenced(path, statement)
        with AuditLog.open_to_read(path) as log:
            result = verify(log.store)
        assert isinstance(result, BrokenChain), statement
        assert result.id == first, statement


ODD = [
    ("UPDATE records SET body = 'no JSON' WHERE id = 3", "a body that is no JSON"),
    ("UPDATE records SET body = '[]' WHERE id = 3", "one that is no object"),
    ("UPDATE records SET body = '5' WHERE id = 3", "a number"),
    (f"UPDATE records SET body = '{'[' * 5000}' WHERE id = 3", "one that is too deep"),
    (
        "UPDATE records SET body = '[]' WHERE id = 3; UPDATE cards SET kind = 'checkpoint' WHERE id = 3",
        "as a checkpoint",
    ),
    ("UPDATE cards SET kind = 'tombstone' WHERE id = 3", "a record that is said to be a tombstone"),
    ("UPDATE records SET hash = 'zz' WHERE id = 3", "a hash that is none"),
    ("UPDATE records SET hash = x'00' WHERE id = 3", "a hash that is bytes"),
    ("UPDATE logs SET last = 'x'", "a head whose number is a text"),
    ("UPDATE logs SET hash = x'ff'", "a head whose hash is bytes"),
    ("UPDATE logs SET name = x'ff'", "a head whose name is bytes"),
    ("UPDATE logs SET name = '0123456789abcdef'", "a head of another name"),
    ("UPDATE logs SET name = ''", "a head without a name"),
    ("UPDATE logs SET number = 7", "a head of another chain"),
    ("UPDATE cards SET number = 'x' WHERE id = 3", "a number that is a text"),
    ("UPDATE cards SET log = 9 WHERE id = 3", "a card of no chain"),
    ("DROP TABLE cards", "no cards"),
    ("DROP TABLE logs", "no heads"),
    ("DROP INDEX card_of_tombstone", "no index"),
]


@pytest.mark.threat("T25")
@pytest.mark.parametrize(("statement", "why"), ODD, ids=[row[1] for row in ODD])
@pytest.mark.parametrize("anew", [False, True])
def test_whatever_is_in_the_file_is_an_answer(tmp_path: Path, statement: str, why: str, anew: bool) -> None:
    """Anyone who owns it can write anything into it; with `anew` they make the chain fit, too."""
    path = tmp_path / "audit.db"
    fill(path, 3)
    unfenced(path, statement)
    if anew and "SET body" in statement:
        chain_anew(path)
    asked: tuple[Callable[[AuditLog], object], ...] = (
        lambda log: list(deeds(log)),
        lambda log: [log.get(number) for number in range(9)],
        lambda log: create_seal(log.store, lambda: None),
        lambda log: plan(log.store, "2100", "2100"),
    )
    with AuditLog.open_to_read(path, any_schema=True) as log:
        assert isinstance(verify(log.store), BrokenChain), why
        for each in asked:
            with contextlib.suppress(AuditError):
                each(log)


def chain_anew(path: Path) -> None:
    with fence_down(path) as raw:
        last = ZERO
        for number, text in raw.execute("SELECT id, body FROM records ORDER BY id").fetchall():
            last = seal(last, text)
            raw.execute("UPDATE records SET hash = ? WHERE id = ?", (last, number))
        raw.execute("UPDATE logs SET hash = ?", (last,))
