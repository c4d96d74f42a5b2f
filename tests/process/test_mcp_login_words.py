"""Tests of the arguments of `agent mcp login` and `logout`, and of opening an address in the browser."""

import os
from pathlib import Path

import pytest

from policy.model.profile import Layer
from runner.cli.mcp_sign_in import _show
from runner.mcp.browser import open_browser
from runner.mcp.server_config import ServerConfig
from tests.support import forked_agent
from tests.support.forked_agent import AGENT

CONFIG = """
[mcp.here]
command = "/usr/bin/true"
[mcp.headed]
url = "https://mcp.example/"
headers = { Authorization = "Bearer $TOKEN" }
[mcp.there]
url = "https://mcp.example/"
"""
# fmt: off
WORDS = [
    (("login", "nobody"),                                2, "`nobody` is not a tool server"),
    (("login", "ther"),                                  2, "did you mean `there`?"),
    (("login", "here"),                                  2, "`here` is a server on this machine"),
    (("login", "headed"),                                2, "sets `Authorization`"),
    (("login", "there", "--client-secret-stdin"),        2, "needs --client-id"),
    (("login", "there"),                                 1, "the keyring"),
    (("logout",),                                        2, "name one server, or add --all"),
    (("logout", "there", "--all"),                       2, "name one server, or add --all"),
    (("logout", "there"),                                1, "there are no tokens of `there`"),
    (("logout", "--all"),                                0, "there are no tokens of tool servers"),
]
# fmt: on


@pytest.mark.parametrize(("words", "code", "said"), WORDS, ids=[" ".join(row[0]) for row in WORDS])
def test_words(tmp_path: Path, words: tuple[str, ...], code: int, said: str) -> None:
    folder = tmp_path / ".config/ringfence"
    folder.mkdir(parents=True, mode=0o700)
    (folder / "config.toml").write_text(CONFIG)
    environ = {"HOME": str(tmp_path), "PATH": os.environ["PATH"], "TOKEN": "token-canary-2c1d", "LC_ALL": "C.UTF-8"}
    done = forked_agent.run([AGENT, "mcp", *words], cwd=tmp_path, env=environ, capture_output=True, input=b"")
    text = (done.stdout + done.stderr).decode()
    assert (done.returncode, said in text) == (code, True), text
    assert "canary" not in text


ADDRESSES = [
    ("https://issuer.example/a?b=c", True, "an address"),
    ("file:///etc/passwd", False, "a file"),
    ("javascript:alert(1)", False, "a script"),
    ("-x", False, "an option"),
    ("https://issuer.example/a b", False, "a blank"),
    ("https://issuer.example/\x1b[2J", False, "a terminal code"),
]


@pytest.mark.threat("T191")
@pytest.mark.parametrize(("address", "opened", "why"), ADDRESSES, ids=[row[-1] for row in ADDRESSES])
def test_only_addresses_of_pages_are_opened(tmp_path: Path, address: str, opened: bool, why: str) -> None:
    seen = tmp_path / "seen"
    os.mkfifo(seen)
    for name in ("xdg-open", "open"):
        (tmp_path / name).write_text(f'#!/bin/sh\nprintf "%s" "$*" > "{seen}"\n')
        (tmp_path / name).chmod(0o755)
    assert open_browser(address, {"PATH": f".:{tmp_path}"}) is opened
    if opened:
        assert seen.read_text() == address, "the whole address is one word, without a shell"
    assert not open_browser(address, {"PATH": str(tmp_path)}, workspace=str(tmp_path))
    assert not open_browser(address, {"PATH": "."})


SHOWN = [
    ("https://login.mcp.example/a?scope=read+write", "it asks for these rights: read write", "note:", "the same site"),
    ("https://code.example.org/a", "note: mcp.example gets a token of code.example.org", "rights", "another site"),
    ("https://xn--mp-2tc.example/a", "letters of other alphabets", "rights", "letters of other alphabets"),
]


@pytest.mark.threat("T191")
@pytest.mark.parametrize(("address", "expected", "absent", "why"), SHOWN, ids=[row[-1] for row in SHOWN])
def test_what_a_login_shows(capsys, address: str, expected: str, absent: str, why: str) -> None:
    server = ServerConfig("there", Layer.USER, url="https://mcp.example/", transport="http")
    _show(server, address, False, "/")
    shown = capsys.readouterr().out
    assert address in shown.splitlines()
    assert expected in shown
    assert absent not in shown
