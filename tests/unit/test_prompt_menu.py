"""Tests of the menu of prompts of tool servers after `/mcp:`."""

from types import SimpleNamespace
from typing import Any

import pytest

from policy.model.profile import Layer
from runner.frontends.slash.registry import COMMANDS
from runner.frontends.tui.controller import TerminalController
from runner.mcp.server_config import ServerConfig
from runner.mcp.servers import ServerState, SessionServers
from tools.server_offer import OfferedPrompt, ServerOffer

PROMPTS = (
    OfferedPrompt("greet", "", "Greets\x1b[2J\neverybody", (("who", "", True), ("how", "", False))),
    OfferedPrompt("daily"),
    OfferedPrompt("two words"),
    OfferedPrompt("gre\u0435t"),
)

ROWS: list[tuple[str, list[str] | None, str]] = [
    ("/mcp:", ["/mcp:one:greet", "/mcp:one:daily"], "every prompt whose name is certain"),
    ("/mcp:one:d", ["/mcp:one:daily"], "a beginning"),
    ("/mcp:grt", ["/mcp:one:greet"], "a few letters"),
    ("/mcp:one:none", [], "no prompt"),
    ("/mcp:one:greet ", ["who=", "how="], "its arguments"),
    ("/mcp:one:greet who=Ann h", ["how="], "the other argument"),
    ("/mcp:one:greet who=Ann how=so ", None, "all arguments are there"),
    ("/mcp:two:greet ", None, "a server that does not run"),
]


def controller() -> TerminalController:
    """Return a controller of an open session with one running server and one that has ended."""
    servers = SessionServers([ServerConfig("one", Layer.USER), ServerConfig("two", Layer.USER)], {}, _unused, _unused)
    for name, state in (("one", ServerState.READY), ("two", ServerState.ENDED)):
        servers._servers[name].state, servers._servers[name].offer = state, ServerOffer(prompts=PROMPTS)
    made = TerminalController(_unused)
    made.commands = COMMANDS
    made._agent = SimpleNamespace(conversation=SimpleNamespace(ctx=SimpleNamespace(servers=servers)))  # type: ignore[assignment]  # no more of a session is used
    return made


_unused: Any = None


@pytest.mark.parametrize(("typed", "proposed", "why"), ROWS, ids=[row[-1] for row in ROWS])
def test_the_menu_has_the_prompts_of_running_servers(typed: str, proposed: list[str] | None, why: str) -> None:
    found = controller().proposals(typed)
    assert (None if found is None else [each.text for each in found.entries]) == proposed, why
    for entry in found.entries if found is not None else ():
        assert entry.note.isprintable()
        assert f"{typed[: found.start]}{entry.text}".startswith("/mcp:one:")
        assert not entry.ready or entry.text == "/mcp:one:daily"


def test_before_a_session_there_are_no_prompts() -> None:
    made = TerminalController(_unused)
    found = made.proposals("/mcp:")
    assert found is not None
    assert not found.entries
