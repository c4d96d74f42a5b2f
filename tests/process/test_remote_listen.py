"""`agent serve --listen`: remote access as a part of the resident process, and the commands for tokens."""

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.cli_harness import CliHarness
from tests.support.waiting import until


@pytest.fixture
def user(tmp_path: Path) -> Iterator[CliHarness]:
    harness = CliHarness(tmp_path)
    harness.work.mkdir()
    yield harness
    harness.agent("serve", "--stop")


def status(user: CliHarness) -> dict[str, object]:
    return dict(json.loads(user.agent("serve", "--status", "--json").stdout))


def lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def web_of(user: CliHarness) -> int:
    processes = status(user)["processes"]
    assert isinstance(processes, list)
    return int(next(each["pid"] for each in processes if each["kind"] == "web"))


@pytest.mark.threat("T286")
@pytest.mark.parametrize("end", ["stop", "kill"])
def test_remote_access_lives_as_long_as_the_resident_process(user: CliHarness, end: str) -> None:
    before = user.agent("serve", "token", "add", "phone", "--link")
    assert before.returncode == 2
    assert "remote access does not run" in before.stderr
    assert "there are no tokens" in user.agent("serve", "token", "list").stdout, "nothing was added without a link"
    started = user.agent("serve", "--start", "--listen", "127.0.0.1:0")
    assert started.returncode == 0, started.stderr
    assert "SHA-256 " in started.stderr
    found = status(user)
    page, web = str(found["page"]), web_of(user)
    assert page.startswith("https://127.0.0.1:")
    assert str(found["fingerprint"]) in started.stderr
    again = user.agent("serve", "--start", "--listen", "127.0.0.1:0")
    assert again.returncode == 2
    assert f"its page is {page}" in again.stderr
    link = user.agent("serve", "token", "add", "phone", "--scope", "answer", "--expires", "7d", "--link")
    assert link.stdout.startswith(f"{page}#rfl_")
    if end == "stop":
        assert user.agent("serve", "--stop").returncode == 0
    else:
        os.kill(int(str(found["pid"])), signal.SIGKILL)
    until(lambda: not lives(web))


def test_a_second_start_adds_remote_access(user: CliHarness) -> None:
    assert user.agent("serve", "--start").returncode == 0
    assert status(user)["page"] is None, "nothing listens without being asked"
    key = {"OPENAI_API_KEY": "sk-proj-a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8s9T0"}
    assert user.agent("serve", "--start", "--listen", "127.0.0.1:0", env=key).returncode == 0
    assert str(status(user)["page"]).startswith("https://")
    assert b"sk-proj" not in Path(f"/proc/{web_of(user)}/environ").read_bytes(), "it needs no key of a model"
    os.kill(web_of(user), signal.SIGKILL)
    until(lambda: status(user)["page"] is None)
    assert user.agent("serve", "--start", "--listen", "127.0.0.1:0").returncode == 0, "it can be started again"


def test_the_setting_is_the_users_own(user: CliHarness) -> None:
    (user.work / ".ringfence").mkdir()
    (user.work / ".ringfence" / "config.toml").write_text('[serve]\nlisten = "127.0.0.1:0"\n')
    assert user.agent("serve", "--start").returncode == 0
    assert status(user)["page"] is None, "a repository starts no server"
    assert user.agent("serve", "--stop").returncode == 0
    (user.base / "config" / "ringfence").mkdir(parents=True)
    (user.base / "config" / "ringfence" / "config.toml").write_text('[serve]\nlisten = "127.0.0.1:0"\n')
    assert user.agent("serve", "--start").returncode == 0
    until(lambda: status(user)["page"] is not None)
    assert str(status(user)["page"]).startswith("https://127.0.0.1:")


# fmt: off
MISTAKES = [
    (("--start", "--listen", "example.com:1"),                "the host is not an IP address"),
    (("--listen", "example.com:1"),                           "the host is not an IP address"),
    (("--start", "--no-tls"),                                 "need `--listen`"),
    (("--status", "--listen", "127.0.0.1:0"),                 "exclude each other"),
    (("--stop", "--listen", "127.0.0.1:0"),                   "exclude each other"),
    (("token", "add", "a b"),                                 "is not a name for a token"),
    (("token", "add", "phone", "--scope", "admin"),           "there is no scope `admin`"),
    (("token", "add", "phone", "--expires", "soon"),          "is not a time"),
    (("token", "add", "phone", "--folder", "/nonexistent"),   "is not a folder"),
    (("token", "remove", "phone"),                            "there is no token `phone`"),
    (("token", "link", "phone"),                              "remote access does not run"),
]
# fmt: on


@pytest.mark.parametrize(("words", "said"), MISTAKES, ids=[" ".join(row[0]) for row in MISTAKES])
def test_mistakes_start_nothing(user: CliHarness, words: tuple[str, ...], said: str) -> None:
    done = user.agent("serve", *words)
    assert done.returncode == 2
    assert said in done.stderr
    assert "there is no resident process" in user.agent("serve", "--status").stdout


@pytest.mark.threat("T283")
def test_tokens_are_shown_once(user: CliHarness) -> None:
    added = user.agent("serve", "token", "add", "phone", "--scope", "answer", "--folder", str(user.work))
    assert added.returncode == 0
    secret = added.stdout.strip()
    assert secret.startswith("rft_")
    assert secret not in added.stderr
    listed = user.agent("serve", "token", "list").stdout
    assert listed.split()[:2] == ["phone", "answer"]
    assert str(user.work) in listed
    shown = json.loads(user.agent("serve", "token", "list", "--json").stdout)
    assert (shown["name"], shown["scope"], shown["valid"], shown["expires"]) == ("phone", "answer", True, None)
    for path in user.base.rglob("*"):
        assert not path.is_file() or secret.encode() not in path.read_bytes(), path
    assert user.agent("serve", "token", "add", "phone").returncode == 2
    assert user.agent("serve", "token", "remove", "phone").returncode == 0
    assert "there are no tokens" in user.agent("serve", "token").stdout
