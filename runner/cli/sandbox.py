"""`agent sandbox show` and `agent sandbox cache`: the rights of commands, and the cache kept between them."""

import os
from json import dumps
from typing import Annotated

import typer

from runner.cli.gate import CWD, JSON, show_help, switch
from runner.state import paths
from runner.state.workspace import workspace_at
from runner.text.sanitize import visible
from sandbox.workspace import tool_cache

SANDBOX = """Look at the sandbox: what a command may do inside, before it runs, and what is kept between commands.

Which sandboxes this machine offers: `agent doctor`.

**Examples**

    agent sandbox show 'npm test'
    agent sandbox cache
"""

sandbox_app = typer.Typer(help=SANDBOX, no_args_is_help=True, rich_markup_mode="markdown")
sandbox_app.command("show")(show_help)


@sandbox_app.command("cache")
def cache(
    clear: Annotated[
        bool, switch("--clear", help="Empty the cache of this workspace, or with --all every one.")
    ] = False,
    everything: Annotated[bool, switch("--all", help="Every workspace's, not only this one's.")] = False,
    cwd: CWD = None,
    json: JSON = False,
) -> int:
    """Show what pip, npm, cargo and others keep in the sandbox's own cache, and empty it.

    Every workspace has a cache of its own, seen by the commands in it that may change files, as ~/.cache. Your own
    caches are never changed. The cache of a workspace that is gone is removed when a new one is made.

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
        rows = [{"workspace": at.workspace, "bytes": at.size, "gone": at.gone, "cleared": clear} for at in caches]
        print(dumps(rows))
        return 0
    for each in caches:
        words = f"{_size_words(each.size):>9}  {visible(each.workspace, lines=False)}"
        print(f"{words}{'  (it is gone)' if each.gone else ''}{', emptied' if clear else ''}")
    if not caches:
        print("nothing is kept" if everything else f"nothing is kept for {visible(workspace, lines=False)}")
    return 0


def _size_words(size: int) -> str:
    value = float(size)
    for unit in ("B", "KiB", "MiB"):
        if value < 1024:
            return f"{value:.0f} {unit}"
        value /= 1024
    return f"{value:.1f} GiB"
