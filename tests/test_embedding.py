"""The library: what docs/embedding.md shows runs as it stands there, and importing the package costs nothing."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

import sandbox

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "embedding.md").read_text("utf-8")


@pytest.fixture
def program(tmp_path: Path) -> Path:
    (code,) = re.findall(r"^```python\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
    file = tmp_path / "embedding.py"
    file.write_text(code)
    return file


def test_the_page_does_what_it_says(program: Path, tmp_path: Path) -> None:
    home, folder = tmp_path / "home", tmp_path / "home" / "project"
    (home / ".ssh").mkdir(parents=True)
    (home / ".ssh" / "id_rsa").write_text("decoy-4f2a91")
    folder.mkdir()
    (folder / "notes.txt").write_text("old\n")
    scripts = [
        "cat notes.txt",
        "echo new > notes.txt && cat notes.txt",
        f"cat {home}/.ssh/id_rsa",
        "touch /usr/planted",
    ]
    done = subprocess.run(
        [sys.executable, program, folder, *scripts],
        env={"PATH": "/usr/bin:/bin", "HOME": str(home), "PYTHONPATH": str(ROOT), "LANG": "C.UTF-8"},
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[:3] == ["sandbox T1: FULL", "0: old", "0: new"]
    assert [line.partition(":")[0] for line in lines[3:]] == ["denied", "denied"]
    assert "decoy" not in done.stdout
    assert (folder / "notes.txt").read_text() == "new\n"


def test_importing_the_package_loads_nothing() -> None:
    script = "import sys; before = set(sys.modules); import sandbox; print(sorted(set(sys.modules) - before))"
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    assert ast.literal_eval(done.stdout) == ["sandbox"]


def test_every_name_is_there_and_in_the_page() -> None:
    assert [name for name in sandbox.__all__ if getattr(sandbox, name, None) is None] == []
    assert [name for name in sandbox.__all__ if f"`{name}" not in PAGE] == []
    with pytest.raises(AttributeError):
        sandbox.back_door  # noqa: B018  # looking is the test


@pytest.mark.threat("T29")
def test_the_surface_makes_no_permit() -> None:
    """Whoever embeds us is judged as everybody is: the mint is not among the names."""
    assert not {"Mint", "_MINT", "mint"} & {*sandbox.__all__}
    with pytest.raises(TypeError):
        sandbox.Permit(None, None, None)  # type: ignore[arg-type]  # a forgery
