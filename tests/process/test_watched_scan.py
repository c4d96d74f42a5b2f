"""Tests of the scan with a watch on the folders: it finds what a scan of all folders finds, and examines only what
changed.
"""

import os
import random
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from policy.model.verdict import Rights, Terms
from sandbox.linux.launch import survey
from sandbox.workspace import folder_cache, tree_watch
from sandbox.workspace.folder_cache import FolderTree, FolderTrees
from sandbox.workspace.inotify import Inotify
from sandbox.workspace.protected_paths import Scan, scan
from sandbox.workspace.tree_watch import TreeWatch
from tests.process.test_cached_scan import CHANGES, LOCKED, SECRETS, SHOWN, look, make, short
from tests.process.test_transaction import refusing
from tests.support.law import number_of_examples
from tests.support.places import ROOT

QUEUE = int(Path("/proc/sys/fs/inotify/max_queued_events").read_text())
Trees = tuple[FolderTrees, Path]


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Watch each tree from the first scan on, whatever other tests in this process watch."""
    monkeypatch.setattr(folder_cache, "_OFTEN", 1)
    monkeypatch.setattr(tree_watch, "_INSTANCES", 100)


@pytest.fixture
def watched(tmp_path: Path) -> Trees:
    """A workspace that was scanned, with all its folders watched."""
    folder = tmp_path / "w"
    make(folder, "a/plain", "a/x.pem", "a/b/deep", "b/b/other", "r/.git/config", "r/.git/hooks/x", "top")
    trees = FolderTrees(None)
    look(folder, trees)
    tree = tree_of(trees, folder)
    assert tree._watch is not None
    assert all(path in tree._watch for path in tree.folders)
    return trees, folder


def tree_of(trees: FolderTrees, folder: Path) -> FolderTree:
    return trees.take(str(folder), (SECRETS, SHOWN))


def seen(trees: FolderTrees, folder: Path) -> Scan:
    """Scan without counting hard links, as for a command on a layer."""
    return scan(str(folder), SECRETS, SHOWN, LOCKED, trees, count=False)


class Looked:
    """The folders that a FolderTree compared or read."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.paths = list[str]()
        monkeypatch.setattr(os, "lstat", self._counting(os.lstat))
        read = FolderTree._read

        def reading(tree: FolderTree, path: str, secret: folder_cache.Match) -> folder_cache.Folder | None:
            self.paths.append(path)
            return read(tree, path, secret)

        monkeypatch.setattr(FolderTree, "_read", reading)

    def _counting(self, status: "type[os.stat_result] | object") -> object:
        def counting(path: object, **options: object) -> object:
            if sys._getframe(1).f_code.co_filename == folder_cache.__file__:
                self.paths.append(str(path))
            return status(path, **options)  # type: ignore[operator]  # os.lstat

        return counting

    def since(self) -> list[str]:
        """Return what was examined since the last call."""
        paths, self.paths = self.paths, []
        return paths


# ---- nothing is missed


@pytest.mark.threat("T316")
@pytest.mark.parametrize(("change", "why"), CHANGES, ids=[why for _, why in CHANGES])
def test_law_the_watch_hides_no_change(tmp_path: Path, change: str, why: str) -> None:
    folder, outside = tmp_path / "w", tmp_path / "outside"
    make(folder, "a/plain", "a/x.pem", "a/b/deep", "r/.git/config", "r/.git/hooks/x", "top")
    make(outside, "far", "pair")
    os.link(outside / "pair", folder / "pair")
    (folder / "r/.git/config").write_text("[include]\npath = ../../../outside/settings\n")
    (outside / "settings").write_text("[user]\nname = n\n")
    trees = FolderTrees(None)
    before = look(folder, trees)
    assert look(folder, trees) == before == look(folder)
    assert tree_of(trees, folder)._watch is not None
    subprocess.run(["bash", "-c", change], cwd=folder, check=False, env={"PATH": os.environ["PATH"]})
    after = look(folder, trees)
    assert after == look(folder), why
    assert after != before, why


@pytest.mark.threat("T316")
@pytest.mark.parametrize("seed", range(3))
def test_law_random_moves_hide_nothing(tmp_path: Path, seed: int) -> None:
    """Folders change their places, in and out of the workspace, and are changed where they are, between two scans."""
    dice = random.Random(seed)
    folder, outside = tmp_path / "w", tmp_path / "outside"
    folder.mkdir()
    outside.mkdir()
    trees = FolderTrees(None)
    names = ["a", "b", "c", ".env", "k.pem", ".git", ".envrc"]
    done = 0
    steps = number_of_examples(600, many=1500)
    for step in range(steps):
        inner = [Path(found) for found, _, _ in os.walk(folder)]
        places = [*inner, *(Path(found) for found, _, _ in os.walk(outside))]
        place = dice.choice(places) / dice.choice(names)
        try:
            match dice.randrange(9):
                case 0 | 1 | 2:
                    place.mkdir()
                case 3:
                    place.write_text("x")
                case 4:
                    shutil.rmtree(place) if place.is_dir() else place.unlink()
                case 5 | 6:
                    place.rename(dice.choice(places) / dice.choice(names))
                case 7:
                    one, other = dice.choice(inner[1:] or inner), dice.choice(places)
                    swap(one, other, outside / "swap")
                case 8:
                    place.symlink_to(dice.choice(places))
        except (OSError, shutil.Error):
            continue
        done += 1
        if dice.randrange(3) == 0:
            assert seen(trees, folder) == seen(FolderTrees(None), folder), step
            tree = tree_of(trees, folder)
            assert tree._watch is not None
            assert tree._watch._events.paths.keys() == {tree._watch._events.number(path) for path in tree.folders}
    assert done > steps // 5
    assert seen(trees, folder) == seen(FolderTrees(None), folder)


def swap(one: Path, other: Path, between: Path) -> None:
    if one in other.parents or other in one.parents or one == other:
        raise OSError("one is in the other")
    one.rename(between)
    other.rename(one)
    between.rename(other)


@pytest.mark.threat("T316")
def test_a_folder_below_a_swapped_one_is_not_mistaken_for_another(watched: Trees) -> None:
    """`a/b` and `b/b` are both known and both watched. No event names them."""
    trees, folder = watched
    (folder / "a/b/.env").write_text("s")
    assert short(seen(trees, folder).masked, folder) == {"a/b/.env", "a/x.pem"}
    swap(folder / "a", folder / "b", folder.parent / "c")
    assert short(seen(trees, folder).masked, folder) == {"b/b/.env", "b/x.pem"}
    (folder / "a/b/.env").write_text("s")
    assert short(seen(trees, folder).masked, folder) == {"a/b/.env", "b/b/.env", "b/x.pem"}


@pytest.mark.threat("T316")
def test_another_workspace_at_the_same_path_is_examined(watched: Trees) -> None:
    trees, folder = watched
    folder.rename(folder.parent / "old")
    make(folder, "a/plain", "a/b/.env")
    assert short(seen(trees, folder).masked, folder) == {"a/b/.env"}
    (above := folder.parent / "above").mkdir()
    folder.rename(above / "w")
    (folder.parent / "old").rename(folder)
    assert short(seen(trees, folder).masked, folder) == {"a/x.pem"}


@pytest.mark.threat("T316")
def test_events_beyond_the_queue_are_not_missed(watched: Trees) -> None:
    """A program makes and removes files until the kernel drops the event of a secret file."""
    trees, folder = watched
    for number in range(QUEUE // 2 + 1):
        os.close(os.open(f"{folder}/{number % 7}", os.O_CREAT | os.O_WRONLY))
        os.unlink(f"{folder}/{number % 7}")
    (folder / "a/b/.env").write_text("s")
    tree = tree_of(trees, folder)
    assert tree._watch is not None
    assert ("", "") in {event[:2] for event in list_events(tree._watch)}, "the queue was full"
    for number in range(QUEUE // 2 + 1):
        os.close(os.open(f"{folder}/{number % 7}", os.O_CREAT | os.O_WRONLY))
        os.unlink(f"{folder}/{number % 7}")
    (folder / "b/b/.env").write_text("s")
    assert short(seen(trees, folder).masked, folder) == {"a/b/.env", "a/x.pem", "b/b/.env"}


def list_events(watch: TreeWatch) -> list[tuple[str, str, int]]:
    found = list[tuple[str, str, int]]()
    while events := list(watch._events.read()):
        found += events
    return found


@pytest.mark.threat("T316")
def test_a_change_during_a_scan_that_fails_is_found_later(watched: Trees, monkeypatch: pytest.MonkeyPatch) -> None:
    trees, folder = watched
    (folder / "a/b/.env").write_text("s")
    (folder / "b/b/.env").write_text("s")
    read = FolderTree._read

    def fails(tree: FolderTree, path: str, secret: folder_cache.Match) -> folder_cache.Folder | None:
        raise KeyboardInterrupt

    monkeypatch.setattr(FolderTree, "_read", fails)
    with pytest.raises(KeyboardInterrupt):
        seen(trees, folder)
    monkeypatch.setattr(FolderTree, "_read", read)
    assert short(seen(trees, folder).masked, folder) == {"a/b/.env", "a/x.pem", "b/b/.env"}


@pytest.mark.threat("T316")
def test_a_forked_process_takes_no_event_away(watched: Trees) -> None:
    trees, folder = watched
    (folder / "a/b/.env").write_text("s")
    expected = {"a/b/.env", "a/x.pem"}
    if (pid := os.fork()) == 0:
        found = short(seen(trees, folder).masked, folder)
        os._exit(0 if found == expected and tree_of(trees, folder)._watch is None else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert short(seen(trees, folder).masked, folder) == expected


@pytest.mark.threat("T316")
def test_two_threads_find_the_same(watched: Trees) -> None:
    """The one that finds an empty queue waits until the other has examined what the queue had."""
    trees, folder = watched
    for number in range(60):
        name = f"b/b/{number}.pem"
        (folder / name).write_text("s")
        found, start = list[bool](), threading.Barrier(3)

        def search(name: str = name, found: list[bool] = found, start: threading.Barrier = start) -> None:
            start.wait()
            tree_of(trees, folder).renew(lambda path: path.endswith(".pem"), everything=False)
            found.append(os.path.basename(name) in tree_of(trees, folder).folders[f"{folder}/b/b"][6])

        both = [threading.Thread(target=search) for _ in range(3)]
        for each in both:
            each.start()
        for each in both:
            each.join()
        assert found == [True] * 3, number


MOUNTED = """
import os, subprocess, sys
from pathlib import Path
from sandbox.workspace import folder_cache
from sandbox.workspace.folder_cache import FolderTrees
from tests.process.test_cached_scan import look, short
folder_cache._OFTEN, folder, trees = 1, Path(sys.argv[1]), FolderTrees(None)
look(folder, trees)
subprocess.run(["mount", "-t", "tmpfs", "tmpfs", folder / "a/b"], check=True)
(folder / "a/b/.env").write_text("s")
assert short(look(folder, trees).masked, folder) == {"a/b/.env"}, look(folder, trees).masked
(folder / "a/b/k.pem").write_text("s")
assert short(look(folder, trees).masked, folder) == {"a/b/.env", "a/b/k.pem"}
subprocess.run(["umount", folder / "a/b"], check=True)
assert not look(folder, trees).masked
"""


@pytest.mark.threat("T316")
@pytest.mark.skipif(os.geteuid() != 0, reason="only root mounts")
def test_what_is_mounted_is_examined(tmp_path: Path) -> None:
    make(tmp_path / "w", "a/b/deep", "top")
    words = ["unshare", "-m", "--propagation", "private", sys.executable, "-c", MOUNTED, str(tmp_path / "w")]
    subprocess.run(words, cwd=ROOT, check=True)


@pytest.mark.threat("T316")
def test_a_file_system_that_does_not_report_is_examined(watched: Trees, monkeypatch: pytest.MonkeyPatch) -> None:
    _, folder = watched
    monkeypatch.setattr(tree_watch, "REPORTING", frozenset())
    trees = FolderTrees(None)
    look(folder, trees)
    tree = tree_of(trees, folder)
    assert tree._watch is not None
    assert not any(path in tree._watch for path in tree.folders)
    looked = Looked(monkeypatch)
    seen(trees, folder)
    assert {*looked.since()} >= tree.folders.keys()


# ---- the costs


@pytest.fixture
def no_mounts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine on which nothing is mounted meanwhile: after a mount, which other tests make, all is examined."""
    (tmp_path / "mounts").touch()
    monkeypatch.setattr(tree_watch, "_MOUNTS", str(tmp_path / "mounts"))


@pytest.mark.usefixtures("no_mounts")
@pytest.mark.parametrize("folders", [20, 200])
def test_only_what_changed_is_examined(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folders: int) -> None:
    """The number of system calls does not depend on the number of folders."""
    folder, trees = tmp_path / "w", FolderTrees(None)
    make(folder, *(f"{number % 10}/{number}/file" for number in range(folders)))
    seen(trees, folder)
    looked = Looked(monkeypatch)
    seen(trees, folder)
    assert looked.since() == [str(folder)], "nothing changed"
    (folder / "3/13/new").write_text("x")
    seen(trees, folder)
    assert {*(examined := looked.since())} == {str(folder), f"{folder}/3/13"}
    assert len(examined) <= 4, "each is compared, and read at most once"
    (folder / "3/n/n").mkdir(parents=True)
    seen(trees, folder)
    assert {*looked.since()} == {str(folder), f"{folder}/3", f"{folder}/3/n", f"{folder}/3/n/n"}
    shutil.rmtree(folder / "3")
    seen(trees, folder)
    assert {*looked.since()} == {str(folder)}
    assert f"{folder}/3/13" not in tree_of(trees, folder).folders
    seen(trees, folder)
    assert looked.since() == [str(folder)]


@pytest.mark.usefixtures("no_mounts")
@pytest.mark.parametrize("files", [20, 400])
def test_a_command_on_a_layer_examines_no_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: int) -> None:
    make(folder := tmp_path / "w", *(f"{number % 3}/{number}" for number in range(files)))
    terms = Terms(Rights.WORKSPACE_WRITE, str(folder), "/nonexistent", hidden=SECRETS, shown=SHOWN, locked=LOCKED)
    (cache := tmp_path / "cache").mkdir()
    survey(terms, "", cache, layered=True)
    looked = Looked(monkeypatch)
    survey(terms, "", cache, layered=True)
    assert looked.since() == [str(folder)]
    survey(terms, "", cache)
    assert len(looked.since()) >= files, "the hard links of each file are counted for a command without a layer"


@pytest.mark.threat("T316")
@pytest.mark.parametrize("files", [20, 600])
def test_a_new_secret_name_of_a_file_in_an_unchanged_folder(tmp_path: Path, files: int) -> None:
    """The other name, in a folder that did not change, is masked as well, also without counting all links each time."""
    make(folder := tmp_path / "w", "sub/x", *(f"more/{number}" for number in range(files)))
    trees = FolderTrees(None)
    assert seen(trees, folder).masked == seen(trees, folder).masked == ()
    os.link(folder / "sub/x", folder / "key.pem")
    found = seen(trees, folder)
    assert found.masked == (str(folder / "key.pem"), str(folder / "sub/x"))
    assert found.shared == (), "all names are in the workspace"
    os.unlink(folder / "key.pem")
    assert seen(trees, folder).masked == ()


@pytest.mark.threat("T316")
def test_a_secret_file_with_a_name_outside_is_masked_and_not_shared(watched: Trees) -> None:
    trees, folder = watched
    os.link(folder / "a/x.pem", folder.parent / "copy")
    make(folder, "top2")
    found = scan(str(folder), SECRETS, SHOWN, LOCKED, trees)
    assert str(folder / "a/x.pem") in found.masked
    assert str(folder / "a/x.pem") not in found.shared


@pytest.mark.parametrize("name", [".env", "x.pem", ".vscode", "plain"])
def test_a_link_whose_target_this_user_may_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """The files of a repository must not stop every command, and the other secret files are still found."""
    make(folder := tmp_path / "w", "a/y.pem")
    (folder / name).symlink_to("/proc/1/cwd/x")
    monkeypatch.setattr(os, "readlink", refusing(os.readlink, "/proc/1/cwd"))
    assert str(folder / "a/y.pem") in scan(str(folder), (*SECRETS, ".env"), SHOWN, (".vscode", *LOCKED)).masked


def test_a_process_that_asks_once_watches_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folder_cache, "_OFTEN", 3)
    make(folder := tmp_path / "w", "a/b/c")
    trees = FolderTrees(None)
    for watching in (False, False, True, True):
        seen(trees, folder)
        assert (tree_of(trees, folder)._watch is not None) is watching


# ---- limits


@pytest.fixture
def scarce(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that lacks what a watch needs."""

    def none(events: int) -> Inotify:
        raise OSError(24, "inotify")

    match request.param:
        case "no instance":
            monkeypatch.setattr(tree_watch, "Inotify", none)
        case "few watches":
            monkeypatch.setattr(tree_watch, "MOST", 3)
        case "no watches of the user":
            monkeypatch.setattr(tree_watch, "_user_limit", lambda: 0)
        case "many trees":
            monkeypatch.setattr(tree_watch, "_INSTANCES", 0)


@pytest.mark.threat("T316")
@pytest.mark.parametrize(
    "scarce", ["no instance", "few watches", "no watches of the user", "many trees"], indirect=True
)
def test_without_a_watch_all_folders_are_compared(tmp_path: Path, scarce: None) -> None:
    make(folder := tmp_path / "w", "a/b/c", "b/b/c")
    trees = FolderTrees(None)
    for number in range(3):
        look(folder, trees)
        assert tree_of(trees, folder)._watch is None
        (folder / f"b/b/{number}.pem").write_text("s")
        assert len(look(folder, trees).masked) == number + 1


def test_watches_end_with_their_trees(watched: Trees) -> None:
    trees, folder = watched
    tree = tree_of(trees, folder)
    watch = tree._watch
    assert watch is not None
    handles = (watch._events.handle, watch._mounts)
    assert os.readlink(f"/proc/self/fd/{handles[0]}") == "anon_inode:inotify"
    shutil.rmtree(folder / "a")
    (folder / "r").rename(folder.parent / "r")
    seen(trees, folder)
    assert {*watch._events.paths.values()} == {str(folder), f"{folder}/b", f"{folder}/b/b"}
    trees._held.clear()
    del tree, watch
    for handle in handles:
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(handle)
