"""Escape attempts against every backend that this machine has: `python tests/escapes/run.py [--backend T1] [--user nobody]`.

Each attempt runs twice, in a world of decoys: unconfined, where it must get out, or it proves nothing (NA), and through
`agent exec` under the backend. Verdicts: CONTAINED, ESCAPED (with what showed it), NA, ERROR (it did not run to its end,
which is never a pass). As root everything happens in namespaces of its own. Nothing here harms the machine: settings
are opened and never written, calls that would end it get arguments that make no sense. An attempt of kind `auto-run` may
be ended by the watch for such files instead of running to its end.
"""

import argparse
import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.escapes.attempt import Attempt
from tests.escapes.attempts_files import ATTEMPTS as FILES
from tests.escapes.attempts_kernel import ATTEMPTS as KERNEL
from tests.escapes.attempts_network import ATTEMPTS as NETWORK
from tests.escapes.attempts_processes import ATTEMPTS as PROCESSES
from tests.escapes.attempts_workspace import ATTEMPTS as WORKSPACE
from tests.escapes.world import ADDRESS, Stage, World, compiled
from tests.support import agent_program

ATTEMPTS: tuple[Attempt, ...] = (*FILES, *NETWORK, *KERNEL, *PROCESSES, *WORKSPACE)
AGENT = Path(agent_program.AGENT)
LAYERED = Path(__file__).with_name("layered_agent.py")
LAUNCHER = Path(__file__).with_name("forking_launcher.py")
LIMITS = {"pids": "256", "memory": "512M", "file": "64M", "output": "2M", "disk": "256M"}
WATCHED = b"the command was ended: it created an auto-run file"
USERS = ("root", "nobody") if os.geteuid() == 0 else ("self",)


@dataclass(frozen=True)
class Run:
    """One run of one attempt. `fired`: what showed that it got out."""

    fired: list[str]
    output: bytes
    status: int


@dataclass(frozen=True)
class Verdict:
    attempt: Attempt
    word: str
    why: str = ""


class Launcher:
    """A process of the user of a world that forks `agent`: see `forking_launcher.py`."""

    def __init__(self, environ: dict[str, str], who: dict[str, Any]) -> None:
        self._requests, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, str(LAUNCHER), str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                cwd="/",
                env=environ,
                pass_fds=[theirs.fileno()],
                **who,
            )

    def finished(self, stage: Stage, argv: list[str], attempt: Attempt) -> tuple[bytes, int]:
        """Do what `_finished` does, for argv that begins with `AGENT`, without a terminal."""
        reader, writer = os.pipe()
        with open(os.devnull, "rb") as nothing, os.fdopen(reader, "rb") as stream:
            asked = {"argv": argv, "environ": stage.environment(), "cwd": str(stage.ws)}
            files = [nothing.fileno(), writer, writer, *stage.descriptors]
            request = json.dumps({**asked, "numbers": [0, 1, 2, *stage.descriptors]}).encode()
            try:
                socket.send_fds(self._requests, [request], files)
            finally:
                os.close(writer)
            pid = int(self._requests.recv(99))

            def end(_: int) -> int:
                os.kill(pid, signal.SIGKILL)
                return 0

            def wait(seconds: float) -> int | None:
                self._requests.settimeout(seconds)
                with contextlib.suppress(TimeoutError):
                    return os.waitstatus_to_exitcode(int(self._requests.recv(99)))
                return None

            return _collected(stream, attempt, wait, end)

    def close(self) -> None:
        self._requests.close()
        self._process.wait()


def once(
    world: World,
    attempt: Attempt,
    backend: str | None,
    binary: Path | None,
    program: tuple[str, ...] = (str(AGENT),),
    launcher: Launcher | None = None,
) -> Run:
    """Run one attempt by `program` under `backend`, or unconfined when there is none."""
    stage = world.lay(attempt, binary)
    argv = stage.argv
    if backend is None and os.geteuid() == 0 and world.uid == 0:
        argv = ["unshare", "--mount", "--propagation", "private", *argv]  # what it mounts goes with it
    elif backend is not None:
        limits = {**LIMITS, "wall": str(attempt.seconds)}
        told = [part for name, value in limits.items() for part in ("--limit", f"{name}={value}")]
        agent = [
            *program,
            "exec",
            "--backend",
            backend,
            "--accept-partial",
            "--mode",
            "trust-project",
            "--unattended",
        ]
        argv = [*agent, "--cwd", str(stage.ws), *told, "--", *argv]
    with _reaching_in(stage, attempt):
        forked = launcher is not None and backend is not None and not attempt.tty
        output, status = (launcher.finished if launcher and forked else _finished)(stage, argv, attempt)
    return Run(stage.fired(output), output, status)


def _finished(stage: Stage, argv: list[str], attempt: Attempt) -> tuple[bytes, int]:
    process = subprocess.Popen(
        argv,
        stdin=stage.world.slave if attempt.tty else subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        cwd=stage.ws,
        env=stage.environment(),
        pass_fds=stage.descriptors,
        start_new_session=True,
        preexec_fn=_take_terminal if attempt.tty else None,
        **stage.world.who(),
    )
    assert process.stdout is not None

    def wait(seconds: float) -> int | None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            return process.wait(seconds)
        return None

    return _collected(process.stdout, attempt, wait, process.send_signal)


def _collected(
    stream: IO[bytes], attempt: Attempt, wait: Callable[[float], int | None], end: Callable[[int], object]
) -> tuple[bytes, int]:
    """Return the output and the exit code of a process. It is killed if it does not end."""
    output = bytearray()

    def take() -> None:
        with contextlib.suppress(ValueError, OSError):
            while chunk := os.read(stream.fileno(), 1 << 16):
                output.extend(chunk)

    taking = threading.Thread(target=take, daemon=True)
    taking.start()
    status = wait(attempt.seconds + 60)
    if status is None:
        end(signal.SIGKILL)
        status = wait(attempt.seconds + 60)
    taking.join(1.0)  # a process that the attempt left may hold the stream open
    return bytes(output), -signal.SIGKILL if status is None else status


def _await_end_of_bomb(uid: int) -> None:
    """Wait until the processes of a bomb are gone, for at most a minute: in T3 they count against the next limit.

    Also ended processes count until the first process of the machine has read their status.
    """
    until = time.monotonic() + 60
    while time.monotonic() < until:
        number = 0
        for name in filter(str.isdigit, os.listdir("/proc")):
            with contextlib.suppress(OSError):
                number += os.stat(f"/proc/{name}").st_uid == uid
        if number < int(LIMITS["pids"]) // 2:
            return
        time.sleep(0.2)


def _take_terminal() -> None:
    import fcntl
    import termios

    fcntl.ioctl(0, termios.TIOCSCTTY, 1)


@contextlib.contextmanager
def _reaching_in(stage: Stage, attempt: Attempt) -> Iterator[None]:
    """For the attempt to be reached: a process outside that keeps trying."""
    done = threading.Event()

    def knock() -> None:
        while not done.wait(0.1):
            with contextlib.suppress(OSError):
                socket.create_connection(("127.0.0.1", stage.told["inward"]), 0.2).close()

    if attempt.name == "listen-outside":
        threading.Thread(target=knock, daemon=True).start()
    yield
    done.set()


def judged(attempt: Attempt, control: Run | None, confined: Run) -> Verdict:
    lines = confined.output.split(b"\n")
    if confined.fired:
        return Verdict(attempt, "ESCAPED", "; ".join(dict.fromkeys(confined.fired))[:200])
    if attempt.x86 and os.uname().machine != "x86_64":
        return Verdict(attempt, "NA", "its numbers are those of x86_64")
    # A command that makes an auto-run file is ended by the watch (T116); what it left is looked at from outside.
    ended = attempt.kind == "auto-run" and confined.status == 5 and WATCHED in confined.output
    if b"STARTED" not in lines or not (b"TRIED" in lines or attempt.dies or ended):
        last = confined.output.decode("utf-8", "replace").strip()[-300:]
        return Verdict(attempt, "ERROR", f"it did not run to its end (status {confined.status}): {last}")
    if control is not None and not control.fired:
        return Verdict(attempt, "NA", "unconfined it gets nothing here either")
    return Verdict(attempt, "CONTAINED")


@contextlib.contextmanager
def _resident(world: World) -> Iterator[None]:
    """The resident process of the user of a world, which has to run nearly all commands of the block."""
    home = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": str(world.base), "LANG": "C.UTF-8"}
    environ = {**home, **{f"XDG_{each}_HOME": str(world.state) for each in ("STATE", "CONFIG", "CACHE")}}
    process = subprocess.Popen(
        [AGENT, "serve"], env=environ, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, **world.who()
    )
    try:
        assert process.stderr is not None
        assert b"is ready" in process.stderr.readline()
        yield
        told = [AGENT, "serve", "--status", "--json"]
        shown = subprocess.run(told, env=environ, capture_output=True, check=True, **world.who())
        print(f"{json.loads(shown.stdout)['served']} commands were warm", file=sys.stderr)
    finally:
        process.terminate()
        process.communicate()


def judge(
    backends: list[str],
    user: str,
    chosen: list[Attempt],
    *,
    controls: bool,
    warm: bool = False,
    fork: bool = False,
    program: tuple[str, ...] = (str(AGENT),),
) -> Iterator[tuple[str, Verdict]]:
    """Judge each attempt under each backend, as it comes.

    Args:
        warm: the resident process of the user runs the commands.
        fork: `agent` is forked from a process with its modules, except for attempts with a terminal.
        program: the command that runs `agent`.
    """
    world = World(user)
    try:
        with contextlib.ExitStack() as stack:
            launcher = None
            if warm:
                stack.enter_context(_resident(world))
            if fork:
                home = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": str(world.base), "LANG": "C.UTF-8"}
                launcher = Launcher({**home, "DECOY_API_KEY": world.worded}, world.who())
                stack.callback(launcher.close)
            yield from _each(world, backends, user, chosen, program, launcher, controls=controls)
    finally:
        world.close()


def _each(
    world: World,
    backends: list[str],
    user: str,
    chosen: list[Attempt],
    program: tuple[str, ...],
    launcher: Launcher | None,
    *,
    controls: bool,
) -> Iterator[tuple[str, Verdict]]:
    for attempt in chosen:
        binary = compiled(attempt, world.base) if attempt.language == "c" else None
        control = once(world, attempt, None, binary) if controls else None
        if controls and attempt.kind == "limits" and user != "root":
            _await_end_of_bomb(world.uid)
        for backend in backends:
            yield backend, judged(attempt, control, once(world, attempt, backend, binary, program, launcher))


def available() -> list[str]:
    """The backends whose canary holds here, in the registry's order, and containers where we may start a daemon."""
    told = json.loads(subprocess.run([AGENT, "doctor", "--json"], capture_output=True, check=False).stdout)
    findings = told["findings"] if isinstance(told, dict) else told
    good = [each["name"] for each in findings if each.get("sandbox") and each["state"] in ("ok", "weak")]
    daemon = ["container"] if os.geteuid() == 0 and shutil.which("dockerd") and shutil.which("mmdebstrap") else []
    return [*(name.removeprefix("sandbox ") for name in good), *daemon]


def in_a_world(argv: list[str], backends: list[str]) -> int | None:
    """Run this program again as root in new mount, network, IPC and UTS namespaces, and return its exit code.

    Return None without root, and in the process that is already in these namespaces. A container daemon is started
    before, because it needs the namespaces of the machine.
    """
    if os.geteuid() != 0 or os.environ.get("ESCAPES_WORLD"):
        return None
    spaces = ["unshare", "--mount", "--net", "--ipc", "--uts", "--propagation", "private", sys.executable, __file__]
    told = {"ESCAPES_WORLD": "1", "ESCAPES_BACKENDS": " ".join(backends)}
    with contextlib.ExitStack() as stack:
        if "container" in backends:
            from tests.support.container_bench import dock  # only where it is wanted: it starts a daemon

            found = stack.enter_context(dock())
            told["ESCAPES_CONTAINER"] = f'[sandbox.container]\nimage = "{found.image}"\nsocket = "{found.socket}"\n'
        return subprocess.run([*spaces, *argv], env={**os.environ, **told}, check=False).returncode


def settle_in() -> None:
    if os.environ.get("ESCAPES_WORLD"):
        for argv in (
            ["ip", "link", "set", "lo", "up", "multicast", "on"],
            ["ip", "addr", "add", f"{ADDRESS}/32", "dev", "lo"],
            ["ip", "route", "add", "224.0.0.0/4", "dev", "lo"],
            *(["mount", "-t", "tmpfs", "tmpfs", place] for place in ("/etc/cron.d", "/etc/profile.d", "/usr/local/games", "/var/spool/cron") if os.path.isdir(place)),
        ):  # fmt: skip
            subprocess.run(argv, check=True)
        Path("/proc/sys/net/ipv4/ping_group_range").write_text("0 2147483647")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--backend", action="append", help="one of the registry; again for more; default: all there are"
    )
    parser.add_argument("--user", choices=USERS, action="append", help="default: all that we may be")
    parser.add_argument("--only", default="", help="attempts whose kind or name holds this text")
    parser.add_argument("--kind", action="append", help="attempts of this kind; again for more")
    parser.add_argument("--part", default="1/1", help="one of several shares, as 1/2")
    parser.add_argument("--no-control", action="store_true", help="only confined: quicker, and NA cannot be told")
    parser.add_argument("--warm", action="store_true", help="by the resident process of each user")
    parser.add_argument("--fork", action="store_true", help="by processes that are forked, which saves their start")
    parser.add_argument("--layer", action="store_true", help="each command on a layer, which is then discarded (T1)")
    parser.add_argument("--json", action="store_true", help="verdicts as JSON on standard output")
    parser.add_argument("--list", action="store_true", help="the attempts, without running them")
    parser.add_argument("-v", action="store_true", help="every verdict as it comes")
    told = parser.parse_args()
    chosen = [each for each in ATTEMPTS if told.only in each.name or told.only == each.kind]
    chosen = [each for each in chosen if not told.kind or each.kind in told.kind]
    number, _, count = told.part.partition("/")
    chosen = chosen[int(number) - 1 :: int(count)]
    if told.list:
        for each in chosen:
            print(f"{each.kind:<12} {each.name:<26} {each.why}")
        return 0
    program = (sys.executable, str(LAYERED)) if told.layer else (str(AGENT),)
    backends = ["T1"] if told.layer else told.backend or os.environ.get("ESCAPES_BACKENDS", "").split() or available()
    if (status := in_a_world(sys.argv[1:], backends)) is not None:
        return status
    settle_in()
    started, answers = time.monotonic(), []
    with contextlib.suppress(KeyboardInterrupt):  # what was found until then is worth something
        for user in told.user or USERS:
            told_of = {"controls": not told.no_control, "warm": told.warm, "fork": told.fork, "program": program}
            for backend, found in judge(backends, user, chosen, **told_of):
                here = {"backend": backend, "user": user, "name": found.attempt.name, "kind": found.attempt.kind}
                answers.append({**here, "verdict": found.word, "why": found.why})
                if told.v or found.word in ("ESCAPED", "ERROR"):
                    line = f"{backend:<10} {user:<7} {found.word:<10} {found.attempt.name:<26} {found.why}"
                    print(line, file=sys.stderr, flush=True)
    if told.json:
        print(json.dumps(answers))
    words = ("CONTAINED", "ESCAPED", "NA", "ERROR")
    for backend, user in dict.fromkeys((each["backend"], each["user"]) for each in answers):
        mine = [each["verdict"] for each in answers if (each["backend"], each["user"]) == (backend, user)]
        counts = ", ".join(f"{mine.count(word)} {word}" for word in words)
        print(f"{backend} as {user}: {counts} of {len(mine)}", file=sys.stderr)
    print(f"{time.monotonic() - started:.0f} s", file=sys.stderr)
    return int(any(each["verdict"] in ("ESCAPED", "ERROR") for each in answers))


if __name__ == "__main__":
    sys.exit(main())
