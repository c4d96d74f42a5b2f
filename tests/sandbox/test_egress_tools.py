"""Tests of everyday tools behind the egress proxy without configuration: over TLS, by name, as root and another user."""

import contextlib
import http.server
import ssl
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.egress_network import certificate
from tests.support.git_forge import ADDRESS, NAME, OTHER, Forge
from tests.support.sandbox_bench import SYSTEM, USERS, Bench, make


@pytest.fixture(scope="module", params=USERS)
def bench(request: pytest.FixtureRequest) -> Iterator[Bench]:
    yield from make(request.param)


class World:
    """Two sites, plain and with TLS, and the way in which a command is told to trust the certificate."""

    def __init__(self, bench: Bench, plain: int, secure: int, authority: Path) -> None:
        self.bench, self.plain, self.secure, self.authority = bench, plain, secure, authority

    def run(self, script: str, *hosts: str, **told: Any) -> dict[str, Any]:
        environment = {
            **{
                "PATH": "/usr/local/bin:/usr/bin:/bin",
                "HOME": str(self.bench.home),
                "TMPDIR": "/tmp",
                "LANG": "C.UTF-8",
            },
            **dict.fromkeys(("SSL_CERT_FILE", "CURL_CA_BUNDLE", "GIT_SSL_CAINFO", "PIP_CERT"), str(self.authority)),
            **{"NODE_EXTRA_CA_CERTS": str(self.authority), "npm_config_cafile": str(self.authority)},
            **{f"GIT_{who}_{what}": "x@y.test" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")},
        }
        filled = script.replace("PLAIN", f"http://{NAME}:{self.plain}").replace(
            "SECURE", f"https://{NAME}:{self.secure}"
        )
        return self.bench.run(
            "set -e\n" + filled.replace("CERTIFICATE", str(self.authority)),
            hosts=list(hosts or (f"{NAME}:{self.plain} private", f"{NAME}:{self.secure} private")),
            names={NAME: [ADDRESS], OTHER: [ADDRESS]},
            env=environment,
            system=[*SYSTEM, "/etc/hosts"],
            read=[str(self.authority)],
            **told,
        )


@pytest.fixture(scope="module")
def world(bench: Bench, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("forge")
    pem = certificate(bench.base / "server.pem", NAME)
    authority = bench.base / "authority.pem"
    authority.write_text("-----BEGIN CERT" + pem.read_text().partition("-----BEGIN CERT")[2])
    bench.own(authority)
    source = folder / "source"
    for argv in (
        ["init", "-q", str(source)],
        [
            "-C",
            str(source),
            "-c",
            "user.name=x",
            "-c",
            "user.email=x@y",
            "commit",
            "-q",
            "--allow-empty",
            "-m",
            "first",
        ],
        ["clone", "-q", "--bare", str(source), str(folder / "repo.git")],
    ):
        subprocess.run(["git", *argv], check=True)

    class Here(Forge):
        repositories = folder

    with contextlib.ExitStack() as stack:
        ports = []
        for secure in (False, True):
            server = http.server.ThreadingHTTPServer((ADDRESS, 0), Here)
            if secure:
                context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
                context.load_cert_chain(pem)
                server.socket = context.wrap_socket(server.socket, server_side=True)
            thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
            thread.start()
            stack.callback(thread.join)
            stack.callback(server.server_close)
            stack.callback(server.shutdown)
            ports.append(server.server_port)
        plain, secure = ports
        yield World(bench, plain, secure, authority)


PIP = "test -d env || python3 -m venv env; env/bin/pip install -q --force-reinstall --no-cache-dir --disable-pip-version-check --index-url {}/simple {} ringdemo"
NPM = "rm -rf node; mkdir node; cd node; npm install --silent --no-audit --no-fund --cache /tmp/npm --registry {}/ ringdemo"
FETCH = "import urllib.request as u; print(u.urlopen('{}/file').read().decode(), end='')"
PUSH = "git clone -q {0}/git/repo.git {1}; cd {1}; git commit -q --allow-empty -m 'for {1}'; git push -q origin HEAD:refs/heads/{1}"

# fmt: off
TOOLS = [
    ("curl, plain",    "curl -sS PLAIN/file",                                             "through the proxy"),
    ("curl, TLS",      "curl -sS SECURE/file",                                            "through the proxy"),
    ("curl, SOCKS5",   "curl -sS -x socks5h://127.0.0.1:3128 SECURE/file",                "through the proxy"),
    ("wget, plain",    "wget -qO- PLAIN/file",                                            "through the proxy"),
    ("wget, TLS",      "wget -qO- --ca-certificate=CERTIFICATE SECURE/file",              "through the proxy"),
    ("Python, plain",  f'python3 -c "{FETCH.format("PLAIN")}"',                           "through the proxy"),
    ("Python, TLS",    f'python3 -c "{FETCH.format("SECURE")}"',                          "through the proxy"),
    ("git, plain",     f"{PUSH.format('PLAIN', 'plain-USER')}; git log --format=%s | tail -1", "first"),
    ("git, TLS",       f"{PUSH.format('SECURE', 'tls-USER')}; git ls-remote SECURE/git/repo.git | grep -o tls-USER", "tls-USER"),
    ("pip, TLS",       f"{PIP.format('SECURE', '')} && env/bin/python -c 'import ringdemo; print(ringdemo.WORD)'", "installed"),
    ("pip, plain",     f"{PIP.format('PLAIN', '--trusted-host ' + NAME)} && env/bin/python -c 'import ringdemo; print(ringdemo.WORD)'", "installed"),
    ("npm, TLS",       f"{NPM.format('SECURE')}; node -p 'require(\"ringdemo\")'",         "installed"),
    ("npm, plain",     f"{NPM.format('PLAIN')}; node -p 'require(\"ringdemo\")'",          "installed"),
]
# fmt: on


@pytest.mark.parametrize(("tool", "script", "expected"), TOOLS, ids=[row[0] for row in TOOLS])
def test_a_tool_just_works(world: World, tool: str, script: str, expected: str) -> None:
    script = script.replace("USER", world.bench.user)
    answer = world.run(script)
    assert answer["out"].strip() == expected.replace("USER", world.bench.user), answer
    assert answer["connections"]
    assert all(allowed and not why for _, _, _, _, allowed, why, *_ in answer["connections"]), answer["connections"]
    assert {host for host, *_ in answer["connections"]} == {NAME}


# fmt: off
REFUSED = [
    ("curl",   "curl -sS https://other.test/",                          "403",                                            "the tunnel"),
    ("wget",   "wget -O- https://other.test/",                          "host other.test is not on the allowlist",        "in its own words"),
    ("Python", "python3 -c \"import urllib.request as u; u.urlopen('https://other.test/')\"", "host other.test is not on the allowlist", "in its own words"),
    ("git",    "git clone -q https://other.test/x",                     "403",                                            "the tunnel"),
    ("plain",  "curl -sSf http://other.test/",                          "403",                                            "the page"),
    ("SOCKS",  "curl -sS -x socks5h://127.0.0.1:3128 https://other.test/", "(2)",                                         "not allowed by ruleset"),
    ("away",   "curl -sSL SECURE/away",                                 "403",                                            "where an allowed host leads"),
    ("alone",  "curl -sS --noproxy '*' https://good.test/",             "Could not resolve host",                         "without the proxy there is no name server"),
]
# fmt: on


@pytest.mark.threat("T52")
@pytest.mark.threat("T54")
@pytest.mark.parametrize(("tool", "script", "part", "why"), REFUSED, ids=[row[0] for row in REFUSED])
def test_a_tool_says_why_not(world: World, tool: str, script: str, part: str, why: str) -> None:
    answer = world.run(script)
    assert answer["status"] != 0
    assert part in answer["out"] + answer["err"], (answer, why)
    if tool == "alone":
        assert ["without the proxy" in what for what, *_ in answer["violations"]] == [True]
    else:
        said = {what for what, *_ in answer["violations"]}
        assert any(what.endswith(f"host {OTHER} is not on the allowlist") or OTHER in what for what in said), answer
        assert any("not on the allowlist" in what for what in said)


@pytest.mark.threat("T56")
def test_methods_and_paths_hold_for_a_real_client(world: World) -> None:
    each = "curl -sS --path-as-is -o /dev/null -w '%{http_code} '"
    script = f"for path in file fil%65 simple/ringdemo/ file/../ringdemo; do {each} PLAIN/$path; done; {each} -X POST PLAIN/file"
    answer = world.run(script, f"GET {NAME}:{world.plain}/file private")
    assert answer["out"] == "200 403 403 403 403 "
