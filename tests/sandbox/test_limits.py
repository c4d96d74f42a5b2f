"""Tests of the limits of a command and its children: every kind of bomb, counted by the kernel and by the watchdog."""

import contextlib
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from policy.model.verdict import Limits
from sandbox.backend import Outcome
from sandbox.inside.disk_space import Space
from sandbox.linux.limits import amount, passed, reached
from tests.support.machine_locks import alone_with
from tests.support.marked_processes import new_nap, processes
from tests.support.places import ROOT
from tests.support.sandbox_bench import USERS, Bench, only_on
from tests.support.waiting import until

M, G = 1 << 20, 1 << 30
PY = "/usr/bin/python3 -c"
ON_DISK = "import os, time; "


# Each user in each sandbox, with each that can count: a control group, where this user may make one, or the helper.
COUNTERS = [
    (f"{user}-{tier}", counter)
    for user in USERS
    for tier in ("T1", "T2")
    for counter in (("kernel", "watchdog") if user == "root" else ("watchdog",))
]


@pytest.fixture
def counted(request: pytest.FixtureRequest) -> str:
    """Return the name of what counts: `kernel` or `watchdog`."""
    return str(request.param)


in_every_way = pytest.mark.parametrize(
    ("bench", "counted"), COUNTERS, indirect=True, ids=["-".join(row) for row in COUNTERS]
)


# fmt: off
ENDED: list[tuple[str, dict[str, float], str, str]] = [
    ("sleep 30", {"wall": 0.5}, "wall", "longer than it may"),
    ("kill -STOP $$", {"wall": 0.5}, "wall", "a stopped process"),
    ("trap '' TERM INT HUP QUIT; setsid -w bash -c 'trap \"\" TERM; sleep 30' & sleep 30", {"wall": 0.5}, "wall", "a new session that ignores signals"),
    ("yes & yes >&2 & wait", {"output": M}, "output", "a flood on both streams"),
    ("for i in $(seq 100); do (while :; do :; done) & done; wait", {"cpu": 1}, "cpu", "a hundred spinning processes"),
    ("while :; do /bin/true; done", {"cpu": 1}, "cpu", "processes that are over at once"),
    (f"{PY} 'import os, signal, time\nsignal.signal(signal.SIGCHLD, signal.SIG_IGN)\nfor n in range(99):\n if not os.fork():\n  while time.process_time() < 0.3: pass\n  os._exit(0)\n time.sleep(0.05)\ntime.sleep(99)'", {"cpu": 1}, "cpu", "children that nobody waits for"),
    (f"{PY} 'import threading\ndef spin():\n while True: pass\n[threading.Thread(target=spin).start() for _ in range(9)]'", {"cpu": 1}, "cpu", "threads"),
    (f"for i in $(seq 8); do {PY} 'import time; x = bytearray(60 << 20); time.sleep(99)' & done; wait", {"memory": 256 * M}, "memory", "many small processes"),
    (f"{PY} 'import mmap, time\nm = mmap.mmap(-1, 300 << 20)\nfor n in range(0, 300 << 20, 4096): m[n] = 1\ntime.sleep(99)'", {"memory": 256 * M}, "memory", "a shared mapping"),
    (f"head -c 120M /dev/zero > /dev/shm/a; head -c 120M /dev/zero > ~/b; {PY} 'import time; x = bytearray(60 << 20); time.sleep(99)'", {"memory": 256 * M}, "memory", "files in memory"),
    (f"{PY} 'import os, time\ndef make(n):\n try: return os.memfd_create(\"x\")\n except OSError: p = \"/dev/shm/\" * (n < 2) + str(n); p = p if n < 2 else os.path.expanduser(\"~/\" + p); f = os.open(p, os.O_RDWR | os.O_CREAT); os.unlink(p); return f\nfor n in range(4):\n f = make(n)\n for _ in range(60): os.write(f, bytes(1 << 20))\nx = bytearray(60 << 20); time.sleep(99)'", {"memory": 256 * M}, "memory", "memory behind descriptors"),
    (f"{PY} 'import ctypes, time\nc = ctypes.CDLL(None)\nc.shmat.restype = ctypes.c_void_p\nfor n in range(6):\n i = c.shmget(0, 60 << 20, 0o1600); a = c.shmat(i, None, 0); ctypes.memset(a, 1, 60 << 20); c.shmdt(ctypes.c_void_p(a))\ntime.sleep(99)'", {"memory": 256 * M}, "memory", "System V segments that nobody has mapped"),
    (f"{PY} '{ON_DISK}\nfor n in range(9):\n f = open(f\"big{{n}}\", \"wb\"); os.posix_fallocate(f.fileno(), 0, 30 << 20)\ntime.sleep(99)'", {"disk": 100 * M}, "disk", "space taken by fallocate"),
    (f"{PY} '{ON_DISK}\nfor n in range(14):\n f = open(f\"/tmp/{{n}}\", \"wb\"); f.write(bytes(15 << 20))\ntime.sleep(99)'", {"disk": 100 * M}, "disk", "many files in /tmp"),
    (f"{PY} '{ON_DISK}f = []\nfor n in range(9):\n f.append(open(\"gone\", \"wb\")); os.unlink(\"gone\"); f[n].write(bytes(30 << 20))\ntime.sleep(99)'", {"disk": 100 * M}, "disk", "files that have no name any more"),
    (f"mkdir -p a/b; chmod 0 a; chmod 700 a; {PY} '{ON_DISK}f = [open(f\"a/b/{{n}}\", \"wb\") for n in range(9)]; os.chmod(\"a\", 0)\nfor n in f: n.write(bytes(60 << 20))\ntime.sleep(99)'", {"disk": 100 * M}, "disk", "twice as much, where it cannot be found"),
    (f"{PY} '{ON_DISK}\nfor n in range(30000): os.close(os.open(f\"/tmp/{{n}}\", os.O_CREAT | os.O_WRONLY))\ntime.sleep(99)'", {"disk": 128 * M}, "disk", "files that take no space"),
    ("ulimit -c 0; head -c 3000000 /dev/zero > big", {"file": M}, "", "one file that is too large: the kernel's signal goes to the program"),
]
# fmt: on


@in_every_way
@pytest.mark.parametrize(("script", "limits", "ended", "why"), ENDED, ids=[row[-1] for row in ENDED])
@pytest.mark.threat("T14")
def test_a_bomb_is_ended_by_its_limit(
    bench: Bench, counted: str, script: str, limits: dict[str, float], ended: str, why: str
) -> None:
    answer = bench.run(script, limits={"wall": 120.0, **limits}, counted=counted)
    try:
        assert answer.get("limits") == ("cgroup v1 (memory, pids, cpu)" if counted == "kernel" else "watchdog"), answer
        assert (answer["ended"] or "") == ended, answer
        if ended:
            assert answer["status"] in (137, 152), answer  # ours, or the kernel's SIGXCPU to one that alone used it up
        else:
            assert any("file reached" in what for what in answer["inferred"]), answer
        assert bench.run("echo on", limits={"wall": 120.0, **limits}, counted=counted)["out"] == "on\n"
    finally:
        clean(bench)


# fmt: off
SURVIVES: list[tuple[str, dict[str, float], str]] = [
    ("head -c 700M /dev/zero > big && rm big", {"memory": 256 * M}, "what the kernel keeps of files is not the command's memory"),
    ("truncate -s 400M big && truncate -s 400M gone && sleep 0.5 && rm big gone", {"disk": 500 * M}, "files of holes take no space"),
    ("for n in 1 2 3 4 5; do head -c 150M /dev/zero > big; sleep 0.25; rm big; done", {"disk": 500 * M}, "space that was given back"),
    (f"{PY} 'import mmap; m = mmap.mmap(-1, 900 << 20, prot=mmap.PROT_READ); print(len(m))'", {"memory": 256 * M}, "address space is no memory"),
    ("for n in $(seq 400); do /bin/true & done; wait", {"pids": 350}, "many processes, one after the other"),
    ("for n in $(seq 400); do /bin/true; done; for n in $(seq 90); do sleep 1 & done; wait", {"pids": 110}, "as many as promised, whatever numbers were used up before"),
    ("for n in $(seq 300); do (/bin/true &) ; done; sleep 0.5; for n in $(seq 300); do (/bin/true &); done", {"pids": 350}, "orphans that are over"),
]
# fmt: on


@in_every_way
@pytest.mark.parametrize(("script", "limits", "why"), SURVIVES, ids=[row[-1] for row in SURVIVES])
@pytest.mark.threat("T14")
def test_what_is_within_its_limits_goes_on(
    bench: Bench, counted: str, script: str, limits: dict[str, float], why: str
) -> None:
    answer = bench.run(script, limits={"wall": 120.0, **limits}, counted=counted)
    clean(bench)
    assert (answer["status"], answer["ended"]) == (0, None), answer


@pytest.mark.thorough
@pytest.mark.whole_matrix("the kernel and the watchdog count processes in different ways")
@pytest.mark.threat("T14")
@in_every_way
def test_a_fork_bomb_takes_no_more_than_its_share(bench: Bench, counted: str) -> None:
    """The kernel refuses what is too much, and for another user than root also where the watchdog counts.

    The watchdog looks a few times a second, and ends all processes.
    """
    limits: dict[str, float] = {"wall": 120.0, "pids": 320}
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
    ended = bench.user == "root" and counted == "watchdog"
    end = {} if ended else {"cancel": "Resource temporarily unavailable"}
    answer = bench.run("b() { b | b & }; b; sleep 99", limits=limits, counted=counted, **end)
    done.set()
    looking.join()
    assert (answer["ended"] == "pids") if ended else answer["cancelled"], answer
    # Between two looks of the watchdog the namespace's own end holds.
    assert most <= 320 + (10 if counted == "kernel" else 370)
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


@pytest.mark.whole_matrix("only the kernel counts what it refuses")
@in_every_way
def test_a_fork_that_was_refused_is_certain_where_the_kernel_counts(bench: Bench, counted: str) -> None:
    script = f"{PY} 'import os, time\ntry:\n  for n in range(999):\n    if not os.fork(): time.sleep(99); os._exit(0)\nexcept OSError as e: print(e, flush=True); os._exit(3)'"
    answer = bench.run(script, limits={"wall": 60.0, "pids": 320}, counted=counted)
    if counted == "kernel":
        assert answer["status"] == 3
        assert "temporarily unavailable" in answer["out"], answer
        assert len(answer["violations"]) == 1, answer
        (what,) = (what for what, *_ in answer["violations"])
        assert "1 attempt(s) to start a process or thread failed: the limit is 320" in what
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
    """Up to twice the limit; beyond that the command is ended to protect the machine.

    With root the folders are a file system of their own, which no other program fills.
    """
    limit, own = (80 * M, True) if os.geteuid() == 0 else (500 * M, False)
    for row, (size, ended) in enumerate(((limit * 7 // 5, None), (limit * 13 // 5, "disk"))):
        folder, workspace = bench.base, bench.workspace
        if own:
            folder = bench.base / f"filled-{row}"
            folder.mkdir()
            subprocess.run(["mount", "-t", "tmpfs", "-o", "size=400M,mode=0755", "tmpfs", folder], check=True)
            workspace = folder / "w"
            workspace.mkdir()
            workspace.chmod(0o777)
        other, begun, filled = folder / "other", workspace / "begun", workspace / "filled"

        done = threading.Event()

        def fill(
            size: int = size,
            other: Path = other,
            begun: Path = begun,
            filled: Path = filled,
            done: threading.Event = done,
        ) -> None:
            until(begun.exists, of=done.is_set, what="the start of the command")
            with other.open("wb") as file:
                os.posix_fallocate(file.fileno(), 0, size)
            filled.touch()

        filling = threading.Thread(target=fill)
        filling.start()
        script = f": > begun; until [ -e filled ]; do sleep 0.05; done; sleep {30 if ended else 1.5}; echo end"
        try:
            answer = bench.run(script, workspace=str(workspace), limits={"disk": limit, "wall": 120.0})
        finally:
            done.set()
            filling.join()
            for path in (other, begun, filled):
                path.unlink(missing_ok=True)
            if own:
                subprocess.run(["umount", "-l", folder], check=True)
        assert answer["ended"] == ended, answer


@pytest.mark.threat("T15")
@pytest.mark.threat("T14")
@in_every_way
def test_files_in_memory_that_ended_one_command_do_not_burden_the_next(bench: Bench, counted: str) -> None:
    limits = {"memory": 256 * M, "wall": 90.0}
    fill = f"head -c 120M /dev/zero > /dev/shm/a; head -c 120M /dev/zero > ~/b; {PY} 'import time; x = bytearray(60 << 20); time.sleep(80)'"
    assert bench.run(fill, limits=limits, counted=counted)["ended"] == "memory"
    answer = bench.run(f"ls /dev/shm; {PY} 'x = bytearray(150 << 20); print(len(x))'", limits=limits, counted=counted)
    assert answer["out"] == f"{150 * M}\n", answer


@pytest.mark.threat("T15")
@only_on(users=["root"], tiers=("T1",))  # no other user may make a control group here; the command runs in T3
def test_without_namespaces_a_control_group_still_finds_what_fled(bench: Bench) -> None:
    mark = new_nap()
    answer = bench.run(f"setsid sleep {mark} & sleep 0.1; kill -9 $PPID", tier="T3")
    assert not any("apply to each process" in lack for lack in answer["missing"]), answer
    assert not processes(mark)


# fmt: off
FILLS = [
    ("for i in 1 2 3 4; do (for n in $(seq 90); do head -c 9M /dev/zero > $i.$n; done) & done; wait", "four writers at once"),
    (f"{PY} 'import os\nfor n in range(99): f = os.open(str(n), os.O_RDWR | os.O_CREAT); os.posix_fallocate(f, 0, 9 << 20)'", "preallocation"),
    (f"{PY} 'import mmap, os\nos.fork(); os.fork()\nfor n in range(99):\n f = open(f\"{{os.getpid()}}.{{n}}\", \"w+b\"); f.truncate(9 << 20); m = mmap.mmap(f.fileno(), 9 << 20)\n for i in range(0, 9 << 20, 4096): m[i] = 1'", "pages of files that are mapped"),
    (f"{PY} 'import os, threading\ndef fill(n): os.write(os.open(str(n), os.O_WRONLY | os.O_CREAT), bytes(9 << 20))\nfor n in range(99): threading.Thread(target=fill, args=(n,)).start()'", "writes that a stop does not interrupt"),
    ("head -c 9M /dev/zero > a; for n in $(seq 99); do cat a > $n; done", "copies"),
    (f"mkdir -m 0 a; chmod 700 a; cd a; {PY} 'import os\nf = [open(str(n), \"wb\") for n in range(99)]; os.chmod(\".\", 0)\nfor n in f: n.write(bytes(9 << 20))'", "a folder that closes itself"),
]
# fmt: on


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small file system needs root")
@pytest.mark.parametrize(("script", "why"), FILLS, ids=[row[1] for row in FILLS])
@pytest.mark.parametrize("tier", ["T1", "T3"])
@pytest.mark.threat("T14")
def test_a_disk_is_not_filled_before_anybody_looks(bench: Bench, tier: str, script: str, why: str) -> None:
    """The file system has room for twenty times the limit; two looks at most are between the limit and the end."""
    folder = bench.base / f"small-{FILLS.index((script, why))}-{tier}"  # a helper keeps what it was given
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=400M,mode=0777", "tmpfs", folder], check=True)
    try:
        told: dict[str, Any] = {"workspace": str(folder), "limits": {"wall": 60.0, "disk": 20 * M}, "tier": tier}
        answer = bench.run(script, **told)
        found = os.statvfs(folder)
        assert answer["ended"] == "disk", answer
        assert (found.f_blocks - found.f_bfree) * found.f_frsize < 100 * M
    finally:
        subprocess.run(["umount", "-l", folder], check=True)


@pytest.mark.threat("T14")
def test_what_was_written_before_anybody_looked_is_told_at_the_end(bench: Bench) -> None:
    try:
        answer = bench.run("for n in 1 2 3; do head -c 900000 /dev/zero > big$n; done", limits={"disk": M})
        assert answer["ended"] == "disk", answer
    finally:
        clean(bench)


@pytest.mark.threat("T14")
def test_one_file_takes_no_more_than_all_files_may(bench: Bench) -> None:
    """The kernel's own bound (RLIMIT_FSIZE): not a byte more, whatever the observer. The name of the limit is told."""
    try:
        answer = bench.run("ulimit -c 0; head -c 90000000 /dev/zero > big; echo $?; exit 7", limits={"disk": 64 * M})
        assert answer["ended"] in ("disk", None), answer  # with its folder it takes a little more than the limit
        size = (bench.workspace / "big").stat().st_size
        if answer["ended"] == "disk":  # the observer may be quicker than the last bytes
            assert 32 * M < size <= 64 * M, answer
        else:
            assert size == 64 * M
            assert any("--limit disk=128M" in violation[2] for violation in answer["violations"]), answer
    finally:
        clean(bench)


ALLOCATES = """
import ctypes, errno, fcntl, os, struct
libc = ctypes.CDLL(None, use_errno=True)
def alloc(mode):
    done = libc.fallocate(file, ctypes.c_int(mode), ctypes.c_long(0), ctypes.c_long(1 << 20))
    return "done" if done == 0 else errno.errorcode[ctypes.get_errno()]
file = os.open("big", os.O_RDWR | os.O_CREAT)
os.write(file, bytes(3 << 20))
print(*(alloc(mode) for mode in (0x00, 0x01, 0x10, 0x11, 0x20, 0x40, 0x41, 0x80)))
space = struct.pack("hhxxxxqqiI16x", 0, 0, 0, 1 << 20, 0, 0)
for number in (0x40305828, 0x4030582a, 0x40305839):
    try:
        print("done" if fcntl.ioctl(file, number, space) == 0 else "odd", end=" ")
    except OSError as error:
        print(errno.errorcode[error.errno], end=" ")
print()
blocks = os.fstat(file).st_blocks
print(alloc(0x03), os.fstat(file).st_blocks < blocks)
os.posix_fallocate(file, 0, 5 << 20)
print(os.fstat(file).st_size >> 20, os.fstat(file).st_blocks >= 5 << 11)
"""


@pytest.mark.parametrize("tier", ["T1", "T3"])
@pytest.mark.threat("T14")
def test_space_is_taken_no_faster_than_it_is_written(bench: Bench, tier: str) -> None:
    """fallocate(2) and its ioctls take it at once; holes may be made, and posix_fallocate(3) writes."""
    try:
        answer = bench.run(f"{PY} '{ALLOCATES}'", tier=tier)
        modes, calls, punched, written = answer["out"].splitlines()
        assert set(modes.split()) == {"ENOTSUP"}, answer  # another name of EOPNOTSUPP
        assert set(calls.split()) == {"EPERM"}, answer
        assert (punched, written) == ("done True", "5 True"), answer
    finally:
        clean(bench)


SHARES = """
import ctypes, os, resource, sys
print(resource.getrlimit(resource.RLIMIT_SIGPENDING)[1], resource.getrlimit(resource.RLIMIT_MSGQUEUE)[1])
if sys.argv[1] == "limits":
    sys.exit()
libc, taken = ctypes.CDLL(None), 0
while libc.inotify_init1(0) >= 0:
    taken += 1
print(taken, int(open("/proc/sys/user/max_inotify_watches").read()))
print(open("/proc/self/uid_map").read().split())
terminals = []
try:
    while len(terminals) < 2000:
        terminals.append(os.open("/dev/ptmx", os.O_RDWR | os.O_NOCTTY))
except OSError:
    pass
print(len(terminals))
"""


@pytest.mark.threat("T14")
def test_a_command_takes_a_part_of_the_signals_and_queues_of_its_user(bench: Bench) -> None:
    """They are counted by user: a command must leave some to the user's programs."""
    answer = bench.run(f"{PY} '{SHARES}' limits")
    assert [int(each) <= most for each, most in zip(answer["out"].split(), (4096, 400 << 10), strict=True)] == [
        True
    ] * 2


@pytest.mark.whole_matrix("the user namespace of root maps more than one user")
@pytest.mark.threat("T14")
@only_on(tiers=("T1",))  # bubblewrap's user namespace, if any, is not ours to set
def test_a_command_takes_a_part_of_the_inotify_instances_and_terminals_of_its_user(bench: Bench) -> None:
    whole = [int(Path(f"/proc/sys/fs/inotify/max_user_{name}").read_text()) for name in ("instances", "watches")]
    with alone_with("inotify"):
        answer = bench.run(f"{PY} '{SHARES}' all")
    _, taken, ids, terminals = answer["out"].splitlines()
    assert [int(each) for each in taken.split()] == [most // 4 for most in whole]
    assert int(terminals) == 1024
    if bench.user == "root":
        own = Path("/proc/self/uid_map").read_text().split()
        assert ids == str([own[0], own[0], own[2]]), "files keep their owners"


@only_on(users=["root"])  # only root can give files to others
def test_root_owns_inside_what_it_owns_outside(bench: Bench) -> None:
    for name, owner in (("own", 0), ("other", 12345)):
        (bench.workspace / name).touch()
        os.chown(bench.workspace / name, owner, owner)
    try:
        assert bench.run("stat -c '%n %u %g' own other")["out"] == "own 0 0\nother 12345 12345\n"
        answer = bench.run("chown 12345 own; echo x > other; touch new; stat -c %u own other new")
        assert answer["out"].split() == ["0", "12345", "0"]
    finally:
        for name in ("own", "other", "new"):
            (bench.workspace / name).unlink(missing_ok=True)


def clean(bench: Bench) -> None:
    for path in (*bench.workspace.glob("big*"), bench.workspace / "gone"):
        path.unlink(missing_ok=True)
    if (bench.workspace / "a").exists():
        (bench.workspace / "a").chmod(0o700)
        shutil.rmtree(bench.workspace / "a")
    bench.run("rm -rf /tmp/*", limits={"wall": 20.0})


# ---- the words

# fmt: off
WORDS: list[tuple[dict[str, Any], int, frozenset[str], list[tuple[str, bool]], str]] = [
    ({"status": 0, "stderr": b"Too many open files"}, 9, frozenset(), [], "what ended well hit nothing"),
    ({"status": 137, "stderr": b"Too many open files", "ended_by": "wall"}, 9, frozenset(), [], "what was ended is told by that"),
    ({"status": 1}, 3, frozenset({"pids"}), [("3 attempt(s) to start", False)], "counted by the kernel"),
    ({"status": 1, "stderr": b"bash: fork: Resource temporarily unavailable"}, 0, frozenset(), [("processes was reached", True)], "bash's words"),
    ({"status": 1, "stderr": b"recv: Resource temporarily unavailable"}, 0, frozenset(), [], "another EAGAIN"),
    ({"status": 1, "stderr": b"OSError: [Errno 24] Too many open files"}, 0, frozenset(), [("open files", True)], "Python's words"),
    ({"status": 153}, 0, frozenset(), [("a file reached", True)], "a shell's status after SIGXFSZ"),
    ({"status": 152}, 0, frozenset(), [("processor time", True)], "a shell's status after SIGXCPU"),
    ({"status": 1, "stderr": b"MemoryError"}, 0, frozenset(), [("limit of memory", True)], "bounded process by process"),
    ({"status": 1, "stderr": b"MemoryError"}, 0, frozenset({"memory"}), [], "a control group refuses no memory, it ends"),
    ({"status": 1, "stdout": b"x: No space left on device"}, 0, frozenset(), [("the disk is full", True)], "a full file system in memory"),
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


def test_all_that_takes_space_is_counted(tmp_path: Path) -> None:
    space = Space((str(tmp_path),), M)
    space.begin()
    before = space.written()
    (tmp_path / "file").write_bytes(bytes(100_000))
    os.link(tmp_path / "file", tmp_path / "second name")
    (tmp_path / "link").symlink_to("x" * 3000)
    (tmp_path / "folder").mkdir()
    with (tmp_path / "holes").open("wb") as file:
        file.truncate(1 << 30)
    for n in range(200):
        os.link(tmp_path / "file", tmp_path / "folder" / f"{n:0200}")
    names = ("file", "link", "folder")
    assert space.written() - before >= sum(os.lstat(tmp_path / name).st_blocks * 512 for name in names) >= 100_000
    assert space.written() - before < 300_000, "each once, and no holes"


REAPS = """
import os, sys
from sandbox.inside.command_server import reap_others

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


def test_orphans_are_buried_but_for_what_somebody_waits_for() -> None:
    """A command may end between the look at it and the burial, and with it the helper ended."""
    done = subprocess.run([sys.executable, "-c", REAPS], cwd=ROOT, capture_output=True, text=True)
    assert done.stdout == "buried\n", done.stderr
