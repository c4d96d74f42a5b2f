"""What is sent to a model's server, over real loopback HTTP, judged by the vendors' own SDKs and published types."""

import asyncio
import importlib
import json
import sys
from pathlib import Path

import pytest
from pydantic import ValidationError

from runner.messages import (
    AssistantMessage,
    ImageBlock,
    Message,
    Request,
    TextBlock,
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
from runner.secrets import Secret

sys.path.append(str(Path(__file__).parent / "wire"))
loopback = importlib.import_module("loopback")
vendors = importlib.import_module("vendors")
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
        "tools": [{"name": "ls", "description": "List a folder.", "input_schema": LS.schema}],
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
            {"role": "user", "content": [{"type": "text", "text": "list the folders"}]},
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
