"""`agent policy`: show the permission matrix, test the policy, and judge many scripts."""

import os
import sys
from typing import Annotated

import typer

from policy.model.tier import Mode
from runner.cli.gate import CONFIG, CWD, JSON, MODE, UNATTENDED, argument, state_alone, switch, valued
from runner.cli.reading import print_matrix
from runner.gate.policy_tools.import_rules import AgentProduct, run_import
from runner.text.json_line import json_line

HELP = """Show and test the policy: the permission matrix, tables of expected verdicts, verdicts on many scripts.

For one command, with all reasons: `agent why`.

**Examples**

    agent policy matrix
    agent policy test expected.toml
    agent policy lint
    agent policy import .claude/settings.json
    agent policy judge < scripts.jsonl
    agent policy fingerprint
"""

policy_app = typer.Typer(help=HELP, invoke_without_command=True, rich_markup_mode="markdown")


@policy_app.command("matrix")
def matrix(json: JSON = False) -> int:
    """Print the permission matrix: the ruling of each mode on each tier, a kind of risk.

    An action gets the strictest ruling of all its tiers. If no user can be asked, `ask` means deny.

    **Examples**

        agent policy matrix
        agent policy matrix --json | jq .network
    """
    return print_matrix(json=json)


state_alone(policy_app, "policy", lambda json: matrix(json=json))


@policy_app.command("fingerprint")
def number(cwd: CWD = None, config: CONFIG = None, unattended: UNATTENDED = False, json: JSON = False) -> int:
    """Print the fingerprint of the policy in effect here.

    SHA-256 over the profile with your rules, the command rules and the matrix.

    The same rules have the same fingerprint on every machine and in every file. The audit log has it in the field
    `policy` of each session.

    **Examples**

        agent policy fingerprint
        agent policy fingerprint --config new.toml
        agent audit show last --json | jq -r .session_record.policy
    """
    from policy.evaluation import fingerprint
    from runner.gate.gate import GateArgs, open_gate

    args = GateArgs(script="", argv=None, cwd=cwd, config=config, unattended=unattended)
    settings = open_gate(args, os.environ)[0].settings
    digest = fingerprint(settings.profile, settings.rules)
    row = {"policy": digest, "sources": list(settings.sources), "hashes": dict(settings.hashes)}
    print(json_line(row) if json else digest)
    return 0


@policy_app.command("test")
def expectations(
    files: Annotated[list[str] | None, argument("FILE", "Files with expected verdicts; `-` is standard input.")] = None,
    mode: Annotated[
        Mode | None, valued("--mode", "MODE", "The mode of tests without a mode (default: the mode of the file).")
    ] = None,
    config: Annotated[str | None, valued("--config", "FILE", "A configuration to use for the test.")] = None,
    cwd: Annotated[
        str | None, valued("--cwd", "FOLDER", "The folder to judge in (default: the built-in example workspace).")
    ] = None,
    json: JSON = False,
) -> int:
    """Test the policy: judge lists of scripts and print every verdict that is not the expected one. Runs nothing.

    Without FILE: the packaged tests, by the packaged policy (and --config). With FILE: your tests, by your
    configuration, in an example workspace that is the same on every machine.

    A test file is TOML, or JSON lines such as {"cmd": "git status", "verdict": "allow"}:

        [[test]]
        run = "npm run build"
        verdicts = {default = "ask", trust-project = "allow"}

    Exit 0 if all verdicts are as expected, 1 if some differ, 2 if a file cannot be used.

    **Examples**

        agent policy test
        agent policy test expected.toml --config new-policy.toml
        agent policy test --json expected.jsonl | jq '.differences[].test'
    """
    from runner.gate.policy_tools.expectations import run_tests

    return run_tests(files or [], mode=mode, config=config, cwd=cwd, json=json)


@policy_app.command("lint")
def lint(
    file: Annotated[str | None, argument("FILE", "A configuration file to check before you install it.")] = None,
    strict: Annotated[bool, switch("--strict", help="Exit 1 for warnings too.")] = False,
    cwd: CWD = None,
    json: JSON = False,
) -> int:
    """Find mistakes in your rules: rules without effect, contradictions, and rules that match more than they seem to.

    Without FILE: the configuration in effect here. Each finding is one line: place, severity, code, what to do.

    Exit 0 if there is no error, 1 for warnings with --strict, 2 for errors.

    **Examples**

        agent policy lint
        agent policy lint --strict new-policy.toml
        agent policy lint --json | jq '.findings[].text'
    """
    from runner.gate.policy_tools.lint import run_lint

    return run_lint(file, cwd=cwd, strict=strict, as_json=json)


@policy_app.command("import")
def bring(
    file: Annotated[str, argument("FILE", "The file of the other agent; `-` is standard input.")],
    kind: Annotated[
        AgentProduct | None, valued("--from", "AGENT", "The agent: claude, codex or gemini (default: detected).")
    ] = None,
    out: Annotated[
        str | None, valued("--out", "FILE", "Write the rules to this new file (default: standard output).", short="-o")
    ] = None,
    tests: Annotated[
        str | None, valued("--tests", "FILE", "Write Codex's examples to this file, for `agent policy test`.")
    ] = None,
    json: JSON = False,
) -> int:
    """Convert the permissions of Claude Code, Codex or Gemini CLI into rules.

    The rules are printed as TOML for your configuration. Permissions that cannot be converted are listed on stderr,
    with the reason. A converted rule never allows more than the original permission.

    **Examples**

        agent policy import .claude/settings.json
        agent policy import default.rules -o rules.toml --tests expected.toml
        agent policy import --from gemini --json policy.toml | jq .left
    """

    return run_import(file, kind, as_json_only=json, out=out, tests=tests)


@policy_app.command("judge")
def judge(
    mode: MODE = None,
    unattended: UNATTENDED = False,
    cwd: CWD = None,
    config: CONFIG = None,
) -> int:
    """Judge many scripts: read JSON lines from stdin, print JSON lines. Runs nothing.

    In:  {"id": 1, "cmd": "git status"}

    Out: {"id": 1, "verdict": "allow", "tiers": ["read"], "reasons": [...]}

    **Examples**

        agent policy judge < scripts.jsonl
        echo '{"id": 1, "cmd": "git status"}' | agent policy judge
    """
    from runner.frontends.exec.judge import judge_lines

    return judge_lines(sys.stdin.buffer, sys.stdout, mode=mode, unattended=unattended, cwd=cwd, config=config)
