"""A client of `agent acp` that writes what a test wants, messages that no library would write included."""

import json
import queue
import subprocess
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.support import forked_agent
from tests.support.cli_harness import AGENT, CliHarness
from tests.support.waiting import until as wait_until

INFO = {"name": "probe", "version": "1.0"}
# Returns the answer to a request of the agent: the fields of the answer beside its id, or None for no answer.
Answerer = Callable[[dict[str, Any]], Mapping[str, object] | None]


def place(base: Path, *turns: str) -> CliHarness:
    """Return a user with an empty home, a Git repository with `a.txt`, and a scripted model with these turns."""
    made = CliHarness(base)
    made.work.mkdir(parents=True)
    (base / "home").mkdir()
    (made.work / "a.txt").write_text("one\n")
    subprocess.run(["git", "init", "-q"], env=made.environ, cwd=made.work, check=True)
    (base / "talk.toml").write_text("\n".join(f"[[turn]]\n{turn}" for turn in (*turns, 'text = "done"')))
    return made


def bash(command: str) -> str:
    """Return a turn that runs a command."""
    return f'calls = [{{ name = "bash", arguments = {{ command = {json.dumps(command)} }} }}]'


def select(option: str) -> Answerer:
    """Return the answer that selects an option."""
    return lambda asked: {"result": {"outcome": {"outcome": "selected", "optionId": option}}}


NO = select("no")


class EditorClient:
    """A client over the pipes of `agent acp`, which is forked unless `execve` is asked for. `answer` answers the
    requests of the agent.
    """

    def __init__(
        self, harness: CliHarness, *words: str, answer: Answerer = NO, begin: bool = True, execve: bool = False
    ) -> None:
        self.place = harness
        self.answer = answer
        start = subprocess.Popen if execve else forked_agent.Process
        self.process = start(
            [AGENT, "acp", "--model", f"scripted:{harness.base / 'talk.toml'}", *words],
            cwd=harness.base,
            env=harness.environ,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        self.asked: list[dict[str, Any]] = []
        self.updates: list[dict[str, Any]] = []
        self.errors = b""
        self._news: queue.Queue[dict[str, Any] | None] = queue.Queue()
        self._kept: list[dict[str, Any]] = []
        self._number = 0
        self._lock = threading.Lock()
        self._threads = [threading.Thread(target=each, daemon=True) for each in (self._read, self._read_errors)]
        for thread in self._threads:
            thread.start()
        if begin:
            self.hello = self.result("initialize", {"protocolVersion": 1, "clientCapabilities": {}, "clientInfo": INFO})

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> int:
        """Close the input, and return the exit code of the agent."""
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
        with self._lock:
            self.process.stdin.write(line)
            self.process.stdin.flush()

    def send(self, message: Mapping[str, object]) -> None:
        self.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")

    def request(self, method: str, params: Mapping[str, object] | None = None) -> int:
        """Send a request, and return its id."""
        self._number += 1
        self.send({"id": self._number, "method": method, "params": dict(params or {})})
        return self._number

    def notify(self, method: str, params: Mapping[str, object]) -> None:
        self.send({"method": method, "params": dict(params)})

    def message(self, id: int | None) -> dict[str, Any]:
        """Return the answer with this id; others are kept for later calls."""
        while True:
            for each in self._kept:
                if each.get("id") == id:
                    self._kept.remove(each)
                    return each
            news = self._news.get()
            assert news is not None, f"the agent ended: {self.errors.decode()}"
            self._kept.append(news)

    def result(self, method: str, params: Mapping[str, object] | None = None) -> Any:
        """Send a request, and return its result."""
        answer = self.message(self.request(method, params))
        assert "result" in answer, answer
        return answer["result"]

    def refusal(self, method: str, params: Mapping[str, object] | None = None) -> dict[str, Any]:
        """Send a request, and return its error."""
        answer = self.message(self.request(method, params))
        assert "error" in answer, answer
        error: dict[str, Any] = answer["error"]
        return error

    def new(self, **more: object) -> str:
        """Open a session, and return its id."""
        made = self.result("session/new", {"cwd": str(self.place.work), "mcpServers": [], **more})
        return str(made["sessionId"])

    def ask(self, session: str, *blocks: Mapping[str, object], **more: object) -> int:
        """Send a prompt, and return the id of the request."""
        return self.request("session/prompt", {"sessionId": session, "prompt": list(blocks), **more})

    def prompt(self, session: str, words: str, *blocks: Mapping[str, object], **more: object) -> dict[str, Any]:
        """Send a prompt, and return its result."""
        answer = self.message(self.ask(session, {"type": "text", "text": words}, *blocks, **more))
        assert "result" in answer, answer
        result: dict[str, Any] = answer["result"]
        return result

    def until(self, found: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """Wait for an update of any session, or a request of the agent, and return it."""

        def first() -> dict[str, Any] | None:
            return next((each for each in (*self.updates, *self.asked) if found(each)), None)

        reader = self._threads[0]
        news = wait_until(first, of=lambda: not reader.is_alive(), what=lambda: f"the update after {self.updates[-5:]}")
        assert news is not None
        return news

    def told(self, session: str) -> str:
        """Return the messages that the user was shown in a session."""
        return "".join(
            each["update"]["content"]["text"]
            for each in list(self.updates)
            if each["sessionId"] == session and each["update"]["sessionUpdate"] == "agent_message_chunk"
        )

    def of_kind(self, kind: str) -> list[dict[str, Any]]:
        """Return the updates of one kind."""
        return [each["update"] for each in list(self.updates) if each["update"]["sessionUpdate"] == kind]

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            message = json.loads(line)
            if message.get("method") == "session/update":
                self.updates.append(message["params"])
            elif "method" in message:
                self.asked.append(message)
                answer = self.answer(message)
                if answer is not None:
                    self.send({"id": message["id"], **answer})
            else:
                self._news.put(message)
        self._news.put(None)

    def _read_errors(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.errors += line
