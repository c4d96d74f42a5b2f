"""Tests of every `--help` (usage, examples, width of 80 columns) and of shell completion."""

import inspect
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from runner.cli.app import whole_command
from runner.cli.command_table import COMMANDS as TABLE
from tests.support import forked_agent

AGENT = str(Path(sys.executable).parent / "agent")


def commands(group: Any, before: str = "") -> list[str]:
    """Every command there is, by its words."""
    found = []
    for name, each in group.commands.items():
        found += [f"{before}{name}", *(commands(each, f"{before}{name} ") if hasattr(each, "commands") else ())]
    return found


WHOLE = whole_command()
COMMANDS = ["", *commands(WHOLE)]
BY_EXECVE = ("", "exec", "audit list")  # the others are forked from a process that has imported the product


def shown(command: str, tmp_path: Path) -> str:
    environ = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "COLUMNS": "80", "LC_ALL": "C.UTF-8"}
    run = subprocess.run if command in BY_EXECVE else forked_agent.run
    done = run(
        [AGENT, *command.split(), "--help"], env=environ, cwd=tmp_path, capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


@pytest.mark.parametrize("command", COMMANDS, ids=[command or "agent" for command in COMMANDS])
def test_help_teaches_by_examples_and_fits(command: str, tmp_path: Path) -> None:
    text = shown(command, tmp_path)
    lines = text.splitlines()
    assert [line for line in lines if len(line) > 80] == []
    assert [line for line in lines if re.search(r"<(bool|str|int|float|list|path)|^ Usage: .*\[\[|\.{6}", line)] == []
    assert "Examples" in text
    examples = [line.strip() for line in lines if re.match(r"  (.* \| )?agent( |$)", line)]
    assert examples, "each example stands on a line of its own"
    assert any(example.partition("agent ")[2].startswith(command) for example in examples)
    for example in examples:
        assert example.replace("$(agent ", "").count("agent ") == 1, "examples do not run into each other"
        shlex.split(example.partition("      ")[0])  # raises where a quote is not closed


@pytest.mark.parametrize("name", TABLE)
def test_the_table_has_the_first_paragraph_of_the_help_page(name: str) -> None:
    """The help page and the completion of `agent` show the paragraph without an import of the command."""
    assert TABLE[name][2] == " ".join(inspect.cleandoc(WHOLE.commands[name].help).split("\n\n")[0].split())


def test_the_table_lists_groups_after_single_commands() -> None:
    kinds = [hasattr(WHOLE.commands[name], "commands") for name in TABLE]
    assert kinds == sorted(kinds)
    assert all(not TABLE[name][1] for name, is_group in zip(TABLE, kinds, strict=True) if is_group)


def test_help_says_what_the_exit_codes_mean_where_scripts_ask(tmp_path: Path) -> None:
    for command in ("", "run", "exec"):
        assert "3 policy denied" in " ".join(shown(command, tmp_path).split())


# the words typed so far, what is offered
COMPLETIONS = [
    (
        "agent ",
        {
            "ci",
            "repo",
            "web",
            "run",
            "batch",
            "exec",
            "why",
            "processes",
            "ports",
            "serve",
            "sandbox",
            "policy",
            "profile",
            "apply",
            "approve",
            "attach",
            "ps",
            "logs",
            "stop",
            "detach",
            "audit",
            "sessions",
            "auth",
            "config",
            "init",
            "trust",
            "grants",
            "undo",
            "doctor",
            "demo",
            "mcp",
            "bundle",
            "jobs",
            "memory",
            "hooks",
            "guard",
            "agents",
            "acp",
        },
    ),
    (
        "agent mcp ",
        {"add", "call", "import", "list", "login", "logout", "pin", "remove", "serve", "show", "test", "why"},
    ),
    ("agent jobs ", {"add", "list", "pause", "remove", "resume", "run", "show", "trust"}),
    ("agent memory ", {"add", "edit", "list", "path", "remove", "search", "show"}),
    ("agent bundle ", {"add", "list", "remove", "show", "update"}),
    ("agent hooks ", {"list", "test", "import"}),
    ("agent guard ", {"claude", "codex", "gemini", "cursor", "opencode", "hook"}),
    ("agent batch ", {"run", "check", "show"}),
    ("agent batch show x --status ", {"done", "denied", "limit", "failed", "interrupted"}),
    ("agent trust ", {"show", "list", "yes", "no", "accept", "revoke"}),
    ("agent grants ", {"add", "list", "show", "revoke", "prune"}),
    ("agent run --tr", {"--trust-config"}),
    ("agent au", {"audit", "auth"}),
    ("agent sandbox ", {"show", "cache"}),
    ("agent config ", {"show", "check", "path", "schema", "get", "set", "unset", "migrate"}),
    ("agent config show mo", {"mode", "model"}),
    ("agent config set sandbox.mi", {"sandbox.minimum"}),
    ("agent exec --ho", {"--host"}),
    ("agent exec --backend ", {"T1", "T2", "T3", "seatbelt", "container"}),
    ("agent run --backend c", {"container"}),
    ("agent exec --require ", {"full", "partial"}),
    ("agent exec --limit o", {"open-files=", "output="}),
    (
        "agent audit ",
        {"export", "key", "list", "merge", "prune", "replay", "seal", "show", "stats", "suggest", "tail", "verify"},
    ),
    ("agent audit show l", {"last"}),
    ("agent audit --ve", {"--verdict"}),
    ("agent audit --verdict ", {"allow", "deny"}),
    ("agent audit list --tier re", {"read", "read-outside"}),
    ("agent audit list --tool gr", {"grep"}),
    ("agent audit export --format s", {"sarif"}),
    ("agent audit list --mode d", {"default", "dont-ask", "dangerously"}),
    ("agent sessions ", {"list", "show", "export", "rm"}),
    ("agent auth ", {"login", "status", "use", "logout"}),
    ("agent auth login a", {"anthropic"}),
    ("agent run --mo", {"--mode", "--model"}),
    ("agent run --fallback-model s", {"scripted:"}),
    ("agent run --mode d", {"default", "dont-ask", "dangerously"}),
    ("agent exec --mode t", {"trust-project"}),
    ("agent profile ", {"learn"}),
    ("agent policy m", {"matrix"}),
    ("agent policy ", {"fingerprint", "matrix", "judge", "test", "lint", "import"}),
    ("agent policy import --from c", {"claude", "codex"}),
    ("agent policy test --mode d", {"default", "dont-ask", "dangerously"}),
]


@pytest.mark.parametrize(("typed", "offered"), COMPLETIONS, ids=[typed for typed, _ in COMPLETIONS])
def test_what_the_completion_of_bash_asks_for_is_answered(typed: str, offered: set[str], tmp_path: Path) -> None:
    """The variables are those that the printed function gives to `agent`; `test_bash_completes` is about the function."""
    words = typed.split(" ")
    asked = {"COMP_WORDS": "\n".join(words), "COMP_CWORD": str(len(words) - 1), "_AGENT_COMPLETE": "complete_bash"}
    environ = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), **asked}
    done = forked_agent.run([AGENT], env=environ, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert set(done.stdout.split()) == offered, done.stderr


# One each of: a command, an option's value, a value that may hold a blank
@pytest.mark.parametrize("typed", ["agent ", "agent exec --limit o", "agent run --fallback-model s"])
def test_bash_completes(typed: str, tmp_path: Path) -> None:
    """Load the printed script in bash and call its function with the words typed so far, as bash does."""
    words = typed.split(" ")
    script = f"""
        eval "$(agent --show-completion bash)"
        COMP_WORDS=({" ".join(shlex.quote(word) for word in words)}) COMP_CWORD={len(words) - 1}
        _agent_completion agent
        printf '%s\\n' "${{COMPREPLY[@]}}"
    """
    path = f"{Path(AGENT).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "--norc", "-c", script],
        env={"PATH": path, "HOME": str(tmp_path)}, cwd=tmp_path, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert set(done.stdout.split()) == dict(COMPLETIONS)[typed], done.stderr
