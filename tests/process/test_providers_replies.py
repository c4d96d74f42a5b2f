"""Tests of replies of model servers over loopback HTTP, compared with the readings of the SDKs of the vendors."""

import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, TypeAdapter

from runner.messages import (
    AssistantMessage,
    CallOpened,
    CallReady,
    ProviderError,
    Reply,
    Stop,
    TextBlock,
    TextDelta,
    ThinkingBlock,
    ThinkingDelta,
    ToolCall,
    Usage,
)
from tests.support.law import examples
from tests.wire import loopback, vendors

HELLO, exchange, reply_of = loopback.HELLO, loopback.exchange, loopback.reply_of


# ---- what comes back ------------------------------------------------------------------------------------------------

BASH = {"script": "make test && echo 'ü'", "timeout": 60}
SAYS = TextBlock("I will run the tests 🦔 and read the file.\n")
HALF = '{"path": "a.txt", "content": "once upon'

ANSWERS = [
    (
        "anthropic",
        "anthropic-tools",
        (
            ThinkingBlock("The tests come first; then the fix — naïvely.", "EqQBCgIYAhIM+made/up=="),
            ThinkingBlock("", redacted="EmwKAhgBEgy3va3pzix/made+up"),
            SAYS,
            ToolCall("toolu_01Bash", "bash", BASH),
            ToolCall("toolu_02Ls", "ls", {}),
        ),
        Stop.TOOLS,
        Usage(input=12, output=89, cache_read=5120, cache_write=340),
        "thinking, redacted thinking, text, a call in pieces, a call without arguments",
    ),
    (
        "anthropic",
        "anthropic-text",
        (TextBlock("All tests pass."),),
        Stop.END,
        Usage(input=27, output=15, cache_read=9, cache_write=0),
        "the last count of each kind holds",
    ),
    (
        "anthropic",
        "anthropic-cut",
        (ToolCall("toolu_03Write", "write", None, HALF),),
        Stop.LENGTH,
        Usage(input=25, output=16384),
        "a call cut by the token limit has no arguments, and keeps its text",
    ),
    (
        "openai",
        "openai-tools",
        (SAYS, ToolCall("call_Bash", "bash", BASH), ToolCall("call_Ls", "ls", {})),
        Stop.TOOLS,
        Usage(input=12, output=89, cache_read=5120, cache_write=340),
        "text and two calls",
    ),
    (
        "openai",
        "openai-text",
        (TextBlock("All tests pass."),),
        Stop.END,
        Usage(input=27, output=15, cache_read=9),
        "text alone",
    ),
    (
        "openai",
        "openai-cut",
        (ToolCall("call_Write", "write", None, HALF),),
        Stop.LENGTH,
        Usage(input=25, output=16384),
        "a call cut by the token limit",
    ),
    (
        "openai",
        "compatible-router",
        (ThinkingBlock("Look first.", "openai:reasoning"), ToolCall("call_1", "ls", {"path": "."})),
        Stop.TOOLS,
        Usage(input=60, output=20, cache_read=40),
        "comments, `reasoning`, usage beside a choice",
    ),
    (
        "openai",
        "compatible-local",
        (
            ThinkingBlock("Two places to look.", "openai:reasoning_content"),
            ToolCall("call_a", "ls", {"path": "src"}),
            ToolCall("call_b", "ls", {"path": "tests"}),
        ),
        Stop.TOOLS,
        Usage(),
        "`reasoning_content`, every call numbered 0, `stop` after calls, no usage, no [DONE]",
    ),
    (
        "openai",
        "compatible-refusal",
        (TextBlock("I cannot help with that."),),
        Stop.REFUSAL,
        Usage(),
        "a refusal is text that says so",
    ),
]


@pytest.mark.parametrize(("name", "file", "content", "stop", "usage", "why"), ANSWERS, ids=[a[1] for a in ANSWERS])
def test_an_answer_becomes_a_reply(name: str, file: str, content: tuple, stop: Stop, usage: Usage, why: str) -> None:
    [events], _ = exchange(name, [loopback.stream(loopback.wire(file))])
    assert reply_of(events) == Reply(AssistantMessage(content), stop, usage), why
    text = "".join(event.text for event in events if isinstance(event, TextDelta))
    thinking = "".join(event.text for event in events if isinstance(event, ThinkingDelta))
    assert text == "".join(block.text for block in content if isinstance(block, TextBlock))
    assert thinking == "".join(block.text for block in content if isinstance(block, ThinkingBlock))
    calls_are_told_early(events)


def calls_are_told_early(events: list) -> None:
    """Each call was said to begin, and those that were said to be whole are the Reply's own, in its order."""
    calls = reply_of(events).message.calls
    assert [event.tool for event in events if isinstance(event, CallOpened)] == [call.name for call in calls]
    ready = [event.call for event in events if isinstance(event, CallReady)]
    assert ready == [call for call in calls if call in ready]
    assert not [call for call in ready if call.arguments is None]


@pytest.mark.parametrize("file", ["anthropic-tools", "openai-tools"])
def test_line_ends_may_be_of_any_kind(file: str) -> None:
    body = loopback.wire(file)
    name = file.partition("-")[0]
    crlf, cr = (loopback.stream(body.replace(b"\n", end)) for end in (b"\r\n", b"\r"))
    plain, with_crlf, with_cr = exchange(name, [loopback.stream(body), crlf, cr], (HELLO,) * 3)[0]
    assert plain == with_crlf == with_cr


@examples(25)
@given(
    file=st.sampled_from(["anthropic-tools", "openai-tools"]),
    cuts=st.lists(st.integers(1, 4000), max_size=60),
)
def test_chunk_boundaries_anywhere_change_nothing(file: str, cuts: list[int]) -> None:
    body = loopback.wire(file)
    name = file.partition("-")[0]
    whole, cut = exchange(name, [loopback.stream(body), loopback.stream(body, cuts)], (HELLO, HELLO))[0]
    assert whole == cut


# ---- the same bytes through the vendors' SDKs -----------------------------------------------------------------------


def _unknown_fields(model: object, path: str = "") -> list[str]:
    """Fields in `model`, or in anything in it, that its SDK class does not know."""
    if isinstance(model, list):
        return [name for item in model for name in _unknown_fields(item, path)]
    if not isinstance(model, BaseModel):
        return []
    own = [f"{path}.{name}" for name in model.model_extra or {}]
    return own + [
        name for key in type(model).model_fields for name in _unknown_fields(getattr(model, key), f"{path}.{key}")
    ]


@pytest.mark.parametrize(("name", "file"), [(a[0], a[1]) for a in ANSWERS])
def test_the_recorded_events_are_what_the_vendor_publishes(name: str, file: str) -> None:
    from anthropic.types.raw_message_stream_event import RawMessageStreamEvent  # slow: only where they are used
    from openai.types.chat.chat_completion_chunk import ChatCompletionChunk

    adapter = TypeAdapter(RawMessageStreamEvent if name == "anthropic" else ChatCompletionChunk)
    for data in loopback.event_data(loopback.wire(file)):
        if data == "[DONE]" or json.loads(data).get("type") == "ping":  # outside the published union
            continue
        event = adapter.validate_json(data)
        if not file.startswith("compatible"):
            assert _unknown_fields(event) == []


@pytest.mark.parametrize("file", ["anthropic-tools", "anthropic-text", "openai-tools", "openai-text"])
def test_the_vendors_sdk_reads_the_same_reply(file: str) -> None:
    ours, theirs, _, _ = vendors.both(file.partition("-")[0], loopback.wire(file), HELLO)
    assert ours == theirs


# ---- answers made of the SDKs' own event models ---------------------------------------------------------------------

TEXTS = st.text(st.characters(exclude_categories=("Cs",)), max_size=30)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=6,
)
CALLS = st.tuples(st.sampled_from(["bash", "ls"]), st.dictionaries(TEXTS, JSON, max_size=3), st.booleans())
COUNTS = st.integers(0, 10**6)


def _pieces(draw: st.DrawFn, text: str) -> list[str]:
    cuts = draw(st.lists(st.integers(0, len(text)), max_size=4).map(sorted))
    return [text[start:end] for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True)]


@st.composite
def anthropic_answers(draw: st.DrawFn) -> tuple[bytes, Reply]:
    kinds = st.one_of(
        st.tuples(st.just("text"), TEXTS.filter(bool)),
        st.tuples(st.just("thinking"), TEXTS),
        st.tuples(st.just("redacted"), TEXTS.filter(bool)),
        st.tuples(st.just("call"), CALLS),
    )
    counts = draw(st.tuples(COUNTS, COUNTS, COUNTS, COUNTS))
    from anthropic import types

    start = types.Message(
        id="msg_x", type="message", role="assistant", model="m", content=[], stop_reason=None, stop_sequence=None,
        usage=types.Usage(
            input_tokens=counts[0], output_tokens=1,
            cache_read_input_tokens=counts[2], cache_creation_input_tokens=counts[3],
        ),
    )  # fmt: skip
    events: list[Any] = [types.RawMessageStartEvent(type="message_start", message=start)]
    content: list = []

    def block(place: int, opening: BaseModel, deltas: Sequence[BaseModel]) -> None:
        events.append(types.RawContentBlockStartEvent(type="content_block_start", index=place, content_block=opening))
        for delta in deltas:
            events.append(types.RawContentBlockDeltaEvent(type="content_block_delta", index=place, delta=delta))
        events.append(types.RawContentBlockStopEvent(type="content_block_stop", index=place))

    for place, (kind, value) in enumerate(draw(st.lists(kinds, max_size=5))):
        match kind:
            case "text":
                deltas = [types.TextDelta(type="text_delta", text=text) for text in _pieces(draw, value)]
                block(place, types.TextBlock(type="text", text=""), deltas)
                content.append(TextBlock(value))
            case "thinking":
                deltas = [types.ThinkingDelta(type="thinking_delta", thinking=text) for text in _pieces(draw, value)]
                deltas.append(types.SignatureDelta(type="signature_delta", signature="sig=="))
                block(place, types.ThinkingBlock(type="thinking", thinking="", signature=""), deltas)
                content.append(ThinkingBlock(value, "sig=="))
            case "redacted":
                block(place, types.RedactedThinkingBlock(type="redacted_thinking", data=value), [])
                content.append(ThinkingBlock("", redacted=value))
            case "call":
                tool, arguments, escaped = value
                raw = json.dumps(arguments, ensure_ascii=escaped)
                deltas = [types.InputJSONDelta(type="input_json_delta", partial_json=p) for p in _pieces(draw, raw)]
                block(place, types.ToolUseBlock(type="tool_use", id=f"toolu_{place}", name=tool, input={}), deltas)
                content.append(ToolCall(f"toolu_{place}", tool, arguments))
    reason, stop = draw(
        st.sampled_from([("end_turn", Stop.END), ("tool_use", Stop.TOOLS), ("max_tokens", Stop.LENGTH)])
    )
    events.append(
        types.RawMessageDeltaEvent.model_validate(
            {"type": "message_delta", "delta": {"stop_reason": reason}, "usage": {"output_tokens": counts[1]}}
        )
    )
    events.append(types.RawMessageStopEvent(type="message_stop"))
    body = "".join(f"event: {event.type}\ndata: {event.model_dump_json()}\n\n" for event in events)
    usage = Usage(counts[0], counts[1], counts[2], counts[3])
    return body.encode(), Reply(AssistantMessage(tuple(content)), stop, usage)


@st.composite
def openai_answers(draw: st.DrawFn) -> tuple[bytes, bytes, Reply]:
    """An answer without the fields that are null, the same with them, and what it says."""
    from openai.types.chat.chat_completion_chunk import ChatCompletionChunk

    text = draw(TEXTS)
    calls = draw(st.lists(CALLS, max_size=3))
    prompt, output = draw(COUNTS), draw(COUNTS)
    deltas: list[dict] = [{"role": "assistant", "content": piece} for piece in _pieces(draw, text)]
    content: list = [TextBlock(text)] if text else []
    for place, (tool, arguments, escaped) in enumerate(calls):
        first, *rest = _pieces(draw, json.dumps(arguments, ensure_ascii=escaped))
        head = {
            "index": place,
            "id": f"call_{place}",
            "type": "function",
            "function": {"name": tool, "arguments": first},
        }
        deltas.append({"tool_calls": [head]})
        deltas += [{"tool_calls": [{"index": place, "function": {"arguments": piece}}]} for piece in rest]
        content.append(ToolCall(f"call_{place}", tool, arguments))
    reason, stop = ("tool_calls", Stop.TOOLS) if calls else ("stop", Stop.END)
    base = {"id": "chatcmpl-x", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    choices = [{"index": 0, "delta": delta, "finish_reason": None} for delta in deltas]
    choices.append({"index": 0, "delta": {}, "finish_reason": reason})
    chunks = [ChatCompletionChunk.model_validate({**base, "choices": [choice]}) for choice in choices]
    usage = {"prompt_tokens": prompt, "completion_tokens": output, "total_tokens": prompt + output}
    chunks.append(ChatCompletionChunk.model_validate({**base, "choices": [], "usage": usage}))
    terse, full = (
        "".join(f"data: {chunk.model_dump_json(exclude_none=leave_out)}\n\n" for chunk in chunks) + "data: [DONE]\n\n"
        for leave_out in (True, False)
    )
    return terse.encode(), full.encode(), Reply(AssistantMessage(tuple(content)), stop, Usage(prompt, output))


@examples(20, many=240)
@given(anthropic_answers(), st.lists(st.integers(1, 3000), max_size=20))
def test_any_answer_of_anthropics_event_models(answer: tuple[bytes, Reply], cuts: list[int]) -> None:
    body, expected = answer
    ours, theirs, _, _ = vendors.both("anthropic", body, HELLO, cuts)
    assert ours == expected
    assert theirs == expected, "the vendor's SDK agrees"
    [events], _ = exchange("anthropic", [loopback.stream(body)])
    calls_are_told_early(events)


@examples(20, many=240)
@given(openai_answers(), st.lists(st.integers(1, 3000), max_size=20))
def test_any_answer_of_openais_event_models(answer: tuple[bytes, bytes, Reply], cuts: list[int]) -> None:
    terse, full, expected = answer
    ours, theirs, _, _ = vendors.both("openai", terse, HELLO, cuts)
    assert ours == expected
    assert theirs == expected, "the vendor's SDK agrees"
    [events], _ = exchange("openai", [loopback.stream(full)])
    assert reply_of(events) == expected, "null is the same as absent (the SDK stumbles there)"
    calls_are_told_early(events)


# ---- odd servers, patiently -----------------------------------------------------------------------------------------


def sse(*chunks: object) -> bytes:
    return b"".join(b"data: %s\n\n" % (c if isinstance(c, bytes) else json.dumps(c).encode()) for c in chunks)


def choice(delta: object, reason: str | None = None) -> dict:
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": reason}]}


def piece(arguments: object = None, name: str | None = None, **more: object) -> dict:
    return choice({"tool_calls": [{"function": {"name": name, "arguments": arguments}, **more}]})


END, TOOLS = choice({}, "stop"), choice({}, "tool_calls")
ODD = [
    ([piece("{}", "ls", index=0, id="a"), piece("{}", "ls", index=1, id="a"), TOOLS],
     [("a", "ls", {}), ("a-1", "ls", {})], "one id twice"),
    ([piece('{"a":', "ls", index=0, id="a"), piece("1}", "ls", index=0, id="a"), TOOLS],
     [("a", "ls", {"a": 1})], "name and id with every part"),
    ([piece("{}", "l", index=0, id="a"), piece("", "s", index=0), TOOLS],
     [("a", "ls", {})], "a name in parts"),
    ([piece({"a": 1}, "ls", index=0, id="a"), TOOLS],
     [("a", "ls", {"a": 1})], "arguments as an object"),
    ([piece("{}", "ls", id="a"), piece("{}", "rm", id="b"), TOOLS],
     [("a", "ls", {}), ("b", "rm", {})], "no numbers"),
    ([piece('{"a"', "ls", id="a"), piece(":1}"), TOOLS],
     [("a", "ls", {"a": 1})], "no numbers, in parts"),
    ([piece('{"a"', "ls", index=0, id="a"), piece("{}", "rm", index=1, id="b"), piece(":1}", index=0), TOOLS],
     [("a", "ls", {"a": 1}), ("b", "rm", {})], "interleaved"),
    ([piece("", "ls", index=0, id="a"), piece("", "rm", index=1, id="b"), piece('{"a":1}', index=0),
      piece("{}", index=1), TOOLS],
     [("a", "ls", {"a": 1}), ("b", "rm", {})], "all calls are opened first"),
    ([piece("{}", "ls", index=0, id="a"), piece("{}", "rm", index=1, id="b"), piece(" \n", index=0), TOOLS],
     [("a", "ls", {}), ("b", "rm", {})], "a blank after the end"),
    ([piece('{"a": 1}', "ls", index=0, id="a"), piece("}", index=0), TOOLS],
     [("a", "ls", {"a": 1})], "a brace too many"),
    ([piece("{}", "ls", index=0, id="a"), piece('{"a": 1}', index=0), TOOLS],
     [("a", "ls", None)], "an empty object that kept the place"),
    ([piece("", "ls", index=0, id="a"), piece('{"a": 1}', "rm", index=1, id="b"), piece('{"b": "}\\', index=0),
      piece('""}', index=0), TOOLS],
     [("a", "ls", {"b": '}"'}), ("b", "rm", {"a": 1})], "whole before the one that stands before it"),
    ([piece("{}", "ls", index=0, id="a-1"), piece("{}", "ls", index=1, id="a"), piece("{}", "ls", index=2, id="a"),
      piece("{}", "ls", index=3, id="a-2"), TOOLS],
     [("a-1", "ls", {}), ("a", "ls", {}), ("a-2", "ls", {}), ("a-2-3", "ls", {})], "an id that looks like ours"),
    ([piece("", "ls", index=0, id="a"), TOOLS],
     [("a", "ls", {})], "empty arguments are no arguments"),
    ([piece("", "ls", index=0, id="a"), choice({}, "length")],
     [("a", "ls", None)], "unless the answer was cut there"),
    ([piece("[1]", "ls", index=0, id="a"), TOOLS],
     [("a", "ls", None)], "arguments that are no object"),
    ([piece('{"a": NaN}', "ls", index=0, id="a"), TOOLS],
     [("a", "ls", None)], "NaN is not JSON"),
    ([piece('{"a": 1e999}', "ls", index=0, id="a"), TOOLS],
     [("a", "ls", None)], "a number that becomes infinity"),
    ([piece('{"a": ' + "9" * 5000 + "}", "ls", index=0, id="a"), TOOLS],
     [("a", "ls", None)], "a number of 5,000 digits"),
    ([piece('{"a": ' + "[" * 100_000, "ls", index=0, id="a"), TOOLS],
     [("a", "ls", None)], "nesting without a floor"),
    ([piece('{"a": ' + "[" * 80 + "]" * 80 + "}", "ls", index=0, id="a"), TOOLS],
     [("a", "ls", None)], "valid, but deeper than any real argument"),
    ([{"choices": None}, {"choices": []}, choice(None, "stop")],
     [], "choices that say nothing"),
]  # fmt: skip


@pytest.mark.threat("T27")
@pytest.mark.parametrize(("chunks", "calls", "why"), ODD, ids=[why for _, _, why in ODD])
def test_odd_tool_calls_of_compatible_servers(chunks: list, calls: list, why: str) -> None:
    [events], _ = exchange("openai", [loopback.stream(sse(*chunks, b"[DONE]"))])
    found = reply_of(events).message.calls
    assert [(call.id, call.name, call.arguments) for call in found] == calls, why
    ready = [event.call for event in events if isinstance(event, CallReady)]
    assert ready == [call for call in found if call.arguments is not None], "whole calls are given away, as they stay"
    assert all((call.raw == "") == (call.arguments is not None or why.startswith("unless")) for call in found)


@pytest.mark.parametrize(
    ("pieces", "at", "why"),
    [
        (['{"a"', ": 1", "}", " "], 2, "where its object closes"),
        (['{"a": "}', "\\", '"}"', "}"], 3, "a brace and a quotation mark inside of a text"),
        (['{"a": {}', "}"], 1, "an object inside of it"),
        (["{", "}"], 2, "empty: not before the answer ends"),
        (['{"a": 1,}', ""], None, "what closes and is no JSON"),
    ],
)
def test_a_call_of_chat_completions_is_whole_where_its_object_closes(
    pieces: list[str], at: int | None, why: str
) -> None:
    chunks = [piece(text, "ls" if not place else None, index=0, id="a") for place, text in enumerate(pieces)]
    body = sse(*(each for chunk in chunks for each in (chunk, choice({"content": "."}))), TOOLS)
    [events], _ = exchange("openai", [loopback.stream(body)])
    found = [
        sum(isinstance(before, TextDelta) for before in events[:place])
        for place, event in enumerate(events)
        if isinstance(event, CallReady)
    ]
    assert found == ([] if at is None else [at]), why


def test_a_call_without_an_id_gets_one_of_its_own() -> None:
    answer = loopback.stream(sse(piece("{}", "ls", index=0), TOOLS, b"[DONE]"))
    first, second = exchange("openai", [answer, answer], (HELLO, HELLO))[0]
    ids = [reply_of(events).message.calls[0].id for events in (first, second)]
    assert all(ids)
    assert ids[0] != ids[1]


def test_a_character_that_two_deltas_split_is_whole_again() -> None:
    halves = [choice({"content": "\ud83e"}), choice({"content": "\udd94 and \ud800"}), END]
    [events], _ = exchange("openai", [loopback.stream(sse(*halves))])
    assert reply_of(events).message.content == (TextBlock("🦔 and \ufffd"),)


ANTHROPIC_NEWS = [
    {"type": "message_start", "message": {"usage": {"input_tokens": 1, "output_tokens": 1}}},
    {"type": "something_new", "index": 7},
    {"type": "content_block_start", "index": 0, "content_block": {"type": "new_block", "data": "?"}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "new_delta", "x": 1}},
    {"type": "content_block_start", "index": 1, "content_block": {"type": "text", "text": "Hel"}},
    {"type": "content_block_delta", "index": 1, "delta": {"type": "text_delta", "text": "lo"}},
    {"type": "content_block_delta", "index": 1, "delta": {"type": "citations_delta", "citation": {}}},
    {"type": "message_delta", "delta": {"stop_reason": "a_new_reason"}, "usage": {"output_tokens": 2}},
    {"type": "message_stop"},
]


def test_what_is_new_in_anthropics_stream_is_passed_over() -> None:
    [events], _ = exchange("anthropic", [loopback.stream(sse(*ANTHROPIC_NEWS))])
    assert reply_of(events) == Reply(AssistantMessage((TextBlock("Hello"),)), Stop.OTHER, Usage(1, 2))


@pytest.mark.threat("T27")
@pytest.mark.parametrize(
    ("name", "body"),
    [
        (
            "openai",
            sse(
                piece("{}", "ls", index=0, id="a"),
                piece("{}", "ls", index=1, id="b"),
                piece('{"force": true}', index=0),
                TOOLS,
            ),
        ),
        (
            "openai",
            sse(piece("{}", "ls", index=0, id="a"), piece("{}", "ls", index=1, id="b"), piece("", "x", index=0)),
        ),
        (
            "anthropic",
            sse(
                ANTHROPIC_NEWS[0],
                {
                    "type": "content_block_start",
                    "index": 0,
                    "content_block": {"type": "tool_use", "id": "a", "name": "ls"},
                },
                {
                    "type": "content_block_delta",
                    "index": 0,
                    "delta": {"type": "input_json_delta", "partial_json": "{}"},
                },
                {"type": "content_block_stop", "index": 0},
                {"type": "content_block_delta", "index": 0, "delta": {"type": "input_json_delta", "partial_json": " "}},
            ),
        ),
    ],
)
def test_a_call_that_was_given_away_cannot_change(name: str, body: bytes) -> None:
    """A reply that changes a call after its early start is rejected."""
    with pytest.raises(ProviderError, match="cannot be read"):
        exchange(name, [loopback.stream(body)])
