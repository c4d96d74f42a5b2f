"""Tests of the cost bounds of the change scan of a run: ignore rules, a Git index, time."""

import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from runner.agent.startup import RunArgs
from runner.changes.review import gitignore as module
from runner.changes.review.gitignore import Ignored, kept_by_git
from runner.changes.review.patch import patch_of
from runner.changes.review.patch_format import hunks
from runner.changes.review.tree_diff import OVERTIME, Deadline
from runner.changes.review.workspace_copy import copied
from runner.frontends.ci import changes
from runner.frontends.ci.run import Run
from runner.frontends.output_file import Outlets
from sandbox.inside.files.diff import Effort
from tests.support.job import Job, bash, say
from tests.support.patch_rows import nothing_secret
from tests.support.review_workspaces import BARE, base, sh

__all__ = ("base",)  # a fixture


def test_a_list_is_compiled_once_for_all_paths(monkeypatch: pytest.MonkeyPatch) -> None:
    """The count of compiled lines grows with the lines, and not with lines times paths."""
    compiled: list[str] = []
    real = module._pattern
    monkeypatch.setattr(module, "_pattern", lambda line: compiled.append(line) or real(line))
    lists = {".gitignore": b"".join(b"q%d\n*.w%d\n" % (n, n) for n in range(1000))}
    ignored = Ignored(lists.get)
    assert [path for path in (f"d{n % 7}/n{n}.txt" for n in range(500)) if ignored(path)] == []
    assert ignored("q999")
    assert ignored("x.w999")
    assert len([line for line in compiled if line]) == 2000


def test_lines_without_wildcards_cost_no_tries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MOST_TRIES", 0)
    ignored = Ignored({".gitignore": b"".join(b"q%d\nd/r%d/\n!s%d\n" % (n, n, n) for n in range(3000))}.get)
    assert [path for path in ("q7", "d/q7", "d/r7/", "d/r7", "s7", "t") if ignored(path)] == ["q7", "d/q7", "d/r7/"]
    assert list(ignored.bounds) == []


# the bound and its value here, the lists, a path that Git ignores, what is said
BEYOND: list[tuple[str, int, dict[str, bytes], str, str]] = [
    ("_MOST_LINES", 10, {".gitignore": b"x\n" * 11}, "x", "more than 10 lines"),
    ("_LONGEST", 10, {".gitignore": b"x\n" * 11}, "x", "more than 10 bytes"),
    ("_LONGEST_LINE", 10, {".gitignore": b"x\n" + b"a" * 11}, "x", "a line of more than 10 bytes"),
    ("_MOST_WILD", 10, {".gitignore": b"x*\n" * 6}, "x", "too many lines with wildcards"),
    ("_MOST_WILD", 10, {".gitignore": b"y*\nz*\n", "d/.gitignore": b"x*\n" * 4}, "d/x", "too many lines with wildcards"),
    ("_MOST_TRIES", 10, {".gitignore": b"x\n" + b"y*\n" * 6}, "x", "the lists take too long"),
    ("_MOST_LINES", 10, {".gitignore": b"y\n", "d/.gitignore": b"!x\n" * 11}, "d/y", "files that Git ignores by `d/.gitignore`"),
]  # fmt: skip


@pytest.mark.threat("T120")
@pytest.mark.parametrize(("name", "bound", "lists", "path", "said"), BEYOND, ids=[f"{r[0]}: {r[4]}" for r in BEYOND])
def test_beyond_a_bound_nothing_is_ignored_and_it_is_said(
    name: str, bound: int, lists: dict[str, bytes], path: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert Ignored(lists.get)(path), "within the bounds it is ignored"
    monkeypatch.setattr(module, name, bound)
    ignored = Ignored(lists.get)
    assert not ignored(path) or name == "_MOST_TRIES", "the one answer that took too long is right"
    assert not ignored(path)
    assert [said in each for each in ignored.bounds] == [True]


@pytest.mark.threat("T120")
@pytest.mark.parametrize(
    "lines",
    [
        [b"*" * 4000] * 200, [b"*a" * 2000] * 200, [b"[a-z]" * 800] * 200, [b"?" * 4000] * 200, [b"**/a/" * 800] * 200,
        [b"q*%d" % n for n in range(9000)], [b"[" * 4000] * 200, [b"\\a" * 2000] * 200, [b"a/**/b%d/**" % n for n in range(9000)],
        [b"[[:alpha:]" * 400 + b"]"] * 200, [b"!*%d/" % n for n in range(9000)],
    ],
    ids=lambda lines: str(lines[0][:12]),
)  # fmt: skip
def test_hostile_lists_are_within_the_bounds_or_given_up_on(lines: list[bytes]) -> None:
    """Beyond any bound on time of a test where a list costs lines times paths, or a line costs more than its length."""
    deep = "/".join(["a"] * (200 if b"/" in lines[0] else 20))  # other lines are compared with the last name alone
    ignored = Ignored({".gitignore": b"\n".join(lines)}.get)
    for number in range(2000):
        ignored(f"{deep}/{'a' * 200}{number}")


@pytest.mark.threat("T120")
def test_an_index_that_unpacks_to_more_than_it_is_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """In version 4 a name says how much of the one before it stays (gitformat-index(5)): 64 bytes for any length."""

    def entry(drop: int, name: bytes) -> bytes:
        assert drop < 128
        return bytes(60) + len(name).to_bytes(2, "big") + bytes([drop]) + name + b"\0"

    def index(count: int) -> bytes:
        long = b"a" * 200
        rest = b"".join(bytes(60) + b"\x00\xc9\x01" + b"%c" % (97 + n % 26) + b"\0" for n in range(count - 1))
        head = b"DIRC" + (4).to_bytes(4, "big") + count.to_bytes(4, "big")
        return head + entry(0, long + b"z") + rest + bytes(20)

    assert len(kept_by_git(index(20))) > 1
    monkeypatch.setattr(module, "_NAMES", 2000)
    assert kept_by_git(index(20)) == frozenset()


# ---- time


def _when(count: int) -> Callable[[], bool]:
    """Becomes true when it was asked so often."""
    left = [count]

    def over() -> bool:
        left[0] -= 1
        return left[0] < 0

    return over


@pytest.mark.threat("T120")
@pytest.mark.parametrize("count", [0, 1, 5, 13, 30, 60, 10**6])
def test_whenever_the_time_is_over_each_change_is_in_the_patch_or_named(base: Path, count: int) -> None:
    (base / "w/d/e").mkdir(parents=True)
    sh(base / "w", "for n in 1 2 3 4; do echo $n > $n; echo $n > d/e/$n; done")
    copy = copied(str(base / "w"), str(base))
    sh(Path(copy.path), "for n in 1 2 3; do echo x > $n; echo x > d/e/$n; echo x > d/new$n; done; rm 4 d/e/4")
    patch = patch_of(copy, nothing_secret, over=_when(count))
    every = {f"{top}{n}" for top in ("", "d/e/", "d/new") for n in (1, 2, 3)} | {"4", "d/e/4"}
    seen = {each.path for each in patch.files}
    late = {path for path, why in patch.unfit if why == OVERTIME}
    below = {path for path in every if any(not top or path.startswith(f"{top}/") for top in late)}
    assert seen | late | below >= every
    assert patch.cut == bool(late) == (seen != every)
    sh(base / "w", "git init -q .")
    if patch.text:
        done = subprocess.run(
            ["git", "apply", "--check"], cwd=base / "w", env=BARE, input=patch.text, capture_output=True
        )
        assert done.returncode == 0, done.stderr
    copy.remove()


@pytest.mark.threat("T120")
@pytest.mark.parametrize("count", [0, 1, 4, 8, 10**6])
def test_a_look_that_ends_early_calls_nothing_deleted_that_it_did_not_miss(tmp_path: Path, count: int) -> None:
    sh(tmp_path, "git init -q .; mkdir -p d/e; touch d/e/x d/y z gone; echo '*.o' > .gitignore")
    then = changes.scan_workspace(str(tmp_path))
    sh(tmp_path, "rm gone; echo x > d/e/new; echo x > z; touch a.o")
    look = changes.changes_since(str(tmp_path), then, _when(count))
    assert {(each.path, each.how) for each in look.changed} <= {
        ("gone", "deleted"), ("d/e/new", "added"), ("z", "modified"), ("a.o", "added")
    }  # fmt: skip
    assert look.cut == (count < 10**6) == bool(look.notes)
    if not look.cut:
        assert [each.path for each in look.changed] == ["d/e/new", "gone", "z"]


def test_no_lines_are_compared_when_the_time_is_over() -> None:
    old, new = ([b"%d\n" % n for n in range(start, 900)] for start in (0, 1))
    assert len(list(hunks(old, new, Effort(10**6)))) == 1
    (hunk,) = hunks(old, new[::-1], Effort(10**6, lambda: True))
    assert len(hunk.lines) == 1799


def test_the_time_of_a_look() -> None:
    now = time.monotonic()
    assert not Deadline.of_run(now - 100, 10).over(), "a run that used its time up has some for the look"
    assert not Deadline.of_run(now, None).over()
    assert Deadline(now).over()
    asked = Deadline()
    asked.ask()
    assert asked.over()


@pytest.mark.threat("T120")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_look(number: int) -> None:
    before = [signal.getsignal(each) for each in (signal.SIGTERM, signal.SIGINT)]
    run = Run(RunArgs(), Outlets(), "/", False, False)
    try:
        deadline = run._looking()
        assert not deadline.over()
        os.kill(os.getpid(), number)
        assert deadline.over()
    finally:
        for each, handler in zip((signal.SIGTERM, signal.SIGINT), before, strict=True):
            signal.signal(each, handler)


BOMB = """
with open(".gitignore", "w") as f:
    for i in range(100_000): f.write("q%d*\\n" % i)
for i in range(100): open("n%d.txt" % i, "w").write("x")
"""


@pytest.mark.threat("T120")
@pytest.mark.parametrize("review", [False, True])
def test_ignore_rules_of_a_command_do_not_hold_up_the_result(tmp_path: Path, review: bool) -> None:
    """Before there were bounds this took minutes behind the end of the run, and SIGTERM did not end it."""
    job = Job(tmp_path)
    (job.work / "gi.py").write_text(BOMB)
    model = job.script(bash("python3 gi.py"), say("done"))
    patch = ("--review", "--patch", str(job.out / "p")) if review else ()
    done = job.ci("go", "--model", model, "--mode", "trust-project", "--summary", str(job.out / "summary"), *patch)
    assert done.code == 0, done.err
    changed = {each["path"] for each in done.result["changed"]}  # type: ignore[attr-defined]
    assert {f"n{n}.txt" for n in range(100)} <= changed
    assert "more than 1" in (job.out / "summary").read_text()
    assert not review or (job.out / "p").read_bytes().count(b"\ndiff --git ") >= 100
