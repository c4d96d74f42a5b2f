"""Tests of input during a run: queues, their order, and settings that apply from the next call."""

import asyncio
import io
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path

import pytest

from policy.model.tier import Mode
from runner.agent.conversation import Conversation
from runner.config.schema import key_of
from runner.engine.steering import Delivery, Steering, UserInput
from runner.events import Queued, Steered, Unqueued
from runner.loop import Ending
from runner.messages import (
    AssistantMessage,
    Message,
    Request,
    StreamEvent,
    TextBlock,
    ToolMessage,
    UserMessage,
)
from runner.problems import Exit
from runner.sessions.history import history_of, index
from tests.support.loop_harness import LoopHarness, Make
from tests.support.scripted_replies import Item, Plays, fatal, ls, says
from tests.support.session_files import ID, new_journal, new_store

# (delivery, steered, later, what goes between two batches, what is sent after the turn)
QUEUES = [
    (Delivery.ONE, ["a", "b"], ["c"], ("a",), ["b", "c"]),
    (Delivery.ALL, ["a", "b"], ["c"], ("a", "b"), ["c"]),
    (Delivery.ALL, [], ["c", "d"], (), ["c\n\nd"]),
    (Delivery.ONE, [], ["c", "d"], (), ["c", "d"]),
]


@pytest.mark.parametrize(("delivery", "steered", "later", "between", "after"), QUEUES)
def test_words_wait_for_their_moment(
    delivery: Delivery, steered: list[str], later: list[str], between: tuple[str, ...], after: list[str]
) -> None:
    queues = Steering(delivery)
    for text in steered:
        queues.steer(text)
    for text in later:
        queues.follow_up(text)
    assert queues.waiting == (*steered, *later)
    assert queues.injected() == between
    assert [queues.next() for _ in after] == [UserInput(text) for text in after]
    assert queues.next() is None


def test_what_is_taken_back_is_not_sent() -> None:
    queues = Steering()
    queues.steer("a")
    queues.follow_up("b")
    assert queues.take_back() == ("a", "b")
    assert queues.injected() == ()
    assert queues.next() is None


def test_a_command_waits_as_it_was_typed() -> None:
    queues = Steering(Delivery.ALL)
    queues.follow_up("Do it like this: ...", "/skill:do it")
    queues.follow_up("and then stop")
    assert queues.waiting == ("/skill:do it", "and then stop")
    assert queues.next() == UserInput("Do it like this: ...\n\nand then stop", "/skill:do it\n\nand then stop")
    queues.follow_up("Do it like this: ...", "/skill:do it")
    assert queues.take_back() == ("/skill:do it",)


# ---- in a conversation


def heard(message: Message) -> str:
    """A message as the model hears it, in short."""
    if isinstance(message, ToolMessage):
        return "results"
    text = "".join(block.text for block in message.content if isinstance(block, TextBlock))
    calls = len(message.calls) if isinstance(message, AssistantMessage) else 0
    return f"{'> ' if isinstance(message, UserMessage) else ''}{text}{' +calls' if calls else ''}".strip()


class Spoken(Plays):
    """Says things to the talk while it is asked: `words[n]` are said during request n, before it answers."""

    def __init__(self, words: dict[int, Callable[[Conversation], object]], *answers: list[Item]) -> None:
        super().__init__(*answers)
        self.words = words
        self.conversation: Conversation | None = None

    async def stream(self, request: Request) -> AsyncIterator[StreamEvent]:
        number = len(self.requests) + 1
        if number in self.words and self.conversation is not None:
            self.words[number](self.conversation)
        async for event in super().stream(request):
            yield event


def said(*steps: tuple[str, str]) -> Callable[[Conversation], object]:
    """Says each: (how, what)."""
    return lambda talk: [getattr(talk, how)(text) for how, text in steps]


STEER_A, STEER_B, LATER = ("steer", "a"), ("steer", "b"), ("follow_up", "z")
CALLS = says("", ls("ls"))

# (what is said during which request, delivery, answers, what the model hears, why)
# fmt: off
TALKS: list[tuple[dict[int, Callable[[Conversation], object]], Delivery, list[list[Item]], list[str], str]] = [
    ({1: said(STEER_A)}, Delivery.ONE, [CALLS, says("ok")],
        ["> go", "+calls", "results", "> a", "ok"], "behind the results of the batch"),
    ({1: said(STEER_A, STEER_B)}, Delivery.ONE, [CALLS, CALLS, says("ok")],
        ["> go", "+calls", "results", "> a", "+calls", "results", "> b", "ok"], "one for each batch"),
    ({1: said(STEER_A, STEER_B)}, Delivery.ALL, [CALLS, says("ok")],
        ["> go", "+calls", "results", "> a", "> b", "ok"], "or all at once"),
    ({1: said(STEER_A)}, Delivery.ONE, [says("ok"), says("too")],
        ["> go", "ok", "> a", "too"], "after the turn where no batch came"),
    ({1: said(LATER, STEER_A)}, Delivery.ONE, [CALLS, says("ok"), says("too")],
        ["> go", "+calls", "results", "> a", "ok", "> z", "too"], "what is for later waits for the end"),
    ({1: said(LATER, STEER_A)}, Delivery.ONE, [says("ok"), says("too"), says("three")],
        ["> go", "ok", "> a", "too", "> z", "three"], "steering first"),
    ({1: said(("follow_up", "y"), LATER)}, Delivery.ALL, [says("ok"), says("too")],
        ["> go", "ok", "> y\n\nz", "too"], "all of it as one"),
    ({2: said(STEER_A)}, Delivery.ONE, [CALLS, CALLS, says("ok")],
        ["> go", "+calls", "results", "+calls", "results", "> a", "ok"], "later on"),
    ({1: said(STEER_A, LATER), 2: lambda talk: talk.take_back()}, Delivery.ONE, [CALLS, says("ok")],
        ["> go", "+calls", "results", "> a", "ok"], "what is taken back is not sent"),
    ({1: said(STEER_A, LATER)}, Delivery.ONE, [[fatal()]],
        ["> go"], "after a failure nothing is sent: it would fail as well"),
    ({1: lambda talk: (talk.steer("a"), talk.interrupt())}, Delivery.ONE, [CALLS, says("ok")],
        ["> go"], "nor after a stop"),
]
# fmt: on


def talking(
    found: LoopHarness, provider: Spoken, delivery: Delivery, tmp_path: Path, prompts: tuple[str, ...] = ("go",)
) -> tuple[Ending, Conversation]:
    journal = new_journal(new_store(tmp_path / "sessions"))
    found.ctx = replace(found.ctx, journal=journal, steering=Steering(delivery))
    found.ctx.live.provider = provider  # type: ignore[assignment]  # a fake of the protocol
    talk = provider.conversation = Conversation(found.ctx, found.history)

    async def work() -> Ending:
        for prompt in prompts:
            ending = await talk.prompt(prompt)
        return ending

    ending = asyncio.run(work())
    assert journal.close() is None
    return ending, talk


@pytest.mark.parametrize(("words", "delivery", "answers", "hears", "why"), TALKS, ids=[row[4] for row in TALKS])
def test_what_is_said_meanwhile_reaches_the_model_at_its_moment_and_the_file_says_so(
    stage: Make,
    tmp_path: Path,
    words: dict[int, Callable[[Conversation], object]],
    delivery: Delivery,
    answers: list[list[Item]],
    hears: list[str],
    why: str,
) -> None:
    found = stage()
    talking(found, Spoken(words, *answers), delivery, tmp_path)
    assert [heard(message) for message in found.history] == hears, why
    raw = new_store(tmp_path / "sessions").path(ID).read_bytes()
    again = history_of(index(io.BytesIO(raw), ID), ID)
    assert list(again.history) == found.history, "a later session goes on from the same"
    steered = [event.text for event in found.events if isinstance(event, Steered)]
    queued = [event.text for event in found.events if isinstance(event, Queued)]
    back = [text for event in found.events if isinstance(event, Unqueued) for text in event.texts]
    waiting = list(found.ctx.steering.waiting)
    prompts = [text for line in hears[1:] if line.startswith("> ") for text in line[2:].split("\n\n")]
    assert sorted(queued) == sorted([*prompts, *back, *waiting]), "nothing is lost, and nothing is sent twice"
    assert set(steered) <= set(prompts)


def test_what_waited_behind_a_failure_goes_with_the_next_prompt(stage: Make, tmp_path: Path) -> None:
    found = stage()
    provider = Spoken({1: said(LATER)}, [fatal()], says("better"), says("too"))
    ending, _ = talking(found, provider, Delivery.ONE, tmp_path, ("go", "again"))
    assert ending.exit is Exit.DONE
    assert [heard(message) for message in found.history] == ["> go", "> again", "better", "> z", "too"]


def test_a_mode_that_is_set_meanwhile_holds_for_the_next_call_of_the_same_turn(stage: Make, tmp_path: Path) -> None:
    made = says("", ls("touch a"), ls("touch b", id="b"))
    found = stage()
    provider = Spoken({}, made, says("ok"))
    talked: list[Conversation] = []

    def behave(script: str) -> None:
        if script == "touch a" and provider.conversation is not None:
            provider.conversation.set_mode(Mode.PLAN)
            talked.append(provider.conversation)

    found.sandbox._behave = behave
    ending, talk = talking(found, provider, Delivery.ONE, tmp_path)
    assert found.sandbox.ran == ["touch a"]
    assert ending.exit is Exit.DENIED
    assert talk.ctx.live.mode is Mode.PLAN


def test_the_setting_knows_every_delivery() -> None:
    assert key_of(("queue", "delivery")).choices == tuple(each.value for each in Delivery)
