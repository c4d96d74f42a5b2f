"""A model server on loopback that answers with scripted tool calls, to try the hooks of an installed agent.

It speaks the wire formats of Anthropic Messages, OpenAI Responses and Gemini, so that Claude Code, Codex and Gemini
CLI can run without a real model. The number of tool results in a request selects the next scripted call.
"""

import json
import threading
from collections.abc import Callable, Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType

from policy.model.frozen import dataclass

_LONGEST = 64 << 20  # bytes of one request
_FINAL = "finished"  # the text of the answer after the last call


@dataclass(frozen=True, slots=True)
class ScriptedCall:
    """One tool call that the model makes: the name of the tool, and its arguments."""

    tool: str
    arguments: Mapping[str, object]


NextCall = Callable[[Sequence[str]], ScriptedCall | None]  # returns the call after these tool results


class ScriptedModel:
    """A running server.

    `address` is its URL without a path, `results` are the tool results that agents sent back, and `offered` the names
    of all tools that they offered.
    """

    def __init__(self, calls: "Sequence[ScriptedCall | NextCall]") -> None:
        self.results: list[str] = []
        self.requests = 0
        self.offered: set[str] = set()
        self._calls = tuple(calls)
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> "ScriptedModel":
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def next_call(self, results: Sequence[str], tools: Sequence[str]) -> ScriptedCall | None:
        """Return the call after these tool results, or None: then the answer is text. A request that offers another
        set of tools, such as one for a title, gets text.
        """
        self.requests += 1
        self.offered.update(tools)
        if len(results) > len(self.results):
            self.results = list(results)
        if len(results) >= len(self._calls):
            return None
        step = self._calls[len(results)]
        call = step if isinstance(step, ScriptedCall) else step(results)
        return call if call is not None and call.tool in tools else None


def _handler(model: ScriptedModel) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        """The HTTP side of `model`."""

        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self._send("application/json", b"{}")

        do_HEAD = do_GET

        def do_POST(self) -> None:
            size = min(int(self.headers.get("Content-Length") or 0), _LONGEST)
            data = self.rfile.read(size)
            try:
                found = json.loads(data)
            except ValueError:
                found = {}
            request = found if isinstance(found, dict) else {}
            path = self.path.partition("?")[0]
            if path.endswith("/messages"):
                self._send(*_anthropic(model, request))
            elif path.endswith("/responses"):
                self._send(*_responses(model, request))
            elif "generateContent" in path or "GenerateContent" in path:
                self._send(*_gemini(model, request, stream="stream" in path))
            else:
                self._send("application/json", b'{"input_tokens": 1, "totalTokens": 1}')

        def _send(self, kind: str, data: bytes) -> None:
            self.send_response(200)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(data)

        def log_message(self, format: str, *args: object) -> None:
            """Print nothing."""

    return Handler


def _items(value: object) -> list[dict[str, object]]:
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def _events(events: Sequence[Mapping[str, object]], *, named: bool) -> bytes:
    lines = []
    for event in events:
        if named:
            lines.append(f"event: {event['type']}\n")
        lines.append(f"data: {json.dumps(event)}\n\n")
    return "".join(lines).encode()


def _anthropic(model: ScriptedModel, request: dict[str, object]) -> tuple[str, bytes]:
    blocks = [block for message in _items(request.get("messages")) for block in _items(message.get("content"))]
    results = [json.dumps(block.get("content")) for block in blocks if block.get("type") == "tool_result"]
    call = model.next_call(results, [str(tool.get("name")) for tool in _items(request.get("tools"))])
    content: dict[str, object] = {"type": "text", "text": _FINAL}
    if call is not None:
        name = f"toolu_guard{len(results):04}"
        content = {"type": "tool_use", "id": name, "name": call.tool, "input": dict(call.arguments)}
    usage = {"input_tokens": 1, "output_tokens": 1, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0}
    reason = "tool_use" if call else "end_turn"
    whole = {
        "id": "msg_guard", "type": "message", "role": "assistant", "model": request.get("model"), "content": [content],
        "stop_reason": reason, "stop_sequence": None, "usage": usage,
    }  # fmt: skip
    if not request.get("stream"):
        return "application/json", json.dumps(whole).encode()
    if call is not None:
        delta: dict[str, object] = {"type": "input_json_delta", "partial_json": json.dumps(dict(call.arguments))}
        start: dict[str, object] = {**content, "input": {}}
    else:
        delta, start = {"type": "text_delta", "text": _FINAL}, {"type": "text", "text": ""}
    return "text/event-stream", _events(
        [
            {"type": "message_start", "message": {**whole, "content": [], "stop_reason": None}},
            {"type": "content_block_start", "index": 0, "content_block": start},
            {"type": "content_block_delta", "index": 0, "delta": delta},
            {"type": "content_block_stop", "index": 0},
            {"type": "message_delta", "delta": {"stop_reason": reason, "stop_sequence": None}, "usage": usage},
            {"type": "message_stop"},
        ],
        named=True,
    )


def _responses(model: ScriptedModel, request: dict[str, object]) -> tuple[str, bytes]:
    outputs = ("function_call_output", "custom_tool_call_output")
    results = [json.dumps(each.get("output")) for each in _items(request.get("input")) if each.get("type") in outputs]
    tools = [str(tool.get("name")) for tool in _items(request.get("tools"))]
    # The tools of a server are in a namespace, such as `mcp__SERVER`.
    spaces = {
        f"{space['name']}__{tool.get('name')}": (space["name"], tool.get("name"))
        for space in _items(request.get("tools"))
        if space.get("type") == "namespace"
        for tool in _items(space.get("tools"))
    }
    custom = [str(tool.get("name")) for tool in _items(request.get("tools")) if tool.get("type") == "custom"]
    call = model.next_call(results, [*tools, *spaces])
    item: dict[str, object] = {
        "type": "message", "id": "msg_guard", "role": "assistant", "status": "completed",
        "content": [{"type": "output_text", "text": _FINAL, "annotations": []}],
    }  # fmt: skip
    if call is not None:
        number = f"call_guard{len(results):04}"
        common: dict[str, object] = {"id": f"fc_{number}", "call_id": number, "name": call.tool, "status": "completed"}
        if call.tool in custom:
            item = {"type": "custom_tool_call", **common, "input": str(call.arguments.get("input", ""))}
        else:
            if call.tool in spaces:
                common["namespace"], common["name"] = spaces[call.tool]
            item = {"type": "function_call", **common, "arguments": json.dumps(dict(call.arguments))}
    usage = {
        "input_tokens": 1, "output_tokens": 1, "total_tokens": 2,
        "input_tokens_details": {"cached_tokens": 0}, "output_tokens_details": {"reasoning_tokens": 0},
    }  # fmt: skip
    whole = {"id": "resp_guard", "object": "response", "status": "completed", "output": [item], "usage": usage}
    return "text/event-stream", _events(
        [
            {"type": "response.created", "response": {**whole, "status": "in_progress", "output": []}},
            {"type": "response.output_item.added", "output_index": 0, "item": item},
            {"type": "response.output_item.done", "output_index": 0, "item": item},
            {"type": "response.completed", "response": whole},
        ],
        named=True,
    )


def _gemini(model: ScriptedModel, request: dict[str, object], *, stream: bool) -> tuple[str, bytes]:
    parts = [part for content in _items(request.get("contents")) for part in _items(content.get("parts"))]
    results = [json.dumps(part["functionResponse"]) for part in parts if "functionResponse" in part]
    declared = [each for tool in _items(request.get("tools")) for each in _items(tool.get("functionDeclarations"))]
    call = model.next_call(results, [str(each.get("name")) for each in declared])
    part: dict[str, object] = {"text": _FINAL}
    if call is not None:
        name = f"guard{len(results):04}"
        part = {"functionCall": {"id": name, "name": call.tool, "args": dict(call.arguments)}}
    answer: dict[str, object] = {
        "candidates": [{"content": {"role": "model", "parts": [part]}, "finishReason": "STOP", "index": 0}],
        "usageMetadata": {"promptTokenCount": 1, "candidatesTokenCount": 1, "totalTokenCount": 2},
        "modelVersion": "guard",
    }
    if not stream:
        return "application/json", json.dumps(answer).encode()
    return "text/event-stream", _events([answer], named=False)
