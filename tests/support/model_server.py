"""A model server on loopback with the API of OpenAI: real HTTP, prepared answers, and a list of all received
requests.
"""

import contextlib
import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

Delta = dict[str, object]
Counts = dict[str, object]


class ModelServer(ThreadingHTTPServer):
    """`answer` makes the reply to a request from how many there were, this one among them, its headers and its body;
    a text instead is a refusal (400) with these words. `usage` follows every reply. `models` are those that it lists.
    `asked` has the headers of each request for that list."""

    daemon_threads = True

    def __init__(
        self,
        answer: Callable[[int, str, bytes], Delta | str],
        usage: Counts | None = None,
        models: tuple[str, ...] = (),
        port: int = 0,
    ) -> None:
        super().__init__(("127.0.0.1", port), _Answers)
        self.models = models
        self.asked: list[str] = []
        self.answer = answer
        self.usage = usage
        self.requests: list[tuple[str, bytes]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/v1"


class _Answers(BaseHTTPRequestHandler):
    server: ModelServer

    def do_GET(self) -> None:
        self.server.asked.append(f"{self.path}\n{self.headers}")
        body = json.dumps({"object": "list", "data": [{"id": name} for name in self.server.models]}).encode()
        self.send_response(200 if self.path == "/v1/models" else 404)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self) -> None:
        headers, body = str(self.headers), self.rfile.read(int(self.headers["content-length"]))
        self.server.requests.append((headers, body))
        delta = self.server.answer(len(self.server.requests), headers, body)
        if isinstance(delta, str):
            self.send_response(400)
            self.end_headers()
            self.wfile.write(json.dumps({"error": {"message": delta}}).encode())
            return
        reason = "tool_calls" if "tool_calls" in delta else "stop"
        events: list[dict[str, object]] = [{"choices": [{"index": 0, "delta": delta, "finish_reason": reason}]}]
        if self.server.usage is not None:
            events.append({"choices": [], "usage": self.server.usage})
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.end_headers()
        for data in (*map(json.dumps, events), "[DONE]"):
            self.wfile.write(f"data: {data}\n\n".encode())

    def log_message(self, format: str, *args: object) -> None:
        """Nothing: the test looks at what arrived."""


def calling(command: str, id: str = "c1") -> Delta:
    """The reply that asks for one command."""
    function = {"name": "bash", "arguments": json.dumps({"command": command})}
    return {"tool_calls": [{"index": 0, "id": id, "function": function}]}


@contextlib.contextmanager
def serving(
    answer: Callable[[int, str, bytes], Delta | str],
    usage: Counts | None = None,
    models: tuple[str, ...] = (),
    port: int = 0,
) -> Iterator[ModelServer]:
    """The server, running until the block ends."""
    with ModelServer(answer, usage, models, port) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
