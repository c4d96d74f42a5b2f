"""Tests of the Gemini API, requests and replies, over loopback HTTP, compared with the vendor's SDK and published
types.
"""

import asyncio
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

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
from runner.providers.endpoint import parse_endpoint
from runner.providers.gemini import UNSIGNED, GeminiProvider, request_body, signed
from runner.secrets.secret import Secret
from tests.support.law import examples
from tests.wire import loopback

HELLO, exchange, reply_of = loopback.HELLO, loopback.exchange, loopback.reply_of
stream, wire, whole = loopback.stream, loopback.wire, loopback.whole

MODEL = "gemini-4-argon"
ASKED = Request(MODEL, "", HELLO.messages, ())
PNG = ImageBlock("image/png", "iVBORw0KGgo=")
LS = ToolSpec("ls", "List a folder.", {"type": "object", "properties": {"path": {"type": "string"}}, "required": []})
BASH = {"script": "make test && echo 'ü'", "timeout": 60}
TOOLS = (
    ThinkingBlock("**Running the tests**\n\nThe tests come first. Then the fix — naïvely."),
    TextBlock("I will run the tests 🦔 and read the file.\n"),
    ThinkingBlock("", signed(MODEL, "EsUMCsIMARFNMg/madeupAA=")),
    ToolCall("k3Bash01", "bash", BASH),
    ToolCall("k3Ls0002", "ls", {}),
)
TEXT = (TextBlock("All tests pass."), ThinkingBlock("", signed(MODEL, "EjQKMgEMmade/upA")))

# ---- what comes back ------------------------------------------------------------------------------------------------

ANSWERS = [
    ("gemini-tools", TOOLS, Stop.TOOLS, Usage(352, 89, 5120), "thoughts, text, a signed call and another"),
    ("gemini-text", TEXT, Stop.END, Usage(27, 15, 9), "text, and a signature that comes alone"),
    ("gemini-cut", (TextBlock("Once upon"),), Stop.LENGTH, Usage(25, 16384), "cut, and its thoughts count"),
]


@pytest.mark.parametrize(("file", "content", "stop", "usage", "why"), ANSWERS, ids=[each[0] for each in ANSWERS])
def test_an_answer_becomes_a_reply(file: str, content: tuple, stop: Stop, usage: Usage, why: str) -> None:
    [events], _ = exchange("gemini", [stream(wire(file))], (ASKED,))
    assert reply_of(events) == Reply(AssistantMessage(content), stop, usage), why
    text = "".join(event.text for event in events if isinstance(event, TextDelta))
    thinking = "".join(event.text for event in events if isinstance(event, ThinkingDelta))
    assert text == "".join(block.text for block in content if isinstance(block, TextBlock))
    assert thinking == "".join(block.text for block in content if isinstance(block, ThinkingBlock))
    calls = [block for block in content if isinstance(block, ToolCall)]
    assert [event.tool for event in events if isinstance(event, CallOpened)] == [call.name for call in calls]
    assert [event.call for event in events if isinstance(event, CallReady)] == calls


@pytest.mark.parametrize("file", [each[0] for each in ANSWERS])
def test_the_recorded_events_are_what_the_vendor_publishes(file: str) -> None:
    from google.genai import types  # an import of half a second, which no other worker needs

    for data in loopback.event_data(wire(file).replace(b"\r\n", b"\n")):
        types.GenerateContentResponse.model_validate(json.loads(data))  # its models refuse fields that they do not know


@pytest.mark.parametrize("file", ["gemini-tools", "gemini-text"])
def test_the_vendors_sdk_reads_the_same(file: str) -> None:
    """The SDK of the vendor returns the same parts in the same order, and sends the same bodies for the same input."""
    from google import genai
    from google.genai import types

    async def run() -> tuple[Reply, list[types.Part], dict, dict]:
        async with loopback.Loopback([stream(wire(file)), stream(wire(file))]) as server:
            provider = loopback.make("gemini", server.url)
            ours = reply_of(await loopback.ask(provider, ASKED))
            await provider.close()
            options = types.HttpOptions(base_url=server.url)
            client = genai.Client(api_key=loopback.KEY, http_options=options)
            parts: list[types.Part] = []
            config = types.GenerateContentConfig(max_output_tokens=16_384)
            async for chunk in await client.aio.models.generate_content_stream(
                model=MODEL, contents="hello", config=config
            ):
                parts += chunk.candidates[0].content.parts or []
            await client.aio.aclose()
            return ours, parts, server.requests[0].json, server.requests[1].json

    ours, parts, sent, again = asyncio.run(run())
    assert sent == again
    said = "".join(part.text for part in parts if part.text and not part.thought)
    thought = "".join(part.text for part in parts if part.text and part.thought)
    calls = [
        (part.function_call.id, part.function_call.name, part.function_call.args)
        for part in parts
        if part.function_call
    ]
    assert said == "".join(block.text for block in ours.message.content if isinstance(block, TextBlock))
    assert thought == "".join(block.text for block in ours.message.content if isinstance(block, ThinkingBlock))
    assert calls == [(call.id, call.name, call.arguments) for call in ours.message.calls]


@examples(20)
@given(st.lists(st.integers(1, 3000), max_size=60))
def test_chunk_boundaries_anywhere_change_nothing(cuts: list[int]) -> None:
    body = wire("gemini-tools")
    plain, cut = exchange("gemini", [stream(body), stream(body, cuts)], (ASKED, ASKED))[0]
    assert plain == cut


def sse(*events: object) -> bytes:
    return b"".join(b"data: %s\n\n" % json.dumps(event).encode() for event in events)


def parts(*each: object, finish: str | None = None, **more: object) -> dict:
    return {"candidates": [{"content": {"parts": list(each)}, **({"finishReason": finish} if finish else {})}], **more}


def call(name: str = "ls", **more: object) -> dict:
    return {"functionCall": {"name": name, **more}}


STOP = parts(finish="STOP")
ODD = [
    ([parts({"text": "a"}, {"text": "b"}, finish="STOP")], (TextBlock("ab"),), Stop.END, "two parts at once"),
    ([parts({"text": "hm", "thought": True, "thoughtSignature": "c2ln"}, {"text": "a"}), STOP],
     (ThinkingBlock("hm", signed("some-model", "c2ln")), TextBlock("a")), Stop.END, "a signed thought"),
    ([parts({"text": "a"}, {"text": "b", "thoughtSignature": "c2ln"}, {"text": "c"}), STOP],
     (TextBlock("a"), ThinkingBlock("", signed("some-model", "c2ln")), TextBlock("b"), TextBlock("c")),
     Stop.END, "a signed text between others"),
    ([parts({"executableCode": {"code": "1"}}, 7, {"text": "a"}), STOP], (TextBlock("a"),), Stop.END, "parts that are new"),
    ([parts(call(id="x", args={"a": 1}), call(id="y")), STOP],
     (ToolCall("x", "ls", {"a": 1}), ToolCall("y", "ls", {})), Stop.TOOLS, "calls, one without arguments"),
    ([parts(call(id="x", args=None)), STOP], (ToolCall("x", "ls", {}),), Stop.TOOLS, "null arguments"),
    ([parts(call(id="x", args=[1])), STOP], (ToolCall("x", "ls", None, "[1]"),), Stop.TOOLS, "arguments that are a list"),
    ([parts(call(id="x", args={"a": float("inf")})), STOP],
     (ToolCall("x", "ls", None, '{"a": Infinity}'),), Stop.TOOLS, "a number that is none"),
    ([{"promptFeedback": {"blockReason": "SAFETY"}}], (), Stop.REFUSAL, "the prompt is blocked"),
    ([parts({"text": "a"}), parts(finish="RECITATION")], (TextBlock("a"),), Stop.REFUSAL, "the answer is blocked"),
    ([parts({"text": "a"}), parts(finish="SOMETHING_NEW")], (TextBlock("a"),), Stop.OTHER, "an end that is new"),
    ([{"candidates": [{"finishReason": "STOP"}]}], (), Stop.END, "an end without content"),
    ([{"candidates": []}, {"x": 1}, STOP], (), Stop.END, "nothing, and news"),
    ([parts({"text": "\ud83e"}), parts({"text": "\udd94 \ud800"}), STOP], (TextBlock("🦔 \ufffd"),), Stop.END, "halves"),
    ([STOP, {"error": {"code": 500, "message": "late"}}], (), Stop.END, "an error after the end"),
]  # fmt: skip


@pytest.mark.threat("T27")
@pytest.mark.parametrize(("events", "content", "stop", "why"), ODD, ids=[each[3] for each in ODD])
def test_odd_servers_patiently(events: list, content: tuple, stop: Stop, why: str) -> None:
    [found], _ = exchange("gemini", [stream(sse(*events))])
    assert reply_of(found) == Reply(AssistantMessage(content), stop, Usage()), why


def test_calls_without_an_id_or_with_the_same_get_their_own() -> None:
    [events], _ = exchange("gemini", [stream(sse(parts(call(), call(), call(id="x"), call(id="x")), STOP))])
    calls = reply_of(events).message.calls
    assert len({each.id for each in calls}) == 4
    assert all(each.id for each in calls)
    assert [event.call for event in events if isinstance(event, CallReady)] == list(calls)


# fmt: off
FAILED = [
    (stream(b"data: {oops\n\n"), Failure.FATAL, "cannot be read", "no JSON"),
    (stream(sse({"candidates": 7})), Failure.FATAL, "cannot be read", "a number as candidates"),
    (stream(sse({"candidates": [{"content": 7}]})), Failure.FATAL, "cannot be read", "a number as content"),
    (stream(sse(parts({"text": 7}))), Failure.FATAL, "cannot be read", "a number as text"),
    (stream(sse(parts({"functionCall": {"args": {}}}))), Failure.FATAL, "cannot be read", "a call of nothing"),
    (stream(sse(parts({"text": "half"}))), Failure.RETRYABLE, "before the answer", "it ends early"),
    (stream(sse(parts(call()))), Failure.RETRYABLE, "inside", "it ends after a call"),
    (stream(sse(parts(finish="MALFORMED_FUNCTION_CALL"))), Failure.RETRYABLE, "could not read", "a broken call"),
    (stream(sse({"error": {"code": 503, "message": "The model is overloaded.", "status": "UNAVAILABLE"}})),
     Failure.OVERLOADED, "overloaded", "overloaded, told late"),
    (whole("503 Service Unavailable", b'[{"error":{"code":503,"message":"overloaded","status":"UNAVAILABLE"}}]'),
     Failure.OVERLOADED, "overloaded", "overloaded"),
    (whole("429 Too Many Requests", json.dumps({"error": {"code": 429, "status": "RESOURCE_EXHAUSTED", "message": "quota",
        "details": [{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "7s"}]}}).encode()),
     Failure.RATE_LIMITED, "limits", "a quota"),
    (whole("400 Bad Request", json.dumps({"error": {"code": 400, "status": "INVALID_ARGUMENT", "message": "API key not valid. "
        "Please pass a valid API key.", "details": [{"@type": "type.googleapis.com/google.rpc.ErrorInfo",
        "reason": "API_KEY_INVALID"}]}}).encode()),
     Failure.AUTH, "GEMINI_API_KEY", "a wrong key has the status of a wrong request"),
    (whole("400 Bad Request", b'{"error":{"code":400,"status":"INVALID_ARGUMENT","message":"The input token count (1091639) '
        b'exceeds the maximum number of tokens allowed (1048576)."}}'), Failure.CONTEXT, "too large", "too long"),
    (whole("404 Not Found", b'{"error":{"code":404,"status":"NOT_FOUND","message":"models/x is not found"}}'),
     Failure.FATAL, "some-model", "no such model"),
]
# fmt: on


@pytest.mark.parametrize(("steps", "failure", "words", "why"), FAILED, ids=[each[3] for each in FAILED])
def test_a_failing_server_is_a_problem_of_its_class(steps: list, failure: Failure, words: str, why: str) -> None:
    with pytest.raises(ProviderError) as caught:
        exchange("gemini", [steps])
    assert caught.value.failure is failure, why
    assert words in str(caught.value.problem)
    if why == "a quota":
        assert caught.value.retry_after == 7.0


# ---- what is sent ---------------------------------------------------------------------------------------------------

FULL = (
    UserMessage((TextBlock("what is in this picture?"), PNG, TextBlock(" \n"))),
    AssistantMessage(TOOLS),
    ToolMessage(
        (
            ToolResult("k3Bash01", (TextBlock("a.py"), PNG), is_error=True),
            ToolResult("k3Ls0002", ()),
        )
    ),
)


def check(body: dict) -> None:
    """Raises where `body` is not what the vendor's published types say, unknown fields included."""
    from google.genai import types

    for content in (*body["contents"], *([body["systemInstruction"]] if "systemInstruction" in body else [])):
        types.Content.model_validate(content)
    for tool in body.get("tools", ()):
        types.Tool.model_validate(tool)
    types.GenerationConfig.model_validate(body["generationConfig"])
    assert set(body) <= {"contents", "systemInstruction", "tools", "generationConfig"}


def test_the_body() -> None:
    image = {"inlineData": {"mimeType": "image/png", "data": "iVBORw0KGgo="}}
    failed = {"error": "a.py\n[image 1] follows in the next message"}
    body = request_body(Request(MODEL, "Be brief.", FULL, (LS,), thinking=Thinking.MAX))
    assert body == {
        "systemInstruction": {"parts": [{"text": "Be brief."}]},
        "generationConfig": {
            "maxOutputTokens": 16_384,
            "thinkingConfig": {"includeThoughts": True, "thinkingLevel": "HIGH"},
        },
        "tools": [
            {
                "functionDeclarations": [
                    {"name": "ls", "description": "List a folder.", "parametersJsonSchema": LS.schema}
                ]
            }
        ],
        "contents": [
            {"role": "user", "parts": [{"text": "what is in this picture?"}, image]},
            {
                "role": "model",
                "parts": [
                    {"text": "I will run the tests 🦔 and read the file.\n"},
                    {
                        "functionCall": {"id": "k3Bash01", "name": "bash", "args": BASH},
                        "thoughtSignature": "EsUMCsIMARFNMg/madeupAA=",
                    },
                    {"functionCall": {"id": "k3Ls0002", "name": "ls", "args": {}}},
                ],
            },
            {
                "role": "user",
                "parts": [
                    {"functionResponse": {"id": "k3Bash01", "name": "bash", "response": failed}},
                    {"functionResponse": {"id": "k3Ls0002", "name": "ls", "response": {"output": "(no output)"}}},
                ],
            },
            {"role": "user", "parts": [{"text": "[image 1]"}, image]},
        ],
    }
    check(body)


@pytest.mark.parametrize(
    ("model", "level", "most", "config"),
    [
        (MODEL, Thinking.OFF, 16_384, None),
        (MODEL, Thinking.LOW, 16_384, {"includeThoughts": True, "thinkingLevel": "LOW"}),
        ("gemini-next-9", Thinking.MAX, 16_384, {"includeThoughts": True, "thinkingLevel": "HIGH"}),
        ("gemini-2.5-flash", Thinking.OFF, 16_384, None),
        ("gemini-2.5-flash", Thinking.MEDIUM, 16_384, {"includeThoughts": True, "thinkingBudget": 4096}),
        ("gemini-2.5-pro", Thinking.MAX, 65_536, {"includeThoughts": True, "thinkingBudget": 24_576}),
        ("gemini-2.5-flash-lite", Thinking.LOW, 1000, {"includeThoughts": True, "thinkingBudget": 512}),
    ],
)
def test_how_it_is_told_to_think(model: str, level: Thinking, most: int, config: dict | None) -> None:
    body = request_body(Request(model, "", HELLO.messages, (), most, level))
    assert body["generationConfig"].get("thinkingConfig") == config  # type: ignore[attr-defined]  # a dictionary
    check(body)


def test_what_a_model_said_goes_back_as_it_came() -> None:
    for file in ("gemini-tools", "gemini-text"):
        reply = reply_of(exchange("gemini", [stream(wire(file))], (ASKED,))[0][0])
        body = request_body(Request(MODEL, "", (*HELLO.messages, reply.message), ()))
        chunks = [json.loads(data) for data in loopback.event_data(wire(file).replace(b"\r\n", b"\n"))]
        told = [
            part for chunk in chunks for part in chunk["candidates"][0]["content"]["parts"] if not part.get("thought")
        ]
        sent = body["contents"][1]["parts"]  # type: ignore[index]  # a list

        def merged(each: list) -> tuple[str, list]:
            return "".join(part.get("text", "") for part in each), [
                part for part in each if len(part) > 1 or "text" not in part
            ]

        assert merged(sent) == merged(told), "every signature is with the part that it came with"


FOREIGN = [
    (ThinkingBlock("", signed("gemini-3.8-flash", "c2ln")), "of another model"),
    (ThinkingBlock("hm", "EqQBCgIYAhIM+made/up=="), "of Anthropic"),
    (ThinkingBlock("", redacted="EmwK"), "of Anthropic, redacted"),
    (ThinkingBlock("hm", 'responses:{"model":"gemini-4-argon"}'), "of OpenAI"),
    (ThinkingBlock("hm", "gemini:"), "damaged"),
]


@pytest.mark.parametrize(("block", "why"), FOREIGN, ids=[why for _, why in FOREIGN])
def test_thoughts_that_cannot_be_read_there_are_left_out_and_calls_pass_all_the_same(
    block: ThinkingBlock, why: str
) -> None:
    said = AssistantMessage((block, TextBlock("hi"), ToolCall("a", "ls", {}), ToolCall("b", "ls", {})))
    first, second = ({"functionCall": {"id": name, "name": "ls", "args": {}}} for name in "ab")
    for model, expected in ((MODEL, {**first, "thoughtSignature": UNSIGNED}), ("gemini-2.5-pro", first)):
        body = request_body(Request(model, "", (*HELLO.messages, said), ()))
        assert body["contents"][1]["parts"] == [{"text": "hi"}, expected, second], why  # type: ignore[index]  # a list


@pytest.mark.parametrize(
    ("base", "model", "line"),
    [
        ("", MODEL, "POST /v1beta/models/gemini-4-argon:streamGenerateContent?alt=sse HTTP/1.1"),
        ("/v1alpha", MODEL, "POST /v1alpha/models/gemini-4-argon:streamGenerateContent?alt=sse HTTP/1.1"),
        (
            "/proxy",
            f"models/{MODEL}",
            "POST /proxy/v1beta/models/gemini-4-argon:streamGenerateContent?alt=sse HTTP/1.1",
        ),
        ("", "../x?key=1#a b", "POST /v1beta/models/..%2Fx%3Fkey%3D1%23a%20b:streamGenerateContent?alt=sse HTTP/1.1"),
    ],
)
def test_the_request_line_and_the_key(base: str, model: str, line: str) -> None:
    async def run() -> list:
        async with loopback.Loopback([stream(wire("gemini-text"))]) as server:
            provider = GeminiProvider(parse_endpoint(server.url + base), Secret(loopback.KEY), loopback.QUICK)
            await loopback.ask(provider, Request(model, "", HELLO.messages, ()))
            await provider.close()
            return server.requests

    [received] = asyncio.run(run())
    assert received.lines[0] == line
    assert [each.lower() for each in received.lines if loopback.KEY in each] == [f"x-goog-api-key: {loopback.KEY}"]


@pytest.mark.parametrize("text", ["\ud83e\udd94", "\ud800", "\x00", "\u202e"], ids=ascii)
def test_whatever_text_is_in_a_message_the_body_stays_valid_json_in_utf8(text: str) -> None:
    messages = (
        UserMessage((TextBlock(text + "."),)),
        AssistantMessage((ThinkingBlock(text, signed("m", text)), ToolCall("c", "ls", {"path": text, text: [text]}))),
        ToolMessage((ToolResult("c", (TextBlock(text),)),)),
    )
    _, [received] = exchange("gemini", [stream(wire("gemini-text"))], (Request("m", text, messages, ()),))
    json.loads(received.body.decode("utf-8", "strict"))
