"""Tests of requests to model servers over loopback HTTP, checked by the SDKs and published types of the vendors."""

import asyncio
import json

import pytest
from pydantic import ValidationError

from runner.messages import (
    AssistantMessage,
    ImageBlock,
    Message,
    ProviderError,
    Request,
    TextBlock,
    Thinking,
    ThinkingBlock,
    ToolCall,
    ToolMessage,
    ToolResult,
    ToolSpec,
    UserMessage,
)
from runner.providers import anthropic as our_anthropic
from runner.providers import openai as our_openai
from runner.providers.anthropic import AnthropicProvider
from runner.providers.endpoint import parse_endpoint
from runner.secrets.secret import Secret
from tests.wire import loopback, vendors

HELLO, exchange, reply_of = loopback.HELLO, loopback.exchange, loopback.reply_of


# ---- what is sent ---------------------------------------------------------------------------------------------------

PNG = ImageBlock("image/png", "iVBORw0KGgo=")
LS = ToolSpec("ls", "List a folder.", {"type": "object", "properties": {"path": {"type": "string"}}, "required": []})


def _tool_result(id_: str, *content: TextBlock | ImageBlock, is_error: bool = False) -> ToolResult:
    return ToolResult(id_, content, is_error)


FULL: tuple[Message, ...] = (
    UserMessage((TextBlock("what is in this picture?"), PNG, TextBlock(" \n"))),
    AssistantMessage((ThinkingBlock("hm", "c2ln"), ThinkingBlock("", redacted="cmVk"), TextBlock("A hedgehog 🦔."))),
    UserMessage((TextBlock("list the folders"),)),
    AssistantMessage(
        (
            ThinkingBlock("two of them", "openai:reasoning_content"),
            TextBlock(""),
            ToolCall("call_1", "ls", {"path": "src"}),
            ToolCall("call_2", "ls", None, '{"path": "te'),
            ToolCall("call_3", "ls", {}),
        )
    ),
    ToolMessage(
        (
            _tool_result("call_1", TextBlock("a.py"), PNG, TextBlock("b.py")),
            _tool_result("call_2", TextBlock("the arguments are not JSON"), PNG, is_error=True),
            _tool_result("call_3"),
        )
    ),
)
BODIES = [
    (HELLO, "the smallest"),
    (Request("m", "Be brief.", FULL, (LS,)), "everything at once"),
    (Request("m", "Be brief.", FULL[:3], (LS,), max_tokens=100), "up to a prompt"),
    (Request("m", " ", FULL[:1], ()), "a blank system text"),
]


@pytest.mark.parametrize("name", ["anthropic", "openai"])
@pytest.mark.parametrize(("request_", "why"), BODIES, ids=[why for _, why in BODIES])
def test_what_we_send_is_what_the_vendor_publishes(name: str, request_: Request, why: str) -> None:
    _, _, ours, theirs = vendors.both(name, loopback.wire(f"{name}-text"), request_)
    assert ours == theirs, "the vendor's SDK, given the same, sends the same"
    for message in ours["messages"]:
        message.pop("reasoning_content", None)  # an extension of compatible servers
    vendors.check_body(name, ours)


@pytest.mark.parametrize("name", ["anthropic", "openai"])
def test_the_check_of_bodies_finds_what_is_wrong(name: str) -> None:
    module = our_anthropic if name == "anthropic" else our_openai
    request = Request("m", "Be brief.", FULL[:3], (LS,))
    body = module.request_body(request) if name == "anthropic" else module.request_body(request, own_server=True)
    vendors.check_body(name, body)
    user = next(message for message in body["messages"] if message["role"] == "user")
    for wrong in ({"surprise": 1}, {"role": "nobody"}, {"content": [{"type": "txt"}]}, {"content": 5}):
        bad = {**body, "messages": [{**user, **wrong}]}
        with pytest.raises(ValidationError):
            vendors.check_body(name, bad)


def test_anthropic_body() -> None:
    body = our_anthropic.request_body(Request("m", "Be brief.", FULL, (LS,)))
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}}
    assert body == {
        "model": "m",
        "max_tokens": 16_384,
        "stream": True,
        "system": [{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}],
        "tools": [
            {
                "name": "ls",
                "description": "List a folder.",
                "input_schema": LS.schema,
                "cache_control": {"type": "ephemeral"},
            }
        ],
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "what is in this picture?"}, image]},
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "hm", "signature": "c2ln"},
                    {"type": "redacted_thinking", "data": "cmVk"},
                    {"type": "text", "text": "A hedgehog 🦔."},
                ],
            },
            {
                "role": "user",
                "content": [{"type": "text", "text": "list the folders", "cache_control": {"type": "ephemeral"}}],
            },
            {
                "role": "assistant",
                "content": [
                    {"type": "tool_use", "id": "call_1", "name": "ls", "input": {"path": "src"}},
                    {"type": "tool_use", "id": "call_2", "name": "ls", "input": {}},
                    {"type": "tool_use", "id": "call_3", "name": "ls", "input": {}},
                ],
            },
            {
                "role": "user",
                "content": [
                    {
                        "type": "tool_result",
                        "tool_use_id": "call_1",
                        "content": [{"type": "text", "text": "a.py"}, image, {"type": "text", "text": "b.py"}],
                    },
                    {
                        "type": "tool_result",
                        "tool_use_id": "call_2",
                        "content": [{"type": "text", "text": "the arguments are not JSON"}],
                        "is_error": True,
                    },
                    {"type": "tool_result", "tool_use_id": "call_3", "content": []},
                    {**image, "cache_control": {"type": "ephemeral"}},
                ],
            },
        ],
    }


def _marked(body: dict) -> list[str]:
    """Return the places in the body that carry a mark of the prompt cache."""
    places = [
        f"{key} {place}"
        for key in ("tools", "system")
        for place, each in enumerate(body.get(key, []))
        if "cache_control" in each
    ]
    for place, message in enumerate(body["messages"]):
        places += [
            f"{message['role']} {place}.{nth}" for nth, each in enumerate(message["content"]) if "cache_control" in each
        ]
    return places


def test_each_request_reads_what_the_one_before_wrote_to_the_cache() -> None:
    """The marks of one request stand again in the next (all but its second last turn), and there are four at most."""
    more = (*FULL, AssistantMessage((TextBlock("two files"),)), UserMessage((TextBlock("go on"), TextBlock("now"))))
    tools = (LS, ToolSpec("cat", "", {}))
    marks = [_marked(our_anthropic.request_body(Request("m", "s", more[:end], tools))) for end in (1, 3, 5, 7)]
    assert marks == [
        ["tools 1", "system 0", "user 0.1"],
        ["tools 1", "system 0", "user 0.1", "user 2.0"],
        ["tools 1", "system 0", "user 2.0", "user 4.3"],
        ["tools 1", "system 0", "user 4.3", "user 6.1"],
    ]
    plain = our_anthropic.request_body(Request("m", "s", more, tools))
    again = our_anthropic.request_body(Request("m", "s", more, tools))
    assert plain == again, "marking changes nothing of ours"


THINKING = [
    # model, level, max_tokens, what is sent for it
    ("claude-opus-5-5", Thinking.OFF, 16_384, {"thinking": {"type": "adaptive", "display": "summarized"}}),
    ("claude-opus-4-8", Thinking.OFF, 16_384, {}),
    ("claude-haiku-4-5-20251001", Thinking.OFF, 16_384, {}),
    ("some-model", Thinking.OFF, 16_384, {}),
    ("claude-opus-4-8", Thinking.LOW, 16_384, {
        "thinking": {"type": "adaptive", "display": "summarized"}, "output_config": {"effort": "low"}}),
    ("claude-sonnet-5-5", Thinking.MAX, 16_384, {
        "thinking": {"type": "adaptive", "display": "summarized"}, "output_config": {"effort": "max"}}),
    ("claude-next-9", Thinking.MAX, 16_384, {
        "thinking": {"type": "adaptive", "display": "summarized"}, "output_config": {"effort": "high"}}),
    ("claude-haiku-4-5", Thinking.LOW, 16_384, {"thinking": {"type": "enabled", "budget_tokens": 2048}}),
    ("claude-haiku-4-5", Thinking.MAX, 16_384, {"thinking": {"type": "enabled", "budget_tokens": 12_288}}),
    ("claude-haiku-4-5", Thinking.LOW, 4096, {"thinking": {"type": "enabled", "budget_tokens": 1024}}),
    ("claude-haiku-4-5", Thinking.MAX, 1500, {}),  # no room for an answer beside the least budget
]  # fmt: skip


@pytest.mark.parametrize(("model", "level", "most", "sent"), THINKING)
def test_how_claude_is_told_to_think(model: str, level: Thinking, most: int, sent: dict) -> None:
    body = our_anthropic.request_body(Request(model, "", HELLO.messages, (), most, level))
    assert {key: body[key] for key in ("thinking", "output_config") if key in body} == sent
    vendors.check_body("anthropic", body)
    if budget := sent.get("thinking", {}).get("budget_tokens"):
        assert 1024 <= budget < most


CALLED = ToolCall("a", "bash", {"command": "ls"})
RESULT = ToolMessage((ToolResult("a", (TextBlock("x"),)),))


@pytest.mark.parametrize(
    ("messages", "thinks", "why"),
    [
        ([AssistantMessage((ThinkingBlock("t", "signed"), CALLED)), RESULT], True, "calls that were thought about"),
        ([AssistantMessage((TextBlock("so"), CALLED)), RESULT], False, "calls of an answer that broke off"),
        (
            [AssistantMessage((CALLED,)), RESULT, UserMessage((TextBlock("also"),))],
            False,
            "and something said meanwhile",
        ),
        ([AssistantMessage((TextBlock("so"),)), UserMessage((TextBlock("go on"),))], True, "no calls"),
        ([AssistantMessage((CALLED,)), RESULT, AssistantMessage((TextBlock("so"),))], True, "calls that are done with"),
        ([AssistantMessage((ThinkingBlock("t", "openai:x"), CALLED)), RESULT], False, "another provider's thought"),
    ],
)
def test_calls_without_a_thought_are_sent_without_asking_for_thoughts(messages: list, thinks: bool, why: str) -> None:
    """The server refuses to think behind calls that do not begin with a thought."""
    history = (UserMessage((TextBlock("look"),)), *messages)
    body = our_anthropic.request_body(Request("claude-haiku-4-5", "", history, (), 16_384, Thinking.LOW))
    assert ("thinking" in body) is thinks, why
    vendors.check_body("anthropic", body)


@pytest.mark.parametrize(
    ("model", "level", "sent"),
    [
        ("gpt-6.2-sol", Thinking.OFF, None),
        ("gpt-6.2-sol", Thinking.MEDIUM, "medium"),
        ("gpt-6.2-sol", Thinking.MAX, "max"),
        ("gpt-5.5", Thinking.MAX, "xhigh"),
        ("qwen3:8b", Thinking.MAX, "high"),
    ],
)
def test_how_chat_completions_are_told_to_think(model: str, level: Thinking, sent: str | None) -> None:
    body = our_openai.request_body(Request(model, "", HELLO.messages, (), thinking=level), own_server=True)
    assert body.get("reasoning_effort") == sent
    vendors.check_body("openai", body)


BOUND = (
    b'{"type":"error","error":{"type":"invalid_request_error","message":"messages.1.content.0: Invalid `signature` in '
    b'`thinking` block. The block is bound to a different conversation. Remove the block, or set `x` to \\"y\\"."}}'
)


def test_a_conversation_whose_beginning_changed_is_sent_again_without_its_bound_thoughts() -> None:
    refused = loopback.whole("400 Bad Request", BOUND)
    answer = loopback.stream(loopback.wire("anthropic-text"))
    request = Request("claude-opus-5-5", "", FULL[:3], ())
    answers, received = exchange("anthropic", [refused, answer, answer], (request, request))
    assert [reply_of(events).message.content for events in answers] == [(TextBlock("All tests pass."),)] * 2
    binding = [each.json["thinking"].get("block_binding") for each in received]
    drop = {"prefix_mismatch_behavior": "drop_block"}
    assert binding == [None, drop, drop], "once refused, every later request asks for it"
    betas = [[line for line in each.lines if line.lower().startswith("anthropic-beta")] for each in received]
    assert betas == [[], *[["anthropic-beta: thinking-binding-controls-2026-08-01"]] * 2]


@pytest.mark.parametrize(
    ("model", "level", "tools", "beta"),
    [
        ("claude-sonnet-4-5", Thinking.LOW, (LS,), our_anthropic.INTERLEAVED),
        ("claude-sonnet-4-5", Thinking.LOW, (), None),
        ("claude-sonnet-4-5", Thinking.OFF, (LS,), None),
        ("claude-opus-5-5", Thinking.LOW, (LS,), None),
    ],
)
def test_older_models_are_asked_to_think_between_calls_too(
    model: str, level: Thinking, tools: tuple[ToolSpec, ...], beta: str | None
) -> None:
    body = our_anthropic.request_body(Request(model, "", HELLO.messages, tools, thinking=level))
    assert our_anthropic.betas(body).get("anthropic-beta") == beta


def test_a_refusal_that_stays_is_said() -> None:
    refused = loopback.whole("400 Bad Request", BOUND)
    with pytest.raises(ProviderError, match="bound to a different conversation"):
        exchange("anthropic", [refused, refused])


def test_thoughts_of_another_provider_are_not_sent_to_anthropic() -> None:
    thoughts = (
        ThinkingBlock("", "gemini:c2ln"),
        ThinkingBlock("", "responses:{}", redacted="gAAA"),
        ThinkingBlock("aloud", "openai:reasoning"),
        ThinkingBlock("unsigned"),
    )
    body = our_anthropic.request_body(
        Request("m", "", (*HELLO.messages, AssistantMessage((*thoughts, TextBlock("hi")))), ())
    )
    assert body["messages"][1]["content"] == [{"type": "text", "text": "hi"}]


def test_openai_body() -> None:
    body = our_openai.request_body(Request("m", "Be brief.", FULL, (LS,)), own_server=True)
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}

    def call(id_: str, arguments: str) -> dict:
        return {"id": id_, "type": "function", "function": {"name": "ls", "arguments": arguments}}

    assert body == {
        "model": "m",
        "max_completion_tokens": 16_384,
        "stream": True,
        "stream_options": {"include_usage": True},
        "tools": [
            {"type": "function", "function": {"name": "ls", "description": "List a folder.", "parameters": LS.schema}}
        ],
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": [{"type": "text", "text": "what is in this picture?"}, image]},
            {"role": "assistant", "content": "A hedgehog 🦔."},
            {"role": "user", "content": "list the folders"},
            {
                "role": "assistant",
                "content": None,
                "reasoning_content": "two of them",
                "tool_calls": [call("call_1", '{"path": "src"}'), call("call_2", "{}"), call("call_3", "{}")],
            },
            {"role": "tool", "tool_call_id": "call_1", "content": "a.py\n[image 1] follows in the next message\nb.py"},
            {
                "role": "tool",
                "tool_call_id": "call_2",
                "content": "[this tool call failed]\nthe arguments are not JSON\n[image 2] follows in the next message",
            },
            {"role": "tool", "tool_call_id": "call_3", "content": "(no output)"},
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "[image 1]"},
                    image,
                    {"type": "text", "text": "[image 2]"},
                    image,
                ],
            },
        ],
    }


def test_only_openais_own_servers_know_the_new_name_of_the_token_limit() -> None:
    compatible = our_openai.request_body(HELLO, own_server=False)
    assert compatible["max_tokens"] == 16_384
    assert "max_completion_tokens" not in compatible


@pytest.mark.parametrize(
    ("name", "path", "auth", "more"),
    [
        ("anthropic", "POST /v1/messages HTTP/1.1", f"x-api-key: {loopback.KEY}", ["anthropic-version: 2023-06-01"]),
        ("openai", "POST /v1/chat/completions HTTP/1.1", f"authorization: Bearer {loopback.KEY}", []),
    ],
)
def test_the_request_line_and_headers(name: str, path: str, auth: str, more: list[str]) -> None:
    _, [received] = exchange(name, [loopback.stream(loopback.wire(f"{name}-text"))])
    headers = [line[: line.find(":")].lower() + line[line.find(":") :] for line in received.lines[1:] if line]
    assert received.lines[0] == path
    for line in [auth, "content-type: application/json", "accept: text/event-stream", "user-agent: ringfence", *more]:
        assert line in headers
    assert not [line for line in headers if line.startswith("cookie")]


def test_a_base_url_with_its_version_is_not_given_another() -> None:
    async def run() -> str:
        async with loopback.Loopback([loopback.stream(loopback.wire("anthropic-text"))]) as server:
            await loopback.ask(
                AnthropicProvider(parse_endpoint(f"{server.url}/v1/"), Secret(loopback.KEY), loopback.QUICK)
            )
            return server.requests[0].lines[0]

    assert asyncio.run(run()) == "POST /v1/messages HTTP/1.1"


# ---- the round trip -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["anthropic", "openai"])
def test_what_a_model_said_goes_back_as_it_came(name: str) -> None:
    body = loopback.wire(f"{name}-tools")
    reply = reply_of(exchange(name, [loopback.stream(body)])[0][0])
    request = Request("m", "", (*HELLO.messages, reply.message), ())
    module = our_anthropic if name == "anthropic" else our_openai
    wire = module.request_body(request) if name == "anthropic" else module.request_body(request, own_server=True)
    said = json.dumps(wire["messages"][1], ensure_ascii=False)
    if name == "anthropic":
        for opaque in ("EqQBCgIYAhIM+made/up==", "EmwKAhgBEgy3va3pzix/made+up"):
            assert opaque in said
        assert [block["type"] for block in wire["messages"][1]["content"]] == [
            "thinking", "redacted_thinking", "text", "tool_use", "tool_use",
        ]  # fmt: skip
    assert said.index("toolu_01Bash" if name == "anthropic" else "call_Bash") < said.index(
        "02Ls" if name == "anthropic" else "call_Ls"
    )


HOSTILE_TEXT = ["\ud83e\udd94", "\ud800", "a\udfffb", "\x00", "\u202e", "x" * 100_000]


@pytest.mark.parametrize("text", HOSTILE_TEXT, ids=[ascii(text[:8]) for text in HOSTILE_TEXT])
@pytest.mark.parametrize("name", ["anthropic", "openai"])
def test_whatever_text_is_in_a_message_the_body_stays_valid_json_in_utf8(name: str, text: str) -> None:
    call = ToolCall("c", "ls", {"path": text, text: [text]})
    messages = (
        UserMessage((TextBlock(text + "."),)),
        AssistantMessage((call,)),
        ToolMessage((_tool_result("c", TextBlock(text)),)),
    )
    _, [received] = exchange(
        name, [loopback.stream(loopback.wire(f"{name}-text"))], (Request("m", text, messages, ()),)
    )
    json.loads(received.body.decode("utf-8", "strict"))
