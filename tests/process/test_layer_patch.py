"""The patch of a layer applies to the workspace, and the result is the view of the command."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from runner.changes.review.layer_patch import layer_patch
from sandbox.workspace.layer import ChangeLayer, LayerChange, LayerKind
from tests.support.git_template import ENVIRON

FILE, FOLDER, LINK = LayerKind.FILE, LayerKind.FOLDER, LayerKind.LINK
# The workspace, the upper folder of the layer (None: a folder), the changes, and the paths that the patch has.
CASES = [
    ("a file", {"a": "1\n"}, {"a": "2\n"}, [("a", FILE, False)], [("a", "modified")]),
    ("a new file in a folder", {"d/a": "1\n"}, {"d/b": "2\n"}, [("d", FOLDER, False), ("d/b", FILE, False)], [("d/b", "added")]),
    ("a new folder", {}, {"d/a": "1\n", "d/e/b": "2\n"}, [("d", FOLDER, True), ("d/a", FILE, False), ("d/e", FOLDER, False), ("d/e/b", FILE, False)], [("d/a", "added"), ("d/e/b", "added")]),
    ("a deleted file", {"a": "1\n", "b": "2\n"}, {}, [("a", None, False)], [("a", "deleted")]),
    ("a deleted folder", {"d/a": "1\n", "d/e/b": "2\n"}, {}, [("d", None, False)], [("d/a", "deleted"), ("d/e/b", "deleted")]),
    ("a renamed file", {"a": "long enough\n"}, {"b": "long enough\n"}, [("a", None, False), ("b", FILE, False)], [("b", "renamed")]),
    ("a folder made anew", {"d/a": "1\n", "d/b": "2\n"}, {"d/b": "3\n"}, [("d", FOLDER, True), ("d/b", FILE, False)], [("d/a", "deleted"), ("d/b", "modified")]),
    ("a file in place of a folder", {"d/a": "1\n"}, {"d": "2\n"}, [("d", FILE, False)], [("d", "added"), ("d/a", "deleted")]),
    ("a folder in place of a file", {"d": "1\n"}, {"d/a": "2\n"}, [("d", FOLDER, True), ("d/a", FILE, False)], [("d", "deleted"), ("d/a", "added")]),
    ("a link", {}, {"l": "-> a"}, [("l", LINK, False)], [("l", "added")]),
    ("a file without a difference", {"a": "1\n"}, {"a": "1\n"}, [("a", FILE, False)], []),
]  # fmt: skip


def fill(top: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = top / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if text.startswith("-> "):
            path.symlink_to(text[3:])
        else:
            path.write_text(text)


def tree(top: Path) -> dict[str, str]:
    found = {}
    for folder, _, names in os.walk(top):
        for name in names:
            path = Path(folder) / name
            if ".git" not in path.parts:
                text = f"-> {path.readlink()}" if path.is_symlink() else path.read_text()
                found[str(path.relative_to(top))] = text
    return found


@pytest.mark.parametrize(("what", "lower", "upper", "changes", "paths"), CASES, ids=[case[0] for case in CASES])
def test_the_patch_has_exactly_the_changes(
    tmp_path: Path,
    what: str,
    lower: dict[str, str],
    upper: dict[str, str],
    changes: list[tuple[str, LayerKind | None, bool]],
    paths: list[tuple[str, str]],
) -> None:
    work, top = tmp_path / "work", tmp_path / "upper"
    work.mkdir()
    top.mkdir()
    fill(work, lower)
    fill(top, upper)
    layer = ChangeLayer(str(work), str(top), str(tmp_path))
    found = tuple(LayerChange(path, kind, whole=whole) for path, kind, whole in changes)
    patch = layer_patch(layer, found, lambda path: False)
    assert sorted((each.path, each.how) for each in patch.files) == paths
    assert patch.left_out == ()
    expected = dict(lower)
    for path, kind, whole in changes:  # the view of the command
        if kind is not FOLDER or whole:
            expected = {name: text for name, text in expected.items() if not f"{name}/".startswith(f"{path}/")}
    expected |= upper
    copy = tmp_path / "copy"
    shutil.copytree(work, copy, symlinks=True)
    subprocess.run(["git", "init", "-q", str(copy)], env=ENVIRON, check=True)
    if patch.text:
        apply = ["git", "apply", "--whitespace=nowarn", "-"]
        subprocess.run(apply, cwd=copy, env=ENVIRON, input=patch.text, check=True)
    assert tree(copy) == expected
    assert tree(work) == lower


def test_secrets_ignored_files_and_files_of_git_are_named_only(tmp_path: Path) -> None:
    work, top = tmp_path / "work", tmp_path / "upper"
    fill(work, {".gitignore": "out/\n", ".git/config": "[core]\n"})
    fill(top, {".env": "KEY=1\n", "out/a.o": "binary", ".git/index": "new", "sub/.git/config": "[core]\n", "e/f": ""})
    (top / "e" / "f").unlink()
    layer = ChangeLayer(str(work), str(top), str(tmp_path))
    rows = [
        (".env", FILE), (".git", FOLDER), (".git/index", FILE), ("e", FOLDER), ("out", FOLDER), ("out/a.o", FILE),
        ("sub", FOLDER), ("sub/.git", FOLDER), ("sub/.git/config", FILE),
    ]  # fmt: skip
    changes = tuple(LayerChange(path, kind, whole=path in ("e", "out", "sub")) for path, kind in rows)
    patch = layer_patch(layer, changes, lambda path: path == ".env")
    assert patch.files == ()
    assert patch.secrets == (".env",)
    assert patch.ignored == ("out/a.o",)
    assert patch.empty == ("e",)
    assert [path for path, _ in patch.unfit] == [".git", "sub/.git"]


def test_a_link_in_the_workspace_is_not_followed(tmp_path: Path) -> None:
    work, top, outside = tmp_path / "work", tmp_path / "upper", tmp_path / "outside"
    fill(outside, {"secret": "hidden words\n"})
    fill(work, {"d": f"-> {outside}"})
    fill(top, {"d/secret": "new\n"})
    layer = ChangeLayer(str(work), str(top), str(tmp_path))
    changes = (LayerChange("d", FOLDER, whole=True), LayerChange("d/secret", FILE, within=True))
    patch = layer_patch(layer, changes, lambda path: False)
    assert b"hidden words" not in patch.text
    assert sorted((each.path, each.how) for each in patch.files) == [("d", "deleted"), ("d/secret", "added")]
