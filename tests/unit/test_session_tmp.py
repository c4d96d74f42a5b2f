"""Tests of the session's /tmp on the host: created, shared, never followed outside, and removed."""

import os
import threading
from pathlib import Path

import pytest

from sandbox.backend import SandboxUnavailable
from sandbox.linux.session_tmp import Scratch


@pytest.fixture(autouse=True)
def own_tmp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return tmp_path


def test_what_commands_left_goes_with_the_session(own_tmp: Path) -> None:
    scratch = Scratch()
    inner = Path(scratch.path, "a", "b")
    inner.mkdir(parents=True)
    (inner / "f").write_text("x")
    (own_tmp / "kept").write_text("kept")
    (Path(scratch.path) / "link").symlink_to(own_tmp / "kept")
    inner.chmod(0)
    inner.parent.chmod(0)
    scratch.remove()
    assert [path.name for path in own_tmp.iterdir()] == ["kept"]


def test_the_folder_of_a_killed_session_is_swept_up_and_a_living_one_is_not(own_tmp: Path) -> None:
    living, killed = Scratch(), Scratch()
    os.close(killed._lock)  # what the kernel does when a process dies
    Scratch().remove()
    assert [str(path) for path in own_tmp.iterdir()] == [living.path]
    living.remove()


@pytest.mark.threat("T18")
@pytest.mark.parametrize("folder", [True, False])
def test_mount_points_are_never_made_through_a_link_that_a_command_left(own_tmp: Path, folder: bool) -> None:
    outside = own_tmp / "outside"
    outside.mkdir()
    scratch = Scratch()
    Path(scratch.path, "a").symlink_to(outside)
    with pytest.raises(SandboxUnavailable, match="blocks the path"):
        scratch.make("/tmp/a/b/c", folder=folder)
    assert not list(outside.iterdir())
    scratch.make("/tmp/new/deep", folder=folder)
    scratch.make("/tmp/new/deep", folder=folder)
    assert Path(scratch.path, "new", "deep").is_dir() is folder
    scratch.remove()


def test_a_session_that_starts_while_others_end_has_its_folder(own_tmp: Path) -> None:
    """The end of one sweeps up what nobody holds, and a new folder is held by nobody for a moment."""
    problems: list[Exception] = []

    def come_and_go() -> None:
        try:
            for _ in range(150):
                scratch = Scratch()
                assert os.path.isdir(scratch.path)
                scratch.remove()
        except (OSError, AssertionError) as error:
            problems.append(error)

    sessions = [threading.Thread(target=come_and_go) for _ in range(6)]
    for session in sessions:
        session.start()
    for session in sessions:
        session.join()
    assert problems == []
    assert list(own_tmp.iterdir()) == []
