"""The vendors' SDKs against the same loopback server: their requests, and their reading of an answer.

The SDKs are imported where they are used: that takes a second, and every worker of pytest-xdist imports this module.
"""

import asyncio
import json
import ssl
import types
from collections.abc import Iterable, Sequence
from typing import Annotated, Any, NotRequired, Required, Union, get_args, get_origin, get_type_hints

from pydantic import ConfigDict, TypeAdapter
from typing_extensions import TypedDict, is_typeddict

from runner.messages import AssistantMessage, Reply, Request, Stop, TextBlock, ThinkingBlock, ToolCall, Usage
from runner.providers.responses import signed
from tests.wire.loopback import KEY, Loopback, ask, make, reply_of, stream

# Loading a certificate store for every client would take most of the time.
NO_TLS = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


async def _vendor_anthropic(url: str, body: dict) -> Reply:
    import anthropic

    http = anthropic.DefaultAsyncHttpxClient(verify=NO_TLS)
    async with anthropic.AsyncAnthropic(api_key=KEY, base_url=url, max_retries=0, http_client=http) as client:
        params = {key: value for key, value in body.items() if key != "stream"}
        async with client.messages.stream(**params) as events:
            message = await events.get_final_message()
    content: list = []
    for block in message.content:
        match block.type:
            case "text":
                content.append(TextBlock(block.text))
            case "thinking":
                content.append(ThinkingBlock(block.thinking, block.signature))
            case "redacted_thinking":
                content.append(ThinkingBlock("", redacted=block.data))
            case "tool_use":
                content.append(ToolCall(block.id, block.name, block.input))
    counts = message.usage
    usage = Usage(
        counts.input_tokens,
        counts.output_tokens,
        counts.cache_read_input_tokens or 0,
        counts.cache_creation_input_tokens or 0,
    )
    stop = {"tool_use": Stop.TOOLS, "end_turn": Stop.END, "max_tokens": Stop.LENGTH}[message.stop_reason]
    return Reply(AssistantMessage(tuple(content)), stop, usage)


async def _vendor_openai(url: str, body: dict) -> Reply:
    import openai

    http = openai.DefaultAsyncHttpxClient(verify=NO_TLS)
    async with openai.AsyncOpenAI(api_key=KEY, base_url=f"{url}/v1", max_retries=0, http_client=http) as client:
        params = {key: value for key, value in body.items() if key != "stream"}
        async with client.chat.completions.stream(**params) as events:
            completion = await events.get_final_completion()
    choice = completion.choices[0]
    content: list = [TextBlock(choice.message.content)] if choice.message.content else []
    for call in choice.message.tool_calls or []:
        content.append(ToolCall(call.id, call.function.name, json.loads(call.function.arguments)))
    usage = Usage()
    if completion.usage:
        details = completion.usage.prompt_tokens_details
        read = (details and details.cached_tokens) or 0
        written = (details and details.cache_write_tokens) or 0
        usage = Usage(
            completion.usage.prompt_tokens - read - written, completion.usage.completion_tokens, read, written
        )
    stop = {"tool_calls": Stop.TOOLS, "stop": Stop.END}[choice.finish_reason]
    return Reply(AssistantMessage(tuple(content)), stop, usage)


async def _vendor_responses(url: str, body: dict) -> Reply:
    import openai

    http = openai.DefaultAsyncHttpxClient(verify=NO_TLS)
    async with openai.AsyncOpenAI(api_key=KEY, base_url=f"{url}/v1", max_retries=0, http_client=http) as client:
        # The `stream` of the SDK accepts only tools that it can parse, so its plain request and the response of the
        # last event are used.
        params = {key: value for key, value in body.items() if key != "stream"}
        async for event in await client.responses.create(**params, stream=True):
            if event.type in ("response.completed", "response.incomplete"):
                response = event.response
    content: list = []
    for item in response.output:
        match item.type:
            case "reasoning":
                text = "\n\n".join(part.text for part in item.summary)
                kept = {"id": item.id, "encrypted_content": item.encrypted_content}
                content.append(ThinkingBlock(text, signed(body["model"], {"item": kept})))
            case "message":
                if item.phase:
                    content.append(ThinkingBlock("", signed(body["model"], {"phase": item.phase})))
                content.append(TextBlock(item.content[0].text))
            case "function_call":
                content.append(ToolCall(item.call_id, item.name, json.loads(item.arguments)))
    counts = response.usage
    read, written = counts.input_tokens_details.cached_tokens, counts.input_tokens_details.cache_write_tokens
    usage = Usage(counts.input_tokens - read - written, counts.output_tokens, read, written)
    calls = any(item.type == "function_call" for item in response.output)
    return Reply(AssistantMessage(tuple(content)), Stop.TOOLS if calls else Stop.END, usage)


VENDORS = {"anthropic": _vendor_anthropic, "openai": _vendor_openai, "responses": _vendor_responses}


def _published(name: str) -> Any:
    """Return the type of the parameters of a request, as the vendor's SDK has it."""
    match name:
        case "anthropic":
            from anthropic.types.message_create_params import MessageCreateParamsStreaming

            return MessageCreateParamsStreaming
        case "openai":
            from openai.types.chat.completion_create_params import CompletionCreateParamsStreaming

            return CompletionCreateParamsStreaming
        case _:
            from openai.types.responses.response_create_params import ResponseCreateParamsStreaming

            return ResponseCreateParamsStreaming


def both(name: str, body: bytes, request: Request, cuts: Sequence[int] = ()) -> tuple[Reply, Reply, dict, dict]:
    """Our Reply and the SDK's to the same bytes; the JSON that we sent, and what the SDK sent when given that."""

    async def run() -> tuple[Reply, Reply, dict, dict]:
        async with Loopback([stream(body, cuts), stream(body, cuts)]) as server:
            provider = make(name, server.url)
            ours = reply_of(await ask(provider, request))
            await provider.close()
            theirs = await VENDORS[name](server.url, server.requests[0].json)
            return ours, theirs, server.requests[0].json, server.requests[1].json

    return asyncio.run(run())


def check_body(name: str, body: dict) -> None:
    """Raises where `body` is not what the vendor's published request type says, unknown keys included."""
    TypeAdapter(_closed(_published(name))).validate_python(body, strict=True)


_closed_shapes: dict[type, Any] = {}


def _closed(shape: Any) -> Any:
    """The published type, but with no unknown keys, and lists for iterables (which pydantic does not look into)."""
    if is_typeddict(shape):
        if shape not in _closed_shapes:
            hints = get_type_hints(shape, include_extras=True)
            closed = TypedDict(shape.__name__, {key: _field(hint) for key, hint in hints.items()})
            closed.__pydantic_config__ = ConfigDict(extra="forbid", arbitrary_types_allowed=True)  # type: ignore[attr-defined]  # as pydantic reads it
            _closed_shapes[shape] = closed
        return _closed_shapes[shape]
    origin, args = get_origin(shape), get_args(shape)
    if origin is Annotated:
        return _closed(args[0])
    if origin is Union or origin is types.UnionType:
        return Union[tuple(_closed(arg) for arg in args)]  # noqa: UP007  # built, not written
    if origin in (Iterable, list) or getattr(origin, "__name__", "") == "SequenceNotStr":
        return list[_closed(args[0])]
    return shape


def _field(hint: Any) -> Any:
    if get_origin(hint) is Required:
        return Required[_closed(get_args(hint)[0])]
    return NotRequired[_closed(hint)]
