"""Tests of the OpenAI Responses API, requests and replies, over loopback HTTP, compared with the vendor's SDK and
published types.
"""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from runner.messages import (
    AssistantMessage,
    CallOpened,
    CallReady,
    Failure,
    ImageBlock,
    ProviderError,
    Reply,
    Request,
    Stop,
    TextBlock,
    TextDelta,
    Thinking,
    ThinkingBlock,
    ThinkingDelta,
    ToolCall,
    ToolMessage,
    ToolResult,
    ToolSpec,
    Usage,
    UserMessage,
)
from runner.providers.responses import request_body, signed
from tests.support.law import examples
from tests.wire import loopback, vendors

HELLO, exchange, reply_of = loopback.HELLO, loopback.exchange, loopback.reply_of
stream, wire, whole = loopback.stream, loopback.wire, loopback.whole

MODEL = "gpt-6.2-sol"
ASKED = Request(MODEL, "", HELLO.messages, ())
PNG = ImageBlock("image/png", "iVBORw0KGgo=")
LS = ToolSpec("ls", "List a folder.", {"type": "object", "properties": {"path": {"type": "string"}}, "required": []})
KEPT = {"id": "rs_01Think", "encrypted_content": "gAAAAABmade_up-encrypted=="}
SUMMARY = "**Running the tests**\n\nThe tests come first.\n\n**The fix**\n\nThen the fix — naïvely."
TOOLS = (
    ThinkingBlock(SUMMARY, signed(MODEL, {"item": KEPT})),
    ThinkingBlock("", signed(MODEL, {"phase": "commentary"})),
    TextBlock("I will run the tests 🦔 and read the file.\n"),
    ToolCall("call_Bash", "bash", {"script": "make test && echo 'ü'", "timeout": 60}),
    ToolCall("call_Ls", "ls", {}),
)
HALF = '{"path": "a.txt", "content": "once upon'


# ---- what comes back ------------------------------------------------------------------------------------------------

ANSWERS = [
    ("responses-tools", TOOLS, Stop.TOOLS, Usage(12, 89, 5120, 340), "reasoning, a phase, text, two calls"),
    ("responses-text", (TextBlock("All tests pass."),), Stop.END, Usage(27, 15, 9), "text alone"),
    (
        "responses-cut",
        (ToolCall("call_Write", "write", None, HALF),),
        Stop.LENGTH,
        Usage(25, 16384),
        "a call cut by the token limit has no arguments, and keeps its text",
    ),
]


@pytest.mark.parametrize(("file", "content", "stop", "usage", "why"), ANSWERS, ids=[each[0] for each in ANSWERS])
def test_an_answer_becomes_a_reply(file: str, content: tuple, stop: Stop, usage: Usage, why: str) -> None:
    [events], _ = exchange("responses", [stream(wire(file))], (ASKED,))
    assert reply_of(events) == Reply(AssistantMessage(content), stop, usage), why
    text = "".join(event.text for event in events if isinstance(event, TextDelta))
    thinking = "".join(event.text for event in events if isinstance(event, ThinkingDelta))
    assert text == "".join(block.text for block in content if isinstance(block, TextBlock))
    assert thinking == "".join(block.text for block in content if isinstance(block, ThinkingBlock))
    calls = [block for block in content if isinstance(block, ToolCall)]
    assert [event.tool for event in events if isinstance(event, CallOpened)] == [call.name for call in calls]
    ready = [event.call for event in events if isinstance(event, CallReady)]
    assert ready == [call for call in calls if call.arguments is not None]


def test_a_call_is_told_before_the_next_one_begins() -> None:
    [events], _ = exchange("responses", [stream(wire("responses-tools"))], (ASKED,))
    kinds = [type(event).__name__ for event in events if isinstance(event, CallOpened | CallReady)]
    assert kinds == ["CallOpened", "CallReady", "CallOpened", "CallReady"]


@pytest.mark.parametrize("file", [each[0] for each in ANSWERS])
def test_the_recorded_events_are_what_the_vendor_publishes(file: str) -> None:
    from openai.types.responses.response_stream_event import ResponseStreamEvent  # slow: only where it is used

    adapter = TypeAdapter(ResponseStreamEvent)
    for data in loopback.event_data(wire(file)):
        assert adapter.validate_json(data).type == json.loads(data)["type"]


@pytest.mark.parametrize("file", ["responses-tools", "responses-text"])
def test_the_vendors_sdk_reads_the_same_reply(file: str) -> None:
    ours, theirs, sent, again = vendors.both("responses", wire(file), ASKED)
    assert ours == theirs
    assert sent == again


@examples(20)
@given(st.lists(st.integers(1, 6000), max_size=60))
def test_chunk_boundaries_anywhere_change_nothing(cuts: list[int]) -> None:
    body = wire("responses-tools")
    plain, cut = exchange("responses", [stream(body), stream(body, cuts)], (ASKED, ASKED))[0]
    assert plain == cut


def sse(*events: object) -> bytes:
    return b"".join(b"data: %s\n\n" % json.dumps(event).encode() for event in events)


def added(index: int, **item: object) -> dict:
    return {"type": "response.output_item.added", "output_index": index, "item": item}


def done(index: int, **item: object) -> dict:
    return {"type": "response.output_item.done", "output_index": index, "item": item}


def delta(kind: str, text: str, index: int = 0) -> dict:
    return {"type": f"response.{kind}.delta", "output_index": index, "delta": text}


def completed(**response: object) -> dict:
    return {"type": "response.completed", "response": response}


SAID = {"type": "message", "content": [{"type": "output_text", "text": "hi"}]}
ODD = [
    ([done(0, **SAID), completed()], (TextBlock("hi"),), Stop.END, "only the ends are told"),
    ([added(0, type="message"), delta("output_text", "hi"), completed()], (TextBlock("hi"),), Stop.END, "no ends"),
    ([added(0, type="message"), delta("refusal", "no"), completed()], (TextBlock("no"),), Stop.REFUSAL, "a refusal"),
    ([done(0, type="message", content=[{"type": "refusal", "refusal": "no"}]), completed()],
     (TextBlock("no"),), Stop.REFUSAL, "a refusal, only at the end"),
    ([added(0, type="web_search_call"), delta("output_text", "x"), done(0, type="web_search_call"), completed()],
     (), Stop.END, "an item that is new to us"),
    ([{"type": "response.queued"}, {"type": "response.something.new", "x": 1}, completed()], (), Stop.END, "news"),
    ([done(0, type="function_call", call_id="a", name="ls", arguments="{}"), completed()],
     (ToolCall("a", "ls", {}),), Stop.TOOLS, "a call, only at its end"),
    ([added(0, type="function_call", call_id="a", name="ls"), completed()],
     (ToolCall("a", "ls", {}),), Stop.TOOLS, "a call without arguments, and without an end"),
    ([added(0, type="function_call", call_id="a", name="ls"),
      {"type": "response.incomplete", "response": {"incomplete_details": {"reason": "max_output_tokens"}}}],
     (ToolCall("a", "ls", None),), Stop.LENGTH, "cut before its first argument"),
    ([added(0, type="function_call", call_id="a", name="ls"), delta("function_call_arguments", "[1]"), completed()],
     (ToolCall("a", "ls", None, "[1]"),), Stop.TOOLS, "arguments that are no object"),
    ([{"type": "response.incomplete", "response": {"incomplete_details": {"reason": "content_filter"}}}],
     (), Stop.REFUSAL, "filtered"),
    ([{"type": "response.incomplete", "response": {"incomplete_details": {"reason": "news"}}}],
     (), Stop.OTHER, "an end that is new"),
    ([added(0, type="reasoning"), delta("reasoning_text", "hm"), done(0, type="reasoning", id="r"), completed()],
     (ThinkingBlock("hm"),), Stop.END, "reasoning in words, of an open model: nothing goes back"),
    ([added(0, type="message"), delta("output_text", "\ud83e"), delta("output_text", "\udd94 \ud800"), completed()],
     (TextBlock("🦔 \ufffd"),), Stop.END, "a character in two halves"),
    ([completed(usage={"input_tokens": "7", "output_tokens": -1})], (), Stop.END, "counts that make no sense"),
]  # fmt: skip


@pytest.mark.threat("T27")
@pytest.mark.parametrize(("events", "content", "stop", "why"), ODD, ids=[each[3] for each in ODD])
def test_odd_servers_patiently(events: list, content: tuple, stop: Stop, why: str) -> None:
    [found], _ = exchange("responses", [stream(sse(*events))])
    assert reply_of(found) == Reply(AssistantMessage(content), stop, Usage()), why


CALL = added(0, type="function_call", call_id="a", name="ls")
ENDED = done(0, type="function_call", call_id="a", name="ls", arguments="{}")
BROKEN = [
    (b"data: {oops\n\n", "not JSON"),
    (sse(delta("output_text", "x", 5)), "no item"),
    (sse({"type": "response.output_text.delta", "output_index": 0, "delta": 7}), "lacks fields"),
    (sse({"type": "response.output_item.added", "output_index": 0}), "lacks fields"),
    (sse(added(0, type="function_call", call_id="a")), "lacks fields"),
    (sse(CALL, CALL), "begins twice"),
    (sse(CALL, added(1, type="function_call", call_id="a", name="ls")), "lacks fields"),
    (sse(CALL, ENDED, ENDED), "ends twice"),
    (sse(CALL, ENDED, delta("function_call_arguments", ', "force": true}')), "no item"),
]


@pytest.mark.threat("T27")
@pytest.mark.parametrize(("body", "words"), BROKEN)
def test_a_stream_that_cannot_be_read(body: bytes, words: str) -> None:
    with pytest.raises(ProviderError, match="cannot be read") as caught:
        exchange("responses", [stream(body)])
    assert words in caught.value.problem.why


# fmt: off
FAILED = [
    ({"code": "server_error", "message": "oops"}, Failure.RETRYABLE),
    ({"code": "rate_limit_exceeded", "message": "slow"}, Failure.RATE_LIMITED),
    ({"code": "server_is_overloaded", "message": "busy"}, Failure.OVERLOADED),
    ({"code": "context_length_exceeded", "message": "Your input exceeds the context window of this model."},
     Failure.CONTEXT),
    ({"code": "insufficient_quota", "message": "pay"}, Failure.AUTH),
    ({"code": "invalid_prompt", "message": "no"}, Failure.FATAL),
    ({"code": "image_parse_error", "message": "no"}, Failure.FATAL),
    ({"code": "something_new", "message": "?"}, Failure.RETRYABLE),
    (None, Failure.RETRYABLE),
]
# fmt: on


@pytest.mark.parametrize(("error", "failure"), FAILED)
@pytest.mark.parametrize("shape", ["failed", "error", "flat"])
def test_an_error_in_the_stream(error: dict | None, failure: Failure, shape: str) -> None:
    event = {
        "failed": {"type": "response.failed", "response": {"error": error}},
        "error": {"type": "error", "error": error},
        "flat": {"type": "error", **(error or {})},
    }[shape]
    with pytest.raises(ProviderError) as caught:
        exchange("responses", [stream(sse(CALL, event))])
    assert caught.value.failure is failure


@pytest.mark.parametrize(
    ("marker", "where"),
    [("response.output_item.added", "before"), ("make te", "inside"), ("completed\ndata", "inside")],
)
def test_a_stream_that_ends_early(marker: str, where: str) -> None:
    body = wire("responses-tools")
    with pytest.raises(ProviderError, match="incomplete") as caught:
        exchange("responses", [stream(body[: body.index(marker.encode())])])
    assert where in caught.value.problem.why
    assert caught.value.failure is Failure.RETRYABLE


# ---- what is sent ---------------------------------------------------------------------------------------------------

FULL = (
    UserMessage((TextBlock("what is in this picture?"), PNG, TextBlock(" \n"))),
    AssistantMessage(TOOLS),
    ToolMessage(
        (
            ToolResult("call_Bash", (TextBlock("a.py"), PNG), is_error=True),
            ToolResult("call_Ls", ()),
        )
    ),
)


def test_the_body() -> None:
    image = {"type": "input_image", "detail": "auto", "image_url": "data:image/png;base64,iVBORw0KGgo="}
    body = request_body(Request(MODEL, "Be brief.", FULL, (LS,), thinking=Thinking.HIGH))
    assert body == {
        "model": MODEL,
        "instructions": "Be brief.",
        "max_output_tokens": 16_384,
        "stream": True,
        "store": False,
        "include": ["reasoning.encrypted_content"],
        "reasoning": {"effort": "high", "summary": "auto"},
        "tools": [
            {
                "type": "function",
                "name": "ls",
                "description": "List a folder.",
                "parameters": LS.schema,
                "strict": False,
            }
        ],
        "input": [
            {
                "type": "message",
                "role": "user",
                "content": [{"type": "input_text", "text": "what is in this picture?"}, image],
            },
            {"type": "reasoning", **KEPT, "summary": [{"type": "summary_text", "text": SUMMARY}]},
            {
                "type": "message",
                "role": "assistant",
                "content": "I will run the tests 🦔 and read the file.\n",
                "phase": "commentary",
            },
            {
                "type": "function_call",
                "call_id": "call_Bash",
                "name": "bash",
                "arguments": '{"script": "make test && echo \'ü\'", "timeout": 60}',
            },
            {"type": "function_call", "call_id": "call_Ls", "name": "ls", "arguments": "{}"},
            {
                "type": "function_call_output",
                "call_id": "call_Bash",
                "output": [
                    {"type": "input_text", "text": "[this tool call failed]"},
                    {"type": "input_text", "text": "a.py"},
                    image,
                ],
            },
            {"type": "function_call_output", "call_id": "call_Ls", "output": "(no output)"},
        ],
    }
    vendors.check_body("responses", body)


@pytest.mark.parametrize(
    ("model", "level", "reasoning"),
    [
        (MODEL, Thinking.OFF, None),
        (MODEL, Thinking.MAX, {"effort": "max", "summary": "auto"}),
        ("gpt-5.5", Thinking.MAX, {"effort": "xhigh", "summary": "auto"}),
        ("some-model", Thinking.MAX, {"effort": "high", "summary": "auto"}),
    ],
)
def test_how_it_is_told_to_think(model: str, level: Thinking, reasoning: dict | None) -> None:
    body = request_body(Request(model, "", HELLO.messages, (), thinking=level))
    assert body.get("reasoning") == reasoning
    assert ("include" in body) == (model != "some-model"), "a model that does not reason refuses the wish for it"
    vendors.check_body("responses", body)


FOREIGN = [
    (ThinkingBlock("hm", signed("gpt-6-sol", {"item": KEPT})), "of another model"),
    (ThinkingBlock("hm", "EqQBCgIYAhIM+made/up=="), "of Anthropic"),
    (ThinkingBlock("", redacted="EmwK"), "of Anthropic, redacted"),
    (ThinkingBlock("hm", "gemini:c2ln"), "of Gemini"),
    (ThinkingBlock("hm", "openai:reasoning"), "of Chat Completions"),
    (ThinkingBlock("hm", 'responses:{"model":"gpt-6.2-sol","item":7}'), "damaged"),
    (ThinkingBlock("hm", "responses:{"), "more damaged"),
    (ThinkingBlock("", signed(MODEL, {"phase": "root"})), "a phase that there is not"),
]


@pytest.mark.parametrize(("block", "why"), FOREIGN, ids=[why for _, why in FOREIGN])
def test_thoughts_that_cannot_be_read_there_are_left_out(block: ThinkingBlock, why: str) -> None:
    said = AssistantMessage((block, TextBlock("hi")))
    body = request_body(Request(MODEL, "", (*HELLO.messages, said), ()))
    assert body["input"][1:] == [{"type": "message", "role": "assistant", "content": "hi"}], why  # type: ignore[index]  # a list


def test_a_thought_that_led_to_nothing_is_left_out() -> None:
    said = AssistantMessage((ThinkingBlock("hm", signed(MODEL, {"item": KEPT})),))
    body = request_body(Request(MODEL, "", (*HELLO.messages, said, *HELLO.messages), ()))
    assert [item["type"] for item in body["input"]] == ["message", "message"]  # type: ignore[attr-defined]  # a list


def test_what_a_model_said_goes_back_as_it_came() -> None:
    reply = reply_of(exchange("responses", [stream(wire("responses-tools"))], (ASKED,))[0][0])
    body = request_body(Request(MODEL, "", (*HELLO.messages, reply.message), ()))
    recorded = json.loads(loopback.event_data(wire("responses-tools"))[-1])["response"]["output"]
    thought, came = body["input"][1], recorded[0]  # type: ignore[index]  # a list
    assert {**thought, "summary": []} == {**came, "summary": []}, "the reasoning item, to the letter"
    assert thought["summary"][0]["text"] == "\n\n".join(part["text"] for part in came["summary"])
    kinds = [item["type"] for item in body["input"][1:]]  # type: ignore[index]  # a list
    assert kinds == [item["type"] for item in recorded]


UNVERIFIED = json.dumps(
    {
        "error": {
            "message": "Your organization must be verified to generate reasoning summaries. Please go to settings.",
            "type": "invalid_request_error",
            "param": "reasoning.summary",
            "code": "unsupported_value",
        }
    }
).encode()


def test_an_organization_that_is_not_verified_gets_answers_without_summaries() -> None:
    refused, answer = whole("400 Bad Request", UNVERIFIED), stream(wire("responses-text"))
    request = Request(MODEL, "", HELLO.messages, (), thinking=Thinking.LOW)
    answers, received = exchange("responses", [refused, answer, answer], (request, request))
    assert [reply_of(events).message.content for events in answers] == [(TextBlock("All tests pass."),)] * 2
    assert [each.json["reasoning"] for each in received] == [
        {"effort": "low", "summary": "auto"},
        {"effort": "low"},
        {"effort": "low"},
    ]


def test_the_request_line_and_headers() -> None:
    _, [received] = exchange("responses", [stream(wire("responses-text"))])
    assert received.lines[0] == "POST /v1/responses HTTP/1.1"
    assert f"authorization: Bearer {loopback.KEY}" in [
        line.replace("Authorization", "authorization") for line in received.lines
    ]


@pytest.mark.parametrize("text", ["\ud83e\udd94", "\ud800", "\x00", "\u202e"], ids=ascii)
def test_whatever_text_is_in_a_message_the_body_stays_valid_json_in_utf8(text: str) -> None:
    call = ToolCall("c", "ls", {"path": text, text: [text]})
    messages = (
        UserMessage((TextBlock(text + "."),)),
        AssistantMessage((ThinkingBlock(text, signed("m", {"item": {"text": text}})), call)),
        ToolMessage((ToolResult("c", (TextBlock(text),)),)),
    )
    _, [received] = exchange("responses", [stream(wire("responses-text"))], (Request("m", text, messages, ()),))
    json.loads(received.body.decode("utf-8", "strict"))
