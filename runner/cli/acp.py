"""`agent acp`: sessions for editors."""

from runner.agent.options import Given
from runner.agent.startup import run_args
from runner.cli.gate import takes_options


@takes_options("acp")
def acp(given: Given) -> int:
    """Serve an editor, by the Agent Client Protocol (ACP), version 1, on standard input and output.

    The editor starts this command from its settings (docs/guide/editors.md has them for Zed, Neovim and Emacs). Each
    session has a folder, a record and a lock of its own. Every action passes the gate; questions appear in the editor
    with the rights that an answer gives. Files and terminals of the editor are not used.

    Keys are those of every other command: the environment, the keyring, or a helper (`agent auth status`).

    **Examples**

        agent acp
        agent acp --mode accept-edits
        agent acp --model anthropic:claude-sonnet-5-5
    """
    from runner.frontends.acp.command import start_acp

    return start_acp(run_args(given))
