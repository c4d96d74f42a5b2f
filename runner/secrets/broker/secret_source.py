"""The source of a credential's secret: its description for the user, and reading of the secret on first use."""

from collections.abc import Mapping

from policy.model.credential import Credential
from policy.model.verdict import Problem
from runner.secrets.helper_command import Helper, HelperFailed, ask_helper
from runner.secrets.keyring_store import DEFAULT, SERVICE, KeyringFailed, KeyringStore, item
from runner.secrets.secret import Secret, SecretError, usable


def secret_of(credential: Credential, environ: Mapping[str, str], workspace: str) -> Secret:
    """Return the secret of a credential. May take as long as the helper or keyring may. Raise SecretError."""
    kind, *words = credential.source
    try:
        match kind:
            case "env":
                found = usable(environ.get(words[0], ""))
                missing = "it is not set, or has characters that a header cannot contain"
            case "keyring":
                found = KeyringStore().read(words[0], DEFAULT)
                missing = "the keyring has no such item"
            case _:
                return ask_helper(Helper(tuple(words)), environ, workspace)
    except (HelperFailed, KeyringFailed) as error:
        raise _none(credential, error.why, error.fix) from None
    if found is None:
        raise _none(credential, missing, "store the secret there")
    return found


def place(credential: Credential) -> str:
    """Return the source of the secret in words."""
    kind, *words = credential.source
    match kind:
        case "env":
            return f"the variable `{words[0]}`"
        case "keyring":
            return f"the keyring item `{SERVICE}` / `{item(words[0], DEFAULT)}`"
        case _:
            return f"the helper `{words[0]}`"


def listed(credential: Credential) -> tuple[str, ...]:
    """Return the lines for the user. The source of the secret is not accessed."""
    hosts = ", ".join(map(str, credential.rules))
    how = f"`{credential.header}`" + (f", as `{credential.user}`" if credential.user else "")
    opened = "; the proxy decrypts its TLS" if credential.intercept else "; unencrypted" if credential.plain else ""
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


def _none(credential: Credential, why: str, fix: str) -> SecretError:
    what = f"the credential `{credential.name}` is not available from {place(credential)}"
    return SecretError(Problem(what, why, fix))
