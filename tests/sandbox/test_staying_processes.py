"""Processes that stay beside later commands, as root and as another user, on every tier of Linux."""

import signal
from collections.abc import Iterator

import pytest

from tests.support.marked_processes import new_nap, processes
from tests.support.sandbox_bench import USERS, Bench, make
from tests.support.waiting import until

TIERS = ("T1", "T2", "T3")
BENCHES = [f"{tier}-{user}" for tier in TIERS for user in USERS]


@pytest.fixture(scope="module", params=BENCHES)
def bench(request: pytest.FixtureRequest) -> Iterator[Bench]:
    tier, user = request.param.split("-")
    yield from make(user, tier=tier)


def wait_until_gone(mark: str) -> None:
    until(lambda: not processes(mark), what=lambda: f"the end of {processes(mark)}")


def test_a_process_is_fed_read_and_ended_while_commands_run(bench: Bench) -> None:
    sleeps = new_nap()
    assert bench.start("echo", f"echo ready; while read line; do echo got $line; done; sleep {sleeps}")["started"]
    assert bench.process_do("echo", "until", text="ready\n")["alive"]
    for number in range(50):
        assert bench.run(f"echo {number}")["out"] == f"{number}\n"
    bench.process_do("echo", "write", text="one\n")
    assert bench.process_do("echo", "until", text="got one\n")["out"] == "ready\ngot one\n"
    bench.process_do("echo", "close")
    ended = bench.process_do("echo", "end")
    assert (ended["status"], ended["ended"], ended["alive"]) == (137, "cancelled", False)
    wait_until_gone(sleeps)
    assert bench.process_do("echo", "write", text="late\n")["broken"]


@pytest.mark.parametrize(
    ("script", "status"),
    [("exit 3", 3), ("kill -TERM $$", 143), ("printf x; exec no-such-program-here", 127)],
    ids=["the status of the program", "128 and the number of the signal", "as a shell"],
)
def test_the_status_of_a_process_that_ends(bench: Bench, script: str, status: int) -> None:
    assert bench.start("short", script)["started"]
    assert bench.process_do("short", "wait")["status"] == status


def test_a_program_that_is_missing_has_ended(bench: Bench) -> None:
    process = {"do": "start", "name": "missing"}
    action = {"kind": "RunArgv", "argv": ["no-such-program"], "cwd": str(bench.workspace)}
    assert bench.ask(action, process=process)["started"]
    ended = bench.process_do("missing", "wait")
    assert (ended["status"], ended["problem"][0]) == (127, "`no-such-program` could not be started")


def test_a_signal_reaches_the_whole_tree(bench: Bench) -> None:
    bench.start("trap", "trap 'echo trapped; exit 7' USR1; echo ready; while :; do sleep 0.05; done")
    bench.process_do("trap", "until", text="ready")
    bench.process_do("trap", "signal", number=int(signal.SIGUSR1))
    assert bench.process_do("trap", "wait")["status"] == 7
    assert "trapped" in bench.process_do("trap", "look")["out"]


def test_neither_the_wall_time_nor_the_output_is_limited(bench: Bench) -> None:
    limits = {"wall": 0.2, "output": 100}
    bench.start("long", "head -c 500000 /dev/zero | tr '\\0' x; sleep 0.5; echo done; cat", limits=limits)
    assert bench.process_do("long", "until", text="done")["alive"]
    assert len(bench.process_do("long", "end")["out"]) == 500_000 + len("done\n")


@pytest.mark.threat("T14")
def test_other_limits_hold_for_the_tree(bench: Bench) -> None:
    burn = "python3 -c 'while True: pass' & python3 -c 'while True: pass' & wait; exit 9"
    bench.start("burn", burn, limits={"cpu": 1})
    ended = bench.process_do("burn", "wait")
    assert ended["ended"] == "cpu" or (bench.tier == "T3" and ended["status"] == 9)  # T3 limits each process


@pytest.mark.parametrize("bench", [each for each in BENCHES if not each.startswith("T3")], indirect=True)
def test_a_terminal_of_the_sandbox(bench: Bench) -> None:
    script = "stty size; read a; stty size; trap 'echo INT' INT; sh -c 'echo on; exec sleep 9999'; "
    script += "read b; echo got $b; cat; exit 5"
    bench.start("screen", script, terminal=(30, 99))
    assert "30 99" in bench.process_do("screen", "until", text="30 99")["out"]
    bench.process_do("screen", "resize", size=[11, 22])
    bench.process_do("screen", "write", text="\n")
    assert "11 22" in bench.process_do("screen", "until", text="on\r\n")["out"]
    bench.process_do("screen", "write", text="\x03")
    assert "INT" in bench.process_do("screen", "until", text="INT")["out"]
    bench.process_do("screen", "write", text="word\n")
    assert "got word" in bench.process_do("screen", "until", text="got word")["out"]
    bench.process_do("screen", "close")
    assert bench.process_do("screen", "wait")["status"] == 5


@pytest.mark.parametrize("bench", [each for each in BENCHES if each.startswith("T3")], indirect=True)
def test_without_namespaces_there_is_no_terminal(bench: Bench) -> None:
    started = bench.start("screen", "stty size", terminal=(30, 99))
    assert started["unavailable"][0] == "the T3 sandbox has no terminal for a command"


@pytest.mark.threat("T126")
@pytest.mark.parametrize(
    ("terminal", "tier"),
    [(None, tier) for tier in TIERS] + [((24, 80), tier) for tier in TIERS if tier != "T3"],  # T3 has no terminals
    ids=lambda value: value if isinstance(value, str) else "terminal" if value else "pipes",
)
@pytest.mark.parametrize("user", USERS)
def test_nothing_survives_the_kill_of_the_runner(user: str, tier: str, terminal: tuple[int, int] | None) -> None:
    sleeps = new_nap()
    benches = make(user, tier=tier)
    bench = next(benches)
    script = f"(setsid sleep {sleeps} &) ; nohup sleep {sleeps} > /dev/null 2>&1 & echo ready; sleep {sleeps}"
    assert bench.start("left", script, terminal=terminal)["started"]
    bench.process_do("left", "until", text="ready")
    assert processes(sleeps)
    bench.process.kill()
    wait_until_gone(sleeps)
    for _ in benches:
        pass


def test_the_backend_ends_its_processes() -> None:
    sleeps = new_nap()
    benches = make(USERS[0])
    bench = next(benches)
    bench.start("left", f"echo ready; sleep {sleeps}")
    bench.process_do("left", "until", text="ready")
    assert processes(sleeps)
    for _ in benches:  # closes the backend
        pass
    wait_until_gone(sleeps)
