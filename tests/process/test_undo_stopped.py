"""Tests of undo for a stopped session: its command continues in its thread, nothing is closed under it, and each file
is reported.
"""

import asyncio
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from runner.audit.log import AuditLog
from runner.audit.records import SessionInfo
from runner.changes.undo.store import Store, UndoStep
from runner.events import Display
from runner.frontends.slash.command import SlashCommand
from runner.frontends.slash.files import COMMANDS
from tests.support.undo_workspace import UndoWorkspace


class Slow:
    """The list of steps is read once `go` is set; `reached` tells that a reader wants to."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.reached, self.go = threading.Event(), threading.Event()
        steps = Store.steps

        def waiting(store: Store) -> list[UndoStep]:
            self.reached.set()
            assert self.go.wait(60)
            return steps(store)

        monkeypatch.setattr(Store, "steps", waiting)


class WatchedLock:
    """A lock that says when a thread wants it, and whether another one has it then."""

    def __init__(self, lock: Any) -> None:
        self._lock, self.wanted, self.held = lock, threading.Event(), False

    def __enter__(self) -> None:
        self.held = not self._lock.acquire(blocking=False)
        self.wanted.set()
        if self.held:
            self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()


@pytest.fixture
def world(tmp_path: Path) -> UndoWorkspace:
    world = UndoWorkspace(tmp_path)
    world.sh("echo one > a")
    world.act("echo two > a")
    return world


def test_nothing_is_closed_under_a_reader(world: UndoWorkspace, monkeypatch: pytest.MonkeyPatch) -> None:
    slow = Slow(monkeypatch)
    found: list[list[str]] = []
    reading = threading.Thread(target=lambda: found.append(world.keeper.diff()))
    reading.start()
    assert slow.reached.wait(60)
    watched = WatchedLock(world.keeper.using)
    monkeypatch.setattr(world.keeper, "using", watched)
    closing = threading.Thread(target=world.keeper.close)
    closing.start()
    assert watched.wanted.wait(60)
    assert watched.held, "it waits for the reader"
    slow.go.set()
    reading.join()
    closing.join()
    assert [line for line in found[0] if line.startswith(("-o", "+t"))] == ["-one", "+two"]


def test_an_undo_that_was_stopped_is_done_and_told(world: UndoWorkspace, monkeypatch: pytest.MonkeyPatch) -> None:
    undo = next(each for each in COMMANDS if each.name == "undo")
    events: list[object] = []
    log = AuditLog.open(world.base / "audit.db")
    session = log.session(SessionInfo("default", str(world.w), False, None))
    ctx = SimpleNamespace(undo=world.keeper, emit=events.append, audit=log, session=session)
    ctx.look = lambda: SimpleNamespace(workspace=str(world.w))
    desk = SimpleNamespace(conversation=SimpleNamespace(ctx=ctx))
    slow = Slow(monkeypatch)

    async def stopped(command: SlashCommand) -> None:
        work = asyncio.ensure_future(cast(Any, command.run)("", desk))
        await asyncio.to_thread(slow.reached.wait, 60)
        for _ in range(3):
            work.cancel()
            await asyncio.sleep(0)
        slow.go.set()
        await work

    asyncio.run(stopped(undo))
    assert (world.w / "a").read_text() == "one\n"
    assert [event.text.split("\n")[0] for event in events if isinstance(event, Display)] == ["undid 1: echo two > a"]
    assert [record.kind for record in log.rows()] == ["finished", "applied", "session"], "newest first"
    log.close()
