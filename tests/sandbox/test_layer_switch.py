"""Tests of one helper that runs several commands, each on a fresh layer: what a command leaves for the next one, whether
a command can reach the switch of the overlays or a layer that is not its own, and that each sees the present workspace.
"""

import os
import random
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.sandbox_bench import SECRET, USERS, Bench, make

CAP_SYS_ADMIN = 21


@pytest.fixture(params=USERS, scope="module")
def bench(request: pytest.FixtureRequest) -> Iterator[Bench]:
    yield from make(request.param)


@pytest.fixture
def project(bench: Bench) -> Path:
    workspace = bench.base / "home" / f"switched-{os.urandom(4).hex()}"
    for folder in ("sub/deep", "kept", ".git/hooks", ".git/objects", ".git/refs"):
        (workspace / folder).mkdir(parents=True)
    (workspace / "file.txt").write_text("hello\n")
    (workspace / "sub" / "deep" / "inner").write_text("inner\n")
    (workspace / "kept" / ".env").write_text(f"KEY={SECRET}\n")
    (workspace / "kept" / "beside").write_text("beside\n")
    (workspace / ".git" / "HEAD").write_text("ref: refs/heads/main\n")
    (workspace / ".git" / "config").write_text("[core]\n\tbare = false\n")
    return bench.own(workspace)


def run(bench: Bench, project: Path, script: str, **told: Any) -> dict[str, Any]:
    told = {"hidden": [".env"], "locked": [".git/hooks", ".git/config"], **told}
    answer = bench.run(script, workspace=str(project), layer=True, **told)
    assert "unavailable" not in answer, answer
    return answer


def paths(answer: dict[str, Any]) -> set[str]:
    return {row[0] for row in answer["changes"]}


def content(folder: Path) -> dict[str, tuple[int, bytes]]:
    return {
        str(each.relative_to(folder)): (each.lstat().st_size, each.read_bytes() if each.is_file() else b"")
        for each in folder.rglob("*")
    }


def test_one_helper_gives_each_command_a_layer_of_its_own(bench: Bench, project: Path) -> None:
    """More commands than one helper has layers for. The mounts over protected files are there each time."""
    before, helpers = content(project), []
    for number in range(10):
        script = (
            f"ls; cat file.txt; cat kept/.env; echo x >> .git/config; echo {number} > made; echo {number} >> file.txt"
        )
        answer = run(bench, project, f"{script}; grep -c overlay /proc/self/mountinfo; touch .git/index")
        assert answer["out"].split() == ["file.txt", "kept", "sub", "hello", "2"], "its own overlay, and one part of it"
        assert SECRET not in answer["out"] + answer["err"]
        assert paths(answer) == {"made", "file.txt", ".git/index"}
        assert (Path(answer["upper"]) / "made").read_text() == f"{number}\n"
        helpers.append({*answer["helpers"]})
    assert len(set.intersection(*helpers[:7])) > 0, "the same helper"
    assert content(project) == before


WRITER = "trap '' TERM HUP INT; exec 3>>grows; while :; do echo x >&3; echo x >> grows2; done"
MAPPED = """
import mmap, os
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        with open("grows", "wb+") as file:
            file.truncate(4096)
            view = mmap.mmap(file.fileno(), 4096)
        n = 0
        while True:
            n += 1
            view[n % 4096] = n % 256
    os._exit(0)
"""
CALLS = """
import ctypes, os, struct
libc = ctypes.CDLL(None, use_errno=True)
c = ctypes.c_long
print(libc.umount2(b".", 2), libc.umount2(os.getcwd().encode(), 2), libc.umount2(b"/", 2))
print(libc.mount(b"none", b"sub", b"tmpfs", 0, None), libc.mount(b".", b"sub", None, 4096, None))
print(libc.unshare(0x20000), libc.unshare(0x10000000 | 0x20000), libc.setns(0, 0))
print(libc.syscall(c(428), c(-100), b".", c(1)), libc.syscall(c(428), c(-100), b"/", c(0x8001)))
print(libc.syscall(c(429), c(-100), b"sub", c(-100), b"kept", c(0)), libc.syscall(c(430), b"overlay", c(0)))
print(libc.syscall(c(433), c(-100), b".", c(0)), libc.syscall(c(442), c(-100), b".", c(0x8000), struct.pack("QQQQ", 0, 1, 0, 0), c(32)))
handle, mount = ctypes.create_string_buffer(struct.pack("Ii", 128, 0) + bytes(128)), ctypes.c_int()
libc.name_to_handle_at(-100, b".", handle, ctypes.byref(mount), 0)
print(libc.open_by_handle_at(os.open(".", 0), handle, 0))
print(libc.ptrace(16, 1, 0, 0), libc.ptrace(16, 2, 0, 0) if not os.path.exists("/proc/2") else -1)
"""
REACHED = """
import os, signal
for pid in (name for name in os.listdir("/proc") if name.isdigit() and int(name) != os.getpid()):
    for name in ("root", "cwd", "task/" + pid + "/cwd", "mem", *("fd/" + str(n) for n in range(300))):
        for how in (os.listdir, os.readlink, lambda place: os.open(place, os.O_RDONLY)):
            try:
                place = "/proc/" + pid + "/" + name
                print("reached", place, how(place))
            except OSError:
                pass
for pid in (1, *range(3, 400)):
    if pid != os.getpid():
        try:
            os.kill(pid, signal.SIGKILL if pid != 1 else signal.SIGTERM)
        except OSError:
            pass
"""
# fmt: off
HOSTILE = [
    (f'for n in 1 2 3 4; do setsid sh -c "{WRITER}" & done; sleep 0.1',     "writers in sessions of their own"),
    (f"/usr/bin/python3 -c '{MAPPED}'; sleep 0.1",                          "a writer through a mapping"),
    ("mkdir gone; cd gone; setsid sh -c 'while :; do echo > ../grows; done' & rm -r gone", "a process in a removed folder"),
    ("setsid sh -c 'kill -STOP $$' & sleep 0.1; echo > made",               "a stopped process"),
    ("for n in $(seq 200); do setsid sleep 60 & done; echo > made",         "many processes"),
    ("chmod 0 .; chmod 0 sub",                                              "modes that hide all folders"),
    ("chmod 500 .; chmod 0 sub; sleep 0.1",                                 "a workspace that nobody may write to"),
    ("rm -rf * .git 2>/dev/null; true",                                     "a workspace without files"),
]
# fmt: on


@pytest.mark.threat("T300")
@pytest.mark.parametrize(("script", "why"), HOSTILE, ids=[row[1] for row in HOSTILE])
def test_nothing_of_a_command_reaches_the_next_one(bench: Bench, project: Path, script: str, why: str) -> None:
    before = content(project)
    answer = run(bench, project, script)
    upper = Path(answer["upper"])
    left = content(upper)
    again = run(bench, project, "sleep 0.1; ls -A; echo > mine; ps -A 2>/dev/null | wc -l; cat kept/.env; true")
    assert again["status"] == 0
    assert SECRET not in again["out"]
    assert again["out"].split()[:4] == [".git", "file.txt", "kept", "sub"], why
    assert paths(again) == {"mine"}
    assert content(upper) == left, "nothing writes to the layer of a command after its end"
    assert {*again["helpers"]} & {*answer["helpers"]}, "the same helper"
    assert content(project) == before


@pytest.mark.threat("T314")
def test_a_command_cannot_change_mounts_or_reach_the_process_that_does(bench: Bench, project: Path) -> None:
    answer = run(bench, project, f"/usr/bin/python3 -c '{CALLS}'")
    assert {*answer["out"].split()} == {"-1"}, answer
    answer = run(bench, project, f"/usr/bin/python3 -c '{REACHED}'")
    assert answer["out"] == "", "no file of another process"
    again = run(bench, project, "cat /proc/self/mountinfo; echo > made")
    assert {*again["helpers"]} & {*answer["helpers"]}, "the helper and its switch still serve"
    assert again["out"].count(" - overlay ") == 2
    assert answer["upper"].split("/")[-2] not in again["out"]


@pytest.mark.threat("T314")
def test_the_process_that_switches_has_one_capability_and_is_outside(bench: Bench, project: Path) -> None:
    found = []
    for number in range(2):
        answer = run(bench, project, "readlink /proc/self/ns/mnt", env={"N": "1"}, limits={"pids": 211})
        for pid in answer["helpers"]:
            fields = dict(
                line.split(":\t", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines() if ":\t" in line
            )
            if (
                int(fields["CapEff"], 16) == 1 << CAP_SYS_ADMIN
                and os.readlink(f"/proc/{pid}/ns/mnt") == answer["out"].strip()
            ):
                assert fields["NoNewPrivs"] == "1"
                assert fields["CapPrm"] == fields["CapEff"]
                assert os.readlink(f"/proc/{pid}/ns/pid") == os.readlink("/proc/self/ns/pid")
                handles = [os.readlink(f"/proc/{pid}/fd/{name}") for name in os.listdir(f"/proc/{pid}/fd")]
                assert sum(handle.startswith("socket:") for handle in handles) == 1, "the runner's, and no other"
                found.append((number, pid))
    assert len({pid for _, pid in found}) == 1, found


@pytest.mark.threat("T314")
def test_a_folder_above_the_workspace_that_a_command_moves(bench: Bench) -> None:
    """The scratch folder /tmp is writable, and a workspace may lie in it: the next command gets no false workspace."""
    top = Path("/tmp") / f"switched-{os.urandom(4).hex()}"
    (top / "work").mkdir(parents=True)
    (top / "work" / "file.txt").write_text("true\n")
    bench.own(top)
    try:
        work = top / "work"
        answer = run(
            bench, work, f"cat file.txt; cd /; mv {top} {top}.moved && mkdir -p {work} && echo false > {work}/file.txt"
        )
        again = run(bench, work, f"cat {work}/file.txt; echo > made")
        assert (answer["out"], again["out"]) == ("true\n", "true\n"), (answer, again)
        assert paths(again) == {"made"}
    finally:
        shutil.rmtree(top)


LOOK = (
    "{ find . -name .env -prune -o -type d -printf '%p %m %U\\n' -o -type f -printf '%p %m %U %s\\n' "
    "-o -printf '%p %y %l\\n'; find . -type f ! -name .env -exec sha256sum {} +; } | sort"
)
Change = Callable[[Path], object]


def replace_folder(project: Path) -> None:
    (project / "sub").rename(project / "sub.old")
    (project / "sub" / "deep").mkdir(parents=True)
    (project / "sub" / "deep" / "inner").write_text("another\n")


def replace_above_secret(project: Path) -> None:
    """The secret file stays the same, and the folder above it is another one."""
    (project / "kept").rename(project / "kept.old")
    (project / "kept").mkdir()
    (project / "kept.old" / ".env").rename(project / "kept" / ".env")
    (project / "kept" / "beside").write_text("another\n")


def replace_pinned(project: Path) -> None:
    (project / ".git").rename(project / "old")
    (project / ".git").mkdir()
    for name in ("hooks", "refs", "objects", "HEAD", "config"):
        (project / "old" / name).rename(project / ".git" / name)
    (project / ".git" / "index").write_text("another\n")


def replace_workspace(project: Path) -> None:
    project.rename(f"{project}.old")
    shutil.copytree(f"{project}.old", project)
    (project / "file.txt").write_text("another\n")


def secret_moved(project: Path) -> None:
    (project / "kept" / ".env").rename(project / "sub" / ".env")
    (project / "kept" / ".env").write_text("no secret here\n")


# fmt: off
CHANGES: list[tuple[Change, str]] = [
    (lambda at: (at / "file.txt").write_text("edited, and longer\n"),       "a file is edited"),
    (lambda at: (at / "new" / "folder").mkdir(parents=True),                "a folder is made"),
    (lambda at: (at / "file.txt").unlink(),                                 "a file is deleted"),
    (lambda at: (at / "file.txt").rename(at / "renamed"),                   "a file is renamed"),
    (lambda at: (at / "sub").rename(at / "renamed"),                        "a folder is renamed"),
    (lambda at: (at / "link").symlink_to("file.txt"),                       "a link is made"),
    (lambda at: shutil.rmtree(at / "sub"),                                  "a folder is deleted"),
    (lambda at: (at / "sub").chmod(0o711),                                  "a folder gets another mode"),
    (lambda at: (at / "kept").chmod(0o711),                                 "a folder above a secret gets another mode"),
    (lambda at: at.chmod(0o711),                                            "the workspace gets another mode"),
    (replace_folder,                                                        "a folder is replaced"),
    (replace_above_secret,                                                  "a folder above a secret is replaced"),
    (replace_pinned,                                                        "the pinned folder is replaced"),
    (replace_workspace,                                                     "the workspace is replaced"),
    (secret_moved,                                                          "a secret moves to another folder"),
]
# fmt: on


def shown(bench: Bench, project: Path) -> None:
    """Require that a command on a layer sees the workspace as it is."""
    there = subprocess.run(["sh", "-c", LOOK], cwd=project, capture_output=True, text=True, check=True).stdout
    answer = run(bench, project, LOOK)
    assert answer["out"].splitlines() == there.splitlines()
    assert answer["changes"] == []
    assert SECRET not in run(bench, project, "cat kept/.env sub/.env 2>&1")["out"]


@pytest.mark.threat("T315")
@pytest.mark.parametrize(("change", "why"), CHANGES, ids=[row[1] for row in CHANGES])
def test_a_command_sees_the_present_workspace(bench: Bench, project: Path, change: Change, why: str) -> None:
    """The overlay of the second command exists before the change."""
    shown(bench, project)
    change(project)
    bench.own(project)
    shown(bench, project)


@pytest.mark.threat("T315")
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_random_changes_between_commands_are_seen(bench: Bench, project: Path, seed: int) -> None:
    chance = random.Random(seed)  # the same on every run
    for _ in range(5):
        for _ in range(6):
            folders = [
                each for each in (project, *sorted(project.rglob("*"))) if each.is_dir() and ".git" not in each.parts
            ]
            at, other = chance.choice(folders), chance.choice(folders)
            name = f"n{chance.randrange(5)}"
            match chance.randrange(5):
                case 0:
                    (at / name).mkdir(exist_ok=True) if not (at / name).is_file() else (at / name).unlink()
                case 1:
                    (at / f"{name}.txt").write_text(str(chance.random()))
                case 2:
                    if at != project:
                        shutil.rmtree(at)
                case 3:
                    if at not in (project, other) and at not in other.parents and not (other / name).exists():
                        at.rename(other / name)
                case _:
                    at.chmod(chance.choice([0o755, 0o711, 0o700]))
        bench.own(project)
        shown(bench, project)
