"""`agent profile`: learn the rights that a command needs."""

from typing import Annotated

import typer

from runner.agent.options import least
from runner.cli.gate import ACCEPT, CONFIG, CWD, JSON, MODE, REQUIRE, UNATTENDED, argument, switch, valued
from runner.problems import usage

HELP = """Learn the rights that a command needs, and write them as a rule.

The command runs without rights outside of the workspace, and you choose which
of the refused rights it gets.

**Examples**

    agent profile learn -- bash install.sh
    agent profile learn --dry-run -- pip install -e .
"""

profile_app = typer.Typer(help=HELP, no_args_is_help=True, rich_markup_mode="markdown")


@profile_app.command("learn")
def learn(
    words: Annotated[list[str] | None, argument("-- CMD...", "The command, after `--`.")] = None,
    mode: MODE = None,
    cwd: CWD = None,
    config: CONFIG = None,
    to: Annotated[
        str | None,
        valued("--to", "FILE", "Write the rule to this file, or to your configuration (`user`), not to the project."),
    ] = None,
    dry_run: Annotated[bool, switch("--dry-run", help="Print the rule; write nothing.")] = False,
    require: REQUIRE = None,
    accept_partial: ACCEPT = False,
    unattended: UNATTENDED = False,
    json: JSON = False,
) -> int:
    """Run a command without rights outside of the workspace, and learn which ones it needs.

    Each round shows one card with everything that the run was refused (hosts and paths), and in the first round what
    the facts about its commands let expect. You choose the rights, and the command runs again with these. At the end a
    rule for exactly this command and these rights is written, by default to `.ringfence/config.local.toml` of the
    project, which applies after `agent trust`.

    Secrets, denied paths, private networks and dangerous commands are never learned. Without a terminal the command
    runs once, and nothing is written.

    **Examples**

        agent profile learn -- bash install.sh
        agent profile learn --to user -- pip install -e .
        agent profile learn --json --dry-run -- make deps
    """
    if not words:
        raise usage("no command is given", "`agent profile learn` runs a command", "write it after `--`")
    from runner.frontends.exec.learn import LearnArgs
    from runner.frontends.exec.learn import learn as learn_command
    from runner.gate.gate import GateArgs

    gate = GateArgs(
        None,
        tuple(words),
        mode=mode,
        unattended=unattended,
        cwd=cwd,
        config=config,
        least=least(accept_partial, require),
    )
    return learn_command(LearnArgs(gate, to, dry_run, json))
