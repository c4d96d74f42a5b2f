"""Our messages as the JSON of a request to the Gemini API.

A model's thoughts stay with their server but for a signature, which belongs to one part of what it said: a text, or the
first of several calls. It lies in a ThinkingBlock without text before that part (`MARK`, the model, the signature), and
goes back with it; newer models refuse a call without one. A call that another model made has none that this one could
read, and takes the word that Google publishes for that.
What the protocol lacks is done as in `openai`: images of results follow, numbered, in a message of the user's.
SOURCE: ai.google.dev/api/generate-content, /gemini-api/docs/thought-signatures, /thinking, /function-calling.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import assert_never

from runner.messages import (
    AssistantMessage,
    ImageBlock,
    Message,
    Request,
    TextBlock,
    Thinking,
    ThinkingBlock,
    ToolCall,
    ToolMessage,
    UserMessage,
)
from runner.providers.catalog import ThinkingKind, facts_of

MARK = "gemini:"
UNSIGNED = "skip_thought_signature_validator"
BUDGETS = (512, 24_576)  # tokens of thinking, least and most, that every model takes which counts them
SHARES = {Thinking.LOW: 1 / 8, Thinking.MEDIUM: 1 / 4, Thinking.HIGH: 1 / 2, Thinking.MAX: 3 / 4}  # of `max_tokens`

Json = dict[str, object]


def request_body(request: Request) -> Json:
    """Return the JSON body for `request`. The model is in the URL."""
    facts = facts_of(f"gemini:{request.model}")
    level = facts.thinking is ThinkingKind.LEVEL
    names: dict[str, str] = {}
    contents = [
        content for message in request.messages for content in _contents(message, request.model, names, signs=level)
    ]
    config: Json = {"maxOutputTokens": request.max_tokens}
    if request.thinking is not Thinking.OFF and level:
        config["thinkingConfig"] = {"includeThoughts": True, "thinkingLevel": facts.effort(request.thinking).upper()}
    elif request.thinking is not Thinking.OFF and facts.thinking is ThinkingKind.BUDGET:
        budget = min(max(int(request.max_tokens * SHARES[request.thinking]), BUDGETS[0]), BUDGETS[1])
        config["thinkingConfig"] = {"includeThoughts": True, "thinkingBudget": budget}
    body: Json = {"contents": contents, "generationConfig": config}
    if request.system.strip():
        body["systemInstruction"] = {"parts": [{"text": request.system}]}
    if request.tools:
        declared = [
            {"name": tool.name, "description": tool.description, "parametersJsonSchema": tool.schema}
            for tool in request.tools
        ]
        body["tools"] = [{"functionDeclarations": declared}]
    return body


def signed(model: str, signature: str) -> str:
    """Return the signature of a block that sends `signature` back to `model`."""
    return f"{MARK}{model}:{signature}"


def _contents(message: Message, model: str, names: dict[str, str], *, signs: bool) -> Iterator[Json]:
    """Yield the contents for one message.

    `names` contains the tool of each call so far, which the result of the call names too. With `signs`, calls need
    signatures.
    """
    match message:
        case UserMessage():
            if parts := _parts(message.content):
                yield {"role": "user", "parts": parts}
        case AssistantMessage():
            names |= {call.id: call.name for call in message.calls}
            if parts := list(_own(message, model, signs=signs)):
                yield {"role": "model", "parts": parts}
        case ToolMessage():
            yield from _results(message, names)
        case never:
            assert_never(never)


def _parts(blocks: Sequence[TextBlock | ImageBlock]) -> list[Json]:
    return [
        {"text": block.text}
        if isinstance(block, TextBlock)
        else {"inlineData": {"mimeType": block.media_type, "data": block.data}}
        for block in blocks
        if isinstance(block, ImageBlock) or block.text.strip()
    ]


def _own(message: AssistantMessage, model: str, *, signs: bool) -> Iterator[Json]:
    signature = ""
    called = False
    for block in message.content:
        match block:
            case ThinkingBlock():
                found = _signature(block, model)
                if block.text and found:
                    yield {"text": block.text, "thought": True, "thoughtSignature": found}
                elif found:
                    signature = found
                continue
            case TextBlock():
                if not block.text.strip() and not signature:
                    continue
                part: Json = {"text": block.text}
            case ToolCall():
                # Arguments that did not parse are sent as none, as the other providers do.
                part = {"functionCall": {"id": block.id, "name": block.name, "args": block.arguments or {}}}
                if signs and not called and not signature:
                    signature = UNSIGNED
                called = True
            case never:
                assert_never(never)
        yield {**part, "thoughtSignature": signature} if signature else part
        signature = ""
    if signature:  # it came alone, after all that was said
        yield {"text": "", "thoughtSignature": signature}


def _signature(block: ThinkingBlock, model: str) -> str:
    """Return the signature of a block that came from `model` by this API; empty for another block."""
    of, _, signature = block.signature.removeprefix(MARK).rpartition(":")
    return signature if block.signature.startswith(MARK) and of == model else ""


def _results(message: ToolMessage, names: Mapping[str, str]) -> Iterator[Json]:
    parts: list[Json] = []
    images: list[TextBlock | ImageBlock] = []
    for result in message.results:
        lines = []
        for block in result.content:
            if isinstance(block, TextBlock):
                lines.append(block.text)
            else:
                label = f"[image {len(images) // 2 + 1}]"
                lines.append(f"{label} follows in the next message")
                images += [TextBlock(label), block]
        text = "\n".join(line for line in lines if line.strip()) or "(no output)"
        response: Json = {"error" if result.is_error else "output": text}
        name = names.get(result.call_id, "unknown")
        parts.append({"functionResponse": {"id": result.call_id, "name": name, "response": response}})
    if parts:
        yield {"role": "user", "parts": parts}
    if images:
        yield {"role": "user", "parts": _parts(images)}
