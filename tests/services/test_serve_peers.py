"""Tests of `agent mcp serve` with foreign clients: the inspector of the protocol, and other agents if they are present."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.cli_harness import AGENT, CliHarness
from tests.support.places import ROOT
from tests.support.tool_client import workspace

pytest.importorskip("mcp")  # an extra
PROGRAMS = ROOT / ".venv" / "peers" / "node_modules" / ".bin"
SERVE = (AGENT, "mcp", "serve")


def peer(name: str) -> str:
    """Return the path of a foreign client. Skip the test if it is not installed."""
    found = shutil.which(name, path=str(PROGRAMS))
    if found is None:
        pytest.skip(f"`{name}` is not installed (make peers)")
    return found


def run(tmp_path: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run a foreign client in a project."""
    place = CliHarness(tmp_path) if (tmp_path / "work").exists() else workspace(tmp_path)
    environ = place.environ | {"PATH": f"{PROGRAMS}:{place.environ['PATH']}", "GEMINI_CLI_TRUST_WORKSPACE": "true"}
    return subprocess.run(words, cwd=place.work, env=environ, capture_output=True, text=True, timeout=120)


# fmt: off
METHODS: list[tuple[tuple[str, ...], str]] = [
    (("--method", "tools/list"),                                                              '"name": "bash_output"'),
    (("--method", "tools/call", "--tool-name", "read", "--tool-arg", "path=a.txt"),           "one"),
    (("--method", "tools/call", "--tool-name", "bash", "--tool-arg", "command=cat ~/.ssh/id_rsa"), "a private key"),
]
# fmt: on


@pytest.mark.parametrize(("words", "text"), METHODS, ids=["tools", "a file", "a secret"])
def test_the_inspector_calls_the_tools(tmp_path: Path, words: tuple[str, ...], text: str) -> None:
    done = run(tmp_path, peer("mcp-inspector"), "--cli", *SERVE, *words)
    assert done.returncode == 0, done.stderr
    assert text in done.stdout
    json.loads(done.stdout)


# the program, the words that add the server, a part of what its list of servers says
# fmt: off
AGENTS: list[tuple[str, tuple[str, ...], str]] = [
    ("claude", ("mcp", "add", "ringfence", "--", *SERVE),  "Connected"),
    ("codex",  ("mcp", "add", "ringfence", "--", *SERVE),  "mcp serve"),
    ("gemini", ("mcp", "add", "ringfence", *SERVE),        "Connected"),
]
# fmt: on


@pytest.mark.parametrize(("name", "words", "text"), AGENTS, ids=[row[0] for row in AGENTS])
def test_an_agent_adds_the_server(tmp_path: Path, name: str, words: tuple[str, ...], text: str) -> None:
    program = peer(name)
    assert run(tmp_path, program, *words).returncode == 0
    listed = run(tmp_path, program, "mcp", "list")
    assert text in listed.stdout + listed.stderr
