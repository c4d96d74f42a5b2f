"""The tokens of remote tool servers, in the OS keyring and nowhere else.

An item of the keyring is for one pair of issuer and server, so a token or a registration is never used for another
server or with another issuer. The file `sign_ins.json` in the state folder lists only addresses: of the servers, and of
the issuer of each.
"""

import base64
import hashlib
import json
import os
import time
from collections.abc import Mapping
from dataclasses import field
from urllib.parse import urlsplit, urlunsplit

from policy.model.frozen import dataclass
from runner.secrets.keyring_store import KeyringFailed, KeyringStore
from runner.secrets.secret import Secret, usable
from runner.state import paths
from runner.state.json_file import StateFile

_FILE = "sign_ins.json"
_CLIENT, _ACCESS, _REFRESH, _SECRET = "mcp-client", "mcp-access", "mcp-refresh", "mcp-secret"
_ITEMS = (_ACCESS, _REFRESH, _SECRET, _CLIENT)
_EARLY = 30.0  # seconds before its end at which a token counts as expired
_METHODS = ("none", "client_secret_post", "client_secret_basic")


@dataclass(frozen=True, slots=True)
class TokenSet:
    """The tokens of one server, and what is necessary to renew them.

    Attributes:
        server: The name of the server in the list of sign-ins, as `server_key` returns it.
        issuer: The issuer of the tokens, exactly as its metadata states it.
        token_endpoint: The address at which the tokens are renewed.
        resource: The resource for which the tokens are (RFC 8707).
        client_id: The registration of this program at the issuer.
        method: The way in which the program authenticates: `none`, `client_secret_post` or `client_secret_basic`.
        scope: The granted scopes, separated by blanks.
        expires: The time at which `access` ends, in seconds since 1970; 0 if it is not known.
        revocation_endpoint: The address at which the issuer revokes tokens (RFC 7009); empty if it names none.
    """

    server: str
    issuer: str
    token_endpoint: str
    resource: str
    client_id: str
    access: Secret
    refresh: Secret | None = None
    client_secret: Secret | None = None
    method: str = "none"
    scope: str = ""
    expires: float = 0.0
    revocation_endpoint: str = ""

    def expired(self) -> bool:
        """Return True if the access token has ended or ends in a few seconds."""
        return bool(self.expires) and time.time() > self.expires - _EARLY


@dataclass(frozen=True, slots=True)
class SignedInServer:
    """A server in the list of sign-ins: its address and the issuer of its tokens."""

    server: str
    issuer: str


@dataclass(frozen=True, slots=True)
class _SignIns:
    """The list of sign-ins: pairs of server and issuer."""

    issuers: Mapping[str, str] = field(default_factory=dict)


class TokenStore:
    """The stored tokens. Methods raise KeyringFailed, StateError or PlaceError."""

    def __init__(self, environ: Mapping[str, str], keyring: KeyringStore | None = None) -> None:
        self._environ, self._keyring = environ, keyring or KeyringStore()

    def servers(self) -> tuple[SignedInServer, ...]:
        """Return the servers for which tokens are stored."""
        return tuple(SignedInServer(*row) for row in sorted(self._list().issuers.items()))

    def read(self, url: str) -> TokenSet | None:
        """Return the tokens of the server with this address, or None. Without a sign-in the keyring is not asked."""
        server = server_key(url)
        issuer = self._list().issuers.get(server)
        if issuer is None:
            return None
        account = _account(server, issuer)
        client = self._keyring.read(_CLIENT, account)
        access = self._keyring.read(_ACCESS, account)
        if client is None or access is None:
            return None
        known = _decoded(client)
        # An item under this account for another pair was not written by this program.
        if known is None or known["server"] != server or known["issuer"] != issuer:
            return None
        return TokenSet(
            server=server,
            issuer=issuer,
            token_endpoint=str(known["token_endpoint"]),
            resource=str(known["resource"]),
            client_id=str(known["client_id"]),
            access=access,
            refresh=self._keyring.read(_REFRESH, account),
            client_secret=self._keyring.read(_SECRET, account),
            method=str(known["method"]),
            scope=str(known["scope"]),
            expires=float(str(known["expires"])),
            revocation_endpoint=str(known["revocation_endpoint"]),
        )

    def write(self, tokens: TokenSet) -> None:
        """Store the tokens in place of earlier ones of the same server."""
        self._file().read()  # fail before a token is stored that no command would find
        client, account = _encoded(tokens), _account(tokens.server, tokens.issuer)
        for kind, secret in ((_REFRESH, tokens.refresh), (_SECRET, tokens.client_secret)):
            if secret is None:
                self._keyring.remove(kind, account)
            else:
                self._keyring.write(kind, account, secret)
        self._keyring.write(_ACCESS, account, tokens.access)
        self._keyring.write(_CLIENT, account, client)
        before = self._list().issuers.get(tokens.server)
        self._change(tokens.server, tokens.issuer)
        if before is not None and before != tokens.issuer:
            self._forget(_account(tokens.server, before))

    def remove(self, url: str) -> bool:
        """Remove the tokens of the server with this address, and return True if there were some."""
        return self._remove(server_key(url))

    def remove_all(self) -> tuple[str, ...]:
        """Remove the tokens of all servers, and return their addresses."""
        return tuple(each.server for each in self.servers() if self._remove(each.server))

    def _remove(self, server: str) -> bool:
        issuer = self._list().issuers.get(server)
        if issuer is None:
            return False
        self._forget(_account(server, issuer))
        self._change(server, None)
        return True

    def _forget(self, account: str) -> None:
        for kind in _ITEMS:
            self._keyring.remove(kind, account)

    def _list(self) -> _SignIns:
        if not os.path.lexists(paths.private(self._environ)[0]):
            return _SignIns()
        return self._file().read().value

    def _change(self, server: str, issuer: str | None) -> None:
        def edit(value: _SignIns) -> tuple[_SignIns, None]:
            others = {name: each for name, each in value.issuers.items() if name != server}
            return _SignIns({**others, server: issuer} if issuer is not None else others), None

        self._file().change(edit)

    def _file(self) -> StateFile[_SignIns]:
        place = paths.state_dir(self._environ) / _FILE
        return StateFile(
            place, "the list of sign-ins", 1, _SignIns, _parse, lambda value: {"servers": dict(value.issuers)}
        )


def canonical_url(url: str) -> str:
    """Return the address of a server in one spelling: lower case of scheme and host, no default port, no fragment."""
    parts = urlsplit(url)
    host = parts.netloc.lower()
    for scheme, port in (("https", ":443"), ("http", ":80")):
        if parts.scheme.lower() == scheme:
            host = host.removesuffix(port)
    return urlunsplit((parts.scheme.lower(), host, parts.path or "/", parts.query, ""))


def server_key(url: str) -> str:
    """Return the address of a server without its query, which may contain a secret, but with a hash of the query."""
    address, mark, query = canonical_url(url).partition("?")
    return f"{address}#{hashlib.sha256(query.encode()).hexdigest()[:16]}" if mark else address


def _account(server: str, issuer: str) -> str:
    return hashlib.sha256(f"{issuer}\n{server}".encode("utf-8", "surrogatepass")).hexdigest()[:40]


def _encoded(tokens: TokenSet) -> Secret:
    """Return the registration as one item of the keyring, which holds visible ASCII characters only."""
    content = {
        "server": tokens.server,
        "issuer": tokens.issuer,
        "token_endpoint": tokens.token_endpoint,
        "resource": tokens.resource,
        "client_id": tokens.client_id,
        "method": tokens.method,
        "scope": tokens.scope,
        "expires": tokens.expires,
        "revocation_endpoint": tokens.revocation_endpoint,
    }
    made = usable(base64.urlsafe_b64encode(json.dumps(content).encode()).decode())
    if made is None:
        raise KeyringFailed("the registration is too long to be stored")
    return made


def _decoded(secret: Secret) -> dict[str, object] | None:
    try:
        content = json.loads(base64.urlsafe_b64decode(secret.reveal()))
        texts = (
            "server",
            "issuer",
            "token_endpoint",
            "resource",
            "client_id",
            "method",
            "scope",
            "revocation_endpoint",
        )
        if isinstance(content, dict):
            content.setdefault("revocation_endpoint", "")  # earlier versions did not store it
        valid = isinstance(content, dict) and all(isinstance(content[name], str) for name in texts)
        if not valid or content["method"] not in _METHODS or not isinstance(content["expires"], int | float):
            return None
    except (ValueError, KeyError):
        return None
    return dict(content)


def _parse(content: dict[str, object], version: int) -> _SignIns:
    table = content.pop("servers", None)
    if content or not isinstance(table, dict) or not all(isinstance(each, str) for each in table.values()):
        raise ValueError("it has no table of servers")
    return _SignIns(dict(table))
