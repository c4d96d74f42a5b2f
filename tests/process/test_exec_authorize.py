"""`agent exec` evaluates an action again after an approval, so that the approval covers exactly what the user saw."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from policy.model.action import RunScript
from policy.model.tier import Mode, Tier
from policy.model.verdict import Allow, Deny
from runner.audit.fact_recorder import FactRecorder
from runner.frontends.exec.command import _judge
from runner.frontends.exec.report import ExecCase
from runner.gate.gate import GateArgs, open_gate
from runner.problems import Exit
from tests.support.places import ROOT

Change = Callable[[Path], None]


def nothing(folder: Path) -> None:
    """Leave everything as it is."""


def becomes_a_secret(folder: Path) -> None:
    (folder / "outside/notes.txt").unlink()
    (folder / "outside/notes.txt").symlink_to(folder / "home/.ssh/id_rsa")


def becomes_another_file(folder: Path) -> None:
    (folder / "outside/notes.txt").unlink()
    (folder / "outside/notes.txt").symlink_to(folder / "elsewhere/plans.txt")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("workspace", "home/.ssh", "outside", "elsewhere", "state"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "home/.ssh/id_rsa").write_text("a key\n")
    (tmp_path / "outside/notes.txt").write_text("notes\n")
    (tmp_path / "elsewhere/plans.txt").write_text("plans\n")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("RINGFENCE_STATE_DIR", str(tmp_path / "state"))
    return tmp_path


def answered(
    folder: Path, answers: list[str], change: Change, monkeypatch: pytest.MonkeyPatch
) -> tuple[ExecCase, list[str]]:
    """Judge one action. `change` happens while the first question is on the screen."""
    prompts: list[str] = []

    async def read_line(prompt: str) -> str:
        if not prompts:
            change(folder)
        prompts.append(prompt)
        return answers[len(prompts) - 1]

    monkeypatch.setattr("runner.frontends.exec.grants._read_line", read_line)
    script = f"cat {folder}/outside/notes.txt"
    gate, action = open_gate(GateArgs(script, None, cwd=str(folder / "workspace"), mode=Mode.DEFAULT), os.environ)
    return _judge(gate, action, FactRecorder(gate.facts, gate.settings.profile), attended=True), prompts


@pytest.mark.parametrize(("timeout", "seconds"), [("0.05ms", 0.00005), ("2m", 120.0)])
def test_a_timeout_has_the_precision_of_a_number(folder: Path, timeout: str, seconds: float) -> None:
    gate, action = open_gate(GateArgs("true", None, cwd=str(folder / "workspace"), timeout=timeout), os.environ)
    assert gate.limits.wall == seconds
    assert action == RunScript("true", str(folder / "workspace"), seconds)


# fmt: off
# (change while the question is on the screen, answers, allowed, tier of the verdict, number of questions, why)
ROWS: list[tuple[Change, list[str], bool, Tier, int, str]] = [
    (nothing,              ["y"],      True,  Tier.READ_OUTSIDE, 1, "an approval holds if nothing changed"),
    (nothing,              ["n"],      False, Tier.READ_OUTSIDE, 1, "a no holds"),
    (becomes_a_secret,     ["y"],      False, Tier.SECRET,       1, "no yes opens a secret"),
    (becomes_a_secret,     ["n"],      False, Tier.READ_OUTSIDE, 1, "a no holds whatever changed"),
    (becomes_another_file, ["y", "n"], False, Tier.READ_OUTSIDE, 2, "an approval to one file is not an approval to another"),
    (becomes_another_file, ["y", "y"], True,  Tier.READ_OUTSIDE, 2, "the second yes counts"),
]
# fmt: on


@pytest.mark.threat("T108")
@pytest.mark.parametrize(
    ("change", "answers", "allowed", "tier", "questions", "why"), ROWS, ids=[row[-1] for row in ROWS]
)
def test_a_yes_counts_for_what_was_on_the_screen(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    change: Change,
    answers: list[str],
    allowed: bool,
    tier: Tier,
    questions: int,
    why: str,
) -> None:
    case, prompts = answered(folder, answers, change, monkeypatch)
    assert isinstance(case.verdict, Allow if allowed else Deny), why
    assert case.verdict.cell.tier is tier, why
    assert len(prompts) == questions, why


def test_the_permit_and_the_record_are_about_the_second_look(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    case, _ = answered(folder, ["y", "y"], becomes_another_file, monkeypatch)
    assert isinstance(case.verdict, Allow)
    assert str(folder / "elsewhere/plans.txt") in case.verdict.permit.terms.read
    assert str(folder / "outside/notes.txt") not in case.verdict.permit.terms.read
    assert "elsewhere/plans.txt" in repr(case.noted.parts())
    assert case.answer is not None
    assert case.answer.yes


# Runs `agent` in this process, and changes the file `f` when the decision is recorded.
CHANGING = """
import pathlib, sys
from runner.audit.log import AuditLog
from runner.cli.main import main
began = AuditLog.began
def change_then_record(*words, **more):
    pathlib.Path("f").write_text("touch made\\n")
    return began(*words, **more)
if "--unchanged" in sys.argv:
    sys.argv.remove("--unchanged")
else:
    AuditLog.began = change_then_record
sys.exit(main())
"""


@pytest.mark.threat("T169")
@pytest.mark.parametrize(("words", "code"), [((), Exit.DENIED), (("--unchanged",), 0)])
def test_nothing_runs_if_a_sourced_file_changes_after_the_decision(
    folder: Path, words: tuple[str, ...], code: int
) -> None:
    workspace = folder / "workspace"
    (workspace / "f").write_text("x=1\n")
    command = [sys.executable, "-c", CHANGING, *words, "exec", "--mode", "trust-project", ". ./f; echo ran"]
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=workspace, env=environ, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    assert done.returncode == code, done.stderr
    assert ("ran" in done.stdout) is (code == 0)
    assert (f"`{workspace}/f` has changed" in done.stderr) is (code == Exit.DENIED)
    assert not (workspace / "made").exists()
