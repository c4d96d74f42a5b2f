"""`agent policy`: the matrix, and verdicts in bulk."""

import sys

import typer

from runner.cli_gate import CONFIG, CWD, JSON, MODE, UNATTENDED

HELP = """Look at the policy: the permission matrix, and verdicts in bulk.

For one command, with every reason: `agent why`.

**Examples**

    agent policy matrix
    agent policy judge < scripts.jsonl
"""

policy_app = typer.Typer(help=HELP, no_args_is_help=True, rich_markup_mode="markdown")


@policy_app.command("matrix")
def matrix(json: JSON = False) -> int:
    """Print the permission matrix: what each mode does with each kind of risk.

    An action gets the strictest cell of all its tiers. Where nobody can be asked, `ask` means deny.

    **Examples**

        agent policy matrix
        agent policy matrix --json | jq .network
    """
    from policy.matrix_text import rows, table

    if json:
        from json import dumps

        heading, *found = rows()
        print(dumps({row[0]: dict(zip(heading[1:], row[1:], strict=True)) for row in found}))
    else:
        print(table(), end="")
    return 0


@policy_app.command("judge")
def judge(
    mode: MODE = None,
    unattended: UNATTENDED = False,
    cwd: CWD = None,
    config: CONFIG = None,
) -> int:
    """Judge many scripts: JSON lines in on stdin, JSON lines out. Runs nothing.

    In:  {"id": 1, "cmd": "git status"}

    Out: {"id": 1, "verdict": "allow", "tiers": ["read"], "reasons": [...]}

    **Examples**

        agent policy judge < scripts.jsonl
        echo '{"id": 1, "cmd": "git status"}' | agent policy judge
    """
    from runner.judge import judge_lines

    return judge_lines(sys.stdin.buffer, sys.stdout, mode=mode, unattended=unattended, cwd=cwd, config=config)
