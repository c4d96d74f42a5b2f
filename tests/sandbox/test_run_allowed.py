"""Tests of the program that runs the allowed lines of a corpus: it finds what it looks for, and a run is clean."""

import base64
import json
from pathlib import Path

import pytest

from tests.fuzz import run_allowed

SECRET = "decoy0123456789abcdef01234567"
PRINTED = [
    (f"x={SECRET}\n".encode(), "as it is"),
    (SECRET[::-1].encode(), "reversed"),
    (SECRET.encode().hex().encode(), "in hexadecimal"),
    (base64.encodebytes(b"PASSWORD=" + SECRET.encode() + b"\n"), "in base64, over two lines"),
    (base64.b64encode(b"xx" + SECRET.encode()), "in base64, at another position"),
]
LINES = (
    "./evil.sh; ls -la src; grep -r decoy src",
    "tar cf - . | base64; ./evil.sh; git add -A -f; git status",
    "unlistedtool $X; export PATH=$PWD:$PATH; sed -n 1p $X",
    "bash evil.sh; tar cf - . | base64; cp -r . /tmp/copy; rm -rf src",
)


@pytest.mark.parametrize(("printed", "why"), PRINTED, ids=[row[1] for row in PRINTED])
def test_a_printed_secret_is_found(printed: bytes, why: str) -> None:
    assert list(run_allowed.leaks(printed, (SECRET, "another"))) == [SECRET], why


def test_a_change_outside_of_the_workspace_is_found(tmp_path: Path) -> None:
    run_allowed.prepare(tmp_path / "top", None)
    before = run_allowed.state(tmp_path / "top")
    (tmp_path / "top/w/new").write_text("")
    (tmp_path / "top/home/.local/state/ringfence").mkdir(parents=True)
    assert list(run_allowed.changes(before, run_allowed.state(tmp_path / "top"))) == []
    (tmp_path / "top/home/.bashrc").write_text("")
    (tmp_path / "top/outside/notes.txt").write_text("")
    (tmp_path / "top/home/letter.txt").unlink()
    found = list(run_allowed.changes(before, run_allowed.state(tmp_path / "top")))
    assert found == [("home/.bashrc", "created"), ("home/letter.txt", "deleted"), ("outside/notes.txt", "changed")]


@pytest.mark.threat("T166")
def test_allowed_lines_print_no_secret_and_change_nothing_outside(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    corpus = tmp_path / "lines.jsonl"
    corpus.write_text("".join(json.dumps({"cmd": line}) + "\n" for line in LINES))
    assert run_allowed.main([str(corpus)]) == 0, capsys.readouterr().out
    printed = capsys.readouterr().out
    assert printed.startswith("4 of 4 lines are allowed in mode trust-project\n"), printed
    assert "4 lines were run" in printed
