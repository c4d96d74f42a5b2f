"""Processes that stay beside later commands, and streamed standard input, in containers of a real daemon."""

import asyncio
import os
import shutil
import signal
import socket
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from policy.model.action import RunScript
from policy.model.verdict import _MINT, Limits, Permit, Rights, Terms
from sandbox.backend import ContainerOptions, Outcome, SandboxUnavailable
from sandbox.container import backend as container_backend
from sandbox.container import container as container_module
from sandbox.container.backend import Container
from sandbox.container.processes import Processes
from sandbox.linux import launch
from sandbox.workspace.protected_paths import Scan
from tests.sandbox.test_staying_processes import wait_until_gone
from tests.services.test_container import containers
from tests.support.container_bench import Containers, Dock
from tests.support.marked_processes import new_nap, processes
from tests.support.sandbox_bench import USERS
from tests.support.waiting import until, until_async

pytestmark = pytest.mark.thorough  # another backend than the default one


@pytest.fixture(scope="module", params=USERS)
def bench(request: pytest.FixtureRequest, docked: Dock) -> Iterator[Containers]:
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        base = Path(folder)
        base.chmod(0o755)
        made = Containers(request.param, base, docked)
        try:
            yield made
        finally:
            made.close()


def test_a_process_is_fed_read_and_ended_while_commands_run(bench: Containers) -> None:
    sleeps = new_nap()
    script = f"echo ready; while read line; do echo got $line; done; echo over; sleep {sleeps}"
    assert bench.start("echo", script)["started"]
    assert bench.process_do("echo", "until", text="ready\n")["alive"]
    for number in range(3):
        assert bench.run(f"echo {number}")["out"] == f"{number}\n"
    bench.process_do("echo", "write", text="one\n")
    assert bench.process_do("echo", "until", text="got one\n")["out"] == "ready\ngot one\n"
    bench.process_do("echo", "close")
    bench.process_do("echo", "until", text="over\n")
    assert bench.process_do("echo", "write", text="late\n")["broken"]
    ended = bench.process_do("echo", "end")
    assert (ended["status"], ended["ended"], ended["alive"]) == (137, "cancelled", False)
    wait_until_gone(sleeps)
    assert bench.process_do("echo", "write", text="late\n")["broken"]


@pytest.mark.parametrize(
    ("argv", "status"),
    [(["bash", "-c", "exit 3"], 3), (["bash", "-c", "kill -TERM $$"], 143), (["no-such-program"], 127)],
    ids=["the status of the program", "128 and the number of the signal", "a missing program, as a shell"],
)
def test_the_status_of_a_process_that_ends(bench: Containers, argv: list[str], status: int) -> None:
    action = {"kind": "RunArgv", "argv": argv, "cwd": str(bench.workspace)}
    assert bench.ask(action, process={"do": "start", "name": "short"})["started"]
    ended = bench.process_do("short", "wait")
    assert (ended["status"], bool(ended["problem"])) == (status, status == 127)


def test_a_signal_reaches_the_whole_tree(bench: Containers) -> None:
    inner = "trap 'echo inner; exit' USR1; echo set; while :; do sleep 0.05; done"
    script = f"({inner}) & trap 'echo outer; wait; exit 7' USR1; echo ready; while :; do sleep 0.05; done"
    bench.start("trap", script)
    for text in ("set", "ready"):  # each of the two has its trap
        bench.process_do("trap", "until", text=text)
    bench.process_do("trap", "signal", number=int(signal.SIGUSR1))
    ended = bench.process_do("trap", "wait")
    assert (ended["status"], sorted(ended["out"].split())) == (7, ["inner", "outer", "ready", "set"])


@pytest.mark.threat("T14")
def test_limits_of_resources_hold_and_those_of_commands_do_not(bench: Containers) -> None:
    script = "head -c 500000 /dev/zero | tr '\\0' x; sleep 0.5; echo done; read x; for i in 1 2 3 4; do while :; do :; done & done; wait"
    bench.start("burn", script, limits={"wall": 0.2, "output": 100, "cpu": 2})
    assert bench.process_do("burn", "until", text="done")["alive"]
    bench.process_do("burn", "write", text="\n")
    ended = bench.process_do("burn", "wait")
    assert (ended["status"], ended["ended"], len(ended["out"])) == (137, "cpu", 500_000 + len("done\n"))


@pytest.mark.threat("T160")
def test_a_terminal_of_the_container(bench: Containers) -> None:
    wait = "until [ '%s' = \"$(stty size)\" ]; do sleep 0.05; done; echo %s;"
    script = f"{wait % ('30 99', 'first')} {wait % ('11 22', 'second')} read a; trap 'echo INT' INT; sh -c 'echo on; exec sleep 9999';"
    bench.start("screen", f"{script} read b; echo got $b; cat; exit 5", terminal=(30, 99))
    bench.process_do("screen", "until", text="first\r\n")
    bench.process_do("screen", "resize", size=[11, 22])
    bench.process_do("screen", "until", text="second\r\n")
    # Ctrl-P and Ctrl-Q would end the stream if the daemon obeyed them.
    bench.process_do("screen", "write", text="\x10\x11\n")
    bench.process_do("screen", "until", text="on\r\n")
    bench.process_do("screen", "write", text="\x03")
    assert "INT" in bench.process_do("screen", "until", text="INT")["out"]
    bench.process_do("screen", "write", text="word\n")
    assert "got word" in bench.process_do("screen", "until", text="got word")["out"]
    bench.process_do("screen", "close")
    assert bench.process_do("screen", "wait")["status"] == 5


@pytest.mark.threat("T128")
def test_a_new_auto_run_file_ends_a_process(bench: Containers) -> None:
    told = {"locked": [".vscode/**"]}
    bench.start("auto", "echo ready; read x; mkdir .vscode; echo {} > .vscode/tasks.json; sleep 9999", **told)
    bench.process_do("auto", "until", text="ready")
    bench.process_do("auto", "write", text="\n")
    ended = bench.process_do("auto", "wait")
    assert ended["ended"] == "watch", ended
    assert any("tasks.json" in path for _, path, *_ in ended["violations"]), ended
    assert not (bench.workspace / ".vscode" / "tasks.json").exists()


@pytest.mark.threat("T127")
@pytest.mark.threat("T128")
def test_a_file_that_its_mounts_do_not_cover_ends_a_process(bench: Containers) -> None:
    told = {"hidden": ["*.pem"], "locked": [".vscode/**"]}
    secret, settings = bench.workspace / "late.pem", bench.workspace / ".vscode"
    settings.mkdir(exist_ok=True)
    bench.own(settings)
    assert bench.start("stays", "echo ready; sleep 9999", **told)["started"]
    bench.process_do("stays", "until", text="ready")
    secret.write_text("x")
    bench.own(secret)
    ended = bench.process_do("stays", "wait")
    assert ended["ended"] == "exposed", ended
    assert "is a secret file that appeared while the process ran" in ended["violations"][-1][0]
    secret.unlink()
    assert bench.start("stays", "echo ready; sleep 9999", **told)["started"]
    bench.process_do("stays", "until", text="ready")
    approved = {**told, "write": [str(settings / "settings.json")]}
    bench.ask({"kind": "WriteFile", "path": str(settings / "settings.json"), "content": "{}"}, **approved)
    assert bench.process_do("stays", "wait")["ended"] == "exposed"
    shutil.rmtree(settings)


@pytest.mark.whole_matrix("only root may enter the network of a container")
def test_ports_and_a_connection_to_one(bench: Containers) -> None:
    server = "import socket; s = socket.create_server(('127.0.0.1', 0)); print(s.getsockname()[1], flush=True)"
    bench.start("server", f"python3 -c \"{server}; c, _ = s.accept(); c.sendall(b'hello'); input()\"")
    port = int(bench.process_do("server", "until", text="\n")["out"])
    assert bench.process_do("server", "ports")["ports"] == [port]
    answer = bench.process_do("server", "connect", port=port)
    if bench.user == "nobody":  # only root may enter the network of a container
        assert "not permitted" in answer["error"] or "denied" in answer["error"], answer
    else:
        assert answer["received"] == "hello", answer
    ended = bench.process_do("server", "end")
    assert ended["ended"] == "cancelled"
    assert bench.process_do("server", "ports")["ports"] == []
    assert "error" in bench.process_do("server", "connect", port=port)


@pytest.mark.threat("T162")
def test_commands_with_equal_rights_share_a_network(bench: Containers, docked: Dock) -> None:
    """The server stays reachable when the container that was the first in the network has ended."""
    server = "import socket; s = socket.create_server(('127.0.0.1', 0)); print(s.getsockname()[1], flush=True)"
    answering = "while True: s.accept()[0].sendall(b'hello\\n')"
    told: dict[str, Any] = {"env": {"PATH": "/usr/bin:/bin", "HOME": str(bench.home), "TMPDIR": "/tmp", "OWN": "1"}}
    before = set(containers(docked))
    assert bench.run("true", **told)["status"] == 0
    (first,) = set(containers(docked)) - before
    bench.start("server", f'exec python3 -c """{server}\n{answering}"""', limits={"pids": 88}, **told)
    port = int(bench.process_do("server", "until", text="\n")["out"])
    ask = f"exec 3<> /dev/tcp/localhost/{port} && read line <&3 && echo $line; hostname"
    assert bench.run(ask, **told)["out"] == "hello\nsandbox\n"
    assert bench.run("echo begun; sleep 9999", cancel="begun", **told)["cancelled"]
    until(lambda: first not in containers(docked))
    assert bench.run(ask, limits={"pids": 77}, **told)["out"] == "hello\nsandbox\n"
    for other in ({"rights": "read-only"}, {"env": {**told["env"], "OWN": "2"}}):
        assert "hello" not in bench.run(ask, **{**told, **other})["out"], other
    assert bench.process_do("server", "end")["ended"] == "cancelled"


@pytest.mark.threat("T59")
@pytest.mark.threat("T126")
@pytest.mark.parametrize("terminal", [None, (24, 80)], ids=["pipes", "terminal"])
@pytest.mark.parametrize("user", USERS)
def test_nothing_survives_the_kill_of_the_runner(user: str, terminal: tuple[int, int] | None, docked: Dock) -> None:
    sleeps = new_nap()
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        base = Path(folder)
        base.chmod(0o755)
        made = Containers(user, base, docked)
        script = f"(setsid sleep {sleeps} &) ; nohup sleep {sleeps} > /dev/null 2>&1 & echo ready; sleep {sleeps}"
        assert made.start("left", script, terminal=terminal)["started"]
        made.process_do("left", "until", text="ready")
        assert processes(sleeps)
        made.process.kill()
        made.process.wait()
        wait_until_gone(sleeps)


# ---- in the process of the test


@pytest.mark.threat("T161")
@pytest.mark.parametrize(
    ("alive", "why"),
    [(False, "has ended"), (True, "shares the network of this machine")],
    ids=["another process has its number", "the network is that of this machine"],
)
def test_only_the_network_of_a_container_is_entered(alive: bool, why: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, pytest.raises(OSError, match=why):
        container_module.connect_inside(os.getpid(), server.getsockname()[1], lambda: alive)


Scene = Callable[[Container, Callable[[str], Permit]], Awaitable[Any]]


def within(docked: Dock, folder: Path, scene: Scene) -> Any:
    """Return the result of `scene` with a backend, and a function that makes a permit of a script."""
    env = (("HOME", "/nonexistent-home"), ("PATH", "/usr/bin:/bin"))
    terms = Terms(Rights.WORKSPACE_WRITE, str(folder), "/nonexistent-home", env=env)

    async def whole() -> Any:
        backend = Container(ContainerOptions(docked.image, socket=docked.socket))
        try:
            return await scene(backend, lambda script: Permit(RunScript(script, str(folder)), terms, _MINT))
        finally:
            await backend.close()

    return asyncio.run(whole())


@pytest.fixture
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir="/var/tmp") as made:
        yield Path(made)


async def text_of(printed: bytearray, wanted: bytes) -> None:
    await until_async(lambda: wanted in printed)


@pytest.mark.threat("T163")
@pytest.mark.parametrize("times", [1, 99], ids=["once", "all the time"])
def test_a_secret_that_is_moved_while_a_container_is_made_is_not_shown(
    docked: Dock, folder: Path, monkeypatch: pytest.MonkeyPatch, times: int
) -> None:
    moves = 0

    def survey(*words: Any) -> Scan:
        nonlocal moves
        found = launch.survey(*words)
        if moves < times:
            moves += 1
            (folder / "first").rename(folder / f"moved-{moves}")
            write_secret("decoy")
        return found

    def write_secret(text: str) -> None:
        (folder / "first").mkdir()
        (folder / "first" / ".env").write_text(text)

    write_secret("canary")

    async def scene(backend: Container, permit: Callable[[str], Permit]) -> Outcome | None:
        assert (await backend.run(permit("true"))).status == 0
        monkeypatch.setattr(container_backend, "survey", survey)
        look = permit("cat */.env")
        other = replace(look, terms=replace(look.terms, limits=Limits(pids=99), hidden=(".env",)))
        try:
            return await backend.run(other)
        except SandboxUnavailable:
            return None

    outcome = within(docked, folder, scene)
    assert (outcome is None) == (times > 1)
    assert outcome is None or (outcome.stdout, outcome.stderr.count(b"Permission denied")) == (b"", 2)


def test_streamed_input(docked: Dock, folder: Path) -> None:
    """An answer arrives before the next question, all of a large input arrives, and nobody waits for an unread one."""
    data = os.urandom(2_000_001)
    (folder / "data").write_bytes(data)
    answers: list[bytes] = []
    source, writer = os.pipe()
    unread, unused = os.pipe()

    def listen(_stream: int, chunk: bytes) -> None:
        answers.append(chunk)
        if len(answers) < 3:
            os.write(writer, b"%d\n" % len(answers))
        elif len(answers) == 3:
            os.close(writer)

    async def scene(backend: Container, permit: Callable[[str], Permit]) -> list[Outcome]:
        os.write(writer, b"0\n")
        asked = "while read line; do echo $((line + 1)); done; echo end"
        one = await backend.run(permit(asked), stdin=source, listen=listen)
        with (folder / "data").open("rb") as file:
            two = await backend.run(permit("cmp - data && echo same"), stdin=file.fileno())
        three = await backend.run(permit("echo done"), stdin=unread)
        return [one, two, three]

    outcomes = within(docked, folder, scene)
    for handle in (source, unread, unused):
        os.close(handle)
    assert [each.stdout for each in outcomes] == [b"1\n2\n3\nend\n", b"same\n", b"done\n"], outcomes
    assert [each.given for each in outcomes] == [len(b"0\n1\n2\n"), len(data), 0], "for the record"


@pytest.mark.threat("T125")
def test_a_command_cannot_write_into_the_pipe_of_its_input(docked: Dock, folder: Path) -> None:
    source, writer = os.pipe()
    os.write(writer, b"first\n")

    async def scene(backend: Container, permit: Callable[[str], Permit]) -> Any:
        script = "read line; echo $line; echo injected > /proc/self/fd/0; :"
        return await backend.run(permit(script), stdin=source)

    assert within(docked, folder, scene).stdout == b"first\n"
    os.write(writer, b"second\n")
    os.close(writer)
    assert os.read(source, 100) == b"second\n"
    os.close(source)


# Prints `pending` when the first bytes of its input have arrived, and reads none of them.
PENDING = """python3 -c '
import fcntl, struct, termios, time
while not struct.unpack("i", fcntl.ioctl(0, termios.FIONREAD, bytes(4)))[0]: time.sleep(0.01)
print("pending", flush=True)'"""


def test_a_writer_waits_for_a_process_that_reads_nothing(docked: Dock, folder: Path) -> None:
    async def scene(backend: Container, permit: Callable[[str], Permit]) -> None:
        printed = bytearray()
        script = f"{PENDING}; read x < go; wc -c; sleep 9999"
        os.mkfifo(folder / "go")
        process = await backend.start(permit(script), listen=lambda _, chunk: printed.extend(chunk))
        writing = asyncio.create_task(process.write(bytes(8_000_000)))
        await text_of(printed, b"pending\n")
        assert not writing.done()
        go = await asyncio.to_thread((folder / "go").open, "w")
        go.close()
        await writing
        process.close_input()
        await text_of(printed, b"8000000\n")
        printed.clear()
        unread = permit(f"{PENDING}; sleep 9999")
        another = await backend.start(unread, listen=lambda _, chunk: printed.extend(chunk))
        writing = asyncio.create_task(another.write(bytes(8_000_000)))
        await text_of(printed, b"pending\n")
        await another.end()
        with pytest.raises(BrokenPipeError):
            await writing

    within(docked, folder, scene)


def test_a_daemon_whose_processes_are_not_visible(docked: Dock, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Signals and the end go through the daemon if the daemon runs in a virtual machine."""

    class Hidden(Processes):
        def __init__(self, container: str, pid: int) -> None:
            super().__init__(container, 0)

    monkeypatch.setattr(container_module, "Processes", Hidden)
    sleeps = new_nap()

    async def scene(backend: Container, permit: Callable[[str], Permit]) -> None:
        printed = bytearray()
        script = f"trap 'echo trapped' USR1; sleep {sleeps} & echo ready; while :; do sleep 0.05; done"
        process = await backend.start(permit(script), listen=lambda _, chunk: printed.extend(chunk))
        await text_of(printed, b"ready\n")
        await process.signal(signal.SIGUSR1)
        await text_of(printed, b"trapped\n")
        assert process.ports() == ()
        with pytest.raises(OSError, match="not visible"):
            await process.connect(80)
        assert (await process.end("closed")).ended_by == "closed"
        wait_until_gone(sleeps)

    within(docked, folder, scene)
