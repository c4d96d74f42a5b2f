"""Commands with equal rights share one network namespace; no other command reaches its ports."""

import os
import socket
from collections.abc import Iterator
from typing import Any

import pytest

from sandbox.inside import join_network
from sandbox.linux.shared_network import SharedNetwork
from tests.support.sandbox_bench import USERS, Bench, make


@pytest.fixture(scope="module", params=[f"{tier}-{user}" for tier in ("T1", "T2") for user in USERS])
def bench(request: pytest.FixtureRequest) -> Iterator[Bench]:
    tier, user = request.param.split("-")
    yield from make(user, tier=tier)


SERVE = """exec python3 -uc 'import socket
servers = [socket.create_server(("127.0.0.1", port)) for port in ({ports})]
print("ready")
while True:
    made, _ = servers[0].accept()
    made.sendall(b"hello")
    made.close()'
"""
READ = "exec 3<>/dev/tcp/127.0.0.1/8000 && cat <&3"
HOSTS = ["one.test"]
# fmt: off
OTHERS: list[tuple[dict[str, Any], bool, str]] = [
    ({},                                                  True,  "equal rights"),
    ({"limits": {"memory": 1 << 30, "cpu": 100}},         True,  "other limits only"),
    ({"env": {"PATH": "/usr/bin:/bin", "X": "1"}},        False, "another environment"),
    ({"hosts": HOSTS},                                    False, "a host"),
    ({"rights": "read-only", "hosts": HOSTS},             False, "only reading"),
    ({"counted": "helper"},                               False, "another session"),
]
# fmt: on


@pytest.mark.threat("T131")
def test_only_commands_with_equal_rights_reach_a_server(bench: Bench) -> None:
    assert bench.start("server", SERVE.format(ports="8000,"))["started"]
    assert bench.process_do("server", "until", text="ready")["alive"]
    for told, reached, why in OTHERS:
        answer = bench.run(READ, **told)
        assert (answer["out"] == "hello", answer["status"] == 0) == (reached, reached), (why, answer)
    assert bench.process_do("server", "ports")["ports"] == [8000]
    assert bench.process_do("server", "connect", port=8000)["received"] == "hello"
    bench.process_do("server", "end")
    again = bench.run(READ)
    assert again["out"] == "", "the server has ended"


WHO = "id -u; id -g; touch f; stat -c '%u %g' f; cp -p f g; cp -p /etc/passwd h; grep -E '^(Cap|NoNew|Seccomp:)' /proc/self/status"


@pytest.mark.threat("T131")
def test_a_command_that_joins_a_network_is_the_same_user(bench: Bench) -> None:
    """In bubblewrap the owner of the network is another user namespace, in which this user's number is 0."""
    before = bench.run(WHO)
    assert bench.start("server", SERVE.format(ports="8000,"))["started"]
    assert bench.process_do("server", "until", text="ready")["alive"]
    assert bench.run(READ)["out"] == "hello"
    beside = bench.run(WHO)
    bench.process_do("server", "end")
    assert before["status"] == 0, before
    assert (beside["status"], beside["out"], beside["err"]) == (0, before["out"], before["err"])


@pytest.mark.threat("T131")
def test_a_command_that_reads_shares_with_nobody(bench: Bench) -> None:
    """Not even with a command of the same rights."""
    told = {"rights": "read-only", "hosts": HOSTS}
    assert bench.start("reader", SERVE.format(ports="8000,"), **told)["started"]
    assert bench.process_do("reader", "until", text="ready")["alive"]
    assert bench.run(READ, **told)["out"] == ""
    bench.process_do("reader", "end")


@pytest.mark.threat("T131")
def test_a_connection_for_the_user_never_leaves_the_sandbox(bench: Bench) -> None:
    assert bench.start("server", SERVE.format(ports="8000,"))["started"]
    assert bench.process_do("server", "until", text="ready")["alive"]
    with socket.create_server(("127.0.0.1", 0)) as outside:
        port = outside.getsockname()[1]
        assert bench.process_do("server", "connect", port=port)["error"] == "Connection refused"
        outside.setblocking(False)
        with pytest.raises(BlockingIOError):
            outside.accept()
    bench.process_do("server", "end")
    assert "error" in bench.process_do("server", "connect", port=8000)


def asking(host: str) -> str:
    return f"curl -sS --max-time 20 http://{host}/"


@pytest.mark.threat("T131")
def test_each_command_has_a_proxy_of_its_own(bench: Bench) -> None:
    """Both are in one network, and each refused host is told of the command that asked for it."""
    script = f"{SERVE.format(ports='8000,').strip()} & read word; {asking('other.test')}; echo done; wait"
    assert bench.start("both", script, hosts=HOSTS)["started"]
    assert bench.process_do("both", "until", text="ready")["alive"]
    answer = bench.run(f"{READ}; {asking('another.test')}", hosts=HOSTS)
    assert answer["out"].startswith("hello"), answer
    assert [what for what, *_ in answer["violations"]] == ["host another.test is not on the allowlist"]
    bench.process_do("both", "write", text="go\n")
    told = bench.process_do("both", "until", text="done")
    assert told["so_far"] == ["host other.test is not on the allowlist"], told
    bench.process_do("both", "end")


@pytest.mark.threat("T131")
def test_no_command_can_take_the_place_of_the_proxy_of_another(bench: Bench) -> None:
    """A command that listens on the next ports gets no request: the next helper has a network of its own."""
    ports = ",".join(map(str, range(3129, 3140)))
    assert bench.start("thief", SERVE.format(ports=ports), hosts=HOSTS, env={"PATH": "/usr/bin:/bin"})["started"]
    assert bench.process_do("thief", "until", text="ready")["alive"]
    answer = bench.run(asking("other.test"), hosts=HOSTS, env={"PATH": "/usr/bin:/bin"})
    assert [what for what, *_ in answer["violations"]] == ["host other.test is not on the allowlist"], answer
    bench.process_do("thief", "end")


def test_a_network_ends_with_its_last_helper() -> None:
    network = SharedNetwork(tuple(shown := join_network.show()))
    network.enter("first")
    network.enter("second", network.free_port())
    network.leave("first")
    assert not network.ended
    assert network.handles
    network.leave("second")
    network.leave("second")
    assert (network.ended, network.handles, network.listening()) == (True, (), ())
    for handle in shown:
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(handle)
