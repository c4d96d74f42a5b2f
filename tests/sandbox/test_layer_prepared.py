"""Tests of helpers with a layer that were started before their command: when they are used, and when not."""

import asyncio
import os
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest

from policy.model.action import RunScript
from policy.model.verdict import _MINT, Permit, Rights, Terms
from sandbox.backend import Outcome
from sandbox.linux.backend import Linux
from sandbox.linux.helper_handle import HelperHandle
from sandbox.linux.helper_process import SpareHelper
from sandbox.linux.launch import launched_ahead
from sandbox.workspace import folder_cache
from sandbox.workspace.layer import ChangeLayer, new_layer, read_layer
from tests.sandbox.test_sandbox_many import SYSTEM, left_behind
from tests.support.waiting import until_async


class Counting(Linux):
    """The backend, which counts the helpers that it starts."""

    launches = 0

    def _launch(self, terms: Terms, layer: ChangeLayer | None = None, folder: str = "") -> HelperHandle:
        self.launches += 1
        return super()._launch(terms, layer, folder)


@pytest.fixture
def terms(tmp_path: Path) -> Terms:
    workspace = tmp_path / "w"
    workspace.mkdir()
    (workspace / "file.txt").write_text("hello\n")
    (tmp_path / "layers").mkdir()
    home, env = "/nonexistent", (("PATH", "/usr/bin:/bin"),)
    return Terms(Rights.WORKSPACE_WRITE, str(workspace), home, system=SYSTEM, env=env, hidden=(".env",))


Meanwhile = Callable[[Path, Terms], Terms]


def same(workspace: Path, terms: Terms) -> Terms:
    return terms


def secret(workspace: Path, terms: Terms) -> Terms:
    (workspace / ".env").write_text("KEY=hunted\n")
    return terms


def mode(workspace: Path, terms: Terms) -> Terms:
    workspace.chmod(0o711)
    return terms


def other(workspace: Path, terms: Terms) -> Terms:
    return replace(terms, env=(("PATH", "/usr/bin:/bin"), ("MORE", "1")))


def edited(workspace: Path, terms: Terms) -> Terms:
    (workspace / "file.txt").write_text("edited\n")
    return terms


# fmt: off
ROWS: list[tuple[Meanwhile, int, str]] = [
    (same,   1, "the helper is used"),
    (edited, 1, "and shows what the user wrote meanwhile"),
    (secret, 2, "a secret file appeared, which its mounts do not cover"),
    (mode,   2, "the workspace has another mode, which its layer does not show"),
    (other,  2, "the command has other rights"),
]
# fmt: on


@pytest.mark.threat("T299")
@pytest.mark.parametrize(("meanwhile", "launches", "why"), ROWS, ids=[row[2] for row in ROWS])
def test_a_prepared_helper_is_used_only_if_it_fits(
    terms: Terms, tmp_path: Path, meanwhile: Meanwhile, launches: int, why: str
) -> None:
    workspace = Path(terms.workspace)

    async def main(backend: Counting) -> Outcome:
        layer = new_layer(terms.workspace, str(tmp_path / "layers"))
        backend.prepare(terms, str(tmp_path / "layers"))
        await until_async(lambda: not backend._preparing)
        assert backend.launches == 1
        now = meanwhile(workspace, terms)
        script = "cat file.txt; cat .env 2>/dev/null; echo > made"
        outcome = await backend.run(Permit(RunScript(script, terms.workspace), now, _MINT), layer=layer)
        assert [change.path for change in read_layer(layer)] == ["made"]
        return outcome

    outcome, backend = run(main)
    assert (outcome.status, outcome.stdout) == (0, (workspace / "file.txt").read_bytes()), why
    assert backend.launches == launches
    assert not (workspace / "made").exists()


def run(main: Callable[[Counting], Awaitable[Outcome]]) -> tuple[Outcome, Counting]:
    backend = Counting("T1", files=False)

    async def whole() -> Outcome:
        try:
            return await main(backend)
        finally:
            await backend.close()

    outcome = asyncio.run(whole())
    assert left_behind() == []
    return outcome, backend


@pytest.mark.threat("T315")
@pytest.mark.parametrize(("meanwhile", "launches"), [(same, 1), (edited, 1), (mode, 2)])
def test_a_helper_that_was_launched_before_its_backend_runs_the_command(
    terms: Terms, tmp_path: Path, meanwhile: Meanwhile, launches: int
) -> None:
    (tmp_path / "cache").mkdir()
    layer = new_layer(terms.workspace, str(tmp_path / "layers"))
    with (
        SpareHelper() as spare,
        launched_ahead("T1", terms, cache=tmp_path / "cache", spare=spare, layer=layer) as ahead,
    ):

        async def main(backend: Counting) -> Outcome:
            backend.ahead = ahead
            await backend.probe(terms)
            now = meanwhile(Path(terms.workspace), terms)
            permit = Permit(RunScript("cat file.txt; echo > made", terms.workspace), now, _MINT)
            outcome = await backend.run(permit, layer=layer)
            assert [change.path for change in read_layer(layer)] == ["made"]
            return outcome

        outcome, backend = run(main)
    assert (outcome.status, outcome.stdout) == (0, (Path(terms.workspace) / "file.txt").read_bytes())
    assert backend.launches == launches


@pytest.mark.threat("T316")
def test_another_name_of_a_file_outside_keeps_its_content(
    terms: Terms, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The links are not counted again for a command on a layer: the kernel copies a file before it is changed."""
    monkeypatch.setattr(folder_cache, "MARGIN", 50_000_000)  # nanoseconds
    time.sleep(0.1)
    file, outside = Path(terms.workspace) / "file.txt", tmp_path / "outside.txt"

    async def main(backend: Counting) -> Outcome:
        layer = new_layer(terms.workspace, str(tmp_path / "layers"))
        backend.prepare(terms, str(tmp_path / "layers"))
        await until_async(lambda: not backend._preparing)
        os.link(file, outside)
        script = "echo more >> file.txt; truncate -s 3 file.txt; chmod 600 file.txt"
        outcome = await backend.run(Permit(RunScript(script, terms.workspace), terms, _MINT), layer=layer)
        assert [change.path for change in read_layer(layer)] == ["file.txt"]
        return outcome

    mode = file.stat().st_mode
    outcome, backend = run(main)
    assert (outcome.status, backend.launches) == (0, 1)
    assert (outside.read_text(), outside.stat().st_mode) == ("hello\n", mode)
    assert outside.samefile(file)


def test_a_command_waits_for_the_helper_that_is_being_prepared(terms: Terms, tmp_path: Path) -> None:
    async def main(backend: Counting) -> Outcome:
        layer = new_layer(terms.workspace, str(tmp_path / "layers"))
        backend.prepare(terms, str(tmp_path / "layers"))
        backend.prepare(terms, str(tmp_path / "layers"))
        return await backend.run(Permit(RunScript("echo ran", terms.workspace), terms, _MINT), layer=layer)

    outcome, backend = run(main)
    assert (outcome.stdout, backend.launches) == (b"ran\n", 1)


def test_a_helper_that_was_prepared_in_vain_is_ended(terms: Terms, tmp_path: Path) -> None:
    folder = str(tmp_path / "layers")

    async def main(backend: Counting) -> Outcome:
        for _ in range(2):
            backend.prepare(terms, folder)
            await until_async(lambda: not backend._preparing)
        assert len(backend.pool.all) == 1
        backend.prepare(terms, f"{tmp_path}/missing")  # fails, which is no error before its command
        await until_async(lambda: not backend._preparing)
        backend.prepare(replace(terms, env=(("PATH", "/bin"),)), folder)  # ended while it starts
        return Outcome(0)

    run(main)
    assert not os.path.exists(folder), "no layer is left"


def test_commands_on_layers_run_side_by_side(terms: Terms, tmp_path: Path) -> None:
    """Each sees its own changes alone."""

    async def main(backend: Counting) -> Outcome:
        layers = [new_layer(terms.workspace, str(tmp_path / "layers")) for _ in range(6)]
        scripts = [f"echo {n} > made; sleep 0.0{n}; cat made; ls | wc -l" for n in range(6)]
        permits = [Permit(RunScript(script, terms.workspace), terms, _MINT) for script in scripts]
        backend.prepare(terms, str(tmp_path / "layers"))
        outcomes = await asyncio.gather(
            *(backend.run(permit, layer=layer) for permit, layer in zip(permits, layers, strict=True))
        )
        assert [outcome.stdout.decode() for outcome in outcomes] == [f"{n}\n2\n" for n in range(6)]
        return outcomes[0]

    run(main)
    assert os.listdir(terms.workspace) == ["file.txt"]


@pytest.mark.threat("T300")
@pytest.mark.parametrize("ends", [True, False], ids=["by itself", "at a limit"])
@pytest.mark.parametrize(
    ("script", "changed", "moves"),
    [
        ("echo > made; chmod 500 .", {".", "made"}, 1),
        ("echo > made; rm made", set[str](), 0),
        ("rm file.txt", {"file.txt"}, 1),
        ("chmod 500 .", {"."}, 0),
        ("true", set[str](), 0),
    ],
)
def test_the_folder_of_a_command_is_moved_once_and_only_with_changes_in_it(
    terms: Terms,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    ends: bool,
    script: str,
    changed: set[str],
    moves: int,
) -> None:
    """A command may change the mode of its folder. Nothing is moved while it runs."""
    moved: list[tuple[str, str]] = []
    rename = os.rename

    def counting(source: str, target: str, **folders: int) -> None:
        if not folders:
            moved.append((source, target))
        rename(source, target, **folders)

    async def main(backend: Counting) -> Outcome:
        backend.prepare(terms, str(tmp_path / "layers"))
        await until_async(lambda: not backend._preparing)
        layer = new_layer(terms.workspace, str(tmp_path / "layers"))
        monkeypatch.setattr(os, "rename", counting)
        now = terms if ends else replace(terms, limits=replace(terms.limits, output=1000))
        words = script + ("" if ends else "; yes")
        outcome = await backend.run(Permit(RunScript(words, terms.workspace), now, _MINT), layer=layer)
        assert len(moved) == moves
        assert {change.path for change in read_layer(layer)} == changed
        assert os.stat(layer.upper).st_mode & 0o777 == (0o500 if "." in changed else 0o755)
        return outcome

    Path(terms.workspace).chmod(0o755)
    outcome, _ = run(main)
    assert outcome.ended_by == (None if ends else "output")


@pytest.mark.threat("T315")
def test_the_next_layer_is_attached_after_the_answer(terms: Terms, tmp_path: Path) -> None:
    """The caller of a command does not wait for the other process, and the next command does, even at once."""
    folder, workspace = str(tmp_path / "layers"), Path(terms.workspace)

    async def main(backend: Counting) -> Outcome:
        backend.prepare(terms, folder)
        await until_async(lambda: not backend._preparing)
        (helper,) = backend.pool.all
        assert helper.layers is not None
        for number in range(4):
            (workspace / "file.txt").write_text(f"{number}\n")
            layer = new_layer(terms.workspace, folder)
            permit = Permit(RunScript("cat file.txt; ls; echo > made", terms.workspace), terms, _MINT)
            outcome = await backend.run(permit, layer=layer)
            assert helper.layers._due, "the switch is not requested yet"
            assert outcome.stdout == f"{number}\nfile.txt\n".encode(), "the layer of the last command is gone"
            assert [change.path for change in read_layer(layer)] == ["made"]
            if number % 2:
                await asyncio.sleep(0)
                assert not helper.layers._due
        assert backend.launches == 1
        return outcome

    run(main)
