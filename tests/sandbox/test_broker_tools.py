"""Tests of everyday tools that log in with a credential they never see: as root and another user, in every sandbox
with hosts.
"""

import base64
import contextlib
import hashlib
import http.server
import os
import shutil
import ssl
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cryptography
import pytest

from policy.model.credential import add_credential_settings
from tests.support.credential_rows import rows
from tests.support.egress_network import certificate
from tests.support.git_forge import Forge
from tests.support.sandbox_bench import SYSTEM, USERS, Bench, make

NAME, ADDRESS = "forge.test", "127.0.0.3"
SECRET = "canary-7c1f9e-token"
LOGIN = "Basic " + base64.b64encode(f"me:{SECRET}".encode()).decode()


class Locked(Forge):
    """A site where all but `/open` wants a login. What was sent without one is kept."""

    heard: list[tuple[str, str, str]]

    def known(self) -> bool:
        said = self.headers.get("Authorization", "")
        self.heard.append((self.command, self.path, said))
        if said == LOGIN or self.path.startswith("/open"):
            return True
        self.send_response(401)
        self.send_header("WWW-Authenticate", 'Basic realm="forge"')
        self.send_header("Content-Length", "0")
        self.end_headers()
        return False

    @property
    def base(self) -> str:
        assert isinstance(self.server, http.server.ThreadingHTTPServer)
        return f"https://{NAME}:{self.server.server_port}"

    def do_GET(self) -> None:
        if self.path.startswith("/team/echo") and self.known():
            self.tell(str(self.headers).encode(), "text/plain")
        elif self.path == "/api/v3/user" and self.known():
            self.tell(b'{"login": "somebody"}', "application/json")
        else:
            super().do_GET()


class World:
    """The site, and commands that get its login injected."""

    def __init__(self, bench: Bench, port: int, authority: Path, heard: list[tuple[str, str, str]]) -> None:
        self.bench, self.port, self.authority, self.heard = bench, port, authority, heard

    def rows(self, *more: str, hosts: str = "") -> str:
        use = f'["git", "pip={self.at}/simple/", "npm={self.at}/", "FORGE_URL={self.at}/", "FORGE_TOKEN=placeholder"]'
        lines = [
            "[[credential]]",
            'name = "forge"',
            f'hosts = ["{hosts or f"{NAME}:{self.port}"}"]',
            'basic = "me"',
            'env = "SECRET_TOKEN"',
            *(more or (f"use = {use}",)),
        ]
        return "\n".join(lines)

    @property
    def at(self) -> str:
        return f"https://{NAME}:{self.port}"

    def bundle(self, given: str) -> str:
        """Return the path of the certificates of a session with these rows.

        Each session has its own path, because a driver keeps the files of all of them.
        """
        told = hashlib.sha256(f"{os.getpid()} {self.bench.user} {given}".encode()).hexdigest()
        return f"/var/tmp/ringfence-test-{told[:24]}/certificates.crt"

    def run(self, script: str, given: str = "", *, lent: bool = True, **told: Any) -> dict[str, Any]:
        given = given or self.rows()
        bundle = self.bundle(given) if "intercept = true" in given else ""
        environment = {
            **{"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": str(self.bench.home), "TMPDIR": "/tmp"},
            **{f"GIT_{who}_{what}": "x@y.test" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")},
            "GIT_TERMINAL_PROMPT": "0",
        }
        names = []
        if lent:
            credentials = rows(given)
            environment = add_credential_settings(credentials, environment, bundle)
            names = [credential.name for credential in credentials]
        self.heard.clear()
        return self.bench.run(
            "set -e\n" + script.replace("SITE", self.at),
            hosts=[f"{NAME}:{self.port} private"],
            names={NAME: [ADDRESS]},
            env=environment,
            system=[*SYSTEM, "/etc/hosts"],
            read=[str(self.authority), *([bundle] if bundle else [])],
            credentials=names,
            lend={
                "rows": given,
                "environ": {"SECRET_TOKEN": SECRET},
                "trust": str(self.authority),
                "bundle": bundle,
            },
            **told,
        )


@pytest.fixture(scope="module", params=USERS)
def bench(request: pytest.FixtureRequest) -> Iterator[Bench]:
    for made in make(request.param):
        if made.user == "nobody":  # whose Python has not what makes certificates
            site = Path(cryptography.__file__).parent.parent
            for name in ("cryptography", "cffi", "_cffi_backend*.so"):
                for found in site.glob(name):
                    copied = made.modules / found.name
                    (shutil.copytree if found.is_dir() else shutil.copy)(found, copied)
                    made.own(copied)
        yield made


@pytest.fixture(scope="module")
def world(bench: Bench, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("forge")
    pem = certificate(bench.base / "server.key", NAME)
    authority = bench.base / "authority.crt"
    authority.write_text("-----BEGIN CERT" + pem.read_text().partition("-----BEGIN CERT")[2])
    bench.own(authority)
    author = ("-c", "user.name=x", "-c", "user.email=x@y")
    for argv in (
        ("init", "-q", str(folder / "source")),
        ("-C", str(folder / "source"), *author, "commit", "-q", "--allow-empty", "-m", "first"),
        ("clone", "-q", "--bare", str(folder / "source"), str(folder / "repo.git")),
    ):
        subprocess.run(["git", *argv], check=True)
    heard: list[tuple[str, str, str]] = []

    class Here(Locked):
        repositories = folder

    Here.heard = heard
    with contextlib.ExitStack() as stack:
        server = http.server.ThreadingHTTPServer((ADDRESS, 0), Here)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(pem)
        server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        stack.callback(thread.join)
        stack.callback(server.server_close)
        stack.callback(server.shutdown)
        yield World(bench, server.server_port, authority, heard)


CLONE = "git clone -q SITE/git/repo.git {0}; cd {0}; head -c 3000000 /dev/urandom > big; git add big; git commit -q -m 'for {0}'; git push -q origin HEAD:refs/heads/{0}"
PIP = "test -d env || python3 -m venv env; env/bin/pip install -q --force-reinstall --no-cache-dir --disable-pip-version-check ringdemo && env/bin/python -c 'import ringdemo; print(ringdemo.WORD)'"
NPM = "rm -rf node; mkdir node; cd node; npm install --silent --no-audit --no-fund --cache /tmp/npm ringdemo; node -p 'require(\"ringdemo\")'"

# fmt: off
TOOLS = [
    ("curl",          "curl -sSf ${FORGE_URL}file",                              "through the proxy"),
    ("Python",        "python3 -c \"import os, urllib.request as u; print(u.urlopen(os.environ['FORGE_URL'] + 'file').read().decode(), end='')\"", "through the proxy"),
    ("git",           f"{CLONE.format('open-USER')}; git ls-remote SITE/git/repo.git | grep -o open-USER", "open-USER"),
    ("pip",           PIP,                                                       "installed"),
    ("npm",           NPM,                                                       "installed"),
    ("a placeholder", "echo $FORGE_TOKEN",                                       "held-by-ringfence"),
    ("one of ours is replaced", "curl -sSf -u me:$FORGE_TOKEN ${FORGE_URL}file", "through the proxy"),
]
OPENED = [
    ("curl",   "curl -sSf SITE/file",                                            "through the proxy"),
    ("Python", "python3 -c \"import urllib.request as u; print(u.urlopen('SITE/file').read().decode(), end='')\"", "through the proxy"),
    ("git",    f"{CLONE.format('tls-USER')}; git ls-remote SITE/git/repo.git | grep -o tls-USER", "tls-USER"),
    ("pip",    PIP.replace("ringdemo &&", "--index-url SITE/simple/ ringdemo &&"), "installed"),
    ("npm",    NPM.replace("ringdemo;", "--registry SITE/ ringdemo;"),           "installed"),
]
# fmt: on


@pytest.mark.parametrize(("tool", "script", "expected"), TOOLS, ids=[row[0] for row in TOOLS])
@pytest.mark.slow("pip and other package managers run")
def test_a_tool_logs_in_without_knowing(world: World, tool: str, script: str, expected: str) -> None:
    answer = world.run(script.replace("USER", world.bench.user))
    assert answer["out"].strip() == expected.replace("USER", world.bench.user), answer
    assert {said for _, _, said in world.heard} <= {LOGIN}
    assert {made[-1] for made in answer["connections"]} <= {"forge"}
    assert SECRET not in answer["out"] + answer["err"]


@pytest.mark.parametrize(("tool", "script", "expected"), OPENED, ids=[row[0] for row in OPENED])
def test_a_tool_logs_in_where_tls_is_opened(world: World, tool: str, script: str, expected: str) -> None:
    answer = world.run(script.replace("USER", world.bench.user), world.rows("intercept = true"))
    assert answer["out"].strip() == expected.replace("USER", world.bench.user), answer
    assert {said for _, _, said in world.heard} <= {LOGIN}
    assert {made[-1] for made in answer["connections"]} == {"forge"}


def test_gh_logs_in_where_tls_is_opened(world: World) -> None:
    answer = world.run("gh api user --jq .login", world.rows("intercept = true", f'use = ["gh={world.at}/"]'))
    assert answer["out"].strip() == "somebody", answer
    assert world.heard == [("GET", "/api/v3/user", LOGIN)]


@pytest.mark.parametrize("tier", ["T1", "T2"])
def test_both_sandboxes_with_hosts_lend(world: World, tier: str) -> None:
    answer = world.run("curl -sSf ${FORGE_URL}file; git ls-remote -q SITE/git/repo.git HEAD", tier=tier)
    assert answer["status"] == 0, answer
    assert "through the proxy" in answer["out"]


@pytest.mark.threat("T85")
def test_nobody_else_logs_in(world: World) -> None:
    """A command whose terms name no credential, and one that asks for what no row covers."""
    answer = world.run(
        "curl -sS -o /dev/null -w '%{http_code}' --cacert CA SITE/file".replace("CA", str(world.authority)), lent=False
    )
    assert answer["out"] == "401"
    given = world.rows(f'use = ["FORGE_URL={world.at}/"]', hosts=f"GET {NAME}:{world.port}/team/")
    status = "curl -sS --path-as-is -o /dev/null -w '%{http_code} ' ${FORGE_URL}"
    answer = world.run(
        f"{status}team/echo; {status}file; {status}team/../file; {status}team/%2e%2e/file; {status}team/echo -X POST",
        given,
    )
    assert answer["out"] == "200 401 401 401 401 "
    assert [said for _, _, said in world.heard] == [LOGIN, "", "", "", ""]


# fmt: off
SEARCHES = [
    ("env",                                                               "its own variables"),
    ("cat /proc/*/environ /proc/*/cmdline | tr '\\0' '\\n'",              "every process that it sees"),
    ("grep -rslE 'KEY|PRIVATE' /var/tmp /tmp /run /etc/ssl 2>/dev/null; grep -rs canary- /var/tmp /tmp /run /home /root $HOME 2>/dev/null", "every file that it sees"),
    ("curl -sS ${FORGE_URL}team/echo",                                    "a page that sends back what it got"),
    ("curl -sS -X TRACE ${FORGE_URL}team/echo",                           "the method for that"),
    ("curl -sS -H 'Connection: authorization' ${FORGE_URL}team/echo",     "as if it were hop by hop"),
    ("git config --list --show-origin; git credential fill <<< url=SITE", "what Git knows"),
    ("GIT_TRACE_CURL=1 GIT_CURL_VERBOSE=1 git ls-remote SITE/git/repo.git", "what Git sends"),
    ("ls -l /proc/1/exe /proc/*/fd /proc/*/map_files; cat /proc/*/mem",    "memory"),
    ("pip config list; npm config list",                                  "settings of tools"),
]
# fmt: on


@pytest.mark.threat("T84")
@pytest.mark.parametrize(("script", "why"), SEARCHES, ids=[row[1] for row in SEARCHES])
def test_a_command_that_searches_finds_nothing(world: World, script: str, why: str) -> None:
    for given in (world.rows(), world.rows(f'use = ["FORGE_URL={world.at}/"]', "intercept = true")):
        answer = world.run("set +e\n" + script, given)
        told = answer["out"] + answer["err"]
        for form in (SECRET, LOGIN.split()[1], LOGIN.split()[1].rstrip("="), "PRIVATE KEY"):
            assert form not in told, why


@pytest.mark.threat("T86")
def test_the_certificate_of_a_session_goes_with_it(world: World) -> None:
    """It vouches for the hosts of its credentials and no others; there is no key beside it."""
    from cryptography import x509

    given = world.rows("intercept = true")
    bundle = world.bundle(given)
    answer = world.run(f"cat {bundle}; ls -a $(dirname {bundle}) >&2", given)
    assert answer["err"].split() == [".", "..", "certificates.crt"]
    *_, made = x509.load_pem_x509_certificates(answer["out"].encode())
    limits = made.extensions.get_extension_for_class(x509.NameConstraints)
    assert limits.critical
    assert limits.value.permitted_subtrees == [x509.DNSName(NAME)]
    assert made.extensions.get_extension_for_class(x509.BasicConstraints).value.path_length == 0
    assert (made.not_valid_after_utc - made.not_valid_before_utc).days <= 7


@pytest.mark.threat("T85")
def test_terms_are_granted_exactly_or_not_at_all(world: World) -> None:
    """A sandbox without injection does not run a command that needs an injected login."""
    answer = world.bench.run("true", hosts=[f"{NAME}:{world.port} private"], credentials=["forge"])
    assert "cannot inject the credential" in answer["unavailable"][0]
