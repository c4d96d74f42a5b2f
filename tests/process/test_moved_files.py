"""Tests of protected files that another command moves while a new sandbox is built, with real sandboxes.

A mount covers a file, not a name. The move is made right after the scan: this is the worst time.
"""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from policy.model.action import RunArgv
from policy.model.verdict import _MINT, Permit, Rights, Terms
from sandbox.backend import SandboxUnavailable
from sandbox.linux import backend as backend_module
from sandbox.linux import launch
from sandbox.linux.backend import Linux
from sandbox.workspace.protected_paths import Scan, scan

SYSTEM = ("/usr", "/bin", "/lib", "/lib64", "/etc/ld.so.cache")
LOOK = "cat */.env; for each in */.git; do echo PLANTED >> $each/config; done"


@pytest.fixture
def terms(tmp_path: Path) -> Terms:
    (workspace := tmp_path / "w").mkdir()
    lay(workspace / "first", "canary")
    env = (("PATH", "/usr/bin:/bin"),)
    hidden, locked = (".env",), (".git/config",)
    return Terms(
        Rights.WORKSPACE_WRITE, str(workspace), "/nonexistent", system=SYSTEM, env=env, hidden=hidden, locked=locked
    )


def lay(folder: Path, secret: str) -> None:
    for inner in ("objects", "refs"):
        (folder / ".git" / inner).mkdir(parents=True)
    (folder / ".env").write_text(secret)
    (folder / ".git" / "HEAD").write_text("ref: refs/heads/main\n")
    (folder / ".git" / "config").write_text("[core]\n")


class Mover:
    """`survey` of the sandbox, which moves a repository after each of the first `times` scans."""

    def __init__(self, workspace: str, times: int) -> None:
        self.workspace, self.times, self.count = Path(workspace), times, 0

    def __call__(self, terms: Terms, scratch: str, cache: Path | None = None, *, layered: bool = False) -> Scan:
        found = survey(terms, scratch, cache, layered=layered)
        if self.count < self.times:
            self.count += 1
            (self.workspace / "first").rename(self.workspace / f"moved-{self.count}")
            lay(self.workspace / "first", "decoy")
        return found


survey = launch.survey


def moved(
    terms: Terms, tier: str, times: int, *, beside: bool, monkeypatch: pytest.MonkeyPatch, cache: Path
) -> str | None:
    """Run LOOK while files are moved, and return its output, or None if nothing was run. `beside`: in a session with
    another sandbox.
    """

    async def main() -> str | None:
        backend = Linux(tier, cache=cache, files=False)
        try:
            if beside:
                other = replace(terms, limits=replace(terms.limits, pids=99))
                await backend.run(Permit(RunArgv(("/bin/true",), terms.workspace), other, _MINT))
            for module in (launch, backend_module):
                monkeypatch.setattr(module, "survey", mover)
            action = RunArgv(("/bin/bash", "-c", LOOK), terms.workspace)
            outcome = await backend.run(Permit(action, terms, _MINT))
            return (outcome.stdout + outcome.stderr).decode()
        except SandboxUnavailable:
            return None
        finally:
            monkeypatch.undo()
            await backend.close()

    mover = Mover(terms.workspace, times)
    said = asyncio.run(main())
    assert mover.count == times or said is None
    return said


def untouched(terms: Terms) -> bool:
    return all("PLANTED" not in path.read_text() for path in Path(terms.workspace).glob("*/.git/config"))


@pytest.mark.threat("T163")
@pytest.mark.parametrize("tier", ["T1", "T2"])
def test_a_file_that_is_moved_once_is_covered_at_its_new_name(
    terms: Terms, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tier: str
) -> None:
    said = moved(terms, tier, 1, beside=True, monkeypatch=monkeypatch, cache=tmp_path)
    assert said is not None
    assert "canary" not in said
    assert said.count("Permission denied") == 2, "both files are masked"
    assert untouched(terms)


@pytest.mark.threat("T163")
@pytest.mark.parametrize("tier", ["T1", "T2"])
def test_nothing_runs_while_files_are_moved_all_the_time(
    terms: Terms, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tier: str
) -> None:
    assert moved(terms, tier, 99, beside=True, monkeypatch=monkeypatch, cache=tmp_path) is None
    assert untouched(terms)


@pytest.mark.threat("T163")
def test_the_first_sandbox_of_a_session_refuses_another_file_in_t1(
    terms: Terms, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other programs of the user may move files too."""
    assert moved(terms, "T1", 1, beside=False, monkeypatch=monkeypatch, cache=tmp_path) is None
    assert untouched(terms)


def new_secret(workspace: Path) -> None:
    (workspace / "new.env").write_text("x")
    (workspace / "new.env").rename(workspace / ".env")


def replaced_secret(workspace: Path) -> None:
    (workspace / "other").write_text("x")
    (workspace / "other").replace(workspace / "first" / ".env")


def moved_settings(workspace: Path) -> None:
    (workspace / "second" / ".git").mkdir(parents=True)
    (workspace / "first" / ".git" / "config").rename(workspace / "second" / ".git" / "config")


def moved_repository(workspace: Path) -> None:
    (workspace / "first").rename(workspace / "second")


CHANGES: list[tuple[Callable[[Path], object], str]] = [
    (new_secret, ".env"),
    (replaced_secret, "first/.env"),
    (moved_settings, "second/.git/config"),
    (moved_repository, "second/.env"),
    (lambda workspace: lay(workspace / "new", "x"), "new/.env"),
    (lambda workspace: (workspace / "plain.txt").write_text("x"), ""),
    (lambda workspace: (workspace / "first" / ".env").unlink(), ""),
    (lambda workspace: (workspace / "first" / ".git" / "config").write_text("[user]\n"), ""),
]


@pytest.mark.parametrize(("change", "found"), CHANGES)
def test_a_scan_tells_what_its_mounts_do_not_cover_any_more(
    terms: Terms, change: Callable[[Path], object], found: str
) -> None:
    workspace = Path(terms.workspace)
    before = scan(terms.workspace, terms.hidden, (), terms.locked)
    change(workspace)
    lacked = before.lacks(scan(terms.workspace, terms.hidden, (), terms.locked))
    assert lacked == (f"{workspace}/{found}" if found else "")
