"""Tests of the pool of confined helpers: the choice of a helper, which helpers are kept, and their end. With real
helpers.
"""

import asyncio
import os
import signal
import tempfile
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest

from policy.model.action import ReadFile, RunArgv
from policy.model.verdict import _MINT, Permit, Rights, Terms
from sandbox.backend import ContainerOptions, Level
from sandbox.backends import open_backend
from sandbox.container.backend import Container
from sandbox.linux import helper_pool
from sandbox.linux.backend import Linux
from sandbox.linux.helper_handle import HelperHandle
from sandbox.workspace import folder_watch
from tests.support.waiting import until_async

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


def with_backend(tmp_path: Path, work: Callable[[Linux], Awaitable[None]], rest: float = helper_pool.REST) -> None:
    async def main() -> None:
        backend = Linux("T1", cache=tmp_path, files=False)
        backend.pool._rest = rest
        try:
            await work(backend)
        finally:
            await backend.close()
        assert backend.pool.all == set()

    asyncio.run(main())


async def true(backend: Linux, terms: Terms) -> None:
    assert (await backend.run(Permit(RunArgv(("/bin/true",), terms.workspace), terms, _MINT))).status == 0


def test_a_cancelled_start_leaves_no_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))

    async def main() -> None:
        start = asyncio.create_task(open_backend("T1", Level.FULL))
        await asyncio.sleep(0)  # until the helper was launched
        assert os.listdir(tmp_path)
        start.cancel()
        with pytest.raises(asyncio.CancelledError):
            await start

    asyncio.run(main())
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("error", [BrokenPipeError, ValueError])
def test_an_auto_run_file_is_set_aside_if_the_listener_fails(
    terms: Terms, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: type[Exception]
) -> None:
    monkeypatch.setattr(folder_watch, "MOST", 0)  # only the scan after the command finds the file
    monkeypatch.setattr(folder_watch, "MOST_POLLED", 0)
    action = RunArgv(("/bin/sh", "-c", "echo x > .envrc; echo made; sleep 5; echo x > .envrc"), terms.workspace)

    def listen(_: int, __: bytes) -> None:
        raise error

    async def work(backend: Linux) -> None:
        backend.aside = tmp_path / "aside"
        backend.aside.mkdir()
        with pytest.raises(error):
            await backend.run(Permit(action, replace(terms, locked=(".envrc",)), _MINT), listen=listen)
        assert (os.listdir(terms.workspace), len(os.listdir(backend.aside))) == ([], 1)

    with_backend(tmp_path, work)


def test_file_actions_beside_each_other_start_one_helper_for_containers(terms: Terms, tmp_path: Path) -> None:
    children = Path(f"/proc/self/task/{os.getpid()}/children")
    (tmp_path / "w" / "a.txt").write_text("x\n")
    permit = Permit(ReadFile(f"{terms.workspace}/a.txt"), replace(terms, rights=Rights.READ_ONLY), _MINT)

    async def main() -> None:
        backend, before = Container(ContainerOptions(), cache=tmp_path), children.read_text()
        outcomes = await asyncio.gather(backend.run(permit), backend.run(permit))
        assert [outcome.problem for outcome in outcomes] == [None, None]
        await backend.close()
        assert children.read_text() == before, "every helper ends with the backend"

    asyncio.run(main())


def test_a_helper_that_does_not_answer_is_killed_and_the_next_one_is_heard(terms: Terms, tmp_path: Path) -> None:
    """The socket of the next helper gets the number of the closed one."""

    async def work(backend: Linux) -> None:
        action = RunArgv(("/bin/sleep", "60"), terms.workspace)
        process = await backend.start(Permit(action, terms, _MINT), listen=lambda *_: None)
        (helper,) = backend.pool.all
        number = helper.process.pid
        (half,) = Path(f"/proc/{number}/task/{number}/children").read_text().split()
        os.kill(int(half), signal.SIGSTOP)
        assert (await process.end()).ended_by == "cancelled"
        for pids in range(90, 94):
            await true(backend, replace(terms, limits=replace(terms.limits, pids=pids)))

    with_backend(tmp_path, work)


def test_the_same_terms_get_the_same_helper_and_others_another(terms: Terms, tmp_path: Path) -> None:
    async def work(backend: Linux) -> None:
        await true(backend, terms)
        first = set(backend.pool.all)
        await true(backend, replace(terms, limits=replace(terms.limits, wall=9.0, output=99)))
        assert backend.pool.all == first, "wall time and output are kept by the runner"
        await true(backend, replace(terms, limits=replace(terms.limits, pids=99)))
        assert len(backend.pool.all) == 2

    with_backend(tmp_path, work)


def test_two_sessions_share_no_helper(terms: Terms, tmp_path: Path) -> None:
    async def work(one: Linux) -> None:
        async def beside(other: Linux) -> None:
            await true(one, terms)
            await true(other, terms)
            pids = {slot.process.pid for slot in (*one.pool.all, *other.pool.all)}
            assert len(pids) == 2

        other = Linux("T1", cache=tmp_path, files=False)
        try:
            await beside(other)
        finally:
            await other.close()

    with_backend(tmp_path, work)


def test_the_least_recently_used_is_ended_first(terms: Terms, tmp_path: Path) -> None:
    async def work(backend: Linux) -> None:
        many = [
            replace(terms, limits=replace(terms.limits, pids=100 + number)) for number in range(helper_pool.IDLE + 1)
        ]
        of: list[HelperHandle] = []
        for each in many[:-1]:
            slot = await backend.pool.take(each)
            of.append(slot)
            backend.pool.give_back(each, slot)
        await true(backend, many[0])  # now the second is the one that rested longest
        await true(backend, many[-1])
        assert of[1] not in backend.pool.all
        assert of[1].process.returncode is not None
        assert {of[0], *of[2:]} <= backend.pool.all
        assert len(backend.pool.all) == helper_pool.IDLE
        assert not backend.pool._gates
        assert not backend.pool._users, "nothing is kept for terms that nobody uses"

    with_backend(tmp_path, work)


def test_a_helper_that_rests_too_long_is_ended(terms: Terms, tmp_path: Path) -> None:
    async def work(backend: Linux) -> None:
        await true(backend, terms)
        (slot,) = backend.pool.all
        await until_async(lambda: not backend.pool.all)
        assert slot.process.returncode is not None
        await true(backend, terms)  # and the next command gets a new one

    with_backend(tmp_path, work, rest=0.05)


@pytest.mark.threat("T19")
@pytest.mark.parametrize("how", ["killed", "its end of the socket closed", "a word that nobody asked for"])
def test_an_idle_helper_that_cannot_be_asked_is_replaced(terms: Terms, tmp_path: Path, how: str) -> None:
    async def work(backend: Linux) -> None:
        await true(backend, terms)
        (slot,) = backend.pool.all
        if how == "killed":
            os.kill(slot.process.pid, signal.SIGKILL)
        else:
            import socket

            ours, theirs = socket.socketpair()
            ours.setblocking(False)
            slot.control.close()
            slot.control = ours
            if how.startswith("its end"):
                theirs.close()
            else:
                theirs.send(b"exit 0 -\n")
        await until_async(lambda: not slot.usable)
        await true(backend, terms)
        assert slot not in backend.pool.all

    with_backend(tmp_path, work)


def users(backend: Linux) -> int:
    """Return the number of tasks that use a helper or wait for one."""
    return sum(backend.pool._users.values())


def test_a_further_command_waits_for_a_helper(terms: Terms, tmp_path: Path) -> None:
    async def work(backend: Linux) -> None:
        taken = [await backend.pool.take(terms) for _ in range(helper_pool.SLOTS)]
        waiting = asyncio.create_task(true(backend, terms))
        await until_async(lambda: users(backend) == helper_pool.SLOTS + 1)
        assert not waiting.done()
        assert len(backend.pool.all) == helper_pool.SLOTS
        backend.pool.give_back(terms, taken.pop())
        await waiting
        cancelled = [asyncio.create_task(backend.pool.take(terms)) for _ in range(3)]
        await until_async(lambda: users(backend) == helper_pool.SLOTS + 2)  # one of the three has a helper
        for task in cancelled:
            task.cancel()
        for slot in taken:
            backend.pool.discard(terms, slot)
        results = await asyncio.gather(*cancelled, return_exceptions=True)
        for found in results:
            if isinstance(found, HelperHandle):
                backend.pool.discard(terms, found)
        assert not backend.pool._users

    with_backend(tmp_path, work)
