"""Tests of /compact at the terminal: it can be stopped, and text typed meanwhile waits."""

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from runner.agent.agent import Agent
from runner.frontends.jsonl.approver import Questions
from runner.frontends.jsonl.driver import JsonMode
from runner.problems import Exit
from runner.providers import OpenModel
from tests.support.json_front import Front
from tests.support.model_server import Delta, serving
from tests.support.screen_harness import AGENT, ScreenHarness, leave
from tests.support.summaries import SummaryProvider
from tests.support.terminal_screen import ScreenTerminal


@pytest.fixture
def enough() -> Iterator[threading.Event]:
    """Yield an event that is set at the end of the test: a model that waits for it does not answer before."""
    event = threading.Event()
    yield event
    event.set()


def test_who_speaks_while_notes_are_written_is_heard_after_them(
    harness: ScreenHarness, enough: threading.Event
) -> None:
    def answer(number: int, headers: str, body: bytes) -> Delta | str:
        if b"You write notes" in body:
            enough.wait()  # until the end of the test
        return {"content": f"answer {number} " + "word " * 3000 + f"end {number}"}

    with serving(answer) as server:
        environ = {**harness.environ, "OPENAI_API_KEY": "sk-test-of-nothing", "OPENAI_BASE_URL": server.url}
        window = ScreenTerminal(harness.work, environ, AGENT, "--model", "openai:m")
        harness.windows.append(window)
        window.type("one", "Enter")
        window.until("end 1")
        window.until("done (1 request)")
        window.type("two", "Enter")
        window.until("end 2")
        window.gone("working")
        window.type("/compact", "Enter")
        window.until("writes a summary of the earlier")
        window.type("three", "Enter")
        window.until("waits: three")
        window.wait_for(lambda: len(server.requests) == 3, "the request for notes", outside=True)
        window.type("C-c")
        window.until("end 4")
        assert "nothing yet" not in leave(window)
    assert b"<notes " not in server.requests[-1][1], "what was stopped changed nothing"
    assert b"three" in server.requests[-1][1]


def test_a_program_that_does_not_wait_for_notes_loses_nothing(folder: Path) -> None:
    """A prompt right behind /compact ended JSON mode."""
    long = "word " * 4_000

    clerk = SummaryProvider(long, long, "noted", "after the notes")

    async def work() -> tuple[Front, Exit]:
        front = Front()
        questions = Questions(front.emit)
        agent = Agent(folder, model=OpenModel(clerk, "m"), approver=questions, emit=front.emit)
        async with agent:
            serving = asyncio.create_task(JsonMode(agent, questions, front.emit).serve(front))
            for number in (1, 2):
                front.say("prompt", text="go on")
                await front.until("run_ended", number)
            front.say("command", text="/compact")
            front.say("prompt", text="and now?")
            await front.until("run_ended", 3)
            front.end()
            return front, await asyncio.wait_for(serving, 60)

    front, code = asyncio.run(work())
    assert code is Exit.DONE
    assert len(front.of("compacted")) == 1
    assert "noted" in clerk.asked
    assert "and now?" in clerk.asked
    assert front.of("error") == []


def _prompts(screen: str) -> bool:
    return screen.rstrip().rpartition("\n")[2] == ">"


def test_notes_are_stopped_at_a_plain_terminal_too(harness: ScreenHarness, enough: threading.Event) -> None:
    def answer(number: int, headers: str, body: bytes) -> Delta | str:
        if b"You write notes" in body:
            enough.wait()  # until the end of the test
        return {"content": f"answer {number} " + "word " * 3000 + f"end {number}"}

    with serving(answer) as server:
        environ = {**harness.environ, "OPENAI_API_KEY": "sk-test-of-nothing", "OPENAI_BASE_URL": server.url}
        window = ScreenTerminal(harness.work, environ, AGENT, "--plain", "--model", "openai:m")
        harness.windows.append(window)
        window.until("/help for help")
        for number in (1, 2):
            window.type("go on", "Enter")
            window.until(f"end {number}")
            window.until_screen(_prompts)
        window.type("/compact", "Enter")
        window.until("writes a summary of the earlier")
        window.wait_for(lambda: len(server.requests) == 3, "the request for notes", outside=True)
        window.type("C-c")
        window.until("stopped: the conversation of the model is unchanged")
        window.until_screen(_prompts)
        window.type("still there?", "Enter")
        window.until("end 4")
        window.until_screen(_prompts)
        window.type("/quit", "Enter")
        window.until("LEFT 0")
