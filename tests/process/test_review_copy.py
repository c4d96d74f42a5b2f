"""Tests of the copy of a workspace: equal contents, no shared files, and a list of omitted files."""

import ctypes
import os
import shutil
import socket
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from runner.changes.review.workspace_copy import CopyError, copied
from tests.support.places import ROOT
from tests.support.undo_workspace import as_nobody, picture
from tests.support.waiting import until


@pytest.fixture
def base() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(dir="/var/tmp", prefix="rc"))
    folder.chmod(0o1777)
    yield folder
    subprocess.run(["chmod", "-R", "u+rwX", folder], check=False)
    shutil.rmtree(folder, ignore_errors=True)


def made(base: Path, script: str) -> str:
    (base / "w").mkdir(exist_ok=True)
    subprocess.run(["bash", "-ec", script], cwd=base / "w", check=True, capture_output=True)
    return str(base / "w")


# what there is, why it might go wrong
SAME = [
    ("true", "nothing at all"),
    ("echo 1 > a; mkdir -p d/e; echo 2 > d/e/b; mkdir empty", "files and folders"),
    ("ln -s /etc/passwd out; ln -s nowhere broken; ln -s .. up; mkdir d; ln -s d same", "links, wherever they lead"),
    ("echo 1 > a; chmod 755 a; echo 2 > b; chmod 400 b; echo 3 > c; chmod 000 c; mkdir d; echo x > d/x; chmod 500 d", "modes"),
    ("touch -d 2001-02-03T04:05:06 a; mkdir d; touch -d 1999-01-01 d", "times, also of folders"),
    ("touch -- $'new\\nline' $'\\xff\\xfe' ' ' '-rf' '\"' 'a\\b'", "odd names"),
    ("echo x > f; ln f g", "two names of one file are two files"),
    ("git init -q .; echo '*.x filter=bad' > .gitattributes; git config filter.bad.clean 'touch RAN'; git config core.hooksPath hooks; mkdir hooks; printf '#!/bin/sh\\ntouch RAN' > hooks/post-checkout; chmod +x hooks/*; echo 1 > a.x", "a repository whose settings name programs"),
    ("truncate -s 50M sparse; printf tail >> sparse; printf head | dd of=sparse conv=notrunc status=none; truncate -s 1M hole", "holes"),
    ("head -c 3000000 /dev/urandom > big", "more than one read"),
]  # fmt: skip


@pytest.mark.parametrize(("script", "why"), SAME, ids=[row[1] for row in SAME])
def test_it_is_the_same(base: Path, script: str, why: str) -> None:
    workspace = made(base, script)
    before = picture(os.fsencode(workspace))
    copy = copied(workspace, str(base))
    assert picture(os.fsencode(copy.path)) == before == picture(os.fsencode(workspace)), why
    assert (copy.left_out, copy.torn) == ((), ())
    assert os.path.basename(copy.path) == "w", "a model sees the name that it knows"
    assert stat.S_IMODE(os.stat(os.path.dirname(copy.path)).st_mode) == 0o700, "nobody else gets in"
    for folder, _, names in os.walk(os.fsencode(copy.path)):
        for name in names:
            status = os.lstat(os.path.join(folder, name))
            assert status.st_nlink == 1, f"{name!r} has one name: {why}"
    copy.remove()
    assert not os.path.exists(os.path.dirname(copy.path))


def test_holes_take_no_room(base: Path) -> None:
    copy = copied(made(base, "truncate -s 500M hole"), str(base))
    status = os.stat(f"{copy.path}/hole")
    assert (status.st_size, status.st_blocks * 512 < 1 << 20) == (500 << 20, True)


def test_what_is_no_file_is_named(base: Path) -> None:
    workspace = made(base, "echo 1 > a; mkfifo pipe")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(f"{workspace}/sock")
        copy = copied(workspace, str(base))
    assert dict(copy.left_out) == {"pipe": "it is a pipe", "sock": "it is a socket"}
    assert os.listdir(copy.path) == ["a"]


def test_setuid_is_lost(base: Path) -> None:
    copy = copied(made(base, "touch a; chmod 6755 a"), str(base))
    assert stat.S_IMODE(os.stat(f"{copy.path}/a").st_mode) == 0o755


def test_what_may_not_be_read_is_named(base: Path) -> None:
    """Run as a user without root privileges, who cannot read two entries."""
    workspace = made(
        base,
        "mkdir closed; touch closed/x; echo 1 > mine; echo 2 > closed_file; chmod 0 closed closed_file; chmod 777 .",
    )

    def look() -> None:
        copy = copied(workspace, str(base))
        assert dict(copy.left_out) == {"closed": "permission denied", "closed_file": "permission denied"}
        assert sorted(os.listdir(copy.path)) == ["mine"]
        copy.remove()

    as_nobody(look)


def test_another_file_system_is_not_followed(base: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root mounts")
    workspace = made(base, "mkdir m; echo 1 > a")
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mount(b"none", f"{workspace}/m".encode(), b"tmpfs", 0, None) != 0:
        pytest.skip(f"nothing can be mounted here: {os.strerror(ctypes.get_errno())}")
    try:
        (base / "w/m/inner").touch()
        copy = copied(workspace, str(base))
    finally:
        libc.umount2(f"{workspace}/m".encode(), 2)
    assert copy.left_out == (("m", "another file system is mounted there"),)
    assert os.listdir(f"{copy.path}/m") == []


def test_a_file_that_changes_meanwhile_is_named(base: Path) -> None:
    """A user writes to it each time that it begins to be copied."""
    workspace = made(base, "echo x > moving; echo 1 > still")
    path, real = f"{workspace}/moving", os.ftruncate

    def change() -> None:
        was = os.stat(path).st_mtime_ns
        with open(path, "r+b", buffering=0) as file:
            # The clock of a file system ticks some hundred times a second.
            until(lambda: os.pwrite(file.fileno(), b"y", 0) and os.stat(path).st_mtime_ns != was)

    def begun(target: int, size: int) -> None:
        if os.readlink(f"/proc/self/fd/{target}").endswith("/moving"):
            change()
        real(target, size)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "ftruncate", begun)
        copy = copied(workspace, str(base))
    assert copy.torn == ("moving",)


@pytest.mark.parametrize(("how", "left"), [("killed", False), ("alive", True)])
def test_what_a_killed_run_left_is_taken_away(base: Path, how: str, left: bool) -> None:
    workspace = made(base, "echo 1 > a; mkdir d; echo 2 > d/b; chmod 500 d")
    script = f"import os, sys; from runner.changes.review.workspace_copy import copied; copy = copied({workspace!r}, {str(base)!r}); print(copy.path, flush=True); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT, text=True
    ) as run:
        assert run.stdout is not None
        path = run.stdout.readline().strip()
        os.utime(os.path.dirname(path), (1, 1))  # long ago
        if how != "alive":
            run.kill()
            run.wait()
        copied(workspace, str(base)).remove()
        assert os.path.exists(f"{path}/d/b") is left
        run.kill()


def test_a_folder_of_somebody_else_is_not_taken_away(base: Path) -> None:
    theirs = base / "ringfence-copy-theirs"
    theirs.mkdir(mode=0o755)
    os.symlink("/etc", base / "ringfence-copy-link")
    os.utime(theirs, (1, 1))
    copied(made(base, "echo 1 > a"), str(base)).remove()
    assert sorted(os.listdir(base)) == ["ringfence-copy-link", "ringfence-copy-theirs", "w"]


# where it cannot go, the words of it
NOWHERE = [("w", "in the workspace itself"), ("w/d", "in the workspace itself"), ("missing", "no such file"), ("file", "not a directory")]  # fmt: skip


@pytest.mark.parametrize(("where", "words"), NOWHERE)
def test_where_it_cannot_go(base: Path, where: str, words: str) -> None:
    workspace = made(base, "mkdir d; touch ../file")
    with pytest.raises(CopyError) as error:
        copied(workspace, str(base / where))
    assert words in str(error.value)


def test_a_full_disk_leaves_nothing(base: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root mounts")
    small = base / "small"
    small.mkdir()
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mount(b"none", str(small).encode(), b"tmpfs", 0, b"size=1m") != 0:
        pytest.skip(f"nothing can be mounted here: {os.strerror(ctypes.get_errno())}")
    try:
        with pytest.raises(CopyError, match="no space left") as error:
            copied(made(base, "head -c 3000000 /dev/urandom > big"), str(small))
        assert "TMPDIR" in error.value.problem.fix
        assert os.listdir(small) == []
    finally:
        libc.umount2(str(small).encode(), 2)


@pytest.mark.parametrize("link", ["d", "d/f"])
def test_a_link_that_appears_is_not_followed(base: Path, link: str) -> None:
    """THREAT T18: a folder or file is swapped for a link out between two looks."""
    workspace = made(base, "mkdir d; echo inside > d/f; mkdir ../out; echo secret > ../out/f")
    real = os.open

    def swapping(path: object, flags: int, *args: object, **more: object) -> int:
        if path == os.path.basename(link) and more.get("dir_fd") is not None and not flags & os.O_CREAT:
            os.rename(f"{workspace}/{link}", f"{workspace}/{link}.was")
            os.symlink(f"{base}/out" if link == "d" else f"{base}/out/f", f"{workspace}/{link}")
        return real(path, flags, *args, **more)  # type: ignore[arg-type]  # as it is called

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "open", swapping)
        copy = copied(workspace, str(base))
    assert [path for path, _ in copy.left_out] == [link]
    assert "secret" not in subprocess.run(["grep", "-r", ".", copy.path], capture_output=True, text=True).stdout
