"""Tests of the list of changes over content that a command made to mislead it, and over layers made by hand."""

import asyncio
import os
import signal
import stat
from pathlib import Path

import pytest

from policy.model.action import RunScript
from policy.model.verdict import _MINT, Permit, Rights, Terms
from sandbox.backend import Outcome
from sandbox.inside import safe_rmtree
from sandbox.linux import helper_layers
from sandbox.linux.backend import Linux
from sandbox.workspace import layer as layer_module
from sandbox.workspace.layer import ChangeLayer, LayerKind, LayerUnreadable, new_layer, prepare, read_layer
from tests.sandbox.test_sandbox_many import SYSTEM


@pytest.fixture
def layer(tmp_path: Path) -> ChangeLayer:
    (tmp_path / "w" / "sub").mkdir(parents=True)
    (tmp_path / "w" / "file").write_text("one")
    (tmp_path / "w" / "sub" / "inner").write_text("two")
    made = new_layer(str(tmp_path / "w"), str(tmp_path))
    prepare(made)
    return made


def run(permit: Permit, layer: ChangeLayer) -> Outcome:
    async def main() -> Outcome:
        backend = Linux("T1", files=False)
        try:
            return await backend.run(permit, layer=layer)
        finally:
            await backend.close()

    return asyncio.run(main())


def kinds(layer: ChangeLayer) -> list[tuple[str, LayerKind | None, bool]]:
    return [(change.path, change.kind, change.whole) for change in read_layer(layer)]


@pytest.mark.threat("T301")
@pytest.mark.parametrize("mode", [0o755, 0o700, 0o2750, 0o555])
def test_a_layer_that_no_command_used_has_no_changes(tmp_path: Path, mode: int) -> None:
    """A command may be stopped before a helper prepares its layer."""
    (tmp_path / "w").mkdir()
    (tmp_path / "w").chmod(mode)
    made = new_layer(str(tmp_path / "w"), str(tmp_path))
    assert kinds(made) == []
    prepare(made)
    assert kinds(made) == []


@pytest.mark.threat("T301")
def test_a_deleted_file_in_the_form_of_an_attribute(layer: ChangeLayer) -> None:
    """Only in a folder with the mark for it is an empty file with this attribute a deleted one."""
    upper = Path(layer.upper)
    (upper / "sub").mkdir()
    for path in (upper / "file", upper / "sub" / "inner"):
        path.touch()
        os.setxattr(path, "user.overlay.whiteout", b"")
    assert kinds(layer) == [("file", LayerKind.FILE, False), ("sub/inner", LayerKind.FILE, False)]
    os.setxattr(upper / "sub", "user.overlay.opaque", b"x")
    assert kinds(layer) == [("file", LayerKind.FILE, False), ("sub/inner", None, False)]


@pytest.mark.threat("T301")
def test_a_link_in_the_place_of_a_folder_is_not_followed(layer: ChangeLayer, tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "inner").write_text("secret")
    (Path(layer.upper) / "sub").symlink_to(tmp_path / "outside")
    assert kinds(layer) == [("sub", LayerKind.LINK, False)]
    (Path(layer.upper) / "sub").unlink()
    (Path(layer.upper) / "sub").mkdir()
    (Path(layer.upper) / "sub" / "inner").write_text("two")
    os.rename(tmp_path / "w" / "sub", tmp_path / "w" / "away")
    (tmp_path / "w" / "sub").symlink_to(tmp_path / "outside")  # in the workspace, meanwhile
    assert kinds(layer) == [("sub", LayerKind.FOLDER, True), ("sub/inner", LayerKind.FILE, False)]


@pytest.mark.threat("T301")
def test_a_tree_of_any_depth_is_listed_or_refused(layer: ChangeLayer) -> None:
    handle = os.open(layer.upper, os.O_RDONLY)
    for depth in range(2_500):
        os.mkdir("d", dir_fd=handle)
        inner = os.open("d", os.O_RDONLY, dir_fd=handle)
        os.close(handle)
        handle = inner
        if depth == 1_500:
            assert len(read_layer(layer)) == 1_501
    os.close(handle)
    try:
        with pytest.raises(LayerUnreadable, match="more than 4,000 bytes"):
            read_layer(layer)
    finally:
        safe_rmtree.remove(layer.upper)  # no other program removes a tree this deep


@pytest.mark.threat("T301")
def test_a_layer_with_too_many_entries_is_refused(layer: ChangeLayer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layer_module, "MOST", 20)
    for number in range(21):
        (Path(layer.upper) / str(number)).touch()
    with pytest.raises(LayerUnreadable, match="more than 20 new or changed files"):
        read_layer(layer)


@pytest.mark.threat("T301")
def test_twenty_thousand_files(layer: ChangeLayer) -> None:
    for number in range(200):
        folder = Path(layer.upper, "new", str(number))
        folder.mkdir(parents=True)
        for name in range(100):
            (folder / str(name)).touch()
    changes = read_layer(layer)
    assert len(changes) == 20_201
    assert [change.path for change in changes if change.whole and not change.within] == ["new"]
    above = {change.path for change in changes if stat.S_ISDIR(change.mode)}
    assert all("/" not in change.path or os.path.dirname(change.path) in above for change in changes)


@pytest.mark.threat("T302")
def test_attributes_of_overlayfs_in_the_workspace_show_nothing_else(layer: ChangeLayer, tmp_path: Path) -> None:
    """An earlier command that ran in the workspace itself may have set them."""
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "inner").write_text("secret")
    workspace = Path(layer.workspace)
    (workspace / ".env").write_text("secret")
    for path, name, value in (
        ("sub", "redirect", b"/outside"),
        ("sub", "redirect", str(tmp_path / "outside").encode()),
        ("file", "metacopy", b""),
        ("file", "redirect", str(tmp_path / "outside" / "inner").encode()),
        (".", "opaque", b"x"),
        (".env", "whiteout", b"y"),
    ):
        os.setxattr(workspace / path, f"user.overlay.{name}", value)
    env = (("PATH", "/usr/bin:/bin"),)
    terms = Terms(Rights.WORKSPACE_WRITE, layer.workspace, "/nonexistent", system=SYSTEM, env=env, hidden=(".env",))
    script = "cat file sub/inner .env 2>&1; ls sub; echo x > sub/new; mv sub moved; cat moved/inner"
    outcome = run(Permit(RunScript(script, layer.workspace), terms, _MINT), layer)
    assert b"secret" not in outcome.stdout + outcome.stderr
    assert "secret" not in "".join(path.read_text() for path in Path(layer.upper).rglob("*") if path.is_file())


@pytest.mark.threat("T300")
def test_a_layer_that_may_still_change_cannot_be_read(layer: ChangeLayer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(helper_layers, "LAST", 0)
    monkeypatch.setattr(helper_layers.HelperLayers, "alone", lambda layers: False)  # a process is left
    monkeypatch.setattr(signal, "pidfd_send_signal", lambda handle, number: None)  # it does not end
    terms = Terms(Rights.WORKSPACE_WRITE, layer.workspace, "/nonexistent", system=SYSTEM, env=(("PATH", "/usr/bin"),))
    outcome = run(Permit(RunScript("echo > made", layer.workspace), terms, _MINT), layer)
    assert outcome.status == 0
    with pytest.raises(FileNotFoundError):
        read_layer(layer)
    assert os.listdir(f"{layer.upper}.in-use") == ["made"]
