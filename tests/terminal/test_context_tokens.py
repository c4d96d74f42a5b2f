"""Tests of the fill level of the context window: the numbers of the provider, and estimates between them."""

from pathlib import Path

import pytest

from runner.engine.context.tokens import ContextMeter, Size, weight
from runner.events import Event
from runner.messages import (
    AssistantMessage,
    ImageBlock,
    Message,
    TextBlock,
    ThinkingBlock,
    ToolCall,
    ToolMessage,
    ToolResult,
    ToolSpec,
    Usage,
    UserMessage,
)
from runner.problems import Exit
from runner.providers.scripted import Turn
from tests.support.conversation import ScriptedUser, play_conversation, shown_text


def said(text: str) -> UserMessage:
    return UserMessage((TextBlock(text),))


def answer(text: str) -> AssistantMessage:
    return AssistantMessage((TextBlock(text),))


CALL = AssistantMessage((ThinkingBlock("hm", "sig" * 40), ToolCall("1", "read", {"path": "a"})))
RESULT = ToolMessage((ToolResult("1", (TextBlock("x" * 4000), ImageBlock("image/png", "A" * 90_000))),))
SPEC = ToolSpec("read", "reads a file", {"type": "object"})


@pytest.mark.parametrize(
    ("text", "least", "most", "why"),
    [
        ("", 0, 0, "nothing"),
        ("word " * 100, 100, 150, "English: about one token a word"),
        ("\u4e2d" * 100, 80, 130, "Chinese: about one token a character"),
        ("\u0436" * 90, 40, 90, "Cyrillic: less than one a letter"),
        ("a\U0001f600" * 10, 10, 20, "ASCII and others are weighed apart"),
        ("\ud800", 0.5, 2, "half of a pair, which no encoding takes"),
    ],
)
def test_a_text_is_weighed(text: str, least: float, most: float, why: str) -> None:
    assert least <= weight(text) <= most, why


def test_the_provider_is_believed_and_only_the_rest_is_estimated() -> None:
    gauge = ContextMeter()
    gauge.fixed("s" * 400, [SPEC])
    history: list[Message] = [said("do it")]
    before = gauge.size(history)
    assert not before.exact
    assert 100 < before.tokens < 200
    gauge.answered(Usage(input=10, output=50, cache_read=150, cache_write=40), history, CALL)
    history.append(CALL)
    assert gauge.size(history) == Size(250, exact=True), "cached tokens are in the window too"
    history.append(RESULT)
    more = gauge.size(history)
    assert not more.exact
    assert 250 + 1600 + 1000 <= more.tokens <= 250 + 3 * 2700, "a long result and an image, at the provider's rate"


def test_the_rate_is_what_the_provider_counted() -> None:
    counts = []
    for tokens in (1_000, 2_000, 100_000, 1):
        gauge = ContextMeter()
        gauge.fixed("", [])
        history: list[Message] = [said("x" * 4_000)]
        gauge.answered(Usage(input=tokens), history, answer(""))
        counts.append(gauge.size([*history, answer(""), said("y" * 4_000)]).tokens - tokens)
    assert counts[1] == pytest.approx(2 * counts[0], rel=0.02), "twice the tokens for the same text, so also for more"
    assert counts[2] <= 3 * 1_010, "a rate that no tokenizer has is not believed"
    assert counts[3] >= 500


def test_messages_made_shorter_are_weighed_against_what_was_counted() -> None:
    gauge = ContextMeter()
    gauge.fixed("", [])
    history: list[Message] = [said("do it"), CALL, RESULT]
    gauge.answered(Usage(input=5_000, output=20), history, answer("done"))
    short = [history[0], CALL, ToolMessage((ToolResult("1", (TextBlock("[trimmed]"),)),)), answer("done")]
    now = gauge.size(short)
    assert not now.exact
    assert 0 < now.tokens < 1_500
    assert gauge.size([]).tokens >= 0, "never less than nothing"


def test_a_server_that_counts_nothing_leaves_the_estimate() -> None:
    gauge = ContextMeter()
    gauge.fixed("", [])
    history: list[Message] = [said("x" * 400)]
    gauge.answered(Usage(output=5), history, answer("y" * 40))
    assert gauge.size([*history, answer("y" * 40)]) == Size(4 + 100 + 4 + 10, exact=False)


def test_another_model_has_not_counted_yet() -> None:
    gauge = ContextMeter()
    history: list[Message] = [said("hello")]
    gauge.answered(Usage(input=900, output=5), history, answer("hi"))
    gauge.model_changed()
    assert gauge.size([*history, answer("hi")]) == Size(905, exact=False)
    gauge.answered(Usage(input=700, output=5), history, answer("hi"))
    assert gauge.size([*history, answer("hi")]) == Size(705, exact=True)


def test_a_session_that_is_gone_on_with_remembers_the_providers_count(tmp_path: Path) -> None:
    seen: list[Event] = []
    counted = Usage(input=5_000, cache_read=70, output=7)
    assert (
        play_conversation(tmp_path, [Turn("one", usage=counted)], ScriptedUser("hello", "/quit"), seen.append)
        == Exit.DONE
    )
    after: list[Event] = []
    lines = ScriptedUser("/resume", "1", "/context", "more", "/quit")
    assert play_conversation(tmp_path, [Turn("two", usage=counted)], lines, after.append) == Exit.DONE
    assert "the next request is 5,077 tokens" in shown_text(after), "to the token, since nothing came since"
