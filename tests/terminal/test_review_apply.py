"""Tests of `agent apply`: a patch is applied whole or not at all, and never outside the workspace. Real Git is the
oracle.
"""

import base64
import json
import os
import sqlite3
import subprocess
import sys
import tempfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from runner.audit.log import open_log
from runner.audit.records import Patching
from runner.changes.review.apply import Applied, apply
from runner.changes.review.apply_plan import PatchPlan, plan
from runner.changes.review.hunk_match import Unfit, fitted
from runner.changes.review.patch import patch_of
from runner.changes.review.patch_format import FILE, Side
from runner.changes.review.patch_parser import PatchError, Section, read
from runner.changes.review.risk_flags import changes_of
from runner.changes.review.workspace_copy import copied
from runner.changes.undo.scope import inventory_of, secret_of
from runner.changes.undo.store import Store
from runner.cli.apply import _apply
from runner.config import load
from runner.problems import Stopped
from tests.support import forked_agent
from tests.support.agent_program import AGENT
from tests.support.law import examples
from tests.support.patch_rows import ROWS, nothing_secret
from tests.support.review_workspaces import BARE, TREES, base, git_apply, make, sh, tree
from tests.support.terminal import Terminal
from tests.support.undo_workspace import UndoWorkspace

__all__ = ("base",)  # a fixture


def planned(world: UndoWorkspace, patch: bytes, *, reverse: bool = False) -> PatchPlan:
    sections: tuple[Section, ...] = read(patch)
    if reverse:
        sections = tuple(section.reversed() for section in reversed(sections))
    return plan(str(world.w), sections, secret_of(world.ground))


def applied(world: UndoWorkspace, patch: bytes, *, reverse: bool = False) -> Applied:
    found = planned(world, patch, reverse=reverse)
    assert found.problems == ()
    store = world.store()
    try:
        return apply(found, world.ground, store, "agent apply p", "s")
    finally:
        store.close()


@pytest.mark.parametrize(("before", "work", "files", "why"), ROWS, ids=[row[3] for row in ROWS])
def test_the_patch_makes_the_original_what_the_copy_is(
    base: Path, before: str, work: str, files: dict[str, str], why: str
) -> None:
    world = UndoWorkspace(base)
    sh(world.w, before)
    copy = copied(str(world.w), str(base))
    sh(copy.path, work)
    was = world.picture()
    patch = patch_of(copy, nothing_secret)
    if not patch.text:
        return
    found = planned(world, patch.text)
    assert {item.path: item.how for item in found.items} == files, why
    step = applied(world, patch.text).step
    sh(copy.path, "chmod -R u+rwX .")
    assert tree(world.w) == tree(copy.path), why
    again = planned(world, patch.text)
    assert again.problems or not again.items, "it does not fit twice"
    applied(world, patch.text, reverse=True)
    assert tree(world.w) == {
        path[1:]: (_kind(what), what[2] if what[0] == "file" else what[1])
        for path, what in was.items()
        if what[0] != "folder" and b"/.git/" not in path
    }
    assert step is not None
    assert world.undo(2).whole
    assert {path: what[:3] for path, what in world.picture().items()} == {
        path: what[:3] for path, what in was.items()
    }, "also with folders and modes"


def _kind(what: tuple[object, ...]) -> str:
    return "link" if what[0] == "link" else "program" if int(str(what[1])) & 0o100 else "file"


@examples(20, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    TREES, TREES, st.sampled_from(["", "-M", "-M -C --find-copies-harder", "-U0", "-U1", "--no-renames --full-index"])
)
def test_law_what_git_writes_is_understood(
    base: Path, before: dict[str, tuple[str, bytes]], after: dict[str, tuple[str, bytes]], flags: str
) -> None:
    """Any two trees, and the patch that Git makes of them: both of us answer the same."""
    top = Path(tempfile.mkdtemp(dir=base))
    (top / "w").mkdir()
    world = UndoWorkspace(top)
    make(world.w, before)
    sh(
        world.w,
        "git init -q; git add -A; git -c user.name=x -c user.email=x commit -qm x --allow-empty; find . -mindepth 1 -maxdepth 1 ! -name .git -exec rm -r {} +",
    )
    make(world.w, after)
    sh(world.w, f"git add -A; git diff --cached --binary {flags} > ../p; git reset -q --hard; git clean -qfd")
    patch = (top / "p").read_bytes()
    wanted = {os.fsencode(path): kind for path, (kind, _) in after.items()}
    if patch:
        applied(world, patch)
    assert {path: kind for path, (kind, _) in tree(world.w).items()} == wanted
    assert tree(world.w) == _tree_of(after)


def _tree_of(wanted: dict[str, tuple[str, bytes]]) -> dict[bytes, tuple[str, bytes]]:
    with tempfile.TemporaryDirectory() as folder:
        make(Path(folder), wanted)
        return tree(folder)


LINE = st.sampled_from([b"a\n", b"b\n", b"c\n", b"d\n"])


@examples(60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(LINE, max_size=12), st.data(), st.lists(LINE, max_size=3), st.lists(LINE, max_size=3), st.integers(0, 3)
)
def test_law_where_git_refuses_so_do_we(
    base: Path, old: list[bytes], data: st.DataObject, above: list[bytes], below: list[bytes], context: int
) -> None:
    """A patch for one file, held against another that is nearly the same."""
    new = [line for line in old if data.draw(st.integers(0, 4))]
    new.insert(data.draw(st.integers(0, len(new))), b"x\n")
    folder = base / "law"
    folder.mkdir(exist_ok=True)
    (folder / "one").write_bytes(b"".join(old))
    (folder / "two").write_bytes(b"".join(new))
    done = subprocess.run(
        ["git", "diff", "--no-index", f"-U{context}", "one", "two"], cwd=folder, env=BARE, capture_output=True
    )
    patch = done.stdout.replace(b"two", b"one")
    if not old or not patch:
        return
    other = [*above, *old, *below]
    (folder / "one").write_bytes(b"".join(other))
    git = git_apply(folder, patch, *(["--unidiff-zero"] if context == 0 else []))
    (section,) = read(patch)
    try:
        mine = fitted(section, Side(FILE, b"".join(other)))[0]
    except Unfit:
        mine = None
    if git.returncode == 0 and context:
        assert mine is not None
        theirs = (folder / "one").read_bytes()  # where several places fit as well, ours may be another
        assert sorted(mine.data.splitlines()) == sorted(theirs.splitlines())
    elif git.returncode:
        # Without lines around it a hunk may be one of `-U0`, whose place is its number.
        assert mine is None or not any(line.startswith(b" ") for hunk in section.hunks for line in hunk.lines)


HEAD = "diff --git a/{0} b/{0}\nnew file mode {1}\n--- /dev/null\n+++ b/{0}\n@@ -0,0 +1 @@\n+x\n"


def new(path: str, mode: str = "100644") -> bytes:
    return HEAD.format(path, mode).encode()


LINKED = b"diff --git a/l b/l\nnew file mode 120000\n--- /dev/null\n+++ b/l\n@@ -0,0 +1 @@\n+%s\n\\ No newline at end of file\n"
COPY = b"diff --git a/a b/c\nsimilarity index 100%\ncopy from a\ncopy to c\n"
CHANGE = b"diff --git a/a b/a\nold mode 100644\nnew mode 100755\n--- a/a\n+++ b/a\n@@ -1 +1 @@\n-1\n+2\n"


@pytest.mark.parametrize("patch", [COPY + CHANGE, CHANGE + COPY], ids=["before", "after"])
def test_a_copy_is_of_what_was_there_before_the_patch(base: Path, patch: bytes) -> None:
    world = UndoWorkspace(base)
    (base / "git").mkdir()
    for each in (world.w, base / "git"):
        sh(each, "echo 1 > a")
    applied(world, patch)
    assert git_apply(base / "git", patch).returncode == 0
    assert tree(world.w) == tree(base / "git")
    assert (world.w / "c").read_text() == "1\n"


# what there is, the patch, the path that is named, and why it is refused
ESCAPES: list[tuple[str, bytes, str, str]] = [
    ("true", new("../out"), "../out", "it points out of the workspace"),
    ("true", new("d/../../out"), "d/../../out", "it points out of the workspace"),
    ("true", new("/etc/x"), "/etc/x", "it is not a path in the workspace"),
    ("true", new(".git/hooks/pre-commit", "100755"), ".git/hooks/pre-commit", "it is in Git's own folder"),
    ("true", new(".GIT/config"), ".GIT/config", "it is in Git's own folder"),
    ("true", new(".git\u200c/config"), ".git\u200c/config", "it is in Git's own folder"),
    ("true", new("d/git~1/config"), "d/git~1/config", "it is in Git's own folder"),
    ("true", new(".git. ./x"), ".git. ./x", "it is in Git's own folder"),
    ("true", new(".git"), ".git", "it is in Git's own folder"),
    ("true", new("d//x"), "d//x", "it is not a plain path"),
    ("true", new("./x"), "./x", "it is not a plain path"),
    ("ln -s /tmp d", new("d/x"), "d/x", "its folder `d` is a link"),
    ("mkdir e; ln -s ../out e/d", new("e/d/x"), "e/d/x", "its folder `e/d` is a link"),
    ("mkdir ../f; echo 1 > ../f/x; ln -s ../f d", b"--- a/d/x\n+++ b/d/x\n@@ -1 +1 @@\n-1\n+2\n", "d/x", "its folder `d` is a link"),
    ("echo 1 > d", new("d/x"), "d/x", "its folder `d` is a file"),
    ("true", LINKED % b"/tmp" + new("l/x"), "l/x", "its folder `l` is a file or link of this patch"),
    ("true", new("l/x") + LINKED % b"/tmp", "l/x", "its folder `l` is a file or link of this patch"),
    ("mkdir d; echo 1 > d/mine", new("d"), "d", "there is a folder with other files"),
    ("echo 1 > a", new("a"), "a", "the file exists already"),
    ("ln -s nowhere a", new("a"), "a", "the file exists already"),
    ("ln -s ../out a", b"--- a/a\n+++ b/a\n@@ -1 +1 @@\n-secret\n+x\n", "a", "hunk 1 of 1 (line 1) does not fit: the lines differ"),
    ("mkfifo a", b"--- a/a\n+++ b/a\n@@ -1 +1 @@\n-1\n+x\n", "a", "it is not a file, folder or link"),
    ("ln -s ../out a", b"diff --git a/a b/c\nrename from a\nrename to c\n--- a/a\n+++ b/c\n@@ -1 +1 @@\n-secret\n+x\n", "c", "hunk 1 of 1 (line 1) does not fit: the lines differ"),
    ("true", b"diff --git a/a b/a\ndeleted file mode 100644\n", "a", "there is no such file"),
    ("echo 1 > a", b"diff --git a/a b/a\ndeleted file mode 100644\n", "a", "it is not empty"),
    ("seq 9 > a", b"--- a/a\n+++ b/a\n@@ -1 +1 @@\n-1\n+x\n@@ -5 +5 @@\n-7\n+y\n", "a", "hunk 2 of 2 (line 5) does not fit: the lines differ"),
    ("seq 9 > a", b"--- a/a\n+++ b/a\n@@ -4,3 +4,3 @@\n 4\n-x\n+5\n 6\n", "a", "hunk 1 of 1 (line 4) is applied already"),
    ("true", b"diff --git a/x b/x\nnew file mode 120000\nindex 0000000..e69de29\n", "x", "its target does not exist"),
]  # fmt: skip


@pytest.mark.threat("T95")
@pytest.mark.parametrize(("before", "patch", "path", "why"), ESCAPES, ids=[f"{row[2]}: {row[3]}" for row in ESCAPES])
def test_what_no_patch_may_do(base: Path, before: str, patch: bytes, path: str, why: str) -> None:
    (base / "out").write_text("secret\n")
    world = UndoWorkspace(base)
    sh(world.w, before)
    was = tree(world.w) if "fifo" not in before else {}
    assert planned(world, patch).problems == ((path, why),)
    assert (base / "out").read_text() == "secret\n"
    if was:
        assert tree(world.w) == was


# a patch, the line that is named, the words of it
DAMAGED: list[tuple[bytes, str, str]] = [
    (b"hello\n", "", "it contains no line `diff --git`"),
    (b"@@ -1 +1 @@\n-a\n+b\n", "line 1", "the file of this hunk is not named"),
    (b"--- a/a\n+++ b/a\n", "line 3", "no hunk follows"),
    (b"--- a/a\n+++ b/a\n@@ -1,3 +1 @@\n-a\n", "line 5", "in the middle of a hunk"),
    (b"--- a/a\n+++ b/a\n@@ -1 +1 @@\n-a\n-b\n+c\n", "line 5", "does not have the length in its header"),
    (b"--- a/a\n+++ b/a\n@@ -1,2 +1 @@\n-a\nb\n", "line 5", "does not have the length in its header"),
    (b"--- a\n+++ b\n@@ -1 +1 @@\n-a\n+b\n", "line 1", "has no folder in front"),
    (b"diff --git a/a b/a\nold mode 160000\n", "line 2", "another repository"),
    (b"diff --git a/a b/a\nnew file mode 020000\n", "line 2", "not a file or link (mode 020000)"),
    (b"diff --git a/a b/a\nindex 1234567..7654321 100644\n--- a/b\n+++ b/b\n@@ -1 +1 @@\n-a\n+b\n", "line 3", "name another file"),
    (b"diff --git a/a b/a\nBinary files a/a and b/a differ\n", "line 2", "but not the difference"),
    (b"diff --git a/a b/a\nGIT binary patch\nliteral 5\nzzzz\n\n", "line 4", "damaged"),
    (b"diff --git a/a b/a\nGIT binary patch\nliteral 99999999999999\nzzzz\n\n", "line 3", "too large"),
    (b"diff --git a/a b/a\nGIT binary patch\nsomething\n", "line 3", "content of a binary file is missing"),
    (b"diff --cc a\n", "line 1", "merge"),
    (b"diff --git a/x b/y\n", "line 2", "does not name its file"),
    (b'diff --git "a/\\q" "b/\\q"\n', "line 2", "does not name its file"),
    (b"diff --git a/a b/a\nrename from \"a\nrename to b\n", "line 2", "wrongly quoted"),
]  # fmt: skip


@pytest.mark.parametrize(("patch", "line", "words"), DAMAGED, ids=[row[2] for row in DAMAGED])
def test_what_is_no_patch(patch: bytes, line: str, words: str) -> None:
    with pytest.raises(PatchError) as error:
        read(patch)
    assert words in error.value.problem.why
    assert error.value.problem.what.endswith(line) or not line


def _binary(path: bytes, kind: bytes, data: bytes) -> bytes:
    packed = zlib.compress(data)
    lines = [b"diff --git a/%s b/%s\nGIT binary patch\n%s %d\n" % (path, path, kind, len(data))]
    for start in range(0, len(packed), 52):
        piece = packed[start : start + 52]
        length = len(piece) + (64 if len(piece) <= 26 else 70)
        lines.append(bytes([length]) + base64.b85encode(piece, pad=True) + b"\n")
    return b"".join(lines) + b"\n"


ONE = _binary(b"a", b"literal", bytes(600))
# sections of a patch, the words of the Problem; the bound is 1,000 bytes
INFLATED: list[tuple[tuple[bytes, ...], str, str]] = [
    ((ONE,), "", "within the bound"),
    ((ONE, _binary(b"b", b"literal", bytes(400))), "", "exactly the bound"),
    ((_binary(b"a", b"literal", bytes(1001)),), "too large", "one"),
    ((ONE, _binary(b"b", b"literal", bytes(401))), "too large", "two together"),
    ((_binary(b"a", b"delta", b"\x00\xe9\x07\x01a"),), "too large", "a delta that makes 1,001 bytes of nothing"),
    ((ONE, _binary(b"a", b"delta", b"\x00\xe8\x03" + b"\x01a" * 200),), "too large", "a content and a delta"),
    ((_binary(b"a", b"delta", b"\x80" * 700),), "damaged", "a number without end"),
    ((_binary(b"a", b"delta", b"\x00"),), "damaged", "a delta without a size"),
]  # fmt: skip


@pytest.mark.threat("T119")
@pytest.mark.parametrize(("sections", "words", "why"), INFLATED, ids=[row[2] for row in INFLATED])
def test_contents_of_a_patch_are_counted_together(
    sections: tuple[bytes, ...], words: str, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("runner.changes.review.patch_parser.LARGEST", 1000)
    if not words:
        assert len(read(b"".join(sections))) == len(sections)
        return
    with pytest.raises(PatchError, match=words):
        read(b"".join(sections))


@examples(300, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_law_no_damage_does_more_than_be_refused(base: Path, data: st.DataObject) -> None:
    if not (base / "patches").exists():
        (base / "patches").mkdir()
        (base / "w").mkdir()
        sh(
            base / "w",
            "seq 30 > a; head -c 99 /dev/urandom > b; ln -s a l; git init -q; git add .; sed -i 's/^9$/x/; 28d' a; mv b c; echo >> c; rm l; ln -s b l; chmod 755 a; git add .; git diff HEAD --binary -M > ../patches/p 2>&1 || git diff --cached --binary > ../patches/p",
        )
    whole = (base / "patches" / "p").read_bytes()
    at = data.draw(st.integers(0, len(whole)))
    cut = data.draw(st.integers(0, 20))
    put = data.draw(
        st.one_of(
            st.binary(max_size=8),
            st.sampled_from([b"@@ -1 +1 @@\n", b"\n", b"--- a/a\n+++ b/a\n", b"../", b"\\ No\n", b"delta 5\n"]),
        )
    )
    patch = whole[:at] + put + whole[at + cut :]
    try:
        found = plan(str(base / "w"), read(patch), nothing_secret)
        for section in read(patch):
            section.reversed()
    except PatchError:
        return
    for item in found.items:
        assert ".." not in item.path.split("/")


def test_it_is_all_or_nothing(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = UndoWorkspace(base)
    sh(world.w, "echo 1 > a; echo 1 > b; mkdir d; echo 1 > d/x")
    copy = copied(str(world.w), str(base))
    sh(copy.path, "echo 2 > a; echo 2 > z; rm -r d; mkdir n; echo 2 > n/x")
    patch = patch_of(copy, nothing_secret).text
    was = world.picture()
    real = os.rename

    def failing(source: object, target: object, **more: object) -> None:
        if target == "z":
            raise OSError(28, "No space left on device")
        real(source, target, **more)  # type: ignore[arg-type]  # as it is called

    monkeypatch.setattr(os, "rename", failing)
    with pytest.raises(PatchError, match="nothing was applied") as error:
        applied(world, patch)
    assert error.value.problem.why == "`z`: no space left on device"
    assert {path: what[:3] for path, what in world.picture().items()} == {path: what[:3] for path, what in was.items()}


@pytest.mark.parametrize(("error", "why"), [
    (OSError(28, "No space left on device"), "no space left on device"),
    (sqlite3.OperationalError("database is locked"), "database is locked"),
])  # fmt: skip
def test_a_store_that_cannot_be_written_is_named_and_recorded(
    base: Path, error: Exception, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = UndoWorkspace(base)
    sh(world.w, "echo 1 > a")
    copy = copied(str(world.w), str(base))
    sh(copy.path, "echo 2 > a")
    found = planned(world, patch_of(copy, nothing_secret).text)

    def failing(*_: object) -> None:
        raise error

    monkeypatch.setattr(Store, "keep", failing)
    monkeypatch.setenv("RINGFENCE_STATE_DIR", world.environ["RINGFENCE_STATE_DIR"])
    settings = load(world.w, os.environ, unattended=True)
    patching = Patching("p", "", "--yes", False, str(world.w), ())
    with pytest.raises(Stopped, match="cannot be used") as stopped:
        _apply(world.ground, settings, found, (), patching, unattended=True)
    assert stopped.value.problem.why == why
    with open_log(settings, os.environ) as audit:
        assert [record.kind for record in audit.rows(limit=1)] == ["finished"]


def test_a_change_in_between_is_not_overwritten(base: Path) -> None:
    world = UndoWorkspace(base)
    sh(world.w, "echo 1 > a; echo 1 > b")
    copy = copied(str(world.w), str(base))
    sh(copy.path, "echo 2 > a; echo 2 > b")
    found = planned(world, patch_of(copy, nothing_secret).text)
    sh(world.w, "echo mine > b")
    store = world.store()
    with pytest.raises(PatchError, match="nothing was applied") as error:
        apply(found, world.ground, store, "agent apply p", "s")
    assert store.steps() == []
    store.close()
    assert error.value.problem.why == "`b`: another process changed it just now"
    assert (world.w / "a").read_text() == "1\n"


@pytest.mark.threat("T95")
def test_what_makes_a_warning_in_between_stops_it(base: Path) -> None:
    """A user makes the rest of a repository while a person looks at a patch that adds one file."""
    world = UndoWorkspace(base)
    sh(world.w, f"mkdir sub; printf {EVIL!r} > sub/config")
    found = planned(world, REF)
    sh(world.w, "mkdir sub/objects sub/refs")
    store = world.store()
    with pytest.raises(PatchError, match="nothing was applied") as error:
        apply(found, world.ground, store, "agent apply p", "s", warned=())
    assert store.steps() == []
    store.close()
    assert error.value.problem.why.startswith("`sub/HEAD`: now, with it, Git treats `sub` as a repository")
    assert not (world.w / "sub/HEAD").exists()


def test_a_file_with_two_names_is_written_under_one(base: Path) -> None:
    """THREAT T18: nothing is written into a file that lies elsewhere as well."""
    world = UndoWorkspace(base)
    sh(world.w, "echo 1 > ../elsewhere; ln ../elsewhere a")
    applied(world, b"--- a/a\n+++ b/a\n@@ -1 +1 @@\n-1\n+2\n")
    assert ((world.w / "a").read_text(), (base / "elsewhere").read_text()) == ("2\n", "1\n")


# what there is, the patch, what `agent undo` cannot restore
LASTING = [
    ("mkdir node_modules; echo '{}' > package.json; echo 1 > node_modules/i", b"--- a/node_modules/i\n+++ b/node_modules/i\n@@ -1 +1 @@\n-1\n+2\n" + new("a"), ("node_modules/i",)),
    ("echo 1 > .env", b"--- a/.env\n+++ b/.env\n@@ -1 +1 @@\n-1\n+2\n", (".env",)),
    ("mkdir d; echo 1 > d/x", b"--- a/d/x\n+++ /dev/null\n@@ -1 +0,0 @@\n-1\n" + new("e/x"), ()),
]  # fmt: skip


@pytest.mark.parametrize(("before", "patch", "lasting"), LASTING)
def test_what_cannot_be_taken_back_is_named(base: Path, before: str, patch: bytes, lasting: tuple[str, ...]) -> None:
    world = UndoWorkspace(base)
    sh(world.w, before)
    was = tree(world.w)
    assert applied(world, patch).lasting == lasting
    applied(world, patch, reverse=True)
    assert tree(world.w) == was


def agent(world: UndoWorkspace, *words: str, stdin: bytes = b"") -> subprocess.CompletedProcess[str]:
    done = forked_agent.run([AGENT, *words], cwd=world.w, env=world.environ, input=stdin, capture_output=True)
    return subprocess.CompletedProcess(words, done.returncode, done.stdout.decode(), done.stderr.decode())


# Runs `agent` as each line of JSON says, and answers with a line of the exit code and both outputs.
IN_ONE_PROCESS = """
import base64, io, json, os, sys
from runner.cli.main import main
requests, answers = os.fdopen(os.dup(0)), os.fdopen(os.dup(1), "w")
sys.argv[0] = "agent"
for line in requests:
    sys.argv[1:], cwd, environ, given = json.loads(line)
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(environ)
    files = [os.memfd_create("stream") for _ in range(3)]
    os.write(files[0], base64.b64decode(given))
    os.lseek(files[0], 0, os.SEEK_SET)
    for number, file in enumerate(files):
        os.dup2(file, number)
    sys.stdout, sys.stderr = (io.TextIOWrapper(io.FileIO(each, "w", closefd=False), "utf-8") for each in (1, 2))
    code = main()
    sys.stdout.flush()
    sys.stderr.flush()
    written = [os.pread(file, os.fstat(file).st_size, 0).decode() for file in files[1:]]
    for file in files:
        os.close(file)
    print(json.dumps([code, *written]), file=answers, flush=True)
"""
Command = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="module")
def command() -> Iterator[Command]:
    """Yield a function like `agent`, whose commands run one after the other in one process.

    Not for tests that a secret is not shown: an earlier command may have registered it, and then it is redacted.
    """
    words = [sys.executable, "-c", IN_ONE_PROCESS]
    with forked_agent.Process(words, cwd="/", stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        asks, tells = process.stdin, process.stdout

        def run(world: UndoWorkspace, *words: str, stdin: bytes = b"") -> subprocess.CompletedProcess[str]:
            given = base64.b64encode(stdin).decode()
            print(json.dumps([words, str(world.w), world.environ, given]), file=asks, flush=True)
            code, out, err = json.loads(tells.readline())
            return subprocess.CompletedProcess(words, code, out, err)

        yield run


BOTH = new("a") + b"--- /dev/null\n+++ b/b\n@@ -0,0 +1 @@\n+\x1b[2Jhi\xe2\x80\xae\n"


@pytest.mark.threat("T95")
def test_the_command(base: Path) -> None:
    world = UndoWorkspace(base)
    (base / "p").write_bytes(BOTH)
    checked = agent(world, "apply", "--check", "../p")
    assert (checked.returncode, list(world.w.iterdir())) == (0, [])
    assert "␛[2Jhi<U+202E>" in checked.stdout
    assert "\x1b" not in checked.stdout
    assert "note: `b`: a new line contains characters that hide or reorder text: <U+202E>" in checked.stdout
    done = agent(world, "apply", "--yes", "../p")
    assert (done.returncode, sorted(os.listdir(world.w))) == (0, ["a", "b"])
    assert "`agent undo` reverses it" in done.stdout
    again = agent(world, "apply", "--yes", "--json", "../p")
    assert again.returncode == 1
    assert json.loads(again.stdout)["problems"][0] == {"path": "a", "why": "the file exists already"}
    (base / "none").write_bytes(b"\n")  # of `git diff` without changes
    for words in (("../none",), ("--yes", "../none"), ("--check", "../none")):
        empty = agent(world, "apply", *words)
        assert (empty.returncode, empty.stdout) == (0, "the patch is empty; nothing was changed\n"), words
    assert json.loads(agent(world, "apply", "--yes", "--json", "../none").stdout)["applied"] is False
    assert agent(world, "undo").returncode == 0
    assert os.listdir(world.w) == []
    listed = agent(world, "audit", "list", "--path", f"{world.w}/b")
    assert "apply  ../p" in listed.stdout
    assert "the user applied a patch to 2 files" in listed.stdout
    assert "answered: yes, by --yes" in listed.stdout
    assert "exit 0 after" in listed.stdout


# what is typed, the code, whether it is applied
@pytest.mark.parametrize(
    ("typed", "code", "done"), [("yes\n", 0, True), ("no\n", 1, False), ("\n", 1, False), ("\x04", 1, False)]
)
def test_the_question(base: Path, typed: str, code: int, done: bool) -> None:
    world = UndoWorkspace(base)
    (base / "p").write_bytes(BOTH)
    terminal = Terminal([AGENT, "apply", "../p"], world.w, {**world.environ, "TERM": "xterm"})
    try:
        terminal.until("[yes / no]")
        assert "\x1b[32m+␛[2Jhi<U+202E>" in terminal.seen, "colours are ours, the rest is spelled out"
        assert os.listdir(world.w) == []
        terminal.type(typed)
        assert terminal.end() == code
    finally:
        terminal.close()
    assert (sorted(os.listdir(world.w)) == ["a", "b"]) is done


# the patch, what `--yes` alone says to it
SEVERE = [
    (new(".vscode/tasks.json"), "it is an auto-run file"),
    (new(".env"), "it has the name of a secret"),
    (LINKED % b"/etc/passwd", "it is a link that leads to /etc/passwd"),
    (LINKED % b"../../x", "it is a link that points out of the workspace"),
    (LINKED % b".git/config", "it is a link that points into Git's own folder"),
    (LINKED % b".Git/config", "it is a link that points into Git's own folder"),
]


@pytest.mark.threat("T95")
@pytest.mark.parametrize(("patch", "words"), SEVERE, ids=[row[1] for row in SEVERE])
def test_a_yes_that_nobody_gave_at_a_terminal_is_not_enough(
    command: Command, base: Path, patch: bytes, words: str
) -> None:
    world = UndoWorkspace(base)
    done = command(world, "apply", "-", "--yes", stdin=patch)
    assert (done.returncode, os.listdir(world.w)) == (1, [])
    assert words in done.stderr
    assert command(world, "apply", "-", "--yes", "--anyway", stdin=patch).returncode == 0
    assert len(os.listdir(world.w)) == 1


# the words, the code, what is said
USAGE = [
    (("apply", "../p"), 2, "no user can be asked"),
    (("apply", "../missing", "--yes"), 2, "no such file"),
    (("apply", "../p", "--anyway"), 2, "--anyway needs --yes"),
    (("apply", "../p", "--check", "--yes"), 2, "--check applies nothing"),
    (("apply", "../p", "--json"), 2, "add --yes"),
    (("apply", "../no", "--yes"), 1, "this is not a patch"),
]


@pytest.mark.parametrize(("words", "code", "said"), USAGE)
def test_mistakes(base: Path, words: tuple[str, ...], code: int, said: str) -> None:
    world = UndoWorkspace(base)
    (base / "p").write_bytes(new("a"))
    (base / "no").write_text("hello\n")
    done = agent(world, *words)
    assert (done.returncode, os.listdir(world.w)) == (code, [])
    assert said in done.stderr


def put(path: str, text: str, mode: str = "100644") -> bytes:
    """A patch that adds one file."""
    lines = text.splitlines()
    head = (
        f"diff --git a/{path} b/{path}\nnew file mode {mode}\n--- /dev/null\n+++ b/{path}\n@@ -0,0 +1,{len(lines)} @@\n"
    )
    return (head + "".join(f"+{line}\n" for line in lines)).encode()


def cut(path: str, line: str) -> bytes:
    """A patch that takes a file of one line away."""
    return f"diff --git a/{path} b/{path}\ndeleted file mode 100644\n--- a/{path}\n+++ /dev/null\n@@ -1 +0,0 @@\n-{line}\n".encode()


def moved(verb: str, old: str, new: str) -> bytes:
    head = f"diff --git a/{old} b/{new}\nsimilarity index 100%\n"
    return f"{head}{verb} from {old}\n{verb} to {new}\n".encode()


def mode(path: str, old: str, new: str) -> bytes:
    return f"diff --git a/{path} b/{path}\nold mode {old}\nnew mode {new}\n".encode()


EVIL = '[core]\n\tbare = false\n\tworktree = ..\n\tfsmonitor = "touch ../RAN; false"\n'
SETTINGS = put("sub/config", EVIL)
REF = put("sub/HEAD", "ref: refs/heads/main")
HALF = put("sub/objects/x", "x") + put("sub/refs/x", "x")
BARE_FOLDER = (
    "mkdir -p sub/objects sub/refs; echo x > sub/objects/x; echo x > sub/refs/x; echo 'ref: refs/heads/main' > sub/HEAD"
)
ALIVE = f"printf %s {EVIL!r} > sub/config"

# what there is, the patch, the paths that are warned of, why
PLANTS: list[tuple[str, bytes, set[str], str]] = [
    ("true", REF + HALF + SETTINGS, {"sub/config"}, "a whole bare repository"),
    (BARE_FOLDER, SETTINGS, {"sub/config"}, "settings for one that is there"),
    (f"mkdir sub; printf {EVIL!r} > sub/config", REF + HALF, {"sub/HEAD", "sub/objects/x", "sub/refs/x"}, "a repository around settings that are there"),
    (f"{BARE_FOLDER}; printf {EVIL!r} > sub/config; rm sub/HEAD", REF, {"sub/HEAD"}, "the last missing file of it"),
    (f"{BARE_FOLDER}; printf {EVIL!r} > sub/config; mv sub/HEAD head", moved("rename", "head", "sub/HEAD"), {"sub/HEAD"}, "by a rename"),
    (f"{BARE_FOLDER}; printf {EVIL!r} > sub/config; mv sub/HEAD head", moved("copy", "head", "sub/HEAD"), {"sub/HEAD"}, "by a copy"),
    (f"{BARE_FOLDER}; printf {EVIL!r} > plain", moved("copy", "plain", "sub/config"), {"sub/config"}, "settings by a copy"),
    (f"{BARE_FOLDER}; printf {EVIL!r} > sub/config; echo none > sub/HEAD", cut("sub/HEAD", "none") + REF, {"sub/HEAD"}, "a HEAD that was none"),
    (f"{BARE_FOLDER}; printf {EVIL!r} > sub/config; rm -r sub/refs; echo x > sub/refs", mode("sub/refs", "100644", "100755"), {"sub/refs"}, "by a mode: access(2) is all that Git asks"),
    (f"{BARE_FOLDER}; printf {EVIL!r} > sub/config; rm -r sub/refs; echo x > sub/refs", cut("sub/refs", "x") + put("sub/refs/x", "x"), {"sub/refs", "sub/refs/x"}, "by taking away a file that was in the way"),
    ("true", HALF + SETTINGS + b"diff --git a/sub/HEAD b/sub/HEAD\nnew file mode 120000\n--- /dev/null\n+++ b/sub/HEAD\n@@ -0,0 +1 @@\n+refs/heads/main\n\\ No newline at end of file\n", {"sub/config"}, "HEAD as a link to nothing"),
    ("true", REF + put("sub/commondir", "../store") + put("store/objects/x", "x") + put("store/refs/x", "x") + put("store/config", EVIL), {"sub/commondir", "store/config"}, "settings that it shares"),
    (f"mkdir -p sub store/objects store/refs; printf {EVIL!r} > store/config; echo ../store > sub/commondir", REF, {"sub/HEAD"}, "around settings elsewhere"),
    (BARE_FOLDER, put("sub/commondir", "../store"), {"sub/commondir"}, "settings from elsewhere"),
    (f"{BARE_FOLDER}; echo ../x > sub/commondir; printf {EVIL!r} > sub/config", cut("sub/commondir", "../x"), {"sub/commondir"}, "settings that count again"),
    (BARE_FOLDER, put("sub/hooks/post-checkout", "touch RAN", "100755"), {"sub/hooks/post-checkout"}, "a hook"),
    (f"{BARE_FOLDER}; mkdir sub/hooks; echo x > sub/hooks/pre-commit", mode("sub/hooks/pre-commit", "100644", "100755"), {"sub/hooks/pre-commit"}, "a hook that becomes one"),
    (BARE_FOLDER, put("sub/config.worktree", EVIL), {"sub/config.worktree"}, "settings of one worktree"),
    (BARE_FOLDER, put("sub/info/attributes", "* filter=x"), {"sub/info/attributes"}, "attributes"),
    ("true", REF.replace(b"sub/", b"") + HALF.replace(b"sub/", b"") + put("config", EVIL), {"config"}, "the workspace itself"),
    ("true", REF.replace(b"sub", b"a/b") + HALF.replace(b"sub", b"a/b") + put("a/b/config", EVIL), {"a/b/config"}, "deeper down"),
    ("git init -q .; git config include.path ../settings.inc", put("settings.inc", EVIL), {"settings.inc"}, "where settings lead, there or not"),
    (f"{BARE_FOLDER}; printf {EVIL!r} > sub/config; rm sub/HEAD; ln -s ../plain sub/HEAD", put("plain", "ref: refs/heads/main"), {"plain"}, "where a link of it leads"),
    (f"{BARE_FOLDER}; printf {EVIL!r} > sub/config; rm -r sub/refs; ln -s ../d/r sub/refs", put("d/r/x", "1"), {"d/r/x"}, "in a folder where a link of it leads"),
    ("true", LINKED.replace(b"/l", b"/.hg") % b"h" + put("h/hgrc", "[hooks]"), {".hg"}, "a link above a name that counts"),
    ("mkdir h; echo 1 > h/hgrc", LINKED.replace(b"/l", b"/a/.hg") % b"../h", {"a/.hg"}, "the same around what is there, deeper down"),
    ("true", LINKED.replace(b"/l", b"/bin") % b"s" + put("s/hermit", "x"), {"bin"}, "a link of a plain name, behind which something counts"),
    ("true", LINKED.replace(b"/l", b"/bin") % b"s" + put("s/x", "x"), set(), "and behind which nothing does"),
    ("true", put(".hg/sharedpath", "../evil") + put("evil/hgrc", "x"), {".hg/sharedpath"}, "settings of Mercurial elsewhere"),
    ("true", put(".jj/repo", "../evil") + put("evil/config.toml", "x"), {".jj/repo"}, "settings of Jujutsu elsewhere"),
    ("mkdir .jj; mkdir .jj/repo", put(".jj/repo/x", "x"), set(), "no settings of it"),
    ("mkdir -p a/vs b/vs; echo 1 > a/vs/f; echo 1 > b/vs/f; ln -s a conf; ln -s conf/vs .vscode", b"diff --git a/conf b/conf\n--- a/conf\n+++ b/conf\n@@ -1 +1 @@\n-a\n\\ No newline at end of file\n+b\n\\ No newline at end of file\n", {"conf"}, "a link on the way to what counts"),
    ("git init -q .; git -c user.name=n -c user.email=e commit -q --allow-empty -m 1; git worktree add -q wt; git config core.hooksPath hk", put("wt/hk/pre-commit", "x"), {"wt/hk/pre-commit"}, "hooks that settings name, in a second worktree"),
    ("true", put("sub/config", EVIL) + put("sub/HEAD", "x"), set(), "no repository"),
    ("true", put("config", "x") + put("objects/x", "x") + put("refs/x", "x"), set(), "nor this"),
    ("git init -q --bare sub", put("sub/notes", "words"), set(), "what Git does not obey"),
    ("git init -q --bare sub; git -C sub config core.bare true", b"--- a/sub/HEAD\n+++ b/sub/HEAD\n@@ -1 +1 @@\n-ref: refs/heads/master\n+ref: refs/heads/x\n", set(), "another branch of one that was there"),
]  # fmt: skip


@pytest.mark.threat("T16")
@pytest.mark.threat("T95")
@pytest.mark.parametrize(("before", "patch", "warned", "why"), PLANTS, ids=[row[3] for row in PLANTS])
def test_a_repository_that_a_patch_brings_together_is_warned_of(
    command: Command, base: Path, before: str, patch: bytes, warned: set[str], why: str
) -> None:
    world = UndoWorkspace(base)
    sh(world.w, before)
    was = tree(world.w)
    checked = command(world, "apply", "--check", "--json", "-", stdin=patch)
    answer = json.loads(checked.stdout)
    assert answer["problems"] == [], why
    assert {each["path"] for each in answer["warnings"] if each["severe"]} == warned, why
    done = command(world, "apply", "--yes", "-", stdin=patch)
    assert done.returncode == (1 if warned else 0), why
    assert (tree(world.w) == was) is bool(warned)


SECRET = "TOKEN=abc-canary"
# what there is, the patch, why; none is applied, whatever is said
TAKES: list[tuple[str, bytes, str]] = [
    ("true", moved("copy", ".env", "public.txt"), "a copy"),
    ("true", moved("rename", ".env", "public.txt"), "another name"),
    ("true", moved("rename", "public.txt", ".env"), "reversed"),
    ("true", moved("copy", ".env", "a") + moved("copy", "a", "b"), "a copy of a copy"),
    ("true", moved("copy", ".env", ".env.local") + moved("rename", ".env.local", "b"), "by another secret name"),
    ("true", moved("copy", ".env", "a") + b"--- a/.env\n+++ b/a\n@@ -2,0 +3 @@\n+x\n", "with a change"),
    ("mkdir d; cp .env d/server.pem", moved("copy", "d/server.pem", "d/x"), "another name of secrets"),
    ("mkdir .env.d; cp .env .env.d/x", moved("copy", ".env.d/x", "x"), "in a folder with such a name"),
    ("ln .env notes", moved("copy", "notes", "public.txt"), "a second name of the file"),
    ("cp .env plain; ln -s plain .env.local", moved("copy", "plain", "public.txt"), "where a secret link leads"),
    ("mkdir denied; cp .env denied/x", moved("copy", "denied/x", "public.txt"), "what a rule denies"),
    ("git init -q .; cp .env .git/x", moved("copy", ".git/x", "public.txt"), "Git's own folder"),
    ("true", b"diff --git a/.env b/.env\nold mode 100644\nnew mode 120000\n", "a link that leads to the content"),
    ("true", b"diff --git a/.env b/.env\nindex 1234..0000\n--- a/.env\n+++ b/.env\n@@ -1,2 +1,2 @@\n-X\n+Y\n rest\n", "a change that does not fit"),
    ("true", b"diff --git a/.env b/.env\ndeleted file mode 100644\n", "a deletion that does not say of what"),
]  # fmt: skip


@pytest.mark.threat("T04")
@pytest.mark.threat("T95")
@pytest.mark.parametrize(("before", "patch", "why"), TAKES, ids=[row[2] for row in TAKES])
def test_no_patch_takes_a_secret_along(base: Path, before: str, patch: bytes, why: str) -> None:
    world = UndoWorkspace(base, '[[rule]]\nverdict = "deny"\nread = ["denied/**"]\nwhy = "kept apart"\n')
    sh(world.w, f"printf 'first\\n{SECRET}\\nlast\\n' > .env; {before}")
    was = tree(world.w)
    turned = ("--reverse",) if why == "reversed" else ()
    for words in (("--check",), ("--check", "--json"), ("--yes",), ("--yes", "--anyway")):
        done = agent(world, "apply", *words, *turned, "-", stdin=patch)
        assert done.returncode == 1, (why, words)
        assert "canary" not in done.stdout + done.stderr, (why, words)
    assert tree(world.w) == was, why


# the patch: applied when a user says that it may, and never more of the secret is shown than it holds itself
SHOWS = [
    b"--- a/.env\n+++ b/.env\n@@ -1 +1 @@\n-first\n+other\n",
    b"--- a/.env\n+++ b/.env\n@@ -3,0 +4 @@\n+more\n",
    b"diff --git a/.env b/.env\nold mode 100644\nnew mode 100755\n",
    put("z", "1") + b"--- a/.env\n+++ b/.env\n@@ -9,1 +9,2 @@\n last\n+more\n",
]


@pytest.mark.threat("T04")
@pytest.mark.parametrize("patch", SHOWS)
def test_of_a_secret_only_what_the_patch_says_is_shown(base: Path, patch: bytes) -> None:
    world = UndoWorkspace(base)
    sh(world.w, f"printf 'first\\n{SECRET}\\nlast\\n' > .env")
    for words, code in ((("--check",), 0), (("--check", "--json"), 0), (("--yes",), 1), (("--yes", "--anyway"), 0)):
        done = agent(world, "apply", *words, "-", stdin=patch)
        assert done.returncode == code, (words, done.stderr)
        assert "canary" not in done.stdout + done.stderr, words
    assert SECRET in (world.w / ".env").read_text()


# fmt: off
_SOME = {
    "HEAD":      [("file", b"ref: refs/heads/main\n"), ("link", b"refs/heads/main"), ("link", b"../head"), ("file", b"x\n")],
    "objects/x": [("file", b"x\n")],
    "objects":   [("program", b"x\n"), ("file", b"x\n"), ("link", b"refs")],
    "refs/x":    [("file", b"x\n")],
    "refs":      [("program", b"x\n"), ("link", b"../two/refs")],
    "commondir": [("file", b"../two\n"), ("link", b"../head"), ("file", b"../x\n")],
    "config":    [("file", EVIL.encode()), ("file", b"[include]\n\tpath = ../inc\n"), ("link", b"../inc")],
}
_PIECES = st.fixed_dictionaries({}, optional={
    **{f"sub/{name}": st.sampled_from(kinds) for name, kinds in _SOME.items()},
    "two/config": st.just(("file", EVIL.encode())), "two/objects/x": st.just(("file", b"x\n")), "two/refs/x": st.just(("file", b"x\n")),
    "head": st.just(("file", b"ref: refs/heads/main\n")), "inc": st.just(("file", EVIL.encode())),
})
# fmt: on


def _fitting(wanted: dict[str, tuple[str, bytes]]) -> dict[str, tuple[str, bytes]]:
    """Without what lies in another one of them that is no folder."""
    return {path: what for path, what in wanted.items() if not any(path.startswith(f"{each}/") for each in wanted)}


def _obeyed(top: Path) -> set[str]:
    """The folders in which the real Git takes a file system monitor or hooks of the workspace as its own."""
    found = set()
    for folder, _, _ in os.walk(top):
        words = ["git", "-C", folder, "config", "--get", "core.fsmonitor"]
        if subprocess.run(words, env=BARE, capture_output=True).stdout.strip():
            found.add(folder)
    return found


@pytest.mark.thorough
@pytest.mark.threat("T95")
@examples(25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(_PIECES, _PIECES)
def test_law_no_patch_makes_git_obey_anything_without_a_warning(
    base: Path, before: dict[str, tuple[str, bytes]], more: dict[str, tuple[str, bytes]]
) -> None:
    """Any two trees of the pieces of a repository: where a patch makes the real Git obey settings, it was warned of."""
    top = Path(tempfile.mkdtemp(dir=base))
    (top / "w").mkdir()
    world = UndoWorkspace(top)
    make(world.w, _fitting(before))
    sh(world.w, "git init -q .")  # what lies around counts for nothing
    was = _obeyed(world.w)
    copy = copied(str(world.w), str(top))
    sh(copy.path, "find . -mindepth 1 -maxdepth 1 ! -name .git -exec rm -r {} +")
    make(Path(copy.path), _fitting({**before, **more}))
    patch = patch_of(copy, nothing_secret)
    if not patch.text or patch.unfit:
        return
    found = planned(world, patch.text)
    if found.problems:
        return
    inventory = inventory_of(world.ground, world.ground.terms(()), str(world.w))
    warned = inventory.findings(changes_of(found.items))
    applied(world, patch.text)
    new = _obeyed(world.w) - was
    assert not new or warned, (before, more, new)
