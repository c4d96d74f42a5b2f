"""`make bench`: what processes that stay cost, each as a ratio to the same work without a sandbox in the same run.

Run as a program. With `--ends N` it also ends N sessions, half of them by SIGKILL of the runner, and counts processes
that are alive 200 ms later.
"""

import argparse
import asyncio
import os
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from pathlib import Path

from policy.model.action import RunArgv, RunScript
from policy.model.verdict import _MINT, Permit, Rights, Terms
from sandbox.linux.backend import Linux

SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib64", "/etc/ld.so.cache", "/etc/passwd", "/etc/alternatives")
PORT = 38_417
SERVER = (
    "import socket\ns = socket.create_server(('127.0.0.1', {port}), backlog=128)\nprint('ready', flush=True)\n"
    "while True:\n    c, _ = s.accept()\n    c.recv(1)\n    c.sendall(b'x')\n    c.close()\n"
)
CLIENT = (
    "import socket, statistics, time\nspent = []\nfor _ in range(2000):\n    began = time.perf_counter()\n"
    "    c = socket.create_connection(('127.0.0.1', {port}))\n    c.sendall(b'x')\n    c.recv(1)\n    c.close()\n"
    "    spent.append(time.perf_counter() - began)\nprint(statistics.median(spent))\n"
)
PYTHON = "/usr/bin/python3"


def row(what: str, value: str, goal: str) -> None:
    print(f"  {what:<58} {value:>18}   goal {goal}")


def terms_in(folder: str) -> Terms:
    env = (("HOME", "/nonexistent"), ("PATH", "/usr/local/bin:/usr/bin:/bin"))
    return Terms(Rights.WORKSPACE_WRITE, folder, "/nonexistent", system=SYSTEM, env=env)


def permit(folder: str, *argv: str) -> Permit:
    return Permit(RunArgv(argv, folder), terms_in(folder), _MINT)


async def started(backend: Linux, what: Permit) -> float:
    """Return the seconds of the start, with a warm helper."""
    await backend.run(what)  # leaves an idle helper
    began = time.perf_counter()
    process = await backend.start(what, listen=lambda _stream, _chunk: None)
    spent = time.perf_counter() - began
    await process.wait()
    return spent


def spawned() -> float:
    began = time.perf_counter()
    pid = os.posix_spawn("/bin/true", ["/bin/true"], {})
    os.waitpid(pid, 0)
    return time.perf_counter() - began


async def starts(folder: str) -> None:
    backend = Linux("T1", files=False)
    what, ours, bare = permit(folder, "/bin/true"), [], []
    try:
        for _ in range(30):
            bare.append(statistics.median(spawned() for _ in range(5)))
            ours.append(await started(backend, what))
    finally:
        await backend.close()
    row("start of a process (posix_spawn + wait = 1)", f"{_ratio(ours, bare):.2f}x", "<= 1.6x")


def _ratio(ours: list[float], bare: list[float]) -> float:
    return statistics.median(each / other for each, other in zip(ours, bare, strict=True))


async def beside(folder: str) -> None:
    """Run 50 commands beside a process, which must answer afterwards."""
    backend, answers = Linux("T1", files=False), asyncio.Event()
    try:
        process = await backend.start(permit(folder, "/bin/cat"), listen=lambda _stream, _chunk: answers.set())
        for _ in range(50):
            await backend.run(permit(folder, "/bin/true"))
        await process.write(b"x\n")
        async with asyncio.timeout(20):
            await answers.wait()
    finally:
        await backend.close()
    row("a process answers after 50 later commands", "yes", "yes")


async def requests(folder: str) -> None:
    """Compare requests to a server on the session's loopback with those to one outside of a sandbox."""
    server, client = SERVER.format(port=PORT), CLIENT.format(port=PORT)
    backend, ready = Linux("T1", files=False), asyncio.Event()
    ours, bare = [], []
    with subprocess.Popen([PYTHON, "-c", server], stdout=subprocess.PIPE) as outside:
        assert outside.stdout is not None
        outside.stdout.readline()
        try:
            await backend.start(permit(folder, PYTHON, "-c", server), listen=lambda _stream, _chunk: ready.set())
            async with asyncio.timeout(20):
                await ready.wait()
            for _ in range(9):
                told = await asyncio.to_thread(subprocess.check_output, [PYTHON, "-c", client])
                bare.append(float(told))
                outcome = await backend.run(permit(folder, PYTHON, "-c", client))
                ours.append(float(outcome.stdout))
        finally:
            await backend.close()
            outside.kill()
    row("a request to a server of an earlier process", f"{_ratio(ours, bare):.2f}x", "<= 1.10x")


async def stream(folder: str) -> None:
    size = 2 << 30
    backend = Linux("T1", files=False)
    speeds = []
    try:
        for _ in range(3):
            with subprocess.Popen(["head", "-c", str(size), "/dev/zero"], stdout=subprocess.PIPE) as source:
                assert source.stdout is not None
                began = time.perf_counter()
                what = Permit(RunScript("cat > /dev/null", folder), terms_in(folder), _MINT)
                outcome = await backend.run(what, stdin=source.stdout.fileno())
                speeds.append(size / (time.perf_counter() - began))
                assert outcome.given == size
    finally:
        await backend.close()
    row("streamed standard input", f"{statistics.median(speeds) / 1e9:.2f} GB/s", ">= 1 GB/s")


SESSION = """
import asyncio, sys
sys.path[:0] = {path!r}
from staying import permit
from sandbox.linux.backend import Linux
from sandbox.backend import TerminalSize

async def main():
    backend, folder, sleeps, number = Linux("T1", files=False), *sys.argv[1:3], int(sys.argv[3])
    script = f"(setsid sleep {{sleeps}} &); echo ready; sleep {{sleeps}}"
    size = TerminalSize() if number % 4 > 1 else None
    ready = asyncio.Event()
    await backend.start(permit(folder, "/bin/sh", "-c", script), listen=lambda *_: ready.set(), terminal=size)
    await ready.wait()
    print("ready", flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    await backend.close()
    print("closed", flush=True)

asyncio.run(main())
"""


def ends(folder: str, count: int) -> None:
    """End `count` sessions, every second one by SIGKILL of the runner, and look for their processes after 200 ms."""
    alive = 0
    code = SESSION.format(path=[str(Path(__file__).parent), *sys.path])
    for number in range(count):
        sleeps = f"{100_000 + uuid.uuid4().int % 800_000}.{uuid.uuid4().int % 10**9}"
        words = [sys.executable, "-c", code, folder, sleeps, str(number)]
        with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as session:
            assert session.stdin is not None
            assert session.stdout is not None
            assert session.stdout.readline() == b"ready\n"
            if number % 2:
                session.kill()
            else:
                session.stdin.write(b"\n")
                session.stdin.flush()
                assert session.stdout.readline() == b"closed\n"
            time.sleep(0.2)
            alive += _running(sleeps)
            session.kill()
    row(f"sessions with a process alive 200 ms after their end, of {count}", str(alive), "0")


def _running(text: str) -> bool:
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            try:
                words = Path(entry.path, "cmdline").read_bytes()
                status = Path(entry.path, "stat").read_bytes()
            except OSError:
                continue
            if text.encode() in words and b"sleep" in words and b") Z " not in status:
                return True
    return False


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ends", type=int, default=20, help="sessions that are ended (20)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        print("processes that stay")
        asyncio.run(starts(folder))
        asyncio.run(beside(folder))
        asyncio.run(requests(folder))
        asyncio.run(stream(folder))
        ends(folder, options.ends)


if __name__ == "__main__":
    main()
