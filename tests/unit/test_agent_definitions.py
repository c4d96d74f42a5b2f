"""Tests of the files that define sub-agents, in the formats of this program and of others."""

from pathlib import Path

import pytest

from policy.model.tier import Mode
from runner.config.agentfiles.definitions.definition import AgentDefinition, AgentOwner, BrokenDefinition
from runner.config.agentfiles.definitions.find import find_agents
from runner.config.agentfiles.definitions.read_definition import read_definition
from runner.config.inventory import EntryKind
from runner.config.trust.discover import look


def read(text: str, path: str = ".claude/agents/a.md") -> AgentDefinition:
    made = read_definition(path, text.encode(), AgentOwner.USER, path)
    assert isinstance(made, AgentDefinition), made
    return made


def head(lines: str, body: str = "Work.") -> str:
    return f"---\nname: a\ndescription: d\n{lines}\n---\n{body}\n"


# fmt: off
ROWS: list[tuple[str, str, dict[str, object]]] = [
    ("plain", "", {"name": "a", "description": "d", "prompt": "Work.", "tools": (), "mode": None}),
    ("claude tools", "tools: Read, Grep, Bash", {"tools": ("read", "grep", "bash", "bash_output", "bash_input", "bash_kill")}),
    ("list of tools", "tools: [read, 'mcp__github__*']", {"tools": ("read", "mcp__github__*")}),
    ("all tools", "tools: '*'", {"tools": ()}),
    ("a tool that is none", "tools: TodoWrite", {"tools": ("none",)}),
    ("disallowed", "disallowedTools: Write, Edit", {"without": ("write", "edit")}),
    ("a bound tool is left out", "tools: Read, Bash(git log:*, git show:*)", {"tools": ("read",)}),
    ("only a bound tool", "tools: Bash(git log:*)", {"tools": ("none",)}),
    ("plan mode", "permissionMode: plan", {"mode": Mode.PLAN}),
    ("accept edits", "permissionMode: acceptEdits", {"mode": Mode.ACCEPT_EDITS}),
    ("a mode that lifts protection", "permissionMode: bypassPermissions", {"mode": None}),
    ("dangerously", "mode: dangerously", {"mode": None}),
    ("own model", "model: anthropic/claude-haiku-5-5", {"model": "anthropic:claude-haiku-5-5"}),
    ("alias of a model", "model: sonnet", {"model": ""}),
    ("turns", "maxTurns: 7", {"turns": 7}),
    ("worktree", "isolation: worktree", {"isolation": "worktree"}),
    ("background", "background: true", {"background": True}),
    ("read only", "read_only: true", {"read_only": True}),
    ("no hosts", "hosts: []", {"hosts": ()}),
    ("hosts", "hosts: [pypi.org, '*.example.org']", {"hosts": ("pypi.org", "*.example.org")}),
    ("gemini", "kind: local\nmax_turns: 5\ntools: [read_file, run_shell_command]",
     {"turns": 5, "tools": ("read", "bash", "bash_output", "bash_input", "bash_kill")}),
]
# fmt: on


@pytest.mark.parametrize(("lines", "wanted"), [row[1:] for row in ROWS], ids=[row[0] for row in ROWS])
@pytest.mark.threat("T224")
def test_markdown(lines: str, wanted: dict[str, object]) -> None:
    made = read(head(lines))
    assert {name: getattr(made, name) for name in wanted} == wanted


# fmt: off
OPENCODE: list[tuple[str, str, dict[str, object]]] = [
    ("edit denied", "permission:\n  edit: deny", {"read_only": True, "without": ()}),
    ("commands denied", "permission:\n  bash: deny", {"without": ("bash*",)}),
    ("commands asked", "permission:\n  bash: ask", {"asked": ("**",)}),
    ("one command denied", "permission:\n  bash:\n    git push *: deny\n    '*': allow", {"denied": ("git push **",)}),
    ("one command asked", "permission:\n  bash:\n    git push: ask", {"asked": ("git push",)}),
    ("all but one denied", "permission:\n  bash:\n    '*': deny\n    git log *: allow", {"without": ("bash*",)}),
    ("a pattern in a word", "permission:\n  bash:\n    git p*sh origin: deny", {"denied": ("git **",)}),
    ("everything denied", "permission: deny", {"tools": ("none",)}),
    ("web denied", "permission:\n  webfetch: deny", {"without": ("web_fetch",)}),
    ("tools off", "tools:\n  write: false\n  edit: false\n  mymcp_*: false", {"without": ("write", "edit", "mcp__mymcp*")}),
    ("all tools off but one", "tools:\n  '*': false\n  read: true", {"tools": ("read",)}),
    ("steps", "steps: 9", {"turns": 9}),
]
# fmt: on


@pytest.mark.parametrize(("lines", "wanted"), [row[1:] for row in OPENCODE], ids=[row[0] for row in OPENCODE])
@pytest.mark.threat("T224")
def test_opencode(lines: str, wanted: dict[str, object]) -> None:
    """opencode#33223 and #45078: the denials of a child's own file must hold."""
    made = read(f"---\ndescription: d\nmode: subagent\n{lines}\n---\nWork.\n", ".opencode/agent/checker.md")
    assert made.name == "checker"
    assert {name: getattr(made, name) for name in wanted} == wanted


def test_codex() -> None:
    text = 'name = "scout"\ndescription = "d"\nsandbox_mode = "read-only"\nmodel = "gpt-6"\n'
    made = read(f'{text}developer_instructions = """Look."""\n[mcp_servers.x]\ncommand = "x"\n', ".codex/agents/s.toml")
    assert (made.name, made.prompt, made.read_only, made.model) == ("scout", "Look.", True, "openai:gpt-6")
    assert any("mcp_servers" in notice for notice in made.notices)


@pytest.mark.parametrize(("text", "why"), [
    ("---\nname: a b\n---\nx", "is named `a b`"),
    ("---\nname: &x a\n---\nx", "anchor"),
    ("---\nhosts: ['http://x']\n---\nx", "names the host"),
    ("x" * (65 << 10), "longer than 64 KiB"),
    ("---\nname: a\nx", "has no second line"),
])  # fmt: skip
def test_a_broken_file(text: str, why: str) -> None:
    made = read_definition("a.md", text.encode(), AgentOwner.USER, "a.md")
    assert isinstance(made, BrokenDefinition)
    assert why in made.why


@pytest.mark.threat("T224")
def test_invisible_characters_of_a_text_are_shown() -> None:
    assert "\u202e" not in read(head("", "a\u202eb\u200bc")).prompt


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    for path, text in {
        ".claude/agents/reviewer.md": head("tools: Read").replace("name: a", "name: reviewer"),
        ".ringfence/agents/explore.md": head("").replace("name: a", "name: explore"),
        ".ringfence/agents/mine.md": head("").replace("name: a", "name: mine"),
        ".codex/agents/scout.toml": 'name = "scout"\n',
    }.items():
        (tmp_path / "w" / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "w" / path).write_text(text)
    own = tmp_path / "h/.config/ringfence/agents"
    own.mkdir(parents=True)
    (own / "mine.md").write_text(head("turns: 3").replace("name: a", "name: mine"))
    (own / "plan.md").write_text(head("turns: 4").replace("name: a", "name: plan"))
    return tmp_path


@pytest.mark.threat("T222")
def test_no_agent_of_a_repository_replaces_another(repository: Path) -> None:
    environ = {"HOME": str(repository / "h")}
    found = find_agents(look(str(repository / "w")), environ)
    names = {each.name: (each.owner, each.turns) for each in found.definitions}
    assert names == {
        "mine": (AgentOwner.USER, 3),
        "plan": (AgentOwner.USER, 4),
        "explore": (AgentOwner.PROGRAM, 0),
        "general": (AgentOwner.PROGRAM, 0),
        "reviewer": (AgentOwner.REPOSITORY, 0),
        "scout": (AgentOwner.REPOSITORY, 0),
    }
    assert sorted(each.source for each in found.broken) == [".ringfence/agents/explore.md", ".ringfence/agents/mine.md"]


def test_without_trust_a_repository_defines_nothing(repository: Path) -> None:
    found = find_agents(None, {"HOME": str(repository / "h")})
    assert [each.name for each in found.definitions] == ["mine", "plan", "explore", "general"]
    entries = look(str(repository / "w")).entries
    assert sorted(each.path for each in entries if each.kind is EntryKind.AGENT) == [
        ".claude/agents/reviewer.md", ".codex/agents/scout.toml", ".ringfence/agents/explore.md",
        ".ringfence/agents/mine.md",
    ]  # fmt: skip
