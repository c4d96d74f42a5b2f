"""Tests of `agent exec` with commands that start without network: real npx, a refused connection, and a second run."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from runner.problems import Exit
from tests.support.cli_harness import AGENT, CliHarness
from tests.support.package_registry import HOST, registry_for
from tests.support.terminal import Terminal

EXEC = ("exec", "--mode", "trust-project")
QUESTION = "allow once?"


@pytest.fixture
def user(tmp_path: Path) -> CliHarness:
    """Return a user with a workspace."""
    for name in ("work", "home", "state", "config/ringfence"):
        (tmp_path / name).mkdir(parents=True, mode=0o700)
    return CliHarness(tmp_path)


@pytest.fixture
def asked(user: CliHarness) -> Iterator[list[str]]:
    """Return the list of the requests that reach the registry of the user's project."""
    with registry_for(user.work, user.base / "config/ringfence") as requests:
        yield requests


def terminal(user: CliHarness, *words: str) -> Terminal:
    return Terminal([AGENT, *words], user.work, {**user.environ, "TERM": "xterm"})


@pytest.mark.threat("T165")
def test_an_approval_runs_it_again_with_the_refused_host(user: CliHarness, asked: list[str]) -> None:
    shown = terminal(user, *EXEC, "--", "npx", "ringtool")
    try:
        shown.until(QUESTION)
        question = " ".join(shown.seen.split())
        for part in ("npx ringtool", HOST, "ran without network", "which the repository's settings name"):
            assert part in question
        assert asked == [], "no request left the sandbox before the approval"
        shown.type("y\n")
        shown.until("fetched and run")
        assert shown.end() == 0
    finally:
        shown.close()
    assert any(HOST in each for each in asked)
    assert shown.seen.count(QUESTION) == 1
    second, first = (row for row in user.audit() if row["kind"] == "decided")
    assert (first["session"], first["action"]) == (second["session"], second["action"])
    assert [first["typed"], second["typed"]] == [[], [f"--host GET {HOST}/ringtool"]]


@pytest.mark.threat("T165")
def test_a_refusal_ends_it(user: CliHarness, asked: list[str]) -> None:
    shown = terminal(user, *EXEC, "--", "npx", "ringtool")
    try:
        shown.until(QUESTION)
        shown.type("n\n")
        assert shown.end() != 0
    finally:
        shown.close()
    assert asked == []
    assert [row["verdict"] for row in user.audit() if row["kind"] == "decided"] == ["deny", "allow"]


@pytest.mark.threat("T165")
def test_a_command_that_succeeds_after_all_is_not_asked_about(user: CliHarness, asked: list[str]) -> None:
    shown = terminal(user, *EXEC, "npx ringtool || echo no matter")
    try:
        shown.until("no matter")
        assert shown.end() == 0
    finally:
        shown.close()
    assert QUESTION not in shown.seen
    assert asked == []


@pytest.mark.threat("T165")
def test_without_a_terminal_the_refused_host_is_reported(user: CliHarness, asked: list[str]) -> None:
    done = user.agent(*EXEC, "--", "npx", "ringtool")
    assert done.returncode not in (0, Exit.DENIED)
    assert f"host {HOST} is not on the allowlist" in done.stderr
    assert asked == []
