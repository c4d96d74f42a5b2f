"""Tests of commands on a layer: what they see, what they leave, and that nothing in the workspace ever changes."""

import asyncio
import ctypes
import os
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from policy.model.verdict import Rights, Terms
from runner.doctor.report import CheckState, view_result
from sandbox.linux import layer_probe
from sandbox.linux.backend import Linux
from sandbox.workspace.layer import new_layer, read_layer
from tests.support.sandbox_bench import SECRET, USERS, Bench, make

PY = "/usr/bin/python3 -c"


@pytest.fixture(params=USERS, scope="module")
def bench(request: pytest.FixtureRequest) -> Iterator[Bench]:
    yield from make(request.param)


@pytest.fixture
def project(bench: Bench) -> Path:
    """A workspace with one of each: a file, a folder, a secret, a repository with hooks, a hard link to outside."""
    workspace = bench.base / "home" / f"project-{os.urandom(4).hex()}"
    for folder in ("sub/deep", ".git/hooks", ".git/objects", ".git/refs", "other"):
        (workspace / folder).mkdir(parents=True)
    (workspace / "file.txt").write_text("hello\n")
    (workspace / "sub" / "gone").write_text("gone\n")
    (workspace / "sub" / "deep" / "kept").write_text("kept\n")
    (workspace / ".env").write_text(f"KEY={SECRET}\n")
    (workspace / ".git" / "HEAD").write_text("ref: refs/heads/main\n")
    (workspace / ".git" / "config").write_text("[core]\n\tbare = false\n")
    (workspace / "run.sh").write_text("#!/bin/sh\necho ran\n")
    (workspace / "run.sh").chmod(0o755)
    return bench.own(workspace)


def state(folder: Path) -> dict[str, tuple[Any, ...]]:
    """Everything about the entries of a folder that a command could have changed."""
    found = {}
    for each in (folder, *sorted(folder.rglob("*"))):
        status = each.lstat()
        content = each.read_bytes() if each.is_file() and not each.is_symlink() else b""
        owner = (status.st_uid, status.st_gid, status.st_ino, status.st_ctime_ns, status.st_nlink)
        found[str(each.relative_to(folder))] = (status.st_mode, *owner, content)
    return found


def changes(answer: dict[str, Any]) -> list[tuple[Any, ...]]:
    """(path, kind, whole, within) of each change."""
    return [(row[0], row[1], row[4], row[5]) for row in answer["changes"]]


def paths(answer: dict[str, Any]) -> set[str]:
    return {row[0] for row in answer["changes"]}


def run(bench: Bench, project: Path, script: str, **told: Any) -> dict[str, Any]:
    locked = told.pop("locked", [".git/hooks", ".git/config", "**/.vscode"])
    told = {"hidden": [".env"], "locked": locked, **told}
    return bench.run(script, workspace=str(project), layer=True, **told)


def test_a_command_changes_the_layer_and_never_the_workspace(bench: Bench, project: Path) -> None:
    before = state(project)
    script = "echo new > file.txt; rm sub/gone; mkdir -p a/b; echo > a/b/c; ln -s /etc a/l; cat file.txt; ls sub"
    answer = run(bench, project, script)
    assert (answer["status"], answer["out"], answer["err"]) == (0, "new\ndeep\n", "")
    assert state(project) == before
    assert changes(answer) == [
        ("a", "folder", True, False),
        ("file.txt", "file", False, False),
        ("a/b", "folder", True, True),
        ("a/l", "link", False, True),
        ("sub/gone", None, False, False),
        ("a/b/c", "file", False, True),
    ]


# fmt: off
LEFT: list[tuple[str, list[tuple[Any, ...]], str]] = [
    ("true",                                    [],                                     "nothing"),
    ("cat file.txt sub/deep/kept; ls -lR",      [],                                     "only reads"),
    ("exec 3>>file.txt; exec 3<>run.sh",        [],                                     "opened for writing, and not changed"),
    ("chmod 644 file.txt",                      [],                                     "the mode that it had"),
    ("chmod 700 file.txt",                      [("file.txt", "file", False, False)],   "a mode"),
    ("touch -d @1 file.txt",                    [("file.txt", "file", False, False)],   "a time, that programs of the make kind read"),
    (f"{PY} 'import os; os.setxattr(\"file.txt\", \"user.x\", b\"1\")'", [("file.txt", "file", False, False)], "an attribute"),
    ("chmod 711 sub",                           [("sub", "folder", False, False)],      "the mode of a folder"),
    ("chmod 711 .",                             [(".", "folder", False, False)],        "the mode of the workspace"),
    ("cp -p file.txt x; mv x file.txt",         [],                                     "replaced by an equal file"),
    ("rm -r sub",                               [("sub", None, False, False)],          "a folder is deleted as one"),
    ("rm -r sub; mkdir sub",                    [("sub", "folder", True, False)],       "a folder that replaces another"),
    ("rm -r sub; echo > sub",                   [("sub", "file", False, False)],        "a file that replaces a folder"),
    ("rm file.txt; mkdir file.txt",             [("file.txt", "folder", True, False)],  "a folder that replaces a file"),
    ("mv file.txt moved",                       [("file.txt", None, False, False), ("moved", "file", False, False)], "a file under another name"),
    ("mv sub moved",                            [("moved", "folder", True, False), ("sub", None, False, False),
                                                 ("moved/deep", "folder", True, True), ("moved/gone", "file", False, True),
                                                 ("moved/deep/kept", "file", False, True)], "a folder under another name, which mv copies"),
    ("mkdir n; rm -r n",                        [],                                     "made and removed"),
    ("mkfifo f",                                [("f", "special", False, False)],       "a pipe"),
    ("ln -s ../../../etc/passwd l",             [("l", "link", False, False)],          "a link to outside"),
    ("echo > sub/deep/new; chmod 000 sub/deep", [("sub/deep", "folder", False, False), ("sub/deep/new", "file", False, False)], "in a folder that nobody may open"),
    ("mkdir -p n/m; echo > n/m/x; chmod 0 n/m n", [("n", "folder", True, False), ("n/m", "folder", True, True), ("n/m/x", "file", False, True)], "the same in new folders"),
    ("rm -r sub; mkdir -m 0 sub",               [("sub", "folder", True, False)],       "a folder that replaces another, and that nobody may open"),
    ("rm -r sub; mkdir sub; echo > sub/x; chmod 200 sub", [("sub", "folder", True, False), ("sub/x", "file", False, True)], "the same with content"),
    ("echo > x; chmod 0 .",                     [(".", "folder", False, False), ("x", "file", False, False)], "a workspace that nobody may open"),
    ("printf x > $'a\\nb'; printf x > $'\\xff'", [("a\nb", "file", False, False), ("\udcff", "file", False, False)], "names that no terminal shows"),
]
# fmt: on


@pytest.mark.threat("T301")
@pytest.mark.parametrize(("script", "expected", "why"), LEFT, ids=[row[2] for row in LEFT])
def test_the_changes_of_a_command(
    bench: Bench, project: Path, script: str, expected: list[tuple[Any, ...]], why: str
) -> None:
    before = state(project)
    answer = run(bench, project, script)
    assert (answer["status"], answer["err"]) == (0, ""), why
    assert changes(answer) == expected
    assert state(project) == before


def test_modes_sizes_links_and_names_of_one_file_are_in_the_changes(bench: Bench, project: Path) -> None:
    script = "umask 027; printf 12345 > a; ln a b; ln -s some/where l; mkdir -m 1750 d; ln file.txt other/f"
    rows = {row[0]: row[1:] for row in run(bench, project, script)["changes"]}
    assert rows == {
        "a": ["file", stat.S_IFREG | 0o640, 5, False, False, "", ""],
        "b": ["file", stat.S_IFREG | 0o640, 5, False, False, "", "a"],
        "l": ["link", stat.S_IFLNK | 0o777, 10, False, False, "some/where", ""],
        "d": ["folder", stat.S_IFDIR | 0o1750, 0, True, False, "", ""],
        "other/f": ["file", stat.S_IFREG | 0o644, 6, False, False, "", ""],
    }


def test_modes_that_hide_a_folder_are_restored_after_the_reading(bench: Bench, project: Path) -> None:
    answer = run(bench, project, "mkdir -p n/m; echo > n/m/x; chmod 0 n/m; chmod 100 n")
    upper = Path(answer["upper"])
    assert stat.S_IMODE((upper / "n").stat().st_mode) == 0o100
    assert stat.S_IMODE((upper / "n" / "m").stat().st_mode) == 0
    assert [row[2] & 0o777 for row in answer["changes"][:2]] == [0o100, 0]


# fmt: off
KEPT = [
    ("cat .env",                                        "a secret is masked"),
    ("mv .env shown; cat shown",                        "and cannot be moved"),
    ("rm -f .env; cp .env shown; cat shown",            "or removed"),
    ("echo x >> .git/config",                           "a file that other programs obey is read-only"),
    ("mv .git/config .git/c; mv .git g; echo > g/config", "and cannot be moved, nor can its folder"),
    ("echo x > .git/hooks/pre-commit",                  "nothing is added to a folder of such files"),
    ("chmod 4755 run.sh; chmod 2755 sub; cp run.sh s; chmod 6755 s", "no set-id bit is set"),
    ("mount -t tmpfs none sub",                         "nothing is mounted"),
    ("mknod n c 1 3; mknod z c 0 0; mknod b b 7 0",     "no device is made, and no mark of a deleted file"),
    (f"{PY} 'import os; os.rename' ; mv -n file.txt /proc/1/root/x", "no way through process 1"),
]
# fmt: on


@pytest.mark.threat("T299")
@pytest.mark.threat("T302")
@pytest.mark.parametrize(("script", "why"), KEPT, ids=[row[1] for row in KEPT])
def test_what_is_protected_in_the_workspace_is_protected_on_a_layer(
    bench: Bench, project: Path, script: str, why: str
) -> None:
    before = state(project)
    answer = run(bench, project, script)
    assert SECRET not in answer["out"] + answer["err"]
    assert state(project) == before
    assert not any(row[2] & 0o6000 for row in answer["changes"])
    assert not {path for path in paths(answer) if path.startswith((".git/", ".env", "g/"))} - {".git/objects"}, why


@pytest.mark.threat("T299")
def test_folders_that_stay_writable_around_protected_files_are_on_the_layer(bench: Bench, project: Path) -> None:
    """`.git` is pinned by a mount of its own: what is written there must not reach the workspace either."""
    before = state(project)
    answer = run(
        bench, project, "echo x > .git/index; mkdir .git/refs/heads; echo > .git/refs/heads/main; cat .git/index"
    )
    assert (answer["status"], answer["out"], answer["err"]) == (0, "x\n", "")
    assert state(project) == before
    assert paths(answer) == {".git/index", ".git/refs/heads", ".git/refs/heads/main"}


@pytest.mark.threat("T299")
def test_a_path_that_was_granted_for_writing_is_on_the_layer(bench: Bench, project: Path) -> None:
    (project / ".vscode").mkdir()
    (project / ".vscode" / "settings.json").write_text("{}")
    bench.own(project / ".vscode")
    before = state(project)
    write = [str(project / ".vscode" / "settings.json")]
    answer = run(bench, project, "echo new > .vscode/settings.json; echo > .vscode/tasks.json", write=write)
    assert state(project) == before
    assert paths(answer) == {".vscode/settings.json", ".vscode/tasks.json"}


@pytest.mark.threat("T302")
def test_no_command_forges_the_marks_of_a_layer(bench: Bench, project: Path) -> None:
    """Attributes of overlayfs that a command sets are stored under other names, and hide or redirect nothing."""
    script = f"""mkdir n; echo x > n/x; {PY} '
import os
for path in ("n", "n/x", "sub", "file.txt"):
    for name, value in (("opaque", b"y"), ("opaque", b"x"), ("whiteout", b"y"), ("redirect", b"/etc"), ("metacopy", b"")):
        try:
            os.setxattr(path, "user.overlay." + name, value)
        except OSError as error:
            print(error.strerror)
'"""
    answer = run(bench, project, script)
    assert "root" not in run(bench, project, "cat n/passwd sub/passwd")["out"]
    assert {"n", "n/x"} <= paths(answer)
    assert all(row[1] is not None for row in answer["changes"]), "nothing counts as deleted"
    assert not any(row[4] for row in answer["changes"] if row[0] == "sub"), "and no folder as replaced"


@pytest.mark.threat("T302")
def test_no_folder_of_the_layer_is_visible(bench: Bench, project: Path) -> None:
    script = "cat /proc/self/mountinfo; ls -la /proc/1/fd /proc/self/fd/ 2>&1; ls /proc/1/root/ /proc/1/cwd 2>&1"
    answer = run(bench, project, script)
    layer = answer["upper"].split("/")[-2]
    assert layer not in answer["out"] + answer["err"]
    assert "upperdir=/proc/self/fd/" in answer["out"]


@pytest.mark.threat("T300")
def test_no_process_of_the_command_is_left_when_the_layer_is_read(bench: Bench, project: Path) -> None:
    """Processes that left their session, ignore signals and start further ones are ended first."""
    script = """for n in 1 2 3 4 5 6 7 8; do setsid sh -c 'trap "" TERM HUP INT; while :; do echo $$ >> grows; done' & done
until [ -s grows ]; do sleep 0.1; done; sleep 0.3"""
    answer = run(bench, project, script)
    grown = Path(answer["upper"]) / "grows"
    size = grown.stat().st_size
    assert [row[3] for row in answer["changes"] if row[0] == "grows"] == [size]
    held = subprocess.run(["fuser", "-s", str(grown)], check=False).returncode if Path("/usr/bin/fuser").exists() else 1
    assert held == 1
    assert grown.stat().st_size == size > 0


@pytest.mark.threat("T300")
def test_a_layer_serves_one_command(bench: Bench, project: Path) -> None:
    answer = bench.run("echo > a", workspace=str(project), layer=True)
    again = bench.run("echo > b", workspace=str(project), layer=str(Path(answer["upper"]).parent))
    assert again["unavailable"][0] == "the command cannot run on a copy-on-write view"
    assert sorted(os.listdir(answer["upper"])) == ["a"]


@pytest.mark.parametrize("limit", ["wall", "cancel"])
def test_the_changes_of_a_command_that_was_ended_can_be_read(bench: Bench, project: Path, limit: str) -> None:
    told: dict[str, Any] = {"limits": {"wall": 3.0}} if limit == "wall" else {"cancel": "begun"}
    answer = run(bench, project, "echo > made; echo > grows; echo begun; while :; do echo >> grows; done", **told)
    assert {"made", "grows"} <= paths(answer)
    assert not (project / "made").exists()


def test_the_disk_limit_counts_what_is_added_on_a_layer(bench: Bench, project: Path) -> None:
    script = "for n in 1 2 3 4 5 6; do head -c 40M /dev/zero > sub/big$n; done; sleep 60"
    answer = run(bench, project, script, limits={"disk": 50 << 20})
    assert answer["ended"] == "disk"


def test_a_command_that_only_reads_gets_no_layer(bench: Bench, project: Path) -> None:
    answer = bench.run("true", workspace=str(project), layer=True, rights="read-only")
    assert answer["unavailable"][1] == "the command only reads the workspace"


@pytest.mark.parametrize("tier", ["T2", "T3"])
def test_the_other_tiers_say_why_they_have_no_layer(bench: Bench, project: Path, tier: str) -> None:
    answer = bench.run("true", workspace=str(project), layer=True, tier=tier)
    assert answer["unavailable"][1] in (
        "bubblewrap builds the root of the T2 sandbox",
        "the T3 sandbox has no private root",
    )


@pytest.fixture
def mounted(bench: Bench) -> Iterator[Path]:
    """A file system of its own, for tests as root."""
    if os.geteuid() != 0:
        pytest.skip("mounting a file system needs root")
    folder = bench.base / f"mounted-{os.urandom(4).hex()}"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=200M,mode=0777", "tmpfs", folder], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", folder], check=True)  # a helper has layers there for its next commands


@pytest.mark.threat("T299")
def test_a_layer_on_another_file_system(bench: Bench, project: Path, mounted: Path) -> None:
    """The overlay has inodes of its own there. The mounts over protected files and pinned folders hold as well."""
    before = state(project)
    script = "echo x > .git/index; echo x >> .git/config; cat .env; rm -r sub; echo > file.txt"
    answer = run(bench, project, script, layers=str(mounted))
    assert "out" in answer, answer
    assert SECRET not in answer["out"]
    assert paths(answer) == {".git/index", "sub", "file.txt"}
    assert state(project) == before


def why_not(bench: Bench, workspace: Path, folder: Path, **told: Any) -> str:
    return str(bench.run("true", workspace=str(workspace), why_not=str(folder), **told)["why_not"])


def test_a_workspace_with_a_view(bench: Bench, project: Path) -> None:
    place = bench.base / "cache"
    before = sorted(os.listdir(place))
    assert why_not(bench, project, place) == ""
    assert why_not(bench, project, place, rights="read-only") == "the command only reads the workspace"
    left = {*os.listdir(place)} - {*before}
    assert all(name.startswith("view-") for name in left), "the trial leaves its result alone"


def test_a_workspace_with_a_mount_below_it_has_no_view(bench: Bench, mounted: Path) -> None:
    reason = why_not(bench, mounted.parent, bench.base / "cache")
    assert reason == f"`{mounted}` in the workspace is a mount of its own, which an overlay does not show"


def test_a_layer_on_an_overlay_is_refused_by_the_kernel(bench: Bench, project: Path, mounted: Path) -> None:
    for name in ("lower", "upper", "work", "merged"):
        (mounted / name).mkdir(mode=0o777)
    options = f"lowerdir={mounted}/lower,upperdir={mounted}/upper,workdir={mounted}/work"
    merged = mounted / "merged"
    subprocess.run(["mount", "-t", "overlay", "overlay", "-o", options, merged], check=True)
    try:
        bench.own(merged)
        assert why_not(bench, project, merged).startswith("the kernel has no overlay for these file systems (")
        (merged / "ws").mkdir()
        assert why_not(bench, bench.own(merged / "ws"), bench.base / "cache") == "", "one below is no obstacle"
    finally:
        subprocess.run(["umount", merged], check=True)


@pytest.mark.threat("T304")
def test_a_workspace_that_this_machine_does_not_keep_has_no_view(bench: Bench) -> None:
    """Huge pages stand for the file systems of other machines: they are none of the usual local ones either."""
    if os.geteuid() != 0:
        pytest.skip("mounting a file system needs root")
    place = bench.base / f"remote-{os.urandom(4).hex()}"
    place.mkdir()
    if subprocess.run(["mount", "-t", "hugetlbfs", "-o", "mode=0777", "none", place], capture_output=True).returncode:
        pytest.skip("this kernel has no huge pages")
    try:
        (place / "ws").mkdir()
        reason = why_not(bench, bench.own(place / "ws"), bench.base / "cache")
    finally:
        subprocess.run(["umount", place], check=True)
    assert reason == "another machine or a program keeps its files, and their times are of another clock"


def test_a_place_without_room_for_the_trial(bench: Bench, project: Path) -> None:
    assert "cannot be read" in why_not(bench, project, bench.base / "missing")


def test_doctor_names_the_mechanism_and_the_reason(tmp_path: Path) -> None:
    environ = {"HOME": str(tmp_path), "RINGFENCE_STATE_DIR": str(tmp_path / "state")}
    workspace = str(tmp_path)
    rows = {name: asyncio.run(view_result(name, Linux(name), workspace, environ)) for name in ("T1", "T3")}
    kept = f"an overlay (overlayfs, T1) can keep the changes of a command in {workspace} apart"
    assert (rows["T1"].name, rows["T1"].state, rows["T1"].detail) == ("view", CheckState.OK, kept)
    direct = f"commands change the files in {workspace} directly: the T3 sandbox has no private root"
    assert (rows["T3"].state, rows["T3"].detail) == (CheckState.ABSENT, direct)
    unusable = asyncio.run(view_result("T1", Linux("T1"), workspace, {"RINGFENCE_STATE_DIR": "relative"}))
    assert unusable.state is CheckState.ABSENT


@pytest.mark.whole_matrix("only an ordinary user cannot give a file to its owner")
def test_files_of_others_have_no_view_for_an_ordinary_user(bench: Bench, project: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root makes files of other users")
    os.chown(project / "file.txt", 1234, 1234)
    reason = why_not(bench, project, bench.base / "cache")
    held = f"`{project}/file.txt` belongs to another user or group, and no overlay of an ordinary user can change it"
    assert reason == ("" if bench.user == "root" else held)
    answer = run(bench, project, "echo x >> file.txt; mv file.txt moved; stat -c %u file.txt moved")
    if bench.user == "root":
        assert paths(answer) == {"file.txt", "moved"}, "root keeps the owner"
    else:
        assert paths(answer) == set()
        assert "Value too large" in answer["err"]


@pytest.mark.whole_matrix("only an ordinary user cannot give a file to its owner")
def test_files_of_others_in_a_folder_are_found_first_or_after_a_failure(bench: Bench, project: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root makes files of other users")
    place, known = bench.base / "cache", f"`{project}/sub/foreign` belongs to another user or group"
    assert why_not(bench, project, place) == ""
    (project / "sub/foreign").write_text("x\n")  # the owner is root, even if the workspace belongs to another user
    os.chown(project / "sub/foreign", 1234, 1234)
    os.chmod(project / "sub/foreign", 0o666)
    answer = run(bench, project, "echo x >> sub/foreign || true")
    if bench.user == "root":
        assert answer["violations"] == []
        assert why_not(bench, project, place) == ""
        return
    (report,) = answer["violations"]
    assert report[0] == f"{known}, and a command on a view of the workspace cannot change it"
    assert why_not(bench, project, place).startswith(known), "the next command runs on the workspace itself"
    os.chown(project / "sub/foreign", project.stat().st_uid, project.stat().st_gid)
    assert why_not(bench, project, place) == "", "its owner is looked up each time"
    (other := project.with_name(f"{project.name}-other")).mkdir()
    (other / "sub").mkdir()
    bench.own(other)
    (other / "sub/foreign").write_text("x\n")
    assert why_not(bench, other, place).startswith(f"`{other}/sub/foreign` belongs to"), "found before the first view"


@pytest.mark.threat("T299")
def test_a_watcher_outside_sees_nothing_of_a_command_on_a_layer(bench: Bench, project: Path) -> None:
    """Before the changes are judged, no editor starts what a new file of the workspace names."""
    libc = ctypes.CDLL(None, use_errno=True)
    watch = libc.inotify_init1(os.O_NONBLOCK)
    changing = 0x2 | 0x4 | 0x8 | 0x40 | 0x80 | 0x100 | 0x200 | 0x400 | 0x800  # modified, created, moved, deleted, ...
    for folder in (project, project / "sub", project / ".git"):
        assert libc.inotify_add_watch(watch, os.fsencode(folder), changing) >= 0
    script = (
        "mkdir .vscode; echo x > .vscode/settings.json; echo x >> file.txt; rm sub/gone; mv file.txt sub; chmod 700 sub"
    )
    answer = run(bench, project, script)
    assert {".vscode/settings.json", "sub/gone", "sub/file.txt"} <= paths(answer)
    with pytest.raises(BlockingIOError):
        os.read(watch, 4096)
    os.close(watch)


@pytest.mark.threat("T299")
def test_a_command_that_may_move_the_workspace_has_no_view(bench: Bench, project: Path) -> None:
    """The command could replace the workspace by a link, and its changes would then be applied to another folder."""
    told = {"write": [str(bench.home)], "layer": True, "workspace": str(project)}
    answer = bench.run(f"mv {project} {project}-moved; ln -s {bench.outside} {project}", **told)
    reason = f"the command may change `{bench.home}`, which contains the workspace"
    assert answer["unavailable"][1] == reason
    assert why_not(bench, project, bench.base / "cache", write=[str(bench.home)]) == reason
    assert project.is_dir()


@pytest.mark.threat("T301")
def test_changes_are_not_compared_with_the_target_of_a_link(tmp_path: Path) -> None:
    (tmp_path / "there" / "w").mkdir(parents=True)
    (tmp_path / "here").symlink_to("there")
    layer = new_layer(f"{tmp_path}/here/w", str(tmp_path))
    with pytest.raises(OSError, match="Too many levels of symbolic links"):
        read_layer(layer)


async def _layered(workspace: Path, cache: Path) -> str:
    terms = Terms(Rights.WORKSPACE_WRITE, str(workspace), "/nonexistent")
    return await Linux("T1", cache=cache).layered(terms, str(workspace.parent))


def test_a_successful_trial_is_kept_until_the_machine_stops(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    workspace, cache = tmp_path / "w", tmp_path / "cache"
    workspace.mkdir()
    cache.mkdir()
    trials: list[str] = []
    tried = layer_probe._tried

    def counted(workspace: str, folder: str) -> str:
        trials.append(workspace)
        return tried(workspace, folder)

    def ask() -> int:
        """Return the number of trials so far, after a request of a new process."""
        monkeypatch.setattr(layer_probe, "_known", {})
        assert asyncio.run(_layered(workspace, cache)) == ""
        return len(trials)

    monkeypatch.setattr(layer_probe, "_tried", counted)
    assert (ask(), ask()) == (1, 1)
    monkeypatch.setattr(layer_probe, "boot", lambda: "another")
    assert (ask(), ask()) == (2, 2)
    workspace.rename(tmp_path / "old")
    workspace.mkdir()
    assert ask() == 3, "another folder"
    layer_probe.forget(str(workspace), cache)
    assert ask() == 4

    async def twice() -> list[str]:
        return await asyncio.gather(_layered(workspace, cache), _layered(workspace, cache))

    layer_probe.forget(str(workspace), cache)
    assert asyncio.run(twice()) == ["", ""]
    assert len(trials) == 5, "who asks meanwhile gets the same result"
