"""Tests of grants of one session: valid while it lasts, restored when it is resumed, and absent from forks."""

import json
import re
import subprocess
from pathlib import Path

import pytest

from tests.support.session_harness import AGENT, SessionHarness
from tests.support.terminal_screen import ScreenTerminal

_BUILDS = """
[[turn]]
calls = [{ name = "bash", arguments = { command = "make build" } }]
[[turn]]
text = "Turn one is over."
[[turn]]
calls = [{ name = "bash", arguments = { command = "make build" } }]
[[turn]]
text = "Turn two is over."
"""


@pytest.fixture
def harness(tmp_path: Path) -> SessionHarness:
    harness = SessionHarness(tmp_path)
    (tmp_path / "script.toml").write_text(_BUILDS)
    (harness.work / "Makefile").write_text("build:\n\t@echo built it\n")
    return harness


def _talk(harness: SessionHarness, *words: str) -> ScreenTerminal:
    window = ScreenTerminal(harness.work, harness.environ, AGENT, "--plain", "--model", harness.model, *words)
    window.until("/quit to leave")
    return window


@pytest.mark.threat("T77")
def test_a_grant_of_a_session_comes_back_with_it_and_with_nothing_else(harness: SessionHarness) -> None:
    window = _talk(harness)
    try:
        window.type("go", "Enter")
        window.until("allow once?")
        window.type("s", "Enter")
        window.until("Turn one is over.")
        window.type("again", "Enter")
        screen = window.until("Turn two is over.")
        assert screen.count("allow once?") == 1, "the second call needs no answer"
        name = re.findall(r"remembered as (g[0-9a-f]{8})", screen)[0]
        window.type("/grants", "Enter")
        screen = window.until("in this session, by")
        assert re.search(rf"^{name}  allow  exactly `make build`", screen, re.MULTILINE), "in line with what is below"
        window.leave()
    finally:
        window.close()
    id = str(harness.list()[0]["id"])
    shown = harness.agent("sessions", "show", id).stdout
    assert f"allowed for the rest of this session, as {name}: exactly `make build`\n" in shown
    assert not (harness.state / "grants.json").exists()
    assert harness.agent("grants", "list", "--all").stdout == "there are no grants\n"

    (harness.base / "quiet.toml").write_text('[[turn]]\ntext = "done"\n')
    alone = harness.agent("run", "--model", f"scripted:{harness.base / 'quiet.toml'}", "-c", "go on")
    assert f"grant {name} of this session allows nothing while there is no user: " in " ".join(alone.stderr.split())
    window = _talk(harness, "-c")
    try:
        screen = window.until("/quit to leave")
        assert f"grant {name} of this session allows again: exactly `make build`" in " ".join(screen.split())
        window.type("go", "Enter")
        # The continued conversation is shown as well.
        screen = window.until_whole(lambda screen: screen.count("Turn one is over.") == 2)
        assert "allow once?" not in screen
        window.type(f"/grants revoke {name}", "Enter")
        window.until(f"revoked {name}")
        window.type("again", "Enter")
        window.until("allow once?")
        window.type("n", "Enter")
        window.until_whole(lambda screen: screen.count("Turn two is over.") == 2)
        window.leave()
    finally:
        window.close()
    records = [json.loads(line) for line in harness.agent("audit", "--json").stdout.splitlines()]
    assert [(each["verdict"], each["answer"]["by"]) for each in reversed(records)] == [
        ("allow", "terminal"),
        ("allow", f"grant {name}"),
        ("allow", f"grant {name}"),
        ("deny", "terminal"),
    ]

    window = _talk(harness, "-c")
    try:
        assert name not in window.until("/quit to leave").partition("resumed")[0], "what was revoked does not come back"
        window.type("/grants", "Enter")
        window.until("no answers are remembered")
        window.leave()
    finally:
        window.close()


def test_a_fork_takes_no_grant_along(harness: SessionHarness) -> None:
    window = _talk(harness)
    try:
        window.type("go", "Enter")
        window.until("allow once?")
        window.type("s", "Enter")
        window.until("Turn one is over.")
        window.leave()
    finally:
        window.close()
    window = _talk(harness, "--fork", str(harness.list()[0]["id"]))
    try:
        window.type("go", "Enter")
        window.until("allow once?")
        window.type("n", "Enter")
        window.until("Turn one is over.")
        window.leave()
    finally:
        window.close()


@pytest.mark.threat("T68")
def test_a_remote_and_exactly_its_host_are_remembered(harness: SessionHarness) -> None:
    """The first card names the host that the settings of the repository name. Another host is another question."""
    call = 'calls = [{ name = "bash", arguments = { command = "git fetch origin" } }]'
    (harness.base / "script.toml").write_text(f'[[turn]]\n{call}\n[[turn]]\ntext = "It ended."\n' * 3)
    subprocess.run(["git", "init", "-q"], cwd=harness.work, check=True)
    remote = ["git", "remote", "add", "origin", "https://one.invalid/x.git"]
    subprocess.run(remote, cwd=harness.work, check=True)
    window = _talk(harness)
    try:
        window.type("go", "Enter")
        screen = window.until("allow once?")
        assert re.search(r"network +one\.invalid", screen)
        window.type("s", "Enter")
        window.until("It ended.")
        window.type("again", "Enter")
        screen = window.until_whole(lambda screen: screen.count("It ended.") == 2)
        assert screen.count("allow once?") == 1, "exactly this command with exactly this host"
        subprocess.run(
            ["git", "remote", "set-url", "origin", "https://two.invalid/x.git"], cwd=harness.work, check=True
        )
        window.type("once more", "Enter")
        window.until_whole(lambda screen: screen.count("allow once?") == 2 and "two.invalid" in screen)
        window.type("n", "Enter")
        window.until_whole(lambda screen: screen.count("It ended.") == 3)
        window.leave()
    finally:
        window.close()
