"""Tests of `agent profile learn`: real runs in a sandbox, one card per round, and the smallest rule."""

import json
import os
import re
import subprocess
import tempfile
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support import forked_agent
from tests.support.sandbox_bench import NOBODY, USERS
from tests.support.session_harness import AGENT, SessionHarness
from tests.support.terminal import Terminal

# Ten steps, of which five lack something. `set -e` ends the first run at the second step.
_STEPS = """set -e
echo begun > state.txt
curl -sS -m 5 http://one.example.org/a > a.txt
curl -sS -m 5 http://two.example.org/b > b.txt
cat @DATA/x.txt > c.txt
cat ~/.ssh/id_rsa > key.txt
echo five
echo six
echo seven
echo eight
echo done
"""


@pytest.fixture
def harness(tmp_path: Path) -> SessionHarness:
    return project(tmp_path)


@pytest.fixture
def shared_base() -> Iterator[Path]:
    """Yield a folder that may be given to another user; the folders of pytest are for one user."""
    with tempfile.TemporaryDirectory(prefix="ringfence-learn-", dir="/var/tmp") as folder:
        yield Path(folder)


def project(tmp_path: Path) -> SessionHarness:
    """Return a user with scripts of several steps, data outside of the workspace, and a key."""
    harness = SessionHarness(tmp_path)
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "x.txt").write_text("data\n")
    secret = tmp_path / "home" / ".ssh"
    secret.mkdir()
    (secret / "id_rsa").write_text("PRIVATE\n")
    (harness.work / "install.sh").write_text(_STEPS.replace("@DATA", str(tmp_path / "data")))
    (harness.work / "steps.sh").write_text(
        "curl -sS -m 5 http://one.example.org/a || true\ncat " + str(secret / "id_rsa") + " || true\n"
    )
    return harness


def learn(harness: SessionHarness, *words: str, other: bool = False) -> Terminal:
    return Terminal([AGENT, "profile", "learn", *words], harness.work, harness.environ, other=other)


def own(user: str, base: Path) -> bool:
    """Give the folder `base` to `user`, and return True if that is another user than this process has."""
    if user != "nobody":
        return False
    for path in (base, *base.rglob("*")):
        os.chown(path, NOBODY, NOBODY)
    return True


def told(harness: SessionHarness, *words: str, other: bool) -> str:
    """Return what `agent` prints for the user that learned the rule."""
    who: dict[str, Any] = {"user": NOBODY, "group": NOBODY, "extra_groups": []} if other else {}
    output = forked_agent.run(
        [AGENT, *words], cwd=harness.work, env=harness.environ, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        text=True, check=True, **who,
    ).stdout  # fmt: skip
    assert isinstance(output, str)
    return output


@pytest.mark.threat("T168")
@pytest.mark.parametrize("user", USERS)
def test_one_card_shows_what_ten_steps_need_and_the_rule_has_what_was_chosen(shared_base: Path, user: str) -> None:
    harness = project(shared_base)
    other = own(user, harness.base)
    window = learn(harness, "--to", "user", "--", "bash", "install.sh", other=other)
    try:
        window.until("n none]")
        card = window.seen.partition("the command was stopped")[2]
        for row in ("connect to one.example.org", "connect to two.example.org", "data/x.txt"):
            assert row in card, card
        assert "id_rsa" not in card
        rows = {words: number for number, words in re.findall(r"(\d+)[ .)]+(\S.*)", card)}
        chosen = [number for words, number in rows.items() if "one.example.org" in words or "data/x.txt" in words]
        window.type(f"y {' '.join(chosen)}\n")
        window.end()
    finally:
        window.close()
    assert window.seen.count("the command was stopped") == 1, "one card for all steps"
    settings = Path(harness.environ["HOME"]) / ".config" / "ringfence" / "config.toml"
    (rule,) = tomllib.loads(settings.read_text())["rule"]
    assert rule["run"] == ["bash", "install.sh"]
    assert rule["rights"] == [f"--read {harness.base}/data/x.txt", "--host one.example.org"]
    shown = told(harness, "why", "bash install.sh", other=other)
    assert "  allowed\n" in shown
    assert "one.example.org" in shown.partition("permit")[2]
    assert "two.example.org" not in shown.partition("permit")[2]
    first, *_ = told(harness, "audit", "--json", other=other).splitlines()
    assert json.loads(first)["answer"]["by"] == "terminal, by `agent profile learn`"


def test_the_rule_of_the_project_needs_trust(harness: SessionHarness) -> None:
    window = learn(harness, "--", "bash", "steps.sh")
    try:
        window.until("n none]")
        window.type("1\n")  # a number alone is no answer
        window.until("answer y, y with numbers, or n")
        window.until("n none]", 2)  # text typed before the question is shown again is discarded
        window.type("y\n")
        window.end()
    finally:
        window.close()
    assert "`agent trust` makes it apply" in window.seen
    local = harness.work / ".ringfence" / "config.local.toml"
    (rule,) = tomllib.loads(local.read_text())["rule"]
    assert rule["rights"] == ["--host one.example.org"]


@pytest.mark.threat("T168")
def test_without_a_user_nothing_is_written_and_no_secret_is_learned(harness: SessionHarness) -> None:
    done = harness.agent("profile", "learn", "--json", "--", "bash", "steps.sh")
    found = json.loads(done.stdout)
    assert found["written"] is None
    assert "id_rsa" not in found["rule"]
    assert "one.example.org" in found["rule"]
    assert "PRIVATE" not in done.stdout + done.stderr
    assert not (harness.work / ".ringfence").exists()


def test_a_dry_run_prints_the_rule_and_writes_nothing(harness: SessionHarness) -> None:
    window = learn(harness, "--dry-run", "--to", "user", "--", "bash", "steps.sh")
    try:
        window.until("n none]")
        window.type("y\n")
        window.end()
    finally:
        window.close()
    assert 'rights  = ["--host' in window.seen
    assert not (Path(harness.environ["HOME"]) / ".config" / "ringfence" / "config.toml").exists()


# fmt: off
REFUSED: list[tuple[tuple[str, ...], int, str, str]] = [
    (("rm", "-rf", "/"),                     3, "",                     "dangerous"),
    (("sudo", "make", "install"),            3, "agent exec",           "privileged"),
    (("cat", "~/.ssh/id_rsa"),               3, "no mode allows that",  "hostile: a secret"),
    (("bash", "-c", "make && make install"), 2, "into a script",        "several commands"),
    ((),                                     2, "after `--`",           "no command"),
]
# fmt: on


@pytest.mark.threat("T168")
@pytest.mark.parametrize(("words", "code", "text", "why"), REFUSED, ids=[row[3] for row in REFUSED])
def test_what_cannot_be_learned_is_told(
    words: tuple[str, ...], code: int, text: str, why: str, harness: SessionHarness
) -> None:
    done = harness.agent("profile", "learn", *(("--", *words) if words else ()))
    assert done.returncode == code, done.stderr
    assert text in " ".join(done.stderr.split())
    assert not (harness.work / ".ringfence").exists()
