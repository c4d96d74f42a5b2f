"""The client program that the conformance suite of the protocol starts, with the transport and the sign-in of the product.

The last argument is the address of the server, which runs on this machine; the variables MCP_CONFORMANCE_SCENARIO and
MCP_CONFORMANCE_CONTEXT describe the scenario. Like the product, the client connects without a token, signs in as
`agent mcp login` does when the server asks for it, and then connects again.
"""

import asyncio
import json
import os
import sys
from pathlib import Path
from urllib.parse import urlsplit

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import httpx2
from mcp import types
from mcp.client import Client

from policy.model.profile import Layer
from policy.model.verdict import ProblemError
from runner.mcp.http import Challenge, RemoteConnection, open_remote
from runner.mcp.machine_sign_in import MachineAuth, machine_credentials
from runner.mcp.server_config import ServerConfig
from runner.mcp.sign_in import ClientIdentity, Connecting, StoredAuth, sign_in
from runner.mcp.tokens import TokenSet
from runner.secrets.secret import Secret

DOCUMENT = "https://conformance-test.local/client-metadata.json"  # the address that the suite expects of every client
CALLS = {
    "tools_call": ("add_numbers", {"a": 5, "b": 3}),
    "sse-retry": ("test_reconnection", {}),
    "elicitation-sep1034-client-defaults": ("test_client_elicitation_defaults", {}),
}
MOST_SIGN_INS = 2  # one, and one for more scopes


class MemoryTokens:
    """A store of tokens without a keyring."""

    def __init__(self) -> None:
        self.tokens: TokenSet | None = None

    def read(self, url: str) -> TokenSet | None:
        return self.tokens

    def write(self, tokens: TokenSet) -> None:
        self.tokens = tokens


async def browser(address: str, callback) -> None:
    """Do what a browser does: get the address of the issuer and follow its redirect to the callback server."""
    async with httpx2.AsyncClient(trust_env=False) as client:
        answer = await client.get(address, follow_redirects=False)
        back = answer.headers["location"]
        assert back.startswith(callback.address), back
        await client.get(back)


async def accept(context, params) -> types.ElicitResult:
    """Accept a form with the defaults of its fields."""
    fields = params.requested_schema.get("properties", {})
    return types.ElicitResult(
        action="accept", content={name: each["default"] for name, each in fields.items() if "default" in each}
    )


async def use(connection: RemoteConnection, scenario: str) -> None:
    callbacks = {"elicitation_callback": accept} if scenario.startswith("elicitation") else {}
    async with Client(connection, **callbacks) as client:
        tools = (await client.list_tools()).tools
        if scenario in CALLS:
            await client.call_tool(*CALLS[scenario])
        elif scenario.startswith("auth/"):
            await client.call_tool(tools[0].name if tools else "test-tool", {})


def machine(config: ServerConfig, scenario: str, said: dict, issuer: str) -> MachineAuth | None:
    """Return the credentials of a scenario for machines, which the user of the product gives in variables."""
    if not any(word in scenario for word in ("client-credentials", "cross-app")):
        return None
    named = {
        "CLIENT_ID": said.get("client_id", ""),
        "CLIENT_SECRET": said.get("client_secret", ""),
        "PRIVATE_KEY": said.get("private_key_pem", ""),
        "ALGORITHM": said.get("signing_algorithm", ""),
        "ID_TOKEN": said.get("idp_id_token", ""),
        "ID_ENDPOINT": said.get("idp_token_endpoint", ""),
        "ID_CLIENT": said.get("idp_client_id", ""),
        "ISSUER": issuer,
    }
    credentials = machine_credentials("demo", {f"RINGFENCE_MCP_DEMO_{key}": value for key, value in named.items()})
    return MachineAuth(config, credentials, Connecting())


async def issuer_of(url: str) -> str:
    """Return the issuer of the server of the suite, whose port is random. The user of the product names the issuer."""
    parts = urlsplit(url)
    async with httpx2.AsyncClient(trust_env=False) as client:
        for path in (f"/.well-known/oauth-protected-resource{parts.path}", "/.well-known/oauth-protected-resource"):
            answer = await client.get(f"{parts.scheme}://{parts.netloc}{path}")
            if answer.status_code == 200:
                return str(answer.json()["authorization_servers"][0])
    return f"{parts.scheme}://{parts.netloc}"


async def main(url: str, scenario: str, said: dict) -> None:
    config = ServerConfig("demo", Layer.USER, url=url, transport="http", hosts=("localhost:* private",), timeout=20)
    if automatic := machine(config, scenario, said, await issuer_of(url) if "auth/" in scenario else ""):
        await use(open_remote(config, auth=automatic), scenario)
        return
    store = MemoryTokens()
    identity = ClientIdentity(DOCUMENT)
    if said.get("client_id"):
        identity = ClientIdentity(said["client_id"], Secret(said["client_secret"]) if "client_secret" in said else None)
    for sign_ins in range(MOST_SIGN_INS + 1):
        auth = StoredAuth(config, store)
        connection = open_remote(config, auth=auth)
        try:
            await use(connection, scenario)
            return
        except Exception:
            challenge: Challenge | None = auth.challenge
            if challenge is None or sign_ins == MOST_SIGN_INS:
                print(connection.problem, file=sys.stderr)
                raise
            granted = store.tokens.scope if store.tokens else ""
            scopes = f"{granted} {challenge.scope}".strip() if challenge.status == 403 else ""
            try:
                store.tokens = await sign_in(config, browser, client=identity, scopes=scopes, challenge=challenge)
            except ProblemError as error:
                print(error, file=sys.stderr)
                raise


if __name__ == "__main__":
    asyncio.run(
        main(
            sys.argv[-1],
            os.environ.get("MCP_CONFORMANCE_SCENARIO", ""),
            json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT") or "{}"),
        )
    )
