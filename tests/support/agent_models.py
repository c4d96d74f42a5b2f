"""A model server on loopback for other agents: it lets the agent call one tool, and then repeats the result.

It has the streams of the APIs of Anthropic (`/v1/messages`), OpenAI (`/v1/responses`) and Google
(`:streamGenerateContent`), as far as the agents use them.
"""

import contextlib
import json
import threading
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

Wire = dict[str, object]


class AgentModel(ThreadingHTTPServer):
    """`tool` is the name under which the agent offers the tool. `results` are the requests after the call, as text."""

    daemon_threads = True

    def __init__(self, tool: str, arguments: Mapping[str, object]) -> None:
        super().__init__(("127.0.0.1", 0), _Requests)
        self.tool, self.arguments = tool, dict(arguments)
        self.results: list[str] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Requests(BaseHTTPRequestHandler):
    server: AgentModel

    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        self._send(b'{"models": []}', "application/json")

    def do_HEAD(self) -> None:
        self._send(b"", "application/json")

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if "count_tokens" in self.path:
            self._send(b'{"input_tokens": 1}', "application/json")
            return
        given = body.get("messages") or body.get("input") or body.get("contents") or []
        last = json.dumps(given[-1:])
        answered = any(word in last for word in ('"tool_result"', '"function_call_output"', '"functionResponse"'))
        if answered:
            self.server.results.append(last)
        offered = json.dumps(body.get("tools", []))
        call = not answered and self.server.tool.rpartition("/")[2] in offered
        events = {"messages": _anthropic, "responses": _openai}.get(
            self.path.partition("?")[0].rpartition("/")[2], _google
        )
        lines = [
            (f"event: {each['type']}\n" if "type" in each else "") + f"data: {json.dumps(each)}\n\n"
            for each in events(self.server.tool, self.server.arguments, call)
        ]
        self._send("".join(lines).encode(), "text/event-stream")

    def _send(self, body: bytes, kind: str) -> None:
        self.send_response(200)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def _anthropic(tool: str, arguments: Wire, call: bool) -> list[Wire]:
    message = {"id": "m", "type": "message", "role": "assistant", "model": "x", "content": [], "stop_reason": None,
               "stop_sequence": None, "usage": {"input_tokens": 1, "output_tokens": 1}}  # fmt: skip
    block: Wire = {"type": "tool_use", "id": "t1", "name": tool, "input": {}} if call else {"type": "text", "text": ""}
    delta: Wire = (
        {"type": "input_json_delta", "partial_json": json.dumps(arguments)}
        if call
        else {"type": "text_delta", "text": "done"}
    )
    stop = {"stop_reason": "tool_use" if call else "end_turn", "stop_sequence": None}
    return [
        {"type": "message_start", "message": message},
        {"type": "content_block_start", "index": 0, "content_block": block},
        {"type": "content_block_delta", "index": 0, "delta": delta},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": stop, "usage": {"output_tokens": 1}},
        {"type": "message_stop"},
    ]


def _openai(tool: str, arguments: Wire, call: bool) -> list[Wire]:
    namespace, _, name = tool.rpartition("/")
    item: Wire = (
        {"type": "function_call", "id": "f1", "call_id": "c1", "namespace": namespace, "name": name,
         "arguments": json.dumps(arguments)}
        if call
        else {"type": "message", "role": "assistant", "id": "m1", "content": [{"type": "output_text", "text": "done"}]}
    )  # fmt: skip
    usage = {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2}
    return [
        {"type": "response.created", "response": {"id": "r1"}},
        {"type": "response.output_item.done", "output_index": 0, "item": item},
        {"type": "response.completed", "response": {"id": "r1", "usage": usage}},
    ]


def _google(tool: str, arguments: Wire, call: bool) -> list[Wire]:
    part: Wire = {"functionCall": {"name": tool, "args": arguments}} if call else {"text": "done"}
    usage = {"promptTokenCount": 1, "candidatesTokenCount": 1, "totalTokenCount": 2}
    content = {"role": "model", "parts": [part]}
    return [{"candidates": [{"content": content, "finishReason": "STOP", "index": 0}], "usageMetadata": usage}]


@contextlib.contextmanager
def agent_model(tool: str, arguments: Mapping[str, object]) -> Iterator[AgentModel]:
    """Run the server while the block runs."""
    server = AgentModel(tool, arguments)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
