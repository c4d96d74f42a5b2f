"""The sign-in of a machine to remote tool servers, such as in CI: variables name the credentials, and no browser opens.

Three grants are supported: client credentials with a secret, with a signed assertion (RFC 7523), and an identity that a
company's identity provider vouches for (token exchange, RFC 8693, then the JWT bearer grant). The user names the
issuer, and credentials are sent to that issuer only. Tokens stay in memory.

This module imports the protocol library, which is slow to import. Import it only while a remote server is used.
"""

import asyncio
import re
import time
from collections.abc import Mapping

import httpx2
from mcp.client.auth.extensions.client_credentials import (
    ClientCredentialsOAuthProvider,
    PrivateKeyJWTOAuthProvider,
    SignedJWTParameters,
)
from mcp.client.auth.extensions.identity_assertion import IdentityAssertionOAuthProvider

from policy.model.frozen import dataclass
from policy.model.verdict import Problem, ProblemError
from runner.mcp.http import Challenge, json_object, unsigned
from runner.mcp.server_config import ServerConfig
from runner.mcp.sign_in import Connecting, MemoryStorage, checked_tokens, obtain
from runner.mcp.tokens import canonical_url
from runner.secrets.secret import Secret
from runner.web.pinned_http import BrokenAnswer, RemoteRefused

_EXCHANGE = "urn:ietf:params:oauth:grant-type:token-exchange"
_ID_TOKEN = "urn:ietf:params:oauth:token-type:id_token"  # noqa: S105  # the name of a kind of token
_ID_JAG = "urn:ietf:params:oauth:token-type:id-jag"
_EARLY = 30.0  # seconds before its end at which a token counts as expired
PREFIX = "RINGFENCE_MCP_"


@dataclass(frozen=True, slots=True)
class MachineCredentials:
    """The credentials of a machine for one server. One of `client_secret` and `private_key` is set.

    Attributes:
        issuer: The issuer to which the credentials belong.
        client_id: The registration at the issuer.
        client_secret: The secret of the registration.
        private_key: The key that signs assertions, in the format PEM.
        algorithm: The algorithm of the signature, such as `ES256`.
        scope: The scopes to request, separated by blanks.
        id_token: The token of the company's identity provider, or None.
        id_endpoint: The address at which the identity provider exchanges `id_token`.
        id_client: The registration at the identity provider.
    """

    issuer: str
    client_id: str
    client_secret: Secret | None = None
    private_key: Secret | None = None
    algorithm: str = "RS256"
    scope: str = ""
    id_token: Secret | None = None
    id_endpoint: str = ""
    id_client: str = ""


def machine_credentials(name: str, environ: Mapping[str, str]) -> MachineCredentials | None:
    """Return the credentials that variables name for the server `name`; None without `RINGFENCE_MCP_NAME_CLIENT_ID`.

    Raises ProblemError if they are incomplete.
    """
    start = f"{PREFIX}{re.sub(r'[-.]', '_', name.upper())}_"

    def text(key: str) -> str:
        return environ.get(start + key, "").strip()

    if not text("CLIENT_ID"):
        return None
    secrets = {key: Secret(text(key)) if text(key) else None for key in ("CLIENT_SECRET", "PRIVATE_KEY", "ID_TOKEN")}
    made = MachineCredentials(
        issuer=text("ISSUER"),
        client_id=text("CLIENT_ID"),
        client_secret=secrets["CLIENT_SECRET"],
        private_key=secrets["PRIVATE_KEY"],
        algorithm=text("ALGORITHM") or "RS256",
        scope=text("SCOPE"),
        id_token=secrets["ID_TOKEN"],
        id_endpoint=text("ID_ENDPOINT"),
        id_client=text("ID_CLIENT"),
    )
    missing = ""
    if not made.issuer:
        missing = "ISSUER"
    elif (made.client_secret is None) == (made.private_key is None):
        missing = "CLIENT_SECRET or PRIVATE_KEY"
    elif made.id_token is not None and (not made.id_endpoint or made.client_secret is None):
        missing = "ID_ENDPOINT and CLIENT_SECRET"
    if missing:
        what = f"the credentials of the tool server {name} are not complete"
        why = f"`{start}CLIENT_ID` is set, and of {missing} exactly one must be set with it"
        raise ProblemError(Problem(what, why, f"set `{start}{missing.partition(' ')[0]}`, or unset `{start}CLIENT_ID`"))
    return made


class MachineAuth:
    """The tokens of one server in a session, which the credentials of a machine obtain."""

    def __init__(self, config: ServerConfig, credentials: MachineCredentials, connecting: Connecting) -> None:
        self._config, self._credentials, self._connecting = config, credentials, connecting
        self._access: Secret | None = None
        self._expires = 0.0
        self._lock = asyncio.Lock()

    async def token(self) -> Secret | None:
        """Return the token for the next request; None before the server has asked for one."""
        async with self._lock:
            if self._access is not None and self._expires and time.time() > self._expires - _EARLY:
                await self._obtain(Challenge(401))
            return self._access

    async def renewed(self, refused: Secret | None, challenge: Challenge) -> Secret:
        """Return another token after the server refused `refused`. Raises ProblemError if there is none."""
        async with self._lock:
            if self._access is None or self._access == refused:
                await self._obtain(challenge)
            if self._access is None or self._access == refused:
                raise ProblemError(unsigned(self._config.name, challenge))
            return self._access

    async def _obtain(self, challenge: Challenge) -> None:
        storage = MemoryStorage()
        await obtain(self._provider(storage), self._config, self._connecting, challenge)
        if storage.tokens is None:
            raise ProblemError(unsigned(self._config.name, challenge))
        self._access, _ = checked_tokens(storage.tokens, self._config)
        self._expires = time.time() + storage.tokens.expires_in if storage.tokens.expires_in else 0.0

    def _provider(self, storage: MemoryStorage) -> httpx2.Auth:
        known = self._credentials
        server, scope = canonical_url(self._config.url), known.scope or None
        if known.id_token is not None and known.client_secret is not None:
            return IdentityAssertionOAuthProvider(
                server,
                storage,
                known.client_id,
                known.client_secret.reveal(),
                known.issuer,
                self._assertion,
                scope,
                token_endpoint_auth_method="client_secret_basic",  # noqa: S106  # the name of a method
            )
        if known.client_secret is not None:
            return ClientCredentialsOAuthProvider(
                server, storage, known.client_id, known.client_secret.reveal(), scope=scope, issuer=known.issuer
            )
        assert known.private_key is not None
        signed = SignedJWTParameters(
            issuer=known.client_id,
            subject=known.client_id,
            signing_key=known.private_key.reveal(),
            signing_algorithm=known.algorithm,
        )
        return PrivateKeyJWTOAuthProvider(
            server, storage, known.client_id, signed.create_assertion_provider(), scope, issuer=known.issuer
        )

    async def _assertion(self, audience: str, resource: str) -> str:
        """Return the assertion of the identity provider for the issuer `audience` and the server `resource`."""
        known = self._credentials
        assert known.id_token is not None
        form = {
            "grant_type": _EXCHANGE,
            "requested_token_type": _ID_JAG,
            "subject_token": known.id_token.reveal(),
            "subject_token_type": _ID_TOKEN,
            "audience": audience,
            "resource": resource,
            "client_id": known.id_client or known.client_id,
        }
        transport = self._connecting.to_issuer(self._config)
        what = f"the sign-in to {self._config.name} failed"
        try:
            response = await transport.handle_async_request(httpx2.Request("POST", known.id_endpoint, data=form))
            content = json_object(await response.aread())
        except (RemoteRefused, BrokenAnswer) as error:
            raise ProblemError(Problem(what, f"{error.problem.what}: {error.problem.why}", error.problem.fix)) from None
        finally:
            await transport.aclose()
        given = content.get("access_token")
        if response.status_code != 200 or not isinstance(given, str) or content.get("issued_token_type") != _ID_JAG:
            why = f"the identity provider gave no assertion (status {response.status_code})"
            raise ProblemError(Problem(what, why, "check the token of the identity provider"))
        return Secret(given).reveal()
