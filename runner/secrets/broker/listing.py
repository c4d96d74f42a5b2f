"""The credentials that commands are lent, as they are listed: what for, and where the secret would be looked for."""

from collections.abc import Mapping

from policy.model.credential import Credential
from runner.secrets.broker.secret_source import place


def listed(credential: Credential) -> tuple[str, ...]:
    """Lines for a person. Nothing is looked for, so nothing is woken."""
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
    """The same for a program."""
    return {
        "credential": credential.name,
        "hosts": [str(rule) for rule in credential.rules],
        "header": credential.header,
        "place": place(credential),
        "intercept": credential.intercept,
        "plain": credential.plain,
        "row": str(credential.ref),
    }
