"""Tests of one request to a helper and its answer: the reasons for its end, and the notice before it. With real
helpers.
"""

import asyncio
import fcntl
import os
import signal
import socket
import struct
import termios
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from policy.model.action import RunArgv, RunScript
from policy.model.verdict import _MINT, Permit, Rights, Terms
from sandbox.backend import Outcome
from sandbox.linux import helper_handle as slots
from sandbox.linux.backend import Linux
from sandbox.linux.helper_handle import HelperHandle, idle_processors
from sandbox.linux.helper_process import WAKE
from sandbox.linux.helper_request import HelperRequest
from tests.support.waiting import is_at_rest, until_async

SYSTEM = ("/usr", "/bin", "/lib", "/lib64", "/etc/ld.so.cache")


@pytest.fixture
def terms(tmp_path: Path) -> Terms:
    (tmp_path / "w").mkdir()
    return Terms(
        Rights.WORKSPACE_WRITE,
        str(tmp_path / "w"),
        "/nonexistent",
        system=SYSTEM,
        env=(("PATH", "/usr/bin:/bin"),),
    )


@pytest.fixture(params=["eager", "asleep"], autouse=True)
def processors(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Set the number of idle processors, so that both sides either wait without sleeping or sleep."""
    monkeypatch.setattr(slots, "idle_processors", lambda: int(request.param == "eager"))
    return str(request.param)


def with_backend(tmp_path: Path, work: Callable[[Linux], Awaitable[None]]) -> None:
    async def main() -> None:
        backend = Linux("T1", cache=tmp_path, files=False)
        try:
            await work(backend)
        finally:
            await backend.close()

    asyncio.run(main())


async def run(backend: Linux, terms: Terms, script: str, stdin: bytes | None = None) -> Outcome:
    return await backend.run(Permit(RunScript(script, terms.workspace), terms, _MINT), stdin=stdin)


def the_slot(backend: Linux) -> HelperHandle:
    (slot,) = backend.pool.all
    return slot


ODD = [
    ("exec >&-; echo rest >&2; exit 3", 3, b"", b"rest\n", "one stream ends before the other"),
    ("exec >&- 2>&-; sleep 0.01; exit 4", 4, b"", b"", "both end before the command"),
    ("exec >&- 2>&-; exit 5", 5, b"", b"", "both end, and the command at once"),
    ("(sleep 60; echo late) & echo now", 0, b"now\n", b"", "a child holds both open: it is ended"),
    ("(trap '' TERM HUP INT; setsid sleep 60) & disown; echo now", 0, b"now\n", b"", "so is one that hides"),
    ("kill -9 $$", 137, b"", b"", "it ends itself"),
    ("printf 'a%.0s' $(seq 70000)", 0, b"a" * 70000, b"", "more than a pipe holds"),
]


@pytest.mark.parametrize(("script", "status", "out", "err", "why"), ODD, ids=[row[-1] for row in ODD])
def test_an_answer_is_whole_however_it_comes(
    script: str, status: int, out: bytes, err: bytes, why: str, terms: Terms, tmp_path: Path
) -> None:
    async def work(backend: Linux) -> None:
        for _ in range(3):
            outcome = await run(backend, terms, script)
            assert (outcome.status, outcome.stdout, outcome.stderr) == (status, out, err), why

    with_backend(tmp_path, work)


def test_a_command_with_input_gets_it(terms: Terms, tmp_path: Path) -> None:
    async def work(backend: Linux) -> None:
        for size in (1, 70_000, 400_000):
            outcome = await run(backend, terms, "wc -c", stdin=b"x" * size)
            assert (outcome.status, outcome.stdout) == (0, f"{size}\n".encode())

    with_backend(tmp_path, work)


def unread(sock: socket.socket) -> int:
    """Return how many bytes the other end has not read yet, with what the kernel needs for them."""
    return int(struct.unpack("i", fcntl.ioctl(sock, termios.TIOCOUTQ, bytes(4)))[0])


def test_wakes_without_a_request_change_nothing(terms: Terms, tmp_path: Path) -> None:
    async def work(backend: Linux) -> None:
        await run(backend, terms, ":")
        slot = the_slot(backend)
        for _ in range(50):
            slot.control.send(WAKE)
        await until_async(lambda: not unread(slot.control) and is_at_rest(slot.process.pid), of=slot.process.pid)
        assert slot.usable
        outcome = await run(backend, terms, "echo still there; sleep 0.01")
        assert (outcome.status, outcome.stdout) == (0, b"still there\n")
        assert the_slot(backend) is slot

    with_backend(tmp_path, work)


def test_a_helper_that_ends_after_the_wake_is_an_error_or_another_one(terms: Terms, tmp_path: Path) -> None:
    async def work(backend: Linux) -> None:
        await run(backend, terms, ":")
        slot, wake = the_slot(backend), HelperHandle.wake
        hits = []

        def hit(self: HelperHandle) -> None:
            wake(self)
            hits.append(self)
            os.kill(self.process.pid, signal.SIGKILL)
            self.process.wait()

        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(HelperHandle, "wake", hit)
            outcome = await run(backend, terms, "echo done")
        assert hits == [slot]
        assert outcome.status == 125
        assert outcome.problem is not None
        assert (await run(backend, terms, "echo done")).stdout == b"done\n"
        assert the_slot(backend) is not slot

    with_backend(tmp_path, work)


@pytest.mark.parametrize("told", [False, True], ids=["gone before the request", "gone before its end was seen"])
def test_a_request_to_nobody_is_an_empty_answer(tmp_path: Path, told: bool) -> None:
    """Not an error of the listener's, which is what a broken pipe was taken for while the helper was still to be reaped."""

    async def main() -> tuple[str | None, str | None]:
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        exchange = HelperRequest(ours, 1 << 20, None)
        with ours:
            if told:
                theirs.shutdown(socket.SHUT_RD)  # as long as it is dying, its end is open still
            else:
                theirs.close()
            with theirs:
                ended = await exchange.run({"op": "run"}, b"input" if told else None, 10, lambda: None)
            exchange.close()
            return ended, exchange.line

    before = os.listdir("/proc/self/fd")
    assert asyncio.run(main()) == (None, "")
    assert os.listdir("/proc/self/fd") == before


# A child that gives its parent no SIGCHLD is no child to a plain wait (clone(2), wait(2), `__WCLONE`).
QUIET = """
import ctypes, os, time
libc = ctypes.CDLL(None, use_errno=True)
if os.fork() == 0:
    assert libc.syscall(ctypes.c_long(56), ctypes.c_long(0), None, None, None, None) >= 0, ctypes.get_errno()
    time.sleep(6000)
os._exit(0)
"""


@pytest.mark.threat("T15")
@pytest.mark.skipif(os.uname().machine != "x86_64", reason="the number of clone(2) is that of x86_64")
def test_what_reports_to_nobody_is_ended_too(terms: Terms, tmp_path: Path) -> None:
    async def work(backend: Linux) -> None:
        for _ in range(3):
            quiet = Permit(RunArgv(("/usr/bin/python3", "-c", QUIET), terms.workspace), terms, _MINT)
            outcome = await backend.run(quiet)
            assert (outcome.status, outcome.stderr) == (0, b"")
            alive = await run(backend, terms, "cd /proc; for each in [0-9]*; do [ $each = $$ ] || echo $each; done")
            assert alive.stdout == b"1\n"

    with_backend(tmp_path, work)


def test_idle_processors_are_fewer_than_there_are() -> None:
    assert 0 <= idle_processors() < max(os.cpu_count() or 1, 2)
