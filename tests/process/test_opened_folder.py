"""Tests of paths that another process turns into links, and back, while the program works with them."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from policy.model.verdict import Rights, Terms
from sandbox.inside.regular_file import real_path
from sandbox.workspace.autorun import Watch
from sandbox.workspace.opened_folder import opened_folder
from sandbox.workspace.protected_paths import Scan


@pytest.fixture
def swapped(tmp_path: Path) -> Iterator[Path]:
    """A name that another process replaces all the time: by a folder, by a link out of the workspace, by nothing."""
    folder, name, outside = tmp_path / "aside", tmp_path / "workspace" / "d", tmp_path / "outside"
    for each in (name, outside):
        each.mkdir(parents=True)
    child = os.fork()
    if child == 0:
        while True:
            name.rename(folder)
            name.symlink_to(outside)
            name.unlink()
            folder.rename(name)
    yield name
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)


@pytest.mark.threat("T18")
def test_a_name_that_is_replaced_all_the_time_has_a_target(swapped: Path) -> None:
    """`os.path.realpath` of Python 3.11 raises FileNotFoundError in some of these rounds."""
    found = {real_path(f"{swapped}/file") for _ in range(20_000)}
    outside = swapped.parent.parent / "outside"
    assert found <= {f"{swapped}/file", f"{outside}/file"}


@pytest.mark.threat("T18")
def test_an_opened_folder_is_never_the_target_of_the_link(swapped: Path) -> None:
    outside, opened = (swapped.parent.parent / "outside").stat().st_ino, 0
    while not opened:
        for _ in range(5_000):
            try:
                with opened_folder(str(swapped)) as handle:
                    assert os.fstat(handle).st_ino != outside
                    opened += 1
            except (FileNotFoundError, NotADirectoryError):
                continue


@pytest.mark.parametrize("path", ["link", "link/inner", "real/link", "real/../real", "file", "missing"])
def test_what_is_reached_by_a_link_is_not_opened(tmp_path: Path, path: str) -> None:
    (tmp_path / "real" / "inner").mkdir(parents=True)
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to("real")
    (tmp_path / "real" / "link").symlink_to("inner")
    with pytest.raises(OSError, match=r"link|real|file|missing"), opened_folder(f"{tmp_path}/{path}"):
        pass
    with opened_folder(f"{tmp_path}/real/inner") as handle:
        assert os.fstat(handle).st_ino == (tmp_path / "real/inner").stat().st_ino


@pytest.mark.threat("T18")
@pytest.mark.parametrize("quickly", [True, False])
def test_a_file_outside_is_never_set_aside(tmp_path: Path, quickly: bool) -> None:
    """The state in which a process leaves the folder between the check of its file and the move."""
    workspace, outside = tmp_path / "workspace", tmp_path / "outside"
    for each in (workspace, outside):
        each.mkdir()
    (outside / ".envrc").write_text("of the user")
    (workspace / "d").symlink_to(outside)
    terms = Terms(Rights.WORKSPACE_WRITE, str(workspace), str(tmp_path / "home"))
    watch = Watch(terms, Scan(), tmp_path / "aside")
    violation = watch.set_aside(f"{workspace}/d/.envrc", quickly=quickly)
    assert "could not be set aside" in violation.what
    assert (outside / ".envrc").read_text() == "of the user"
    assert os.listdir(outside) == [".envrc"]
