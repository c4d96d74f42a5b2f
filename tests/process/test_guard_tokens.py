"""One-time tokens of rewritten commands: each counts once, for one script in one folder."""

import json
import multiprocessing
import os
import stat
import time
from dataclasses import replace
from pathlib import Path

import pytest

from policy.model.verdict import Problem
from runner.frontends.guard.tokens import GuardToken, issue, redeem

TOKEN = GuardToken("ls", "/w", "default", "claude", "s1", "c1", "Bash")


def environ(tmp_path: Path) -> dict[str, str]:
    return {"RINGFENCE_STATE_DIR": str(tmp_path / "state"), "HOME": str(tmp_path)}


def stored(tmp_path: Path, state: str) -> list[Path]:
    return sorted((tmp_path / "state" / "guard" / state).iterdir())


@pytest.mark.threat("T192")
def test_it_counts_once(tmp_path: Path) -> None:
    word = issue(TOKEN, environ(tmp_path))
    found = redeem(word, "ls", "/w", environ(tmp_path))
    assert isinstance(found, GuardToken)
    assert replace(found, made=0.0, expires=0.0) == TOKEN
    again = redeem(word, "ls", "/w", environ(tmp_path))
    assert isinstance(again, Problem)
    assert "used before" in again.what


@pytest.mark.threat("T192")
@pytest.mark.parametrize(
    ("script", "cwd", "says"),
    [("ls ", "/w", "another command"), ("ls", "/w/sub", "another folder"), ("", "/w", "another command")],
    ids=["another-script", "another-folder", "no-script"],
)
def test_it_counts_for_exactly_its_command(script: str, cwd: str, says: str, tmp_path: Path) -> None:
    word = issue(TOKEN, environ(tmp_path))
    found = redeem(word, script, cwd, environ(tmp_path))
    assert isinstance(found, Problem)
    assert says in found.what
    assert isinstance(redeem(word, "ls", "/w", environ(tmp_path)), Problem), "the wrong try used it up"


@pytest.mark.threat("T192")
@pytest.mark.parametrize("word", ["", "x", "0" * 32, "../../../etc/passwd", "A" * 32, "0" * 31 + "\n"])
def test_a_word_that_no_hook_made_is_refused(word: str, tmp_path: Path) -> None:
    issue(TOKEN, environ(tmp_path))
    assert isinstance(redeem(word, "ls", "/w", environ(tmp_path)), Problem)
    assert len(stored(tmp_path, "open")) == 1


def test_an_old_one_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    word = issue(TOKEN, environ(tmp_path))
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + 601)
    found = redeem(word, "ls", "/w", environ(tmp_path))
    assert isinstance(found, Problem)
    assert "too old" in found.what


@pytest.mark.threat("T192")
@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"script": "ls"}', b"\xff"])
def test_a_damaged_record_is_refused(content: bytes, tmp_path: Path) -> None:
    word = issue(TOKEN, environ(tmp_path))
    stored(tmp_path, "open")[0].write_bytes(content)
    assert isinstance(redeem(word, "ls", "/w", environ(tmp_path)), Problem)


def test_only_the_user_can_read_it_and_its_name_is_not_the_token(tmp_path: Path) -> None:
    word = issue(TOKEN, environ(tmp_path))
    (record,) = stored(tmp_path, "open")
    assert stat.S_IMODE(record.stat().st_mode) == 0o600
    assert stat.S_IMODE(record.parent.stat().st_mode) == 0o700
    assert word not in record.name
    assert word not in record.read_text()
    assert json.loads(record.read_text())["script"] == "ls"


def _try(number: int, word: str, place: str, gate: "multiprocessing.synchronize.Barrier") -> None:
    gate.wait()
    found = redeem(word, "ls", "/w", {"RINGFENCE_STATE_DIR": place, "HOME": "/nonexistent"})
    os._exit(0 if isinstance(found, GuardToken) else 1)


@pytest.mark.threat("T192")
def test_of_processes_that_take_it_at_once_one_gets_it(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    for _ in range(5):
        word = issue(TOKEN, environ(tmp_path))
        gate = context.Barrier(4)
        place = str(tmp_path / "state")
        tried = [context.Process(target=_try, args=(number, word, place, gate), daemon=True) for number in range(4)]
        for process in tried:
            process.start()
        for process in tried:
            process.join()
        assert sorted(process.exitcode or 0 for process in tried) == [0, 1, 1, 1]


@pytest.mark.threat("T192")
def test_records_older_than_a_week_are_deleted(tmp_path: Path) -> None:
    issue(TOKEN, environ(tmp_path))
    (old,) = stored(tmp_path, "open")
    long_ago = time.time() - 8 * 86_400
    os.utime(old, (long_ago, long_ago))
    issue(TOKEN, environ(tmp_path))
    assert len(stored(tmp_path, "open")) == 1
    assert not old.exists()
