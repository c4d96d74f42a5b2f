"""Tests of state files: refused contents, files that are set aside, and atomic changes without losses."""

import json
import multiprocessing
import os
import signal
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from runner.state.json_file import StateError, StateFile
from tests.support.places import ROOT

Numbers = tuple[int, ...]


def _parse(body: dict[str, object], version: int) -> Numbers:
    numbers = body.pop("numbers", None)
    if body or not isinstance(numbers, list) or not all(type(each) is int for each in numbers):
        raise ValueError("it holds something other than numbers")
    return tuple(numbers)


def _file(path: Path) -> StateFile[Numbers]:
    return StateFile(path, "the list of numbers", 2, tuple, _parse, lambda value: {"numbers": list(value)})


def _add(number: int, path: Path) -> None:
    _file(path).change(lambda value: ((*value, number), None))


def test_a_change_is_read_back_by_whoever_looks_next(tmp_path: Path) -> None:
    path = tmp_path / "numbers.json"
    other = _file(path)
    assert other.read().value == ()
    _add(1, path)
    assert other.read().value == (1,)
    _add(2, path)
    assert other.read().value == (1, 2)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert json.loads(path.read_text())["version"] == 2
    assert sorted(each.name for each in tmp_path.iterdir()) == ["numbers.json", "numbers.json.lock"]


def test_what_has_not_changed_is_not_read_again_and_what_has_is(tmp_path: Path) -> None:
    path = tmp_path / "numbers.json"
    _add(1, path)
    os.utime(path, ns=(1, 1))  # long ago, so that its time proves something
    file = _file(path)
    first = file.read().value
    assert file.read().value is first
    path.write_text('{"version": 2, "numbers": [7]}')  # in place, as an editor may
    assert file.read().value == (7,)


@pytest.mark.parametrize("same", [1, 3])
def test_changes_of_the_same_moment_are_all_seen(tmp_path: Path, same: int) -> None:
    """The length and, on a coarse clock, the time are the same: only the content tells the versions apart."""
    path = tmp_path / "numbers.json"
    reader = _file(path)
    for number in range(50):
        reader_value = number % 10
        _file(path).change(lambda value, n=reader_value: ((n,) * same, None))  # type: ignore[misc]  # bound now
        assert reader.read().value == (reader_value,) * same


BROKEN = [
    (b"", "an empty file: a crash of the disk"),
    (b'{"version": 2, "numbers": [1', "cut off"),
    (b'{"version": 2, "numbers": [1]}{}', "more behind it"),
    (b"[1, 2]", "no object"),
    (b'{"numbers": [1]}', "no version"),
    (b'{"version": true, "numbers": [1]}', "a version that only counts as one"),
    (b'{"version": 0, "numbers": [1]}', "a version that never was"),
    (b'{"version": 2, "numbers": ["1"]}', "content of another shape"),
    (b'{"version": 2, "numbers": [1], "more": 1}', "a key that nobody wrote"),
    (b'{"version": 2, "numbers": [1], "numbers": [2]}', "one key twice"),
    (b'{"version": 2, "numbers": [NaN]}', "no number of JSON"),
    (b'{"version": 2, "numbers": [1]}\xff', "not UTF-8"),
    (b'{"version": 2, "numbers": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", "nested until the parser gives up"),
    (b" " * (16 << 20) + b'{"version": 2, "numbers": [1]}', "too long"),
]


@pytest.mark.threat("T79")
@pytest.mark.parametrize(("content", "why"), BROKEN, ids=[why for _, why in BROKEN])
def test_a_broken_file_is_set_aside_and_nothing_is_taken_from_it(tmp_path: Path, content: bytes, why: str) -> None:
    path = tmp_path / "numbers.json"
    (tmp_path / "numbers.json.corrupt-1").write_bytes(b"an earlier one")
    path.write_bytes(content)
    path.chmod(0o600)
    file = _file(path)
    held = file.read()
    assert held.value == ()
    assert len(held.notices) == 1
    assert "numbers.json.corrupt-2" in held.notices[0]
    assert not path.exists()
    assert (tmp_path / "numbers.json.corrupt-2").read_bytes() == content
    assert (tmp_path / "numbers.json.corrupt-1").read_bytes() == b"an earlier one"
    assert file.read().notices == ()  # told once
    _add(5, path)
    assert file.read().value == (5,)


def test_a_change_does_not_build_on_a_broken_file(tmp_path: Path) -> None:
    path = tmp_path / "numbers.json"
    path.write_text('{"version": 2, "numbers": [1')
    path.chmod(0o600)
    _, notices = _file(path).change(lambda value: ((*value, 9), None))
    assert len(notices) == 1
    assert _file(path).read().value == (9,)


def _linked(path: Path) -> None:
    path.with_name("real").write_text('{"version": 2, "numbers": [1]}')
    path.symlink_to("real")


def _open_to(mode: int, path: Path) -> None:
    path.write_text('{"version": 2, "numbers": [1]}')
    path.chmod(mode)


REFUSED = [
    (_linked, "a symbolic link"),
    (lambda path: path.mkdir(), "not a regular file"),
    (os.mkfifo, "not a regular file"),
    (lambda path: _open_to(0o620, path), "other users may write"),
    (lambda path: _open_to(0o602, path), "other users may write"),
    (lambda path: (path.write_text('{"version": 3, "numbers": [1]}'), path.chmod(0o600)), "later version"),
]


@pytest.mark.parametrize(("make", "why"), REFUSED, ids=range(len(REFUSED)))
def test_what_others_could_have_written_is_refused_and_left_as_it_is(
    tmp_path: Path, make: Callable[[Path], object], why: str
) -> None:
    path = tmp_path / "numbers.json"
    make(path)
    before = path.lstat()
    for use in (lambda: _file(path).read(), lambda: _add(1, path)):
        with pytest.raises(StateError) as caught:
            use()
        assert why in caught.value.problem.why
        assert "numbers.json" in caught.value.problem.what
    assert path.lstat()[:4] == before[:4]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to another user")
def test_a_file_of_another_user_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "numbers.json"
    _open_to(0o600, path)
    os.chown(path, 65534, 65534)
    with pytest.raises(StateError) as caught:
        _file(path).read()
    assert "uid 65534" in caught.value.problem.why


def _add_many(path: Path, start: int) -> None:
    for number in range(start, start + 25):
        _add(number, path)


def test_no_change_of_several_processes_is_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("runner.state.json_file._PATIENCE", 300.0)  # of a slow disk; who gives up has another test
    path = tmp_path / "numbers.json"
    spawn = multiprocessing.get_context("fork")
    others = [spawn.Process(target=_add_many, args=(path, start)) for start in (0, 100, 200, 300)]
    for each in others:
        each.start()
    reader = _file(path)
    while any(each.is_alive() for each in others):
        assert reader.read().notices == ()  # never a half of one
    for each in others:
        each.join()
        assert each.exitcode == 0
    assert sorted(reader.read().value) == [start + at for start in (0, 100, 200, 300) for at in range(25)]


def test_an_edit_that_changes_nothing_writes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "numbers.json"
    _add(1, path)
    before = path.stat()
    answer, _ = _file(path).change(lambda value: (value, "same"))
    assert answer == "same"
    assert (path.stat().st_ino, path.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


def test_a_lock_that_is_never_given_back_ends_with_a_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "numbers.json"
    holder = subprocess.Popen(
        [
            *(sys.executable, "-I", "-c"),
            "import fcntl,os,sys,time; h=os.open(sys.argv[1],os.O_RDWR|os.O_CREAT,0o600);"
            "fcntl.flock(h,fcntl.LOCK_EX); print('held',flush=True); time.sleep(60)",
            f"{path}.lock",
        ],
        stdout=subprocess.PIPE,
    )
    try:
        assert holder.stdout is not None
        holder.stdout.readline()
        holder.send_signal(signal.SIGSTOP)
        monkeypatch.setattr("runner.state.json_file._PATIENCE", 0.2)
        with pytest.raises(StateError) as caught:
            _add(1, path)
        assert "another process" in caught.value.problem.why
        assert not path.exists()
    finally:
        holder.kill()
        holder.wait()
        if holder.stdout is not None:
            holder.stdout.close()


_FULL = """
import os, resource, signal, sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (64, 64))
from runner.state.json_file import StateError, StateFile
file = StateFile(Path(sys.argv[2]), "the list", 1, tuple, lambda body, v: tuple(body["n"]), lambda v: {"n": list(v)})
try:
    file.change(lambda value: ((*value, *range(1000)), None))
except StateError as error:
    print(error.problem.why)
print(file.read().value)
"""


def test_a_disk_that_takes_no_more_leaves_the_old_content(tmp_path: Path) -> None:
    """RLIMIT_FSIZE ends the write in the middle, as a full disk does (setrlimit(2): EFBIG)."""
    path = tmp_path / "list.json"
    path.write_text('{"version": 1, "n": [4]}')
    path.chmod(0o600)
    root = str(ROOT)
    done = subprocess.run(
        [sys.executable, "-c", _FULL, root, str(path)], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout == "file too large\n(4,)\n"
    assert sorted(each.name for each in tmp_path.iterdir()) == ["list.json", "list.json.lock"]
