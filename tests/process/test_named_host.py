"""Tests of one named host from the rule or the flag through the sandbox and its proxy to the output and the record."""

import json
import os
import subprocess
import threading
from collections.abc import Iterator
from http.server import HTTPServer
from pathlib import Path

import pytest

from runner.problems import Exit
from tests.support import forked_agent
from tests.support.agent_program import AGENT
from tests.support.web_site import SECRET, Site


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    server = HTTPServer(("127.0.0.1", 0), Site)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server.server_address[1]
    server.shutdown()
    server.server_close()


@pytest.fixture
def place(tmp_path: Path) -> Path:
    for name in ("home/.config/ringfence", "work"):
        (tmp_path / name).mkdir(parents=True)
    return tmp_path


def agent(place: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    environ = {"PATH": os.environ["PATH"], "HOME": str(place / "home"), "LC_ALL": "C.UTF-8"}
    return forked_agent.run(
        [AGENT, *words], env=environ, cwd=place / "work", capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL
    )  # fmt: skip


def rule(place: Path, text: str) -> None:
    (place / "home" / ".config" / "ringfence" / "config.toml").write_text(f'[[rule]]\nverdict = "allow"\n{text}\n')


def fetch(port: int, path: str = "/") -> list[str]:
    # Without the exception that is made for this machine: a sandbox has a loopback of its own.
    return ["curl", "-sS", "-L", "--max-time", "20", "--noproxy", "", f"http://localhost:{port}{path}"]


@pytest.mark.threat("T68")
def test_an_allowed_host_is_reached_and_no_other(place: Path, port: int) -> None:
    rule(place, f'host = ["localhost:{port} private"]')
    done = agent(place, "exec", "--unattended", "--", *fetch(port))
    assert (done.returncode, done.stdout) == (0, f"{SECRET}\n"), done.stderr
    away = agent(place, "exec", "--unattended", "--", *fetch(port, "/away"))
    assert SECRET not in away.stdout.replace(f"{SECRET}\n", "", 1)
    assert "host elsewhere.test is not on the allowlist" in away.stderr, "a redirect leads nowhere"
    assert "the user can allow `GET elsewhere.test:9/`" in away.stderr
    other = agent(place, "exec", "--unattended", "--", "curl", "-sS", "http://other.test/")
    assert other.returncode == Exit.DENIED
    assert "other.test" in other.stderr


@pytest.mark.threat("T68")
@pytest.mark.parametrize(
    ("setting", "why"),
    [
        ('url = "http://other.test/"\n', "another address"),
        ('proxy = "http://other.test:3128"\n', "another proxy"),
        ('connect-to = "::other.test:80"\n', "another machine for the same name"),
    ],
)
def test_the_settings_of_curl_lead_it_nowhere_else(setting: str, why: str, place: Path, port: int) -> None:
    """A file of the workspace that curl obeys: whatever it says, the proxy holds what the Terms name."""
    (place / "work" / "settings").write_text(setting)
    curl, *words = fetch(port)
    told = ("--mode", "dangerously", "--host", f"localhost:{port} private")
    done = agent(place, "exec", "--unattended", "--json", *told, "--", curl, "-K", "settings", *words)
    ended = next(event for event in map(json.loads, done.stdout.splitlines()) if event["type"] == "finished")
    assert {made["host"] for made in ended["connections"] if made["allowed"]} <= {"localhost"}, why
    assert all(made["port"] == port for made in ended["connections"] if made["allowed"])
    assert ended["violations"] or ended["status"], "curl did try, and got nowhere"


def test_what_was_reached_is_shown_and_recorded(place: Path, port: int) -> None:
    done = agent(place, "exec", "--unattended", "--json", "--host", f"localhost:{port} private", "--", *fetch(port))
    events = [json.loads(line) for line in done.stdout.splitlines()]
    ended = next(event for event in events if event["type"] == "finished")
    (made,) = ended["connections"]
    assert (made["host"], made["port"], made["allowed"]) == ("localhost", port, True)
    assert made["received"] > len(SECRET)
    number = next(
        str(json.loads(line)["id"]) for line in agent(place, "audit", "--json").stdout.splitlines() if "curl" in line
    )
    shown = json.loads(agent(place, "audit", "show", number).stdout)
    assert shown["terms"]["hosts"] == [f"localhost:{port} private"]
    assert shown["typed"] == [f"--host localhost:{port} private"]
    assert [(one["host"], one["port"]) for one in shown["outcome"]["connections"]] == [("localhost", port)]
    why = agent(place, "why", "--host", "x.org", "--", "curl", "https://x.org")
    assert "network  x.org" in why.stdout


def test_why_says_how_a_host_can_be_named(place: Path) -> None:
    told = agent(place, "why", "curl https://example.org:8443/a").stdout
    assert "agent exec --host example.org:8443 ..." in told
    assert 'host    = ["example.org:8443"]' in told
    near = agent(place, "why", "curl http://10.0.0.7:3000/").stdout
    blocked = "stays blocked until `--host` or a rule has `10.0.0.7:3000 private`"
    assert blocked in near, "an approval that would not be kept says so"
    assert "agent exec --host '10.0.0.7:3000 private' ..." in near
    assert '"10.0.0.7:3000 private"' in near
    unknown = agent(place, "why", "uv python install").stdout
    assert "the connection is then blocked, and one more approval, `--host` or a rule allows its host" in unknown
    weak = agent(place, "exec", "--backend", "T3", "--accept-partial", "--host", "x.org", "--", "curl", "http://x.org/")
    assert (weak.returncode, "T3 allows no connection" in weak.stderr) == (Exit.DENIED, True)
    raw = agent(place, "exec", "--mode", "dangerously", "--", "ping", "-c", "1", "example.org")
    assert raw.returncode == Exit.DENIED
    assert "proxy" in raw.stderr
