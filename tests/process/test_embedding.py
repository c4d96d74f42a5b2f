"""Tests of the library: the examples of docs/guide/embedding.md run as printed, and importing the package is cheap."""

import ast
import importlib.util
import json
import re
import subprocess
import sys
import typing
from pathlib import Path

import pytest

import ringfence
from runner.frontends.jsonl.protocol import TYPES
from tests.support.places import ROOT

PAGE = (ROOT / "docs" / "guide" / "embedding.md").read_text("utf-8")


ANSWER, AGENT, LINES, SANDBOX = re.findall(r"^```python\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
SCRIPT = """
[[turn]]
calls = [{ name = "bash", arguments = { command = "echo new > notes.txt" } }]
[[turn]]
calls = [{ name = "bash", arguments = { command = "python3 -c 'print(6 * 7)'" } }]
[[turn]]
text = "that is all"
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "home" / "project"
    (tmp_path / "home" / ".ssh").mkdir(parents=True)
    (tmp_path / "home" / ".ssh" / "id_rsa").write_text("decoy-4f2a91")
    folder.mkdir()
    (folder / "notes.txt").write_text("old\n")
    (tmp_path / "script.toml").write_text(SCRIPT)
    return folder


def run(code: str, folder: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    """A program of the page, as a user would run it."""
    home = folder.parent
    file = home.parent / "embedding.py"
    file.write_text(code)
    return subprocess.run(
        [sys.executable, file, folder, *words],
        env={"PATH": "/usr/bin:/bin", "HOME": str(home), "PYTHONPATH": str(ROOT), "LANG": "C.UTF-8"},
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip


def test_the_answer_is_what_the_page_says(folder: Path) -> None:
    done = run(ANSWER, folder, f"scripted:{folder.parent.parent}/script.toml", "go")
    assert (done.returncode, done.stdout) == (0, "that is all\n"), done.stderr
    assert (folder / "notes.txt").read_text() == "old\n", "plan mode changes nothing"


def test_the_agent_does_what_the_page_says(folder: Path) -> None:
    done = run(AGENT, folder, f"scripted:{folder.parent.parent}/script.toml", "go")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("asked: Changes notes.txt\n")
    assert "[1.1 ended with 0]\n" in done.stdout
    assert "that is all" in done.stdout
    assert "[$ python3" in done.stdout, "what the program did not allow was denied"
    assert done.stdout.splitlines()[-1] == "done"
    assert (folder / "notes.txt").read_text() == "new\n"


def test_json_lines_do_what_the_page_says(folder: Path) -> None:
    done = run(LINES, folder, f"scripted:{folder.parent.parent}/script.toml", "go")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[:2] == ["asked: Changes notes.txt", "[1.1 ended with 0]"]
    assert lines[-1] == "done"
    assert len(lines) == 4, "the second question was answered no"
    assert (folder / "notes.txt").read_text() == "new\n"


def test_every_line_that_there_is_is_on_the_page() -> None:
    assert [name for name in TYPES if f'{{"type": "{name}"' not in PAGE] == []


def test_the_table_of_events_is_current() -> None:
    spec = importlib.util.spec_from_file_location("make_events", ROOT / "docs" / "make_events.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.page(PAGE) == PAGE, "run `make docs`"
    assert PAGE.count("| `run_ended` |") == 1


def test_the_sandbox_does_what_the_page_says(folder: Path) -> None:
    home = folder.parent
    scripts = [
        "cat notes.txt",
        "echo new > notes.txt && cat notes.txt",
        f"cat {home}/.ssh/id_rsa",
        "touch /usr/planted",
    ]
    done = run(SANDBOX, folder, *scripts)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[:3] == ["sandbox T1: FULL", "0: old", "0: new"]
    assert [line.partition(":")[0] for line in lines[3:]] == ["denied", "denied"]
    assert "decoy" not in done.stdout
    assert (folder / "notes.txt").read_text() == "new\n"


@pytest.mark.parametrize("package", ["ringfence", "sandbox"])
def test_importing_the_package_loads_nothing(package: str) -> None:
    script = f"import sys; before = set(sys.modules); import {package}; print(sorted(set(sys.modules) - before))"
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    assert ast.literal_eval(done.stdout) == [package]


def test_the_names_load_no_module_of_a_front_end() -> None:
    script = "import json, sys, ringfence; ringfence.Agent; print(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    loaded = set(json.loads(done.stdout))
    assert "runner.agent.agent" in loaded
    assert not loaded & {"typer", "rich", "prompt_toolkit", "httpx", "keyring", "docker", "cryptography", "bashlex"}
    assert not {name for name in loaded if name.startswith(("runner.cli", "runner.frontends"))}


def test_every_name_is_there_and_in_the_page() -> None:
    assert [name for name in ringfence.__all__ if getattr(ringfence, name, None) is None] == []
    assert [name for name in ringfence.__all__ if f"`{name}" not in PAGE] == []
    assert {each.__name__ for each in typing.get_args(ringfence.Event)} <= {*ringfence.__all__}
    assert {*ringfence.__all__} <= {*dir(ringfence)}
    assert len({*ringfence.__all__}) == len(ringfence.__all__)
    with pytest.raises(AttributeError):
        ringfence.back_door  # type: ignore[attr-defined]  # noqa: B018  # looking is the test


def test_every_error_of_the_program_has_one_base() -> None:
    """Errors of other bases are caught where they are raised: no caller of a package sees them."""
    for name in ringfence.__all__:
        found = getattr(ringfence, name)
        if isinstance(found, type) and issubclass(found, BaseException):
            assert issubclass(found, ringfence.Error), name


@pytest.mark.threat("T29")
def test_the_surface_makes_no_permit() -> None:
    """Anyone who embeds us is judged as everybody is: the mint is not among the names."""
    assert not {"Mint", "_MINT", "mint", "decide", "approve"} & {*ringfence.__all__}
    with pytest.raises(TypeError):
        ringfence.Permit(None, None, None)  # type: ignore[arg-type]  # a forgery
