"""`agent mcp test`, `agent mcp why` and `agent mcp call`: try one tool server, or explain the verdict on its start."""

from typing import Annotated

from runner.cli.gate import CONFIG, CWD, JSON, MODE, UNATTENDED, argument, switch
from runner.cli.mcp_pin import SERVER

LEAST = Annotated[bool, switch("--least", help="Give the server no right but to read its own installation.")]


def mcp_test(name: SERVER, least: LEAST = False, json: JSON = False, config: CONFIG = None, cwd: CWD = None) -> int:
    """Start a server in its sandbox, and print what it offers and what its sandbox stopped.

    Exit 1: the server did not start, or gave no answer. The last line that it wrote and the rights that it seems to
    need are printed. A server may lie about what it needs.

    **Examples**

        agent mcp test git
        agent mcp test files --least
        agent mcp test github --json | jq '.offered | length'
    """
    from runner.frontends.servers.trial import TrialArgs, run_test

    return run_test(TrialArgs(name, cwd, config, json, least))


def mcp_why(name: SERVER, json: JSON = False, config: CONFIG = None, cwd: CWD = None) -> int:
    """Explain the verdict on the start of a server, and the rights that it would have.

    Nothing is started. The rights are those of its table, its own folder, and its installation.

    **Examples**

        agent mcp why git
        agent mcp why git --json | jq .read
        agent mcp why git --config servers.toml
    """
    from runner.frontends.servers.trial import TrialArgs, run_why

    return run_why(TrialArgs(name, cwd, config, json))


TOOL = Annotated[str, argument("TOOL", "The name of the tool, as `agent mcp test` prints it.")]
ARGUMENTS = Annotated[str, argument("ARGUMENTS", "The arguments of the tool, as a JSON object.")]


def mcp_call(
    name: SERVER,
    tool: TOOL,
    arguments: ARGUMENTS = "{}",
    mode: MODE = None,
    unattended: UNATTENDED = False,
    json: JSON = False,
    config: CONFIG = None,
    cwd: CWD = None,
) -> int:
    """Call one tool of a server yourself, through the same gate as a model.

    The call is judged, recorded, and asked about like a call of a model. Only tools that you approved with
    `agent mcp pin` can be called. Exit 1: the tool failed. Exit 3: the call was denied.

    **Examples**

        agent mcp call git git_status '{"repo_path": "."}'
        agent mcp call time get_current_time '{"timezone": "UTC"}' --json
    """
    from runner.frontends.servers.server_call import ServerCallArgs, run_call
    from runner.frontends.servers.trial import TrialArgs

    return run_call(ServerCallArgs(TrialArgs(name, cwd, config, json), tool, arguments, mode, unattended))
