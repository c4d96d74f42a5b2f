"""Tests of auto-run files that a command creates: they are set aside at once from outside, and the command is ended."""

import errno
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from policy.model.verdict import Limits, Rights, Terms
from runner.frontends.exec.report import PlainReport
from sandbox.backend import Outcome, Violation
from sandbox.workspace import autorun_watch, folder_watch
from sandbox.workspace.autorun import Watch
from sandbox.workspace.autorun_watch import Live
from sandbox.workspace.folder_cache import FolderTrees
from sandbox.workspace.inotify import Inotify
from sandbox.workspace.path_patterns import PatternIndex
from sandbox.workspace.protected_paths import Scan, scan
from tests.support.sandbox_bench import USERS, Bench, make

LOCKED = (
    ".git/hooks",
    ".git/config",
    ".git/config.worktree",
    ".git/commondir",
    ".hg/hgrc",
    ".sl/config",
    ".jj/repo/config.toml",
    "bin/hermit",
    "mise.toml",
    ".config/mise.toml",
    ".vscode",
    ".envrc",
    "*.code-workspace",
)
SETUP = "export GIT_CONFIG_NOSYSTEM=1 GIT_CONFIG_GLOBAL=/dev/null; "  # under T3 they are there, and refused
LONG = "sleep 100"  # nothing waits for it: who is not ended ends with 0, and fails the test


TIERS = ("T1", "T2", "T3")
BENCHES = [(user, tier) for tier in TIERS for user in USERS]


@pytest.fixture(scope="module", params=BENCHES, ids="-".join)
def bench(request: pytest.FixtureRequest) -> Iterator[Bench]:
    user, tier = request.param
    yield from make(user, tier=tier)


@pytest.fixture
def folder(bench: Bench) -> Iterator[Path]:
    path = Path(tempfile.mkdtemp(dir=bench.workspace, prefix="live-"))  # a helper keeps the folder that it mounted
    (path / "sub").mkdir()
    bench.own(path)
    yield path
    shutil.rmtree(path)


# fmt: off
OBEYED = [
    ("mkdir .vscode; echo x > .vscode/settings.json",            ".vscode",       "settings of an editor"),
    ("echo x > .envrc",                                          ".envrc",        "a file for the shell"),
    ("echo x > a.code-workspace",                                "a.code-workspace", "a name by its ending"),
    ("echo x > e; sleep 0.1; mv e .envrc",                       ".envrc",        "under its name at last"),
    ("echo x > e; sleep 0.1; ln e .envrc",                       ".envrc",        "as a second name"),
    ("ln -s sub .vscode",                                        ".vscode",       "a link that leads to what is there"),
    ("exec 7> .envrc; sleep 0.3",                                ".envrc",        "empty, and never closed"),
    ("mkdir s; sleep 0.1; git init -q s/r; sleep 0.1; git -C s/r config core.fsmonitor ./x", "s/r/.git/config", "a program that a new repository names"),
    ("git init -q r; exec 7>> r/.git/config; printf '[core]\\nfsmonitor = ./x\\n' >&7", "r/.git/config", "settings that are never closed"),
    ("git init -q r; sleep 0.1; echo x > r/.git/hooks/post-commit", "r/.git/hooks", "a hook in a new repository"),
    ("mkdir sub/.vscode; sleep 0.1; git init -q sub",            "sub/.vscode",   "a repository around what nobody obeyed before"),
    ("mkdir -p h/i/objects h/i/refs; printf '[core]\\nfsmonitor = x\\n' > h/i/config; sleep 0.1; echo ref: refs/heads/m > h/i/HEAD", "h/i/config", "the last part of a bare repository"),
    ("t=$(mktemp -d); git init -q $t; mkdir $t/.vscode; mv $t p", "p/.vscode", "a repository that comes as a whole"),
    ("mkdir -p d/e/f/g/h/i/j; git init -q d/e/f/g/h/i/j; sleep 0.1; echo x > d/e/f/g/h/i/j/.envrc", "d/e/f/g/h/i/j/.envrc", "far down"),
    ("mkdir -p r/.hg; sleep 0.1; printf '[hooks]\nupdate = ./x\n' > r/.hg/hgrc", "r/.hg/hgrc", "settings of Mercurial in a folder"),
    ("mkdir -p r/s; printf '[ui]\neditor = ./x\n' > r/s/config; mv r/s r/.sl", "r/.sl/config", "settings of Sapling, moved there"),
    ("mkdir -p r/.vscode; sleep 0.1; mkdir r/.hg",               "r/.vscode",     "a repository of Mercurial around what nobody obeyed before"),
    ("mkdir -p r/.jj e; sleep 0.1; echo ../e > r/.jj/repo",      "r/.jj/repo",    "a file that names the folder with the settings of Jujutsu"),
    ("ln -s s bin; mkdir s; echo x > s/hermit; sleep 0.1; ln -sfn s bin", "bin",  "a link of a plain name behind which something counts"),
    ("git init -q venv; sleep 0.1; printf '[core]\nfsmonitor = ./x\n' >> venv/.git/config", "venv/.git/config", "a folder of packages that is itself a repository"),
    ("git init -q r; sleep 0.1; mv r q; sleep 0.1; echo x > q/.envrc", "q/.envrc", "in a folder that was moved"),
    ("mkdir -m 300 c; git init -q c/r; printf '[core]\nfsmonitor = ./x\n' >> c/r/.git/config; sleep 0.5; chmod 755 c", "c/r/.git/config", "in a folder that was closed to us for a while"),
    ("git init -q r; sleep 0.1; touch r/.git/index.lock; echo x > r/.envrc; sleep 0.5; echo x > r/.envrc", "r/.envrc", "a second time, while Git seems to write"),
]
HARMLESS = [
    ("git init -q a && git init -q --bare b/c.git",              "what Git makes"),
    ("git init -q s && git -C s -c user.name=n -c user.email=e commit -q --allow-empty -m m && git clone -q s c && git -C s worktree add -q ../wt", "clones and worktrees"),
    ("mkdir -p m/.hg && printf '# x\n[paths]\ndefault = https://a.test/x\n\n' > m/.hg/hgrc", "a clone by Mercurial"),
    ("git init -q s && sleep 0.3 && git -C s config user.name z && git -C s remote add origin https://a.test/x.git", "settings that start nothing"),
    ("git init -q s && git -C s -c user.name=n -c user.email=e commit -q --allow-empty -m m && git clone -q --mirror s m.git && git clone -q -c advice.detachedHead=false -c core.autocrlf=input --no-tags s c && git -C c remote add up git@a.test:b/c.git && sleep 0.3 && git -C c config branch.main.rebase true", "clones with settings of their own"),
    ("mkdir -p sub/.vscode node_modules/x/.vscode && echo x > node_modules/x/.envrc && git init -q node_modules/x", "a package's own, where nobody looks: at the end"),
    ("mkdir s; ln -s s bin; mkdir -p .jj/repo",                     "a link of a plain name, and a repository of Jujutsu"),
    ("for i in $(seq 300); do mkdir -p t/$i && echo x > t/$i/f; done; rm -r t", "many folders that come and go"),
]
# fmt: on


@pytest.mark.threat("T116")
@pytest.mark.parametrize(("script", "path", "why"), OBEYED, ids=[row[-1] for row in OBEYED])
def test_what_others_obey_is_set_aside_at_once_and_ends_the_command(
    bench: Bench, folder: Path, script: str, path: str, why: str
) -> None:
    answer = bench.run(f"{SETUP}{script}; {LONG}", workspace=str(folder), locked=list(LOCKED))
    assert answer["ended"] == "watch", (why, answer)
    assert answer["status"] in (137, 143), "by SIGTERM, or SIGKILL"
    assert str(folder / path) in {violation[1] for violation in answer["violations"]}, answer
    assert not os.path.lexists(folder / path)


@pytest.mark.threat("T116")
@pytest.mark.parametrize(("script", "why"), HARMLESS, ids=[row[-1] for row in HARMLESS])
def test_what_starts_nothing_ends_no_command(bench: Bench, folder: Path, script: str, why: str) -> None:
    answer = bench.run(f"{SETUP}{script} && sleep 0.7", workspace=str(folder), locked=list(LOCKED))
    assert (answer["status"], answer["ended"]) == (0, None), (why, answer)


@pytest.mark.threat("T116")
def test_the_next_command_is_watched_as_well(bench: Bench, folder: Path) -> None:
    """The watches are kept, while folders come, go and come again between commands."""
    for turn in range(3):
        assert bench.run("mkdir -p n; sleep 0.1", workspace=str(folder), locked=list(LOCKED))["status"] == 0
        shutil.rmtree(folder / "n")
        (folder / "n/.git").mkdir(parents=True)
        bench.own(folder)
        answer = bench.run(f"echo x > n/.envrc; {LONG}", workspace=str(folder), locked=list(LOCKED))
        assert answer["ended"] == "watch", (turn, answer)
        shutil.rmtree(folder / "n")


@pytest.mark.threat("T116")
@pytest.mark.parametrize("bench", BENCHES[::3], indirect=True, ids="-".join)  # the watch is the same for all
def test_what_came_and_went_between_commands_does_not_end_the_next_one(bench: Bench, folder: Path) -> None:
    """The last file of a command is set aside after its end, and the user may make and remove such files as well."""
    bench.run("sleep 0.1; echo x > .envrc", workspace=str(folder), locked=list(LOCKED))
    assert not (folder / ".envrc").exists()
    for number in range(3000):  # more events than one buffer holds
        (folder / f"f{number}").touch()
    (folder / "a.code-workspace").touch()
    (folder / "a.code-workspace").unlink()
    answer = bench.run("sleep 0.3", workspace=str(folder), locked=list(LOCKED))
    assert (answer["status"], answer["ended"], answer["violations"]) == (0, None, [])


# fmt: off
BRINGING = [
    ("git checkout -q evil",                 "evil", "a branch"),
    ("git merge -q --no-edit evil",          "main", "a merge"),
    ("git clone -q -b evil . nest",          "main", "a clone, of which the files of another repository are"),
    ("git worktree add -q nest evil",        "main", "a second worktree"),
]
# fmt: on


@pytest.mark.threat("T116")
@pytest.mark.parametrize(("script", "head", "why"), BRINGING, ids=[row[-1] for row in BRINGING])
def test_git_finishes_what_it_writes(bench: Bench, folder: Path, script: str, head: str, why: str) -> None:
    """The files are set aside at once, the command is ended behind Git, and no lock is left."""
    who = "-c user.name=n -c user.email=e"
    make_branch = (
        f"git init -q -b main && echo 1 > a && git add . && git {who} commit -qm 1 && git checkout -q -b other"
    )
    make_branch += " && mkdir .plain && echo x > .plain/f && for i in $(seq 99); do echo 2 > z$i; done"
    script_before = f"{SETUP}{make_branch} && git add . && git {who} commit -qm 2"
    assert bench.run(script_before, workspace=str(folder))["status"] == 0
    plumbing = "git checkout -q main; t=$(git ls-tree other | sed s/plain/vscode/ | git mktree)"
    plumbing += f" && git branch -f evil $(git {who} commit-tree -p main -m 3 $t) && echo 3 > b && git add b"
    plumbing += f" && git {who} commit -qm 4"
    assert bench.run(f"{SETUP}{plumbing}", workspace=str(folder), locked=list(LOCKED))["status"] == 0
    names = "export GIT_AUTHOR_NAME=n GIT_AUTHOR_EMAIL=e GIT_COMMITTER_NAME=n GIT_COMMITTER_EMAIL=e; "
    answer = bench.run(f"{SETUP}{names}{script}; {LONG}", workspace=str(folder), locked=list(LOCKED))
    assert answer["ended"] == "watch", (why, answer)
    top = folder / "nest" if "nest" in script else folder
    assert (top / "z99").exists()
    assert not (top / ".vscode/f").exists()
    assert str(top / ".vscode/f") in {violation[1] for violation in answer["violations"]}
    assert (folder / ".git/HEAD").read_text() == f"ref: refs/heads/{head}\n"
    assert not list(folder.glob(".git/**/*.lock"))


# what there is, what is done to it, what is set aside
SWAPS = [
    ("mkdir -p a/vs b/vs; ln -s a conf; ln -s conf/vs .vscode", "ln -sfn b conf", "conf", "a link on the way"),
    ("mkdir -p a/vs; ln -s a/vs .vscode", "mv a c; mkdir -p a/vs", "a/vs", "a folder above where a link leads"),
    ("mkdir -p t/h; echo x > t/h/pre-push; ln -s t/h hooks; git config core.hooksPath hooks", "mv t u; mkdir -p t/h", "t/h", "the same of a link that settings name"),
    ("mkdir -p a/vs; ln -s a conf; ln -s conf/vs .vscode", "rm conf; mkdir -p conf/vs", "conf", "a folder in the place of a link"),
    ("mkdir -p a/vs", "ln -s a/vs .vscode", ".vscode", "a new link alone is taken, and not what it leads to"),
    ("mkdir -p a/vs; ln -s a/vs .vscode", "mv a c; mkdir a", "", "nothing is obeyed any more"),
    ("git init -q a/r; echo x > a/r/.envrc; git -C a/r config core.fsmonitor x; mkdir a/r/.vscode", "mv a b", "", "a repository that is moved"),
    ("git init -q a/r; echo x > a/r/.envrc; git -C a/r config core.fsmonitor x; mkdir a/r/.vscode", "mv a/r s", "", "the same, itself"),
    ("git init -q --bare a.git; git -C a.git config core.fsmonitor x", "mv a.git b.git", "", "a bare one"),
    ("git init -q a; git -C a commit -q --allow-empty -m 1; git -C a worktree add -q ../b", "mv b c", "", "a second worktree"),
    ("git commit -q --allow-empty -m 1; git worktree add -q wt; git config core.hooksPath hk", "mkdir wt/hk", "wt/hk", "hooks that settings name, in a second worktree"),
    ("git init -q r; echo x > r/.envrc", "mv r/.envrc .", ".envrc", "a file of another repository"),
    ("git init -q r; mkdir r/.vscode", "mv r/.vscode .; rm -r r", ".vscode", "a folder of one that is gone"),
    ("git init -q r; echo x > r/mise.toml", "mv r .config", ".config/mise.toml", "a repository whose new name makes it count for another"),
]  # fmt: skip


@pytest.mark.threat("T116")
@pytest.mark.parametrize(("before", "done", "path", "why"), SWAPS, ids=[row[3] for row in SWAPS])
@pytest.mark.parametrize("at_once", [True, False], ids=["at once", "at the end"])
def test_what_locked_links_lead_to_is_not_swapped(
    tmp_path: Path, before: str, done: str, path: str, why: str, at_once: bool
) -> None:
    """A mount goes with the folder that it lies on: who moves what is above puts another one in its place."""
    top = tmp_path / "w"
    top.mkdir()
    who = {f"GIT_{each}_{what}": "x@y" for each in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    subprocess.run(f"git init -q . && {before}", shell=True, cwd=top, check=True, env={**os.environ, **who})
    watch, _ = watching(top)
    watch.begin()
    try:
        while watch.grow():
            pass
        subprocess.run(done, shell=True, cwd=top, check=True)
        if at_once:
            watch.look()
        found = watch.found if at_once else watch._watch.settle()
        assert [each.path for each in found] == ([str(top / path)] if path else []), why
    finally:
        watch.close()


def test_the_name_of_a_file_begins_no_line_of_ours(capfd: pytest.CaptureFixture[str]) -> None:
    name = "/w/a\nsandbox: all is well/.envrc"
    outcome = Outcome(0, violations=(Violation(f"`{name}` appeared", name, f"look at {name}", False, "watch"),))
    PlainReport().finished(outcome, Limits())
    assert [line[:8] for line in capfd.readouterr().err.splitlines()] == ["sandbox:", "  why: f", "  fix: l"]


# ---- bounds


def watching(top: Path) -> tuple[Live, Scan]:
    trees = FolderTrees(None)
    terms = Terms(Rights.WORKSPACE_WRITE, str(top), "/nonexistent", locked=LOCKED)
    found = scan(str(top), (), (), LOCKED, trees)
    return Live(Watch(terms, found, top.parent / "aside", trees), found, trees, sockets=True), found


@pytest.mark.threat("T116")
def test_too_many_folders_are_told_and_the_outermost_are_watched(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(folder_watch, "MOST", 3)
    monkeypatch.setattr(folder_watch, "MOST_POLLED", 0)
    top = tmp_path / "w"
    for number in range(5):
        (top / f"a/b{number}/c").mkdir(parents=True)
    watch, _ = watching(top)
    watch.begin()
    try:
        while watch.grow():
            pass
        assert "more than 3 folders" in watch.folders.lacks
        (top / ".envrc").write_text("x")
        watch.look()
        assert [each.path for each in watch.found] == [str(top / ".envrc")]
    finally:
        watch.close()


@pytest.mark.threat("T116")
def test_folders_beyond_those_that_are_watched_are_polled(tmp_path: Path, monkeypatch: Any) -> None:
    """A command makes thousands of folders, so that nothing is left for the one that counts."""
    monkeypatch.setattr(folder_watch, "MOST", 3)
    top = tmp_path / "w"
    top.mkdir()
    watch, _ = watching(top)
    watch.begin()
    try:
        while watch.grow():
            pass
        for number in range(9):
            (top / f"d{number}").mkdir()
        watch.look()
        (folder,) = [path for path in watch.folders._polled if path.endswith("d4")]
        for made in ("r", "r/.git"):
            watch.tick()
            os.mkdir(f"{folder}/{made}")
        watch.tick()
        Path(f"{folder}/r/.envrc").write_text("x")
        watch.tick()
        assert [each.path for each in watch.found] == [f"{folder}/r/.envrc"]
        assert not watch.folders.lacks
    finally:
        watch.close()


@pytest.mark.threat("T120")
def test_a_deep_tree_is_taken_up_in_turns(tmp_path: Path, monkeypatch: Any) -> None:
    """Else neither a timeout nor a signal counts while thousands of folders are looked into."""
    monkeypatch.setattr(autorun_watch, "_TURN", -1.0)  # each turn ends after its first slice
    monkeypatch.setattr(folder_watch, "SLICE", 2)
    top = tmp_path / "w"
    top.mkdir()
    watch, _ = watching(top)
    watch.begin()
    try:
        while watch.grow():
            pass
        last = top / "/".join("d" * 20)
        (last / ".git").mkdir(parents=True)
        (last / ".envrc").write_text("x")
        watch.look()
        assert not watch.found
        turns = 0
        while not watch.found and turns < 20:
            watch.tick()
            turns += 1
        assert turns > 5, "no turn does more than its slice"
        assert [each.path for each in watch.found] == [str(last / ".envrc")]
    finally:
        watch.close()


@pytest.mark.threat("T116")
@pytest.mark.parametrize(("path", "counts"), [(".envrc", True), ("r/.envrc", True), ("s/.envrc", False), (".vscode/x", False), (".ENVRC", False), ("r/.git/config", False)])  # fmt: skip
def test_what_is_gone_before_anybody_looks_counts(tmp_path: Path, path: str, counts: bool) -> None:
    """Another program that watches the same folder may have read the file before this one did."""
    top = tmp_path / "w"
    for name in ("r/.git", "s"):
        (top / name).mkdir(parents=True)
    watch, _ = watching(top)
    watch.begin()
    try:
        while watch.grow():
            pass
        (top / path).parent.mkdir(exist_ok=True)
        (top / path).write_text("x")
        (top / path).unlink()
        if path == ".vscode/x":
            (top / ".vscode").rename(tmp_path / "elsewhere")
            counts = True
            path = ".vscode"
        watch.look()
        assert [each.path for each in watch.found] == ([str(top / path)] if counts else [])
        assert watch.raised is counts
    finally:
        watch.close()


def test_names_are_looked_up_in_any_case_of_letters() -> None:
    """On a file system without upper and lower case, an editor obeys `.VSCode`."""
    firsts = PatternIndex(LOCKED)
    assert firsts.of(".VSCode") == (".vscode",)
    assert firsts.of("A.Code-Workspace") == ("*.code-workspace",)


@pytest.mark.threat("T116")
def test_no_command_goes_on_for_long_because_git_seems_to_write(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(autorun_watch, "_SETTLED", 3600)
    top = tmp_path / "w"
    (top / ".git/objects").mkdir(parents=True)
    watch, _ = watching(top)
    watch.begin()
    try:
        while watch.grow():
            pass
        (top / ".git/index.lock").touch()
        (top / ".vscode").mkdir()
        (top / ".vscode/a").write_text("x")
        watch.look()
        assert [each.path for each in watch.found] == [str(top / ".vscode/a")], "set aside all the same"
        assert not watch.raised
        (top / ".git/index.lock").unlink()
        assert watch.raised
        (top / ".git/index").touch()
        assert not watch.raised, "written a moment ago"
        os.utime(top / ".git/index")
        watch._since += 60
        assert watch.raised, "by an earlier command"
        (top / ".git/index.lock").touch()
        assert not watch.raised
        monkeypatch.setattr(autorun_watch, "_MOST_ASIDE", 0)
        assert watch.raised
        monkeypatch.undo()
        watch._until -= autorun_watch.GRACE
        assert watch.raised
    finally:
        watch.close()


@pytest.mark.threat("T116")
@pytest.mark.parametrize("path", [".envrc", "known/r/.envrc", "new/r/.envrc"])
def test_without_an_inotify_instance_all_folders_are_polled(tmp_path: Path, monkeypatch: Any, path: str) -> None:
    """Another command of the user can hold all instances (fs.inotify.max_user_instances)."""

    def none(events: int) -> Inotify:
        raise OSError(errno.EMFILE, "inotify")

    top = tmp_path / "w"
    (top / "known").mkdir(parents=True)
    monkeypatch.setattr(folder_watch, "_idle", [])
    monkeypatch.setattr(folder_watch, "Inotify", none)
    watch, _ = watching(top)
    watch.begin()
    assert watch.fileno() == -1
    assert "inotify cannot be used" in watch.folders.lacks
    while watch.grow():
        pass
    if "/" in path:
        for folder in (top / path).parents[1], (top / path).parent, (top / path).parent / ".git":
            folder.mkdir(exist_ok=True)
            watch.tick()
    assert not watch.found
    (top / path).write_text("x")
    watch.tick()
    watch.close()
    assert [each.path for each in watch.found] == [str(top / path)]


@pytest.mark.thorough
@pytest.mark.threat("T116")
@pytest.mark.parametrize("path", [".envrc", "n/r/.envrc"])
def test_lost_events_are_made_up_for(tmp_path: Path, path: str) -> None:
    """More than fs.inotify.max_queued_events came before anybody looked."""
    top = tmp_path / "w"
    top.mkdir()
    watch, _ = watching(top)
    watch.begin()
    try:
        while watch.grow():
            pass
        most = int(Path("/proc/sys/fs/inotify/max_queued_events").read_text())
        for number in range(most // 2 + 10):  # two events each
            (top / f"f{number % 2}").write_text("x")
        (top / "n/r/.git").mkdir(parents=True)
        (top / path).write_text("x")
        for _ in range(most):
            watch.look()
            if watch.raised or watch.folders.lost:
                break
        watch.tick()
        assert [each.path for each in watch.found] == [str(top / path)]
    finally:
        watch.close()
