"""Control groups: where one may be made, what is written there, and that none is left. Version 1 and the parts of
version 2 that this machine has are the kernel's own; the rest of version 2 is a folder laid out like it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from sandbox.linux import cgroup as group_module
from sandbox.linux.cgroup import ALL, ControlGroup, words
from sandbox.linux.cgroup_places import (
    _PREFIX,
    CPU,
    MEMORY,
    PIDS,
    CgroupPlace,
    mark,
    places,
    read_words,
    sweep,
    usable,
    write,
)
from tests.support.places import ROOT

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="control groups are Linux's")
G = 1 << 30


def lay(folder: Path, **files: str) -> Path:
    """A folder like a group of version 2; `__` in a name stands for a dot."""
    folder.mkdir(parents=True, exist_ok=True)
    usual = {"cgroup__procs": "", "cgroup__subtree_control": "", "cgroup__controllers": "cpu memory pids"}
    for name, text in {**usual, **files}.items():
        (folder / name.replace("__", ".")).write_text(text)
    return folder


def found(base: Path, own: str) -> list[CgroupPlace]:
    return list(places(f"41 31 0:38 / {base} rw,relatime - cgroup2 cgroup2 rw", f"0::{own}\n"))


# ---- where

# fmt: off
NEAREST: list[tuple[dict[str, dict[str, str]], str, list[tuple[str, tuple[tuple[str, int], ...]]], str]] = [
    ({"": {}, "a": {"cgroup__subtree_control": "memory pids"}}, "/a", [("a", ())], "our own group hands its controllers on"),
    ({"": {}, "a": {"cgroup__subtree_control": "cpu memory pids"}, "a/b": {"cgroup__procs": "1\n"}}, "/a/b", [("a", ())], "others are in ours: the one above"),
    ({"": {}, "a": {"cgroup__subtree_control": "memory pids"}, "a/b": {"cgroup__procs": "1\n", "memory__max": "1000\n", "pids__max": "max\n"}}, "/a/b", [("a", (("memory", 1000),))], "a limit that was left behind is taken along"),
    ({"": {}, "a": {"cgroup__subtree_control": "memory pids"}, "a/b": {"cgroup__procs": "1\n", "memory__max": "1000\n", "memory__high": "900\n", "pids__max": "50\n"}}, "/a/b", [("a", (("memory", 900), ("pids", 50)))], "the lowest of them"),
    ({"": {}, "a": {"cgroup__subtree_control": "memory pids"}, "a/b": {"cgroup__procs": "1\n", "cpu__max": "50000 100000\n"}}, "/a/b", [], "a share of the processors cannot be taken along"),
    ({"": {}, "a": {"cgroup__subtree_control": "memory pids"}, "a/b": {"cgroup__procs": "1\n", "cpu__max": "100000 100000\n"}}, "/a/b", [], "nor one processor, which is written like the usual period"),
    ({"": {}, "a": {"cgroup__subtree_control": "memory pids"}, "a/b": {"cgroup__procs": "1\n", "cpu__max": "max 50000\n"}}, "/a/b", [("a", ())], "another period without a share is no limit"),
    ({"": {}, "a": {"cgroup__subtree_control": "memory pids"}, "a/b": {"cgroup__procs": "1\n", "cpuset__cpus": "0-1\n"}}, "/a/b", [], "nor certain processors"),
    ({"": {}, "a": {"cgroup__subtree_control": "memory pids"}, "a/b": {"cgroup__procs": "1\n", "cpuset__mems": "0\n"}}, "/a/b", [], "nor certain memory"),
    ({"": {}, "a": {"cgroup__subtree_control": "memory pids"}, "a/b": {"cgroup__procs": "1\n", "io__max": "8:0 wbps=1048576\n"}}, "/a/b", [], "nor a rate of a disk"),
    ({"": {}, "a": {"cgroup__subtree_control": "memory pids"}, "a/b": {"cgroup__procs": "1\n", "cpuset__cpus": "\n", "io__max": ""}}, "/a/b", [("a", ())], "none of these is said"),
    ({"": {}, "a": {"cgroup__subtree_control": "cpu"}, "a/b": {"cgroup__procs": "1\n"}}, "/a/b", [], "no controller that is of use"),
    ({"": {}}, "/gone", [], "a group that this mount does not show"),
    ({"": {}}, "/../..", [], "a group outside our namespace"),
]
# fmt: on


@pytest.mark.parametrize(("tree", "own", "expected", "why"), NEAREST, ids=[row[3] for row in NEAREST])
@pytest.mark.threat("T64")
def test_the_nearest_group_whose_children_can_be_limited(
    tmp_path: Path,
    tree: dict[str, dict[str, str]],
    own: str,
    expected: list[tuple[str, tuple[tuple[str, int], ...]]],
    why: str,
) -> None:
    for name, files in tree.items():
        lay(tmp_path / name, **files)
    assert [(os.path.relpath(place.folder, tmp_path), place.most) for place in found(tmp_path, own)] == expected


def test_a_group_of_somebody_else_is_none(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can be another user")
    lay(tmp_path / "a", cgroup__subtree_control="memory pids")
    lay(tmp_path)
    script = (
        "import os, sys; sys.path.insert(0, sys.argv[2]); from sandbox.linux.cgroup_places import places; os.setuid(65534)\n"
        "print(list(places(f'41 31 0:38 / {sys.argv[1]} rw - cgroup2 cgroup2 rw', '0::/a')))"
    )
    tmp_path.chmod(0o755)
    for parent in tmp_path.parents:
        if parent.stat().st_uid == os.geteuid() and not parent.stat().st_mode & 1:
            parent.chmod(parent.stat().st_mode | 0o011)
    root = ROOT
    done = subprocess.run([sys.executable, "-c", script, tmp_path, root], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


# fmt: off
V1 = [
    ("35 31 0:32 / {}/memory rw - cgroup cgroup rw,memory\n36 31 0:33 / {}/pids rw - cgroup cgroup rw,pids", "5:memory:/m\n4:pids:/\n", {"memory/m": {MEMORY}, "pids": {PIDS}}, "a tree per controller"),
    ("35 31 0:32 / {}/cpu rw - cgroup cgroup rw,cpu,cpuacct", "3:cpu,cpuacct:/c\n", {"cpu/c": {CPU}}, "two controllers in one tree"),
    ("35 31 0:32 /docker/x {}/memory rw - cgroup cgroup rw,memory", "5:memory:/docker/x/m\n", {"memory/m": {MEMORY}}, "a container sees a part of the tree"),
    ("35 31 0:32 /docker/x {}/memory rw - cgroup cgroup rw,memory", "5:memory:/docker/xy/m\n", {}, "a part that is not ours"),
    ("35 31 0:32 / {}/systemd rw - cgroup cgroup rw,name=systemd", "1:name=systemd:/\n", {}, "a tree without controllers"),
    ("nonsense\n\n - \n1 2 - cgroup", "what:ever\n::\n", {}, "text that says nothing"),
]
# fmt: on


@pytest.mark.parametrize(("mounts", "own", "expected", "why"), V1, ids=[row[3] for row in V1])
def test_places_of_version_1(tmp_path: Path, mounts: str, own: str, expected: dict[str, set[str]], why: str) -> None:
    for name in ("memory/m", "pids", "cpu/c"):
        (tmp_path / name).mkdir(parents=True)
    there = places(mounts.replace("{}", str(tmp_path)), own)
    assert {os.path.relpath(place.folder, tmp_path): set(place.keeps) for place in there} == expected


# ---- what is written and read


def test_the_file_protocol_of_version_2(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def new(path: str) -> None:
        names = ("memory__max", "memory__swap__max", "memory__oom__group", "pids__max", "cgroup__kill")
        counted = {
            "memory__events": "oom 1\noom_kill 2\n",
            "pids__events": "max 3\n",
            "cpu__stat": "usage_usec 2500000\n",
        }
        lay(Path(path), **dict.fromkeys(names, ""), **counted)

    monkeypatch.setattr(group_module, "_new", new)  # what mkdir(2) does there: the folder has its files at once
    group = ControlGroup(4242, (CgroupPlace(2, str(tmp_path), frozenset(ALL), ((PIDS, 10),)),))
    assert group.limit(2 * G, 100, 5) == set(ALL)
    (folder,) = tmp_path.iterdir()
    text = {path.name: path.read_text() for path in folder.iterdir()}
    assert text["cgroup.procs"] == "4242"
    assert (text["memory.max"], text["memory.swap.max"], text["memory.oom.group"]) == (
        str(2 * G + (16 << 20)),
        "0",
        "1",
    )
    assert text["pids.max"] == "10", "never more than what was left behind"
    assert group.used() == group_module.GroupCounters(2.5, 2, 3)
    assert words(group) == "cgroup v2 (memory, pids, cpu)"
    group.begin()
    assert (group.excess(), group.refused()) == (None, 0)
    (folder / "cpu.stat").write_text("usage_usec 7500000\n")
    assert group.excess() == CPU
    (folder / "memory.events").write_text("oom 2\noom_kill 3\n")
    assert group.excess() == MEMORY
    (folder / "memory.events").write_text("oom_kill 2\n")
    (folder / "cpu.stat").write_text("usage_usec 2500000\n")
    (folder / "pids.events").write_text("max 9\n")
    assert (group.excess(), group.refused()) == (None, 6)
    (folder / "pids.events").write_text("max 9999\n")
    assert group.excess() == PIDS
    monkeypatch.setattr(group_module, "_PATIENCE", 0.01)
    group.remove()
    assert (folder / "cgroup.kill").read_text() == "1"


@pytest.mark.threat("T64")
def test_where_only_some_are_ours_the_watchdog_keeps_the_rest(tmp_path: Path) -> None:
    """A limit that cannot be set is not held, and the words say so."""
    group = ControlGroup(os.getpid(), (CgroupPlace(1, str(tmp_path / "missing"), frozenset({MEMORY})),))
    assert group.limit(G, 10, 5) == frozenset()
    assert words(group) == "watchdog"
    assert (group.used(), group.excess()) == (group_module.GroupCounters(), None)
    group.remove()


@pytest.mark.threat("T64")
def test_a_group_that_is_taken_away_ends_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_module, "_new", lambda path: lay(Path(path), pids__max="", pids__events="max 0\n"))
    group = ControlGroup(1, (CgroupPlace(2, str(tmp_path), frozenset({PIDS})),))
    group.limit(G, 10, 5)
    group.begin()
    for handle in group._files.values():
        null = os.open("/proc/self/mem", os.O_RDONLY)  # reading it fails, as that of a group which is gone does
        os.dup2(null, handle)
        os.close(null)
    assert group.excess() == "group"
    monkeypatch.setattr(group_module, "_PATIENCE", 0.0)
    group.remove()


# ---- the kernel's own


@pytest.fixture
def kernel() -> tuple[CgroupPlace, ...]:
    if not usable():
        pytest.skip("this user may make no control group on this machine")
    return usable()


def left(kernel: tuple[CgroupPlace, ...]) -> list[str]:
    mine = f"{_PREFIX}{os.getpid()}-"
    return [name for place in kernel for name in os.listdir(place.folder) if name.startswith(mine)]


@pytest.mark.threat("T64")
def test_a_group_holds_a_process_and_all_it_starts_and_leaves_nothing(kernel: tuple[CgroupPlace, ...]) -> None:
    with subprocess.Popen(["sh", "-c", "sleep 0.2; setsid sleep 60 & sleep 60"]) as process:
        group = ControlGroup(process.pid)
        held = group.limit(G, 20, 60)
        assert held == {what for place in kernel for what in place.keeps}
        assert left(kernel)
        group.begin()
        assert group.excess() is None
        group.remove()  # what is inside is killed, whatever session it fled to
        assert process.wait(60) == -9
    assert left(kernel) == []
    group.remove()


@pytest.mark.threat("T64")
def test_groups_of_a_killed_session_are_swept_and_others_stay(kernel: tuple[CgroupPlace, ...]) -> None:
    folder = kernel[0].folder
    mine = mark(os.getpid())
    dead = [f"{_PREFIX}{os.getpid()}-1-0", f"{_PREFIX}4194303-77-3"]  # born at another time; nobody
    others = [f"{mine}77", f"{_PREFIX}notes-{os.getpid()}", f"some-group-{os.getpid()}"]
    for name in (*dead, *others):
        os.mkdir(f"{folder}/{name}")
    try:
        sweep(folder)
        there = set(os.listdir(folder))
        assert not there & set(dead)
        assert set(others) <= there
    finally:
        for name in (*dead, *others):
            if os.path.isdir(f"{folder}/{name}"):
                os.rmdir(f"{folder}/{name}")


@pytest.mark.threat("T64")
def test_a_session_that_is_killed_is_swept_by_the_next(kernel: tuple[CgroupPlace, ...]) -> None:
    script = (
        "import os, signal, subprocess, sys; sys.path.insert(0, sys.argv[1]); from sandbox.linux.cgroup import ControlGroup\n"
        "p = subprocess.Popen(['true']); g = ControlGroup(p.pid); g.limit(1 << 30, 9, 9); p.wait()\n"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    process = subprocess.Popen([sys.executable, "-c", script, str(ROOT)])
    # Other processes of root remove the groups of this one as soon as its exit status has been read.
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    mine = [
        f"{place.folder}/{name}" for place in kernel for name in os.listdir(place.folder) if f"-{process.pid}-" in name
    ]
    assert process.wait() == -9
    assert mine
    for place in kernel:
        sweep(place.folder)
    assert not [path for path in mine if os.path.exists(path)]


def test_our_own_group_is_made_room_in_and_left_as_it_was() -> None:
    """Version 2 for real, with whatever controller it has here: a group with processes can have no limited children."""
    with open("/proc/self/mountinfo", encoding="utf-8") as file:
        points = [line.split()[4] for line in file if " - cgroup2 " in line]
    if not points or os.geteuid() != 0 or not os.access(points[0], os.W_OK):
        pytest.skip("no tree of version 2 that this user may write to")
    names = read_words(points[0], "cgroup.subtree_control")
    offered = read_words(points[0], "cgroup.controllers")
    if not names and not offered:
        pytest.skip("version 2 has no controller here")
    name = sorted(names or offered)[0]
    base = f"{points[0]}/ringfence-test-{os.getpid()}"
    script = (
        "import os, subprocess, sys; sys.path.insert(0, sys.argv[1]); from sandbox.linux import cgroup, cgroup_places\n"
        "base, name = sys.argv[2:]\n"
        "cgroup_places.write(base, 'cgroup.procs', str(os.getpid()))\n"
        "child = subprocess.Popen(['sleep', '60'])\n"
        "own = lambda: open('/proc/self/cgroup').read().strip().splitlines()[-1].rpartition(':')[2]\n"
        "before = own()\n"
        "try: cgroup_places.write(base, 'cgroup.subtree_control', '+' + name); print('no rule')\n"
        "except OSError as error: print(error.errno)\n"
        "print(cgroup_places.make_room(base, frozenset({name})), name in cgroup_places.read_words(base, 'cgroup.subtree_control'))\n"
        "print(own() == before, len(cgroup_places.read_words(base, 'cgroup.procs')))\n"
        "g = cgroup.ControlGroup(child.pid, (cgroup_places.CgroupPlace(2, base, frozenset({'cpu'})),))\n"
        "print(sorted(g.limit(1, 1, 60)), g.used().kills); g.begin(); print(g.excess()); g.remove()\n"
        "print(child.wait(), own() == before, cgroup_places.read_words(base, 'cgroup.subtree_control'), os.listdir(base).count('x'))\n"
        "print([entry.name for entry in os.scandir(base) if entry.is_dir()])\n"
    )
    enabled = name in names
    if not enabled:
        write(points[0], "cgroup.subtree_control", f"+{name}")
    os.mkdir(base)
    try:
        root = str(ROOT)
        done = subprocess.run(
            [sys.executable, "-c", script, root, base, name], capture_output=True, text=True, check=False
        )
        assert done.stdout.splitlines() == [
            "16",  # EBUSY, the rule
            "True True",
            "False 0",
            "['cpu'] 0",
            "None",
            "-9 True set() 0",
            "[]",
        ], done
    finally:
        os.rmdir(base)
        if not enabled:
            write(points[0], "cgroup.subtree_control", f"-{name}")
