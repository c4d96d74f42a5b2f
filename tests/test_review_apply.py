"""`agent apply`: a patch is applied whole or not at all, and never beyond the workspace. The judge is the real Git."""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from review_world import BARE, TREES, base, git_apply, make, sh, tree
from terminal import Terminal
from test_review_patch import ROWS, nothing_secret
from undo_world import World

from runner.review.applying import Applied, apply
from runner.review.copy import copied
from runner.review.fitting import Unfit, fitted
from runner.review.form import FILE, Side
from runner.review.patch import patch_of
from runner.review.planning import Plan, plan
from runner.review.reading import PatchError, Section, read

__all__ = ("base",)  # a fixture
AGENT = os.path.join(os.path.dirname(sys.executable), "agent")


def planned(world: World, patch: bytes, *, reverse: bool = False) -> Plan:
    sections: tuple[Section, ...] = read(patch)
    if reverse:
        sections = tuple(section.reversed() for section in reversed(sections))
    return plan(str(world.w), sections)


def applied(world: World, patch: bytes, *, reverse: bool = False) -> Applied:
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
    world = World(base)
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


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    TREES, TREES, st.sampled_from(["", "-M", "-M -C --find-copies-harder", "-U0", "-U1", "--no-renames --full-index"])
)
def test_law_what_git_writes_is_understood(
    base: Path, before: dict[str, tuple[str, bytes]], after: dict[str, tuple[str, bytes]], flags: str
) -> None:
    """Any two trees, and the patch that Git makes of them: both of us answer the same."""
    top = Path(tempfile.mkdtemp(dir=base))
    (top / "w").mkdir()
    world = World(top)
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


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
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
        mine = fitted(section, Side(FILE, b"".join(other))).side
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
    world = World(base)
    (base / "git").mkdir()
    for each in (world.w, base / "git"):
        sh(each, "echo 1 > a")
    applied(world, patch)
    assert git_apply(base / "git", patch).returncode == 0
    assert tree(world.w) == tree(base / "git")
    assert (world.w / "c").read_text() == "1\n"


# what there is, the patch, the path that is named, and why it is refused
ESCAPES: list[tuple[str, bytes, str, str]] = [
    ("true", new("../out"), "../out", "it leads out of the workspace"),
    ("true", new("d/../../out"), "d/../../out", "it leads out of the workspace"),
    ("true", new("/etc/x"), "/etc/x", "it is no path in the workspace"),
    ("true", new(".git/hooks/pre-commit", "100755"), ".git/hooks/pre-commit", "it lies in Git's own folder"),
    ("true", new(".GIT/config"), ".GIT/config", "it lies in Git's own folder"),
    ("true", new(".git\u200c/config"), ".git\u200c/config", "it lies in Git's own folder"),
    ("true", new("d/git~1/config"), "d/git~1/config", "it lies in Git's own folder"),
    ("true", new(".git. ./x"), ".git. ./x", "it lies in Git's own folder"),
    ("true", new(".git"), ".git", "it lies in Git's own folder"),
    ("true", new("d//x"), "d//x", "it is no plain path"),
    ("true", new("./x"), "./x", "it is no plain path"),
    ("ln -s /tmp d", new("d/x"), "d/x", "its folder `d` is a link"),
    ("mkdir e; ln -s ../out e/d", new("e/d/x"), "e/d/x", "its folder `e/d` is a link"),
    ("mkdir ../f; echo 1 > ../f/x; ln -s ../f d", b"--- a/d/x\n+++ b/d/x\n@@ -1 +1 @@\n-1\n+2\n", "d/x", "its folder `d` is a link"),
    ("echo 1 > d", new("d/x"), "d/x", "its folder `d` is a file"),
    ("true", LINKED % b"/tmp" + new("l/x"), "l/x", "its folder `l` is a file or link of this patch"),
    ("true", new("l/x") + LINKED % b"/tmp", "l/x", "its folder `l` is a file or link of this patch"),
    ("mkdir d; echo 1 > d/mine", new("d"), "d", "a folder with other files lies there"),
    ("echo 1 > a", new("a"), "a", "there is such a file already"),
    ("ln -s nowhere a", new("a"), "a", "there is such a file already"),
    ("ln -s ../out a", b"--- a/a\n+++ b/a\n@@ -1 +1 @@\n-secret\n+x\n", "a", "hunk 1 of 1 (line 1) does not fit: other lines stand there"),
    ("mkfifo a", b"--- a/a\n+++ b/a\n@@ -1 +1 @@\n-1\n+x\n", "a", "it is no file, folder or link"),
    ("ln -s ../out a", b"diff --git a/a b/c\nrename from a\nrename to c\n--- a/a\n+++ b/c\n@@ -1 +1 @@\n-secret\n+x\n", "c", "hunk 1 of 1 (line 1) does not fit: other lines stand there"),
    ("true", b"diff --git a/a b/a\ndeleted file mode 100644\n", "a", "there is no such file"),
    ("echo 1 > a", b"diff --git a/a b/a\ndeleted file mode 100644\n", "a", "it is not empty"),
    ("seq 9 > a", b"--- a/a\n+++ b/a\n@@ -1 +1 @@\n-1\n+x\n@@ -5 +5 @@\n-7\n+y\n", "a", "hunk 2 of 2 (line 5) does not fit: other lines stand there"),
    ("seq 9 > a", b"--- a/a\n+++ b/a\n@@ -4,3 +4,3 @@\n 4\n-x\n+5\n 6\n", "a", "hunk 1 of 1 (line 4) is in it already"),
    ("true", b"diff --git a/x b/x\nnew file mode 120000\nindex 0000000..e69de29\n", "x", "it leads nowhere"),
]  # fmt: skip


@pytest.mark.threat("T95")
@pytest.mark.parametrize(("before", "patch", "path", "why"), ESCAPES, ids=[f"{row[2]}: {row[3]}" for row in ESCAPES])
def test_what_no_patch_may_do(base: Path, before: str, patch: bytes, path: str, why: str) -> None:
    (base / "out").write_text("secret\n")
    world = World(base)
    sh(world.w, before)
    was = tree(world.w) if "fifo" not in before else {}
    assert planned(world, patch).problems == ((path, why),)
    assert (base / "out").read_text() == "secret\n"
    if was:
        assert tree(world.w) == was


# a patch, the line that is named, the words of it
DAMAGED: list[tuple[bytes, str, str]] = [
    (b"", "", "it is empty"),
    (b"hello\n", "", "there is no line `diff --git`"),
    (b"@@ -1 +1 @@\n-a\n+b\n", "line 1", "nothing says which file"),
    (b"--- a/a\n+++ b/a\n", "line 3", "no hunk follows"),
    (b"--- a/a\n+++ b/a\n@@ -1,3 +1 @@\n-a\n", "line 5", "in the middle of a hunk"),
    (b"--- a/a\n+++ b/a\n@@ -1 +1 @@\n-a\n-b\n+c\n", "line 5", "not as long as its head says"),
    (b"--- a/a\n+++ b/a\n@@ -1,2 +1 @@\n-a\nb\n", "line 5", "not as long as its head says"),
    (b"--- a\n+++ b\n@@ -1 +1 @@\n-a\n+b\n", "line 1", "has no folder in front"),
    (b"diff --git a/a b/a\nold mode 160000\n", "line 2", "another repository"),
    (b"diff --git a/a b/a\nnew file mode 020000\n", "line 2", "no file or link (mode 020000)"),
    (b"diff --git a/a b/a\nindex 1234567..7654321 100644\n--- a/b\n+++ b/b\n@@ -1 +1 @@\n-a\n+b\n", "line 3", "name another file"),
    (b"diff --git a/a b/a\nBinary files a/a and b/a differ\n", "line 2", "but not how"),
    (b"diff --git a/a b/a\nGIT binary patch\nliteral 5\nzzzz\n\n", "line 4", "damaged"),
    (b"diff --git a/a b/a\nGIT binary patch\nliteral 99999999999999\nzzzz\n\n", "line 3", "too large"),
    (b"diff --git a/a b/a\nGIT binary patch\nsomething\n", "line 3", "content of a binary file is missing"),
    (b"diff --cc a\n", "line 1", "merge"),
    (b"diff --git a/x b/y\n", "line 2", "which file"),
    (b'diff --git "a/\\q" "b/\\q"\n', "line 2", "which file"),
    (b"diff --git a/a b/a\nrename from \"a\nrename to b\n", "line 2", "wrongly quoted"),
]  # fmt: skip


@pytest.mark.parametrize(("patch", "line", "words"), DAMAGED, ids=[row[2] for row in DAMAGED])
def test_what_is_no_patch(patch: bytes, line: str, words: str) -> None:
    with pytest.raises(PatchError) as error:
        read(patch)
    assert words in error.value.problem.why
    assert error.value.problem.what.endswith(line) or not line


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
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
        found = plan(str(base / "w"), read(patch))
        for section in read(patch):
            section.reversed()
    except PatchError:
        return
    for item in found.items:
        assert ".." not in item.path.split("/")


def test_it_is_all_or_nothing(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(base)
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


def test_a_change_in_between_is_not_overwritten(base: Path) -> None:
    world = World(base)
    sh(world.w, "echo 1 > a; echo 1 > b")
    copy = copied(str(world.w), str(base))
    sh(copy.path, "echo 2 > a; echo 2 > b")
    found = planned(world, patch_of(copy, nothing_secret).text)
    sh(world.w, "echo mine > b")
    store = world.store()
    with pytest.raises(PatchError, match="nothing was applied") as error:
        apply(found, world.ground, store, "agent apply p", "s")
    store.close()
    assert error.value.problem.why == "`b`: somebody changed it just now"
    assert (world.w / "a").read_text() == "1\n"


def test_a_file_with_two_names_is_written_under_one(base: Path) -> None:
    """THREAT T18: nothing is written into a file that lies elsewhere as well."""
    world = World(base)
    sh(world.w, "echo 1 > ../elsewhere; ln ../elsewhere a")
    applied(world, b"--- a/a\n+++ b/a\n@@ -1 +1 @@\n-1\n+2\n")
    assert ((world.w / "a").read_text(), (base / "elsewhere").read_text()) == ("2\n", "1\n")


# what there is, the patch, what `agent undo` cannot take back
LASTING = [
    ("mkdir node_modules; echo '{}' > package.json; echo 1 > node_modules/i", b"--- a/node_modules/i\n+++ b/node_modules/i\n@@ -1 +1 @@\n-1\n+2\n" + new("a"), ("node_modules/i",)),
    ("echo 1 > .env", b"--- a/.env\n+++ b/.env\n@@ -1 +1 @@\n-1\n+2\n", (".env",)),
    ("mkdir d; echo 1 > d/x", b"--- a/d/x\n+++ /dev/null\n@@ -1 +0,0 @@\n-1\n" + new("e/x"), ()),
]  # fmt: skip


@pytest.mark.parametrize(("before", "patch", "lasting"), LASTING)
def test_what_cannot_be_taken_back_is_named(base: Path, before: str, patch: bytes, lasting: tuple[str, ...]) -> None:
    world = World(base)
    sh(world.w, before)
    was = tree(world.w)
    assert applied(world, patch).lasting == lasting
    applied(world, patch, reverse=True)
    assert tree(world.w) == was


def agent(world: World, *words: str, stdin: bytes = b"") -> subprocess.CompletedProcess[str]:
    done = subprocess.run([AGENT, *words], cwd=world.w, env=world.environ, input=stdin, capture_output=True, timeout=60)
    return subprocess.CompletedProcess(words, done.returncode, done.stdout.decode(), done.stderr.decode())


BOTH = new("a") + b"--- /dev/null\n+++ b/b\n@@ -0,0 +1 @@\n+\x1b[2Jhi\xe2\x80\xae\n"


@pytest.mark.threat("T95")
def test_the_command(base: Path) -> None:
    world = World(base)
    (base / "p").write_bytes(BOTH)
    checked = agent(world, "apply", "--check", "../p")
    assert (checked.returncode, list(world.w.iterdir())) == (0, [])
    assert "␛[2Jhi<U+202E>" in checked.stdout
    assert "\x1b" not in checked.stdout
    assert "note: `b`: a new line holds characters that hide or reorder text: <U+202E>" in checked.stdout
    done = agent(world, "apply", "--yes", "../p")
    assert (done.returncode, sorted(os.listdir(world.w))) == (0, ["a", "b"])
    assert "`agent undo` takes it back" in done.stdout
    again = agent(world, "apply", "--yes", "--json", "../p")
    assert again.returncode == 1
    assert json.loads(again.stdout)["problems"][0] == {"path": "a", "why": "there is such a file already"}
    assert agent(world, "undo").returncode == 0
    assert os.listdir(world.w) == []
    listed = agent(world, "audit", "list", "--path", f"{world.w}/b")
    assert "apply  ../p" in listed.stdout
    assert "a person put a patch into 2 files" in listed.stdout
    assert "answered: yes, by --yes" in listed.stdout
    assert "exit 0 after" in listed.stdout


# what is typed, the code, whether it is applied
@pytest.mark.parametrize(
    ("typed", "code", "done"), [("yes\n", 0, True), ("no\n", 1, False), ("\n", 1, False), ("\x04", 1, False)]
)
def test_the_question(base: Path, typed: str, code: int, done: bool) -> None:
    world = World(base)
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
    (new(".vscode/tasks.json"), "other programs run it by themselves"),
    (new(".env"), "it has the name of a secret"),
    (LINKED % b"/etc/passwd", "it is a link that leads to /etc/passwd"),
    (LINKED % b"../../x", "it is a link that leads out of the workspace"),
    (LINKED % b".git/config", "it is a link that leads into Git's own folder"),
    (LINKED % b".Git/config", "it is a link that leads into Git's own folder"),
]


@pytest.mark.threat("T95")
@pytest.mark.parametrize(("patch", "words"), SEVERE, ids=[row[1] for row in SEVERE])
def test_a_yes_that_nobody_gave_at_a_terminal_is_not_enough(base: Path, patch: bytes, words: str) -> None:
    world = World(base)
    done = agent(world, "apply", "-", "--yes", stdin=patch)
    assert (done.returncode, os.listdir(world.w)) == (1, [])
    assert words in done.stderr
    assert agent(world, "apply", "-", "--yes", "--anyway", stdin=patch).returncode == 0
    assert len(os.listdir(world.w)) == 1


# the words, the code, what is said
USAGE = [
    (("apply", "../p"), 2, "nobody can be asked"),
    (("apply", "../missing", "--yes"), 2, "no such file"),
    (("apply", "../p", "--anyway"), 2, "--anyway goes with --yes"),
    (("apply", "../p", "--check", "--yes"), 2, "they exclude each other"),
    (("apply", "../p", "--json"), 2, "add --yes"),
    (("apply", "../no", "--yes"), 1, "this is no patch"),
]


@pytest.mark.parametrize(("words", "code", "said"), USAGE)
def test_mistakes(base: Path, words: tuple[str, ...], code: int, said: str) -> None:
    world = World(base)
    (base / "p").write_bytes(new("a"))
    (base / "no").write_text("hello\n")
    done = agent(world, *words)
    assert (done.returncode, os.listdir(world.w)) == (code, [])
    assert said in done.stderr
