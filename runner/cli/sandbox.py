"""`agent sandbox show` and `agent sandbox cache`: the rights of commands, and the cache kept between them."""

import os
from typing import Annotated

import typer

from runner.cli.gate import CWD, JSON, show_help, state_alone, switch
from runner.state import paths
from runner.state.workspace import workspace_at
from runner.text.json_line import json_line
from runner.text.sanitize import visible
from sandbox.workspace import tool_cache

SANDBOX = """Show the rights of a command in the sandbox before it runs, and the files kept between commands.

For the sandboxes that this machine supports: `agent doctor`.

**Examples**

    agent sandbox show 'npm test'
    agent sandbox cache
"""

sandbox_app = typer.Typer(help=SANDBOX, invoke_without_command=True, rich_markup_mode="markdown")
sandbox_app.command("show")(show_help)


def _show(json: bool) -> int:
    from runner.frontends.exec.argv import parse_gate
    from runner.frontends.exec.show import run_show

    return run_show(parse_gate("sandbox show", ["--json"] if json else []))


state_alone(sandbox_app, "sandbox", _show)


@sandbox_app.command("cache")
def cache(
    clear: Annotated[
        bool, switch("--clear", help="Empty the cache of this workspace, or with --all every cache.")
    ] = False,
    everything: Annotated[bool, switch("--all", help="Use the caches of all workspaces.")] = False,
    cwd: CWD = None,
    json: JSON = False,
) -> int:
    """Show or empty the cache of the sandbox, where pip, npm, cargo and others keep downloads.

    Every workspace has its own cache. Commands that may change the workspace see it as ~/.cache. Your own caches are
    never changed. The cache of a deleted workspace is removed when a new cache is made.

    **Examples**

        agent sandbox cache
        agent sandbox cache --all
        agent sandbox cache --clear
    """
    from runner.gate.gate import folder

    base = paths.caches(os.environ)
    workspace = workspace_at(str(folder(cwd)), os.environ)
    own = tool_cache.place(base, workspace)
    caches = [each for each in tool_cache.everything(base) if everything or each.folder == own]
    if clear:
        for each in caches:
            tool_cache.clear(each.folder)
        tool_cache.sweep(base)
    if json:
        for at in caches:
            print(json_line({"workspace": at.workspace, "bytes": at.size, "gone": at.gone, "cleared": clear}))
        return 0
    for each in caches:
        words = f"{_size_words(each.size):>9}  {visible(each.workspace, lines=False)}"
        print(f"{words}{'  (deleted workspace)' if each.gone else ''}{', emptied' if clear else ''}")
    if not caches:
        print("there is no cache" if everything else f"there is no cache of {visible(workspace, lines=False)}")
    return 0


def _size_words(size: int) -> str:
    value = float(size)
    for unit in ("B", "KiB", "MiB"):
        if value < 1024:
            return f"{value:.0f} {unit}"
        value /= 1024
    return f"{value:.1f} GiB"
