"""Tests of background processes at the screen and from another terminal, with the real sandbox and a scripted model."""

import json
import re
import socket
import subprocess
import urllib.request

import pytest

from tests.support import forked_agent
from tests.support.screen_harness import AGENT, ScreenHarness, leave

DONE: list[dict[str, object]] = [{"text": "It runs."}]


def background(command: str) -> dict[str, object]:
    return {"calls": [{"name": "bash", "arguments": {"command": command, "background": True}}]}


def agent(harness: ScreenHarness, *words: str) -> "subprocess.CompletedProcess[str]":
    return forked_agent.run([AGENT, *words], env=harness.environ, cwd="/", capture_output=True, text=True)


def test_processes_are_listed_read_and_stopped(harness: ScreenHarness) -> None:
    window = harness.start([background("echo of the model; sleep 600"), *DONE], "--mode", "trust-project")
    window.type("go", "Enter")
    window.until("done (2 requests)")
    window.until("· 1 process ·")
    window.type("!echo of the user; sleep 600 &", "Enter")
    window.until("· 2 processes ·")
    window.type("/processes", "Enter")
    window.until("p1   running")
    window.type("/processes p2", "Enter")
    window.until("\nof the user")
    listed = [json.loads(line) for line in agent(harness, "processes", "--json").stdout.splitlines()]
    assert [(row["id"], row["running"]) for row in listed] == [("p1", True), ("p2", True)]
    assert agent(harness, "processes", "output", "p1").stdout == "of the model\n"
    window.type("/processes stop p1", "Enter")
    window.until("p1   ended (cancelled)")
    window.until("· 1 process ·")
    window.type("/processes stop all", "Enter")
    window.until("1 process stopped")
    window.gone("· 1 process ·")
    leave(window)
    assert list((harness.state / "control").iterdir()) == [], "the socket is gone with the session"


@pytest.mark.threat("T156")
@pytest.mark.threat("T157")
def test_a_port_is_listed_and_forwarded(harness: ScreenHarness) -> None:
    (harness.work / "page").write_text("served from the sandbox\n")
    window = harness.start([background("python3 -m http.server 3000"), *DONE], "--mode", "trust-project")
    window.type("go", "Enter")
    window.until("done (2 requests)")
    window.until("· 1 process, port 3000 ·")
    window.type("/ports forward 3000 0", "Enter")
    opened = re.search(r"http://127\.0\.0\.1:([0-9]+) leads", window.until("leads to port 3000 of p1"))
    assert opened is not None
    port = int(opened[1])
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/page") as answer:
        assert answer.read() == b"served from the sandbox\n"
    rows = [json.loads(line) for line in agent(harness, "ports", "--json").stdout.splitlines()]
    assert [(row["port"], row["forwarded"]) for row in rows] == [(3000, [port])]
    (socket_path,) = (harness.state / "control").iterdir()
    (harness.work / "look.py").write_text(f"import os; print('the socket:', os.path.exists({str(socket_path)!r}))")
    window.type("!python3 look.py", "Enter")
    window.until("the socket: False")
    window.type("/processes stop p1", "Enter")
    window.until(f"127.0.0.1:{port}, forwarded to port 3000 of p1, is closed")
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port))
    leave(window)
