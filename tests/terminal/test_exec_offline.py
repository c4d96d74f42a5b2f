"""Tests of `agent exec` with commands that start without network: real npx, a refused connection, and a second run."""

import hashlib
import http.server
import io
import json
import tarfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from runner.problems import Exit
from tests.support.cli_harness import AGENT, CliHarness
from tests.support.terminal import Terminal

HOST = "packages.example.org"
EXEC = ("exec", "--mode", "trust-project")
QUESTION = "allow once?"
TOOL = "#!/usr/bin/env node\nconsole.log('fetched ' + 'and run');\n"


def package() -> bytes:
    """Return a package `ringtool` for npm with a program of this name."""
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w:gz") as archive:
        manifest = {"name": "ringtool", "version": "1.0.0", "bin": {"ringtool": "tool.js"}}
        for name, text in (("package/package.json", json.dumps(manifest)), ("package/tool.js", TOOL)):
            info = tarfile.TarInfo(name)
            info.size, info.mode = len(text), 0o755
            archive.addfile(info, io.BytesIO(text.encode()))
    return made.getvalue()


class Registry(http.server.BaseHTTPRequestHandler):
    """An upstream proxy that answers for every host as a registry with one package."""

    protocol_version = "HTTP/1.1"
    archive = package()
    asked: list[str]

    def do_CONNECT(self) -> None:
        self.asked.append(self.path)
        self.send_response(200)
        self.end_headers()  # the next request on this connection is the one inside the tunnel

    def do_GET(self) -> None:
        self.asked.append(self.path)
        body = self.archive
        if not self.path.endswith(".tgz"):
            dist = {"tarball": f"http://{HOST}/ringtool/-/ringtool-1.0.0.tgz", "shasum": hashlib.sha1(body).hexdigest()}
            version = {"name": "ringtool", "version": "1.0.0", "bin": {"ringtool": "tool.js"}, "dist": dist}
            told = {"name": "ringtool", "dist-tags": {"latest": "1.0.0"}, "versions": {"1.0.0": version}}
            body = json.dumps(told).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def asked() -> list[str]:
    """Return the list of the requests that reach the registry."""
    return []


@pytest.fixture
def user(tmp_path: Path, asked: list[str]) -> Iterator[CliHarness]:
    """Return a user whose project names the registry, which the user's upstream proxy serves."""
    for name in ("work", "home", "state", "config/ringfence"):
        (tmp_path / name).mkdir(parents=True, mode=0o700)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), type("Here", (Registry,), {"asked": asked}))
    serving = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    serving.start()
    settings = f'version = 1\n[sandbox.network]\nupstream_proxy = "http://127.0.0.1:{server.server_port}"\n'
    (tmp_path / "config/ringfence/config.toml").write_text(settings)
    (tmp_path / "work/package.json").write_text('{"name": "project", "version": "1.0.0"}\n')
    (tmp_path / "work/.npmrc").write_text(f"registry=http://{HOST}/\nyes=true\nupdate-notifier=false\n")
    yield CliHarness(tmp_path)
    server.shutdown()
    server.server_close()
    serving.join()


def terminal(user: CliHarness, *words: str) -> Terminal:
    return Terminal([AGENT, *words], user.work, {**user.environ, "TERM": "xterm"})


@pytest.mark.threat("T165")
def test_an_approval_runs_it_again_with_the_refused_host(user: CliHarness, asked: list[str]) -> None:
    shown = terminal(user, *EXEC, "--", "npx", "ringtool")
    try:
        shown.until(QUESTION)
        question = " ".join(shown.seen.split())
        for part in ("npx ringtool", HOST, "ran without network", "which the repository's settings name"):
            assert part in question
        assert asked == [], "no request left the sandbox before the approval"
        shown.type("y\n")
        shown.until("fetched and run")
        assert shown.end() == 0
    finally:
        shown.close()
    assert any(HOST in each for each in asked)
    assert shown.seen.count(QUESTION) == 1
    second, first = (row for row in user.audit() if row["kind"] == "decided")
    assert (first["session"], first["action"]) == (second["session"], second["action"])
    assert [first["typed"], second["typed"]] == [[], [f"--host GET {HOST}/ringtool"]]


@pytest.mark.threat("T165")
def test_a_refusal_ends_it(user: CliHarness, asked: list[str]) -> None:
    shown = terminal(user, *EXEC, "--", "npx", "ringtool")
    try:
        shown.until(QUESTION)
        shown.type("n\n")
        assert shown.end() != 0
    finally:
        shown.close()
    assert asked == []
    assert [row["verdict"] for row in user.audit() if row["kind"] == "decided"] == ["deny", "allow"]


@pytest.mark.threat("T165")
def test_a_command_that_succeeds_after_all_is_not_asked_about(user: CliHarness, asked: list[str]) -> None:
    shown = terminal(user, *EXEC, "npx ringtool || echo no matter")
    try:
        shown.until("no matter")
        assert shown.end() == 0
    finally:
        shown.close()
    assert QUESTION not in shown.seen
    assert asked == []


@pytest.mark.threat("T165")
def test_without_a_terminal_the_refused_host_is_reported(user: CliHarness, asked: list[str]) -> None:
    done = user.agent(*EXEC, "--", "npx", "ringtool")
    assert done.returncode not in (0, Exit.DENIED)
    assert f"host {HOST} is not on the allowlist" in done.stderr
    assert asked == []
