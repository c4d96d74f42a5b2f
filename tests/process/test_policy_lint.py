"""Tests of `agent policy lint`: one line with a place per finding, for one file and for the active configuration."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.support import forked_agent
from tests.support.agent_program import AGENT

GOOD = '[[rule]]\nverdict = "allow"\nrun = ["npm", "run", "build"]\n'
TYPO = '\n[[rule]]\nverdict = "deny"\nrun = ["gti", "push"]\nwhy = "no"\n'
TWICE = GOOD + "\n" + GOOD


def agent(*words: str, cwd: Path, home: Path | None = None) -> subprocess.CompletedProcess[str]:
    environ = {"PATH": os.environ["PATH"], "HOME": str(home or cwd), "LC_ALL": "C.UTF-8"}
    return forked_agent.run(
        [AGENT, "policy", "lint", *words], env=environ, cwd=cwd, capture_output=True, text=True, timeout=60
    )


# the file, words, exit code, the beginning of a line that must be there, why
FILES = [
    ("", [], 0, "x.toml: no findings", "an empty file"),
    (GOOD, ["--strict"], 0, "x.toml: no findings", "a good rule"),
    (GOOD + TYPO, [], 0, "x.toml:5: warning[typo]: ", "a warning is no failure"),
    (GOOD + TYPO, ["--strict"], 1, "x.toml:5: warning[typo]: ", "unless asked for"),
    (TWICE, [], 0, "x.toml:5: warning[redundant]: ", "two that say the same"),
    (
        '[[rule]]\nverdict = "alow"\n',
        [],
        2,
        "x.toml:2: error[unusable]: `rule.verdict` cannot be used: ",
        "not a verdict",
    ),
    (GOOD + "until = 2020-01-01\n", ["--strict"], 0, "x.toml:1: notice[expired]: ", "one that is over, said once"),
    (
        GOOD + 'host = ["https://example.com"]\n',
        ["--strict"],
        2,
        "x.toml:1: error[unusable]: ",
        "an address, not a host",
    ),
    ("[[rule]\n", [], 2, "x.toml:1: error[unusable]: cannot be read: it is not valid TOML", "no TOML"),
    ("mdoe = 1\n", [], 2, "x.toml:1: error[unusable]: `mdoe` cannot be used: there is no such key", "no such key"),
    ('[[rule]]\nverdict = "allow"\nread = ["~/.ssh/**"]\n', [], 2, "x.toml:1: error[", "a secret, which no rule opens"),
]


@pytest.mark.parametrize(("text", "words", "code", "line", "why"), FILES, ids=[row[4] for row in FILES])
def test_a_file(text: str, words: list[str], code: int, line: str, why: str, tmp_path: Path) -> None:
    (tmp_path / "x.toml").write_text(text)
    done = agent("x.toml", *words, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (code, ""), done.stdout
    assert any(each.startswith(line) for each in done.stdout.splitlines()), done.stdout
    found = json.loads(agent("--json", "x.toml", *words, cwd=tmp_path).stdout)
    assert found["sources"] == ["x.toml"]
    assert len(found["findings"]) == len(done.stdout.splitlines()) - 1
    assert all(set(each) == {"severity", "code", "file", "line", "text", "fix", "other"} for each in found["findings"])


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    done = agent("none.toml", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stdout.splitlines()[0] == "none.toml: error[unusable]: there is no such file (check the path)"


def test_the_configuration_in_force_is_all_of_its_files(tmp_path: Path) -> None:
    home, work = tmp_path / "home", tmp_path / "work"
    (home / ".config" / "ringfence").mkdir(parents=True)
    (work / ".git").mkdir(parents=True)
    (work / ".ringfence").mkdir()
    user, project = home / ".config/ringfence/config.toml", work / ".ringfence/config.toml"
    assert agent(cwd=work, home=home).stdout == "no configuration of the user: no findings\n"
    user.write_text(GOOD + TYPO)
    project.write_text('mode = "dangerously"\n\n[[rule]]\nverdict = "allow"\ntool = ["bash"]\nrun = ["make"]\n')
    done = agent("--cwd", str(work), cwd=tmp_path, home=home)
    assert f"{user}:5: warning[typo]: " in done.stdout
    assert f"{project}:1: warning[ignored]: `mode` is ignored: " in done.stdout
    assert f"{project}:3: warning[ignored]: " in done.stdout
    assert done.stdout.splitlines()[-1].startswith(f"{user}, {project}: ")
    user.write_text("[[rule]")
    broken = agent(cwd=work, home=home)
    assert broken.returncode == 2
    assert f"{user}:1: error[unusable]: " in broken.stdout
    assert broken.stdout.splitlines()[-1] == f"{user}: 1 error"


def test_a_hostile_file_cannot_drive_the_terminal(tmp_path: Path) -> None:
    (tmp_path / "x.toml").write_text('[[rule]]\nverdict = "deny"\nrun = ["\\u001b[2Jgti"]\nwhy = "x"\n')
    done = agent("x.toml", cwd=tmp_path)
    assert "\x1b" not in done.stdout + done.stderr
