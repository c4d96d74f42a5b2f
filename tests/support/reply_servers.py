"""Model servers on loopback that answer in the wire format of each provider."""

import json
import subprocess
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.support import agent_program, forked_agent

AGENT = Path(agent_program.AGENT)


Events = list[dict[str, Any]]


# The reaction of a server to one request: a refusal (status, headers, body), or pieces of a stream that just ends.
Refusal = tuple[int, dict[str, str], dict[str, Any]]


Answer = Refusal | list[str]


class Server(ThreadingHTTPServer):
    """Answers each request with the next of `answers`; the last one again and again."""

    daemon_threads = True

    def __init__(self, answers: list[Answer]) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.answers = answers
        self.bodies: list[dict[str, Any]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Handler(BaseHTTPRequestHandler):
    server: Server
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        self.server.bodies.append(json.loads(self.rfile.read(int(self.headers["content-length"]))))
        number = len(self.server.bodies)
        answer = self.server.answers[min(number, len(self.server.answers)) - 1]
        self.close_connection = True
        if isinstance(answer, tuple):
            status, headers, body = answer
            data = json.dumps(body).encode()
            self.send_response(status)
            for name, value in {
                **headers,
                "content-type": "application/json",
                "content-length": str(len(data)),
            }.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(data)
            return
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        for piece in answer:
            data = piece.encode()
            self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
        if answer and answer[-1] == END:
            self.wfile.write(b"0\r\n\r\n")  # else the connection just breaks

    def log_message(self, format: str, *args: object) -> None:
        """Nothing: the test looks at what arrived."""


END = ": end\n\n"


@pytest.fixture
def serve() -> Iterator[Callable[..., Server]]:
    open_: list[tuple[Server, threading.Thread]] = []

    def make(*answers: Answer) -> Server:
        server = Server(list(answers))
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        open_.append((server, thread))
        return server

    yield make
    for server, thread in open_:
        server.shutdown()
        thread.join()
        server.server_close()


def _event(kind: str, **fields: object) -> str:
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **fields})}\n\n"


def began(tokens: int = 50) -> list[str]:
    return [_event("message_start", message={"usage": {"input_tokens": tokens, "output_tokens": 1}})]


def text(index: int, *pieces: str, whole: bool = True) -> list[str]:
    stop = [_event("content_block_stop", index=index)] if whole else []
    start = _event("content_block_start", index=index, content_block={"type": "text", "text": ""})
    deltas = [
        _event("content_block_delta", index=index, delta={"type": "text_delta", "text": piece}) for piece in pieces
    ]
    return [start, *deltas, *stop]


def ended(reason: str) -> list[str]:
    delta = _event("message_delta", delta={"stop_reason": reason}, usage={"output_tokens": 20})
    return [delta, _event("message_stop"), END]


DONE: Answer = [*began(), *text(0, "done"), *ended("end_turn")]


def agent(tmp_path: Path, url: str, *words: str, **more: str) -> tuple[int, Events]:
    work = tmp_path / "work"
    work.mkdir(exist_ok=True)
    (work / "makefile").write_text("all:\n")
    done = forked_agent.run(
        [
            AGENT,
            "run",
            "--json",
            "--mode",
            "trust-project",
            *(() if "--model" in words else ("--model", "anthropic:claude-opus-4-5")),
            *words,
            "look",
        ],
        cwd=work,
        env={
            "PATH": "/usr/bin:/bin",
            "HOME": str(tmp_path / "home"),
            "RINGFENCE_STATE_DIR": str(tmp_path / "state"),
            "ANTHROPIC_API_KEY": "sk-ant-of-nobody-0123456789abcdef",
            "ANTHROPIC_BASE_URL": url,
            **more,
        },
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.stderr == "", done.stderr
    return done.returncode, [json.loads(line) for line in done.stdout.splitlines()]


def of(events: Events, kind: str) -> Events:
    return [event for event in events if event["type"] == kind]
