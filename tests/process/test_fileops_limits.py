"""Tests of file operations without rights, without space, without the standard library, and in locked folders."""

import ctypes
import json
import os
import resource
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import sandbox.inside.files.operations
from sandbox.inside.files.operations import perform

ROOT = Path(sandbox.inside.files.operations.__file__).parents[3]
MS_PRIVATE, MS_BIND, MS_REMOUNT, MS_RDONLY, MS_REC = 1 << 18, 1 << 12, 1 << 5, 1, 1 << 14
CLONE_NEWNS, CLONE_NEWUSER = 0x0002_0000, 0x1000_0000


def in_child(prepare: Callable[[], object], *requests: dict[str, object]) -> list[dict[str, object]]:
    """Return the answers of `perform` in a child process, after a call of `prepare`."""
    read_end, write_end = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            prepare()
            text = json.dumps([perform(request) for request in requests])
        except BaseException as error:  # the child must end here, whatever happens; the parent fails on this text
            text = repr(error)
        with open(write_end, "w") as pipe:
            pipe.write(text)
        os._exit(0)
    os.close(write_end)
    with open(read_end) as pipe:
        text = pipe.read()
    os.waitpid(pid, 0)
    answers = json.loads(text)
    assert isinstance(answers, list)
    return answers


def no_privilege() -> None:
    """Become a user whom file modes stop."""
    if os.geteuid() == 0:
        os.setgroups([])
        os.setresgid(65534, 65534, 65534)
        os.setresuid(65534, 65534, 65534)


def why(answer: dict[str, object]) -> str:
    told = answer["problem"]
    assert isinstance(told, dict)
    return str(told["why"])


@pytest.fixture
def shared() -> Iterator[Path]:
    """A folder that another user can reach too; pytest's own are closed to others."""
    folder = Path(tempfile.mkdtemp()).resolve()
    folder.chmod(0o755)
    yield folder
    folder.chmod(0o755)
    shutil.rmtree(folder)


def test_protected_files_are_refused_and_counted(shared: Path) -> None:
    (shared / "open").write_text("needle\n")
    secret = shared / "secret"
    secret.write_text("needle\n")
    secret.chmod(0)
    locked = shared / "locked"
    locked.mkdir()
    (locked / "inside").write_text("needle\n")
    locked.chmod(0)
    read, write, edit, inside, listed, found, by_name = in_child(
        no_privilege,
        {"op": "ReadFile", "path": str(secret)},
        {"op": "WriteFile", "path": str(secret), "content": "x"},
        {"op": "EditFile", "path": str(secret), "old": "needle", "new": "x"},
        {"op": "ReadFile", "path": str(locked / "inside")},
        {"op": "ListFolder", "path": str(locked)},
        {"op": "GrepFiles", "root": str(shared), "pattern": "needle"},
        {"op": "GlobFiles", "root": str(shared), "pattern": "**"},
    )
    for answer in (read, write, edit, inside, listed):
        assert why(answer) == "it is protected from this action"
    assert (found["count"], found["unread"]) == (1, 2)
    assert (by_name["names"], by_name["unread"]) == (["secret", "open"], 1)
    locked.chmod(0o700)


def test_both_engines_count_what_they_may_not_read(shared: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (shared / "secret").write_text("needle\n")
    (shared / "secret").chmod(0)
    request: dict[str, object] = {"op": "GrepFiles", "root": str(shared), "pattern": "needle"}
    (fast,) = in_child(no_privilege, request)
    monkeypatch.setenv("PATH", "/nowhere")
    (own,) = in_child(no_privilege, request)
    assert (fast.pop("engine"), own.pop("engine")) == ("ripgrep", "python")
    assert fast == own == {"files": [], "count": 0, "unread": 1, "limited": False, "late": False}


def test_a_write_protected_file_is_not_replaced_behind_its_back(shared: Path) -> None:
    shared.chmod(0o777)
    path = shared / "fixed"
    path.write_text("old")
    path.chmod(0o444)
    (answer,) = in_child(no_privilege, {"op": "WriteFile", "path": str(path), "content": "new"})
    assert why(answer) == "it is protected from this action"
    assert path.read_text() == "old"


def test_a_file_in_a_locked_folder_is_written_in_place(shared: Path) -> None:
    """A grant for one single file looks like this from inside the sandbox."""
    path = shared / "granted"
    path.write_text("a long old text\n")
    path.chmod(0o666)
    inode = path.stat().st_ino
    shared.chmod(0o555)
    written, edited, new = in_child(
        no_privilege,
        {"op": "WriteFile", "path": str(path), "content": "short\n"},
        {"op": "EditFile", "path": str(path), "old": "short", "new": "shorter"},
        {"op": "WriteFile", "path": str(shared / "other"), "content": "x"},
    )
    for answer in (written, edited):
        assert answer["notes"] == ["written in place, because its folder may not be changed"]
    assert path.read_text() == "shorter\n"
    assert path.stat().st_ino == inode
    assert why(new) == "it is protected from this action"


def small_files() -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))


@pytest.mark.threat("T43")
def test_a_file_that_grows_past_the_limit_leaves_the_old_one(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("old\n")
    path.chmod(0o640)
    replaced, edited, new = in_child(
        small_files,
        {"op": "WriteFile", "path": str(path), "content": "x" * 5000},
        {"op": "EditFile", "path": str(path), "old": "old", "new": "x" * 5000},
        {"op": "WriteFile", "path": str(tmp_path / "new"), "content": "x" * 5000},
    )
    for answer in (replaced, edited, new):
        assert why(answer) == "the file would be larger than the limit"
    assert os.listdir(tmp_path) == ["file"]
    assert path.read_text() == "old\n"
    assert stat.S_IMODE(path.stat().st_mode) == 0o640


@pytest.mark.threat("T43")
def test_a_failure_in_place_puts_the_old_content_back(shared: Path) -> None:
    path = shared / "granted"
    path.write_text("old\n" * 50)
    path.chmod(0o666)
    shared.chmod(0o555)

    def prepare() -> None:
        no_privilege()
        small_files()

    (answer,) = in_child(prepare, {"op": "WriteFile", "path": str(path), "content": "x" * 5000})
    assert why(answer) == "the file would be larger than the limit"
    assert path.read_text() == "old\n" * 50


def own_mounts() -> None:
    """A mount namespace of our own; as an ordinary user, through a user namespace."""
    libc = ctypes.CDLL(None, use_errno=True)
    user, group = os.geteuid(), os.getegid()
    if libc.unshare(CLONE_NEWNS | (CLONE_NEWUSER if user else 0)):
        raise OSError(ctypes.get_errno(), "unshare")
    if user:
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"0 {user} 1")
        Path("/proc/self/gid_map").write_text(f"0 {group} 1")
    mount("none", "/", None, MS_REC | MS_PRIVATE)


def mount(source: str, target: str, kind: str | None, flags: int, data: str | None = None) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    words = [word if word is None else word.encode() for word in (source, target, kind)]
    if libc.mount(*words, ctypes.c_ulong(flags), None if data is None else data.encode()):
        raise OSError(ctypes.get_errno(), f"mount {target}")


@pytest.mark.threat("T43")
def test_a_full_disk(tmp_path: Path) -> None:
    """A tmpfs of 64 KB; where namespaces are refused, a limit of 1,000 bytes a file is what there is to run into."""
    path = tmp_path / "file"

    def prepare() -> None:
        try:
            own_mounts()
            mount("tmpfs", str(tmp_path), "tmpfs", 0, "size=64k")
        except OSError:  # no namespaces for us here
            small_files()
        path.write_text("old\n")

    failed, kept, folder = in_child(
        prepare,
        {"op": "WriteFile", "path": str(path), "content": "x" * 100_000},
        {"op": "ReadFile", "path": str(path)},
        {"op": "ListFolder", "path": str(tmp_path)},
    )
    assert why(failed) in ("the disk is full", "the file would be larger than the limit")
    assert kept["lines"] == ["old"]
    assert folder["total"] == 1


def test_locked_and_granted_files_inside_mounts(shared: Path) -> None:
    """The sandbox's own shapes: a writable file in a read-only folder, and a read-only file in a writable folder.

    Where mounts are refused, file modes make the same shapes.
    """
    files = [shared / name / "file" for name in ("granted", "locked", "plain")]
    granted, locked, _ = files
    for file in files:
        file.parent.mkdir()
        file.parent.chmod(0o777)
        file.write_text("old\n")
        file.chmod(0o666)

    def read_only(path: Path) -> None:
        mount(str(path), str(path), None, MS_BIND)
        mount("none", str(path), None, MS_BIND | MS_REMOUNT | MS_RDONLY)

    def prepare() -> None:
        try:
            own_mounts()
        except OSError:
            granted.parent.chmod(0o555)
            locked.chmod(0o444)
            no_privilege()
            return
        hold = shared / "hold"
        hold.touch()
        mount(str(granted), str(hold), None, MS_BIND)
        read_only(granted.parent)
        mount(str(hold), str(granted), None, MS_BIND)  # the grant lies on top of the folder that is not granted
        read_only(locked)

    requests: list[dict[str, object]] = [{"op": "WriteFile", "path": str(file), "content": "new\n"} for file in files]
    requests.append({"op": "WriteFile", "path": str(granted.parent / "other"), "content": "new\n"})
    in_place, refused, normal, other = in_child(prepare, *requests)
    assert in_place["notes"] == ["written in place, because its folder may not be changed"]
    assert {why(refused), why(other)} <= {"this action may not write there", "it is protected from this action"}
    assert normal["notes"] == []
    assert [file.read_text() for file in files] == ["new\n", "old\n", "new\n"]
    assert os.listdir(locked.parent) == ["file"]


PROGRAM = """
import sys
sys.path.insert(0, {root!r})
import sandbox.inside.files.operations as fileops
early = sorted(sys.modules)
fileops.warm()

class Nothing:
    def find_spec(self, name, path=None, target=None):
        raise ImportError("there is no library any more: " + name)

import json
sys.meta_path[:] = [Nothing()]
requests, answers = json.loads(sys.stdin.read()), []
for request in requests:
    answers.append(fileops.perform(request))
print(json.dumps([early, answers]))
"""


def test_nothing_is_imported_after_warm_and_little_before(tmp_path: Path) -> None:
    """After confinement the standard library may not exist; before it, every import is start-up time."""
    path = str(tmp_path / "caf\udce9\n.txt")
    target = tmp_path / "a.txt"
    requests = [
        {"op": "WriteFile", "path": path, "content": "x\n"},
        {"op": "WriteFile", "path": str(target), "content": "one\ntwo\n"},
        {"op": "WriteFile", "path": str(target), "content": "one\n2\n"},
        {"op": "EditFile", "path": str(target), "old": "1\tone", "new": "x"},
        {"op": "EditFile", "path": str(target), "old": "one", "new": "é"},
        {"op": "ReadFile", "path": str(target)},
        {"op": "ReadFile", "path": str(tmp_path / "b.txt")},
        {"op": "ReadFile", "path": "/\ud800"},
        {"op": "ListFolder", "path": str(tmp_path)},
        {"op": "GlobFiles", "root": str(tmp_path), "pattern": "**/[!b]*.{txt,md}"},
        {"op": "GrepFiles", "root": str(tmp_path), "pattern": "(?i)É", "glob": "*.txt"},
        {"op": "GrepFiles", "root": str(tmp_path), "pattern": "(?<=x)y|[[a]", "seconds": 5},
        {"op": "GrepFiles", "root": str(tmp_path), "pattern": "(é"},
    ]
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", PROGRAM.format(root=str(ROOT))],
        input=json.dumps(requests),
        capture_output=True,
        text=True,
        check=False,
        env={},
    )
    assert done.stderr == ""
    early, answers = json.loads(done.stdout)
    failed = [index for index, answer in enumerate(answers) if "problem" in answer]
    assert failed == [3, 6, 7, 12], answers
    assert not {"re", "typing", "enum", "hashlib", "difflib", "signal", "dataclasses", "json", "collections"} & set(
        early
    )
    assert {name for name in early if name.partition(".")[0] in ("policy", "tools", "runner")} == set()
