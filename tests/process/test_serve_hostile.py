"""Tests of hostile clients of `agent mcp serve`: messages that are too long or no messages, many calls at once, answers
that are not read, and requests over HTTP without the right to make them.
"""

import contextlib
import fcntl
import http.client
import json
import os
import re
import select
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.cli_harness import AGENT, CliHarness
from tests.support.tool_client import NEW, OLD, ToolClient, outcome, workspace
from tests.support.waiting import is_at_rest, until

pytest.importorskip("mcp")  # an extra


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ToolClient]:
    with ToolClient(workspace(tmp_path_factory.mktemp("hostile")), version=OLD) as made:
        yield made


# a line, the text of the error that answers it; an empty text: nothing answers it
# fmt: off
LINES: list[tuple[bytes, str, str]] = [
    (b"x" * (17 << 20),                                                    "longer than 16 MiB", "a line of 17 MiB"),
    (b"[" * 100_000,                                                       "not a message",      "deep nesting"),
    (b'{"jsonrpc": "2.0", "method": "tools/call", "id": [1], "params": {"name": "bash", "arguments": {"command": "ls"}}}', "", "an id that is a list"),
    (b'[{"jsonrpc": "2.0", "method": "ping", "id": 1}]',                   "not a message",      "a batch"),
    (b"\xff\xfe",                                                          "not a message",      "no UTF-8"),
    (b'{"jsonrpc": "2.0", "id": 77, "result": {"action": "accept"}}',      "",                   "an answer that nobody asked for"),
    (b'{"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 4711}}', "", "a cancellation of no request"),
    (b'{"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progressToken": 1, "progress": 1}}', "", "progress of no request"),
    (b"",                                                                  "",                   "an empty line"),
]
# fmt: on


@pytest.mark.threat("T199")
@pytest.mark.parametrize(("line", "text", "why"), LINES, ids=[row[-1] for row in LINES])
def test_a_line_that_is_no_request_changes_nothing(client: ToolClient, line: bytes, text: str, why: str) -> None:
    before = len(client.lines)
    client.write(line + b"\n")
    assert client.called("read", {"path": "a.txt"})[0] is False
    errors = [each["error"]["message"] for each in map(json.loads, client.lines[before:]) if "error" in each]
    assert [text in each for each in errors] == ([True] if text else []), errors


@pytest.mark.threat("T199")
def test_deep_arguments_are_refused(client: ToolClient) -> None:
    deep = '{"a":' * 150 + "1" + "}" * 150
    call = '{"jsonrpc":"2.0","id":9001,"method":"tools/call","params":{"name":"read","arguments":'
    client.write(f"{call}{deep}}}}}\n".encode())
    assert outcome(client.message(id=9001))[0] is True


@pytest.mark.threat("T199")
def test_of_many_calls_at_once_each_has_one_answer(client: ToolClient) -> None:
    ids = [client.call("write", {"path": "many.txt", "content": f"{number}"}) for number in range(50)]
    forms = [client.message(method="elicitation/create") for _ in range(32)]  # each of these calls waits
    refused = [outcome(client.message(id=id)) for id in ids[32:]]
    assert all(failed and "the most at the same time" in text for failed, text in refused)
    for form in forms:
        client.send({"jsonrpc": "2.0", "id": form["id"], "result": {"action": "decline"}})
    assert all(outcome(client.message(id=id))[0] for id in ids[:32])
    answered = [each["id"] for each in map(json.loads, client.lines) if each.get("id") in ids and "result" in each]
    assert sorted(answered) == ids
    assert not (client.place.work / "many.txt").exists()


def has_room(pipe: int) -> bool:
    return bool(select.select((), (pipe,), (), 0)[1])


@pytest.mark.threat("T199")
def test_while_answers_wait_nothing_more_is_read(tmp_path: Path) -> None:
    place = workspace(tmp_path)
    ours, theirs = os.pipe()
    process = subprocess.Popen(
        [AGENT, "mcp", "serve"], cwd=place.work, env=place.environ, stdin=subprocess.PIPE, stdout=theirs
    )
    assert process.stdin is not None
    meta = {f"io.modelcontextprotocol/{name}": value for name, value in (
        ("protocolVersion", NEW), ("clientCapabilities", {}), ("clientInfo", {"name": "p", "version": "1"}))}  # fmt: skip
    line = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"_meta": meta}}).encode() + b"\n"
    descriptor = process.stdin.fileno()
    fcntl.fcntl(descriptor, fcntl.F_SETFL, os.O_NONBLOCK)

    def goes_on() -> bool:
        """Return True if the server reads, and False if its output is full and it waits for something else."""
        until(lambda: has_room(descriptor) or (not has_room(theirs) and is_at_rest(process.pid)), of=process)
        return has_room(descriptor)

    written = 0
    while goes_on():
        assert written < 5_000 * len(line), "the server reads without end"
        with contextlib.suppress(BlockingIOError):
            written += os.write(descriptor, line)
    os.close(theirs)
    with os.fdopen(ours, "rb") as answers:
        for _ in range(written // len(line)):
            assert json.loads(answers.readline())["result"]["tools"]
    process.stdin.close()
    assert process.wait() == 0


class HttpServer:
    """`agent mcp serve --http`, with its port and token."""

    def __init__(self, place: CliHarness, *words: str) -> None:
        self.place = place
        self.process = subprocess.Popen(
            [AGENT, "mcp", "serve", "--http", *words],
            cwd=place.work,
            env=place.environ,
            stdin=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self.process.stderr is not None
        said = "".join(self.process.stderr.readline() for _ in range(3))
        found = re.fullmatch(
            r"agent mcp serve: (http://127\.0\.0\.1:(\d+)/mcp)\nagent mcp serve: token ([\w-]{43})\n"
            r"agent mcp serve: the token is also in (.*)\n",
            said,
        )
        assert found is not None, said
        self.url, self.port, self.token, self.file = found[1], int(found[2]), found[3], Path(found[4])

    def close(self) -> int:
        self.process.terminate()
        code = self.process.wait()
        assert self.process.stderr is not None
        assert "Traceback" not in self.process.stderr.read()
        self.process.stderr.close()
        return code

    def status(self, headers: list[tuple[str, str]], body: bytes = b"{}", path: str = "/mcp") -> int:
        """Return the status of a request with exactly these headers; 0 if the server closes the connection."""
        made = http.client.HTTPConnection("127.0.0.1", self.port)
        try:
            made.putrequest("POST", path, skip_host=True, skip_accept_encoding=True)
            for name, value in headers:
                made.putheader(name, value)
            made.putheader("Content-Length", str(len(body)))
            made.endheaders()
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                made.send(body)
            return made.getresponse().status
        except (http.client.HTTPException, ConnectionError):
            return 0
        finally:
            made.close()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpServer]:
    made = HttpServer(workspace(tmp_path_factory.mktemp("http")))
    yield made
    assert made.close() == 130
    assert not made.file.exists()


JSON = ("Content-Type", "application/json")
BOTH = ("Accept", "application/json, text/event-stream")
# the headers, with {token} and {port}; the status
# fmt: off
REFUSED: list[tuple[list[tuple[str, str]], int, str]] = [
    ([("Host", "127.0.0.1:{port}")],                                                                      401, "no token"),
    ([("Host", "127.0.0.1:{port}"), ("Authorization", "Bearer x")],                                       401, "a wrong token"),
    ([("Host", "127.0.0.1:{port}"), ("Authorization", "Bearer {token}x")],                                401, "the token and more"),
    ([("Host", "127.0.0.1:{port}"), ("Authorization", "Basic {token}")],                                  401, "another scheme"),
    ([("Host", "127.0.0.1:{port}"), ("Authorization", "Bearer {token}"), ("Authorization", "Bearer x")],  401, "two tokens"),
    ([("Host", "127.0.0.1:{port}"), ("Cookie", "token={token}")],                                         401, "a cookie"),
    ([("Host", "evil.example:{port}"), ("Authorization", "Bearer {token}")],                              421, "a foreign name (DNS rebinding)"),
    ([("Host", "127.0.0.1"), ("Authorization", "Bearer {token}")],                                        421, "another port"),
    ([("Host", "127.0.0.1:{port}.evil.example"), ("Authorization", "Bearer {token}")],                    421, "a name that begins like the address"),
    ([("Host", "127.0.0.1:{port}"), ("Host", "evil.example"), ("Authorization", "Bearer {token}")],       400, "two names"),
    ([("Authorization", "Bearer {token}")],                                                               400, "no name"),
    ([("Host", "localhost:{port}"), ("Authorization", "Bearer {token}"), ("Origin", "null")],             403, "a page without an origin"),
    ([("Host", "localhost:{port}"), ("Authorization", "Bearer {token}"), ("Origin", "http://127.0.0.1:{port}")], 403, "a page of this address"),
    ([("Host", "localhost:{port}"), ("Authorization", "Bearer {token}"), ("X", "x" * 70_000)],            400, "headers of 70,000 bytes"),
    ([("Host", "localhost:{port}"), ("Authorization", "bearer {token}"), JSON, BOTH],                     400, "the token, and no request of the protocol"),
]
# fmt: on


@pytest.mark.threat("T199")
@pytest.mark.parametrize(("headers", "status", "why"), REFUSED, ids=[row[-1] for row in REFUSED])
def test_a_request_without_the_right_is_refused(
    server: HttpServer, headers: list[tuple[str, str]], status: int, why: str
) -> None:
    given = [(name, value.format(token=server.token, port=server.port)) for name, value in headers]
    assert server.status(given) in (status, 0 if len(str(given)) > 60_000 else status)


@pytest.mark.threat("T199")
def test_a_body_without_the_right_or_of_17_mib_is_not_read(server: HttpServer) -> None:
    host = ("Host", f"127.0.0.1:{server.port}")
    assert server.status([host], b"x" * (17 << 20)) in (401, 0)
    right = [host, ("Authorization", f"Bearer {server.token}"), JSON, BOTH]
    assert server.status(right, b"x" * (17 << 20)) in (413, 0)
    assert server.status(right, b"[" * 100_000) == 400


@pytest.mark.threat("T199")
def test_only_one_address_of_the_loopback_is_open_and_connections_have_a_limit(server: HttpServer) -> None:
    with socket.socket() as other:
        assert other.connect_ex(("127.0.0.2", server.port)) != 0
    with contextlib.ExitStack() as stack:
        opened = [stack.enter_context(socket.create_connection(("127.0.0.1", server.port))) for _ in range(80)]
        ended: set[int] = set()
        while len(ended) < 16:
            ended |= {each.fileno() for each in select.select(opened, (), ())[0]}
    until(lambda: server.status([("Host", f"127.0.0.1:{server.port}")]) == 401, of=server.process)


# the file, its mode or None for a link, what is said; an empty text: it is used
# fmt: off
FILES: list[tuple[str, str, int | None, str, str]] = [
    ("token",        "x" * 43,      0o644, "not a file of this user alone", "other users can read it"),
    ("token",        "short",       0o600, "32 or more",                    "its token is too short"),
    ("token",        "two words" * 9, 0o600, "32 or more",                  "it has more than a token"),
    ("token",        "x" * 43,      None,  "cannot be used",                "it is a link"),
    ("work/token",   "x" * 43,      0o600, "in the workspace",              "it is in the workspace"),
]
# fmt: on


@pytest.mark.threat("T199")
@pytest.mark.parametrize(("name", "text", "mode", "said", "why"), FILES, ids=[row[-1] for row in FILES])
def test_a_token_file_that_is_not_private_is_refused(
    tmp_path: Path, name: str, text: str, mode: int | None, said: str, why: str
) -> None:
    place = workspace(tmp_path)
    file = tmp_path / name
    if mode is None:
        (tmp_path / "other").write_text(text)
        (tmp_path / "other").chmod(0o600)
        file.symlink_to(tmp_path / "other")
    else:
        file.write_text(text)
        file.chmod(mode)
    done = place.agent("mcp", "serve", "--http", "--token-file", str(file))
    assert (done.returncode, done.stdout, said in done.stderr) == (2, "", True), done.stderr


# fmt: off
WORDS = [
    (("--ask", "nobody"),            "`--ask nobody` is not known"),
    (("--port", "1"),                "--port needs --http"),
    (("--token-file", "x"),          "--token-file needs --http"),
    (("--http", "--port", "70000"),  "is not a port"),
    (("--ask-timeout", "soon"),      "--ask-timeout"),
    (("--tools", "nothing"),         "there is no tool `nothing`"),
    (("--cwd", "~nobody/nowhere"),   "cannot"),
]
# fmt: on


@pytest.mark.parametrize(("words", "said"), WORDS, ids=[" ".join(row[0]) for row in WORDS])
def test_a_wrong_option_is_explained(client: ToolClient, words: tuple[str, ...], said: str) -> None:
    done = client.place.agent("mcp", "serve", *words)
    assert (done.returncode, done.stdout, said in done.stderr) == (2, "", True), done.stderr
