"""Commands that the resident process runs: the same in every respect as without it, and never outlived by anything."""

import json
import os
import re
import resource
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import pytest

from runner.resident.peer import standing
from sandbox.inside import syscalls
from tests.support import forked_agent
from tests.support.cli_harness import AGENT, CliHarness
from tests.support.command_samples import COMMANDS
from tests.support.marked_processes import new_nap
from tests.support.resident_process import PATIENCE, processes, resident, served, short_place, until
from tests.support.rotation import choose

T = TypeVar("T")
MODES = ("default", "accept-edits", "plan", "trust-project")
OWN = (
    "echo out; echo err >&2; exit 7", "cat", "cat; cat", "wc -c", "exit 300", "kill -9 $$", "kill -TERM $$", "pwd; ls -la",
    "printf 'a\\0b'", "printf '\\377\\n'", "env | sort | grep -v '^_='", "id -u; umask", "ulimit -n; ulimit -c; ulimit -Hn", "head -c 100000 /dev/zero | wc -c",
    "seq 20000", "echo '\u00e4\u20ac'", "test -t 0; echo $?", "ls /proc/self/fd | wc -l", "sleep 0.05", "true", "false", "cat < notes.txt", "echo x > new.txt",
    "mkdir -p a/b; touch a/b/c; ls -R", "git status --short", "git log", "cat .env", "cat /etc/passwd | wc -l", "nonsense-program", "if then", "cat <<E\nx\nE",
    "nice", "trap '' TERM; echo t", "yes | head -n 1000 | tail -n 1", "exec 5>&1; echo five >&5", "cat /proc/self/oom_score_adj", "date +%Z",
)  # fmt: skip


@dataclass(frozen=True)
class Line:
    """One command line with its input."""

    words: tuple[str, ...]
    given: bytes | None = None


def lines(whole: bool) -> list[Line]:
    """Return the command lines that are compared. Unless it is the whole matrix, each script has one mode and one input."""

    def of(name: str, variants: Sequence[T]) -> Sequence[T]:
        return variants if whole else [choose(name, variants)]

    found = [Line(("exec", "--mode", mode, script)) for script in COMMANDS for mode in of(f"exec {script}", MODES)]
    found += [
        Line(("exec", "--mode", "trust-project", script), given)
        for script in OWN
        for given in of(script, (None, b"in\n\xff"))
    ]
    found += [Line(("why", *form, script)) for script in COMMANDS for form in of(f"why {script}", ((), ("--json",)))]
    found += [Line(("exec", "--json", script)) for script in OWN[:20]]
    found += [
        Line(("exec",)), Line(("exec", "--nonsense", "ls")), Line(("exec", "ls", "-la")), Line(("exec", "--", "ls", "-a")), Line(("exec", "--help")),
        Line(("exec", "--cwd", "missing", "ls")), Line(("exec", "--timeout", "1", "sleep 20")), Line(("exec", "--limit", "pids=64", "true")),
        Line(("exec", "--mode", "dangerously", "ls")), Line(("exec", "--unattended", "rm -rf .")), Line(("why", "--tool", "read", "--path", "notes.txt")),
        Line(("policy", "judge"), b'{"id": 1, "cmd": "git status"}\n{"id": 2, "cmd": "rm -rf /"}\nnonsense\n'), Line(("exec", "--env", "A=b", "echo $A")),
        Line(("exec", "--write", "/tmp", "ls")), Line(("exec", "--host", "example.org", "true")), Line(("exec", "--backend", "T9", "true")),
    ]  # fmt: skip
    assert len(found) >= (500 if whole else 200)
    return found


CHANGING = re.compile(
    r"/proc/\d+|[0-9a-f]{8,}|\d+\.\d+|\d{4}-\d\d-\d\dT[\d:.]+Z?|\d\d:\d\d(:\d\d)?|\d+ m?s\b|rf-\w+|_\d\d_\d\d_\d{3}Z"
)


def masked(text: bytes) -> str:
    """Return `text` without ids, hashes and times."""
    return CHANGING.sub("#", text.decode("utf-8", "surrogateescape"))


def joined(events: bytes) -> bytes:
    """Return the events of `exec --json` with one event for the output on each stream. Output that comes in several
    pieces is one event a piece, and where it is divided depends on the moment.
    """
    found: list[bytes] = []
    texts: dict[int, str] = {}
    for line in events.splitlines():
        event = json.loads(line)
        if event["type"] == "output":
            texts[event["stream"]] = texts.get(event["stream"], "") + event["text"]
            continue
        found += [json.dumps({"stream": stream, "text": text}).encode() for stream, text in sorted(texts.items())]
        found.append(line)
        texts = {}
    assert not texts, "the last event is no output"
    return b"\n".join(found)


def ready(place: CliHarness) -> None:
    """Put the workspace into the state in which every line begins."""
    subprocess.run(["git", "-C", str(place.work), "clean", "-fdxq"], check=True)
    for name, text in (
        ("notes.txt", "notes\n"),
        (".env", "TOKEN=x\n"),
        ("docs/a.md", "a\n"),
        ("src/x.py", "print(1)\n"),
    ):
        path = place.work / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    (place.work / "docs").chmod(0o755)


def outcome(
    place: CliHarness, line: Line, run: Callable[..., "subprocess.CompletedProcess[bytes]"]
) -> tuple[object, ...]:
    ready(place)
    stdin = {"stdin": subprocess.DEVNULL} if line.given is None else {"input": line.given}
    done = run(
        [AGENT, *line.words], cwd=place.work, env={**place.environ, "NO_COLOR": "1"}, capture_output=True, **stdin
    )
    files = sorted(
        (str(path.relative_to(place.work)), oct(path.lstat().st_mode), path.read_bytes() if path.is_file() else b"")
        for path in place.work.rglob("*")
        if ".git" not in path.parts
    )
    stdout = joined(done.stdout) if line.words[:2] == ("exec", "--json") else done.stdout
    return done.returncode, masked(stdout), masked(done.stderr), files


def record(place: CliHarness) -> list[str]:
    done = place.agent("audit", "export", "--format", "jsonl")
    assert done.returncode == 0, done.stderr
    # The count of input bytes depends on whether a command that reads none ends before they are passed on, and the
    # memory of a command on what its helper had when it was started.
    lines = [CHANGING.sub("#", re.sub(r'"(stdin|memory)":\d+', "", line)) for line in done.stdout.splitlines()]
    # A helper that does not end its command in time is killed, and has told nothing then.
    return [re.sub(r'"used":(null|\{[^}]*\})', "", line) if '"ended_by":"wall"' in line else line for line in lines]


PARTS = 6  # of the lines, so that each test is short


@pytest.mark.thorough
@pytest.mark.slow("the same two hundred lines twice, in six parts: the law of this module")
@pytest.mark.threat("T273")
@pytest.mark.parametrize("part", range(PARTS))
def test_they_are_the_same_as_cold_ones(part: int, request: pytest.FixtureRequest) -> None:
    """Two hundred lines, and five hundred with `--matrix`: output, exit status, files and every field of the record.

    The cold ones are forked: `test_forked_agent` shows that they are the same as executed ones.
    """
    compared = lines(request.config.getoption("--matrix"))[part::PARTS]
    with short_place() as place:
        cold = [outcome(place, line, forked_agent.run) for line in compared]
        records = [record(place)]
    with short_place() as place:
        with resident(place):
            warm = [outcome(place, line, subprocess.run) for line in compared]
            count = served(place)
        records.append(record(place))
    different = [(line, cold, warm) for line, cold, warm in zip(compared, cold, warm, strict=True) if cold != warm]
    assert not different, f"{len(different)} of {len(compared)}: {different[:3]}"
    assert records[0] == records[1]
    # On a busy machine a worker may take longer than a client waits for it.
    assert count >= 0.8 * len(compared), "nearly all were run by a worker"


@pytest.fixture
def place() -> Iterator[CliHarness]:
    with short_place() as made:
        yield made


def start(place: CliHarness, *words: str, **more: Any) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [AGENT, *words],
        cwd=place.work,
        env=place.environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        **{"stdin": subprocess.DEVNULL, **more},
    )


def sleeping(place: CliHarness, seconds: str) -> subprocess.Popen[bytes]:
    """Start a client whose command sleeps for a number of seconds that no other process has, and wait for it."""
    client = start(place, "exec", "--mode", "trust-project", f"echo begun; sleep {seconds}")
    assert client.stdout is not None
    assert client.stdout.readline() == b"begun\n"
    return client


@pytest.mark.threat("T273")
@pytest.mark.parametrize(
    ("number", "code"),
    [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129), (signal.SIGUSR1, 138), (signal.SIGQUIT, 131)],
)
def test_a_signal_to_the_client_ends_the_command(place: CliHarness, number: int, code: int) -> None:
    with resident(place):
        nap = new_nap()
        client = sleeping(place, nap)
        client.send_signal(number)
        client.communicate(timeout=PATIENCE)
        assert client.returncode == code
        assert served(place) == 1
        until(lambda: not processes(f"sleep {nap}"), "the end of the command")
        assert [each["outcome"]["ended_by"] for each in place.audit()] == ["cancelled"]  # type: ignore[index]


@pytest.mark.threat("T275")
def test_what_is_killed_takes_its_command_along(place: CliHarness) -> None:
    first, second, third = new_nap(), new_nap(), new_nap()
    with resident(place) as process:
        client = sleeping(place, first)
        client.kill()
        client.communicate(timeout=PATIENCE)
        until(lambda: not processes(f"sleep {first}"), "the end of the command of a killed client")
        client = sleeping(place, second)
        until(lambda: bool(processes(f"sleep {second}")), "the start of the command")
        worker = [pid for pid in children(process.pid) if has_command(pid, f"sleep {second}")]
        os.kill(worker[0], signal.SIGKILL)
        _, said = client.communicate(timeout=PATIENCE)
        assert client.returncode == 137
        assert b"was killed" in said
        until(lambda: not processes(f"sleep {second}"), "the end of the command of a killed worker")
        client = sleeping(place, third)
        process.kill()
        _, said = client.communicate(timeout=PATIENCE)
        assert client.returncode == 137
        assert b"was killed" in said
        until(lambda: not processes(f"sleep {third}"), "the end of the command of a killed resident process")
    done = place.agent("exec", "echo again")  # cold, because the process is gone
    assert (done.stdout, done.returncode) == ("again\n", 0)


def children(pid: int) -> list[int]:
    return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def has_command(pid: int, mark: str) -> bool:
    """Return True if a descendant of the process has `mark` in its command line."""
    wanted = set(processes(mark))
    found, left = set(), [pid]
    while left:
        each = left.pop()
        found.add(each)
        try:
            left += children(each)
        except OSError:
            continue
    return bool(wanted & found)


def test_a_stopped_client_stops_its_command(place: CliHarness) -> None:
    """Ctrl-Z, and `fg` later: nothing is printed meanwhile."""
    with resident(place):
        client = start(place, "exec", "--mode", "trust-project", "while :; do echo tick; sleep 0.05; done")
        assert client.stdout is not None
        assert client.stdout.readline() == b"tick\n"
        client.send_signal(signal.SIGTSTP)
        until(lambda: state(client.pid) == "T", "the stop of the client")
        os.set_blocking(client.stdout.fileno(), False)
        until(lambda: client.stdout.read() is None, "the stop of the output")  # type: ignore[union-attr]
        client.send_signal(signal.SIGCONT)
        os.set_blocking(client.stdout.fileno(), True)
        assert b"tick" in client.stdout.read(5)
        client.send_signal(signal.SIGINT)
        client.communicate(timeout=PATIENCE)
        assert client.returncode == 130


def state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def test_the_state_of_the_client_is_taken_over(place: CliHarness) -> None:
    """Umask, limits, priority, ignored signals, processors, and a folder that has no name any more."""
    gone = place.work / "gone"

    def change() -> None:
        os.umask(0o027)
        resource.setrlimit(resource.RLIMIT_NOFILE, (333, 444))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        os.nice(3)
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        syscalls.ignore_signal(32)  # as posix_spawn(3) does, and so make(1)
        syscalls.block_signals(1 << 32)  # signal 33

    script = "umask; ulimit -n; ulimit -Hn; ulimit -c; nice; nproc; touch made; stat -c %a made; kill -HUP $$; echo on"
    answers = []
    for warm in (False, True):
        (place.work / "made").unlink(missing_ok=True)
        words = ("exec", "--mode", "trust-project", script)
        if warm:
            with resident(place):
                client = start(place, *words, preexec_fn=change)
                answers.append((client.communicate(timeout=PATIENCE), client.returncode))
                assert served(place) == 1
        else:
            client = start(place, *words, preexec_fn=change)
            answers.append((client.communicate(timeout=PATIENCE), client.returncode))
    assert answers[0] == answers[1]
    assert answers[0][0][0].split()[5:6] == [b"1"], answers[0]
    gone.mkdir()
    with resident(place):
        client = start(place, "exec", "pwd", preexec_fn=lambda: (os.chdir(gone), os.rmdir(gone)))
        _, said = client.communicate(timeout=PATIENCE)
        assert client.returncode == 2
        assert b"working folder" in said


@pytest.mark.parametrize(
    "ignored", [{signal.SIGCHLD}, set(range(1, 65)) - {signal.SIGKILL, signal.SIGSTOP}], ids=["SIGCHLD", "all"]
)
def test_signals_that_the_parent_process_ignores_change_no_exit_code(place: CliHarness, ignored: set[int]) -> None:
    def change() -> None:
        for number in ignored:
            syscalls.ignore_signal(number)

    def code() -> int:
        client = start(place, "exec", "ls | cat; exit 3", preexec_fn=change, restore_signals=False)
        client.communicate(timeout=PATIENCE)
        return int(client.returncode)

    assert code() == 3
    with resident(place):
        assert code() == 3
        assert served(place) == 1


def test_configuration_and_environment_are_those_of_the_moment(place: CliHarness) -> None:
    folder = place.base / "config" / "ringfence"
    with resident(place):
        assert place.agent("exec", "echo one").stdout == "one\n"
        folder.mkdir()
        (folder / "config.toml").write_text('[[rule]]\nverdict = "deny"\nrun = ["echo", "**"]\nwhy = "today"\n')
        assert place.agent("exec", "echo two").returncode == 3
        (folder / "config.toml").unlink()
        assert place.agent("exec", "echo three").stdout == "three\n"
        zone = place.agent("exec", "date +%Z", env={"TZ": "XYZ-3"})
        assert zone.stdout == "XYZ\n"
        binaries = place.base / "bin"
        binaries.mkdir()
        (binaries / "frob").write_text("#!/bin/sh\necho frobbed\n")
        (binaries / "frob").chmod(0o755)
        words = ("why", "--json", "frob")
        assert "no such program" not in place.agent(*words, env={"PATH": f"{binaries}:{place.environ['PATH']}"}).stdout
        assert served(place) == 5


@pytest.mark.threat("T274")
def test_a_process_with_other_rights_is_not_served(place: CliHarness) -> None:
    """It finds the socket, as if its sandbox showed it, and gets nothing: the command runs with its own rights."""
    program = "import ctypes, os, sys\nlibc = ctypes.CDLL(None)\n{before}\nos.execv(sys.argv[1], sys.argv[1:])\n"
    befores = {
        "no new privileges": "assert libc.prctl(38, 1, 0, 0, 0) == 0",
        "a namespace": "assert libc.unshare(0x04000000) == 0",
        "fewer capabilities": "assert libc.prctl(24, 21, 0, 0, 0) == 0",
    }
    if os.geteuid():
        del befores["a namespace"], befores["fewer capabilities"]
    with resident(place):
        for name, before in befores.items():
            done = subprocess.run(
                [sys.executable, "-c", program.format(before=before), AGENT, "exec", "echo here"],
                cwd=place.work,
                env=place.environ,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=PATIENCE,
            )
            assert b"here" in done.stdout or done.returncode == 4, (name, done.stderr)
            assert served(place) == 0, name
        assert place.agent("exec", "true").returncode == 0
        assert served(place) == 1


FILTER = """
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
allow = (ctypes.c_uint64 * 1)(6 | 0x7FFF0000 << 32)  # BPF_RET, SECCOMP_RET_ALLOW
class Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("filter", ctypes.c_void_p)]
def install():
    program = Program(1, ctypes.addressof(allow))
    assert libc.prctl(38, 1, 0, 0, 0) == 0
    assert libc.prctl(22, 2, ctypes.byref(program), 0, 0) == 0, ctypes.get_errno()
install()
if os.fork():
    os.wait()
else:
    install()
    print(os.getppid(), os.getpid(), flush=True)
    sys.stdin.read()
"""


@pytest.mark.threat("T274")
def test_a_further_filter_of_system_calls_is_another_right() -> None:
    """In a container with a filter and without new privileges, a sandbox of filters differs by their number alone."""
    with subprocess.Popen([sys.executable, "-c", FILTER], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        outer, inner = process.stdout.readline().decode().split()
        assert standing(outer) == standing(outer)
        assert standing(outer) != standing(inner)
        process.communicate(timeout=PATIENCE)


@pytest.mark.threat("T276")
@pytest.mark.parametrize("path", ["/dev/fd/9", "/proc/self/fd/9", "/dev/./fd/9", "/dev//fd/9", "/proc//self/./fd/9"])
def test_settings_behind_a_descriptor_of_the_client_count(place: CliHarness, path: str) -> None:
    settings = place.base / "settings"
    settings.mkdir(mode=0o700)
    (settings / "config.toml").write_text('[[rule]]\nverdict = "deny"\nrun = ["echo", "**"]\nwhy = "today"\n')

    def change() -> None:
        os.dup2(os.open(settings, os.O_RDONLY), 9)

    with resident(place):
        client = subprocess.Popen(
            [AGENT, "exec", "echo hi"],
            cwd=place.work,
            env={**place.environ, "RINGFENCE_CONFIG_DIR": path},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            preexec_fn=change,
            close_fds=False,
        )
        _, said = client.communicate(timeout=PATIENCE)
        assert client.returncode == 3, said
        assert b"today" in said


@pytest.mark.threat("T276")
def test_temporary_files_are_where_those_of_the_client_are(place: CliHarness) -> None:
    """A prepared helper has its folder in that of another client, and is not used."""
    names = ("one", "other")
    for name in names:
        (place.base / name).mkdir()

    def used(name: str) -> set[str]:
        """Return the folders in which a command with the folder `name` has its temporary files."""
        environ = {**place.environ, "TMPDIR": str(place.base / name)}
        script = "touch /tmp/here; echo begun; cat"
        with subprocess.Popen(
            [AGENT, "exec", "--mode", "trust-project", script],
            cwd=place.work, env=environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        ) as process:  # fmt: skip
            assert process.stdout is not None
            assert process.stdout.readline() == b"begun\n"
            found = {each for each in names for _ in (place.base / each).glob("ringfence-tmp-*/here")}
            process.communicate(timeout=PATIENCE)
        return found

    assert [used(name) for name in names] == [{"one"}, {"other"}]
    with resident(place):
        assert [used(name) for name in (*names, "one")] == [{"one"}, {"other"}, {"one"}]
        assert served(place) == 3


@pytest.mark.threat("T274")
def test_no_sandbox_reaches_the_sockets(place: CliHarness) -> None:
    with resident(place):
        sockets = [str(place.base / "state" / "resident" / name) for name in ("warm", "control")]
        program = (
            f"import socket\nfor path in {sockets}:\n"
            " try: socket.socket(1, 1).connect(path); print('connected')\n"
            " except OSError as error: print(error.errno)\n"
        )
        (place.work / "try.py").write_text(program)
        for unix in ((), ("--unix",)):
            done = place.agent("exec", "--mode", "trust-project", *unix, "python3 try.py")
            assert done.returncode == 0, done.stderr
            assert "connected" not in done.stdout
            assert len(done.stdout.split()) == 2


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
@pytest.mark.threat("T274")
def test_no_other_user_is_served(place: CliHarness) -> None:
    """Even if the folder were open to everybody, and even for root as the other user."""
    with resident(place):
        for path in (place.base, place.base / "state", place.base / "state" / "resident"):
            path.chmod(0o755)
        for name in ("warm", "control"):
            (place.base / "state" / "resident" / name).chmod(0o666)
        program = (
            "import os, socket, sys\nos.setgroups([]); os.setgid(65534); os.setuid(65534)\n"
            "for path in sys.argv[1:]:\n"
            " client = socket.socket(1, 1); client.settimeout(20); client.connect(path)\n"
            ' try: client.sendall(b\'{"op": "stop"}\\n\'); print(client.recv(100) == b\'{"ok": true}\\n\')\n'
            " except (BrokenPipeError, ConnectionResetError): print('closed')\n"
        )
        sockets = [str(place.base / "state" / "resident" / name) for name in ("warm", "control")]
        done = subprocess.run(
            [sys.executable, "-c", program, *sockets], capture_output=True, text=True, timeout=PATIENCE
        )
        assert len(done.stdout.split()) == 2, done.stderr
        assert "True" not in done.stdout
        assert place.agent("exec", "true").returncode == 0


@pytest.mark.slow("forty clients at once")
def test_many_clients_at_once_are_answered(place: CliHarness) -> None:
    with resident(place):
        clients = [start(place, "exec", f"echo {number}") for number in range(40)]
        for number, client in enumerate(clients):
            out, said = client.communicate(timeout=120)
            assert (out, client.returncode) == (b"%d\n" % number, 0), said


@pytest.mark.slow("fifty commands, between which nothing may be left")
def test_nothing_is_left_behind(place: CliHarness) -> None:
    """Descriptors, folders and processes after a hundred commands are those after ten."""
    with resident(place) as process:

        def rests() -> bool:
            """Return True if no worker runs, ends or is missing."""
            status = json.loads(place.agent("serve", "--status", "--json").stdout)
            return (status["working"], status["waiting"], len(children(process.pid))) == (0, 2, 2)

        def left() -> tuple[int, list[str], int]:
            until(rests, "the start of new workers")
            folders = sorted(str(path) for path in place.base.rglob("*") if path.is_dir())
            return len(os.listdir(f"/proc/{process.pid}/fd")), folders, len(children(process.pid))

        for _ in range(10):
            place.agent("exec", "true")
        before = left()
        for _ in range(40):
            place.agent("exec", "true")
        until(lambda: left() == before, "the state of before")
