"""Tests of every `--help` (usage, examples, width of 80 columns) and of shell completion."""

import inspect
import json
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
from tests.support.agent_program import AGENT


def commands(group: Any, before: str = "") -> list[str]:
    """Every command there is, by its words."""
    found = []
    for name, each in group.commands.items():
        found += [f"{before}{name}", *(commands(each, f"{before}{name} ") if hasattr(each, "commands") else ())]
    return found


WHOLE = whole_command()
COMMANDS = ["", *commands(WHOLE)]
BY_EXECVE = ("", "exec", "audit list")  # the others run one after the other in one process
# Runs `agent` with the words and variables of each row, and prints the exit code and both outputs as a line of JSON.
IN_ONE_PROCESS = """
import io, json, os, sys
from runner.cli.main import main
sys.argv[0] = "agent"
for words, environ in json.load(sys.stdin):
    os.environ.clear()
    os.environ.update(environ)
    sys.argv[1:] = words
    written = io.BytesIO(), io.BytesIO()
    sys.stdout, sys.stderr = (io.TextIOWrapper(each, "utf-8") for each in written)
    try:
        code = main()
    except SystemExit as ended:
        code = ended.code
    sys.stdout.flush()
    sys.stderr.flush()
    print(json.dumps([code, *(each.getvalue().decode() for each in written)]), file=sys.__stdout__, flush=True)
"""
Answer = tuple[int, str, str]  # exit code, standard output, standard error


def environment(home: Path, **more: str) -> dict[str, str]:
    return {"PATH": os.environ["PATH"], "HOME": str(home), "LC_ALL": "C.UTF-8", **more}


def answers(home: Path, rows: list[tuple[list[str], dict[str, str]]]) -> list[Answer]:
    """Run `agent` with the words and the variables of each row, one after the other in one process."""
    done = forked_agent.run(
        [sys.executable, "-c", IN_ONE_PROCESS], env=environment(home), cwd=home, input=json.dumps(rows),
        capture_output=True, text=True,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    return [(code, out, err) for code, out, err in map(json.loads, done.stdout.splitlines())]


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Answer]:
    """Return what `agent COMMAND --help` answers for each command."""
    home = tmp_path_factory.mktemp("home")
    environ = environment(home, COLUMNS="80")
    rows = [([*command.split(), "--help"], environ) for command in COMMANDS]
    return dict(zip(COMMANDS, answers(home, rows), strict=True))


def shown(command: str, pages: dict[str, Answer]) -> str:
    code, text, errors = pages[command]
    assert (code, errors) == (0, "")
    return text


@pytest.mark.parametrize("command", BY_EXECVE, ids=[command or "agent" for command in BY_EXECVE])
def test_a_process_of_its_own_shows_the_same_page(command: str, pages: dict[str, Answer], tmp_path: Path) -> None:
    done = subprocess.run(
        [AGENT, *command.split(), "--help"], env=environment(tmp_path, COLUMNS="80"), cwd=tmp_path,
        capture_output=True, text=True,
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == pages[command]


@pytest.mark.parametrize("command", COMMANDS, ids=[command or "agent" for command in COMMANDS])
def test_help_teaches_by_examples_and_fits(command: str, pages: dict[str, Answer]) -> None:
    text = shown(command, pages)
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


def test_help_says_what_the_exit_codes_mean_where_scripts_ask(pages: dict[str, Answer]) -> None:
    for command in ("", "run", "exec"):
        assert "3 policy denied" in " ".join(shown(command, pages).split())


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


@pytest.fixture(scope="module")
def completions(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Answer]:
    """Return what `agent` answers to bash for the words of each row.

    The variables are those that the printed function gives to `agent`; `test_bash_completes` is about the function.
    """
    home = tmp_path_factory.mktemp("home")
    rows: list[tuple[list[str], dict[str, str]]] = []
    for typed, _ in COMPLETIONS:
        words = typed.split(" ")
        asked = {"COMP_WORDS": "\n".join(words), "COMP_CWORD": str(len(words) - 1), "_AGENT_COMPLETE": "complete_bash"}
        rows.append(([], environment(home, **asked)))
    return dict(zip((typed for typed, _ in COMPLETIONS), answers(home, rows), strict=True))


@pytest.mark.parametrize(("typed", "offered"), COMPLETIONS, ids=[typed for typed, _ in COMPLETIONS])
def test_what_the_completion_of_bash_asks_for_is_answered(
    typed: str, offered: set[str], completions: dict[str, Answer]
) -> None:
    _, text, errors = completions[typed]
    assert set(text.split()) == offered, errors


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
