"""Tests of `agent acp` with foreign clients: the command-line client acpx with all its methods, and the official TypeScript
library. `make peers` installs both; without them the tests are skipped.
"""

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.support.cli_harness import AGENT, CliHarness
from tests.support.editor_client import bash, place
from tests.support.places import ROOT

pytest.importorskip("acp")  # an extra
PEERS = ROOT / ".venv" / "peers" / "node_modules"
WRITES = 'thinking = "hm"\ntext = "I write."\n' + bash("echo hi > made")
SLEEPS = bash("echo begun; python3 -c 'import time; time.sleep(600)'")


def node() -> str:
    found = shutil.which("node", path=f"{PEERS}/.bin") or shutil.which("node")
    if found is None:
        pytest.skip("`node` is not installed")
    return found


def agent(talk: CliHarness, *words: str) -> tuple[str, ...]:
    return (AGENT, "acp", "--model", f"scripted:{talk.base / 'talk.toml'}", *words)


class Acpx:
    """The client acpx in the project of a user, with one agent command."""

    def __init__(self, talk: CliHarness, *words: str) -> None:
        if not (PEERS / "acpx/dist/cli.js").is_file():
            pytest.skip("`acpx` is not installed (make peers)")
        self.talk = talk
        self.command = (
            node(),
            str(PEERS / "acpx/dist/cli.js"),
            "--agent",
            " ".join(agent(talk, *words)),
            "--ttl",
            "60",
        )

    def start(self, *words: str) -> "subprocess.Popen[str]":
        return subprocess.Popen(
            (*self.command, *words), cwd=self.talk.work, env=self.talk.environ, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip

    def run(self, *words: str, code: int = 0) -> str:
        running = self.start(*words)
        out, errors = running.communicate()
        assert running.returncode == code, (words, out, errors)
        return out + errors


@pytest.mark.parametrize(("words", "code", "runs", "end"), [
    (("--approve-all",), 0, True, "end_turn"),
    (("--deny-all",), 5, False, "end_turn"),
    (("--approve-reads",), 5, False, "end_turn"),
    (("--non-interactive-permissions", "deny"), 5, False, "end_turn"),
    (("--non-interactive-permissions", "fail"), 5, False, "cancelled"),
])  # fmt: skip
def test_acpx_executes_one_prompt(tmp_path: Path, words: tuple[str, ...], code: int, runs: bool, end: str) -> None:
    talk = place(tmp_path, WRITES)
    told = Acpx(talk).run(*words, "exec", "go", code=code)
    assert f"[done] {end}" in told
    assert "[thinking] hm" in told
    assert (talk.work / "made").exists() is runs
    (answer,) = [row["answer"] for row in talk.audit() if isinstance(row.get("answer"), dict)] or [None]
    if end == "end_turn":
        assert answer["by"].startswith("ACP client acpx ")
        assert answer["yes"] is runs


def test_acpx_gets_strict_messages(tmp_path: Path) -> None:
    told = Acpx(place(tmp_path, WRITES)).run("--format", "json", "--json-strict", "--approve-all", "exec", "go")
    messages = [json.loads(line) for line in told.splitlines()]
    assert all(each["jsonrpc"] == "2.0" for each in messages)
    assert {each["method"] for each in messages if "method" in each} == {
        "initialize", "session/new", "session/prompt", "session/update", "session/request_permission",
    }  # fmt: skip


def test_acpx_uses_every_method_of_a_session(tmp_path: Path) -> None:
    talk = place(tmp_path, WRITES)
    client = Acpx(talk)
    first = client.run("--approve-all", "sessions", "new").split()[0]
    assert len(first) == 16
    assert "I write.done" in client.run("--approve-all", "--format", "quiet", "prompt", "go")
    assert (talk.work / "made").exists()
    assert "done" in client.run("--approve-all", "--format", "quiet", "prompt", "and again"), "by session/load"
    assert "mode set: plan" in client.run("set-mode", "plan")
    assert "dangerously" in client.run("set-mode", "dangerously", code=1)
    assert "config set: thinking=high" in client.run("set", "thinking", "high")
    assert "there is no setting" in client.run("set", "sandbox", "off", code=1)
    assert "nothing to cancel" in client.run("cancel")
    assert "go" in client.run("sessions", "history")
    client.run("sessions", "close")
    assert "closed: yes" in client.run("sessions", "show")


def test_acpx_cancels_a_running_command(tmp_path: Path) -> None:
    client = Acpx(place(tmp_path, SLEEPS), "--mode", "trust-project")
    client.run("--approve-all", "sessions", "new")
    running = client.start("--approve-all", "--format", "json", "prompt", "go")
    assert running.stdout is not None
    for line in running.stdout:
        if "begun" in line and "tool_call_update" in line:
            break
    assert "cancel requested" in client.run("cancel")
    rest, errors = running.communicate()
    assert '"stopReason":"cancelled"' in rest, (rest, errors)
    client.run("sessions", "close")


def test_the_official_library_drives_a_session_to_its_end(tmp_path: Path) -> None:
    if not (PEERS / "@agentclientprotocol/sdk").is_dir():
        pytest.skip("@agentclientprotocol/sdk is not installed (make peers)")
    talk = place(tmp_path, WRITES, 'text = "written"', SLEEPS)
    script = (ROOT / "tests/services/peers/editor.mjs").read_text()
    command = json.dumps(agent(talk))
    done = subprocess.run(  # from standard input, so that the library is found in the working folder
        [node(), "--input-type=module", "-", command, str(talk.work), "yes"], cwd=PEERS.parent, env=talk.environ,
        input=script, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    seen: dict[str, Any] = json.loads(done.stdout)
    results = seen["results"]
    assert results["initialize"]["protocolVersion"] == 1
    assert [results[name]["stopReason"] for name in ("first", "command", "cancelled")] == [
        "end_turn",
        "end_turn",
        "cancelled",
    ]
    assert (talk.work / "made").exists()
    assert {each["id"]: each["currentValue"] for each in results["option"]["configOptions"]} == {
        "mode": "trust-project", "model": f"scripted:{talk.base / 'talk.toml'}", "thinking": "high",
    }  # fmt: skip
    assert [each["sessionId"] for each in results["list"]["sessions"]] == [results["made"]["sessionId"]]
    assert [each["sessionUpdate"] for each in seen["replayed"]][:4] == [
        "user_message_chunk", "agent_thought_chunk", "agent_message_chunk", "tool_call",
    ]  # fmt: skip
    assert seen["error"]["code"] == -32002
    assert len(seen["asked"]) == 1
    assert seen["exit"] == 0
