"""The list of credentials for commands: the hosts, the header, and the source of the secret."""

from collections.abc import Mapping

from policy.model.credential import Credential
from runner.secrets.broker.secret_source import place


def listed(credential: Credential) -> tuple[str, ...]:
    """Return the lines for the user. The source of the secret is not accessed."""
    hosts = ", ".join(map(str, credential.rules))
    how = f"`{credential.header}`" + (f", as `{credential.user}`" if credential.user else "")
    opened = "; its TLS is opened" if credential.intercept else "; in the clear" if credential.plain else ""
    return (
        f"{credential.name}: added by the proxy to requests of commands ({credential.ref})",
        f"  to      {hosts}{opened}",
        f"  as      {how}",
        f"  from    {place(credential)}",
    )


def as_json(credential: Credential) -> Mapping[str, object]:
    """Return the credential as JSON values."""
    return {
        "credential": credential.name,
        "hosts": [str(rule) for rule in credential.rules],
        "header": credential.header,
        "place": place(credential),
        "intercept": credential.intercept,
        "plain": credential.plain,
        "row": str(credential.ref),
    }
