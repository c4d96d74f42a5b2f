"""Injection of credentials into requests of the sandbox proxy. A secret is read on first use and stays outside the
sandbox.
"""

import asyncio
import base64
import json
import re
import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING
from urllib.parse import quote

from policy.model.credential import FOR_READING, Credential, reads
from policy.model.host_rule import METHODS
from policy.model.verdict import Problem
from runner.secrets.broker.secret_source import secret_of
from runner.secrets.secret import Secret, SecretError
from sandbox.egress.credential_injection import Broker, InjectedHeader
from sandbox.egress.ledger import Failed

if TYPE_CHECKING:
    import ssl

    from runner.secrets.broker.session_ca import Authority

_ANEW = 60.0  # seconds until a secret that a server rejected is looked for again
AGAIN = 5.0  # seconds until a secret that was not found is looked for again: a helper may open a window each time
_HEX = re.compile("%[0-9A-F]{2}")
_SHORTEST = 6  # characters of a spelling that is masked in answers: shorter ones occur in any text


class CredentialInjector:
    """The credentials of one session. `authority` issues the certificates for intercepted TLS connections, or is
    None.
    """

    def __init__(
        self,
        credentials: tuple[Credential, ...],
        environ: Mapping[str, str],
        workspace: str,
        *,
        authority: "Authority | None" = None,
        store: str = "",
    ) -> None:
        self._credentials = credentials
        self._environ = environ
        self._workspace = workspace
        self._authority = authority
        self._store = store  # file of the certificates by which servers are verified; empty for the system's
        self._secrets: dict[str, tuple[Secret, float]] = {}
        self._missing: dict[str, tuple[Problem, float]] = {}
        self._looking: dict[str, asyncio.Lock] = {}
        self._trust: ssl.SSLContext | None = None

    def lend(self, names: tuple[str, ...]) -> Broker:
        """Return the broker for commands whose terms name these credentials.

        THREAT T174: a credential whose entry ends with FOR_READING is added only to requests that read.
        """
        reading = {name.removesuffix(FOR_READING) for name in names if name.endswith(FOR_READING)}
        credentials = tuple(each for each in self._credentials if each.name in names or each.name in reading)

        def secure(host: str, port: int) -> bool:
            return any(not each.plain and each.names(host, port) for each in credentials)

        async def asks(host: str, port: int, method: str, path: str) -> InjectedHeader | None:
            # TRACE would return the secret, and the effect of an unknown method is unknown.
            if method not in METHODS:
                return None
            for each in credentials:
                if each.name in reading and not reads(method, path):
                    continue
                if each.meets(host, port, method, path) and each.plain is not secure(host, port):
                    return await self._added(each)
            return None

        def opens(host: str, port: int) -> "ssl.SSLContext | None":
            opened = any(each.intercept and each.names(host, port) for each in credentials)
            return self._authority.serving(host) if opened and self._authority else None

        return Broker(secure, asks, opens, self._trusted, self._rejected)

    async def _added(self, credential: Credential) -> InjectedHeader:
        async with self._looking.setdefault(credential.name, asyncio.Lock()):
            if credential.name not in self._secrets:
                problem, since = self._missing.get(credential.name, (None, 0.0))
                if problem is None or time.monotonic() - since > AGAIN:
                    problem = await self._look_for(credential)
                if problem is not None:
                    raise Failed(f"{problem.what}: {problem.why}", fix=problem.fix)
        secret, _ = self._secrets[credential.name]
        value, masks = _header_and_spellings(credential, secret)
        return InjectedHeader(credential.name, credential.header, value, masks)

    async def _look_for(self, credential: Credential) -> Problem | None:
        """Find the secret and keep it. Keep the problem if there is none, and return it."""
        self._missing.pop(credential.name, None)
        try:
            secret = await asyncio.to_thread(secret_of, credential, self._environ, self._workspace)
        except SecretError as error:
            self._missing[credential.name] = error.problem, time.monotonic()
            return error.problem
        self._secrets[credential.name] = secret, time.monotonic()
        return None

    def _rejected(self, name: str) -> None:
        """Forget a secret that a server rejected, since a token may have expired, but at most once in _ANEW seconds."""
        _, since = self._secrets.get(name, (None, 0.0))
        if time.monotonic() - since > _ANEW:
            self._secrets.pop(name, None)

    def _trusted(self) -> "ssl.SSLContext":
        if self._trust is None:
            from runner.secrets.broker.session_ca import client_context

            self._trust = client_context(self._store)
        return self._trust


def _header_and_spellings(credential: Credential, secret: Secret) -> tuple[str, tuple[bytes, ...]]:
    """Return the value of the header, and the spellings in which a server may return the secret."""
    bare = secret.reveal()
    plain = [bare, _base64(bare)]
    if credential.value:
        value = credential.value.replace("{secret}", bare)
    else:
        login = base64.b64encode(f"{credential.user}:{bare}".encode()).decode()
        value = f"Basic {login}"
        plain.append(login.rstrip("="))
    plain += [each.replace("+", "-").replace("/", "_") for each in plain[1:]]
    forms = {form for each in plain for form in _spellings(each) if len(each) >= _SHORTEST}
    return value, tuple(form.encode() for form in sorted(forms, key=len, reverse=True))


def _base64(text: str) -> str:
    return base64.b64encode(text.encode()).decode().rstrip("=")


def _spellings(text: str) -> Iterator[str]:
    """Yield `text` as URLs, JSON and HTML of several languages spell it."""
    yield text
    for safe in ("", "/"):
        address = quote(text, safe=safe)
        yield address
        yield _HEX.sub(lambda found: found[0].lower(), address)
    escaped = json.dumps(text)[1:-1]
    yield from (escaped, escaped.replace("/", "\\/"))
    for spelled in ("\\u%04x", "\\u%04X"):
        for odd in ("<>&", "<>&'", "<>&'+`"):
            yield "".join(spelled % ord(char) if char in odd else char for char in escaped)
    page = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    for quotes in (("&quot;", "&#x27;"), ("&quot;", "&#039;"), ("&quot;", "&#39;"), ("&#34;", "&#39;")):
        quoted = page.replace('"', quotes[0]).replace("'", quotes[1])
        yield from (quoted, quoted.replace("+", "&#x2B;"), quoted.replace("+", "&#43;"), quoted.replace("/", "&#x2F;"))
