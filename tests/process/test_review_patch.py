"""Tests of review patches: real Git applies the patch to the original, which must then equal the copy."""

import os
import subprocess
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from runner.changes.review.gitignore import Ignored, kept_by_git
from runner.changes.review.patch import Patch, patch_of
from runner.changes.review.patch_format import hunks
from runner.changes.review.session import reviewed
from runner.changes.review.workspace_copy import copied
from runner.config import load
from sandbox.inside.files.diff import Effort
from tests.support.law import examples
from tests.support.patch_rows import ROWS, nothing_secret
from tests.support.review_workspaces import BARE, TREES, base, git_apply, make, sh, tree

__all__ = ("base",)  # a fixture


@pytest.mark.threat("T95")
@pytest.mark.parametrize(("before", "work", "files", "why"), ROWS, ids=[row[3] for row in ROWS])
def test_the_patch_makes_the_original_what_the_copy_is(
    base: Path, before: str, work: str, files: dict[str, str], why: str
) -> None:
    (base / "w").mkdir()
    sh(base / "w", before)
    copy = copied(str(base / "w"), str(base))
    sh(copy.path, work)
    was = tree(base / "w")
    patch = patch_of(copy, nothing_secret)
    assert {each.path: each.how for each in patch.files} == files, why
    assert (patch.left_out, patch.moved) == ((), ())
    assert tree(base / "w") == was, "looking changes nothing"
    assert not (Path(copy.path) / "RAN").exists()
    if patch.text:
        done = git_apply(base / "w", patch.text)
        assert done.returncode == 0, (done.stderr, patch.text[:2000])
        sh(copy.path, "chmod -R u+rwX .")
        assert tree(base / "w") == tree(copy.path), why
        back = git_apply(base / "w", patch.text, "--reverse")
        assert (back.returncode, tree(base / "w")) == (0, was), back.stderr


@examples(30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(TREES, TREES)
def test_law_for_any_two_trees(
    base: Path, before: dict[str, tuple[str, bytes]], after: dict[str, tuple[str, bytes]]
) -> None:
    top = Path(tempfile.mkdtemp(dir=base))
    (top / "w").mkdir()
    make(top / "w", before)
    copy = copied(str(top / "w"), str(top))
    sh(copy.path, "find . -mindepth 1 -delete")
    make(Path(copy.path), after)
    patch = patch_of(copy, nothing_secret)
    if patch.text:
        done = git_apply(top / "w", patch.text)
        assert done.returncode == 0, (done.stderr, patch.text)
    assert tree(top / "w") == tree(copy.path)
    copy.remove()


@examples(200)
@given(
    st.lists(st.sampled_from([b"a\n", b"b\n", b"c\n"]), max_size=20),
    st.lists(st.sampled_from([b"a\n", b"b\n", b"d\n"]), max_size=20),
    st.sampled_from([0, 5, 30, 10**6]),
)
def test_law_however_little_effort_the_hunks_are_right(old: list[bytes], new: list[bytes], steps: int) -> None:
    made: list[bytes] = []
    at = 0
    for hunk in hunks(old, new, Effort(steps)):
        made += old[at : hunk.old[0]]
        at = sum(hunk.old)
        assert [line[1:] for line in hunk.lines if line[:1] != b"+"] == old[hunk.old[0] : at]
        assert len(made) == hunk.new[0]
        made += [line[1:] for line in hunk.lines if line[:1] != b"-"]
    assert made + old[at:] == new


def test_texts_made_to_keep_us_busy_are_given_up_on() -> None:
    """Without a bound, minutes: each line is once in both, and none in its place."""
    lines = [b"%d\n" % number for number in range(60_000)]
    effort = Effort(50_000)
    (hunk,) = hunks(lines, sorted(lines, key=lambda line: line[::-1]), effort)
    assert effort.left <= 0
    assert len(hunk.lines) > 119_000, "what was left counts as replaced"


def test_what_others_did_meanwhile_is_not_taken_back(base: Path) -> None:
    (base / "w").mkdir()
    sh(base / "w", "echo 1 > a; echo 1 > b; echo 1 > c; echo 1 > d")
    copy = copied(str(base / "w"), str(base))
    sh(base / "w", "echo mine > a; rm b; echo new > e; echo mine > d")
    sh(copy.path, "echo 2 > c; echo 2 > d")
    patch = patch_of(copy, nothing_secret)
    assert [(each.path, each.how) for each in patch.files] == [("c", "modified"), ("d", "modified")]
    assert patch.moved == ("d",), "the patch is about what is there now"
    assert git_apply(base / "w", patch.text).returncode == 0
    assert tree(base / "w")[b"d"] == ("file", b"2\n")


# what there is, what is done, what Git ignores of it, what is in the patch, why
IGNORED = [
    ("echo '*.o' > .gitignore", "touch x.o y.c; mkdir d; touch d/z.o", ("d/z.o", "x.o"), ("y.c",), "a pattern"),
    ("echo build/ > .gitignore; mkdir build; echo 1 > build/f", "echo 2 > build/f; touch build/g", ("build/f", "build/g"), (), "a folder"),
    ("git init -q; echo '*.o' > .gitignore; echo 1 > x.o; git add -f .", "echo 2 > x.o; touch y.o", ("y.o",), ("x.o",), "what Git keeps is not ignored"),
    ("git init -q; echo y.c > .git/info/exclude", "touch x.c y.c", ("y.c",), ("x.c",), "the repository's own list"),
    ("true", "echo new > .gitignore; touch new", ("new",), (".gitignore",), "a list that came with the change"),
    ("git init -q; echo 1 > a; git add .", "echo '*' > .gitignore; echo 2 > a; touch b", (".gitignore", "b"), ("a",), "no list hides a change to what Git keeps"),
]  # fmt: skip


@pytest.mark.parametrize(("before", "work", "ignored", "there", "why"), IGNORED, ids=[row[4] for row in IGNORED])
def test_what_git_ignores_is_left_out(
    base: Path, before: str, work: str, ignored: tuple[str, ...], there: tuple[str, ...], why: str
) -> None:
    (base / "w").mkdir()
    sh(base / "w", before)
    copy = copied(str(base / "w"), str(base))
    sh(copy.path, work)
    patch = patch_of(copy, nothing_secret)
    assert (patch.ignored, tuple(each.path for each in patch.files)) == (ignored, there), why
    everything = patch_of(copy, nothing_secret, with_ignored=True)
    assert everything.ignored == ()
    assert {each.path for each in everything.files} == {*ignored, *there}


PATTERNS = st.lists(
    st.text(st.sampled_from("ab*?/![]-\\. "), min_size=1, max_size=6).filter(lambda text: text.strip(" ") == text),
    max_size=4,
)
PATHS = st.lists(
    st.lists(st.sampled_from(["a", "b", "ab", "a.b", "-", "a b"]), min_size=1, max_size=3).map("/".join), max_size=8
)


@examples(60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(PATTERNS, PATTERNS, PATHS)
def test_law_git_ignores_the_same(base: Path, outer: list[str], inner: list[str], paths: list[str]) -> None:
    if not (base / "g").exists():
        (base / "g").mkdir()
        sh(base / "g", "git init -q")
    lists = {".gitignore": "\n".join(outer).encode(), "a/.gitignore": "\n".join(inner).encode()}
    sh(base / "g", "find . -mindepth 1 -maxdepth 1 ! -name .git -exec rm -r {} +; mkdir a")
    for name, data in lists.items():
        (base / "g" / name).write_bytes(data)
    done = subprocess.run(
        ["git", "check-ignore", "--no-index", "-z", "--stdin"],
        cwd=base / "g",
        env=BARE,
        input="\0".join(paths).encode(),
        capture_output=True,
    )
    ignored = Ignored(lists.get)
    # A path that is there as a folder is judged as one; these are not there, and count as files.
    wanted = [path for path in paths if path != "a"]
    assert {path for path in wanted if ignored(path)} == {
        os.fsdecode(path) for path in done.stdout.split(b"\0") if path
    } - {"a"}


@pytest.mark.parametrize("version", [2, 3, 4])
def test_what_git_keeps(base: Path, version: int) -> None:
    sh(
        base,
        f"git init -q; mkdir -p d/e; touch a 'b c' d/f d/e/{'l' * 200} é; git add .; touch later; git add -N later; git update-index --index-version {version}",
    )
    names = subprocess.run(["git", "ls-files", "-z"], cwd=base, env=BARE, capture_output=True).stdout.split(b"\0")
    index = (base / ".git/index").read_bytes()
    assert kept_by_git(index) == {os.fsdecode(name) for name in names if name}
    for cut in range(0, len(index), 7):
        kept_by_git(index[:cut])  # raises nothing, whatever stands there


def review(base: Path, before: str, work: str) -> tuple[Patch, dict[str, object]]:
    (base / "home").mkdir()
    (base / "w").mkdir()
    sh(base / "w", before)
    environ = {"HOME": str(base / "home"), "PATH": os.environ["PATH"]}
    with reviewed(base / "w", environ, load(base / "w", environ), where=str(base)) as found:
        said = {"notes": found.notes, "there": sorted(tree(found.cwd)), "cwd": found.cwd.name}
        sh(found.cwd, work)
        patch = found.patch()
    assert not found.cwd.exists()
    return patch, said


@pytest.mark.threat("T94")
def test_secrets_are_neither_copied_nor_in_a_patch(base: Path) -> None:
    patch, said = review(
        base,
        "echo K=1 > .env; mkdir d; echo K > d/id_rsa; echo 1 > a; ln -s d/id_rsa safe",
        "echo 2 > a; echo K=2 > .env; echo T > new.pem",
    )
    assert said["there"] == [b"a", b"safe"]
    assert said["notes"] == ("not in the copy, because they are secrets: .env, d/id_rsa",)
    assert sorted(patch.secrets) == [".env", "new.pem"]
    assert [each.path for each in patch.files] == ["a"]
    assert b"K" not in patch.text
