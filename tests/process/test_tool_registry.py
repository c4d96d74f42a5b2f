"""Tests of the tools of a session: members that change, and the selection by options and settings."""

from collections.abc import AsyncGenerator
from dataclasses import replace
from pathlib import Path

import pytest

from policy.model.tier import Mode
from runner.agent.open_session import selected_tools
from runner.agent.options import Given
from runner.agent.startup import RunArgs, run_args, with_options
from runner.config import load
from runner.events import Denied, MalformedCall, SessionStarted
from runner.messages import Request, StreamEvent, ToolCall
from runner.problems import Exit, Stopped
from runner.providers.scripted import ScriptedProvider, Turn
from tests.support.loop_harness import DONE, READ, Make, bash, call
from tools import TOOLS
from tools.bash import BashTool
from tools.ls import LsTool
from tools.read import ReadTool
from tools.registry import ToolRegistry, ToolSelection

NAMES = [tool.name for tool in TOOLS]

SELECTED = [
    ((), (), NAMES, "everything"),
    (("read", "g*"), (), ["read", "glob", "grep"], "a name and a pattern"),
    (("[rl]*",), (), ["read", "ls"], "a set of characters"),
    ((), ("bash",), [name for name in NAMES if name != "bash"], "without one"),
    (("g*",), ("grep",), ["glob"], "both"),
    (("mcp__*",), (), [], "tools that may come later"),
]


@pytest.mark.parametrize(("only", "without", "names", "why"), SELECTED, ids=[row[-1] for row in SELECTED])
def test_a_selection(only: tuple[str, ...], without: tuple[str, ...], names: list[str], why: str) -> None:
    selection = ToolSelection(only, without)
    registry = ToolRegistry((BashTool(), ReadTool(), *TOOLS[2:]), selection)
    assert selection.fault(NAMES) is None
    assert [tool.name for tool in registry] == list(registry.names) == [name for name in names if name in NAMES], why
    assert len(registry) == len(names)
    assert [tool.name for tool in registry.every][: len(NAMES)] == NAMES


FAULTS = [
    (("reed",), (), "did you mean `read`?", "a slip"),
    ((), ("shell",), "did you mean `bash`?", "the name in another program"),
    (("zzz",), (), "the tools are `bash`", "no similar name"),
    (("x*",), (), "the tools are `bash`", "a pattern of nothing"),
]


@pytest.mark.parametrize(("only", "without", "fix", "why"), FAULTS, ids=[row[-1] for row in FAULTS])
def test_the_name_of_no_tool_is_an_error(only: tuple[str, ...], without: tuple[str, ...], fix: str, why: str) -> None:
    problem = ToolSelection(only, without).fault(NAMES)
    assert problem is not None
    assert fix in problem.fix, why


def test_a_later_tool_never_replaces_an_earlier_one() -> None:
    registry = ToolRegistry([LsTool()])
    with pytest.raises(ValueError, match="already a tool `ls`"):
        registry.add(LsTool())
    registry.remove("ls")
    assert not registry
    with pytest.raises(KeyError):
        registry.remove("ls")


class _Watching(ScriptedProvider):
    """A scripted model that changes the tools after its first reply, and keeps the names that each request has."""

    def __init__(self, turns: tuple[Turn, ...]) -> None:
        super().__init__(turns)
        self.seen: list[list[str]] = []
        self.registry = ToolRegistry()

    async def stream(self, request: Request) -> AsyncGenerator[StreamEvent, None]:
        self.seen.append([tool.name for tool in request.tools])
        async for event in super().stream(request):
            yield event
        if len(self.seen) == 1:
            self.registry.add(LsTool())
            self.registry.remove("bash")


def test_a_request_has_the_tools_of_its_moment(stage: Make) -> None:
    provider = _Watching((call("ls", {"path": "."}), bash(READ), DONE))
    found = stage(provider=provider)
    provider.registry = ToolRegistry([BashTool()])
    found.ctx = replace(found.ctx, tools=provider.registry)
    found.play()
    assert provider.seen == [["bash"], ["ls"], ["ls"]]
    assert found.sandbox.ran == ["ListFolder"], "a tool that came after the request is called, one that went is not"
    (malformed,) = found.of(MalformedCall)
    assert isinstance(malformed, MalformedCall)
    assert malformed.problem.what == "there is no tool `bash`"


def test_a_tool_that_is_left_out_cannot_be_called(stage: Make) -> None:
    found = stage(bash(READ), Turn(calls=(ToolCall("", "write", {"path": "a", "content": "x"}),)), DONE)
    found.ctx = replace(found.ctx, tools=ToolRegistry(TOOLS, ToolSelection(("bash", "read"))))
    found.play()
    assert found.sandbox.ran == [READ]
    assert "there is no tool `write`" in found.told()[1]
    assert not found.of(Denied)


def test_the_opening_event_names_the_tools_of_the_mode(stage: Make) -> None:
    found = stage(DONE, mode=Mode.PLAN, unattended=False)
    found.ctx = replace(found.ctx, tools=ToolRegistry(TOOLS, ToolSelection(("read",))))
    opening = found.ctx.opening()
    assert isinstance(opening, SessionStarted)
    assert opening.tools == ("read", "propose_plan")


OPTIONS = [
    ([("--tools", "read,g*"), ("--tools", "ls")], ("read", "g*", "ls"), (), "lists and repetition"),
    ([("--no-tools", " bash , write ")], (), ("bash", "write"), "blanks"),
    ([], (), (), "none"),
]


@pytest.mark.parametrize(("words", "only", "without", "why"), OPTIONS, ids=[row[-1] for row in OPTIONS])
def test_options(words: list[tuple[str, str]], only: tuple[str, ...], without: tuple[str, ...], why: str) -> None:
    for command in ("run", "ci", "agent", "terminal"):
        args = run_args(Given.of_words(command, words))
        assert (args.tools, args.no_tools) == (only, without), why


def test_options_and_settings_together(tmp_path: Path) -> None:
    config = tmp_path / "c.toml"
    config.write_text('version = 1\n[tools]\nonly = ["read", "bash"]\nexcept = ["write"]\n')
    settings = load(tmp_path, {"HOME": str(tmp_path)}, config=config)
    assert selected_tools(settings) == ToolSelection(("read", "bash"), ("write",))
    narrower = with_options(settings, RunArgs(tools=("read",), no_tools=("grep",)))
    assert selected_tools(narrower) == ToolSelection(("read",), ("write", "grep"))
    with pytest.raises(Stopped) as found:
        selected_tools(with_options(settings, RunArgs(tools=("reed",))))
    assert found.value.exit_code == Exit.USAGE
    assert "did you mean `read`" in found.value.problem.fix
