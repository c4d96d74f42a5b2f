"""Tests of T3, which promises less: each attempt that it does not stop and each that it does, so that its
documentation is correct.
"""

import contextlib
import ctypes
import os
import signal
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from policy.model.verdict import UNNAMED
from sandbox.linux.backend import T3_LACKS
from tests.support.marked_processes import new_nap, processes, processes_about
from tests.support.sandbox_bench import SECRET, USERS, Bench, make
from tests.support.waiting import until

PY = "/usr/bin/python3 -c"


@pytest.fixture(scope="module", params=USERS)
def bench(request: pytest.FixtureRequest) -> Iterator[Bench]:
    yield from make(request.param, tier="T3")


@pytest.fixture
def outside(bench: Bench) -> Path:
    """A file of the user's own beside the workspace, with a second name in it; a secret and an auto-run file."""
    folder = bench.base / "t3"
    folder.mkdir(exist_ok=True)
    target = folder / "known.txt"
    target.write_text("original")
    target.chmod(0o644)
    (folder / "t3-way").unlink(missing_ok=True)
    (folder / "t3-way").symlink_to("known.txt")
    for name in ("t3-hard", ".t3-env"):
        (bench.workspace / name).unlink(missing_ok=True)
    os.link(target, bench.workspace / "t3-hard")
    (bench.workspace / ".t3-env").write_text(SECRET)
    bench.own(folder)
    bench.own(bench.workspace)
    return target


# fmt: off
LET_THROUGH = [
    # a part of the words for it, the attempt, what it prints when it got through
    ("names, sizes",      "stat -c %s {target}",                                         "8"),
    ("names, sizes",      f"{PY} 'import ctypes; print(ctypes.CDLL(None).inotify_add_watch(ctypes.CDLL(None).inotify_init(), b\"{{folder}}\", 0x100))'", "1"),
    ("link targets",      "readlink {folder}/t3-way",                                    "known.txt"),
    ("modes, times",      "chmod 600 {target} && stat -c %a {target}",                   "600"),
    ("modes, times",      "touch -d @1 {target} && stat -c %Y {target}",                 "1"),
    ("secret files",      "cat .t3-env",                                                 SECRET),
    ("IPC namespaces",    f"{PY} 'import ctypes; print(ctypes.CDLL(None).shmget({{key}}, 1, 0) >= 0)'", "True"),
    ("hard link",         "echo changed > t3-hard && cat t3-hard",                       "changed"),
]
HELD = [
    ("cat {target}",                                  "what it holds cannot be read"),
    ("echo x > {target}",                             "nor written"),
    ("rm {target}",                                   "nor removed"),
    ("ls {folder}",                                   "its folder cannot be listed"),
    ("ln {target} t3-new",                            "nor linked to"),
    (f"{PY} 'import socket; socket.socket()'",         "no sockets at all"),
    (f"{PY} 'import os; os.kill({{pid}}, 0)'",         "nobody outside can be signalled"),
    ("cat /proc/{pid}/environ",                       "/proc is withheld"),
    (f"{PY} 'import ctypes, os; os._exit(ctypes.CDLL(None).unshare(0x10000000) and 1)'", "no namespaces"),
]
# fmt: on


@pytest.mark.parametrize(("words", "attempt", "printed"), LET_THROUGH, ids=[row[1][:30] for row in LET_THROUGH])
def test_what_is_let_through_is_listed(bench: Bench, outside: Path, words: str, attempt: str, printed: str) -> None:
    libc = ctypes.CDLL(None)
    key = 0x52490000 + os.getpid() % 0xFFFF
    segment = libc.shmget(key, 4096, 0o1666)
    try:
        told: dict[str, Any] = {"hidden": [".t3-env"]}
        script = attempt.format(target=outside, folder=outside.parent, key=key, pid=os.getpid())
        answer = bench.run(script, **told)
    finally:
        libc.shmctl(segment, 0, None)
    assert answer["out"].strip() == printed, answer
    assert answer["level"] == "PARTIAL"
    assert any(words in lack for lack in T3_LACKS)
    assert any(words in lack for lack in answer["missing"])
    assert any("1 secret file(s) of the workspace can be read" in lack for lack in answer["missing"])


@pytest.mark.threat("T19")
@pytest.mark.parametrize(("attempt", "why"), HELD, ids=[row[1] for row in HELD])
def test_what_it_holds(bench: Bench, outside: Path, attempt: str, why: str) -> None:
    script = attempt.format(target=outside, folder=outside.parent, pid=os.getpid())
    assert bench.run(script)["status"] != 0, why
    assert outside.read_text() == "original"


@pytest.mark.threat("T152")
@pytest.mark.threat("T153")
def test_it_traces_nothing_and_makes_no_pair_of_datagrams(bench: Bench) -> None:
    script = (
        "import ctypes, os, socket\nlibc = ctypes.CDLL(None, use_errno=True)\n"
        "print(libc.ptrace(0, 0, 0, 0), ctypes.get_errno())\nsocket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)\n"
        "try: socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)\nexcept OSError as error: print(error.errno)"
    )
    assert bench.run(f'{PY} "{script}"')["out"] == "-1 1\n94\n"


@pytest.mark.threat("T66")
@pytest.mark.parametrize("family", ["AF_INET", "AF_UNIX"])
def test_no_socket_is_said_to_be_there(bench: Bench, family: str) -> None:
    answer = bench.run(f"{PY} 'import socket; socket.socket(socket.{family})'", unix=True)
    assert [violation[0] for violation in answer["violations"]] == ["no command may use sockets in this sandbox"]


# fmt: off
TOLD = [
    # the attempt, what is said of the path, or nothing
    ("cat {home}/.ssh/id_rsa",      "not among the paths of this command", "a read in the home that is the user's"),
    ("echo x > {home}/.ssh/id_rsa", "not among the paths of this command", "nor is it known that this was no read"),
    ("ls {home}/.ssh",              "not among the paths of this command", "a folder there"),
    ("echo x > /usr/planted",       "may not write",                       "what may be read was to be written"),
    ("cat {home}/none",             "",                                    "what is missing is not hidden here"),
    ("cat {given}/closed",          "",                                    "its own mode, which holds for root too"),
    ("cat {given}/shut/file",       "",                                    "or that of the folder around it"),
    ("cat {given}/open > /dev/null; echo x > {given}/open", "may not write", "a path that was given to be read"),
]
# fmt: on


@pytest.mark.whole_matrix("what an ordinary user could not change anyway is no violation")
@pytest.mark.threat("T66")
@pytest.mark.parametrize(("attempt", "words", "why"), TOLD, ids=[row[2] for row in TOLD])
def test_a_denied_read_is_not_called_a_write(bench: Bench, attempt: str, words: str, why: str) -> None:
    given = bench.base / "given"
    if not given.exists():
        (given / "shut").mkdir(parents=True)
        for name in ("closed", "open", "shut/file"):
            (given / name).write_text("own\n")
        bench.own(given)
        (given / "closed").chmod(0)
        (given / "shut").chmod(0)
    answer = bench.run(attempt.format(home=bench.home, given=given), read=[str(given)])
    assert answer["status"] != 0, answer
    told = [violation[0] for violation in answer["violations"]]
    if bench.user != "root" and "/usr" in attempt:
        words = ""  # nobody else could write there either
    assert [words in what for what in told] == [True] * bool(words), answer
    assert words == "may not write" or not any("may not write" in what for what in told)


@pytest.mark.threat("T66")
def test_where_a_host_could_be_opened_is_said(bench: Bench) -> None:
    (violation,) = bench.run(f"{PY} 'import socket; socket.getaddrinfo(\"example.org\", 80)'")["violations"]
    assert violation[2].endswith("`agent exec --host HOST`, under T1 or T2")


def test_named_hosts_are_refused(bench: Bench) -> None:
    assert "no separate network" in bench.run("echo ran", hosts=["example.org"])["unavailable"][1]
    found = bench.run("echo ran; env | grep -c PROXY", hosts=[UNNAMED])
    assert found["out"] == "ran\n0\n", "nothing was to be open, and nobody could tell whom it asked for"


# Processes that leave their session, process group and parent, and ignore signals.
FLEES = "(setsid nohup sleep {mark} &); setsid bash -c 'trap \"\" TERM HUP; sleep {mark} & sleep {mark}' & trap '' TERM HUP; sleep {mark}"


@pytest.mark.whole_matrix("root could find its processes by a control group, another user cannot")
@pytest.mark.threat("T15")
@pytest.mark.parametrize("user", USERS)
def test_a_killed_runner_leaves_no_process(user: str) -> None:
    """This holds for root without a control group too: the holder of the processes is killed with the runner."""
    mark = new_nap()
    for bench in make(user, tier="T3"):

        def ask(bench: Bench = bench) -> None:
            with contextlib.suppress(AssertionError):  # the driver died, as it should
                bench.run(FLEES.format(mark=mark), counted="watchdog")

        asking = threading.Thread(target=ask)
        asking.start()
        until(lambda: len(processes(mark)) >= 4, of=bench.process, what="the start of the processes")
        os.kill(bench.process.pid, signal.SIGKILL)
        asking.join()
        until(lambda: not processes_about(mark), what="the end of the processes")


@pytest.mark.threat("T15")
@pytest.mark.parametrize(
    ("ending", "told"),
    [
        ("sleep 0.3; kill -9 $PPID", {}),
        ("sleep 1; echo begun; sleep 30", {"cancel": "begun"}),
        ("sleep 30", {"limits": {"wall": 3.0}}),
    ],
    ids=["the helper killed by its command", "cancelled", "out of time"],
)
def test_what_fled_is_ended_without_a_control_group(bench: Bench, ending: str, told: dict[str, Any]) -> None:
    mark = new_nap()
    script = ": > fled; " + FLEES.format(mark=mark).rsplit("trap", 1)[0] + ending
    bench.run(script, counted="watchdog", **told)
    (bench.workspace / "fled").unlink()  # the command ran
    until(lambda: not processes_about(mark), what="the end of the processes")


@pytest.mark.threat("T15")
def test_what_fled_is_ended_by_the_runner_if_the_helper_is_slow(bench: Bench) -> None:
    """On a busy machine a helper may take longer than the runner waits. Here its unconfined half is stopped."""
    mark = new_nap()
    for helper in bench.run("true", counted="watchdog")["helpers"]:
        os.kill(helper, signal.SIGSTOP)
    script = f"{FLEES.format(mark=mark).rsplit('trap', 1)[0]} sleep 1; echo begun; sleep {mark}"
    assert bench.run(script, counted="watchdog", cancel="begun")["cancelled"]
    until(lambda: not processes_about(mark), what="the end of the processes")


@pytest.mark.threat("T19")
def test_a_limit_that_other_processes_of_the_user_reach_is_the_reason() -> None:
    """RLIMIT_NPROC counts all processes of the user (setrlimit(2)), so that no process can be started."""
    user = "nobody" if os.geteuid() == 0 else USERS[0]
    number = {"user": 65534, "group": 65534, "extra_groups": []} if os.geteuid() == 0 else {}
    for bench in make(user, tier="T3"):
        others = [subprocess.Popen(["sleep", "600"], **number) for _ in range(12)]  # type: ignore[call-overload]  # by name
        try:
            answer = bench.run("echo ran > ran.txt", limits={"pids": 8})
        finally:
            for process in others:
                process.kill()
                process.wait()
        assert "`--limit pids` or `ulimit -u`" in answer["unavailable"][1], answer
        assert "processes of the user" in answer["unavailable"][2]
        assert not (bench.workspace / "ran.txt").exists()
