"""The connection of a session to a remote tool server, with the tokens of the user or the credentials of a machine.

This module imports the protocol library, which is slow to import. Import it only while a remote server is used.
"""

from collections.abc import Mapping

from runner.mcp.http import RemoteAuth, RemoteConnection, open_remote
from runner.mcp.machine_sign_in import MachineAuth, machine_credentials
from runner.mcp.server_config import ServerConfig
from runner.mcp.sign_in import Connecting, StoredAuth
from runner.mcp.tokens import TokenStore
from sandbox.backend import DIRECT, NetworkOptions


def session_connection(
    config: ServerConfig, environ: Mapping[str, str], network: NetworkOptions = DIRECT
) -> RemoteConnection:
    """Return the transport of a remote server for a session. Raises ProblemError for a wrong configuration.

    Without a token the first request fails with a Problem that names `agent mcp login`. No browser opens.
    """
    return open_remote(config, network, session_auth(config, environ, network))


def session_auth(config: ServerConfig, environ: Mapping[str, str], network: NetworkOptions = DIRECT) -> RemoteAuth:
    """Return the source of the tokens of a server: credentials in variables first, then the keyring."""
    credentials = machine_credentials(config.name, environ)
    if credentials is not None:
        return MachineAuth(config, credentials, Connecting(network))
    return StoredAuth(config, TokenStore(environ), Connecting(network))
