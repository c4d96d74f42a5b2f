"""What a command may use up, with all that it starts: every kind of bomb, counted by the kernel and by the watchdog."""

import contextlib
import os
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from sandbox_bench import Bench

from policy.verdict import Limits
from sandbox.backend import Outcome
from sandbox.limits import amount, passed, reached

ROOT = Path(__file__).parent.parent
M, G = 1 << 20, 1 << 30
PY = "/usr/bin/python3 -c"
ON_DISK = "import os, time; "


@pytest.fixture(params=["kernel", "watchdog"])
def counted(request: pytest.FixtureRequest, bench: Bench) -> str:
    """Who counts: a control group, where this user may make one, or the helper."""
    if request.param == "kernel" and bench.user != "root":
        pytest.skip("this user may make no control group here; the watchdog's rows are its own")
    return str(request.param)


# fmt: off
ENDED: list[tuple[str, dict[str, float], str, str]] = [
    ("sleep 30", {"wall": 0.5}, "wall", "longer than it may"),
    ("kill -STOP $$", {"wall": 0.5}, "wall", "a stopped process"),
    ("trap '' TERM INT HUP QUIT; setsid -w bash -c 'trap \"\" TERM; sleep 30' & sleep 30", {"wall": 0.5}, "wall", "a new session that ignores signals"),
    ("yes & yes >&2 & wait", {"output": M}, "output", "a flood on both streams"),
    ("for i in $(seq 100); do (while :; do :; done) & done; wait", {"cpu": 1}, "cpu", "a hundred spinning processes"),
    ("while :; do /bin/true; done", {"cpu": 1}, "cpu", "processes that are over at once"),
    (f"{PY} 'import os, signal, time\nsignal.signal(signal.SIGCHLD, signal.SIG_IGN)\nfor n in range(99):\n if not os.fork():\n  while time.process_time() < 0.5: pass\n  os._exit(0)\n time.sleep(0.1)\ntime.sleep(9)'", {"cpu": 2}, "cpu", "children that nobody waits for"),
    (f"{PY} 'import threading\ndef spin():\n while True: pass\n[threading.Thread(target=spin).start() for _ in range(9)]'", {"cpu": 1}, "cpu", "threads"),
    (f"for i in $(seq 8); do {PY} 'import time; x = bytearray(60 << 20); time.sleep(9)' & done; wait", {"memory": 256 * M}, "memory", "many small processes"),
    (f"{PY} 'import mmap, time\nm = mmap.mmap(-1, 300 << 20)\nfor n in range(0, 300 << 20, 4096): m[n] = 1\ntime.sleep(9)'", {"memory": 256 * M}, "memory", "a shared mapping"),
    (f"head -c 120M /dev/zero > /dev/shm/a; head -c 120M /dev/zero > ~/b; {PY} 'import time; x = bytearray(60 << 20); time.sleep(9)'", {"memory": 256 * M}, "memory", "files in memory"),
    (f"{PY} 'import os, time\ndef make(n):\n try: return os.memfd_create(\"x\")\n except OSError: p = \"/dev/shm/\" * (n < 2) + str(n); p = p if n < 2 else os.path.expanduser(\"~/\" + p); f = os.open(p, os.O_RDWR | os.O_CREAT); os.unlink(p); return f\nfor n in range(4):\n f = make(n)\n for _ in range(60): os.write(f, bytes(1 << 20))\nx = bytearray(60 << 20); time.sleep(9)'", {"memory": 256 * M}, "memory", "memory behind descriptors"),
    (f"{PY} 'import ctypes, time\nc = ctypes.CDLL(None)\nc.shmat.restype = ctypes.c_void_p\nfor n in range(6):\n i = c.shmget(0, 60 << 20, 0o1600); a = c.shmat(i, None, 0); ctypes.memset(a, 1, 60 << 20); c.shmdt(ctypes.c_void_p(a))\ntime.sleep(9)'", {"memory": 256 * M}, "memory", "System V segments that nobody has mapped"),
    (f"{PY} '{ON_DISK}f = open(\"big\", \"wb\"); os.posix_fallocate(f.fileno(), 0, 700 << 20); time.sleep(9)'", {"disk": 500 * M}, "disk", "space taken by fallocate"),
    (f"{PY} '{ON_DISK}\nfor n in range(14):\n f = open(f\"/tmp/{{n}}\", \"wb\"); os.posix_fallocate(f.fileno(), 0, 50 << 20)\ntime.sleep(9)'", {"disk": 500 * M}, "disk", "many files in /tmp"),
    (f"{PY} '{ON_DISK}f = open(\"gone\", \"wb\"); os.unlink(\"gone\"); os.posix_fallocate(f.fileno(), 0, 700 << 20); time.sleep(9)'", {"disk": 500 * M}, "disk", "a file that has no name any more"),
    (f"mkdir -p a/b; chmod 0 a; chmod 700 a; {PY} '{ON_DISK}f = open(\"a/b/big\", \"wb\"); os.posix_fallocate(f.fileno(), 0, 1300 << 20); os.chmod(\"a\", 0); time.sleep(9)'", {"disk": 500 * M}, "disk", "twice as much, where it cannot be found"),
    (f"{PY} '{ON_DISK}\nfor n in range(30000): os.close(os.open(f\"/tmp/{{n}}\", os.O_CREAT | os.O_WRONLY))\ntime.sleep(9)'", {"disk": 128 * M}, "disk", "files that take no space"),
    ("ulimit -c 0; head -c 3000000 /dev/zero > big", {"file": M}, "", "one file that is too large: the kernel's signal goes to the program"),
]
# fmt: on


@pytest.mark.parametrize(("script", "limits", "ended", "why"), ENDED, ids=[row[3] for row in ENDED])
@pytest.mark.threat("T14")
def test_a_bomb_is_ended_by_its_limit(
    bench: Bench, counted: str, script: str, limits: dict[str, float], ended: str, why: str
) -> None:
    answer = bench.run(script, limits={"wall": 20.0, **limits}, counted=counted)
    try:
        assert answer.get("limits") == ("cgroup v1 (memory, pids, cpu)" if counted == "kernel" else "watchdog"), answer
        assert (answer["ended"] or "") == ended, answer
        if ended:
            assert answer["status"] in (137, 152), answer  # ours, or the kernel's SIGXCPU to one that alone used it up
        else:
            assert any("file reached" in what for what in answer["inferred"]), answer
        assert bench.run("echo on", limits={"wall": 20.0, **limits}, counted=counted)["out"] == "on\n"
    finally:
        clean(bench)


# fmt: off
SURVIVES: list[tuple[str, dict[str, float], str]] = [
    ("head -c 700M /dev/zero > big && rm big", {"memory": 256 * M}, "what the kernel keeps of files is not the command's memory"),
    ("truncate -s 700M big && sleep 0.5 && rm big", {"disk": 500 * M}, "a file of holes takes no space"),
    ("for n in 1 2 3 4; do fallocate -l 300M big; sleep 0.25; rm big; done", {"disk": 500 * M}, "space that was given back"),
    (f"{PY} 'import mmap; m = mmap.mmap(-1, 900 << 20, prot=mmap.PROT_READ); print(len(m))'", {"memory": 256 * M}, "address space is no memory"),
    ("for n in $(seq 400); do /bin/true & done; wait", {"pids": 350}, "many processes, one after the other"),
    ("for n in $(seq 400); do /bin/true; done; for n in $(seq 90); do sleep 1 & done; wait", {"pids": 110}, "as many as promised, whatever numbers were used up before"),
    ("for n in $(seq 300); do (/bin/true &) ; done; sleep 0.5; for n in $(seq 300); do (/bin/true &); done", {"pids": 350}, "orphans that are over"),
]
# fmt: on


@pytest.mark.parametrize(("script", "limits", "why"), SURVIVES, ids=[row[2] for row in SURVIVES])
@pytest.mark.threat("T14")
def test_what_is_within_its_limits_goes_on(
    bench: Bench, counted: str, script: str, limits: dict[str, float], why: str
) -> None:
    answer = bench.run(script, limits={"wall": 20.0, **limits}, counted=counted)
    clean(bench)
    assert (answer["status"], answer["ended"]) == (0, None), answer


@pytest.mark.threat("T14")
def test_a_fork_bomb_takes_no_more_than_its_share(bench: Bench, counted: str) -> None:
    limits: dict[str, float] = {"wall": 6.0, "pids": 320}
    helpers = set(bench.run("sleep 0.05", limits=limits, counted=counted)["helpers"])
    spaces = {space for pid in helpers for child in children(pid) if (space := pid_space(child))}
    most, done = 0, threading.Event()

    def look() -> None:
        nonlocal most
        with contextlib.suppress(PermissionError):  # hundreds of others want to run as well
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), -20)
        while not done.wait(0.02):
            most = max(most, sum(pid_space(int(name)) in spaces for name in os.listdir("/proc") if name.isdigit()))

    looking = threading.Thread(target=look)
    looking.start()
    answer = bench.run("b() { b | b & }; b; sleep 8", limits=limits, counted=counted)
    done.set()
    looking.join()
    assert answer["ended"] in ("pids", "wall"), answer
    # The watchdog looks a few times a second only; until then the namespace's own end holds.
    assert 50 < most <= 320 + (10 if counted == "kernel" else 370)
    assert bench.run("echo alive", limits=limits, counted=counted)["out"] == "alive\n"


def children(pid: int) -> list[int]:
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def pid_space(pid: int) -> str:
    try:
        return os.readlink(f"/proc/{pid}/ns/pid")
    except OSError:
        return ""


def test_a_fork_that_was_refused_is_certain_where_the_kernel_counts(bench: Bench, counted: str) -> None:
    script = f"{PY} 'import os, time\ntry:\n  for n in range(999):\n    if not os.fork(): time.sleep(3); os._exit(0)\nexcept OSError as e: print(e, flush=True); os._exit(3)'"
    answer = bench.run(script, limits={"wall": 10.0, "pids": 320}, counted=counted)
    if counted == "kernel":
        assert answer["status"] == 3
        assert "temporarily unavailable" in answer["out"], answer
        assert len(answer["violations"]) == 1, answer
        (what,) = (what for what, *_ in answer["violations"])
        assert "could not be started, 1 time(s): the limit is 320" in what
        assert answer["inferred"] == []
    else:
        assert answer["status"] in (3, 137), answer  # the watchdog, or the namespace's own last number


def test_too_many_open_files_are_told_with_the_flag(bench: Bench) -> None:
    answer = bench.run(f"{PY} 'x = [open(\"/dev/null\") for n in range(99)]'", limits={"open_files": 40})
    assert answer["status"] == 1
    ((what, _, fix, _),) = answer["violations"]
    assert "40 open files" in what
    assert "--limit open-files=80" in fix
    assert answer["inferred"] == [what]


@pytest.mark.threat("T14")
def test_another_program_that_fills_the_disk_does_not_end_the_command(bench: Bench) -> None:
    """Up to twice the limit; beyond that the machine comes first."""
    for size, ended in ((700 * M, None), (1300 * M, "disk")):
        other, begun, filled = bench.base / "other", bench.workspace / "begun", bench.workspace / "filled"

        def fill(size: int = size, other: Path = other, begun: Path = begun, filled: Path = filled) -> None:
            until = time.monotonic() + 60
            while not begun.exists() and time.monotonic() < until:
                time.sleep(0.02)
            with other.open("wb") as file:
                os.posix_fallocate(file.fileno(), 0, size)
            filled.touch()

        filling = threading.Thread(target=fill)
        filling.start()
        script = f": > begun; until [ -e filled ]; do sleep 0.05; done; sleep {30 if ended else 1.5}; echo end"
        try:
            answer = bench.run(script, limits={"disk": 500 * M, "wall": 120.0})
        finally:
            filling.join()
            for path in (other, begun, filled):
                path.unlink(missing_ok=True)
        assert answer["ended"] == ended, answer


@pytest.mark.threat("T15")
@pytest.mark.threat("T14")
def test_files_in_memory_that_ended_one_command_do_not_burden_the_next(bench: Bench, counted: str) -> None:
    limits = {"memory": 256 * M, "wall": 20.0}
    fill = f"head -c 120M /dev/zero > /dev/shm/a; head -c 120M /dev/zero > ~/b; {PY} 'import time; x = bytearray(60 << 20); time.sleep(9)'"
    assert bench.run(fill, limits=limits, counted=counted)["ended"] == "memory"
    answer = bench.run(f"ls /dev/shm; {PY} 'x = bytearray(150 << 20); print(len(x))'", limits=limits, counted=counted)
    assert answer["out"] == f"{150 * M}\n", answer


@pytest.mark.threat("T15")
def test_without_namespaces_a_control_group_still_finds_what_fled(bench: Bench) -> None:
    if bench.user != "root":
        pytest.skip("this user may make no control group here")
    mark = f"91{os.getpid()}"
    answer = bench.run(f"setsid sleep {mark} & sleep 0.1; kill -9 $PPID", tier="T3")
    assert not any("one by one" in lack for lack in answer["missing"]), answer
    listed = subprocess.run(["ps", "axo", "args"], capture_output=True, text=True, check=True).stdout
    assert f"sleep {mark}" not in listed


def clean(bench: Bench) -> None:
    for name in ("big", "gone"):
        (bench.workspace / name).unlink(missing_ok=True)
    if (bench.workspace / "a").exists():
        (bench.workspace / "a").chmod(0o700)
        shutil.rmtree(bench.workspace / "a")
    bench.run("rm -rf /tmp/*", limits={"wall": 20.0})


# ---- the words

# fmt: off
WORDS: list[tuple[dict[str, Any], int, frozenset[str], list[tuple[str, bool]], str]] = [
    ({"status": 0, "stderr": b"Too many open files"}, 9, frozenset(), [], "what ended well hit nothing"),
    ({"status": 137, "stderr": b"Too many open files", "ended_by": "wall"}, 9, frozenset(), [], "what was ended is told by that"),
    ({"status": 1}, 3, frozenset({"pids"}), [("could not be started, 3 time(s)", False)], "counted by the kernel"),
    ({"status": 1, "stderr": b"bash: fork: Resource temporarily unavailable"}, 0, frozenset(), [("processes was reached", True)], "bash's words"),
    ({"status": 1, "stderr": b"recv: Resource temporarily unavailable"}, 0, frozenset(), [], "another EAGAIN"),
    ({"status": 1, "stderr": b"OSError: [Errno 24] Too many open files"}, 0, frozenset(), [("open files", True)], "Python's words"),
    ({"status": 153}, 0, frozenset(), [("a file reached", True)], "a shell's status after SIGXFSZ"),
    ({"status": 152}, 0, frozenset(), [("processor time", True)], "a shell's status after SIGXCPU"),
    ({"status": 1, "stderr": b"MemoryError"}, 0, frozenset(), [("limit of memory", True)], "bounded process by process"),
    ({"status": 1, "stderr": b"MemoryError"}, 0, frozenset({"memory"}), [], "a control group refuses no memory, it ends"),
    ({"status": 1, "stdout": b"x: No space left on device"}, 0, frozenset(), [("HOME or /dev/shm is full", True)], "a full file system in memory"),
    ({"status": 1, "stderr": b"error: undefined variable"}, 0, frozenset(), [], "a plain error"),
]
# fmt: on


@pytest.mark.parametrize(("told", "refused", "held", "words", "why"), WORDS, ids=[row[4] for row in WORDS])
def test_what_is_said_of_a_limit_that_was_reached(
    told: dict[str, Any], refused: int, held: frozenset[str], words: list[tuple[str, bool]], why: str
) -> None:
    found = reached(Outcome(**told), Limits(), refused, held)
    assert [violation.inferred for violation in found] == [inferred for _, inferred in words], found
    assert all(text in violation.what for violation, (text, _) in zip(found, words, strict=True)), found


@pytest.mark.parametrize(
    ("ended", "words", "flag"),
    [
        ("wall", "120 s", "--timeout or --limit wall"),
        ("cpu", "7200 s", "--limit cpu"),
        ("pids", "(1024)", "--limit pids"),
        ("memory", "(8G)", "--limit memory"),
        ("file", "(10G)", "--limit file"),
        ("output", "(10M)", "--limit output"),
        ("disk", "(20G)", "--limit disk"),
        ("group", "control group", "again"),
    ],
)
def test_what_ended_a_command_is_said_with_its_number_and_its_flag(ended: str, words: str, flag: str) -> None:
    problem = passed(ended, Limits())
    assert words in problem.what
    assert flag in problem.fix


@pytest.mark.parametrize(("size", "text"), [(1, "1"), (1024, "1K"), (1536, "1536"), (3 * M, "3M"), (5 * G, "5G")])
def test_amounts_are_as_the_flag_takes_them(size: int, text: str) -> None:
    assert amount(size) == text


REAPS = """
import os, sys
from sandbox.helper import reap_others

def ended(status):
    child = os.fork()
    if child == 0:
        os._exit(status)
    os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
    return child

search, orphan = ended(1), ended(0)
reap_others(0, search)
assert os.waitstatus_to_exitcode(os.waitpid(search, 0)[1]) == 1
reap_others(0, search)
try:
    os.waitpid(orphan, 0)
except ChildProcessError:
    print("buried")
"""


def test_orphans_are_buried_but_for_what_the_watchdog_waits_for() -> None:
    """Its search for a command's files may end between its look and the burial, and with it the helper ended."""
    done = subprocess.run([sys.executable, "-c", REAPS], cwd=ROOT, capture_output=True, text=True)
    assert done.stdout == "buried\n", done.stderr
