"""Tests of hosted sessions from inside a real sandbox: a command reaches neither its own session nor another process."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.hosted import HostedHarness, hosted_harness, runs, says

PROBE = """
import json, os, socket
found = {}
def tried(name, work):
    try:
        found[name] = repr(work())
    except OSError as error:
        found[name] = type(error).__name__
def connect(path):
    os.chdir(os.path.dirname(path))
    client = socket.socket(socket.AF_UNIX)
    client.connect(os.path.basename(path))
    client.sendall(b'{"type":"attach","who":"x","scope":"prompt"}\\n')
    return client.recv(100)
state, id, pid = json.load(open("places.json"))
here = os.getcwd()
tried("list", lambda: os.listdir(state))
tried("session", lambda: connect(f"{state}/resident/sessions/{id}"))
tried("resident", lambda: connect(f"{state}/resident/control"))
tried("by its process", lambda: connect(f"/proc/{pid}/root{state}/resident/sessions/{id}"))
def bind(path):
    os.chdir(os.path.dirname(path))  # the whole path may be too long for a socket
    socket.socket(socket.AF_UNIX).bind(os.path.basename(path))
tried("by a new socket", lambda: bind(f"{state}/resident/sessions/{'0' * 16}"))
tried("signal", lambda: os.kill(int(pid), 0))
with open(f"{here}/found.json", "w") as file:
    json.dump(found, file)
"""


@pytest.fixture
def user(tmp_path: Path) -> Iterator[HostedHarness]:
    with hosted_harness(tmp_path) as made:
        yield made


@pytest.mark.threat("T277")
def test_a_command_reaches_no_session(user: HostedHarness) -> None:
    target = user.start("--model", user.model(runs("touch made"), says("done")))
    user.wait("question", target)
    (user.cli.work / "probe.py").write_text(PROBE)
    places = [str(user.cli.base / "state"), target, str(user.pid(target))]
    (user.cli.work / "places.json").write_text(json.dumps(places))
    model = user.model(runs("python3 probe.py"), says("done"))
    id = user.start("--model", model, "--mode", "trust-project")
    user.wait("idle", id)
    found = json.loads((user.cli.work / "found.json").read_text())
    assert set(found) == {"list", "session", "resident", "by its process", "by a new socket", "signal"}
    assert set(found.values()) <= {
        "FileNotFoundError",
        "PermissionError",
        "NotADirectoryError",
        "ProcessLookupError",
    }, found
    assert user.wait("question", target)["clients"] == []
    assert not (user.folder / ("0" * 16)).exists()
