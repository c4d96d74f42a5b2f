"""A guarded agent cannot change the settings with its own hooks without a question."""

from pathlib import Path

import pytest

from policy.model.action import EditFile, RunScript, WriteFile
from policy.model.tier import Mode, Ruling
from runner.frontends.guard.answering import AGENTS
from runner.frontends.guard.settings_change import hook_file
from runner.gate.gate import GateArgs, open_gate, ruling


def files(base: Path) -> list[str]:
    environ, work = {"HOME": str(base / "home")}, str(base / "work")
    found = [hook_file(agent, scope, work, environ) for agent in AGENTS for scope in ("user", "project")]
    found += [
        f"{base}/home/.codex/config.toml",
        f"{work}/.codex/config.toml",
        f"{work}/.claude/settings.json",
    ]
    return [
        *found,
        f"{base}/home/.claude.json",
        f"{base}/state/guard/installed.json",
        f"{base}/state/guard/open/x",
        f"{base}/state/guard/claude-shell-0",
        f"{base}/home/.claude/plugins/installed_plugins.json",
        f"{base}/home/.claude/plugins/cache/m/p/1/hooks/hooks.json",
        f"{base}/home/.claude/shell-snapshots/snapshot-bash-1-a.sh",
        f"{base}/home/.gemini/policies/ringfence-guard.toml",
    ]


@pytest.mark.threat("T195")
def test_no_file_with_hooks_is_written_without_a_question(tmp_path: Path) -> None:
    for name in ("home", "work", "state"):
        (tmp_path / name).mkdir()
    environ = {
        "HOME": str(tmp_path / "home"),
        "PATH": "/usr/bin:/bin",
        "RINGFENCE_STATE_DIR": str(tmp_path / "state"),
    }
    args = GateArgs(script="true", argv=None, mode=Mode.TRUST_PROJECT, unattended=True, cwd=str(tmp_path / "work"))
    gate, _ = open_gate(args, environ)
    allowed = []
    for path in files(tmp_path):
        for action in (
            WriteFile(path, "{}"),
            EditFile(path, "", "x"),
            RunScript(f"echo '{{}}' > {path}", gate.cwd),
            RunScript(f"rm -f {path}", gate.cwd),
            RunScript(f"sed -i s/hook/x/ {path}", gate.cwd),
        ):
            _, verdict = gate.evaluate(action, unattended=False)
            if ruling(verdict) is Ruling.ALLOW:
                allowed.append(str(action))
    assert allowed == []
