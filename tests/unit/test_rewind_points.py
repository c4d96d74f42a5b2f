"""Tests of the prompts that /rewind offers: a later process finds the same prompts in the session file."""

import asyncio
import contextlib
from dataclasses import replace
from itertools import count
from pathlib import Path

from hypothesis import HealthCheck, example, given
from hypothesis import strategies as st

from policy.model.tier import Mode
from runner.agent.conversation import Conversation
from runner.providers.scripted import ScriptedProvider, Turn
from runner.sessions.journal import Journal
from runner.sessions.open import SessionTarget
from runner.sessions.rewind import RewindPoint
from tests.support.law import examples
from tests.support.loop_harness import Make, bash
from tests.support.session_files import ID, new_journal, new_store, run_of

STEPS = ("prompt", "steered", "queued", "command", "nothing left", "shell", "mode", "rewind", "reopen", "fork", "early")


class Played:
    """One conversation over files; each step is one thing that a person does."""

    def __init__(self, talk: Conversation, store: object, journal: Journal) -> None:
        self.conversation, self.store, self.journal, self.name = talk, store, journal, ID
        self.emit = talk.ctx.emit
        self.numbers = count()
        self.enter(journal)

    def enter(self, journal: Journal) -> None:
        self.journal = journal
        self.conversation.ctx = replace(self.conversation.ctx, journal=journal, emit=journal.watch(self.emit))

    def model(self, *turns: Turn) -> None:
        self.conversation.ctx.live.provider = ScriptedProvider(turns)

    async def prompt(self, *turns: Turn, typed: str = "") -> None:
        self.model(*turns)
        await self.conversation.prompt(f"prompt {next(self.numbers)}", typed)

    async def do(self, step: str, number: int) -> None:
        talk, done = self.conversation, Turn("done")
        match step:
            case "prompt":
                await self.prompt(bash("ls"), done)
            case "steered":
                talk.steer("and this")  # goes in behind the call
                await self.prompt(bash("ls"), done)
            case "queued":
                talk.follow_up("and then", "/then" if number % 2 else "")
                await self.prompt(done, done)
            case "command":
                await self.prompt(done, typed=f"/go {number}")
            case "nothing left":
                await self.prompt()
            case "shell":
                await talk.shell("ls")
            case "mode":
                talk.set_mode(Mode.PLAN if talk.ctx.live.mode is Mode.DEFAULT else Mode.DEFAULT)
            case "rewind" if talk.marks:
                talk.rewind(talk.marks[number % len(talk.marks)])
            case "reopen" | "fork" if self.journal.kept:
                self.again(fork=step == "fork")
            case "early":
                work = asyncio.ensure_future(talk.prompt("never begun"))
                await asyncio.sleep(0)
                talk.interrupt()
                await work
            case _:
                pass

    def again(self, *, fork: bool) -> None:
        """Another process continues with it, or with a copy."""
        talk, before = self.conversation, (self.conversation.marks, self.conversation.history)
        assert self.journal.close() is None
        if fork:
            begin = SessionTarget.forked(self.store, self.name, self.store)  # type: ignore[arg-type]
            self.name = f"{int(self.name, 16) + 1:016x}"
        else:
            begin = SessionTarget.resumed(self.store, self.name)  # type: ignore[arg-type]
        assert begin.past is not None
        assert list(begin.past.history) == before[1]
        assert places(list(begin.past.marks)) == places(before[0])
        assert [mark.text for mark in begin.past.marks] == [mark.text for mark in before[0]]
        self.conversation = Conversation(talk.ctx, list(begin.past.history), begin.past.marks)
        self.enter(begin.journal(run_of(self.store, self.name), None))  # type: ignore[arg-type]


def places(marks: list[RewindPoint]) -> list[tuple[int, str | None]]:
    return [(mark.length, mark.leaf) for mark in marks]


def test_law_a_later_process_knows_the_same_prompts(stage: Make, tmp_path: Path) -> None:
    found, numbers = stage(), count()

    @example([("early", 0), ("prompt", 0), ("rewind", 0), ("reopen", 0)])
    @example([("prompt", 0), ("reopen", 0), ("rewind", 0), ("reopen", 0), ("steered", 0), ("fork", 0), ("rewind", 1)])
    @given(st.lists(st.tuples(st.sampled_from(STEPS), st.integers(0, 9)), max_size=12))
    @examples(30, suppress_health_check=list(HealthCheck))
    def holds(steps: list[tuple[str, int]]) -> None:
        store = new_store(tmp_path / str(next(numbers)))
        played = Played(Conversation(found.ctx, []), store, new_journal(store))

        async def work() -> None:
            for step, number in (*steps, ("reopen", 0)):
                await played.do(step, number)

        with contextlib.closing(asyncio.new_event_loop()) as loop:
            loop.run_until_complete(work())
        assert played.journal.close() is None

    holds()
