"""Tests of named hosts in the real sandbox: real programs reach these hosts and no others."""

import contextlib
import http.server
import os
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.sandbox_bench import NOBODY, SYSTEM, USERS, Bench, make

ADDRESS = "127.0.0.2"  # not the one that programs inside take for their own


@pytest.fixture(scope="module", params=[f"{user}-{tier}" for user in USERS for tier in ("T1", "T2")])
def bench(request: pytest.FixtureRequest) -> Iterator[Bench]:
    user, _, tier = request.param.partition("-")
    yield from make(user, tier=tier)


class Site(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


@contextlib.contextmanager
def site(
    folder: Path, handler: type[http.server.BaseHTTPRequestHandler] = Site, *, address: str = ADDRESS
) -> Iterator[int]:
    """The files of a folder by HTTP; its port."""

    def made(*told: object) -> object:
        return handler(*told, directory=str(folder)) if issubclass(handler, Site) else handler(*told)  # type: ignore[arg-type, call-arg]  # one of two kinds

    server = http.server.ThreadingHTTPServer((address, 0), made)  # type: ignore[arg-type]  # makes a handler
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


TRIES = """
import socket, errno, sys
def attempt(name, work):
    try:
        work()
    except OSError as error:
        print(name, "no", errno.errorcode.get(error.errno, error.errno))
    else:
        print(name, "YES")
def tcp(host, port):
    return lambda: socket.create_connection((host, port), 1).close()
def udp(host, port):
    def work():
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
            s.settimeout(0.3); s.connect((host, port)); s.send(b"x"); s.recv(1)
    return work
def family(number, kind=socket.SOCK_STREAM):
    return lambda: socket.socket(number, kind).close()
port, abstract = int(sys.argv[1]), sys.argv[2]
attempt("host-loopback", tcp("127.0.0.1", port))
attempt("host-alias", tcp("127.0.0.2", port))
attempt("public", tcp("192.0.2.1", 443))
attempt("public-six", tcp("2001:db8::1", 443))
attempt("metadata", tcp("169.254.169.254", 80))
attempt("dns-udp", udp("127.0.0.53", 53))
attempt("dns-tcp", tcp("127.0.0.53", 53))
attempt("dns-public", udp("192.0.2.1", 53))
attempt("resolve", lambda: socket.getaddrinfo("example.org", 443))
attempt("abstract", lambda: socket.socket(socket.AF_UNIX).connect("\\0" + abstract))
for name, number in (("netlink", 16), ("packet", 17), ("vsock", 40), ("bluetooth", 31), ("alg", 38)):
    attempt(name, family(number, socket.SOCK_RAW if number == 17 else socket.SOCK_STREAM))
attempt("raw", family(socket.AF_INET, socket.SOCK_RAW))
attempt("as-proxy", lambda: socket.create_server(("127.0.0.1", 3128)).close())
attempt("as-proxy-shared", lambda: socket.create_server(("127.0.0.1", 3128), reuse_port=True).close())
attempt("as-proxy-anywhere", lambda: socket.create_server(("0.0.0.0", 3128)).close())
"""


@pytest.mark.threat("T06")
@pytest.mark.threat("T52")
@pytest.mark.parametrize("tier", ["T1", "T2"])
@pytest.mark.parametrize("rights", ["read-only", "workspace-write"])
def test_nothing_else_is_reached(bench: Bench, rights: str, tier: str) -> None:
    """With a host named, sockets exist; yet only the proxy is there, and it is nobody else's place."""
    bench.own(bench.workspace).joinpath("tries.py").write_text(TRIES)
    abstract = f"ringfence-egress-{rights}-{tier}-{os.getpid()}"
    with socket.socket() as listener, socket.socket(socket.AF_UNIX) as hidden:
        listener.bind(("0.0.0.0", 0))
        listener.listen()
        hidden.bind("\0" + abstract)
        hidden.listen()
        port = listener.getsockname()[1]
        answer = bench.run(f"python3 tries.py {port} {abstract}", rights=rights, hosts=["example.org"], tier=tier)
    lines = answer["out"].splitlines()
    assert len(lines) == 19, answer
    assert [line for line in lines if " no " not in line] == []
    assert answer["connections"] == []


@pytest.mark.parametrize("tier", ["T1", "T2"])
def test_a_command_reaches_the_host_that_it_was_given(bench: Bench, tmp_path: Path, tier: str) -> None:
    (tmp_path / "file").write_text("through the proxy\n")
    with site(tmp_path) as port:
        hosts = [f"{ADDRESS}:{port} private"]
        for rights in ("read-only", "workspace-write"):
            answer = bench.run(f"curl -sS http://{ADDRESS}:{port}/file", rights=rights, hosts=hosts, tier=tier)
            assert answer["out"] == "through the proxy\n", answer
            (connection,) = answer["connections"]
            assert connection[:6] == [ADDRESS, port, "GET /file", ADDRESS, True, ""]
        other = bench.run(
            f"curl -sS http://127.0.0.3:{port}/file; curl -sS https://example.org/", hosts=hosts, tier=tier
        )
    assert "host 127.0.0.3 is not on the allowlist" in other["out"]
    assert "403" in other["err"]
    said = [what for what, *_ in other["violations"]]
    assert said == ["host 127.0.0.3 is not on the allowlist", "host example.org is not on the allowlist"]
    assert "`example.org`" in other["violations"][1][2]


def test_a_host_called_like_the_own_loopback_is_the_runners(bench: Bench, tmp_path: Path) -> None:
    """Otherwise programs would never ask the proxy for it, and the entry would do nothing."""
    (tmp_path / "file").write_text("outside\n")
    with site(tmp_path, address="127.0.0.1") as port:
        answer = bench.run(f"curl -sS http://127.0.0.1:{port}/file", hosts=[f"127.0.0.1:{port} private"])
    assert answer["out"] == "outside\n", answer


def test_without_a_host_there_is_no_proxy(bench: Bench) -> None:
    answer = bench.run("env | grep -i proxy; curl -sS http://127.0.0.1:3128/", rights="workspace-write")
    assert answer["out"] == ""
    assert "Connection refused" in answer["err"] or "Couldn't connect" in answer["err"]


def test_the_sandbox_has_its_own_loopback_beside_the_proxy(bench: Bench) -> None:
    script = "python3 -m http.server 8000 --bind 127.0.0.1 >/dev/null 2>&1 & curl -sS --retry 50 --retry-connrefused --retry-delay 1 http://localhost:8000/ | head -1"
    answer = bench.run(script, hosts=["example.org"], env={"PATH": "/usr/bin:/bin"}, system=[*SYSTEM, "/etc/hosts"])
    assert "<!DOCTYPE" in answer["out"], answer
    assert answer["connections"] == [], "that is not the proxy's business"


@pytest.mark.thorough
@pytest.mark.threat("T57")
@pytest.mark.parametrize("how", ["wall", "cancel"])
def test_what_a_command_that_is_ended_did_is_known(bench: Bench, how: str, tmp_path: Path) -> None:
    """It hangs in the middle of an answer that never ends; its connection is recorded, and the server is let go."""
    gone = threading.Event()

    class Endless(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.wfile.write(b"HTTP/1.1 200 OK\r\n\r\n")
            with contextlib.suppress(OSError):
                while True:
                    self.wfile.write(b"more\n")
                    time.sleep(0.02)
            gone.set()

        def log_message(self, *_: object) -> None:
            pass

    with site(tmp_path, Endless) as port:
        told: dict[str, Any] = {"limits": {"wall": 5.0}} if how == "wall" else {"cancel": "more"}
        answer = bench.run(f"curl -sS http://{ADDRESS}:{port}/", hosts=[f"{ADDRESS}:{port} private"], **told)
        assert gone.wait(60)
    assert answer.get("ended") == "wall" or answer.get("cancelled")
    (connection,) = answer["connections"]
    assert connection[:6] == [ADDRESS, port, "GET /", ADDRESS, True, ""]
    assert connection[7] > 20


def test_who_runs_it(bench: Bench) -> None:
    """The rows above are about both users: otherwise they prove only half."""
    expected = str(NOBODY) if bench.user == "nobody" else None
    assert bench.run("id -u", hosts=["example.org"])["out"].strip() == (expected or bench.run("id -u")["out"].strip())


def test_from_the_command_line_to_the_record(tmp_path: Path) -> None:
    """A name of this machine, as this machine resolves it, through the gate, the sandbox and the proxy."""
    from tests.support.cli_harness import CliHarness

    harness = CliHarness(tmp_path)
    for folder in (harness.work, tmp_path / "home", tmp_path / "site"):
        folder.mkdir()
    (tmp_path / "site" / "file").write_text("outside\n")
    (harness.work / "other.py").write_text("import urllib.request\nurllib.request.urlopen('https://other.test/')\n")
    with site(tmp_path / "site", address="127.0.0.1") as port:
        host = ("--mode", "trust-project", "--unattended", "--host", f"localhost:{port} private")
        done = harness.agent("exec", *host, "--", "curl", "-sS", f"http://localhost:{port}/file")
        refused = harness.agent("exec", *host, "--", "python3", "other.py")
    assert done.stdout == "outside\n", done
    assert "sandbox: host other.test is not on the allowlist" in refused.stderr
    assert "`other.test`" in refused.stderr
    listed = harness.agent("audit").stdout
    assert f"network: localhost:{port} allowed" in listed
    assert "network: other.test:443 denied" in listed
