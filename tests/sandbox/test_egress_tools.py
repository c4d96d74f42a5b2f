"""The tools of every day fetch through the egress proxy without being told how: over TLS, by name, as root and another user."""

import base64
import contextlib
import hashlib
import http.server
import io
import json
import os
import ssl
import subprocess
import tarfile
import threading
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.support.egress_world import certificate
from tests.support.sandbox_bench import SYSTEM, USERS, Bench, make

NAME, OTHER, ADDRESS = "good.test", "other.test", "127.0.0.2"


@pytest.fixture(scope="module", params=USERS)
def bench(request: pytest.FixtureRequest) -> Iterator[Bench]:
    yield from make(request.param)


def wheel() -> bytes:
    """A package `ringdemo` for pip."""
    files = {
        "ringdemo.py": "WORD = 'installed'\n",
        "ringdemo-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: ringdemo\nVersion: 1.0\n",
        "ringdemo-1.0.dist-info/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(
        f"{name},sha256={base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).decode().rstrip('=')},{len(text)}\n"
        for name, text in files.items()
    )
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        for name, text in {**files, "ringdemo-1.0.dist-info/RECORD": record}.items():
            archive.writestr(name, text)
    return made.getvalue()


def tarball() -> bytes:
    """A package `ringdemo` for npm."""
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w:gz") as archive:
        for name, text in (
            ("package/package.json", json.dumps({"name": "ringdemo", "version": "1.0.0", "main": "index.js"})),
            ("package/index.js", "module.exports = 'installed';\n"),
        ):
            info = tarfile.TarInfo(name)
            info.size = len(text)
            archive.addfile(info, io.BytesIO(text.encode()))
    return made.getvalue()


class Forge(http.server.BaseHTTPRequestHandler):
    """One site with a file, a Git repository, a Python index and an npm registry."""

    protocol_version = "HTTP/1.1"
    repositories: Path
    wheel, tarball = wheel(), tarball()

    def do_GET(self) -> None:
        path = urlsplit(self.path).path
        if not self.known():
            return
        if path == "/file":
            self.tell(b"through the proxy\n", "text/plain")
        elif path == "/simple/ringdemo/":
            self.tell(b'<a href="/ringdemo-1.0-py3-none-any.whl">ringdemo-1.0-py3-none-any.whl</a>', "text/html")
        elif path.endswith(".whl"):
            self.tell(self.wheel, "application/zip")
        elif path == "/ringdemo":
            dist = {"tarball": f"{self.base}/ringdemo-1.0.0.tgz", "shasum": hashlib.sha1(self.tarball).hexdigest()}
            version = {"name": "ringdemo", "version": "1.0.0", "dist": dist}
            told = {"name": "ringdemo", "dist-tags": {"latest": "1.0.0"}, "versions": {"1.0.0": version}}
            self.tell(json.dumps(told).encode(), "application/json")
        elif path.endswith(".tgz"):
            self.tell(self.tarball, "application/gzip")
        elif path.startswith("/git/"):
            self.git(b"")
        elif path == "/away":
            self.send_response(302)
            self.send_header("Location", f"{self.base.replace(NAME, OTHER)}/file")
            self.send_header("Content-Length", "0")
            self.end_headers()
        else:
            self.send_error(404)

    def do_POST(self) -> None:
        body = b""
        if self.headers.get("Transfer-Encoding") == "chunked":
            while size := int(self.rfile.readline(), 16):
                body += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
        else:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self.known():
            self.git(body)

    def known(self) -> bool:
        """Whether it may be answered; a site that wants a login has refused it otherwise."""
        return True

    def git(self, body: bytes) -> None:
        where = urlsplit(self.path)
        environment = {
            "PATH": os.environ["PATH"],
            "GIT_PROJECT_ROOT": str(self.repositories),
            "GIT_HTTP_EXPORT_ALL": "1",
            "GIT_CONFIG_COUNT": "2",
            **{"GIT_CONFIG_KEY_0": "safe.directory", "GIT_CONFIG_VALUE_0": "*"},
            **{"GIT_CONFIG_KEY_1": "http.receivepack", "GIT_CONFIG_VALUE_1": "true"},
            "PATH_INFO": where.path.removeprefix("/git"),
            "QUERY_STRING": where.query,
            "REQUEST_METHOD": self.command,
            "CONTENT_TYPE": self.headers.get("Content-Type", ""),
            "CONTENT_LENGTH": str(len(body)),
            "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
            "GIT_PROTOCOL": self.headers.get("Git-Protocol", ""),
        }
        done = subprocess.run(["git", "http-backend"], env=environment, input=body, capture_output=True, check=True)
        head, _, rest = done.stdout.partition(b"\r\n\r\n")
        fields = dict(line.split(": ", 1) for line in head.decode().split("\r\n"))
        self.send_response(int(fields.pop("Status", "200").split()[0]))
        for name, value in {**fields, "Content-Length": str(len(rest))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(rest)

    def tell(self, data: bytes, kind: str) -> None:
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    @property
    def base(self) -> str:
        assert isinstance(self.server, http.server.ThreadingHTTPServer)
        scheme = "https" if isinstance(self.server.socket, ssl.SSLSocket) else "http"
        return f"{scheme}://{NAME}:{self.server.server_port}"

    def log_message(self, *_: object) -> None:
        pass


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
            thread = threading.Thread(target=server.serve_forever)
            thread.start()
            stack.callback(thread.join)
            stack.callback(server.server_close)
            stack.callback(server.shutdown)
            ports.append(server.server_port)
        yield World(bench, *ports, authority)


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
        assert ["past the proxy" in what for what, *_ in answer["violations"]] == [True]
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
