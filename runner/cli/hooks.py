"""`agent hooks`: the hooks of the configuration, a trial of one event, and the hooks of other programs."""

from collections.abc import Iterable
from typing import Annotated

import typer

from runner.cli.gate import CONFIG, CWD, JSON, argument, completing, state_alone, switch, valued

HELP = """List, try and import hooks: programs that are asked at events of a session.

A hook runs in a sandbox of its own. It reads the workspace, has no network, and gets more only by your configuration.
Hooks of a repository run only if you trust exactly their content. Without a command, the hooks are listed.

**Examples**

    agent hooks
    agent hooks test PreToolUse --input '{"command": "ls"}'
    agent hooks import claude --dry-run
"""

hooks_app = typer.Typer(help=HELP, invoke_without_command=True, rich_markup_mode="markdown")


@completing
def _events() -> Iterable[str]:
    from runner.config.hookfiles.hook import EVENTS

    return EVENTS


@completing
def _clients() -> Iterable[str]:
    from runner.config.hookfiles.read_hooks import HOOK_CLIENTS

    return HOOK_CLIENTS


@hooks_app.command("list")
def listing(json: JSON = False, config: CONFIG = None, cwd: CWD = None) -> int:
    """List the hooks of this folder: the event, the state, the file and line, the rights, and how often each ran.

    The state is `on`, `fault`, or `untrusted` for a file of the repository that you do not trust. The runs are those in
    the audit log.

    **Examples**

        agent hooks list
        agent hooks list --json | jq -r 'select(.runs == 0) | .place'
    """
    from runner.cli.hooks_actions import run_list

    return run_list(as_json=json, config=config, cwd=cwd)


@hooks_app.command("test")
def trial(
    event: Annotated[str, argument("EVENT", "The event, such as PreToolUse.", complete=_events)],
    tool: Annotated[str, valued("--tool", "NAME", "The tool of the call: bash, edit, mcp__NAME__TOOL.")] = "bash",
    input: Annotated[str, valued("--input", "JSON", "The arguments of the call, or the fields of the event.")] = "{}",
    json: JSON = False,
    config: CONFIG = None,
    cwd: CWD = None,
) -> int:
    """Run the hooks of one event with a sample input, in their sandboxes, and print their answers.

    No model is asked and no call is made. The runs are recorded. Exit 3: a hook denies. Exit 1: a hook failed.

    **Examples**

        agent hooks test PreToolUse --tool bash --input '{"command": "ls"}'
        agent hooks test UserPromptSubmit --input '{"prompt": "hello"}'
        agent hooks test Stop --json | jq .decision
    """
    from runner.cli.hooks_actions import HookTrial, run_trial

    return run_trial(HookTrial(event, tool, input, json, config, cwd))


@hooks_app.command("import")
def import_(
    source: Annotated[
        str | None, argument("CLIENT | FILE", "claude, codex, gemini, or a file (default: all).", complete=_clients)
    ] = None,
    dry_run: Annotated[bool, switch("--dry-run", help="Print the entries, and write nothing.")] = False,
    json: JSON = False,
    cwd: CWD = None,
) -> int:
    """Copy the hooks of another program into your configuration, as `[[hook]]` entries.

    The entries are printed first. On a terminal you are asked before they are written. No right is added: give a hook
    that changes files `write = ["."]`, and one that uses the network `hosts`. A client's own file stays in use as well
    unless `hooks.files` leaves it out.

    **Examples**

        agent hooks import --dry-run
        agent hooks import claude
        agent hooks import .claude/settings.json --json | jq .event
    """
    from runner.cli.hooks_actions import run_import

    return run_import(source, dry_run=dry_run, as_json=json, cwd=cwd)


state_alone(hooks_app, "hooks", lambda json: listing(json=json))
