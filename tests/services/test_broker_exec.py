"""Tests of a credential from the user's file through the gate and the sandbox to the server, the record and the
output.
"""

import http.server
import json
import os
import re
import ssl
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from policy.model.frozen import dataclass
from tests.support import forked_agent
from tests.support.agent_program import AGENT
from tests.support.egress_network import certificate
from tests.support.sandbox_bench import USERS
from tests.support.secret_service import harness

SECRET = "canary-7c1f9e-token"


class Site(http.server.BaseHTTPRequestHandler):
    """Says what it was sent, and keeps it."""

    heard: list[str]

    def do_GET(self) -> None:  # the name that the library calls
        self.heard.append(self.headers.get("Authorization", ""))
        body = str(self.headers).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@dataclass(frozen=True, slots=True)
class Place:
    """A home, a project, and a site that wants a login."""

    folder: Path
    port: int
    heard: list[str]

    def row(self, *more: str) -> None:
        lines = ["[[credential]]", 'name = "forge"', f'hosts = ["GET localhost:{self.port}/team/"]']
        lines += ['header = "Authorization: Bearer {secret}"', *more]
        (self.folder / "home/.config/ringfence/config.toml").write_text("\n".join(lines))

    def agent(self, *words: str, **environ: str) -> "subprocess.CompletedProcess[str]":
        told = {
            "PATH": os.environ["PATH"],
            "HOME": str(self.folder / "home"),
            "LC_ALL": "C.UTF-8",
            "SSL_CERT_FILE": str(self.folder / "authority.crt"),
        }
        return forked_agent.run(
            [AGENT, *words], env=told | environ, cwd=self.folder / "work", capture_output=True, text=True, stdin=subprocess.DEVNULL
        )  # fmt: skip

    def fetch(self, address: str, *more: str, **environ: str) -> "subprocess.CompletedProcess[str]":
        words = ("exec", "--unattended", "--mode", "trust-project", "--host", f"localhost:{self.port} private", *more)
        return self.agent(*words, "--", "curl", "-sS", address.replace("PORT", str(self.port)), **environ)


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    for name in ("home/.config/ringfence", "work"):
        (tmp_path / name).mkdir(parents=True)
    pem = certificate(tmp_path / "server.key", "localhost")
    (tmp_path / "authority.crt").write_text("-----BEGIN CERT" + pem.read_text().partition("-----BEGIN CERT")[2])
    heard: list[str] = []

    class Here(Site):
        pass

    Here.heard = heard
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Here)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pem)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield Place(tmp_path, server.server_port, heard)
    server.shutdown()
    server.server_close()


@pytest.mark.threat("T84")
def test_a_variable_of_yours_goes_to_the_server_and_nowhere_else(place: Place) -> None:
    place.row('env = "FORGE_TOKEN"')
    done = place.fetch("http://localhost:PORT/team/x", FORGE_TOKEN=SECRET)
    assert done.returncode == 0, done.stderr
    assert place.heard == [f"Bearer {SECRET}"]
    assert "Authorization: Bearer ***" in done.stdout
    assert SECRET not in done.stdout + done.stderr
    shown = json.loads(place.agent("audit", "show", "last").stdout)
    (made,) = shown["outcome"]["connections"]
    assert (made["credential"], made["asked"], made["host"]) == ("forge", "GET /team/x", "localhost")
    assert re.search(r"localhost:\d+ allowed with credential forge", place.agent("audit").stdout)
    state = place.folder / "home/.local/state/ringfence"
    assert not any(SECRET.encode() in path.read_bytes() for path in state.rglob("*") if path.is_file())


@pytest.mark.threat("T84")
def test_a_variable_that_holds_a_secret_enters_no_sandbox(place: Place) -> None:
    """Not even when it is named: who wants it inside takes the row away."""
    place.row('env = "FORGE_TOKEN"')
    done = place.agent(
        "exec",
        "--unattended",
        "--mode",
        "trust-project",
        "--env",
        f"FORGE_TOKEN={SECRET}",
        "--",
        "env",
        FORGE_TOKEN=SECRET,
    )
    assert "PATH=" in done.stdout, done.stderr
    assert "FORGE_TOKEN" not in done.stdout


def test_a_session_lends_too(place: Place) -> None:
    """A model's command; what it gets to see holds the mask."""
    place.row('env = "FORGE_TOKEN"', "[[rule]]", 'verdict = "allow"', f'host = ["localhost:{place.port} private"]')
    call = f'{{ name = "bash", arguments = {{ command = "curl -sS http://localhost:{place.port}/team/x" }} }}'
    script = place.folder / "script.toml"
    script.write_text(f'[[turn]]\ntext = "I look."\ncalls = [{call}]\n[[turn]]\ntext = "Done."\n')
    words = ("run", "--unattended", "--mode", "trust-project", "--model", f"scripted:{script}", "look")
    done = place.agent(*words, FORGE_TOKEN=SECRET)
    assert done.returncode == 0, done.stderr
    assert place.heard == [f"Bearer {SECRET}"]
    assert f"connected to localhost:{place.port} with your credential forge" in done.stdout + done.stderr
    assert SECRET not in done.stdout + done.stderr
    kept = place.folder / "home/.local/state/ringfence"
    assert not any(SECRET.encode() in path.read_bytes() for path in kept.rglob("*") if path.is_file())


def test_where_tls_is_opened_a_program_asks_as_ever(place: Place) -> None:
    place.row('env = "FORGE_TOKEN"', "intercept = true")
    done = place.fetch("https://localhost:PORT/team/x", FORGE_TOKEN=SECRET)
    assert done.returncode == 0, done.stderr
    assert place.heard == [f"Bearer {SECRET}"]
    assert SECRET not in done.stdout + done.stderr
    bundles = set(
        re.findall(r"/var/tmp/ringfence-[0-9a-f]{24}/certificates\.crt", place.agent("audit", "show", "last").stdout)
    )
    assert len(bundles) == 1
    assert not Path(bundles.pop()).parent.exists(), "the certificates end with the session"


def test_a_helper_is_asked_once_it_is_needed(place: Place) -> None:
    helper = place.folder / "home" / "token"
    helper.write_text(f"#!/bin/sh\necho asked >> {place.folder}/asked\necho {SECRET}\n")
    helper.chmod(0o755)
    place.row(f'helper = ["{helper}"]')
    place.fetch("http://localhost:PORT/other")
    assert not (place.folder / "asked").exists(), "nobody needed it"
    assert place.heard == [""]
    place.fetch("http://localhost:PORT/team/x")
    assert (place.folder / "asked").read_text() == "asked\n"
    assert place.heard == ["", f"Bearer {SECRET}"]


# fmt: off
MISSING = [
    ('env = "FORGE_TOKEN"',           "the variable `FORGE_TOKEN`",  "a variable that is not set"),
    ('helper = ["/bin/false"]',       "the helper `/bin/false`",     "a helper that fails"),
    ('helper = ["/nonexistent/x"]',   "the helper `/nonexistent/x`", "a helper that is not there"),
    ('keyring = "forge"',             "the keyring item",            "no keyring, or nothing in it"),
]
# fmt: on


@pytest.mark.parametrize(("line", "part", "why"), MISSING)
def test_without_it_nothing_is_sent(place: Place, line: str, part: str, why: str) -> None:
    place.row(line)
    done = place.fetch("http://localhost:PORT/team/x", DBUS_SESSION_BUS_ADDRESS="unix:path=/nonexistent")
    assert place.heard == [], why
    assert f"the credential `forge` is not available from {part}" in done.stdout + done.stderr, done


def test_it_is_listed_and_not_looked_for(place: Place) -> None:
    place.row('helper = ["/bin/false"]')
    told = place.agent("auth", "status").stdout
    assert "forge: added by the proxy to requests of commands" in told
    assert f"to      GET localhost:{place.port}/team/" in told
    assert "from    the helper `/bin/false`" in told
    rows = map(json.loads, place.agent("auth", "status", "--json").stdout.splitlines())
    (row,) = (each for each in rows if "credential" in each)
    assert (row["credential"], row["header"], row["intercept"]) == ("forge", "Authorization", False)


@pytest.mark.parametrize("user", USERS)
def test_what_the_keyring_holds_is_lent(place: Place, user: str) -> None:
    """A real Secret Service, and the whole way as root and as another user."""
    with harness(user) as made, made.secret_service():
        config, authority = made.home / ".config/ringfence", made.base / "authority.crt"
        authority.write_text((place.folder / "authority.crt").read_text())
        authority.chmod(0o644)
        config.mkdir(parents=True)
        place.row('keyring = "forge"')
        (config / "config.toml").write_text((place.folder / "home/.config/ringfence/config.toml").read_text())
        for each in (made.home / ".config", config, config / "config.toml"):
            os.chown(each, *(2 * [65534] if user == "nobody" else [os.geteuid(), os.getegid()]))
        kept = made.agent("auth", "login", "forge", stdin=SECRET + "\n")
        assert kept.returncode == 0, kept.stderr
        host = ("--host", f"localhost:{place.port} private")
        done = made.agent(
            *("exec", "--unattended", "--mode", "trust-project", *host, "--"),
            *("curl", "-sS", f"http://localhost:{place.port}/team/x"),
            env={"SSL_CERT_FILE": str(authority)},
        )
        assert place.heard == [f"Bearer {SECRET}"], done.stdout + done.stderr
        assert SECRET not in done.stdout + done.stderr


def test_it_is_said_before_anything_runs(place: Place) -> None:
    place.row('env = "FORGE_TOKEN"', "intercept = true")
    host = ("--host", f"localhost:{place.port} private")
    why = place.agent("why", *host, f"curl https://localhost:{place.port}/team/x").stdout
    assert "uses     credential forge, without seeing it" in why
    asked = place.agent("why", *host, f"git clone https://localhost:{place.port}/team/x").stdout
    assert "use your credential forge there without seeing it" in asked
    shown = place.agent("sandbox", "show", *host, f"curl https://localhost:{place.port}/team/x").stdout
    assert "uses     credential forge, without seeing it" in shown
    assert "certificates.crt" in shown
    other = place.agent("why", "curl https://example.org/").stdout
    assert "credential" not in other
