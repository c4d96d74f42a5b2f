"""Installation and removal of the hooks of `agent guard`: what is written, and that a removal restores the files."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from runner.frontends.guard.answering import AGENTS
from runner.frontends.guard.installation import SettingsChange, apply_changes, planned_installation, planned_removal
from runner.frontends.guard.settings_change import HookOptions, hook_file, hook_line
from runner.problems import Stopped

OPTIONS = HookOptions("trust-project")
# fmt: off
BEFORE = [
    (None,                                                           "no-file"),
    ("",                                                             "empty"),
    ("{}",                                                           "no-line-break"),
    ("{}\n",                                                         "empty-object"),
    ('{\n    "a": ["x", {"b":1}],\n    "hooks": {}\n}',              "four-blanks"),
    ('{\n\t"hooks": {\n\t\t"Stop": [{"hooks": []}]\n\t}, "z": 1, "ü": "ß"\n}\n\n', "tabs"),
    ('{"hooks":{"PreToolUse":[{"matcher":"Bash","hooks":[{"type":"command","command":"mine"}]}]}}\n', "another-hook"),
]
# fmt: on
JSON_AGENTS = [agent for agent in AGENTS if agent != "opencode"]


def environ(base: Path) -> dict[str, str]:
    return {"HOME": str(base), "RINGFENCE_STATE_DIR": str(base / "state"), "PATH": "/nonexistent"}


def settings_of(base: Path, agent: str, text: str | None) -> Path:
    path = Path(hook_file(agent, "user", str(base), environ(base)))
    if text is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return path


def install(base: Path, agent: str, options: HookOptions = OPTIONS) -> tuple[SettingsChange, ...]:
    changes = planned_installation(agent, "user", options, str(base), environ(base))
    apply_changes(agent, "user", changes, str(base), environ(base), installed=True)
    return changes


def remove(base: Path, agent: str) -> None:
    changes = planned_removal(agent, "user", str(base), environ(base))
    apply_changes(agent, "user", changes, str(base), environ(base), installed=False)


@pytest.mark.parametrize("agent", JSON_AGENTS)
@pytest.mark.parametrize(("text", "why"), BEFORE, ids=[row[1] for row in BEFORE])
def test_a_removal_restores_the_file_byte_for_byte(agent: str, text: str | None, why: str, tmp_path: Path) -> None:
    path = settings_of(tmp_path, agent, text)
    change = install(tmp_path, agent)[-1]
    assert change.diff()
    assert change.then == path.read_text()
    json.loads(path.read_text())
    install(tmp_path, agent, HookOptions("plan", redirect=True))  # a second installation replaces the first one
    assert path.read_text().count("--mode plan") == path.read_text().count("guard hook")
    remove(tmp_path, agent)
    assert (path.read_text() if path.exists() else None) == text


@pytest.mark.parametrize("agent", JSON_AGENTS)
def test_a_removal_after_a_change_takes_out_only_the_hooks(agent: str, tmp_path: Path) -> None:
    path = settings_of(tmp_path, agent, BEFORE[-1][0])
    install(tmp_path, agent)
    settings = json.loads(path.read_text())
    settings["later"] = True
    path.write_text(json.dumps(settings))
    remove(tmp_path, agent)
    left = json.loads(path.read_text())
    assert left.pop("later") is True
    expected = json.loads(str(BEFORE[-1][0]))
    assert left == expected | ({"version": 1} if agent == "cursor" else {})


def test_the_order_of_keys_and_the_indentation_stay(tmp_path: Path) -> None:
    path = settings_of(tmp_path, "claude", '{\n   "z": 1,\n   "a": "ü"\n}')
    install(tmp_path, "claude")
    assert path.read_text().startswith('{\n   "z": 1,\n   "a": "ü",\n   "hooks": {')
    assert not path.read_text().endswith("\n")


def test_the_mode_of_the_file_stays_and_a_new_one_is_private(tmp_path: Path) -> None:
    path = settings_of(tmp_path, "claude", "{}")
    path.chmod(0o640)
    install(tmp_path, "claude")
    assert path.stat().st_mode & 0o777 == 0o640
    install(tmp_path, "gemini")
    assert settings_of(tmp_path, "gemini", None).stat().st_mode & 0o777 == 0o600


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    path = settings_of(tmp_path, "claude", None)
    path.parent.mkdir()
    (tmp_path / "real.json").write_text("{}")
    path.symlink_to(tmp_path / "real.json")
    install(tmp_path, "claude")
    assert path.is_symlink()
    assert "guard hook claude" in (tmp_path / "real.json").read_text()
    remove(tmp_path, "claude")
    assert (tmp_path / "real.json").read_text() == "{}"


@pytest.mark.parametrize("text", ["[]", "{", '{"hooks": []}', '{"hooks": {"PreToolUse": {}}}', "{ // mine\n}"])
def test_a_file_in_another_form_is_not_touched(text: str, tmp_path: Path) -> None:
    path = settings_of(tmp_path, "claude", text)
    with pytest.raises(Stopped):
        install(tmp_path, "claude")
    assert path.read_text() == text


def test_a_file_that_changed_since_the_diff_is_not_touched(tmp_path: Path) -> None:
    path = settings_of(tmp_path, "claude", "{}")
    changes = planned_installation("claude", "user", OPTIONS, str(tmp_path), environ(tmp_path))
    path.write_text('{"new": 1}')
    with pytest.raises(Stopped):
        apply_changes("claude", "user", changes, str(tmp_path), environ(tmp_path), installed=True)
    assert path.read_text() == '{"new": 1}'


def test_the_plugin_is_written_and_deleted(tmp_path: Path) -> None:
    path = settings_of(tmp_path, "opencode", None)
    install(tmp_path, "opencode")
    assert json.dumps(hook_line("opencode", OPTIONS)) in path.read_text()
    remove(tmp_path, "opencode")
    assert not path.exists()


def test_trusted_hashes_of_codex_are_written_and_taken_out(tmp_path: Path) -> None:
    """A program that speaks like the app server of Codex gives the hashes."""
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin" / "codex"
    program.write_text(
        "#!/usr/bin/env python3\n"
        "import json, os, sys\n"
        "home = os.environ['CODEX_HOME']\n"
        "assert json.load(open(home + '/hooks.json'))['hooks']\n"
        "for line in sys.stdin:\n"
        "    asked = json.loads(line)\n"
        "    if asked.get('method') == 'hooks/list':\n"
        "        hook = {'key': home + '/hooks.json:pre_tool_use:0:0', 'currentHash': 'sha256:00'}\n"
        "        print(json.dumps({'id': asked['id'], 'result': {'data': [{'hooks': [hook]}]}}), flush=True)\n"
    )
    program.chmod(0o755)
    found = environ(tmp_path) | {"PATH": f"{tmp_path}/bin:/usr/bin:/bin"}
    config = tmp_path / ".codex" / "config.toml"
    config.parent.mkdir()
    text = '# mine\nmodel = "m"  # keep\n\n[hooks.state."other"]\ntrusted_hash = "sha256:11"\n'
    config.write_text(text)
    changes = planned_installation("codex", "user", OPTIONS, str(tmp_path), found)
    apply_changes("codex", "user", changes, str(tmp_path), found, installed=True)
    key = f'[hooks.state."{config.parent}/hooks.json:pre_tool_use:0:0"]\ntrusted_hash = "sha256:00"'
    assert key in config.read_text()
    assert config.read_text().startswith(text)
    config.write_text(config.read_text() + "\n[later]\nx = 1\n")
    changes = planned_removal("codex", "user", str(tmp_path), found)
    apply_changes("codex", "user", changes, str(tmp_path), found, installed=False)
    left = config.read_text()
    assert "pre_tool_use" not in left
    assert left.startswith(text.rstrip("\n"))
    assert "[later]" in left


# fmt: off
ENDS = [
    ("exit 0",          0, "allowed"),
    ("exit 2",          2, "denied"),
    ("exit 1",          2, "failed"),
    ("kill -9 $$",      2, "killed"),
    ("",                2, "no-program"),
]
# fmt: on


@pytest.mark.threat("T193")
@pytest.mark.parametrize(("program", "code", "why"), ENDS, ids=[row[-1] for row in ENDS])
def test_the_hook_line_denies_whatever_happens_to_the_program(
    program: str, code: int, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "agent with blanks"
    if program:
        path.write_text(f"#!/bin/sh\n{program}\n")
        path.chmod(0o755)
    monkeypatch.setattr("sys.argv", [str(path)])
    done = subprocess.run(
        ["/bin/sh", "-c", hook_line("claude", OPTIONS)], capture_output=True, text=True, timeout=60, env=os.environ
    )
    assert done.returncode == code
    assert code == 0 or program == "exit 2" or "denied" in done.stderr
