"""Tests of databases in WAL mode, read by a command with read-only rights in a real sandbox."""

import json
import sqlite3
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import forked_agent
from tests.support.agent_program import AGENT


@pytest.fixture
def work(tmp_path: Path) -> Iterator[Path]:
    """A workspace with one database that this process has open, and one that no process has open."""
    (tmp_path / "home").mkdir()
    folder = tmp_path / "work"
    folder.mkdir()
    connections = [sqlite3.connect(folder / name) for name in ("open.db", "closed.db")]
    for connection in connections:
        connection.execute("pragma journal_mode=wal")
        connection.execute("create table t (x)")
        connection.execute("insert into t values (7)")
        connection.commit()
    opened, closed = connections
    closed.close()
    assert sorted(path.name for path in folder.iterdir()) == ["closed.db", "open.db", "open.db-shm", "open.db-wal"]
    yield folder
    opened.close()


ROWS = [
    ("sqlite3 -readonly open.db 'select x from t'", "7\n", "the -wal and -shm files exist"),
    ("sqlite3 open.db 'select x from t'", "7\n", "the same without the flag"),
    ("sqlite3 'file:closed.db?immutable=1' 'select x from t'", "7\n", "opened as it is"),
    ("sqlite3 -readonly closed.db 'select x from t'", "", "the files cannot be created, and the error says what to do"),
]


@pytest.mark.parametrize(("script", "out", "why"), ROWS, ids=[row[0] for row in ROWS])
def test_a_database_in_wal_mode_is_read(work: Path, script: str, out: str, why: str) -> None:
    before = sorted(path.name for path in work.iterdir())
    done = forked_agent.run(
        [AGENT, "exec", "--json", "--unattended", "--mode", "plan", script],
        env={"PATH": "/usr/bin:/bin", "HOME": str(work.parent / "home"), "LC_ALL": "C.UTF-8"}, cwd=work,
        capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    events = [json.loads(line) for line in done.stdout.splitlines()]
    shown = "".join(event["text"] for event in events if event["type"] == "output" and event["stream"] == 1)
    ended = next(event for event in events if event["type"] == "finished")
    assert shown == out, (why, done.stdout)
    assert ["immutable=1" in each["fix"] for each in ended["violations"]] == ([] if out else [True])
    assert sorted(path.name for path in work.iterdir()) == before
