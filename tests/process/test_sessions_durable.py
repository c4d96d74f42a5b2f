"""Tests of session files after a crash, with a full disk, a second process, or a state folder of another user."""

import errno
import fcntl
import json
import os
import random
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from runner.messages import Message, ToolMessage
from runner.sessions.history import history_of, index
from runner.sessions.open import SessionTarget
from runner.sessions.store import JournalError, SessionError, SessionStore
from tests.support.places import ROOT
from tests.support.session_files import ID, calls, new_journal, new_store, result, run_of, sample_session, says, user

OTHER = "fedcba9876543210"
NOBODY = 65534


def history(store: SessionStore, id: str = ID) -> tuple[Message, ...]:
    with store.reading(id) as file:
        return history_of(index(file, id), id).history


# Continues with the session for ever: a prompt, a turn with two calls, an answer; each with the number of the round. Says
# on stdout what is durable.
_WRITER = """
    import os, sys
    from pathlib import Path
    from tests.support.session_files import calls, new_store, result, run_of, says, user
    from runner.sessions.open import SessionTarget
    store = new_store(Path(sys.argv[1]))
    found = store.list()
    begin = SessionTarget.resumed(store, found[0].id) if found else SessionTarget(store)
    number = 0
    journal = begin.journal(run_of(store), None)
    while True:
        for add in (
            lambda: journal.message(user(f"u{number} " + "x" * 5000)),
            lambda: journal.message(calls(f"a{number}", f"b{number}")),
            lambda: journal.result(1, result(f"b{number}")),
            lambda: journal.result(0, result(f"a{number}")),
            lambda: journal.message(says(f"s{number}")),
        ):
            add()
            os.write(1, b".")
        number += 1
"""


@pytest.mark.thorough
@pytest.mark.threat("T82")
@pytest.mark.slow("sixty writers are killed")
def test_a_kill_at_any_moment_loses_no_more_than_the_line_being_written(tmp_path: Path) -> None:
    """Sixty kills. What was said to be durable is there each time, in order, and the next process continues with it."""
    store = new_store(tmp_path / "state")
    dice = random.Random(5)
    said = torn = 0
    for _ in range(60):
        words = [sys.executable, "-c", textwrap.dedent(_WRITER), str(tmp_path / "state")]
        writer = subprocess.Popen(words, stdout=subprocess.PIPE, env={"PYTHONPATH": str(ROOT)})
        assert writer.stdout is not None
        said += len(os.read(writer.stdout.fileno(), 1))  # it writes now
        time.sleep(dice.random() * 0.02)
        writer.send_signal(signal.SIGKILL)
        writer.wait()
        said += len(writer.stdout.read())
        writer.stdout.close()
        with store.reading(ID) as file:
            tree = index(file, ID)
            assert (tree.damages, tree.whole_end) == ([], True)
            torn += bool(tree.torn)
            kept = sum(tree.type(at) == "message" for at in range(len(tree)))
        assert said <= kept <= said + 1, "each line that was durable is there, and at most one that nobody heard of"
        said = kept
    asked = [message for message in history(store) if isinstance(message, ToolMessage)]
    assert all(len(message.results) == 2 for message in asked)
    assert said > 60


def test_a_kill_within_a_write_leaves_a_torn_line_that_the_next_one_takes_away(tmp_path: Path) -> None:
    """Every length that a line may have been cut to."""
    store = new_store(tmp_path / "state")
    path = sample_session(store)
    whole = path.read_bytes()
    before = history(store)
    last = whole.splitlines(keepends=True)[-1]
    for size in range(1, len(last)):
        path.write_bytes(whole[: len(whole) - len(last) + size])
        begin = SessionTarget.resumed(store, ID)
        assert begin.past is not None
        complete = size == len(last) - 1  # only its newline is missing
        assert begin.past.history == (before if complete else before[:-1])
        assert bool(begin.past.notices) != complete
        journal = begin.journal(run_of(store), None)
        journal.message(user("again"))
        assert journal.close() is None
        begin.close()
        assert [json.loads(row) for row in path.read_text().splitlines()], "every line is whole now"
        assert history(store) == (*(before if complete else before[:-1]), user("again"))


# Fills a small file system, makes room, goes on. argv: the state folder on it.
_FULL = """
    import os, sys
    from pathlib import Path
    from tests.support.session_files import ID, new_store, run_of, says, user
    from runner.sessions.open import SessionTarget
    from runner.sessions.history import index, history_of
    from runner.sessions.store import JournalError
    state = Path(sys.argv[1]) / "state"
    (Path(sys.argv[1]) / "ballast").write_bytes(b"x" * 20_000)
    store = new_store(state)
    def history():
        with store.reading(ID) as file:
            tree = index(file, ID)
            assert not tree.torn and not tree.damages, (tree.torn, tree.damages)
            return history_of(tree, ID).history
    journal = SessionTarget(store).journal(run_of(store), None)
    done = []
    try:
        for number in range(100):
            done.append(user(f"{number} " + "x" * 3000))
            journal.message(done[-1])
        sys.exit(8)
    except JournalError as error:
        print(error.problem)
    assert history() == tuple(done[:-1]), "what was written before is whole, and nothing is half there"
    try:
        journal.message(says("more"))
        sys.exit(9)
    except JournalError:
        done.append(says("more"))
    os.unlink(Path(sys.argv[1]) / "ballast")
    journal.message(user("there is room again"))
    assert history() == (*done, user("there is room again")), "what was owed came first"
    assert journal.close() is None
"""


@pytest.mark.threat("T82")
def test_a_full_disk_loses_at_most_the_line_and_says_so(tmp_path: Path) -> None:
    """A real full file system: a tmpfs of 64 KB in a mount namespace of its own."""
    inner = f'mount -t tmpfs -o size=64k none "{tmp_path}" && exec "$@"'
    user_too = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    words = ["unshare", *user_too, "--mount", "sh", "-c", inner, "sh", sys.executable, "-c", textwrap.dedent(_FULL)]
    done = subprocess.run(
        [*words, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=60,
        env={"PYTHONPATH": str(ROOT), "PATH": os.environ["PATH"]},
    )
    assert done.returncode == 0, done.stderr
    assert "could not be written" in done.stdout
    assert "no space left" in done.stdout


@pytest.mark.threat("T82")
def test_a_disk_that_refuses_only_when_it_is_told_to_keep_writes_no_line_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """fsync(2): with delayed allocation, a quota or a network file system is full only then. No such disk is at hand,
    so the answer of the system call alone is made up."""
    store = new_store(tmp_path / "state")
    journal = new_journal(store)
    journal.message(user("before"))

    def full(handle: int) -> None:
        raise OSError(errno.EDQUOT, os.strerror(errno.EDQUOT))

    with monkeypatch.context() as refusing:
        refusing.setattr("runner.sessions.store.os.fdatasync", full)
        with pytest.raises(JournalError):
            journal.message(says("refused"))
    assert history(store) == (user("before"),), "what was refused is not half kept"
    journal.message(user("after"))
    assert journal.close() is None
    assert history(store) == (user("before"), says("refused"), user("after"))
    assert SessionTarget.resumed(store, ID).past is not None, "no line stands in it twice"


@pytest.mark.threat("T82")
def test_a_file_that_was_removed_under_a_run_takes_nothing_in_silence(tmp_path: Path) -> None:
    store = new_store(tmp_path / "state")
    journal = new_journal(store)
    journal.message(user("before"))
    store.path(ID).unlink()
    with pytest.raises(JournalError, match="another process removed the session file"):
        journal.message(says("lost"))
    assert journal.close() is not None


def test_what_cannot_be_kept_at_the_end_is_said(tmp_path: Path) -> None:
    store = new_store(tmp_path / "state")
    script = """
        import resource, sys
        from pathlib import Path
        from tests.support.session_files import new_journal, new_store, user
        from runner.events import Notice
        import signal
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        journal = new_journal(new_store(Path(sys.argv[1])))
        journal.message(user("x"))
        size = journal._lines.path.stat().st_size
        resource.setrlimit(resource.RLIMIT_FSIZE, (size + 10, size + 10))
        journal.watch(lambda event: None)(Notice("the last word"))
        print(journal.close())
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script), str(tmp_path / "state")],
        capture_output=True,
        text=True,
        env={"PYTHONPATH": str(ROOT)},
    )
    assert "the last lines of the session could not be written" in done.stdout, done.stderr
    assert history(store) == (user("x"),)


# ---- two processes


@pytest.mark.threat("T82")
def test_a_second_process_is_refused_by_name_and_may_fork(tmp_path: Path) -> None:
    store = new_store(tmp_path / "state")
    sample_session(store)
    script = """
        import sys, time
        from pathlib import Path
        from tests.support.session_files import ID, new_store
        from runner.sessions.open import SessionTarget
        begin = SessionTarget.resumed(new_store(Path(sys.argv[1])), ID)
        print("held", flush=True)
        time.sleep(6000)
    """
    words = [sys.executable, "-c", textwrap.dedent(script), str(tmp_path / "state")]
    holder = subprocess.Popen(words, stdout=subprocess.PIPE, env={"PYTHONPATH": str(ROOT)})
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        for attempt in (lambda: SessionTarget.resumed(store, ID), lambda: store.remove(ID)):
            with pytest.raises(SessionError) as refused:
                attempt()
            assert f"process {holder.pid} uses it" in refused.value.problem.why
            assert f"agent --fork {ID[:8]}" in refused.value.problem.fix
        forked = SessionTarget.forked(store, ID, store)
        assert forked.past is not None
        assert forked.past.history == history(store)
        forked.close()
    finally:
        holder.kill()
        holder.wait()
        assert holder.stdout is not None
        holder.stdout.close()
    SessionTarget.resumed(store, ID).close()  # a lock is gone with its process, however that ends


def test_a_session_that_is_refused_or_closed_is_free_again(tmp_path: Path) -> None:
    store = new_store(tmp_path / "state")
    path = sample_session(store)
    whole = path.read_bytes()
    path.write_bytes(whole + b"oops\n")
    kept = []
    for _ in range(2):
        with pytest.raises(SessionError) as refused:
            SessionTarget.resumed(store, ID)
        assert "damaged" in refused.value.problem.why
        kept.append(refused)  # and with it all that was open then
    path.write_bytes(whole)
    begin = SessionTarget.resumed(store, ID)
    assert begin.journal(run_of(store), None).close() is None
    store.open(ID).close()


def test_children_do_not_inherit_the_lock(tmp_path: Path) -> None:
    store = new_store(tmp_path / "state")
    sample_session(store)
    file = store.open(ID)
    child = subprocess.Popen(["sleep", "60"], close_fds=False)
    try:
        file.close()
        store.open(ID).close()
    finally:
        child.kill()
        child.wait()


def test_a_session_that_is_written_by_another_can_be_read(tmp_path: Path) -> None:
    store = new_store(tmp_path / "state")
    journal = new_journal(store)
    journal.message(user("x"))
    journal.message(calls("a"))
    with store.reading(ID) as file:
        assert len(history_of(index(file, ID), ID).history) == 3
    journal.result(0, result("a"))
    journal.close()


# ---- folders


def _link(path: Path) -> None:
    aside = path.with_name("aside")
    path.rename(aside)
    path.symlink_to(aside)


def _pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path, 0o600)


# fmt: off
FOLDERS = [
    ("sessions", lambda path: _link(path),                  "link",                  "a link in the place of the sessions"),
    ("key",      lambda path: _link(path),                  "link",                  "a link in the place of the workspace's"),
    ("file",     lambda path: _link(path),                  "link",                  "a link in the place of a session"),
    ("file",     lambda path: _pipe(path),                  "not a regular file",    "a pipe in its place, which would wait for ever"),
    ("sessions", lambda path: path.chmod(0o777),            "other users may write",      "a folder that everybody may write to"),
    ("key",      lambda path: path.chmod(0o770),            "other users may write",      "one that a group may write to"),
    ("file",     lambda path: path.chmod(0o666),            "other users may write",      "a session that everybody may write to"),
    ("sessions", lambda path: os.chown(path, NOBODY, 0),    "another user",          "a folder of another user"),
    ("file",     lambda path: os.chown(path, NOBODY, 0),    "another user",          "a session of another user"),
]
# fmt: on


@pytest.mark.threat("T83")
@pytest.mark.parametrize(("which", "spoil", "told", "why"), FOLDERS, ids=[why for *_, why in FOLDERS])
def test_what_others_could_have_put_there_is_refused(
    tmp_path: Path, which: str, spoil: object, told: str, why: str
) -> None:
    if "another user" in told and os.geteuid() != 0:
        pytest.skip("only root can give a file away")
    store = new_store(tmp_path / "state")
    path = sample_session(store)
    at = {"sessions": path.parent.parent, "key": path.parent, "file": path}[which]
    spoil(at)  # type: ignore[operator]  # a function of the table
    for attempt in (lambda: SessionTarget.resumed(store, ID), lambda: SessionTarget.forked(store, ID, store)):
        with pytest.raises(SessionError) as refused:
            attempt()
        problem = refused.value.problem
        assert told in f"{problem.what} {problem.why}", why
    if which != "file":
        journal = new_journal(store, OTHER)
        with pytest.raises(JournalError):
            journal.message(user("x"))
        assert not (path.parent / f"{OTHER}.jsonl").exists(), "nothing new is put there either"
        assert journal.close() is not None


def test_what_others_may_read_becomes_private(tmp_path: Path) -> None:
    store = new_store(tmp_path / "state")
    path = sample_session(store)
    for place in (path, path.parent, path.parent.parent):
        place.chmod(0o755)
    SessionTarget.resumed(store, ID).close()
    assert [place.stat().st_mode & 0o777 for place in (path, path.parent, path.parent.parent)] == [0o600, 0o700, 0o700]


def test_a_clock_that_goes_back_breaks_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = new_store(tmp_path / "state")
    now = 2e9
    monkeypatch.setattr("runner.audit.chain.time.time", lambda: now)
    journal = new_journal(store)
    for number in range(5):
        now -= 1e8
        journal.message(user(str(number)))
    journal.close()
    assert history(store) == tuple(user(str(number)) for number in range(5))


def test_a_lock_that_somebody_else_takes_is_respected(tmp_path: Path) -> None:
    """Also one of our own process, and of any program: `flock FILE` in a shell."""
    store = new_store(tmp_path / "state")
    path = sample_session(store)
    with open(path, "rb") as file:
        fcntl.flock(file, fcntl.LOCK_SH)
        with pytest.raises(SessionError):
            store.open(ID)
    with pytest.raises(JournalError):  # and a name that is taken is never written over
        store.create(ID)
    assert says("It is done.") in history(store)
