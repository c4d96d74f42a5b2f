"""One `[[credential]]`: the requests to which the proxy adds a header that the command never sees, and the settings
that make programs send such requests.

A Credential contains no secret, only the source from which the runner gets the secret.
"""

from collections.abc import Iterable

from policy.model.assessment import RuleRef
from policy.model.frozen import dataclass
from policy.model.host_rule import USUAL, HostRule, host_rule

PLACEHOLDER = "held-by-ringfence"  # for programs that send no request without a token
FOR_READING = " (reading)"  # after the name of a credential in Terms, if only requests that read get the credential
_READING = frozenset(["GET", "HEAD", "OPTIONS"])
# GraphQL sends queries as POST. The second path is that of GitHub Enterprise Server.
# SOURCE: https://docs.github.com/en/graphql/guides/forming-calls-with-graphql
_QUERIES = frozenset(["/graphql", "/api/graphql"])


@dataclass(frozen=True, slots=True)
class Credential:
    """One credential that the proxy adds to matching requests.

    Attributes:
        rules: the requests that get the credential.
        header: the name of the header.
        value: the value of the header with `{secret}` in it; empty for Basic authentication with the user name `user`.
        source: `env NAME`, `keyring NAME` or `helper ARGV..`.
        use: pairs of a program or a variable, and the address that it would use without the credential; empty for all
            addresses of the rules (`git` only), `placeholder` for a variable that gets PLACEHOLDER.
        intercept: True if the proxy decrypts the TLS of the hosts.
        plain: True if the hosts are contacted without TLS.
    """

    name: str
    rules: tuple[HostRule, ...]
    header: str
    value: str
    user: str
    source: tuple[str, ...]
    use: tuple[tuple[str, str], ...]
    intercept: bool
    plain: bool
    ref: RuleRef

    @property
    def port(self) -> int:
        """Return the port for rules without a port."""
        return 80 if self.plain else 443

    def names(self, host: str, port: int) -> bool:
        """Return True if some requests for this host (in the form of `host_name`) and port get the credential."""
        return any(self._meant(rule, port) and rule.names(host, port) for rule in self.rules)

    def meets(self, host: str, port: int, method: str, path: str) -> bool:
        """Return True if this request gets the credential. `path` is the path as sent, without the query."""
        return any(self._meant(rule, port) and rule.meets(host, port, method, path) for rule in self.rules)

    def reached_by(self, hosts: Iterable[str]) -> bool:
        """Return True if an allowlist with these entries permits a request that gets the credential."""
        allowed = [rule for rule in map(host_rule, hosts) if isinstance(rule, HostRule)]
        return any(self._shared(own, rule) for own in self.rules for rule in allowed)

    def addresses(self) -> tuple[tuple[str, str], ...]:
        """Return pairs: the beginning of an address of a host, and the beginning that programs must use instead."""
        scheme = "http" if self.plain else "https"
        found = {}
        for rule in self.rules:
            if not rule.host.startswith("*."):
                port = rule.ports[0] if len(rule.ports) == 1 else self.port
                below = rule.prefix.rstrip("/") + "/"
                named = rule.host if port == self.port else f"{rule.host}:{port}"
                found[f"{scheme}://{named}{below}"] = f"http://{rule.host}:{port}{below}"
        return tuple(found.items())

    def _meant(self, rule: HostRule, port: int) -> bool:
        return rule.ports != USUAL or port == self.port

    def _shared(self, own: HostRule, other: HostRule) -> bool:
        ports = (self.port,) if own.ports == USUAL else own.ports
        if other.ports and not set(ports) & set(other.ports):
            return False
        if own.methods and other.methods and not set(own.methods) & set(other.methods):
            return False
        one, two = own.prefix.rstrip("/") + "/", other.prefix.rstrip("/") + "/"
        return _share_host(own.host, other.host) and (one.startswith(two) or two.startswith(one))


def asked_openly(address: str) -> str:
    """Return the address by which a program requests `https://HOST[:PORT]/PATH` in plain HTTP, so that the proxy adds
    TLS.

    The address has `http` and the port of TLS. An `http://` address keeps its port. A missing path becomes `/`.
    """
    scheme, _, rest = address.partition("://")
    host, slash, path = rest.partition("/")
    if scheme == "https":
        tail = host.rpartition("]")[2] if host.startswith("[") else host
        host = host if ":" in tail else f"{host}:443"
    return f"http://{host}/{path}" if slash else f"http://{host}/"


def reads(method: str, path: str) -> bool:
    """Return True if a request with `method` for `path` (as sent, without the query) only reads, or is a GraphQL
    request, whose method does not say what it does.
    """
    return method in _READING or (method == "POST" and path in _QUERIES)


def select_credentials(credentials: tuple[Credential, ...], hosts: tuple[str, ...]) -> tuple[Credential, ...]:
    """Return the credentials that a command which may connect to `hosts` gets."""
    return tuple(credential for credential in credentials if credential.reached_by(hosts))


def add_credential_settings(
    credentials: tuple[Credential, ...], environment: dict[str, str], bundle: str = ""
) -> dict[str, str]:
    """Return `environment` with the settings that make programs send requests to which the proxy can add credentials.

    The settings contain no secret. `bundle` is the file of certificates that makes programs accept TLS decrypted by the
    proxy; empty for none.
    """
    found = dict(environment)
    count = int(found.get("GIT_CONFIG_COUNT", "0"))
    for credential in credentials:
        for name, address in credential.use:
            pairs = [(address, asked_openly(address))]
            if name == "git":
                for old, new in pairs if address else credential.addresses():
                    found[f"GIT_CONFIG_KEY_{count}"] = f"url.{new}.insteadOf"
                    found[f"GIT_CONFIG_VALUE_{count}"] = old
                    count += 1
                found["GIT_CONFIG_COUNT"] = str(count)
            else:
                found |= _variables_for(name, address, credential)
    if bundle and any(credential.intercept for credential in credentials):
        found |= dict.fromkeys(TRUSTING, bundle)
    return found


# Variables that name a file of trusted certificates: for OpenSSL, requests, curl, pip, Node, Git, Cargo, AWS, Deno, Nix
# and npm. The variable of npm takes precedence over that of Node.
TRUSTING = (
    "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "PIP_CERT", "NODE_EXTRA_CA_CERTS", "GIT_SSL_CAINFO",
    "CARGO_HTTP_CAINFO", "AWS_CA_BUNDLE", "DENO_CERT", "NIX_SSL_CERT_FILE", "npm_config_cafile",
)  # fmt: skip


def _variables_for(name: str, address: str, credential: Credential) -> dict[str, str]:
    """Return the variables for the entry of `use` with this `name` (a program or a variable) and `address`."""
    if address == "placeholder":
        return {name: PLACEHOLDER}
    asked = address if credential.intercept else asked_openly(address)
    at = asked.split("/")[2]
    match name:
        case "pip":
            # pip uses an index over plain HTTP only if its host is trusted. TLS links of the index are still verified.
            return {"PIP_INDEX_URL": asked} | ({} if credential.intercept else {"PIP_TRUSTED_HOST": at})
        case "npm":
            # A registry names packages by absolute addresses; the second setting replaces their host.
            return {"npm_config_registry": asked, "npm_config_replace_registry_host": "always"}
        case "gh":
            if at in ("github.com", "api.github.com"):
                return {"GH_TOKEN": PLACEHOLDER}
            return {"GH_HOST": at, "GH_ENTERPRISE_TOKEN": PLACEHOLDER}
    return {name: asked}


def _share_host(one: str, other: str) -> bool:
    """Return True if the hosts of two rules have a name in common."""
    below, above = (one, other) if len(one) >= len(other) else (other, one)
    if above.startswith("*."):
        return below.removeprefix("*").endswith(above[1:]) or below == above
    return one == other
