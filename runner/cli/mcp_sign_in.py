"""`agent mcp login` and `agent mcp logout`: sign in to remote tool servers, and remove their tokens."""

import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from policy.model.verdict import Problem
from runner.agent.options import not_known
from runner.cli.gate import CONFIG, CWD, argument, completing, switch, valued
from runner.problems import Exit, Stopped, usage
from runner.stderr import say_notice
from runner.text.sanitize import visible

if TYPE_CHECKING:
    from runner.mcp.callback_server import CallbackServer
    from runner.mcp.configured import ConfiguredServers
    from runner.mcp.server_config import ServerConfig
    from runner.mcp.tokens import TokenSet
    from runner.secrets.keyring_store import KeyringFailed


@completing
def _names() -> Iterable[str]:
    from runner.cli.mcp_settings import known_names

    return known_names()


SERVER = Annotated[str, argument("NAME", "The name of a remote server.", complete=_names)]
MAYBE = Annotated[str | None, argument("NAME", "The name of a remote server.", complete=_names)]


def login(
    name: SERVER,
    no_browser: Annotated[bool, switch("--no-browser", help="Show the address and open no browser.")] = False,
    scope: Annotated[
        list[str] | None, valued("--scope", "SCOPE", "A right to ask for, in addition; can be repeated.")
    ] = None,
    client_id: Annotated[
        str | None,
        valued("--client-id", "ID", "Your registration at the issuer, or the https address of a client document."),
    ] = None,
    secret_stdin: Annotated[
        bool, switch("--client-secret-stdin", help="Read the secret of --client-id from standard input.")
    ] = False,
    config: CONFIG = None,
    cwd: CWD = None,
) -> int:
    """Sign in to a remote tool server by the browser, and store its tokens in the keyring of the system.

    The whole address is shown before the browser opens; the browser returns to this command on 127.0.0.1. The tokens
    are stored for this server and this issuer only. A session renews them, and never opens a browser.

    Without --client-id the program registers itself at the issuer. On a machine without a user, such as in CI, set
    variables in place of this command (docs/guide/mcp.md).

    **Examples**

        agent mcp login github
        agent mcp login github --scope repo --scope read:org
        agent mcp login github --no-browser
        pass show tracker | agent mcp login tracker --client-id my-client --client-secret-stdin
    """
    from runner.gate.gate import folder

    if secret_stdin and client_id is None:
        raise usage("--client-secret-stdin needs --client-id", "a secret belongs to a registration", "add --client-id")
    server = _server(name, config, cwd)
    return _sign_in(server, config, folder(cwd), not no_browser, tuple(scope or ()), client_id or "", secret_stdin)


def logout(
    name: MAYBE = None,
    everything: Annotated[bool, switch("--all", help="The tokens of all servers.")] = False,
    config: CONFIG = None,
    cwd: CWD = None,
) -> int:
    """Remove the tokens of a remote tool server from the keyring of the system, and ask the issuer to revoke them.

    If the issuer cannot revoke tokens or does not answer, the command says so: the tokens stay valid there until they
    end, or until you revoke them in your account. With --all, the tokens of servers that are no longer configured are
    removed as well, without a request to their issuers.

    **Examples**

        agent mcp logout github
        agent mcp logout --all
    """
    from runner.gate.gate import folder
    from runner.mcp.tokens import TokenStore, server_key
    from runner.secrets.keyring_store import KeyringFailed

    if (name is None) != everything:
        why = "one server or all of them can be meant"
        raise usage("name one server, or add --all", why, "write `agent mcp logout NAME` or `agent mcp logout --all`")
    store = TokenStore(os.environ)
    servers = [_server(name, config, cwd)] if name is not None else _remote_servers(config, cwd)
    known: dict[str, tuple[ServerConfig, TokenSet]] = {}
    try:
        for server in servers:
            if (tokens := store.read(server.url)) is not None:
                known[tokens.server] = server, tokens
        if name is None:
            removed = store.remove_all()
        else:
            removed = (server_key(servers[0].url),) if store.remove(servers[0].url) else ()
    except KeyringFailed as error:
        raise _keyring_failed("the tokens were not removed", error) from None
    for address in removed:
        print(visible(f"the tokens are removed: {address}", lines=False), flush=True)
        if address in known:
            print(visible(_revoked(*known[address], config, folder(cwd)), lines=False))
    if not removed and name is not None:
        problem = Problem(f"there are no tokens of `{name}`", "nobody has signed in to it", f"`agent mcp login {name}`")
        raise Stopped(problem, Exit.FAILED)
    if not removed:
        print("there are no tokens of tool servers")
    return Exit.DONE


def _remote_servers(config: str | None, cwd: str | None) -> "list[ServerConfig]":
    """Return the configured remote servers; none if the configuration cannot be used."""
    from policy.model.verdict import ProblemError
    from runner.gate.gate import folder
    from runner.mcp.configured import servers_here

    try:
        found = servers_here(folder(cwd), os.environ, config=Path(config) if config else None)
    except ProblemError as error:
        say_notice(f"no issuer is asked to revoke tokens: {error.problem.what}")
        return []
    return [each for each in found.servers if each.url]


def _revoked(server: "ServerConfig", tokens: "TokenSet", config: str | None, workspace: Path) -> str:
    """Ask the issuer to revoke the tokens, and return the result in words."""
    import asyncio

    from runner.config import load

    try:
        from runner.mcp.sign_in import Connecting, revoke
    except ImportError as error:
        why = f"the package `{error.name or 'mcp'}` is not installed"
    else:
        settings = load(workspace, os.environ, config=Path(config) if config else None)
        why = asyncio.run(revoke(tokens, server, Connecting(settings.network)))
    if not why:
        return f"the issuer {tokens.issuer} revoked them"
    return f"the issuer {tokens.issuer} did not revoke them ({why}): they stay valid there until they end"


def _server(name: str, config: str | None, cwd: str | None) -> "ServerConfig":
    """Return the settings of the remote server `name`. Raises a usage error, also for a server on this machine."""
    from runner.gate.gate import folder
    from runner.mcp.configured import names_of, servers_here

    found: ConfiguredServers = servers_here(folder(cwd), os.environ, config=Path(config) if config else None)
    for fault in found.faults:
        if fault.name == name:
            raise Stopped(fault.problem, Exit.USAGE)
    server = next((each for each in found.servers if each.name == name), None)
    if server is None:
        why = "the configuration has no server with this name"
        raise not_known(f"`{name}` is not a tool server", why, name, names_of(found), "see `agent mcp list`")
    if not server.url:
        why = "only remote servers, which have a `url`, have a sign-in"
        raise usage(f"`{name}` is a server on this machine", why, "give it what it needs by `env`")
    if any(header.lower() == "authorization" for header, _ in server.headers):
        why = f"`headers` in {server.place or 'its table'} sets `Authorization`, which is sent in place of a token"
        raise usage(f"`{name}` does not use a sign-in", why, "remove that header")
    return server


def _sign_in(
    server: "ServerConfig",
    config: str | None,
    workspace: Path,
    browser: bool,
    scopes: tuple[str, ...],
    client_id: str,
    secret_stdin: bool,
) -> int:
    import asyncio

    from runner.config import load
    from runner.mcp.tokens import TokenStore
    from runner.providers.key_options import piped_key
    from runner.secrets.keyring_store import KeyringFailed, KeyringStore

    secret = piped_key(whole=True) if secret_stdin else None
    keyring = KeyringStore()
    store = TokenStore(os.environ, keyring)
    try:
        kept_in = keyring.name()  # fail before the user signs in
        earlier = store.read(server.url)
    except KeyringFailed as error:
        raise _keyring_failed("the tokens could not be stored", error) from None
    settings = load(workspace, os.environ, config=Path(config) if config else None)
    wanted = " ".join(dict.fromkeys((*(earlier.scope.split() if earlier and scopes else ()), *scopes)))

    async def show(address: str, callback: "CallbackServer") -> None:
        _show(server, address, browser, str(workspace))

    try:
        from runner.mcp.sign_in import ClientIdentity, Connecting, sign_in
    except ImportError as error:
        raise _without_library(error) from None
    identity = ClientIdentity(client_id, secret)
    tokens = asyncio.run(sign_in(server, show, connecting=Connecting(settings.network), client=identity, scopes=wanted))
    try:
        store.write(tokens)
    except KeyringFailed as error:
        raise _keyring_failed("the tokens were not stored", error) from None
    rights = f", with the rights {tokens.scope}" if tokens.scope else ""
    text = f"signed in to {server.name} at {tokens.issuer}{rights}; the tokens are in the {kept_in}"
    print(visible(text, lines=False))
    return Exit.DONE


def _show(server: "ServerConfig", address: str, browser: bool, workspace: str) -> None:
    """Show the whole address of a sign-in, and open it if `browser` is True."""
    from urllib.parse import parse_qs, urlsplit

    from runner.mcp.browser import open_browser

    host, own = urlsplit(address).hostname or "", urlsplit(server.url).hostname or ""
    opened = browser and open_browser(address, os.environ, workspace)
    action = "the browser opens this address" if opened else "open this address in your browser"
    print(visible(f"{server.name} asks you to sign in at {host}; {action}:", lines=False))
    if any(label.startswith("xn--") for label in host.split(".")):
        print("note: the name of this host contains letters of other alphabets, which can look like another name")
    print(visible(address, lines=False), flush=True)
    if scopes := parse_qs(urlsplit(address).query).get("scope"):
        print(visible(f"it asks for these rights: {scopes[0]}", lines=False), flush=True)
    if host.split(".")[-2:] != own.split(".")[-2:]:
        # THREAT T191: an issuer that ignores `resource` gives a token for all of its services.
        print(visible(f"note: {own} gets a token of {host}; go on only if the two belong together", lines=False))


def _without_library(error: ImportError) -> Stopped:
    why = f"the package `{error.name or 'mcp'}` is not installed"
    return Stopped(Problem("remote tool servers cannot be used", why, "install `ringfence[mcp]`"), Exit.USAGE)


def _keyring_failed(what: str, error: "KeyringFailed") -> Stopped:
    fix = error.fix or "set up a keyring of the system, or use credentials in variables (docs/guide/mcp.md)"
    return Stopped(Problem(what, f"the keyring: {error.why}", fix), Exit.FAILED)
