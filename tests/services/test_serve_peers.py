"""Tests of `agent mcp serve` with foreign clients: the inspector of the protocol, and other agents if they are present."""

import json
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.support.agent_models import agent_model
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


def run(place: CliHarness, variables: Mapping[str, str], *words: str) -> subprocess.CompletedProcess[str]:
    """Run a foreign client in the project of `place`."""
    environ = place.environ | {"PATH": f"{PROGRAMS}:{place.environ['PATH']}", "GEMINI_CLI_TRUST_WORKSPACE": "true"}
    return subprocess.run(
        words, cwd=place.work, env=environ | variables, stdin=subprocess.DEVNULL, capture_output=True, text=True,
    )  # fmt: skip


# fmt: off
METHODS: list[tuple[tuple[str, ...], str]] = [
    (("--method", "tools/list"),                                                              '"name": "bash_output"'),
    (("--method", "tools/call", "--tool-name", "read", "--tool-arg", "path=a.txt"),           "one"),
    (("--method", "tools/call", "--tool-name", "bash", "--tool-arg", "command=cat ~/.ssh/id_rsa"), "a private key"),
]
# fmt: on


@pytest.mark.parametrize(("words", "text"), METHODS, ids=["tools", "a file", "a secret"])
def test_the_inspector_calls_the_tools(tmp_path: Path, words: tuple[str, ...], text: str) -> None:
    done = run(workspace(tmp_path), {}, peer("mcp-inspector"), "--cli", *SERVE, *words)
    assert done.returncode == 0, done.stderr
    assert text in done.stdout
    json.loads(done.stdout)


# the program, the words that add the server, the words and variables of a run, and the name of the tool for its model
_CODEX = """
model = "x"
model_provider = "local"
approval_policy = "never"
sandbox_mode = "read-only"
[model_providers.local]
name = "local"
base_url = "{url}/v1"
wire_api = "responses"
[mcp_servers.ringfence]
command = "{agent}"
args = ["mcp", "serve"]
default_tools_approval_mode = "approve"
startup_timeout_sec = 500
required = true
env = {{ RINGFENCE_STATE_DIR = "{state}", XDG_CONFIG_HOME = "{config}" }}
"""
# fmt: off
AGENTS: list[tuple[str, tuple[str, ...], tuple[str, ...], dict[str, str], str]] = [
    ("claude", ("mcp", "add", "ringfence", "--", *SERVE), ("-p", "go", "--allowedTools", "mcp__ringfence"),
     {"ANTHROPIC_BASE_URL": "{url}", "ANTHROPIC_API_KEY": "sk-x", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "MCP_CONNECTION_NONBLOCKING": "false",
      # On a busy machine the server starts later than the agent waits by default.
      "MCP_TIMEOUT": "120000", "MCP_CONNECT_TIMEOUT_MS": "120000"},
     "mcp__ringfence__{tool}"),
    ("codex",  ("mcp", "add", "ringfence", "--", *SERVE), ("exec", "--skip-git-repo-check", "go"), {}, "mcp__ringfence/{tool}"),
    ("gemini", ("mcp", "add", "ringfence", *SERVE),       ("-p", "go", "--yolo", "-m", "gemini-2.5-flash"),
     {"GOOGLE_GEMINI_BASE_URL": "{url}", "GEMINI_API_KEY": "x"}, "mcp_ringfence_{tool}"),
]
READ: tuple[str, dict[str, object], str] = ("bash", {"command": "cat a.txt"}, "one")
ASKED: tuple[str, dict[str, object], str] = ("write", {"path": "b.txt", "content": "two"}, "was refused")
CALLS = [*((row, READ) for row in AGENTS), (AGENTS[0], ASKED)]  # a question that no user answers is a denial
# fmt: on


@pytest.mark.thorough
@pytest.mark.parametrize(("row", "call"), CALLS, ids=[f"{row[0]}-{call[0]}" for row, call in CALLS])
def test_an_agent_calls_the_tools(
    tmp_path: Path,
    row: tuple[str, tuple[str, ...], tuple[str, ...], dict[str, str], str],
    call: tuple[str, dict[str, object], str],
) -> None:
    tool, arguments, text = call
    name, added, words, variables, called = row
    program = peer(name)
    place = workspace(tmp_path)
    home = tmp_path / "home"
    with agent_model(called.format(tool=tool), arguments) as model:
        given = {key: value.format(url=model.url) for key, value in variables.items()}
        if name == "codex":
            (home / ".codex").mkdir()
            (home / ".codex" / "config.toml").write_text(
                _CODEX.format(url=model.url, agent=AGENT, state=tmp_path / "state", config=tmp_path / "config")
            )
        else:
            assert run(place, given, program, *added).returncode == 0
        if name == "gemini":
            (home / ".gemini").mkdir(exist_ok=True)
            (home / ".gemini" / "settings.json").write_text(
                '{"security": {"auth": {"selectedType": "gemini-api-key"}}}'
            )
        done = run(place, given, program, *words)
        assert [text in each for each in model.results[:1]] == [True], done.stdout + done.stderr + str(model.results)
    assert not (place.work / "b.txt").exists()
    (recorded,) = [each for each in place.audit() if each["tool"] == tool]
    assert recorded["verdict"] == ("allow" if tool == "bash" else "deny")
