"""The sign-in to remote tool servers (OAuth 2.1), and the tokens of a session.

The protocol library runs the exchange: metadata of the resource (RFC 9728) and of the issuer (RFC 8414), registration
or a client metadata document, PKCE, `resource` (RFC 8707) and `iss` (RFC 9207). This module sends all of its requests
by the pinned transport, requires PKCE with S256, and refuses tokens for another audience.

This module imports the protocol library, which is slow to import. Import it only while a remote server is used.
"""

import asyncio
import base64
import ssl
import time
from collections.abc import Awaitable, Callable
from urllib.parse import parse_qs, quote, urlsplit

import httpx2
from mcp.client.auth import OAuthClientProvider, OAuthFlowError, OAuthRegistrationError, OAuthTokenError
from mcp.client.auth.utils import is_valid_client_metadata_url, union_scopes
from mcp.shared.auth import AuthorizationCodeResult, OAuthClientInformationFull, OAuthClientMetadata, OAuthToken
from mcp.shared.auth_utils import check_resource_allowed, resource_url_from_server_url
from mcp.shared.inbound import MCP_PROTOCOL_VERSION_HEADER
from pydantic import AnyUrl, ValidationError

from policy.model.frozen import dataclass
from policy.model.verdict import Problem, ProblemError
from runner.mcp.callback_server import CallbackServer, callback_server
from runner.mcp.http import (
    Challenge,
    RemoteTransport,
    challenge_of,
    json_object,
    quiet_library,
    remote_hosts,
    sign_in_transport,
    unsigned,
)
from runner.mcp.server_config import ServerConfig
from runner.mcp.tokens import TokenSet, TokenStore, canonical_url, server_key
from runner.secrets.keyring_store import KeyringFailed
from runner.secrets.secret import Secret, usable
from runner.web.pinned_http import BrokenAnswer, PinnedTransport, RemoteRefused, origin_of
from sandbox.backend import DIRECT, NetworkOptions
from sandbox.egress.dialer import Resolve, resolve

ShowAddress = Callable[[str, CallbackServer], Awaitable[None]]

_VERSION = "2025-11-25"  # the revision that the requests of a sign-in name
_NAME = "ringfence"
_REVOCATION = 20.0  # seconds for all requests of a revocation
_PERSON = 300.0  # seconds until the browser returns
_FORM = {"Content-Type": "application/x-www-form-urlencoded", "Accept": "application/json"}
_QUOTED = 300  # characters of a text of a server in an error


@dataclass(frozen=True, slots=True)
class ClientIdentity:
    """The identity of this program at an issuer. Without an `id` the program registers itself at each sign-in.

    Attributes:
        id: The registration that the user made, or the https address of a client metadata document.
        secret: The secret of the registration, or None.
    """

    id: str = ""
    secret: Secret | None = None

    @property
    def document(self) -> bool:
        """Return True if `id` is the address of a client metadata document."""
        return bool(self.id) and is_valid_client_metadata_url(self.id)


@dataclass(frozen=True, slots=True)
class Connecting:
    """The parts of the connections of a sign-in. Tests replace `context` and `resolver`."""

    network: NetworkOptions = DIRECT
    context: ssl.SSLContext | None = None
    resolver: Resolve = resolve

    def to_server(self, config: ServerConfig) -> RemoteTransport:
        hosts = remote_hosts(config)
        pinned = PinnedTransport(hosts, self.network, context=self.context, resolver=self.resolver)
        return RemoteTransport(config, pinned, None)

    def to_issuer(self, config: ServerConfig) -> PinnedTransport:
        return sign_in_transport(config, self.network, context=self.context, resolver=self.resolver)


class MemoryStorage:
    """The storage of one exchange, which ends with it. `TokenStore` keeps the result."""

    def __init__(self, client: OAuthClientInformationFull | None = None) -> None:
        self.tokens: OAuthToken | None = None
        self.client = client

    async def get_tokens(self) -> OAuthToken | None:
        return self.tokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        self.tokens = tokens

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return self.client

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        self.client = client_info


class _CheckedProvider(OAuthClientProvider):
    """The exchange of the library with further checks before the browser opens and before a token is used."""

    scopes: str = ""
    browsable: Callable[[httpx2.URL], None] | None = None
    # Of a server of before 2025-06, which has no metadata of its resource: an issuer on its own origin, with a path.
    origin_issuer: str = ""

    def note(self, request: httpx2.Request, body: bytes) -> None:
        """Note the issuer that the server's own origin names, if the server has no metadata of its resource."""
        if self.context.auth_server_url is None and request.url.path == "/.well-known/oauth-authorization-server":
            issuer = json_object(body).get("issuer")
            if isinstance(issuer, str) and _same_origin(issuer, self.context.server_url):
                self.origin_issuer = issuer

    def _expected_issuer(self) -> str:
        if self.context.auth_server_url is None and self.origin_issuer:
            return self.origin_issuer
        return super()._expected_issuer()

    async def _perform_authorization_code_grant(self) -> tuple[str, str]:
        metadata = self.context.oauth_metadata
        if metadata is None and self.context.auth_server_url is not None:
            # The library would use addresses of the tool server itself, without the checks that follow.
            raise OAuthFlowError(f"the issuer {self.context.auth_server_url} has no valid metadata")
        if metadata is not None:
            methods = metadata.code_challenge_methods_supported
            if methods is None or "S256" not in methods:
                raise OAuthFlowError(f"the issuer {metadata.issuer} does not support PKCE with S256")
            if self.browsable is not None:
                self.browsable(httpx2.URL(str(metadata.authorization_endpoint)))
        self.context.client_metadata.scope = union_scopes(self.context.client_metadata.scope, self.scopes or None)
        return await super()._perform_authorization_code_grant()


async def sign_in(
    config: ServerConfig,
    show: ShowAddress,
    *,
    connecting: Connecting | None = None,
    client: ClientIdentity | None = None,
    scopes: str = "",
    challenge: Challenge | None = None,
    patience: float = _PERSON,
) -> TokenSet:
    """Sign in to a server by a browser, and return the tokens. Raises ProblemError.

    `show` shows the address to the user, or opens it. `scopes` are requested in addition to those that the server
    asks for. `challenge` is an earlier refusal of the server; without it the server is asked.
    """
    connecting, client = connecting or Connecting(), client or ClientIdentity()
    async with callback_server(fixed_path=bool(client.id), port=config.callback_port) as callback:

        async def redirect(address: str) -> None:
            url = httpx2.URL(address)
            issuer_transport.check(url)
            callback.expect(parse_qs(urlsplit(address).query)["state"][0])
            await show(address, callback)

        async def returned() -> AuthorizationCodeResult:
            said = await callback.answer(patience)
            usable(said.code)  # registers the code with the redactor
            return AuthorizationCodeResult(code=said.code, state=said.state, iss=said.issuer)

        registered = None
        if client.id and not client.document:
            registered = OAuthClientInformationFull(
                client_id=client.id,
                client_secret=client.secret.reveal() if client.secret else None,
                redirect_uris=[AnyUrl(callback.address)],
                token_endpoint_auth_method="client_secret_basic" if client.secret else "none",
            )
        metadata = OAuthClientMetadata(
            client_name=_NAME,
            redirect_uris=[AnyUrl(callback.address)],
            grant_types=["authorization_code", "refresh_token"],
            response_types=["code"],
        )
        storage = MemoryStorage(registered)
        provider = _CheckedProvider(
            canonical_url(config.url),
            metadata,
            storage,
            redirect,
            returned,
            client_metadata_url=client.id if client.document else None,
        )
        provider.scopes = scopes
        issuer_transport = connecting.to_issuer(config)
        provider.browsable = issuer_transport.check
        try:
            await obtain(provider, config, connecting, challenge)
        except ProblemError:
            # The library compared the issuer with the origin before it knew the issuer: compare once more.
            if not provider.origin_issuer or storage.tokens is not None or callback.expecting:
                raise
            await obtain(provider, config, connecting, challenge)
        return tokens_of(provider, storage, config)


def tokens_of(provider: OAuthClientProvider, storage: MemoryStorage, config: ServerConfig) -> TokenSet:
    """Return the result of a complete exchange. Raises ProblemError for tokens that cannot be used."""
    context, tokens, client = provider.context, storage.tokens, provider.context.client_info
    if tokens is None or client is None:
        raise _failed(config, "the issuer gave no token")
    metadata = context.oauth_metadata
    server = canonical_url(config.url)
    origin = "{0.scheme}://{0.netloc}".format(urlsplit(server))
    access, refresh = checked_tokens(tokens, config)
    return TokenSet(
        server=server_key(server),
        issuer=str(metadata.issuer) if metadata else origin,
        token_endpoint=str(metadata.token_endpoint) if metadata else f"{origin}/token",
        resource=context.get_resource_url(),
        client_id=client.client_id,
        access=access,
        refresh=refresh,
        client_secret=Secret(client.client_secret) if client.client_secret else None,
        method=client.token_endpoint_auth_method or ("client_secret_post" if client.client_secret else "none"),
        scope=tokens.scope or "",
        expires=time.time() + tokens.expires_in if tokens.expires_in else 0.0,
        revocation_endpoint=str(metadata.revocation_endpoint or "") if metadata else "",
    )


def checked_tokens(tokens: OAuthToken, config: ServerConfig) -> tuple[Secret, Secret | None]:
    """Return the access token and the refresh token as secrets. Raises ProblemError for a token for another server."""
    access = usable(tokens.access_token)
    refresh = usable(tokens.refresh_token) if tokens.refresh_token else None
    if access is None or (tokens.refresh_token and refresh is None):
        raise _failed(config, "the token has characters that no token has, or is too long")
    foreign = foreign_audience(tokens.access_token, config.url)
    if foreign:
        why = f"the issuer gave a token for {foreign[:_QUOTED]}, which this server could use there"
        raise _failed(config, why, "do not use this server, or ask its operator")
    return access, refresh


def foreign_audience(token: str, url: str) -> str:
    """Return the audience of a token that is for another server only; empty if the token may be used at `url`.

    Only a token in the form of a JWT shows its audience (RFC 9068). An audience that is no http or https address, such
    as a number, tells nothing about the server.
    """
    parts = token.split(".")
    if len(parts) != 3:
        return ""
    try:
        claims = json_object(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
    except ValueError:
        return ""
    said = claims.get("aud")
    named = [said] if isinstance(said, str) else said if isinstance(said, list) else []
    addresses = [each for each in named if isinstance(each, str) and each.lower().startswith(("https://", "http://"))]
    mine = resource_url_from_server_url(canonical_url(url))
    if not addresses or any(check_resource_allowed(mine, canonical_url(each)) for each in addresses):
        return ""
    return addresses[0]


def _same_origin(one: str, other: str) -> bool:
    try:
        return origin_of(httpx2.URL(one)) == origin_of(httpx2.URL(other))
    except (RemoteRefused, httpx2.InvalidURL):
        return False


async def obtain(auth: httpx2.Auth, config: ServerConfig, connecting: Connecting, challenge: Challenge | None) -> None:
    """Run the exchange of `auth` until the server accepts its token. Raises ProblemError.

    The first request is answered by `challenge` if it is given. All other requests go to the server by its own
    transport, and to issuers by the transport for sign-ins.
    """
    quiet_library()
    server, issuer = connecting.to_server(config), connecting.to_issuer(config)
    body = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "initialize",
        "params": {"protocolVersion": _VERSION, "capabilities": {}, "clientInfo": {"name": _NAME, "version": "0"}},
    }
    headers = {"Accept": "application/json, text/event-stream", MCP_PROTOCOL_VERSION_HEADER: _VERSION}
    request = httpx2.Request("POST", canonical_url(config.url), json=body, headers=headers)
    flow = auth.async_auth_flow(request)
    asked = False
    try:
        outgoing = await anext(flow)
        while True:
            if outgoing is request and not asked:
                asked = True
                response = await _first(server, request, challenge)
            elif outgoing is request:
                response = await server.send_once(request, None)
                refused = challenge_of(response)
                await response.aclose()
                if refused is not None:
                    raise _failed(config, "the server refuses the token that its issuer gave")
                return
            else:
                outgoing.headers.setdefault("Accept", "application/json")
                response = await issuer.handle_async_request(outgoing)
                body_read = await response.aread()
                if isinstance(auth, _CheckedProvider) and response.status_code == 200:
                    auth.note(outgoing, body_read)
            outgoing = await flow.asend(response)
    except StopAsyncIteration:
        raise _failed(config, "the exchange ended without a token") from None
    except (RemoteRefused, BrokenAnswer) as error:
        raise _failed(config, f"{error.problem.what}: {error.problem.why}", error.problem.fix) from None
    except (OAuthFlowError, OAuthRegistrationError, OAuthTokenError, ValidationError, ValueError) as error:
        raise _failed(config, " ".join(str(error).split())[:_QUOTED]) from None
    finally:
        await flow.aclose()
        await server.aclose()
        await issuer.aclose()


async def _first(server: RemoteTransport, request: httpx2.Request, challenge: Challenge | None) -> httpx2.Response:
    """Return the refusal of the server with which an exchange begins."""
    if challenge is None:
        response = await server.send_once(request, None)
        await response.aclose()
        challenge = challenge_of(response) or Challenge(401)  # some servers ask for a token only for calls
    headers = {"WWW-Authenticate": challenge.header} if challenge.header else {}
    return httpx2.Response(challenge.status, headers=headers, content=b"", request=request)


def _failed(config: ServerConfig, why: str, fix: str = "report this to the operator of the server") -> ProblemError:
    return ProblemError(Problem(f"the sign-in to {config.name} failed", why, fix))


class StoredAuth:
    """The tokens of one server in a session, from the keyring. It renews them, and never opens a browser.

    Attributes:
        challenge: The last refusal of the server that a renewal does not answer, or None.
    """

    def __init__(self, config: ServerConfig, store: TokenStore, connecting: Connecting | None = None) -> None:
        self._config, self._store, self._connecting = config, store, connecting or Connecting()
        self._tokens: TokenSet | None = None
        self._read = False
        self._keyring: KeyringFailed | None = None
        self._lock = asyncio.Lock()
        self.challenge: Challenge | None = None

    async def token(self) -> Secret | None:
        """Return the token for the next request, renewed if it has expired; None if there is none."""
        async with self._lock:
            if not self._read:
                await self._load()
                self._read = True
            if self._tokens is not None and self._tokens.expired() and self._tokens.refresh is not None:
                await self._renew(self._tokens)
            return self._tokens.access if self._tokens else None

    async def renewed(self, refused: Secret | None, challenge: Challenge) -> Secret:
        """Return another token after the server refused `refused`. Raises ProblemError if there is none."""
        async with self._lock:
            self.challenge = challenge
            if challenge.status == 401:
                if self._tokens is not None and self._tokens.access == refused:
                    await self._load()  # another session may have renewed or replaced the token
                    if self._tokens is not None and self._tokens.access == refused and self._tokens.refresh is not None:
                        await self._renew(self._tokens)
                if self._tokens is not None and self._tokens.access != refused:
                    return self._tokens.access
                if self._keyring is not None:
                    what = f"the server {self._config.name} asks to sign in"
                    raise ProblemError(
                        Problem(what, f"the keyring: {self._keyring.why}", self._keyring.fix or "unlock it")
                    )
            raise ProblemError(unsigned(self._config.name, challenge))

    async def _load(self) -> None:
        try:
            self._tokens = await asyncio.to_thread(self._store.read, self._config.url)
        except KeyringFailed as error:
            self._tokens, self._keyring = None, error

    async def _renew(self, tokens: TokenSet) -> None:
        """Replace the tokens by renewed ones. Without an effect if the issuer refuses; the server then asks."""
        made = await refreshed(tokens, self._config, self._connecting)
        if made is None:
            return
        self._tokens = made
        try:
            await asyncio.to_thread(self._store.write, made)
        except KeyringFailed as error:
            self._keyring = error  # the session keeps the token in memory


async def refreshed(tokens: TokenSet, config: ServerConfig, connecting: Connecting) -> TokenSet | None:
    """Return renewed tokens, or None if the issuer refuses. Raises ProblemError for a token for another server."""
    assert tokens.refresh is not None
    form = {"grant_type": "refresh_token", "refresh_token": tokens.refresh.reveal(), "resource": tokens.resource}
    headers = dict(_FORM)
    _authenticate(tokens, form, headers)
    transport = connecting.to_issuer(config)
    try:
        request = httpx2.Request("POST", tokens.token_endpoint, data=form, headers=headers)
        response = await transport.handle_async_request(request)
        body = await response.aread()
    except (RemoteRefused, BrokenAnswer) as error:
        raise _failed(config, f"{error.problem.what}: {error.problem.why}", error.problem.fix) from None
    finally:
        await transport.aclose()
    if response.status_code != 200:
        return None
    try:
        given = OAuthToken.model_validate_json(body)
    except ValidationError:
        return None
    access, refresh = checked_tokens(given, config)
    return TokenSet(
        server=tokens.server,
        issuer=tokens.issuer,
        token_endpoint=tokens.token_endpoint,
        resource=tokens.resource,
        client_id=tokens.client_id,
        access=access,
        refresh=refresh or tokens.refresh,
        client_secret=tokens.client_secret,
        method=tokens.method,
        scope=given.scope or tokens.scope,
        expires=time.time() + given.expires_in if given.expires_in else 0.0,
        revocation_endpoint=tokens.revocation_endpoint,
    )


async def revoke(tokens: TokenSet, config: ServerConfig, connecting: Connecting) -> str:
    """Ask the issuer to revoke the tokens (RFC 7009). Return why they are still valid there, or an empty text."""
    if not tokens.revocation_endpoint:
        return "it names no address for that"
    given = [*([(tokens.refresh, "refresh_token")] if tokens.refresh else []), (tokens.access, "access_token")]
    transport = connecting.to_issuer(config)
    try:
        async with asyncio.timeout(_REVOCATION):
            for token, kind in given:
                form, headers = {"token": token.reveal(), "token_type_hint": kind}, dict(_FORM)
                _authenticate(tokens, form, headers)
                request = httpx2.Request("POST", tokens.revocation_endpoint, data=form, headers=headers)
                response = await transport.handle_async_request(request)
                await response.aread()
                if response.status_code != 200:
                    return f"it answered with status {response.status_code}"
    except (RemoteRefused, BrokenAnswer) as error:
        return f"{error.problem.what}: {error.problem.why}"
    except TimeoutError:
        return f"it gave no answer in {_REVOCATION:g} s"
    except (httpx2.InvalidURL, ValueError):
        return "its address for that is not valid"
    finally:
        await transport.aclose()
    return ""


def _authenticate(tokens: TokenSet, form: dict[str, str], headers: dict[str, str]) -> None:
    """Add the identity of the program to a request for tokens (RFC 6749, 2.3.1)."""
    secret = tokens.client_secret.reveal() if tokens.client_secret else ""
    if tokens.method == "client_secret_basic" and secret:
        pair = f"{quote(tokens.client_id, safe='')}:{quote(secret, safe='')}"
        headers["Authorization"] = "Basic " + base64.b64encode(pair.encode()).decode()
        return
    form["client_id"] = tokens.client_id
    if tokens.method == "client_secret_post" and secret:
        form["client_secret"] = secret
