"""Property: a conversation stays valid whatever a server does during an answer, and whenever a user stops it or
writes: the session file agrees with it, and each recorded decision has its outcome.
"""

import asyncio
import io
import json
import random
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from policy.model.verdict import Permit, Problem
from runner.engine.retry_policy import RetryPolicy
from runner.engine.run_limits import RunLimits
from runner.engine.steering import Delivery, Steering
from runner.events import ActionFinished, Denied, Event, MalformedCall, Steered, ToolProposed
from runner.loop import Ending, run
from runner.messages import (
    AssistantMessage,
    CallOpened,
    CallReady,
    Failure,
    Message,
    ProviderError,
    Reply,
    Request,
    Stop,
    StreamEvent,
    TextBlock,
    TextDelta,
    ThinkingBlock,
    ThinkingDelta,
    ToolCall,
    ToolMessage,
    Usage,
    UserMessage,
)
from runner.problems import Exit
from runner.sessions.history import history_of, index
from tests.support.law import number_of_examples
from tests.support.loop_harness import LoopHarness, Make, let_others_go_on
from tests.support.scripted_replies import fatal, shown
from tests.support.session_files import ID, new_journal, new_store

MARKS = ("\n[stopped by the user]", "\n[the answer was interrupted here]")
SCRIPTS = ("ls {}", "cat {}", "cat {} slow", "touch {}", "python3 {}.py", "curl https://{}.test/")


class Wild:
    """A model whose every answer is made up by chance: it may break off, be cut, be slow, or call tools."""

    name = "wild"

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.count = 0
        self.streaming = False
        self.words = 0

    def word(self) -> str:
        self.words += 1
        return f"word{self.words} "

    async def stream(self, request: Request) -> AsyncIterator[StreamEvent]:
        chance = self.chance
        self.count += 1
        self.streaming = True
        content: list[TextBlock | ThinkingBlock | ToolCall] = []
        try:
            if chance.random() < 0.2:
                content.append(ThinkingBlock("hm", "signed"))
                yield ThinkingDelta("hm")
            note = request.messages[-1]
            said = self.again(note) if isinstance(note, UserMessage) and chance.random() < 0.7 else ""
            for _ in range(chance.randrange(4)):
                said += self.word()
            for piece in (said[at : at + 7] for at in range(0, len(said), 7)):
                yield TextDelta(piece)
                await self.maybe()
            if said:
                content.append(TextBlock(said))
            for number in range(chance.choice((0, 0, 1, 2, 4)) if self.count < 12 else 0):
                yield CallOpened("bash")
                await self.maybe()
                script = chance.choice(SCRIPTS).format(f"f{self.count}x{number}")
                whole = chance.random() < 0.9
                call = ToolCall(f"c{number}", "bash", {"command": script} if whole else None, "" if whole else "{")
                content.append(call)
                if whole:
                    yield CallReady(call)
                    await self.maybe()
            calls = any(isinstance(block, ToolCall) for block in content)
            stop = Stop.LENGTH if chance.random() < 0.2 else Stop.TOOLS if calls else Stop.END
            await self.maybe()
            self.streaming = False
            yield Reply(AssistantMessage(tuple(content)), stop, Usage(10, 10))
        finally:
            self.streaming = False

    def again(self, note: UserMessage) -> str:
        """The last words, where the note asks for them."""
        block = note.content[0]
        text = block.text if isinstance(block, TextBlock) else ""
        return text.rpartition("nobody's wish:]\n")[2] + " " if "nobody's wish:]" in text else ""

    async def maybe(self) -> None:
        """Go on, at once or after others; or break off."""
        for _ in range(self.chance.choice((0, 1, 5))):
            await asyncio.sleep(0)
        if self.chance.random() < 0.06:
            raise fatal() if self.chance.random() < 0.15 else broken(self.chance)

    async def close(self) -> None:
        return None


def broken(chance: random.Random) -> ProviderError:
    failure = chance.choice((Failure.RETRYABLE, Failure.OVERLOADED, Failure.RATE_LIMITED))
    return ProviderError(Problem("it broke", "by chance", "again"), failure=failure)


def whole(history: list[Message]) -> None:
    """Every call has its result, in the order of the calls, in the very next message."""
    for place, message in enumerate(history):
        follows = history[place + 1] if place + 1 < len(history) else None
        if isinstance(message, AssistantMessage) and message.calls:
            assert isinstance(follows, ToolMessage), history
            assert [result.call_id for result in follows.results] == [call.id for call in message.calls]
        else:
            assert not isinstance(follows, ToolMessage), history
        if isinstance(message, AssistantMessage):
            assert message.content


def kept_text(history: list[Message]) -> str:
    texts = []
    for message in history:
        if isinstance(message, AssistantMessage):
            text = "".join(block.text for block in message.content if isinstance(block, TextBlock))
            for mark in MARKS:
                text = text.removesuffix(mark)
            texts.append(text)
    return "".join(texts)


def in_order(raw: bytes) -> None:
    """Assert that each decision about a call stands after the message with the call and before the result."""
    calls = 0
    for line in raw.splitlines():
        entry = json.loads(line)
        if entry["type"] == "message" and entry["role"] == "assistant":
            calls = sum(block["type"] == "call" for block in entry["content"])
        assert entry["type"] != "call" or calls > 0, line


def once(found: LoopHarness, seed: int, state: Path) -> Ending:
    """One run by chance, and everything that must hold after it."""
    chance = random.Random(seed)
    store = new_store(state)
    journal = new_journal(store)
    provider = Wild(chance)
    history: list[Message] = []
    found.events.clear()
    found.sandbox.cancelled.clear()
    before = [row.kind for row in found.audit.rows()]
    steering = Steering(chance.choice(tuple(Delivery)))
    stop_at = chance.randrange(1, 60) if chance.random() < 0.5 else None
    task: asyncio.Task[Ending] | None = None

    def emit(event: Event) -> None:
        found.events.append(event)
        if chance.random() < 0.03:
            steering.steer(f"steer {len(found.events)}")
        if stop_at == len(found.events) and task is not None:
            asyncio.get_running_loop().call_soon(task.cancel)

    def started(permit: Permit) -> None:
        script = getattr(permit.action, "script", "")
        assert not provider.streaming or script.startswith(("ls", "cat")), script

    found.sandbox.before_run = started
    ctx = replace(found.ctx, journal=journal, emit=emit, steering=steering)
    ctx.live.provider = provider  # type: ignore[assignment]  # a fake of the protocol

    async def work() -> Ending:
        nonlocal task
        task = asyncio.create_task(run("do it", ctx, history))
        ending = await task
        assert asyncio.all_tasks() == {asyncio.current_task()}, "nothing goes on behind the run's back"
        return ending

    ending = asyncio.run(work())
    assert journal.close() is None
    assert "contradicts" not in ending.reason, "it does not"
    whole(history)
    assert shown(found.events) == kept_text(history), "what was shown is what is kept, once"
    raw = store.path(ID).read_bytes()
    assert list(history_of(index(io.BytesIO(raw), ID), ID).history) == history, "and what the file says"
    in_order(raw)
    now = [row.kind for row in found.audit.rows()][: -len(before) or None]
    denied, finished = len(found.of(Denied)), len(found.of(ActionFinished))
    assert now.count("decided") == denied + now.count("finished")
    assert now.count("finished") >= finished
    if ending.exit not in (Exit.INTERRUPTED, Exit.FAILED):
        assert now.count("finished") == finished
        assert len(found.of(ToolProposed)) == finished + denied + len(found.of(MalformedCall))
    keys = [event.call for event in found.events if isinstance(event, ToolProposed)]
    assert len(keys) == len(set(keys))
    steered = [event.text for event in found.events if isinstance(event, Steered)]
    assert steered == [
        block.text
        for message in history[1:]
        if isinstance(message, UserMessage)
        for block in message.content
        if isinstance(block, TextBlock)
    ]
    return ending


@pytest.mark.threat("T106")
def test_law_whatever_happens_the_talk_the_file_and_the_record_stay_whole(stage: Make, tmp_path: Path) -> None:
    found = stage(
        behave=lambda name: let_others_go_on() if name.endswith("slow") else None,
        bounds=RunLimits(patience=RetryPolicy(first=0, most=0), row=10**6, total=10**6),
    )
    exits = set()
    for seed in range(number_of_examples(20, many=140)):
        try:
            exits.add(once(found, seed, tmp_path / f"state{seed}").exit)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error
    assert {Exit.DONE, Exit.DENIED, Exit.INTERRUPTED, Exit.FAILED} <= exits, "chance came by all of it"
