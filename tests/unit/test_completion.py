"""Tests of answers that break off, are cut, or come from a busy server; and of calls that start while an answer
streams.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest

from policy.model.verdict import Permit, Problem
from runner.audit.log import AuditLog
from runner.engine.compaction.view import ConversationView
from runner.engine.retry_policy import RetryPolicy
from runner.engine.run_limits import RunLimits
from runner.events import ActionFinished, CallBegun, Notice, Retrying, ToolProposed
from runner.loop import Ending, run
from runner.messages import (
    AssistantMessage,
    CallOpened,
    Failure,
    ProviderError,
    Reply,
    Stop,
    TextBlock,
    TextDelta,
    ThinkingBlock,
    ThinkingDelta,
    ToolCall,
    ToolMessage,
    Usage,
    UserMessage,
    has_thoughts,
)
from runner.problems import Exit
from sandbox.backend import Listener, Outcome
from tests.support.loop_harness import FOREVER, FakeSandbox, Make, busy, let_others_go_on
from tests.support.scripted_replies import Item, Plays, Wait, fatal, ls, says, shown, writes

BROKEN = busy()
CUT = ToolCall("c", "bash", None, '{"command": "ls')


def test_thoughts_that_a_server_refuses_are_left_out_once(stage: Make) -> None:
    """Whatever broke their mark: a proxy, another account, a file that was edited."""

    def refused() -> ProviderError:
        error = ProviderError(Problem("it did not accept the request", "invalid signature", "mend it"), status=400)
        error.thoughts = True
        return error

    def thinks(*calls: ToolCall) -> list[Item]:
        content = (ThinkingBlock("hm", "signed"), *calls)
        return [Reply(AssistantMessage(content), Stop.TOOLS if calls else Stop.END, Usage())]

    provider = Plays(thinks(ls("ls")), [refused()], thinks(ls("pwd")), [refused()])
    found = stage(provider=provider)
    assert found.play().exit is Exit.FAILED, "the second time it is the request that is wrong"
    sent = [sum(has_thoughts(message) for message in request.messages) for request in provider.requests]
    assert sent == [0, 1, 0, 1]


# ---- answers that break off

# fmt: off
BREAKS: list[tuple[list[list[Item]], str, int, Exit, str]] = [
    ([[TextDelta("half an ans"), BROKEN], says("wer")],
        "half an answer", 2, Exit.DONE, "the rest is joined"),
    ([[TextDelta("this is half an ans"), BROKEN], says("this is half an answer")],
        "this is half an answer", 2, Exit.DONE, "what comes again is not shown again"),
    ([[TextDelta("a"), BROKEN], [TextDelta("b"), BROKEN], [TextDelta("c"), BROKEN], says("d")],
        "abcd", 4, Exit.DONE, "three times"),
    ([[TextDelta("x"), BROKEN]] * 5,
        "x\n[the answer was interrupted here]", 4, Exit.FAILED, "and no more; what was said stays"),
    ([[TextDelta("half"), fatal()], says("never")],
        "half\n[the answer was interrupted here]", 1, Exit.FAILED, "what waiting does not help is not asked again"),
    ([[ThinkingDelta("hm"), BROKEN], says("all")],
        "all", 2, Exit.DONE, "thoughts that broke off are thought anew"),
    ([[TextDelta(" \n"), BROKEN], says("all")],
        " \nall", 2, Exit.DONE, "a blank is nothing to go on from"),
    ([[TextDelta("I look."), CallOpened("bash"), BROKEN], says("I look. So.")],
        "I look. So.", 2, Exit.DONE, "a call that was not whole is lost"),
    ([[TextDelta("half")], says("half way")],
        "half way", 2, Exit.DONE, "a stream that just ends"),
]
# fmt: on


@pytest.mark.parametrize(("answers", "text", "requests", "exit", "why"), BREAKS, ids=[row[4] for row in BREAKS])
def test_an_answer_that_breaks_off_is_gone_on_with(
    stage: Make,
    answers: list[list[Item]],
    text: str,
    requests: int,
    exit: Exit,
    why: str,
) -> None:
    provider = Plays(*answers)
    found = stage(provider=provider)
    assert found.play().exit is exit, why
    assert len(provider.requests) == requests
    assert provider.closed == requests, "every connection is closed"
    assert len(found.of(Retrying)) == requests - 1, "and each wait is said"
    said = [message for message in found.history if isinstance(message, AssistantMessage)]
    assert ["".join(each.text for each in message.content if isinstance(each, TextBlock)) for message in said] == [text]
    assert shown(found.events) == text.removesuffix("\n[the answer was interrupted here]"), "shown once, as it is kept"
    assert not any("note of the program" in repr(message) for message in found.history), "our note is not kept"


@pytest.mark.threat("T26")
def test_a_call_that_begins_with_a_name_of_megabytes_is_named_shortly(stage: Make) -> None:
    long = ToolCall("c", "x" * 10_000_000, {})
    found = stage(provider=Plays(says("", long), says("done")))
    found.play()
    assert [event.tool for event in found.of(CallBegun)] == ["x" * 200 + "…"]
    assert max(len(event.line()) for event in found.events) < 2000


def test_the_model_is_told_what_arrived_and_what_did_not(stage: Make) -> None:
    provider = Plays([TextDelta("I look into the mak"), CallOpened("bash"), BROKEN], says("efile"))
    stage(provider=provider).play()
    first, second = (request.messages for request in provider.requests)
    assert list(second[: len(first)]) == list(first), "what was sent before is sent as it was"
    kept, note = second[len(first) :]
    assert kept == AssistantMessage((TextBlock("I look into the mak"),))
    assert isinstance(note, UserMessage)
    assert isinstance(note.content[0], TextBlock)
    assert note.content[0].text.endswith("not an instruction:]\nI look into the mak")
    assert "A tool call that was not complete is lost" in note.content[0].text


@pytest.mark.threat("T92")
def test_what_broke_off_is_paid_for(stage: Make) -> None:
    """A server that always breaks off must not be a way around a budget."""
    provider = Plays(*[[TextDelta("x" * 40_000), BROKEN]] * 9)
    found = stage(provider=provider, bounds=RunLimits(patience=RetryPolicy(first=0, most=0), tokens=30_000))
    ending = found.play()
    assert (ending.exit, ending.limit) == (Exit.LIMIT, "tokens")
    assert len(provider.requests) == 2


def test_whole_calls_of_an_answer_that_breaks_off_are_done_and_the_broken_one_is_not(stage: Make) -> None:
    first = [TextDelta("I look."), *writes(ls("touch a"), ls("ls")), CallOpened("bash"), BROKEN]
    found = stage(provider=Plays(first))
    assert found.play().exit is Exit.DONE
    assert found.sandbox.ran == ["touch a", "ls"]
    assert [type(message) for message in found.history] == [
        UserMessage,
        AssistantMessage,
        ToolMessage,
        AssistantMessage,
    ]
    assert found.history[1] == AssistantMessage((TextBlock("I look."), ls("touch a"), ls("ls")))
    assert len(found.of(CallBegun)) == 3
    (notice,) = [event for event in found.of(Notice) if isinstance(event, Notice)]
    assert "the 2 complete calls are executed" in notice.text


# ---- answers that are cut

OPUS = "claude-opus-5"  # its answers may have 128,000 tokens

# (answers, model, what each request may have, text, what ran, exit, why)
# fmt: off
CUTS: list[tuple[list[list[Item]], str, list[int], str, list[str], Exit, str]] = [
    ([says("one ", stop=Stop.LENGTH), says("two")],
        OPUS, [16_384, 32_768], "one two", [], Exit.DONE, "it goes on, under a higher bound"),
    ([says("a", stop=Stop.LENGTH), says("b", stop=Stop.LENGTH), says("c", stop=Stop.LENGTH), says("d")],
        OPUS, [16_384, 32_768, 65_536, 128_000], "abcd", [], Exit.DONE, "three times, up to the model's most"),
    ([says(each, stop=Stop.LENGTH) for each in "abcde"],
        OPUS, [16_384, 32_768, 65_536, 128_000], "abcd", [], Exit.LIMIT, "and no more"),
    ([says("one ", stop=Stop.LENGTH), says("two")],
        "unknown", [16_384, 16_384], "one two", [], Exit.DONE, "nobody knows how much more this model may"),
    ([says("so", CUT, stop=Stop.LENGTH), says("so", ls("ls")), says(".")],
        OPUS, [16_384, 32_768, 32_768], "so", ["ls"], Exit.DONE, "a call that was cut is made again"),
    ([says("", CUT, stop=Stop.LENGTH), says("", ls("ls")), says(".")],
        OPUS, [16_384, 32_768, 32_768], ".", ["ls"], Exit.DONE, "also without a word before it"),
    ([says("so", ls("ls"), CUT, stop=Stop.LENGTH), says(".")],
        OPUS, [16_384, 32_768], "so", ["ls"], Exit.DONE, "those before it are done"),
    ([says("so", ls("ls"), stop=Stop.LENGTH), says(".")],
        OPUS, [16_384, 16_384], "so", ["ls"], Exit.DONE, "all calls are whole"),
    ([says("so", CUT, stop=Stop.LENGTH), says(".")],
        "unknown", [16_384, 16_384], "so", [], Exit.DONE, "where nothing can be raised, the model is told"),
    ([says("", stop=Stop.LENGTH), says("so")],
        OPUS, [16_384, 32_768], "so", [], Exit.DONE, "thinking took all"),
    ([says("", stop=Stop.LENGTH), says("so")],
        "unknown", [16_384], "", [], Exit.LIMIT, "and would again"),
]
# fmt: on


@pytest.mark.parametrize(("answers", "model", "most", "text", "ran", "exit", "why"), CUTS, ids=[row[6] for row in CUTS])
def test_an_answer_that_was_cut(
    stage: Make,
    answers: list[list[Item]],
    model: str,
    most: list[int],
    text: str,
    ran: list[str],
    exit: Exit,
    why: str,
) -> None:
    provider = Plays(*answers)
    provider.name = "anthropic"
    found = stage(provider=provider)
    found.ctx.live.model = model
    assert found.play().exit is exit, why
    assert [request.max_tokens for request in provider.requests] == most
    assert found.sandbox.ran == ran
    first = next((message for message in found.history if isinstance(message, AssistantMessage)), AssistantMessage(()))
    texts = [block.text for block in first.content if isinstance(block, TextBlock)]
    if not ran or text == "so":
        assert "".join(texts) == text


def test_a_window_that_is_nearly_full_bounds_one_answer_and_not_those_after_it(stage: Make) -> None:
    """The limit of an answer grows up to the limit of the model, whatever space an earlier request had."""

    class Narrow(ConversationView):
        left_now = 3000

        def left(self, messages: object, access: object) -> int:
            return self.left_now

    view = Narrow()
    provider = Plays(says("a", stop=Stop.LENGTH), says("b", ls("ls")), says("c"))
    provider.name = "anthropic"
    found = stage(provider=provider, behave=lambda _: setattr(view, "left_now", 100_000))
    found.ctx = replace(found.ctx, view=view)
    found.ctx.live.model = OPUS
    assert found.play().exit is Exit.DONE
    assert [request.max_tokens for request in provider.requests] == [3000, 3000, 16_384]


@pytest.mark.parametrize(
    ("window", "exit", "why"),
    [
        (16_384, Exit.DONE, "the conversation fits: it was the room for the answer that did not"),
        (None, Exit.FAILED, "nobody knows what fits, and there is nothing to leave out"),
        (1_000, Exit.FAILED, "no answer fits"),
        (99_999, Exit.FAILED, "what was asked for fits by the server's own words"),
    ],
)
def test_an_answer_gets_the_room_that_a_small_window_has(
    stage: Make,
    window: int | None,
    exit: Exit,
    why: str,
) -> None:
    problem = Problem("too long", "the server said so", "less")
    provider = Plays([ProviderError(problem, failure=Failure.CONTEXT, window=window)])
    assert stage(provider=provider).play().exit is exit, why
    asked = [request.max_tokens for request in provider.requests]
    assert len(asked) == (2 if exit is Exit.DONE else 1)
    assert asked == sorted(asked, reverse=True)
    assert asked[-1] >= 1024


def test_thoughts_stay_first_when_an_answer_is_joined(stage: Make) -> None:
    thought = ThinkingBlock("hm", "signed")
    rest = Reply(AssistantMessage((thought, TextBlock("b"), ls("ls"))), Stop.TOOLS, Usage())
    found = stage(provider=Plays([TextDelta("a "), BROKEN], [TextDelta("b"), *writes(ls("ls")), rest]))
    found.play()
    assert found.history[1] == AssistantMessage((thought, TextBlock("a b"), ls("ls")))


# ---- calls that are begun while the answer streams


def until(gate: asyncio.Event) -> Wait:
    return gate.wait


def play(found: object, together: Callable[[], Awaitable[object]]) -> Ending:
    """The run, with something that goes on beside it. Bounded: what never comes fails the test."""

    async def work() -> Ending:
        beside = asyncio.ensure_future(together())
        ending = await run("do it", found.ctx, found.history)  # type: ignore[attr-defined]  # a Stage
        await beside
        return ending

    return asyncio.run(work())


@pytest.mark.threat("T106")
def test_what_only_reads_is_begun_while_the_answer_streams_and_recorded_first(stage: Make) -> None:
    gate = asyncio.Event()
    provider = Plays(
        [
            TextDelta("I look."),
            *writes(ls("cat a"), ls("cat b")),
            until(gate),
            *says("", ls("cat a"), ls("cat b"))[-1:],
        ]
    )
    # what is said before the calls is part of the answer
    provider.answers[0] = [*provider.answers[0][:-1], *says("I look.", ls("cat a"), ls("cat b"))[-1:]]
    found = stage(provider=provider)
    decided: list[int] = []
    other = AuditLog.open_to_read(Path(found.audit.store.name))
    found.sandbox.before_run = lambda _: decided.append(len(list(other.rows(kind="decided"))))
    before: list[str] = []

    async def together() -> None:
        before.append(await found.sandbox.started.get())
        before.append(await found.sandbox.started.get())
        gate.set()

    assert play(found, together).exit is Exit.DONE
    other.close()
    assert before == ["cat a", "cat b"]
    assert decided == [1, 2]
    assert [len(found.of(kind)) for kind in (ToolProposed, ActionFinished)] == [2, 2], "each is told once, and run once"
    assert ["of cat a" in found.told()[0], "of cat b" in found.told()[1]] == [True, True]


@pytest.mark.threat("T106")
@pytest.mark.parametrize(
    ("calls", "early"),
    [
        (["touch a"], []),
        (["cat a", "touch b", "cat c"], ["cat a"]),  # the last one is to see what the second one did
        (["python3 x.py", "cat a"], []),
        (["curl https://example.test/", "cat a"], []),
    ],
)
def test_nothing_that_is_more_than_reading_is_begun_before_the_answer_is_whole(
    stage: Make,
    calls: list[str],
    early: list[str],
) -> None:
    gate, streamed = asyncio.Event(), asyncio.Event()

    async def all_sent() -> None:
        streamed.set()
        await gate.wait()

    made = [ls(name) for name in calls]
    found = stage(provider=Plays([*writes(*made), all_sent, *says("", *made)[-1:]]))
    begun: list[list[str]] = []

    async def together() -> None:
        await streamed.wait()
        for _ in early:
            await found.sandbox.started.get()
        await let_others_go_on()
        begun.append(list(found.sandbox.ran))
        gate.set()

    play(found, together)
    assert begun == [early]
    assert found.sandbox.ran == [name for name in calls if not name.startswith("curl")], "in order, and once"
    assert len(found.of(ToolProposed)) == len(calls)


@pytest.mark.threat("T106")
def test_a_call_that_is_no_reading_is_judged_as_things_are_when_its_turn_comes(stage: Make) -> None:
    """Between its coming and its turn the mode may have changed."""
    from policy.model.tier import Mode

    gate = asyncio.Event()
    made = ls("touch a")
    found = stage(provider=Plays([*writes(made), until(gate), *says("", made)[-1:]]))

    async def together() -> None:
        await let_others_go_on()
        found.ctx.live.mode = Mode.PLAN
        gate.set()

    assert play(found, together).exit is Exit.DENIED
    assert found.sandbox.ran == []


@pytest.mark.parametrize("error", [None, fatal()], ids=["stopped", "failed"])
def test_results_that_were_there_stay_when_the_answer_never_becomes_whole(
    stage: Make,
    error: ProviderError | None,
) -> None:
    gate = asyncio.Event()
    end: list[Item] = [until(gate), *([error] if error else [until(asyncio.Event())])]
    found = stage(
        provider=Plays([TextDelta("I look."), *writes(ls("cat a"), ls("cat slow"), ls("touch c")), *end]),
        behave=lambda name: FOREVER if name == "cat slow" else None,
    )

    async def work() -> Ending:
        running = asyncio.ensure_future(run("do it", found.ctx, found.history))
        for _ in range(2):
            await found.sandbox.started.get()
        while not found.of(ActionFinished):
            await asyncio.sleep(0)
        gate.set()
        while len(found.of(CallBegun)) < 3:
            await asyncio.sleep(0)
        await asyncio.sleep(0)
        if error is None:
            running.cancel()
        return await running

    ending = asyncio.run(work())
    assert ending.exit is (Exit.FAILED if error else Exit.INTERRUPTED)
    assert found.sandbox.cancelled == ["cat slow"], "nothing goes on behind the run's back"
    assert found.sandbox.ran == ["cat a", "cat slow"]
    said = found.history[1]
    assert isinstance(said, AssistantMessage)
    assert said.calls == (ls("cat a"), ls("cat slow"), ls("touch c"))
    assert [result.is_error for result in found.results()] == [False, True, True]
    assert "of cat a" in found.told()[0]
    kinds = [row.kind for row in found.audit.rows()]
    assert kinds.count("decided") == kinds.count("finished") == 2, "and the record is whole as well"


@pytest.mark.threat("T106")
def test_an_answer_that_contradicts_itself_ends_the_run(stage: Make) -> None:
    """A call that was started early must equal the call of the answer, or its result would belong to another call."""
    found = stage(provider=Plays([*writes(ls("cat a")), *says("", ls("cat b", id="id-cat a"))[-1:]]))
    ending = found.play()
    assert ending.exit is Exit.FAILED
    assert "contradicts" in ending.reason
    assert found.sandbox.ran in ([], ["cat a"])
    assert len(found.results()) == 1


def test_nothing_is_begun_behind_a_call_that_never_became_whole(stage: Make) -> None:
    """Providers do not tell of such a call before the end: what comes behind it has another place than it seems."""
    whole = says("", CUT, ls("cat a"), ls("cat b"))[-1:]
    found = stage(provider=Plays([CallOpened("bash"), *writes(ls("cat a"), ls("cat b")), *whole]))
    assert found.play().exit is Exit.DONE
    assert [result.is_error for result in found.results()] == [True, False, False]
    assert ["of cat a" in found.told()[1], "of cat b" in found.told()[2]] == [True, True]
    assert [event.call for event in found.events if isinstance(event, ToolProposed)] == ["1.1", "1.2", "1.3"]


def test_a_log_that_cannot_be_written_stops_an_early_reading_too(stage: Make) -> None:
    found = stage(provider=Plays(says("", ls("cat a"))))
    found.audit.close()
    assert found.play().exit is Exit.FAILED
    assert found.sandbox.ran == []


def test_the_most_side_by_side_holds_for_what_was_begun_early_too(stage: Make) -> None:
    class Held(FakeSandbox):
        """Each waits until ten run."""

        ten = asyncio.Event()

        async def run(self, permit: Permit, *, stdin: bytes | None = None, listen: Listener | None = None) -> Outcome:
            self._now += 1
            self.most = max(self.most, self._now)
            if self._now == 10:
                self.ten.set()
            await self.ten.wait()
            self._now -= 1
            return Outcome(0)

    calls = [ls(f"cat f{number}") for number in range(25)]
    found = stage(provider=Plays(says("", *calls)), bounds=RunLimits(seconds=120))
    held = Held()
    found.ctx = replace(found.ctx, sandbox=held)
    assert found.play().exit is Exit.DONE
    assert held.most == 10
    assert len(found.results()) == 25
