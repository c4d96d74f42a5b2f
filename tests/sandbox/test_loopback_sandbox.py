"""Tests of the loopback in the real sandbox: `localhost` is the sandbox itself unless an entry with `private` names
it.
"""

import http.server
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import pytest

from tests.support.sandbox_bench import USERS, Bench, make


@pytest.fixture(scope="module", params=[f"{user}-{tier}" for user in USERS for tier in ("T1", "T2")])
def bench(request: pytest.FixtureRequest) -> Iterator[Bench]:
    user, _, tier = request.param.partition("-")
    yield from make(user, tier=tier)


class Server(http.server.BaseHTTPRequestHandler):
    """A service of the machine that counts its requests."""

    asked: ClassVar[list[str]] = []

    def do_GET(self) -> None:
        self.asked.append(self.path)
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"the machine\n")

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Server)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server.server_port
    server.shutdown()
    server.server_close()
    thread.join()


SERVE = """mkdir -p site && echo sandbox > site/file
python3 -m http.server --directory site {port} > log 2>&1 &
curl -s --retry 60 --retry-connrefused --retry-delay 1 {address}/file
"""
# fmt: off
ROWS = [
    ("http://localhost:{port}",  [],                    "by name"),
    ("http://127.0.0.1:{port}",  [],                    "by address"),
    ("http://localhost:{port}",  ["localhost:{port}"],  "an entry without `private` changes nothing"),
    ("http://localhost:{port}",  ["example.org"],       "beside another host"),
]
# fmt: on


@pytest.mark.threat("T130")
@pytest.mark.parametrize(("address", "hosts", "why"), ROWS, ids=[row[2] for row in ROWS])
def test_a_command_reaches_its_own_server(bench: Bench, port: int, address: str, hosts: list[str], why: str) -> None:
    """The port is that of a service of the machine, which must not get the request."""
    before = len(Server.asked)
    script = SERVE.format(port=port, address=address.format(port=port))
    answer = bench.run(script, hosts=[host.format(port=port) for host in hosts])
    assert answer["out"] == "sandbox\n", (why, answer)
    assert len(Server.asked) == before, why
    assert answer["connections"] == [], why


@pytest.mark.threat("T130")
def test_without_a_server_of_its_own_nothing_answers(bench: Bench, port: int) -> None:
    before = len(Server.asked)
    for hosts in ([], [f"localhost:{port}"]):
        answer = bench.run(f"curl -sS http://localhost:{port}/", hosts=hosts)
        assert answer["out"] == "", answer
        assert "connect" in answer["err"].lower(), answer
    assert len(Server.asked) == before


def test_a_private_entry_reaches_the_machine(bench: Bench, port: int) -> None:
    answer = bench.run(f"curl -sS http://127.0.0.1:{port}/", hosts=[f"127.0.0.1:{port} private"])
    assert answer["out"] == "the machine\n", answer
    assert answer["connections"][0][:2] == ["127.0.0.1", port]


def test_the_command_line_asks_nothing(tmp_path: Path, port: int) -> None:
    from tests.support.cli_harness import CliHarness

    harness = CliHarness(tmp_path)
    for folder in (harness.work, tmp_path / "home"):
        folder.mkdir()
    script = SERVE.format(port=port, address=f"http://localhost:{port}")
    done = harness.agent("exec", "--mode", "trust-project", "--unattended", script)
    assert (done.returncode, done.stdout) == (0, "sandbox\n"), done
