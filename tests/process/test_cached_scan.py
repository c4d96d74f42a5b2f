"""Tests of the cached scan for protected paths: it finds the same as an uncached scan, in one session and across
processes.
"""

import os
import random
import shutil
import subprocess
import sys
import time
import tomllib
import warnings
from dataclasses import replace
from pathlib import Path

import pytest

from policy.model.verdict import Rights, Terms
from sandbox.backend import SandboxUnavailable
from sandbox.linux import plan_builder
from sandbox.workspace import folder_cache as trees_module
from sandbox.workspace import protected_paths as scanning
from sandbox.workspace import secret_files
from sandbox.workspace.autorun import Watch
from sandbox.workspace.folder_cache import FolderTrees
from sandbox.workspace.git_files import harmless
from sandbox.workspace.protected_paths import Scan, scan
from tests.support.git_template import ENVIRON
from tests.support.places import ROOT

SECRETS, SHOWN = (".env", ".env.*", "*.pem"), (".env.example",)
LOCKED = (".git/hooks", ".git/config", ".git/commondir", ".git/modules/*/config", ".envrc", ".vscode")


def look(folder: Path, trees: FolderTrees | None = None) -> Scan:
    return scan(str(folder), SECRETS, SHOWN, LOCKED, trees)


def read_last(trees: FolderTrees, folder: Path) -> int:
    return trees.take(str(folder), (SECRETS, SHOWN)).read


def short(paths: tuple[str, ...], folder: Path) -> set[str]:
    return {path.removeprefix(f"{folder}/") for path in paths}


def wait_until_settled() -> None:
    time.sleep(trees_module.MARGIN / 1e9 + 0.02)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """A margin that a test can wait for. Still longer than any tick of the kernel's clock."""
    monkeypatch.setattr(trees_module, "MARGIN", 50_000_000)


def make(folder: Path, *names: str) -> None:
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)


# ---- what changes is noticed

# fmt: off
CHANGES = [
    ("echo s > a/b/.env",                         "a new secret deep down"),
    ("echo s > .env.local",                       "a new secret at the top"),
    ("rm a/x.pem",                                "a secret that went away"),
    ("mv a/plain a/key.pem",                      "a name that becomes a secret one"),
    ("mv a/x.pem a/x.txt",                        "and one that does not stay one"),
    ("rm a/x.pem; echo new > a/x.pem",            "a secret that was replaced, as editors do"),
    ("mv a moved",                                "a folder with secrets under another name"),
    ("mkdir -p n/.git/hooks; echo > n/.git/config", "a new repository inside"),
    ("rm -rf r/.git",                             "a repository that is none any more"),
    ("rm -rf r/.git; echo gitdir: ../x > r/.git", "a repository that becomes a pointer to one"),
    ("echo > r/.envrc",                           "an auto-run file of an inner repository"),
    ("ln -sfn b/deep a/link.pem",                 "a secret name that leads elsewhere"),
    ("ln ../outside/far a/near",                  "a hard link from outside"),
    ("ln a/plain ../outside/copy",                "a hard link to outside, that changes no folder of ours"),
    ("ln a/plain a/b/twin; ln a/plain ../outside/copy", "a hard link to outside and one inside"),
    ("rm ../outside/pair",                        "a hard link that has no other name any more"),
    ("mv a/b/.. a/b 2>/dev/null; rm -rf a; mkdir a; echo s > a/.env", "a folder that was made anew"),
    ("rm -rf a; ln -s ../outside a",              "a folder that became a link out of it"),
    ("mv a old; mkdir -p o/b; echo s > o/b/.env; mv o a", "another folder under the old name"),
    ("touch -d 2001-01-01 a; echo s > a/.env; touch -d 2001-01-01 a", "a time that was set back hides nothing"),
    ("printf '[core]\\nhooksPath = a/b\\n' >> r/.git/config", "settings that name a folder of hooks"),
    ("printf '[core]\\nhooksPath = a/b\\n' >> ../outside/settings", "settings elsewhere that do"),
    ("mkdir bare; cd bare; mkdir objects refs hooks; echo ref > HEAD; echo > config", "a bare repository"),
]
# fmt: on


@pytest.mark.threat("T65")
@pytest.mark.parametrize(("change", "why"), CHANGES, ids=[why for _, why in CHANGES])
@pytest.mark.parametrize("process", ["the same process", "the next process"])
def test_law_what_is_remembered_hides_no_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, quick: None, change: str, why: str, process: str
) -> None:
    monkeypatch.setattr(trees_module, "WORTH", 1)
    folder, outside, cache = tmp_path / "w", tmp_path / "outside", tmp_path / "cache"
    cache.mkdir()
    make(folder, "a/plain", "a/x.pem", "a/b/deep", "r/.git/config", "r/.git/hooks/x", "top")
    make(outside, "far", "pair")
    os.link(outside / "pair", folder / "pair")
    (folder / "r/.git/config").write_text("[include]\npath = ../../../outside/settings\n")
    (outside / "settings").write_text("[user]\nname = n\n")
    wait_until_settled()
    trees = FolderTrees(cache)
    before = look(folder, trees)
    assert before == look(folder)
    subprocess.run(["bash", "-c", change], cwd=folder, check=False, env={"PATH": os.environ["PATH"]})
    if process == "the next process":
        trees = FolderTrees(cache)
    after = look(folder, trees)
    assert after == look(folder), why
    assert after != before, why


@pytest.mark.threat("T65")
def test_law_random_changes(tmp_path: Path, quick: None) -> None:
    dice = random.Random(11)
    folder, outside = tmp_path / "w", tmp_path / "outside"
    folder.mkdir()
    outside.mkdir()
    trees = FolderTrees(None)
    names = ["a", "b", ".env", "k.pem", ".git", "HEAD", "objects", "refs", "config", ".envrc"]
    for step in range(400):
        places = [Path(found) for found, _, _ in os.walk(folder)]
        place = dice.choice(places) / dice.choice(names)
        try:
            match dice.randrange(7):
                case 0 | 1:
                    place.mkdir()
                case 2:
                    place.write_text("x")
                case 3:
                    shutil.rmtree(place) if place.is_dir() else place.unlink()
                case 4:
                    place.rename(dice.choice(places) / dice.choice(names))
                case 5:
                    os.link(place, dice.choice([outside, *places]) / f"l{step}")
                case 6:
                    place.symlink_to(dice.choice(places))
        except (OSError, shutil.Error):
            continue
        if step % 20 == 0:
            wait_until_settled()
        assert look(folder, trees) == look(folder), step


@pytest.mark.threat("T65")
def test_a_change_in_the_same_tick_of_the_clock_is_seen(tmp_path: Path) -> None:
    """A folder that was read in the tick in which it changed is read again (racy-git)."""
    for number in range(300):
        folder = tmp_path / str(number)
        folder.mkdir()
        trees = FolderTrees(None)
        look(folder, trees)
        (folder / ".env").write_text("s")
        assert short(look(folder, trees).masked, folder) == {".env"}


@pytest.mark.threat("T65")
def test_what_did_not_change_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, quick: None) -> None:
    folder, cache = tmp_path / "w", tmp_path / "cache"
    cache.mkdir()
    make(folder, *(f"{a}/{b}/file{c}" for a in range(20) for b in range(20) for c in range(2)))
    wait_until_settled()
    trees = FolderTrees(cache)
    look(folder, trees)
    assert read_last(trees, folder) == 421
    look(folder, trees)
    assert read_last(trees, folder) == 0, "the same process"
    script = (
        "import sys; from pathlib import Path; from sandbox.workspace.protected_paths import scan; from sandbox.workspace.folder_cache import FolderTrees\n"
        f"t = FolderTrees(Path({str(cache)!r})); scan({str(folder)!r}, {SECRETS!r}, {SHOWN!r}, {LOCKED!r}, t)\n"
        f"print(t.take({str(folder)!r}, ({SECRETS!r}, {SHOWN!r})).read)"
    )
    told = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    assert told.stdout == "0\n", "another process"
    (folder / "3" / "4" / ".env").write_text("s")
    assert short(look(folder, trees).masked, folder) == {"3/4/.env"}
    assert read_last(trees, folder) == 1, "only what changed"
    monkeypatch.setattr(trees_module, "_LOCAL", frozenset())
    look(folder, fresh := FolderTrees(None))
    look(folder, fresh)
    assert read_last(fresh, folder) == 421, "a file system whose times come from elsewhere is never believed"


@pytest.mark.threat("T65")
def test_a_cache_that_is_not_whole_is_as_good_as_none(tmp_path: Path, quick: None) -> None:
    folder, cache = tmp_path / "w", tmp_path / "cache"
    cache.mkdir()
    make(folder, ".env", *(f"{number}/x" for number in range(300)))
    wait_until_settled()
    expected = look(folder, FolderTrees(cache))
    (kept,) = cache.iterdir()
    whole = kept.read_bytes()
    for damage in (
        b"",
        b"x",
        whole[:31],
        whole[:-1],
        whole + b"\0",
        whole[:40] + b"\0" + whole[41:],
        bytes(len(whole)),
    ):
        kept.write_bytes(damage)
        assert look(folder, FolderTrees(cache)) == expected
    kept.unlink()
    kept.mkdir()
    assert look(folder, FolderTrees(cache)) == expected
    assert look(folder, FolderTrees(tmp_path / "none")) == expected


@pytest.mark.threat("T04")
def test_another_name_of_a_secret_is_seen_where_nobody_counts_links(tmp_path: Path, quick: None) -> None:
    """A reader's look asks no file for its links; that of the old name is told by the folder of the new one."""
    make(tmp_path, "a/.env", "b/free")
    wait_until_settled()
    trees = FolderTrees(None)

    def masked() -> set[str]:
        return short(scan(str(tmp_path), SECRETS, SHOWN, LOCKED, trees, count=False).masked, tmp_path)

    assert masked() == {"a/.env"}
    os.link(tmp_path / "a/.env", tmp_path / "b/notes.txt")
    assert masked() == {"a/.env", "b/notes.txt"}
    os.unlink(tmp_path / "a/.env")
    os.link(tmp_path / "b/notes.txt", tmp_path / "a/.env")
    assert masked() == {"a/.env", "b/notes.txt"}


@pytest.mark.threat("T17")
@pytest.mark.parametrize(
    ("few", "many", "noticed"), [(500, 30_000, "now"), (1, 30_000, "a second"), (1, 2, "a minute")]
)
def test_a_link_made_elsewhere_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, quick: None, few: int, many: int, noticed: str
) -> None:
    """`cp -al` changes no folder of the workspace: all files are asked, at once or after a while."""
    monkeypatch.setattr(trees_module, "FEW", few)
    monkeypatch.setattr(trees_module, "MANY", many)
    folder = tmp_path / "w"
    make(folder, "a/one", "a/two", "b/three")
    wait_until_settled()
    trees, began = FolderTrees(None), trees_module.now()
    monkeypatch.setattr(trees_module, "now", lambda: began)
    assert look(folder, trees).shared == ()
    subprocess.run(["cp", "-al", str(folder), str(tmp_path / "backup")], check=True)
    seen = look(folder, trees).shared
    assert bool(seen) == (noticed == "now")
    later = {"now": 0.0, "a second": 1.01, "a minute": 60.01}[noticed]
    monkeypatch.setattr(trees_module, "now", lambda: began + later)
    assert short(look(folder, trees).shared, folder) == {"a/one", "a/two", "b/three"}


# fmt: off
APPEARING = [  # what a command does, what is moved away after it, why
    ("echo x > .envrc",                                   {".envrc"}, "a file"),
    ("cd a; ln -s x ../.envrc",                           {".envrc"}, "a link"),
    ("mv a/b/x .envrc",                                   {".envrc"}, "a file from elsewhere in the workspace"),
    ("mv a/b .vscode",                                    {".vscode"}, "a folder from elsewhere"),
    ("echo x > .envrc; touch -d 2001-01-01 . a",          {".envrc"}, "a time that was set back hides nothing"),
    ("echo x > r/.envrc",                                 {"r/.envrc"}, "in a repository inside"),
    ("cd a/b; mkdir -p .git/hooks; echo > .git/hooks/x",  {"a/b/.git/hooks"}, "in one that was made"),
    ("mkdir -p .git/modules/m; echo evil > .git/modules/m/config", {".git/modules/m/config"}, "in a submodule"),
    ("python3 -c 'import ctypes as c; c.CDLL(None).renameat2(-100, b\"a/x\", -100, b\"r/old\", 2)'; mv r/old r/.envrc",
                                                          {"r/.envrc"}, "two that changed places"),
    ("rm .git/config; echo evil > .git/config",      {".git/config"}, "another file under a name that was there"),
    ("mkdir later; echo x > later/tasks.json",            {"later"}, "where a link of such a name leads"),
    ("mkdir -p r/env; echo x > r/env/rc",                 {"r/env/rc"}, "also where the folder on the way was missing"),
    ("echo x > a/b/new; rm -r a/b; echo y > a/x",         set(), "what nothing runs"),
    ("true",                                              set(), "nothing"),
]
# fmt: on


@pytest.mark.threat("T65")
@pytest.mark.parametrize(("change", "moved", "why"), APPEARING, ids=[row[2] for row in APPEARING])
@pytest.mark.parametrize("link", [False, True], ids=["", "with a link in the way"])
def test_what_appears_is_noticed_however_little_is_read(
    tmp_path: Path, quick: None, change: str, moved: set[str], why: str, link: bool
) -> None:
    folder = tmp_path / "w"
    make(folder, "a/x", "a/b/x", "r/old", "r/.git/config", ".git/config", ".git/hooks/x.sample")
    if "later" in change:
        (folder / ".vscode").symlink_to("later")
    if "r/env" in change:
        (folder / "r/.envrc").symlink_to("env/rc")
    if link:
        (folder / ".git" / "HEAD").symlink_to("refs/heads/main")
    terms = Terms(Rights.WORKSPACE_WRITE, str(folder), "/nonexistent", hidden=SECRETS, shown=SHOWN, locked=LOCKED)
    trees = FolderTrees(None)
    wait_until_settled()

    def after(script: str) -> set[str]:
        found = scan(str(folder), SECRETS, SHOWN, LOCKED, trees)
        watch = Watch(terms, found, tmp_path / "aside", trees)
        assert bool(watch.moment) is not link, "what a link leads to is not known by the folders"
        subprocess.run(["bash", "-c", script], cwd=folder, check=True)
        return short(tuple(violation.path for violation in watch.settle()), folder)

    for _ in range(2):
        assert after("true") == set()
    assert after(change) == moved, why
    assert after("true") == set(), "what was there before stays"


@pytest.mark.threat("T65")
def test_names_with_a_wildcard_are_found_and_remembered_beside_links(tmp_path: Path, quick: None) -> None:
    """A link in the folder does not make every look a whole one, and another target of a link that counts is noticed."""
    folder, locked = tmp_path / "w", (*LOCKED, "*.code-workspace", "Lefthook.*")
    make(folder, "a/x", "real.txt", "other.txt", "My.code-workspace", "lefthook.yml")
    (folder / "readme").symlink_to("a/x")
    (folder / "linked.code-workspace").symlink_to("real.txt")
    terms = Terms(Rights.WORKSPACE_WRITE, str(folder), "/nonexistent", hidden=SECRETS, shown=SHOWN, locked=locked)
    trees = FolderTrees(None)
    wait_until_settled()
    found = scan(str(folder), SECRETS, SHOWN, locked, trees)
    assert short(found.locked, folder) == {"My.code-workspace", "real.txt"}, "upper and lower case are the disk's"
    assert Watch(terms, found, tmp_path / "aside", trees).moment
    (folder / "other").symlink_to("other.txt")
    os.replace(folder / "other", folder / "linked.code-workspace")
    found = scan(str(folder), SECRETS, SHOWN, locked, trees)
    assert short(found.locked, folder) == {"My.code-workspace", "other.txt"}


def test_too_many_special_files_are_never_a_part_of_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scanning, "MOST", 3)
    make(tmp_path, ".env", "a/.env", "b/.env")
    assert not look(tmp_path).truncated
    make(tmp_path, "c/.env")
    assert look(tmp_path).truncated


@pytest.mark.threat("T17")
def test_too_many_hard_links_matter_where_they_may_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A clone of a neighbouring folder has such links: both have the same object files."""
    here, there = tmp_path / "w", tmp_path / "elsewhere"
    make(here, "a")
    make(there, *"bcd")
    for name in "bcd":
        os.link(there / name, here / name)
    terms = Terms(Rights.WORKSPACE_WRITE, str(here), "/nonexistent", system=("/usr",))
    for most, crowded in ((3, False), (2, True)):
        monkeypatch.setattr(scanning, "MOST_SHARED", most)
        found = look(here)
        assert (found.crowded, found.truncated, len(found.shared)) == (crowded, False, most)
        plan_builder.refuse_impossible(replace(terms, rights=Rights.READ_ONLY), found, plan_builder.kind)
        if not crowded:
            plan_builder.refuse_impossible(terms, found, plan_builder.kind)
            assert {path for path, *_ in found.marks} == {*found.shared}
            continue
        with pytest.raises(SandboxUnavailable, match="git repack"):
            plan_builder.refuse_impossible(terms, found, plan_builder.kind)


@pytest.mark.threat("T04")
def test_law_names_match_as_one_expression_would_have_them() -> None:
    dice = random.Random(5)
    profile = tomllib.loads((ROOT / "profiles" / "default.toml").read_text())
    usual = [word for table in profile.values() if isinstance(table, dict) for words in table.values()
             if isinstance(words, list) for word in words if isinstance(word, str) and "/" not in word]  # fmt: skip
    assert "*.pem" in usual
    odd = ["*", "**", "a*", "*a", "*a*", "a*a", "a*b*c", "?a", "[ab]*", "[!a]", "", "\u212aey", "*.K", "a**b", "*.*"]
    for _ in range(400):
        patterns = tuple(dice.sample(usual, 5) + dice.sample(odd, 2))
        ours, theirs = secret_files.matcher(patterns), secret_files.expression(patterns)
        for _ in range(60):
            base = dice.choice([*patterns, *usual]).replace("*", dice.choice(["", "a", "b.c", "x*", "\n", "\u212a"]))
            spelled = dice.choice([base, base.lower(), base.upper(), base.title()])
            name = spelled[: dice.choice([1, 3, 99])] + dice.choice(["", "", "a", "\n", "\u017f"])
            assert ours(name) is theirs(name), (patterns, name)


# ---- repositories inside


def git(*words: str, cwd: Path) -> None:
    environ = {**ENVIRON, "GIT_TEMPLATE_DIR": str(cwd.parent / "template")}
    subprocess.run(["git", *words], cwd=cwd, env=environ, check=True, capture_output=True)


@pytest.mark.threat("T16")
def test_every_kind_of_repository_is_found(tmp_path: Path) -> None:
    source, folder = tmp_path / "source", tmp_path / "w"
    source.mkdir()
    folder.mkdir()
    (tmp_path / "template/hooks").mkdir(parents=True)
    for each in (source, folder):
        git("init", "-q", cwd=each)
        git("commit", "-q", "--allow-empty", "-m", "m", cwd=each)
    git("submodule", "add", "-q", str(source), "deep/er/module", cwd=folder)
    git("worktree", "add", "-q", "tree", cwd=folder)
    git("clone", "-q", "--bare", str(source), "b.git", cwd=folder)
    git("init", "-q", "x/y/z/nested", cwd=folder)
    found = look(folder)
    assert short(found.roots, tmp_path) == {"w", "w/deep/er/module", "w/tree", "w/x/y/z/nested"}
    locked = short(found.locked, folder)
    for inner in (".git", ".git/modules/deep/er/module", "b.git", "x/y/z/nested/.git"):
        assert {f"{inner}/config", f"{inner}/hooks"} <= locked, inner
    assert {"tree/.git", "deep/er/module/.git", ".git/worktrees/tree/commondir"} <= locked
    assert short(found.pinned, folder) == {".git", "x/y/z/nested/.git"}


@pytest.mark.threat("T16")
@pytest.mark.threat("T04")
def test_another_name_of_the_same_file_is_no_way_around(tmp_path: Path) -> None:
    make(tmp_path, ".git/config", ".git/hooks/pre-commit", ".env", "tools/x", "free", "tasks/tasks.json")
    for old, new in ((".git/config", "c"), (".git/hooks/pre-commit", "h"), (".env", "notes.txt"), ("free", "free2")):
        os.link(tmp_path / old, tmp_path / new)
    (tmp_path / ".vscode").symlink_to("tasks")
    (tmp_path / ".envrc").symlink_to("tools/x")
    found = look(tmp_path)
    assert short(found.locked, tmp_path) == {
        *(".git/config", "c", ".git/hooks", ".git/hooks/pre-commit", "h", "tasks", "tools/x")
    }
    assert short(found.masked, tmp_path) == {".env", "notes.txt"}


# fmt: off
GIT_FILES = [
    ("config", "[core]\n\trepositoryformatversion = 0\n\tfilemode = true\n\tbare = false\n", True, "git init"),
    ("config", '[remote "origin"]\n\turl = https://host.example/a/b.git\n\tfetch = +refs/heads/*:refs/remotes/origin/*\n'
               '[branch "main"]\n\tremote = origin\n\tmerge = refs/heads/main\n', True, "git clone"),
    ("config", "[user]\n\tname = Ann O'Neil\n\temail = a@b.example\n", True, "a name"),
    ("config", '[remote "origin"]\n\turl = git@host.example:a/b.git\n\tfetch = +refs/heads/*:refs/remotes/origin/*\n'
               '\tpushurl = no_push\n', True, "an address as ssh has it"),
    ("config", '[remote "origin"]\n\turl = file:///a/b.git\n\tfetch = +refs/*:refs/*\n\tmirror = true\n', True, "git clone --mirror"),
    ("config", '[remote "origin"]\n\turl = /a/b.git\n\ttagOpt = --no-tags\n[submodule]\n\tactive = .\n', True, "git clone --no-tags --recurse-submodules"),
    ("config", "[advice]\n\tdetachedHead = false\n[core]\n\tautocrlf = input\n\tlongpaths = true\n", True, "git clone --config"),
    ("config", "[commit]\n\tgpgsign = false\n[gc]\n\tauto = 0\n[core]\n\thooksPath = /dev/null\n", True, "repositories of tests"),
    ("config", '[branch "main"]\n\tremote = origin\n\tmerge = refs/heads/main\n\trebase = true\n', True, "git branch"),
    ("config", "[receive]\n\tdenyCurrentBranch = updateInstead\n", True, "where others push to"),
    ("config.worktree", "[core]\n\tsparseCheckout = true\n\tsparseCheckoutCone = true\n", True, "git sparse-checkout"),
    ("config.worktree", "[core]\n\tfsmonitor = ./evil\n", False, "hostile: the settings of a worktree"),
    ("config", "[core]\n\tpager = ./evil\n", False, "hostile: a pager"),
    ("config", "[core]\n\tfsmonitor\n", False, "hostile: a key without a value"),
    ("config", "[core]\n\tworktree = ../..\n", False, "hostile: the files of another folder"),
    ("config", '[diff "algorithm"]\n\tcommand = evil\n', False, "hostile: a driver named like a setting"),
    ("config", '[core "hooksPath=/dev/null"]\n\tx = y\n', False, "hostile: a name with a value in it"),
    ("config", '[remote "o"]\n\turl = ext::evil\n', False, "hostile: a program without a blank"),
    ("config", '[remote "o"]\n\turl = -oProxyCommand=evil:x\n', False, "hostile: a host that is an option"),
    ("config", '[remote "o"]\n\turl = host:-x\n', False, "hostile: a path that is an option"),
    ("config", '[remote "o"]\n\tpromisor = true\n[extensions]\n\tpartialClone = o\n', False, "hostile: Git fetches by itself"),
    ("config", '[branch "m"]\n\tmergeOptions = -s evil\n', False, "hostile: a strategy is a program"),
    ("config", '[submodule "s"]\n\tupdate = !evil\n', False, "hostile: a submodule's command"),
    ("config", "[core]\n\tfsmonitor = ./evil\n", False, "hostile: a program at every status"),
    ("config", "[core]\n\tFSMonitor = ./evil\n", False, "hostile: in other letters"),
    ("config", "[core] fsmonitor = ./evil\n", False, "hostile: on the line of the section"),
    ("config", "[CORE]\n\tfsmonitor = ./evil\n", False, "hostile: a section in other letters"),
    ("config", "[core]\n\tfilemode = true\\\n\n", False, "hostile: a continued line"),
    ("config", "[core]\n\tfilemode = true\r\tfsmonitor = evil\n", False, "hostile: a carriage return"),
    ("config", "[core]\n\thooksPath = ../evil\n", False, "hostile: hooks from elsewhere"),
    ("config", "[include]\n\tpath = ../evil\n", False, "hostile: settings from elsewhere"),
    ("config", '[remote "o"]\n\turl = ext::sh -c evil\n', False, "hostile: an address that is a program"),
    ("config", '[remote "o"]\n\turl = ssh://-oProxyCommand=evil/x\n', False, "hostile: an address that is an option"),
    ("config", '[remote "o"]\n\tuploadpack = evil\n', False, "hostile: a program for fetching"),
    ("config", '[branch "m"]\n\tremote = ext::evil\n', False, "hostile: an address in place of a remote"),
    ("config", "[alias]\n\tst = !evil\n", False, "hostile: an alias"),
    ("config", '[filter "x"]\n\tclean = evil\n', False, "hostile: a filter"),
    ("config", "[user]\n\tname = x\n\tsigningkey = k\n", False, "a key that is not known"),
    (".hg/hgrc", "# an example\n[paths]\ndefault = ssh://hg@host.example/a\n\n# [ui]\n", True, "hg clone"),
    (".hg/hgrc", "[paths]\ndefault = /a\n[extensions]\nx = ./evil.py\n", False, "hostile: an extension of Mercurial"),
    (".hg/hgrc", "%include ../../evil\n", False, "hostile: settings of Mercurial from elsewhere"),
    (".hg/hgrc", "[paths]\ndefault = ssh://-oProxyCommand=evil/x\n", False, "hostile: an address of Mercurial that is an option"),
    (".sl/config", "[paths]\ndefault = https://host.example/a\n", True, "sl clone"),
    (".sl/config", "[advice]\nx = y\n", False, "settings of Git in a place of Sapling"),
    (".git/worktrees/w/commondir", "../..\n", True, "git worktree add"),
    ("commondir", "../../../evil\n", False, "hostile: settings from elsewhere"),
    ("sub/.git/commondir", "../..\n", False, "hostile: settings that lie in no repository, where nobody looks for any"),
    (".git", "gitdir: ../.git/worktrees/w\n", True, "a worktree of this repository"),
    (".git", "gitdir: ../evil\n", False, "hostile: a folder with settings under another name"),
    (".git", "gitdir: ../.git/worktrees/../../evil\n", False, "hostile: the same by a detour"),
    (".git", "gitdir: /tmp/.git/modules/x\n", False, "hostile: outside"),
    (".git/modules/sm/config", "[core]\n\tworktree = ../../../new/sm\n", True, "git submodule add"),
    (".git/modules/sm/config", "[core]\n\tworktree = ../../../..\n", False, "hostile: a submodule with files outside"),
    (".git/modules/sm/config", "[core]\n\tworktree = ../../hooks\n", False, "hostile: a submodule with hooks as files"),
    (".git/modules/sm/config", "[core]\n\tworktree = ../../../new\n\tfsmonitor = evil\n", False, "hostile: a submodule with a program"),
    (".gitmodules", '[submodule "a/s"]\n\tpath = a/s\n\turl = ../s\n', True, "git submodule add, the names"),
    (".gitmodules", '[submodule "s"]\n\tpath = s\n\turl = ../s\n\tupdate = !evil\n', False, "hostile: a submodule's command in the names"),
    (".gitmodules", '[submodule "s"]\n\tpath = s\n\turl = ext::sh -c evil\n', False, "hostile: a program as the address of a submodule"),
    (".gitmodules", '[submodule "s"]\n\tpath = -u\n\turl = ../s\n', False, "hostile: an option as the path of a submodule"),
    (".gitmodules", '[submodule "../../x"]\n\tpath = s\n\turl = ../s\n', False, "hostile: a name that leads elsewhere"),
    (".gitmodules", "[core]\n\tpath = s\n", False, "another section in the names"),
    (".envrc", "", False, "no file of Git's"),
]
# fmt: on


@pytest.mark.threat("T16")
@pytest.mark.parametrize(("name", "text", "expected", "why"), GIT_FILES, ids=[row[3] for row in GIT_FILES])
def test_what_git_makes_itself_may_stay(tmp_path: Path, name: str, text: str, expected: bool, why: str) -> None:
    make(
        tmp_path,
        "new/x",
        ".git/worktrees/w/x",
        ".git/modules/sm/x",
        ".git/HEAD",
        ".git/objects/x",
        ".git/refs/x",
        "evil/x",
        "new/sub/.git/x",
        "new/.hg/x",
        "new/.sl/x",
    )
    path = tmp_path / name if name.startswith(".git/") else tmp_path / "new" / name
    path.write_bytes(text.encode())
    assert harmless(str(path), str(tmp_path)) is expected


# fmt: off
NAMED = [
    ("[core]\n\thooksPath = tools/hooks\n", {"w/tools/hooks"}, "hooks elsewhere in the workspace"),
    ("[CORE] hookspath=\"tools/hooks\" ; why\n", {"w/tools/hooks"}, "the same in another spelling"),
    ("[core]\n\thooksPath = ../out\n", set(), "hooks outside: nobody here writes there"),
    ("[core]\n\thooksPath = .\n", set(), "the whole workspace is no folder of hooks"),
    ("[include]\n\tpath = ../shared.ini\n", {"w/shared.ini", "w/hooks"}, "settings that are shared, and what they name"),
    ('[includeIf "gitdir:x"]\n\tpath = ../shared.ini\n', {"w/shared.ini", "w/hooks"}, "the same under a condition"),
    ("[lfs]\n\tpath = tools\n", set(), "another key of that name"),
]
# fmt: on


@pytest.mark.threat("T16")
@pytest.mark.parametrize(("config", "expected", "why"), NAMED, ids=[row[2] for row in NAMED])
def test_where_the_settings_of_a_repository_lead_is_kept(
    tmp_path: Path, config: str, expected: set[str], why: str
) -> None:
    make(tmp_path, "w/.git/HEAD", "w/.git/objects/x", "w/.git/refs/x", "w/tools/hooks/pre-commit", "w/hooks/x", "out/x")
    (tmp_path / "w/.git/config").write_text(config)
    (tmp_path / "w/shared.ini").write_text("[core]\nhooksPath = hooks\n")
    found = look(tmp_path / "w")
    assert short(found.locked, tmp_path) - {"w/.git/config"} == expected, why


@pytest.mark.threat("T16")
def test_settings_that_a_folder_shares_are_kept_where_they_lie(tmp_path: Path) -> None:
    make(tmp_path, "r/.git/HEAD", "config", "hooks/x")
    (tmp_path / "r/.git/commondir").write_text("../..\n")
    assert {"config", "r/.git/commondir"} <= short(look(tmp_path).locked, tmp_path)


@pytest.mark.threat("T14")
def test_folders_in_the_place_of_settings_keep_no_descriptor(tmp_path: Path) -> None:
    """A command can make thousands of these, and the runner lives long."""
    make(tmp_path, "r/.git/HEAD", "r/.git/objects/x", "r/.git/refs/x", "r/.git/config/x", "r/.git/commondir/x")
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        look(tmp_path)
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.threat("T16")
def test_a_name_that_looks_like_a_pattern_is_a_name(tmp_path: Path) -> None:
    make(tmp_path, "a[1]/.git/modules/m/config", "a1/x")
    assert short(look(tmp_path / "a[1]").locked, tmp_path) == {"a[1]/.git/modules/m/config"}


@pytest.mark.threat("T04")
def test_a_folder_whose_path_is_too_long_is_closed(tmp_path: Path) -> None:
    here = os.open(tmp_path, os.O_RDONLY)
    for _ in range(25):
        os.mkdir("d" * 200, dir_fd=here)
        inner = os.open("d" * 200, os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = inner
    os.close(os.open(".env", os.O_CREAT | os.O_WRONLY, dir_fd=here))
    os.close(here)
    (masked,) = look(tmp_path).masked
    assert masked.endswith("d" * 200), "nothing below can be named by a path, so none of it is shown"
    assert len(masked) <= trees_module.DEEPEST + 256
    shutil.rmtree(masked.rpartition("/")[0], ignore_errors=True)
    subprocess.run(["rm", "-rf", tmp_path / ("d" * 200)], check=True)


@pytest.mark.threat("T16")
def test_hooks_that_are_samples_may_stay(tmp_path: Path) -> None:
    hooks = tmp_path / "hooks"
    make(hooks, "pre-commit.sample")
    assert harmless(str(hooks), str(tmp_path))
    (hooks / "x.sample").symlink_to("pre-commit.sample")
    assert not harmless(str(hooks), str(tmp_path)), "a link is no sample"
    (hooks / "x.sample").unlink()
    make(hooks, "pre-commit")
    with warnings.catch_warnings(record=True) as unclosed:
        warnings.simplefilter("always")
        assert not harmless(str(hooks), str(tmp_path))
    assert unclosed == [], "the folder is closed before all of its entries were read"
    (tmp_path / "link").symlink_to(hooks)
    assert not harmless(str(tmp_path / "link"), str(tmp_path))
