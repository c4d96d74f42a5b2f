"""`agent mcp pin`: approve what a tool server offers, and only that."""

from collections.abc import Iterable
from typing import Annotated

from runner.cli.gate import CONFIG, CWD, JSON, argument, completing, switch, valued


@completing
def _server_names() -> Iterable[str]:
    from runner.cli.mcp_settings import known_names

    return known_names()


SERVER = Annotated[str, argument("NAME", "The name of a server.", complete=_server_names)]


def mcp_pin(
    name: SERVER,
    tool: Annotated[
        list[str] | None, valued("--tool", "TOOL", "Approve this tool by its name; can be repeated.")
    ] = None,
    yes: Annotated[bool, switch("--yes", help="Approve without a question.")] = False,
    sha256: Annotated[
        str, valued("--sha256", "HASH", "Approve without a question if the digest is HASH, as --json prints it.")
    ] = "",
    json: JSON = False,
    config: CONFIG = None,
    cwd: CWD = None,
) -> int:
    """Start a server in its sandbox, show what it offers or what changed, and ask whether you approve it.

    The model gets the approved tools, as long as their definitions, the instructions, the command line and the package
    of the server stay the same. A tool with a warning, such as one with hidden characters or with orders for the model,
    is approved only by its name. Tools that were approved before stay approved. Without a terminal, and with --json,
    nothing is approved without --yes or --sha256.

    **Examples**

        agent mcp pin github
        agent mcp pin files --tool read_file --tool list_directory
        agent mcp pin github --json | jq '.tools[] | select(.warnings != [])'
        agent mcp pin github --yes
        agent mcp pin github --sha256 "$GITHUB_SERVER_PIN"      in CI, where no pin is stored
    """
    from runner.frontends.servers.pin import PinArgs, run_pin
    from runner.frontends.servers.trial import TrialArgs

    return run_pin(PinArgs(TrialArgs(name, cwd, config, json), tuple(tool or ()), yes, sha256))
