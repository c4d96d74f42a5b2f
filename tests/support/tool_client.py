"""A client of `agent mcp serve` that writes what a test wants, lines that no library would write included."""

import json
import queue
import subprocess
import threading
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.support.cli_harness import AGENT, CliHarness

OLD, NEW = "2025-11-25", "2026-07-28"
LONGEST = 60.0  # seconds for an answer to a question
INFO = {"name": "probe", "version": "1.0"}
FORMS: dict[str, object] = {"elicitation": {"form": {}}}
_META = "io.modelcontextprotocol/"


def workspace(base: Path) -> CliHarness:
    """Return a user with an empty home and a Git repository that contains `a.txt`."""
    made = CliHarness(base)
    made.work.mkdir(parents=True)
    (base / "home").mkdir()
    (made.work / "a.txt").write_text("one\n")
    subprocess.run(["git", "init", "-q"], env=made.environ, cwd=made.work, check=True)
    return made


class ToolClient:
    """A client over the pipes of `agent mcp serve`, of the generation of `version`.

    `forms` is False if the client shows no forms.
    """

    def __init__(self, place: CliHarness, *words: str, version: str = NEW, forms: bool = True) -> None:
        self.place = place
        self.version = version
        self.capabilities = FORMS if forms else {}
        self.process = subprocess.Popen(
            [AGENT, "mcp", "serve", *words],
            cwd=place.work,
            env=place.environ,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        self.lines: list[bytes] = []
        self.errors = b""
        self._news: queue.Queue[dict[str, Any] | None] = queue.Queue()
        self._kept: list[dict[str, Any]] = []
        self._number = 0
        self._threads = [threading.Thread(target=each, daemon=True) for each in (self._read, self._read_errors)]
        for thread in self._threads:
            thread.start()
        if version == OLD:
            hello = {"protocolVersion": OLD, "capabilities": self.capabilities, "clientInfo": INFO}
            self.result("initialize", hello)
            self.send({"jsonrpc": "2.0", "method": "notifications/initialized"})

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> int:
        """Close the input, and return the exit code of the server."""
        assert self.process.stdin is not None
        if not self.process.stdin.closed:
            self.process.stdin.close()
        code = self.process.wait()
        for thread in self._threads:
            thread.join()
        assert b"Traceback" not in self.errors, self.errors
        return code

    def write(self, line: bytes) -> None:
        """Write bytes as they are."""
        assert self.process.stdin is not None
        self.process.stdin.write(line)
        self.process.stdin.flush()

    def send(self, message: Mapping[str, object]) -> None:
        self.write(json.dumps(message).encode() + b"\n")

    def request(self, method: str, params: Mapping[str, object] | None = None, **meta: object) -> int:
        """Send a request, and return its id."""
        self._number += 1
        given = dict(params or {})
        if self.version == NEW:
            meta |= {f"{_META}protocolVersion": NEW, f"{_META}clientCapabilities": self.capabilities}
            meta |= {f"{_META}clientInfo": INFO}
        if meta:
            given["_meta"] = meta
        self.send({"jsonrpc": "2.0", "id": self._number, "method": method, "params": given})
        return self._number

    def call(self, tool: str, arguments: Mapping[str, object], **more: object) -> int:
        """Send a call of a tool, and return its id. `more` are further parameters, such as `requestState`."""
        token = {"progressToken": more.pop("token")} if "token" in more else {}
        return self.request("tools/call", {"name": tool, "arguments": arguments, **more}, **token)

    def message(self, *, id: int | None = None, method: str | None = None) -> dict[str, Any]:
        """Return the next message with this id or method; others are kept for later calls."""
        while True:
            for each in self._kept:
                if (id is not None and each.get("id") == id and "method" not in each) or (
                    method is not None and each.get("method") == method
                ):
                    self._kept.remove(each)
                    return each
            news = self._news.get()
            assert news is not None, f"the server ended: {self.errors.decode()}"
            self._kept.append(news)

    def progress(self, token: str) -> str:
        """Return the text of the next report about the call with this token; those about other calls are dropped."""
        while True:
            told: dict[str, Any] = self.message(method="notifications/progress")["params"]
            if told["progressToken"] == token:
                return str(told["message"])

    def result(self, method: str, params: Mapping[str, object] | None = None) -> dict[str, Any]:
        """Return the result of one request."""
        answer = self.message(id=self.request(method, params))
        assert "result" in answer, answer
        return dict(answer["result"])

    def called(self, tool: str, arguments: Mapping[str, object]) -> tuple[bool, str]:
        """Call a tool without a question, and return True for an error, and the text of the result."""
        return outcome(self.message(id=self.call(tool, arguments)))

    def unread(self, id: int) -> bool:
        """Return True if no answer to the request `id` has arrived."""
        while not self._news.empty():
            if (news := self._news.get()) is not None:
                self._kept.append(news)
        return all(each.get("id") != id for each in self._kept)

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line)
            self._news.put(json.loads(line))
        self._news.put(None)

    def _read_errors(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.errors += line


def outcome(answer: Mapping[str, Any]) -> tuple[bool, str]:
    """Return True for an error, and the text of the result of a call."""
    assert "result" in answer, answer
    result = answer["result"]
    assert "content" in result, result
    return bool(result.get("isError")), "\n".join(each.get("text", "") for each in result["content"])
