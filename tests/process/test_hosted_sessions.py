"""Tests of hosted sessions as processes: clients, answers, the record, and every way in which a process can end."""

import json
import os
import signal
import socket
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from runner.frontends.hosted.address import hosted_sessions, remove_dead
from runner.frontends.hosted.clients import MOST_CLIENTS
from runner.state.socket_path import short_path
from tests.support.cli_harness import AGENT
from tests.support.forked_agent import Process
from tests.support.hosted import HostedHarness, hosted_harness, runs, says
from tests.support.marked_processes import new_nap, processes
from tests.support.server_session import HOSTILE
from tests.support.waiting import has_ended, until

NOBODY = 65534


@pytest.fixture
def user(tmp_path: Path) -> Iterator[HostedHarness]:
    with hosted_harness(tmp_path) as made:
        yield made


def asked(user: HostedHarness, *turns: dict[str, object], script: str = "touch made") -> str:
    """Start a session whose model asks to run `script`, and return its ID when the question is open."""
    id = user.start("--model", user.model(runs(script), *(turns or (says("done"),))))
    user.wait("question", id)
    return id


@pytest.fixture(scope="module")
def asked_once(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The socket of a session whose question nobody answers."""
    with hosted_harness(tmp_path_factory.mktemp("asked")) as user:
        yield user.folder / asked(user)


def answers(user: HostedHarness) -> list[dict[str, Any]]:
    """Return the answers in the record."""
    found = [row.get("answer") for row in user.cli.audit("--limit", "100")]
    return [each for each in found if isinstance(each, dict)]


def test_work_goes_on_while_nobody_is_attached(user: HostedHarness) -> None:
    id = user.start("--model", user.model(runs("touch made"), says("done")), "--mode", "trust-project")
    user.wait("idle", id)
    assert (user.cli.work / "made").exists()
    until(lambda: not user.rows()[0]["clients"])  # the description follows a moment after the clients
    (row,) = user.rows()
    assert (row["title"], row["mode"], row["clients"], row["questions"]) == ("begin", "trust-project", [], [])
    assert "> begin" in user.cli.agent("logs", id[:6]).stdout
    assert user.cli.agent("stop", id[:6]).stdout == f"{id[:8]}  ended\n"
    assert user.rows() == []
    assert not list(user.folder.glob(f"*{id}*"))
    assert "begin" in user.cli.agent("logs", id[:6]).stdout, "from its file"


@pytest.mark.threat("T279")
def test_a_question_is_answered_once_and_the_record_says_by_whom(user: HostedHarness) -> None:
    id = asked(user)
    first, second = user.client(id, "terminal /dev/pts/7"), user.client(id, "terminal /dev/pts/8")
    question = second.until("question_asked")
    assert first.until("question_asked") == question, "a question from before is shown to a client that attaches"
    second.say("answer", id=question["id"], answer="yes")
    closed = first.until("question_closed")
    assert (closed["id"], closed["answer"], closed["by"]) == (question["id"], "yes", "terminal /dev/pts/8")
    first.say("answer", id=question["id"], answer="no")
    error = first.until("error")
    assert (error["input_line"], "no open question" in error["problem"]["why"]) == (2, True)
    assert first.until("question_answered")["by"] == "terminal /dev/pts/8"
    first.until("run_ended")
    second.until("run_ended")
    assert (user.cli.work / "made").exists()
    assert not [event for event in second.events if event["type"] == "error"], "the error is for one client alone"
    (answer,) = answers(user)
    assert (answer["by"], answer["client"], answer["process"]) == ("client", "terminal /dev/pts/8", os.getpid())
    record = next(row["id"] for row in user.cli.audit("--limit", "100") if row.get("answer"))
    shown = user.cli.agent("audit", "show", str(record), "--text").stdout
    assert f"answered from terminal /dev/pts/8, process {os.getpid()}" in shown


@pytest.mark.threat("T279")
def test_nonsense_and_late_answers_leave_the_question_open(user: HostedHarness) -> None:
    id = asked(user)
    client = user.client(id)
    name = client.until("question_asked")["id"]
    bad: list[dict[str, object]] = [
        {"id": "q99", "answer": "yes"}, {"id": name, "answer": "YES"}, {"id": name, "answer": ""},
        {"id": name, "answer": "yes", "feedback": "x"}, {"id": name, "answer": "a"}, {"id": name, "answer": "z 7d"},
        {"id": name, "answer": "p 9999999d"}, {"id": name}, {"id": name, "answer": True},
        {"id": name, "answer": "edit"}, {"id": name, "answer": "yes", "values": {}},
    ]  # fmt: skip
    for each in bad:
        client.say("answer", **each)
    client.send(b'{"type": "answer", "id": "%s", "answer": "yes"\n' % name.encode())
    client.send(b"\xff\xfe\n" + b"[" * 100_000 + b"\n")
    client.until("error", len(bad) + 3)
    assert user.wait("question", id)["questions"] == [name]
    assert not (user.cli.work / "made").exists()
    client.say("interrupt")
    assert client.until("question_closed")["by"] == ""
    client.until("run_ended")
    client.say("answer", id=name, answer="yes")
    client.until("error", len(bad) + 4)
    assert not (user.cli.work / "made").exists()
    assert answers(user) == []


@pytest.mark.threat("T278")
def test_a_scope_bounds_what_a_client_may_send(user: HostedHarness) -> None:
    id = asked(user, runs("touch second"))
    view, answer = user.client(id, "viewer", "view"), user.client(id, "phone", "answer")
    name = answer.until("question_asked")["id"]
    lines: list[tuple[str, dict[str, object]]] = [
        ("prompt", {"text": "x"}), ("steer", {"text": "x"}), ("follow_up", {"text": "x"}), ("take_back", {}),
        ("interrupt", {}), ("mode", {"mode": "dangerously"}), ("model", {"model": "scripted:x"}),
        ("thinking", {"level": "high"}), ("command", {"text": "/mode dangerously"}), ("shell", {"command": "touch x"}),
        ("quit", {}), ("detach_others", {}), ("attach", {"who": "x", "scope": "prompt"}),
    ]  # fmt: skip
    view.say("answer", id=name, answer="yes")
    for client in (view, answer):
        for type, fields in lines:
            client.say(type, **fields)
        client.send(b'{"type": "prompt", "type": "answer", "id": "q1", "answer": "yes"}\n{"type": ["answer"]}\n')
    assert view.until("error", len(lines) + 3)["problem"]["why"] == "this client may send nothing"
    answer.until("error", len(lines) + 2)
    row = user.wait("question", id)
    assert (row["mode"], row["clients"]) == ("default", ["viewer", "phone"])
    answer.say("answer", id=name, answer="yes")
    view.until("question_asked", 2)
    assert (user.cli.work / "made").exists()
    assert not (user.cli.work / "x").exists()


PIECE = 100_000  # bytes of output


@pytest.mark.threat("T280")
@pytest.mark.thorough
def test_a_client_that_reads_nothing_is_dropped_and_the_session_goes_on(user: HostedHarness) -> None:
    # In pieces, each after the one before was read, so that only the client that does not read is far behind. An event counts
    # 64 KiB at least, so that many small ones are as much as few large ones: the pieces are so short that one in events of
    # 4 KiB stays far below the 8 MiB of a client that reads.
    piece = f"yes '' | head -c {PIECE}; until [ -e read$i ]; do sleep 0.01; done"
    output = f"for i in $(seq 120); do {piece}; done"

    read = 0  # bytes of output
    pieces = 0

    def seen(event: dict[str, Any]) -> None:
        nonlocal read, pieces
        read += len(event["text"]) if event["type"] == "output" else 0
        while pieces < read // PIECE:
            pieces += 1
            (user.cli.work / f"read{pieces}").touch()

    model = user.model(says("ready"), runs(output), runs("touch made"), says("done"))
    id = user.start("--model", model, "--mode", "trust-project")
    user.wait("idle", id)
    deaf = user.client(id, "deaf")
    other = user.client(id, "other")
    other.say("prompt", text="begin")
    left = other.read_to("client_detached", seen)
    assert (left["who"], left["why"]) == ("deaf", "it does not read what the session sends")
    other.read_to("run_ended", seen)
    assert (user.cli.work / "made").exists()
    assert user.wait("idle", id)["clients"] == ["other"]
    assert deaf.socket.fileno() >= 0


@pytest.mark.threat("T280")
def test_a_client_that_floods_or_never_speaks_disturbs_nobody(user: HostedHarness) -> None:
    id = asked(user)
    silent = user.client(id, scope="")
    flood = user.client(id, "flood")
    flood.socket.setblocking(False)
    for _ in range(200):
        try:
            flood.socket.send(b'{"type": "nonsense"}\n' * 10_000)
        except (BlockingIOError, ConnectionError):  # full, or the session has dropped the client
            break
    client = user.client(id, "calm")
    client.say("answer", id=client.until("question_asked")["id"], answer="yes")
    client.until("run_ended")
    many = [user.client(id, f"c{number}") for number in range(MOST_CLIENTS + 1)]
    many[-1].rest()
    assert "accepts no further client" in many[-1].events[-1]["problem"]["what"]
    assert silent.socket.fileno() >= 0


def test_clients_are_dropped_by_detach_and_the_session_stays(user: HostedHarness) -> None:
    id = asked(user)
    first, second = user.client(id, "a"), user.client(id, "b")
    first.until("question_asked")
    second.until("question_asked")
    assert user.cli.agent("detach", id[:5]).stdout == f"{id[:8]}  2 clients detached\n"
    assert first.rest()[-1]["type"] == second.rest()[-1]["type"] == "detached"
    assert user.wait("question", id)["clients"] == []


def test_the_answer_to_a_plan_and_to_a_list_names_its_client(user: HostedHarness) -> None:
    plan: dict[str, object] = {"calls": [{"name": "propose_plan", "arguments": {"plan": "1. touch made"}}]}
    id = user.start("--model", user.model(plan, says("done")), "--mode", "plan")
    user.wait("question", id)
    client, other = user.client(id, "terminal /dev/pts/5"), user.client(id, "other", "view")
    client.say("answer", id=client.until("pick_wanted")["id"], answer="default")
    client.until("run_ended")
    (answer,) = answers(user)
    assert (answer["yes"], answer["client"], answer["process"]) == (True, "terminal /dev/pts/5", os.getpid())
    client.say("command", text="/mode")
    client.say("answer", id=client.until("pick_wanted", 2)["id"], answer="no")
    assert other.until("question_closed", 2)["by"] == "terminal /dev/pts/5"
    assert user.wait("idle", id)["mode"] == "default"


@pytest.mark.threat("T279")
def test_the_answer_to_questions_of_the_model_names_its_client(user: HostedHarness) -> None:
    question = {"title": "Colour", "question": "which one?", "choices": [{"label": "red"}, {"label": "blue"}]}
    ask: dict[str, object] = {"calls": [{"name": "ask_user", "arguments": {"questions": [question]}}]}
    id = user.start("--model", user.model(ask, says("done")))
    user.wait("question", id)
    client = user.client(id, "terminal /dev/pts/6")
    client.say("answer", id=client.until("input_wanted")["id"], answer="yes", values={"q1": "blue"})
    client.until("run_ended")
    record = next(row["id"] for row in user.cli.audit("--limit", "100") if row.get("tool") == "ask_user")
    shown = json.loads(user.cli.agent("audit", "show", str(record), "--json").stdout)["outcome"]
    assert "blue" in shown["answered"]
    assert shown["answer"] == {"client": "terminal /dev/pts/6", "process": os.getpid()}


@pytest.mark.threat("T279")
def test_the_answer_to_a_form_of_a_tool_server_names_its_client(user: HostedHarness) -> None:
    user.cli.agent(
        "mcp", "add", "one", "--read", str(HOSTILE.parent), "--", sys.executable, "-u", str(HOSTILE), "plain"
    )
    pinned = user.cli.agent("mcp", "pin", "one", "--yes")
    assert pinned.returncode == 0, pinned.stderr
    ask: dict[str, object] = {"calls": [{"name": "mcp__one__ask", "arguments": {"field": "colour"}}]}
    id = user.start("--model", user.model(ask, says("done")), "--mode", "dangerously")
    user.wait("question", id)
    client = user.client(id, "terminal /dev/pts/7")
    client.say("answer", id=client.until("input_wanted")["id"], answer="yes", values={"colour": "walnut"})
    client.until("run_ended")
    (record,) = [row for row in user.cli.audit("--limit", "100") if row["kind"] == "replied"]
    assert (record["verdict"], record["action"]["fields"], record["action"]["server"]) == ("allow", ["colour"], "one")
    assert (record["answer"]["client"], record["answer"]["process"]) == ("terminal /dev/pts/7", os.getpid())
    shown = user.cli.agent("audit", "show", str(record["id"]), "--json").stdout
    assert "walnut" not in shown


def test_an_unattended_session_refuses_its_questions(user: HostedHarness) -> None:
    id = user.start("--unattended", "--model", user.model(runs("touch made"), says("done")))
    row = user.wait("idle", id)
    assert row["unattended"] is True
    assert not (user.cli.work / "made").exists()
    assert "denied" in user.cli.agent("logs", id).stdout


@pytest.mark.parametrize("how", ["kill", "term", "stop"])
@pytest.mark.threat("T281")
def test_no_command_outlives_its_session_and_the_session_can_be_resumed(user: HostedHarness, how: str) -> None:
    marker = new_nap()
    model = user.model(runs(f"touch begun; sleep {marker}"), says("done"))
    id = user.start("--model", model, "--mode", "trust-project")
    until(lambda: processes(marker))
    pid = user.pid(id)
    if how == "stop":
        assert user.cli.agent("stop", id).stdout == f"{id[:8]}  ended\n"
    else:
        os.kill(pid, signal.SIGKILL if how == "kill" else signal.SIGTERM)
    until(lambda: not processes(marker))
    until(lambda: has_ended(pid))
    assert user.rows() == []
    assert not list(user.folder.glob(f"*{id}*")), "a look removes what was left"
    done = user.cli.agent(
        "attach", "--json", id[:8], "--model", user.model(says("again")), stdin=b'{"type": "prompt", "text": "go on"}\n'
    )
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert lines[0]["id"] == id
    assert next(line for line in lines if line["type"] == "session_resumed")["first"] == "begin"
    user.wait("idle", id)
    assert "again" in user.cli.agent("logs", id).stdout
    assert user.cli.agent("audit", "verify").returncode == 0


@pytest.mark.threat("T281")
def test_the_end_of_the_lifeline_ends_the_session_and_its_commands(user: HostedHarness) -> None:
    marker = new_nap()
    read, write = os.pipe()
    model = user.model(runs(f"sleep {marker}"), says("done"))
    words = [AGENT, "serve", "session", "--model", model, "--mode", "trust-project", "--lifeline", str(read)]
    host = subprocess.Popen(words, cwd=user.cli.work, env=user.cli.environ, pass_fds=[read], stdin=subprocess.DEVNULL)
    os.close(read)
    until(user.rows, of=host)
    client = user.client(user.rows()[0]["id"])
    client.say("prompt", text="begin")
    until(lambda: processes(marker))
    os.close(write)
    until(lambda: not processes(marker))
    assert host.wait() == 130
    assert user.rows() == []


def test_the_end_of_a_client_never_affects_the_session(user: HostedHarness) -> None:
    id = asked(user)
    words = [AGENT, "attach", "--json", id]
    clients = [
        Process(words, env=user.cli.environ, cwd=user.cli.work, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        for _ in range(3)
    ]
    for each in clients:
        assert each.stdout is not None
        assert json.loads(each.stdout.readline())["type"] == "attached"
        each.kill()
        each.communicate()
    torn = user.client(id)
    torn.send(b'{"type": "answer", "id": "q1", "ans')
    torn.close()
    until(lambda: not user.rows()[0]["clients"])
    assert user.wait("question", id)["id"] == id


@pytest.mark.threat("T281")
def test_only_what_a_dead_session_left_is_removed(user: HostedHarness) -> None:
    id = asked(user)
    dead = "0123456789abcdef"
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as left, short_path(user.folder / dead) as path:
        left.bind(path)
    for name in (f"{dead}.json", "other", ".hidden"):
        (user.folder / name).write_text("{}")
    remove_dead(user.folder, id)
    assert [each.id for each in hosted_sessions(user.cli.environ)] == [id]
    assert (user.folder / id).exists()
    assert not (user.folder / dead).exists()
    assert not (user.folder / f"{dead}.json").exists()
    assert (user.folder / "other").exists()


def test_a_session_that_cannot_start_says_why(user: HostedHarness) -> None:
    done = user.cli.agent("run", "--detach", "--model", "scripted:/missing.toml", "hi")
    assert done.returncode == 2
    assert "missing.toml" in done.stderr
    assert not list(user.folder.glob(".start-*"))
    done = user.cli.agent("run", "--detach", "--json", "hi")
    assert (done.returncode, "exclude each other" in done.stderr) == (2, True)
    done = user.cli.agent("attach", "ffff")
    assert (done.returncode, "agent logs" in done.stderr) == (2, True)
    done = user.cli.agent("stop", "ffff")
    assert (done.returncode, "no running session" in done.stderr) == (2, True)


@pytest.mark.thorough
def test_a_session_without_clients_and_work_ends_after_its_time(user: HostedHarness) -> None:
    config = user.cli.base / "config" / "ringfence"
    config.mkdir(parents=True)
    (config / "config.toml").write_text("version = 1\n[hosted]\nidle = 1\n")
    waiting = asked(user)
    id = user.start("--model", user.model(says("done")))
    until(lambda: has_ended(user.hosts[-1]))
    assert id not in [row["id"] for row in user.rows()]
    assert [row["id"] for row in user.rows()] == [waiting], "a question is work that waits"


@pytest.mark.threat("T277")
def test_the_socket_is_private(user: HostedHarness) -> None:
    id = asked(user)
    for path, mode in (
        (user.folder, 0o700),
        (user.folder.parent, 0o700),
        (user.folder / id, 0o600),
        (user.folder / f"{id}.json", 0o600),
    ):
        assert stat.S_IMODE(path.lstat().st_mode) == mode


CONNECT = """
import json, os, socket, sys
if len(sys.argv) > 2:
    os.setgroups([]); os.setgid(int(sys.argv[2])); os.setuid(int(sys.argv[2]))
client = socket.socket(socket.AF_UNIX)
try:
    os.chdir(os.path.dirname(sys.argv[1]))
    client.connect(os.path.basename(sys.argv[1]))
    try:
        client.sendall(b'{"type":"attach","who":"x","scope":"prompt"}\\n{"type":"answer","id":"q1","answer":"yes"}\\n')
    except BrokenPipeError:  # refused before the line was sent: the reason can still be read
        pass
    print(client.makefile("rb").readline().decode().strip() or "closed")
except OSError as error:
    print(type(error).__name__)
"""


@pytest.mark.threat("T277")
@pytest.mark.skipif(os.geteuid() != 0, reason="only root becomes another user")
def test_another_user_reaches_nothing(user: HostedHarness) -> None:
    id = asked(user)
    words = [sys.executable, "-c", CONNECT, str(user.folder / id), str(NOBODY)]
    assert subprocess.run(words, capture_output=True, text=True, timeout=60).stdout == "PermissionError\n"
    opened = [user.folder, *user.folder.parents]
    before = {path: stat.S_IMODE(path.stat().st_mode) for path in opened}
    try:
        for path in opened:
            path.chmod(before[path] | 0o011)
        (user.folder / id).chmod(0o666)
        found = subprocess.run(words, capture_output=True, text=True, timeout=60).stdout
    finally:
        for path, mode in before.items():
            path.chmod(mode)
    assert "not a program of this user outside of a sandbox" in found
    assert user.wait("question", id)["clients"] == []


@pytest.mark.threat("T277")
@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes a namespace without a helper")
@pytest.mark.parametrize("space", ["--mount", "--net", "--pid", "--uts", "--ipc"])
def test_a_process_in_another_namespace_is_refused_at_an_open_socket(asked_once: Path, space: str) -> None:
    words = ["unshare", space, "--fork", sys.executable, "-c", CONNECT, str(asked_once)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60)
    if "Operation not permitted" in done.stderr:
        pytest.skip("this machine makes no namespaces")
    assert "not a program of this user outside of a sandbox" in done.stdout, done.stderr


def test_two_sessions_are_told_apart_and_both_end(user: HostedHarness) -> None:
    first, second = asked(user), asked(user)
    done = user.cli.agent("attach", "--json")
    assert done.returncode == 2
    assert "several run in this workspace" in done.stderr
    shown = user.cli.agent("stop", "--all").stdout
    assert sorted(shown.split("\n")) == ["", *sorted(f"{id[:8]}  ended" for id in (first, second))]
    assert user.rows() == []


@pytest.fixture
def resident_user() -> Iterator[HostedHarness]:
    """A user whose state folder has a path short enough for the sockets of the resident process."""
    with tempfile.TemporaryDirectory(prefix="ringfence-", dir="/tmp") as folder, hosted_harness(Path(folder)) as made:
        yield made


@pytest.mark.threat("T281")
@pytest.mark.thorough
def test_the_resident_process_holds_the_sessions_and_they_end_with_it(resident_user: HostedHarness) -> None:
    user = resident_user
    marker = new_nap()
    model = user.model(runs(f"sleep {marker}"), says("done"))
    done = user.cli.agent("run", "--detach", "--model", model, "--mode", "trust-project", "begin")
    assert (done.returncode, len(done.stdout)) == (0, 17), done.stderr
    id = done.stdout.strip()
    until(lambda: processes(marker))
    status = json.loads(user.cli.agent("serve", "--status", "--json").stdout)
    pid = user.pid(id)
    assert [(each["kind"], each["pid"]) for each in status["processes"]] == [("session", pid)]
    os.kill(status["pid"], signal.SIGKILL)
    until(lambda: not processes(marker))
    until(lambda: has_ended(pid))
    assert user.rows() == []
    done = user.cli.agent("attach", "--json", id, "--model", user.model(says("again")), stdin=b"")
    assert json.loads(done.stdout.splitlines()[0])["id"] == id
    assert user.cli.agent("stop", id).stdout == f"{id[:8]}  ended\n"
