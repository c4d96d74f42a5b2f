"""`agent mcp test` and `agent mcp why` with a real server in a real sandbox."""

import json
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.cli_harness import CliHarness
from tests.support.server_session import HOSTILE


@pytest.fixture
def place() -> Iterator[CliHarness]:
    base = Path(tempfile.mkdtemp(prefix="server-commands-", dir="/var/tmp")).resolve()
    for folder in ("work", "home"):
        (base / folder).mkdir()
    yield CliHarness(base)
    shutil.rmtree(base)


def configured(place: CliHarness, *words: str, more: str = "") -> None:
    """Write a configuration with the hostile server `one`."""
    args = json.dumps(["-u", str(HOSTILE), *words])
    text = f'[mcp.one]\ncommand = "{sys.executable}"\nargs = {args}\nread = ["{HOSTILE.parent}"]\n{more}'
    folder = place.base / "config" / "ringfence"
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    (folder / "config.toml").write_text(text)


def test_a_trial_lists_the_tools(place: CliHarness) -> None:
    configured(place, "plain")
    done = place.agent("mcp", "test", "one")
    assert done.returncode == 0, done.stderr
    assert "one is ready after" in done.stdout
    assert "  echo: Return the text." in done.stdout
    row = json.loads(place.agent("mcp", "test", "one", "--json").stdout)
    assert (row["state"], row["tools"]) == ("ready", ["echo", "read", "connect", "slow", "ask"])


def test_a_trial_of_a_server_that_dies_tells_what_it_wrote(place: CliHarness) -> None:
    configured(place, "exit")
    done = place.agent("mcp", "test", "one")
    assert done.returncode == 1
    assert "ended with status 2; it wrote: ImportError: cannot import name 'Server'" in done.stdout


def test_a_server_without_its_right_is_told_what_it_seems_to_need(place: CliHarness) -> None:
    configured(place, "plain")
    done = place.agent("mcp", "test", "one", "--least")
    assert done.returncode == 1
    assert f"it seems to need: --read {HOSTILE}" in done.stdout


def test_the_start_is_explained_with_its_rights(place: CliHarness) -> None:
    configured(place, "plain", more='hosts = ["api.example.org"]\n')
    done = place.agent("mcp", "why", "one")
    assert done.returncode == 0
    assert "verdict    allowed" in done.stdout
    assert "writes     its own folder" in done.stdout
    assert "network    api.example.org" in done.stdout
    row = json.loads(place.agent("mcp", "why", "one", "--json").stdout)
    assert (row["verdict"], row["hosts"]) == ("allow", ["api.example.org"])
    unknown = place.agent("mcp", "why", "two")
    assert (unknown.returncode, "there is no server `two`" in unknown.stderr) == (2, True)


def test_a_call_of_the_user_passes_the_gate(place: CliHarness) -> None:
    configured(place, "plain")
    unpinned = place.agent("mcp", "call", "one", "echo", '{"text": "hi"}', "--mode", "dangerously")
    assert (unpinned.returncode, "was not called" in unpinned.stdout) == (1, True)
    denied = place.agent("mcp", "call", "one", "echo", '{"text": "hi"}')
    assert (denied.returncode, "there is no user to give one" in denied.stderr) == (3, True)
    wrong = place.agent("mcp", "call", "one", "ecko", "{}")
    assert (wrong.returncode, "did you mean `echo`?" in wrong.stderr) == (2, True)
    assert place.agent("mcp", "call", "one", "echo", "[]").returncode == 2
