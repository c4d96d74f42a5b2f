"""The probe of a new tool server at a terminal: `agent mcp add` asks about the rights that it seems to need."""

import shutil
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.cli_harness import AGENT, CliHarness
from tests.support.server_session import HOSTILE
from tests.support.terminal import Terminal

pytest.importorskip("mcp")  # an extra


@pytest.fixture
def place() -> Iterator[CliHarness]:
    base = Path(tempfile.mkdtemp(prefix="probe-", dir="/var/tmp")).resolve()
    for folder in ("work", "home"):
        (base / folder).mkdir()
    yield CliHarness(base)
    shutil.rmtree(base)


@pytest.mark.parametrize(("answer", "given"), [("y", True), ("", False)], ids=["yes", "Enter refuses"])
def test_a_new_server_gets_the_rights_that_the_user_gives(place: CliHarness, answer: str, given: bool) -> None:
    words = [AGENT, "mcp", "add", "one", "--", sys.executable, "-u", str(HOSTILE), "plain"]
    window = Terminal(words, place.work, {**place.environ, "TERM": "xterm", "PROMPT_TOOLKIT_NO_CPR": "1"})
    try:
        window.until("give it these rights? [y/N]:")
        assert f"to read {HOSTILE}" in window.seen.replace("\r\n", "")
        window.type(f"{answer}\r")
        assert window.end() == 0
    finally:
        window.close()
    table = tomllib.loads((place.base / "config/ringfence/config.toml").read_text())["mcp"]["one"]
    assert table.get("read", []) == ([str(HOSTILE)] if given else [])
    tried = place.agent("mcp", "test", "one")
    assert tried.returncode == (0 if given else 1)
