"""Claude Code, Codex and Gemini CLI under `agent guard`, headless with a scripted model on loopback.

`make peers` installs the agents. Without them the tests are skipped.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from runner.frontends.guard.canary import agent_command
from runner.frontends.guard.scripted_model import ScriptedCall, ScriptedModel
from runner.frontends.guard.settings_change import hook_file
from tests.support.cli_harness import PATH, CliHarness
from tests.support.places import ROOT

pytestmark = pytest.mark.thorough
_TOOLS = {"claude": ("Bash", "command"), "codex": ("exec_command", "cmd"), "gemini": ("run_shell_command", "command")}
_SECONDS = 300  # until the agent must have ended
PROGRAMS = next(
    (path for path in (Path(sys.prefix) / "peers/node_modules/.bin", ROOT / ".venv/peers/node_modules/.bin")
     if path.exists()), None)  # fmt: skip


class Guarded(CliHarness):
    """A user whose agents are installed, and guarded."""

    @property
    def environ(self) -> dict[str, str]:
        found = {name: value for name, value in super().environ.items() if not name.startswith("XDG_")}
        return {**found, "PATH": f"{PROGRAMS}:{PATH}"}


@pytest.fixture
def guarded(tmp_path: Path, agent: str) -> Guarded:
    if PROGRAMS is None or not (PROGRAMS / agent).exists():
        pytest.skip(f"{agent} is not installed (`make peers`)")
    for name in ("home/.ssh", "work", "state"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "home/.ssh/id_rsa").write_text("the-private-key")
    subprocess.run(["git", "init", "-q", str(tmp_path / "work")], check=True)
    made = Guarded(tmp_path)
    done = made.agent("guard", agent, "--install", "--mode", "trust-project", "--cold", "--yes")
    assert done.returncode == 0, done.stderr
    return made


def run(place: Guarded, agent: str, scripts: tuple[str, ...]) -> list[str]:
    """Let the agent call its shell tool with each script. Return the results that the model got."""
    tool, argument = _TOOLS[agent]
    calls = [ScriptedCall(tool, {argument: script, "description": "a step"}) for script in scripts]
    with ScriptedModel(calls) as model:
        words, more = agent_command(agent, f"{PROGRAMS}/{agent}", model.address, str(place.work))
        done = subprocess.run(
            words, cwd=place.work, env={**place.environ, **more}, stdin=subprocess.DEVNULL, capture_output=True,
            text=True, timeout=_SECONDS, check=False,
        )  # fmt: skip
        assert len(model.results) == len(scripts), done.stdout + done.stderr
        return model.results


@pytest.mark.threat("T194")
@pytest.mark.threat("T195")
@pytest.mark.parametrize("agent", list(_TOOLS))
def test_an_agent_works_in_the_sandbox_and_cannot_leave_it(guarded: Guarded, agent: str) -> None:
    settings = Path(hook_file(agent, "user", str(guarded.work), guarded.environ))
    before = settings.read_bytes()
    (guarded.work / "look.py").write_text("import os\nprint('seen', [os.path.exists(f'../{x}') for x in PLACES])\n"
                                          .replace("PLACES", '("state", "home/.ssh", "work")'))  # fmt: skip
    script = "python3 look.py; echo made > made.txt"
    results = run(
        guarded, agent, (script, "cat ~/.ssh/id_rsa", f"echo '{{}}' > {settings}", "env -i /bin/bash -c 'ls ~'")
    )
    assert "seen [False, False, True]" in results[0]
    assert "ringfence" in results[1]
    assert "the-private-key" not in "".join(results)
    assert settings.read_bytes() == before
    assert "id_rsa" not in results[3]
    assert (guarded.work / "made.txt").read_text() == "made\n"
    rows = {str(row["action"]["script"]): row for row in guarded.audit() if isinstance(row["action"], dict)}
    assert rows[script]["verdict"] == "allow"
    assert rows["cat ~/.ssh/id_rsa"]["verdict"] == "deny"
    shown = guarded.agent("audit", "show", str(rows[script]["id"])).stdout
    assert agent in shown
    if agent != "gemini":  # its hooks do not get the id of a call
        assert "guard0000" in shown
    undone = guarded.agent("undo")
    assert not (guarded.work / "made.txt").exists(), undone.stdout + undone.stderr


@pytest.mark.threat("T196")
@pytest.mark.parametrize("agent", list(_TOOLS))
@pytest.mark.parametrize("redirect", [(), ("--redirect",)], ids=["rewritten", "redirected"])
def test_the_status_sends_a_command_through_the_real_agent(
    guarded: Guarded, agent: str, redirect: tuple[str, ...]
) -> None:
    if redirect:
        done = guarded.agent("guard", agent, "--install", *redirect, "--cold", "--yes")
        assert done.returncode == 0, done.stderr
    done = guarded.agent("guard", agent, "--status", "--json")
    found = json.loads(done.stdout)
    assert found["canary"]["result"] == "inside", done.stdout
    assert (found["in_force"], done.returncode) == (True, 0)


_PLUGIN_USER = """
import { RingfenceGuard } from PLUGIN
const hooks = await RingfenceGuard({ directory: process.cwd() })
const input = { tool: "bash", sessionID: "s1", callID: "c1" }
const output = { args: { command: "echo a > made.txt", description: "d" } }
await hooks["tool.execute.before"](input, output)
const found = [output.args.command]
for (const [tool, args] of [["bash", { command: "cat ~/.ssh/id_rsa" }], ["read", { filePath: "/etc/shadow" }]]) {
  try {
    await hooks["tool.execute.before"]({ ...input, tool }, { args })
    found.push("allowed")
  } catch (error) {
    found.push(error.message)
  }
}
console.log(JSON.stringify(found))
"""


@pytest.mark.threat("T193")
@pytest.mark.parametrize("agent", ["node"])
def test_the_plugin_of_opencode_rewrites_and_throws(tmp_path: Path, agent: str) -> None:
    """Node loads the plugin in place of opencode."""
    if PROGRAMS is None or not (PROGRAMS / agent).exists():
        pytest.skip(f"{agent} is not installed (`make peers`)")
    for name in ("home", "work", "state"):
        (tmp_path / name).mkdir()
    place = Guarded(tmp_path)
    done = place.agent("guard", "opencode", "--install", "--mode", "trust-project", "--cold", "--yes")
    assert done.returncode == 0, done.stderr
    plugin = hook_file("opencode", "user", str(place.work), place.environ)
    (tmp_path / "use.mjs").write_text(_PLUGIN_USER.replace("PLUGIN", json.dumps(plugin)))
    ran = subprocess.run(
        [str(PROGRAMS / agent), str(tmp_path / "use.mjs")], cwd=place.work, env=place.environ, capture_output=True,
        text=True, timeout=_SECONDS, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    command, *denied = json.loads(ran.stdout)
    assert " exec --guard-token " in command
    assert all(text.startswith("ringfence: ") for text in denied), denied
