"""Tests of user rules with a real process, a real sandbox and a real audit log."""

import json
import subprocess
from pathlib import Path

import pytest

from tests.support import forked_agent
from tests.support.agent_program import AGENT

RULES = """
[[rule]]
verdict = "allow"
run     = ["python3", "probe.py"]
why     = "a probe of ours"

[[rule]]
verdict = "deny"
read    = ["private/**"]
write   = ["migrations/**"]
why     = "nobody's business"

[[rule]]
verdict = "deny"
run     = ["git", "push"]
source  = ["person"]
why     = "by hand"
"""
PROBE = """
import os
for act, path in (("r", "private/plan"), ("w", "migrations/1.sql"), ("w", "migrations/2.sql"), ("w", "free.txt")):
    try:
        open(path, act).close()
        print(act, path, "done")
    except OSError as error:
        print(act, path, "refused")
try:
    os.rename("migrations", "gone")
    print("moved")
except OSError:
    print("stays")
"""


class Project:
    def __init__(self, base: Path) -> None:
        self.base, self.work = base, base / "work"
        for folder in ("work/private", "work/migrations", "work/.git", "home", "config/ringfence"):
            (base / folder).mkdir(parents=True)
        (self.work / "private" / "plan").write_text("plan\n")
        (self.work / "migrations" / "1.sql").write_text("select 1\n")
        (self.work / "probe.py").write_text(PROBE)
        (base / "config" / "ringfence" / "config.toml").write_text(RULES)

    def agent(self, *words: str) -> subprocess.CompletedProcess[str]:
        environ = {
            "HOME": str(self.base / "home"),
            "PATH": "/usr/local/bin:/usr/bin:/bin",
            "LANG": "C.UTF-8",
            "RINGFENCE_STATE_DIR": str(self.base / "state"),
            "XDG_CONFIG_HOME": str(self.base / "config"),
            "XDG_CACHE_HOME": str(self.base / "cache"),
        }
        return forked_agent.run(
            [AGENT, *words],
            cwd=self.work,
            env=environ,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=120,
        )

    def records(self) -> list[dict[str, object]]:
        return [json.loads(line) for line in self.agent("audit", "--json").stdout.splitlines()]


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    return Project(tmp_path_factory.mktemp("rules"))


@pytest.mark.threat("T50")
def test_denied_paths_are_held_by_the_sandbox_and_the_rule_is_recorded(project: Project) -> None:
    done = project.agent("exec", "--unattended", "python3 probe.py")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "r private/plan refused",
        "w migrations/1.sql refused",
        "w migrations/2.sql refused",
        "w free.txt done",
        "stays",
    ]
    config = project.base / "config" / "ringfence" / "config.toml"
    shown = json.dumps(project.records()[0])
    assert f"{config}:2" in shown, "the rule that allowed it"
    assert "a probe of ours" in shown


# the code, what is said of it, why
STOPPED = [
    ('open("private/plan")', "private/plan` is masked: its name is that of a secret, or a rule denies reading it", "hidden"),
    ('open("migrations/1.sql", "w")', "migrations/1.sql` is kept read-only: ", "locked"),
    ('open(".env")', ".env` is masked: ", "a secret by its name"),
    ('open(".env.none")', "", "one that is not there is an error of the program"),
    ('open("closed")', "", "a file without rights, too"),
]  # fmt: skip


@pytest.mark.parametrize(("code", "said", "why"), STOPPED, ids=[row[2] for row in STOPPED])
def test_what_the_sandbox_refuses_for_a_rule_is_explained(project: Project, code: str, said: str, why: str) -> None:
    (project.work / ".env").write_text("A=1\n")
    done = project.agent("exec", "--mode", "trust-project", f"touch closed; chmod 0 closed; python3 -c '{code}; 1/0'")
    assert done.returncode == 1, why
    assert said in done.stderr, why
    assert bool(said) == ("sandbox: " in done.stderr), why


def test_a_denial_says_which_rule_and_why_and_is_recorded(project: Project) -> None:
    done = project.agent("exec", "--unattended", "ls && git push")
    assert done.returncode == 3
    assert "config.toml:13" in done.stderr
    assert "by hand" in done.stderr
    assert "config.toml:13" in json.dumps(project.records()[0])


def test_an_exact_allow_is_no_prefix(project: Project) -> None:
    done = project.agent("exec", "--unattended", "python3 probe.py --more")
    assert done.returncode == 3
    assert not done.stdout


def test_a_rule_that_can_never_take_effect_stops_the_command(project: Project) -> None:
    wrong = project.base / "wrong.toml"
    wrong.write_text('\n[[rule]]\nverdict = "deny"\nrun = ["git push"]\nwhy = "x"\n')
    done = project.agent("exec", "--config", str(wrong), "ls")
    assert done.returncode == 2
    assert f"{wrong}:2" in done.stderr
    assert 'run = ["git", "push"]' in done.stderr
